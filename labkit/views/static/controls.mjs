// The bar of controls that players share: buttons with their keys, a slider, a speed.

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  first: "M3 2.5h2v11H3zM13 2.5v11L5.5 8z",
  last: "M11 2.5h2v11h-2zM3 2.5v11L10.5 8z",
  back: "M10.5 2.5v11L3 8zM11.5 2.5H13v11h-1.5z",
  forward: "M5.5 2.5v11L13 8zM3 2.5h1.5v11H3z",
};
export const PLAY_KEYS = {
  " ": "play", ArrowLeft: "back", ArrowRight: "forward", ArrowDown: "back", ArrowUp: "forward", Home: "first", End: "last",
};
const button = (name, title, key) => `<button class="${name}" data-act="${name}" title="${title} (${key})" aria-label="${title}">
  <svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[name]}"/></svg></button>`;

// As HTML, with more below the slider and before the speed. A click on a button names its `data-act`.
export function barOfControls(speeds, below = "", more = "") {
  return `<div class="controls">
    <div class="buttons" role="group" aria-label="play">
      ${button("first", "to the beginning", "Home")}${button("back", "one step back", "←")}
      ${button("play", "play", "Space")}${button("forward", "one step on", "→")}${button("last", "to the end", "End")}
    </div>
    <div class="track"><input type="range" class="slider" min="0" step="1" value="0" aria-label="step">${below}</div>${more}
    <select class="speed" aria-label="speed" title="speed">
      ${speeds.map((one) => `<option value="${one}">${one}×</option>`).join("")}</select>
  </div>`;
}

export function showPlaying(play, playing) {
  const name = playing ? "pause" : "play";
  if (play.getAttribute("aria-label") === name) return;
  play.querySelector("path").setAttribute("d", ICONS[name]);
  play.setAttribute("aria-label", name);
  play.title = `${name} (Space)`;
}

// The act of a key, but for those that a select or a focused button needs itself.
export function actOfKey({ key, target }) {
  if (target.localName === "select" || (target.localName === "button" && key === " ")) return null;
  return PLAY_KEYS[key] ?? null;
}
