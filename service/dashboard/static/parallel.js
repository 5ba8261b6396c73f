// Parallel coordinates (service/dashboard/charts/parallel.py): what is dragged along an axis goes into the form
// above the table of trials, and lines that fit the form are drawn over the others. The form alone remembers it.

const SIZE = 1000;
const NEAR = 24;

const fields = (name) => document.querySelectorAll(`#trials-filter [name="${CSS.escape(name)}"]`);
const axesOf = (chart) => JSON.parse(chart.dataset.axes).map((axis, index, all) => ({ ...axis, x: Math.round((SIZE * index) / (all.length - 1)) }));
const linesOf = (chart) => [...chart.querySelectorAll('[class^="tone-"]')].flatMap((path) => path.getAttribute("d").split("\n"));

/** How far from the top a value stands, and the value that stands there, to three digits. */
function down({ low, high, log }, value) {
  return SIZE - (SIZE * ((log ? Math.log(value) : value) - low)) / (high - low);
}
function valueAt({ low, high, log, whole }, place) {
  const along = low + ((SIZE - place) / SIZE) * (high - low);
  const value = log ? Math.exp(along) : along;
  return whole ? Math.round(value) : Number(value.toPrecision(3));
}
const choiceAt = ({ choices }, rank) => SIZE - Math.round((SIZE * rank) / (choices - 1));

/** The parts of an axis that the form asks for, from top to bottom; null where it asks for none. */
function partsOf(axis) {
  if (axis.choices) {
    const places = [...fields(`one_of.${axis.name}`)].flatMap(({ checked }, rank) => (checked ? [choiceAt(axis, rank)] : []));
    return places.length ? places.map((place) => [place - 15, place + 15]) : null;
  }
  const [low, high] = ["low", "high"].map((end) => fields(`${end}.${axis.name}`)[0]?.value);
  if (!low && !high) return null;
  return [[high ? down(axis, Number(high)) : 0, low ? down(axis, Number(low)) : SIZE]];
}

function draw(chart, dragged = null) {
  const parts = axesOf(chart).map((axis) => [axis.x, axis.name === dragged?.name ? [dragged.part] : partsOf(axis)]).filter(([, part]) => part);
  const fits = (line) => {
    const places = new Map([...line.matchAll(/[ML](\d+) (\d+)/g)].map(([, x, y]) => [Number(x), Number(y)]));
    return parts.every(([x, part]) => part.some(([top, bottom]) => places.get(x) >= top - 2 && places.get(x) <= bottom + 2));
  };
  const svg = chart.querySelector("svg");
  svg.classList.toggle("is-chosen", parts.length > 0);
  svg.querySelector(".chosen").setAttribute("d", parts.length ? linesOf(chart).filter(fits).join("") : "");
  const bars = parts.flatMap(([x, part]) => part.map(([top, bottom]) => `M${x} ${Math.max(top, 0)}V${Math.min(bottom, SIZE)}`));
  svg.querySelector(".brush").setAttribute("d", bars.join(""));
}

/** The part into the form; all of the axis where there is none. */
function choose(axis, part, rung) {
  const [top, bottom] = part ?? [0, SIZE];
  if (axis.choices) {
    fields(`one_of.${axis.name}`).forEach((box, rank) => {
      const place = choiceAt(axis, rank);
      box.checked = part !== null && place >= top && place <= bottom;
    });
  } else {
    // An accuracy says nothing without the batch that it was scored at.
    const scoredAt = document.getElementById("trials-rung");
    if (axis.name === "accuracy" && part && scoredAt) scoredAt.value = rung;
    fields(`low.${axis.name}`)[0].value = bottom < SIZE ? valueAt(axis, bottom) : "";
    fields(`high.${axis.name}`)[0].value = top > 0 ? valueAt(axis, top) : "";
  }
  document.getElementById("trials-filter").requestSubmit();
}

document.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest?.("[data-axes] svg");
  if (!svg || event.button !== 0 || event.pointerType === "touch" || !document.getElementById("trials-filter")) return;
  const chart = svg.closest("[data-axes]");
  const { left, top, width, height } = svg.getBoundingClientRect();
  const axis = axesOf(chart).find(({ x }) => Math.abs(left + (x / SIZE) * width - event.clientX) < NEAR);
  if (!axis) return;
  event.preventDefault();
  const place = ({ clientY }) => Math.min(SIZE, Math.max(0, (SIZE * (clientY - top)) / height));
  const start = place(event);
  let part = null;
  const move = (moved) => {
    const now = place(moved);
    if (part || Math.abs(now - start) > 10) part = [Math.min(start, now), Math.max(start, now)];
    if (part) draw(chart, { name: axis.name, part });
  };
  document.addEventListener("pointermove", move);
  const end = () => {
    document.removeEventListener("pointermove", move);
    choose(axis, part, chart.dataset.rung);
  };
  document.addEventListener("pointerup", end, { once: true });
});

/* The address says at which batch the charts and the learning curves are, and which two parameters are shown at once;
   the form of the table passes it on. */
const CHOSEN = { "search-rung": "chart_rung", "curves-rung": "curves_rung", "pair-across": "across", "pair-up": "up" };
const PAIR = { "pair-across": "pair-up", "pair-up": "pair-across" };

function remember({ id, value }) {
  const here = new URL(location.href);
  here.searchParams.set(CHOSEN[id], value);
  history.replaceState(history.state, "", here);
  const passed = document.getElementById(`${id}-passed`);
  if (passed) passed.value = value;
}

/* Who chooses for one direction what the other has turns the chart round. Before htmx reads both. */
document.addEventListener("change", ({ target }) => {
  if (!CHOSEN[target.id]) return;
  remember(target);
  const other = document.getElementById(PAIR[target.id]);
  if (!other) return;
  if (other.value === target.value) other.value = [...target.options].find((each) => each.defaultSelected).value;
  remember(other);
}, true);

const drawAll = () => document.querySelectorAll("[data-axes]").forEach((chart) => draw(chart));
document.addEventListener("htmx:after:swap", drawAll);
document.addEventListener("htmx:after:settle", drawAll);
