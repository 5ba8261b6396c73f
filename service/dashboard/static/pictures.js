// <button data-picture="NAME"> saves the chart of its <figure>: SVGs and their labels as one SVG that stands
// alone, a canvas as PNG. Colours are those on the screen.

const NAMESPACE = "http://www.w3.org/2000/svg";
const STYLES = ["fill", "stroke", "stroke-width", "stroke-linecap", "stroke-dasharray", "opacity", "vector-effect"];

function element(name, attributes, text = "") {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function ground() {
  return getComputedStyle(document.documentElement).getPropertyValue("--surface").trim();
}

/** The marks of one SVG with their computed styles, where they stand in the frame. */
function standing(marks, frame) {
  const area = marks.getBoundingClientRect();
  const inner = element("svg", {
    x: area.x - frame.x, y: area.y - frame.y, width: area.width, height: area.height,
    viewBox: marks.getAttribute("viewBox"), preserveAspectRatio: "none", overflow: "visible",
  });
  for (const mark of marks.querySelectorAll("path, rect, line")) {
    const copy = mark.cloneNode();
    const style = getComputedStyle(mark);
    for (const name of STYLES) copy.setAttribute(name, style.getPropertyValue(name));
    copy.removeAttribute("class");
    inner.append(copy);
  }
  return inner;
}

/** All marks, and the labels of axes or rows where they stand. */
function standalone(plot, name) {
  const frame = plot.getBoundingClientRect();
  const { width, height } = frame;
  const whole = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif" });
  const title = plot.querySelector("svg")?.getAttribute("aria-label") ?? name;
  whole.append(element("title", {}, title));
  whole.append(element("rect", { width, height, fill: ground() }));
  whole.append(...[...plot.querySelectorAll("svg")].map((marks) => standing(marks, frame)));
  const range = document.createRange();
  for (const label of plot.querySelectorAll("li, tbody th, td.num")) {
    range.selectNodeContents(label);
    const box = range.getBoundingClientRect();
    const { color, fontSize } = getComputedStyle(label);
    // Fonts differ where the picture is opened: a label keeps its middle, and names and numbers of rows their edge.
    const anchor = { TH: "start", TD: "end" }[label.tagName] ?? "middle";
    const x = { start: box.left, middle: box.left + box.width / 2, end: box.right }[anchor] - frame.x;
    const y = box.y - frame.y + box.height / 2;
    whole.append(element("text", {
      x, y, fill: color, "font-size": fontSize, "text-anchor": anchor, "dominant-baseline": "central",
    }, label.textContent));
  }
  return new Blob([new XMLSerializer().serializeToString(whole)], { type: "image/svg+xml" });
}

function flattened(canvas) {
  const whole = new OffscreenCanvas(canvas.width, canvas.height);
  const context = whole.getContext("2d");
  context.fillStyle = ground();
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(canvas, 0, 0);
  return whole.convertToBlob({ type: "image/png" });
}

document.addEventListener("click", async ({ target }) => {
  const button = target.closest("button[data-picture]");
  if (!button) return;
  const figure = button.closest("figure");
  const canvas = figure.querySelector("canvas");
  const plot = figure.querySelector(".plot") ?? figure.querySelector("table");
  const blob = canvas ? await flattened(canvas) : standalone(plot, button.dataset.picture);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${button.dataset.picture}.${canvas ? "png" : "svg"}`.replaceAll(" ", "-");
  link.click();
  URL.revokeObjectURL(link.href);
});
