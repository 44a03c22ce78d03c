// The box of labkit.predict: a number and a slider, "guess" and "skip". Until one of them is chosen, what its cell shows below
// it stays hidden, and so does all of another cell that shows the outcome. On paper nothing is hidden.
import { element, onKeys, redrawing, write } from "../../views/static/page.mjs";

const isWide = ([low, high]) => low > 0 && high / low > 20; // then each step of the slider is a factor

// The number at a share of the slider, with two digits, and back.
export function numberAt(share, [low, high]) {
  return Number((isWide([low, high]) ? low * (high / low) ** share : low + share * (high - low)).toPrecision(2));
}

export function shareAt(number, [low, high]) {
  const share = isWide([low, high]) ? Math.log(number / low) / Math.log(high / low) : (number - low) / (high - low);
  return Math.min(1, Math.max(0, share || 0));
}

// The kernel's listener (live.py) may not be here yet: it begins with what was told before.
function tell(detail) {
  (globalThis.labkitTold ??= []).push(detail);
  dispatchEvent(new CustomEvent("labkit", { detail }));
}

export class Guess {
  constructor(host) { this.host = host; }

  async open(root, { key, kernel, what, unit, range, guess }) {
    const place = `labkit ${location.pathname} ${what}`; // where the browser keeps the guess; of a skipped one ""
    const number = element("input", { type: "number", min: 0, step: "any", required: true, "aria-label": what, oninput: () => move(number.value) });
    const slider = element("input", { type: "range", max: 1, step: 0.005, value: 0.5, "aria-label": "slider", oninput: () => move(number.value = numberAt(slider.value, range)) });
    const move = (text) => { // to be read aloud, not as a share
      slider.setAttribute("aria-valuetext", `${text} ${unit}`);
      if (root.activeElement !== slider) slider.value = shareAt(text, range);
    };
    const shown = `[data-labkit-outcome="${CSS.escape(what)}"]`;
    const other = `:is(.jp-OutputArea, .cell_output):has(${shown}):not(:has([data-labkit="${key}"]))`; // a cell without the box
    const hides = element("style", {}, `@media screen {
      :is(.jp-OutputArea-child, .cell_output > *):has([data-labkit="${key}"]) ~ *, ${shown}, ${other} > * { display: none !important; }
      ${other}::before { content: "Hidden until you guess or skip: ${CSS.escape(what)}."; } }`);
    const said = element("p", { role: "status" });
    const skip = element("button", { type: "button", onclick: () => choose("") }, "skip");
    const show = (text) => {
      hides.remove();
      skip.hidden = true;
      if (text) move(number.value = text);
      write(said, text ? `You guess ${text}${unit === "×" ? "" : " "}${unit}.` : "Skipped.");
    };
    const choose = (text) => {
      show(text);
      if (text) tell({ kernel, what, guess: Number(text) });
      localStorage.setItem(place, text);
    };
    const send = () => number.reportValidity() && choose(number.value);
    const row = element("div", {}, number, element("span", {}, unit), slider, element("button", { type: "button", onclick: send }, "guess"), skip);
    const section = element("section", { role: "group", "aria-label": `Your guess: ${what}` }, element("strong", {}, `Your guess first: ${what}`), row, said);
    onKeys(row, ({ key, target }) => key === "Enter" && target.localName === "input" && (send(), true)); // no form: JupyterLab keeps Enter from it
    root.querySelector("slot").replaceWith(section);
    redrawing(this.host, section, () => {});
    this.host.before(hides);
    const kept = guess ?? localStorage.getItem(place);
    if (kept !== null) show(String(kept));
  }
}
