// What players share: the bar of buttons with their keys, a slider and a speed; and the playback that it controls.
import { onKeys } from "./page.mjs";

const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  first: "M3 2.5h2v11H3zM13 2.5v11L5.5 8z",
  last: "M11 2.5h2v11h-2zM3 2.5v11L10.5 8z",
  back: "M10.5 2.5v11L3 8zM11.5 2.5H13v11h-1.5z",
  forward: "M5.5 2.5v11L13 8zM3 2.5h1.5v11H3z",
  full: "M2 2h5v2H4v3H2zM9 2h5v5h-2V4H9zM2 9h2v3h3v2H2zM12 9h2v5H9v-2h3z",
};
const PLAY_KEYS = {
  " ": "play", ArrowLeft: "back", ArrowRight: "forward", ArrowDown: "back", ArrowUp: "forward", Home: "first", End: "last", f: "full",
};
export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
const button = (name, title, key) => `<button class="${name}" data-act="${name}" title="${title} (${key})" aria-label="${title}">
  <svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[name]}"/></svg></button>`;

// As HTML. A click on a button names its `data-act`.
export function barOfControls() {
  return `<div class="controls">
    <div class="buttons" role="group" aria-label="play">
      ${button("first", "to the beginning", "Home")}${button("back", "one step back", "←")}
      ${button("play", "play", "Space")}${button("forward", "one step on", "→")}${button("last", "to the end", "End")}
    </div>
    <div class="track"><input type="range" class="slider" min="0" step="1" value="0" aria-label="step"></div>
    <select class="speed" aria-label="speed" title="speed">
      ${SPEEDS.map((one) => `<option value="${one}"${one === 1 ? " selected" : ""}>${one}×</option>`).join("")}</select>
    <div class="buttons">${button("full", "full screen", "F")}</div>
  </div>`;
}

// At the end of a drawing: the button says what it would do, and while something moves another drawing follows.
export function showPlaying({ play, playback, change }) {
  if (playback.moving) change();
  const name = playback.playing ? "pause" : "play";
  if (play.getAttribute("aria-label") === name) return;
  play.querySelector("path").setAttribute("d", ICONS[name]);
  play.setAttribute("aria-label", name);
  play.title = `${name} (Space)`;
}

// The act of a key, but for those that a select, a focused button or what scrolls needs itself.
function actOfKey({ key, target }) {
  if (target.localName === "select" || (target.localName === "button" && key === " ")) return null;
  if (target.matches(".scrolls") && ["ArrowUp", "ArrowDown"].includes(key)) return null;
  return PLAY_KEYS[key] ?? null;
}

// For a view that has a `playback`, and a `change` after which it is drawn anew; `own` takes the keys that it needs itself.
// `timeOf` gives the time of a value of the slider.
export function onControls(view, section, { timeOf = (value) => value, own = () => false } = {}) {
  const act = (name) => {
    if (name === "full") {
      if (document.fullscreenElement) document.exitFullscreen();
      else view.host.requestFullscreen();
      return true;
    }
    const known = view.playback.act(name, performance.now());
    if (known) view.change();
    return known;
  };
  section.addEventListener("click", ({ target }) => act(target.closest("[data-act]")?.dataset.act));
  section.addEventListener("input", ({ target }) => {
    if (target.matches(".slider")) view.playback.seek(timeOf(Number(target.value)));
    if (target.matches(".speed")) view.playback.speed = Number(target.value);
    view.change();
  });
  onKeys(section, (event) => own(event) || act(actOfKey(event)));
}

// Where playing has come to. Something begins at each of the `moments`, from 0 to the end; `pace(step)` is how much
// time passes in a second. With reduced motion (`still`) nothing is shown between two moments. The time of the
// clock comes from outside.
export class Playback {
  constructor(moments, pace, { speed = 1, still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches } = {}) {
    Object.assign(this, { moments, pace, speed, still, time: 0, target: null, last: 0 });
  }

  get end() { return this.moments.at(-1); }
  get moving() { return this.target !== null; }
  get playing() { return this.target === this.end; }
  get shown() { return this.still ? this.moments[this.step] : this.time; }

  // The index of the last moment that has come.
  get step() {
    const after = this.moments.findIndex((one) => one > this.time + 1e-9 * this.end);
    return (after < 0 ? this.moments.length : after) - 1;
  }

  seek(time) {
    Object.assign(this, { time: Math.min(Math.max(time, 0), this.end), target: null });
  }

  act(name, now) {
    const { moments, time, step, end } = this;
    const begun = time > moments[step] + 1e-9 * end; // on the way to the next
    if (name === "first") this.seek(0);
    else if (name === "last") this.seek(end);
    else if (name === "back") this.seek(moments[Math.max(begun ? step : step - 1, 0)]);
    else if (name === "play" && this.moving) this.seek(this.shown);
    else if (name === "play") this.play(end, now, step === moments.length - 1 ? 0 : time);
    else if (name === "forward") {
      const from = this.moving && !this.playing ? this.target : time; // a key that is held goes on
      const next = moments.find((one) => one > from + 1e-9 * end) ?? end;
      if (this.still) this.seek(next);
      else this.play(next, now, from);
    } else return false;
    return true;
  }

  play(target, now, from) {
    this.seek(from);
    if (this.time < target) Object.assign(this, { target, last: now });
  }

  advance(now) {
    if (!this.moving) return;
    // The stamp of a frame can lie before the click that started it, or long after (a hidden page).
    const passed = Math.max(0, Math.min(now - this.last, 250)) / 1000;
    this.last = now;
    this.time = Math.min(this.target, this.time + passed * this.speed * this.pace(this.step + 1));
    if (this.time === this.target) this.target = null;
  }
}
