// <button data-picture="NAME"> saves the chart of its <figure>: an SVG as an SVG that stands alone, a canvas
// as PNG. Colours are those on the screen.

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

/** The marks with their computed styles, and the labels of the axes where they stand. */
function standalone(plot) {
  const frame = plot.getBoundingClientRect();
  const marks = plot.querySelector("svg");
  const area = marks.getBoundingClientRect();
  const { width, height } = frame;
  const whole = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "sans-serif" });
  whole.append(element("title", {}, marks.getAttribute("aria-label")));
  whole.append(element("rect", { width, height, fill: ground() }));
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
  whole.append(inner);
  const range = document.createRange();
  for (const label of plot.querySelectorAll("li")) {
    range.selectNodeContents(label);
    const box = range.getBoundingClientRect();
    const { color, fontSize } = getComputedStyle(label);
    const place = { x: box.x - frame.x + box.width / 2, y: box.y - frame.y + box.height / 2 };
    whole.append(element("text", {
      ...place, fill: color, "font-size": fontSize, "text-anchor": "middle", "dominant-baseline": "central",
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
  const blob = canvas ? await flattened(canvas) : standalone(figure.querySelector(".plot"));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${button.dataset.picture}.${canvas ? "png" : "svg"}`.replaceAll(" ", "-");
  link.click();
  URL.revokeObjectURL(link.href);
});
