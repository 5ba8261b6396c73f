// Draws <div data-lines="JSON"> (service/dashboard/charts/lines.py) with uPlot: drag to zoom, double-click
// to see all, hover to read. The server says what the points are; this file says how they look.

const SEQUENCE = ["accent", "amber", "violet", "good", "bad", "rose", "muted", "olive"]; // .series-1 and on in style.css
const DASHES = [6, 4];
const HEIGHT = { least: 200, most: 380, share: 0.38 };
const NEAR = 24;
const drawn = new Map();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const percent = (value) => (value == null ? "–" : `${(100 * value).toFixed(1)} %`);
const plain = (value) => (value == null ? "–" : Number.isInteger(value) ? value.toLocaleString("en") : `${+value.toPrecision(5)}`);

function size(host) {
  const width = host.clientWidth;
  return { width, height: Math.round(Math.min(HEIGHT.most, Math.max(HEIGHT.least, width * HEIGHT.share))) };
}

/** A line of a single value has no length to be seen by. */
const isOne = (values) => values.filter((value) => value != null).length === 1;
const isAlone = (plot, index) => isOne(plot.data[index]);

function seriesOf({ label, kind, tone }, index, show, values) {
  const stroke = colour(tone ?? SEQUENCE[index % SEQUENCE.length]);
  const dash = index < SEQUENCE.length ? undefined : DASHES; // where a colour comes again
  const common = { label, stroke, dash, width: 2, spanGaps: true, value: (_, value) => show(value) };
  if (kind === "dots") {
    return { ...common, paths: () => null, points: { show: true, size: isOne(values) ? 9 : 5, width: 0, fill: stroke, stroke } };
  }
  const paths = kind === "stairs" ? uPlot.paths.stepped({ align: 1 }) : uPlot.paths.linear();
  return { ...common, paths, points: { show: isAlone, size: 7, fill: stroke } };
}

function axis(label, more) {
  return {
    label, labelSize: 18, labelGap: 0, labelFont: "12px system-ui", font: "12px system-ui", stroke: colour("muted"),
    grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, ...more,
  };
}

/** Trials and steps are whole: between two of them there is nothing to mark. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7];

const utc = (at) => new Date(1000 * at).toISOString().replace("T", " ");

/** Days where ticks are days apart, else the minute, or the second. */
function moments(_, values, axis, space, step) {
  const [from, to] = step >= 86400 ? [0, 10] : step >= 60 ? [5, 16] : [11, 19];
  return values.map((at) => utc(at).slice(from, to));
}

function draw(host) {
  const known = drawn.get(host);
  if (known?.source === host.dataset.lines) return;
  const { x, y, percent: isShare, time: isTime, series, data } = JSON.parse(host.dataset.lines);
  const names = JSON.stringify([x, y, series]);
  if (known?.names === names) {
    const { min, max } = known.plot.scales.x;
    const [first, last] = [known.plot.data[0].at(0), known.plot.data[0].at(-1)];
    known.plot.setData(data, min <= first && max >= last); // a zoom stays
    known.source = host.dataset.lines;
    return;
  }
  known?.plot.destroy();
  const show = isShare ? percent : plain;
  const below = isTime ? { space: 110, values: moments } : { values: (_, values) => values.map(plain), ...(data[0].every(Number.isInteger) && { incrs: WHOLE }) };
  const ticks = (_, values) => values.map((value) => (isShare ? `${+(100 * value).toFixed(2)} %` : plain(value)));
  const plot = new uPlot(
    {
      ...size(host),
      padding: [8, 20, 0, 0], // half of "10,000" below the last line of the grid
      scales: { x: { time: isTime } },
      tzDate: (at) => uPlot.tzDate(new Date(1000 * at), "Etc/UTC"),
      legend: { live: true, markers: { dash: (plot, index) => (plot.series[index].dash ? "dashed" : "solid") } },
      cursor: { points: { size: 7 }, focus: { prox: NEAR } },
      focus: { alpha: 0.35 },
      series: [{ label: x, value: (_, value) => (isTime && value != null ? utc(value).slice(0, 19) : plain(value)) }, ...series.map((each, i) => seriesOf(each, i, show, data[i + 1]))],
      axes: [axis(x, { size: 32, ...below }), axis(y, { size: 60, values: ticks })],
    },
    data,
    host,
  );
  if (host.dataset.to) leads(plot, host);
  drawn.set(host, { plot, names, source: host.dataset.lines });
  resized.observe(host);
}

/** A click beside a point leads to what it stands for; where the button was moved it was a zoom. */
function leads(plot, { dataset }) {
  let pressed = null;
  plot.over.addEventListener("pointerdown", ({ clientX }) => (pressed = clientX));
  plot.over.addEventListener("click", ({ clientX, ctrlKey, metaKey }) => {
    const { idx, top } = plot.cursor;
    if (idx == null || Math.abs(clientX - pressed) > 3) return;
    const isNear = plot.data.slice(1).some((values) => values[idx] != null && Math.abs(plot.valToPos(values[idx], "y") - top) < NEAR);
    if (!isNear) return;
    const address = dataset.to + plot.data[0][idx];
    if (ctrlKey || metaKey) open(address);
    else location.assign(address);
  });
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const { width, height } = size(target);
    const plot = drawn.get(target)?.plot;
    if (plot && width && (plot.width !== width || plot.height !== height)) plot.setSize({ width, height });
  }
});

function drawAll() {
  for (const [host, { plot }] of drawn) {
    if (host.isConnected) continue;
    plot.destroy();
    resized.unobserve(host);
    drawn.delete(host);
  }
  document.querySelectorAll("[data-lines]").forEach(draw);
}

function redraw() {
  for (const [host, { plot }] of drawn) {
    plot.destroy();
    drawn.delete(host);
  }
  drawAll();
}

document.addEventListener("htmx:after:settle", drawAll);
document.addEventListener("htmx:after:swap", drawAll);
for (const colours of ["(prefers-color-scheme: dark)", "print"]) matchMedia(colours).addEventListener("change", redraw);
drawAll();
