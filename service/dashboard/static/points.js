// Charts over the space (service/dashboard/charts/slices.py, pair.py, parallel.py) and over time (timeline.py): a pointer at a
// dot, a line or a bar is told whose it is, the same trial stands out in every chart, and a click on a dot or bar leads to it.
// In charts of many studies (bought.py, calibration.py) each dot is a study's: what is a trial here is a study there.

const SIZE = 1000;
const NEAR = 14;

/** The corners of each trial's marks, by its number: one of a dot, two of a bar, several of a line. */
function marksOf(host) {
  const paths = [...host.querySelectorAll("[data-marks]")];
  const parts = paths.flatMap((path) => path.getAttribute("d").match(host.matches(".parallel") ? /[^\n]+/g : /M[^M]+/g) ?? []);
  const corners = (part) => [...part.matchAll(/([ML])(-?\d+) (-?\d+)/g)].map(([, to, x, y]) => ({ to, x: +x, y: +y }));
  return host.dataset.trials.split(",").map((trial, index) => ({ trial, part: parts[index], corners: corners(parts[index] ?? "") }));
}

/** How far a point is from the nearest of the corners, or of the lines between them; on the screen. */
function distance(corners, { x, y }, { width, height }) {
  const placed = corners.map((each) => ({ to: each.to, x: (each.x / SIZE) * width - x, y: (each.y / SIZE) * height - y }));
  return Math.min(...placed.map((end, index) => {
    const start = end.to === "L" ? placed[index - 1] : end;
    const [dx, dy] = [end.x - start.x, end.y - start.y];
    const along = dx || dy ? Math.min(1, Math.max(0, -(start.x * dx + start.y * dy) / (dx * dx + dy * dy))) : 0;
    return Math.hypot(start.x + along * dx, start.y + along * dy);
  }));
}

function nearest(host, event) {
  const box = host.querySelector("svg").getBoundingClientRect();
  const at = { x: event.clientX - box.left, y: event.clientY - box.top };
  const ranked = marksOf(host).map((mark) => ({ ...mark, away: distance(mark.corners, at, box) })).sort((a, b) => a.away - b.away);
  return ranked[0]?.away < NEAR ? ranked[0].trial : null;
}

function point(trial) {
  for (const host of document.querySelectorAll("[data-trials]")) {
    const marks = trial ? marksOf(host).filter((each) => each.trial === trial) : [];
    host.querySelector(".pointed")?.setAttribute("d", marks.map(({ part }) => part).join(""));
  }
}

let tip = null;

function tell(host, trial, event) {
  tip ??= Object.assign(document.createElement("div"), { className: "tip" });
  tip.textContent = JSON.parse(host.closest("[data-named]").dataset.named)[trial];
  host.append(tip);
  const box = host.getBoundingClientRect();
  const half = tip.offsetWidth / 2;
  tip.style.left = `${Math.max(half, Math.min(box.width - half, event.clientX - box.left))}px`;
  tip.style.top = `${event.clientY - box.top}px`;
}

document.addEventListener("pointermove", (event) => {
  const host = event.target.closest?.("[data-trials] svg")?.closest("[data-trials]");
  const trial = host && !event.buttons ? nearest(host, event) : null;
  if (!trial && !tip?.isConnected) return;
  point(trial);
  if (trial) tell(host, trial, event);
  else tip?.remove();
});

document.addEventListener("click", (event) => {
  const host = event.target.closest?.(".points svg")?.closest(".points");
  const trial = host && nearest(host, event);
  if (!trial) return;
  if (event.ctrlKey || event.metaKey) open(host.dataset.to + trial);
  else location.assign(host.dataset.to + trial);
});
