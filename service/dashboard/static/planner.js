// A slider beside each field of the planner, by the logarithm of its value: whichever moves, the other follows.
// The fields alone are sent, by htmx.

const fieldOf = (slider) => document.getElementById(slider.dataset.dial);
const sliderOf = (field) => document.querySelector(`[data-dial="${field.id}"]`);

/** Three digits are as fine as a slider is; whole numbers stay whole. */
function round(value, isWhole) {
  const rounded = Number(value.toPrecision(3));
  return isWhole ? Math.max(1, Math.round(rounded)) : rounded;
}

document.addEventListener(
  "input",
  (event) => {
    const { target } = event;
    if (target.dataset.dial) {
      event.stopPropagation(); // the field speaks for both
      const field = fieldOf(target);
      const base = Number(target.dataset.base);
      field.value = round(base ** Number(target.value), field.step === "1");
      field.dispatchEvent(new Event("input", { bubbles: true }));
    } else if (target.id && sliderOf(target) && target.valueAsNumber > 0) {
      const slider = sliderOf(target);
      slider.value = Math.log(target.valueAsNumber) / Math.log(Number(slider.dataset.base));
    }
  },
  { capture: true },
);
