// The elements of the player. Words are real text, so that they can be read aloud, selected and
// printed; only the ranks and their messages are pixels.
import { element } from "./page.mjs";
import { SPEEDS } from "./player_clock.mjs";

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  play: "M4 2.5v11l9-5.5z",
  pause: "M4 2.5h3v11H4zM9 2.5h3v11H9z",
  first: "M3 2.5h2v11H3zM13 2.5v11L5.5 8z",
  last: "M11 2.5h2v11h-2zM3 2.5v11L10.5 8z",
  back: "M10.5 2.5v11L3 8zM11.5 2.5H13v11h-1.5z",
  forward: "M5.5 2.5v11L13 8zM3 2.5h1.5v11H3z",
};

export const HELP =
  "Space plays and pauses; the arrow keys go a step back or on; Home and End go to the beginning and the end; "
  + "plus and minus change the speed; V changes the view. With Shift, the arrow keys pick a cell, and what it "
  + "holds is said; Escape lets it go.";

export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 16 16");
  drawing.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  drawing.append(path);
  return drawing;
}

export function skeleton(options, act) {
  const button = (name, title, key) => element("button", { type: "button", class: name, title: `${title} (${key})`, "aria-label": title, onclick: () => act(name) }, icon(name));
  const tile = (name) => {
    const value = element("b", {});
    const more = element("small", {});
    return { node: element("div", { class: "tile" }, element("span", { class: "what" }, name), value, more), value, more };
  };
  const view = (name, words) => element("button", { type: "button", class: "view", "data-view": name, "aria-pressed": "false", title: "change the view (V)", onclick: () => act("view", name) }, words);
  const parts = {
    title: element("span", { class: "title" }),
    about: element("span", { class: "about" }),
    views: [view("grid", "Grid"), view("circle", "Circle")],
    first: button("first", "to the beginning", "Home"),
    back: button("back", "one step back", "←"),
    play: button("play", "play", "Space"),
    forward: button("forward", "one step on", "→"),
    last: button("last", "to the end", "End"),
    slider: element("input", { type: "range", class: "slider", min: "0", step: "1", value: "0", "aria-label": "step" }),
    load: element("canvas", { class: "load", "aria-hidden": "true" }),
    speed: element("select", { class: "speed", "aria-label": "speed", title: "speed (+ and −)", onchange: () => act("speed") },
      ...SPEEDS.map((one) => element("option", { value: String(one) }, `${one}×`))),
    base: element("canvas", { class: "base", "aria-hidden": "true" }),
    below: element("canvas", { class: "below", "aria-hidden": "true" }),
    moves: element("canvas", { class: "moves", "aria-hidden": "true" }),
    stage: element("div", { class: "stage", tabindex: "0", role: "group", "aria-label": "the ranks", "aria-describedby": "help" }),
    says: element("p", { class: "says" }),
    detail: element("p", { class: "detail" }),
    legend: element("div", { class: "legend", "aria-hidden": "true" }),
    tiles: { step: tile("step"), messages: tile("messages"), bytes: tile("sent"), time: tile("time, modelled") },
    aloud: element("p", { class: "unseen", "aria-live": "polite" }),
    side: element("div", { class: "side" }),
  };
  parts.side.append(element("div", { class: "tiles" }, ...Object.values(parts.tiles).map((one) => one.node)));
  parts.stage.append(parts.below, parts.base, parts.moves);
  parts.scrub = element("div", { class: "scrub" }, parts.load, parts.slider);
  const buttons = element("div", { class: "buttons", role: "group", "aria-label": "play" }, parts.first, parts.back, parts.play, parts.forward, parts.last);
  const root = element("section", { class: "player", "aria-label": options.alt ?? "Animation of a program" },
    element("header", {}, element("div", { class: "name" }, parts.title, parts.about),
      element("div", { class: "views", role: "group", "aria-label": "view" }, ...parts.views)),
    element("div", { class: "controls" }, buttons, parts.scrub, parts.speed),
    parts.says,
    element("div", { class: "body" }, element("div", { class: "main" }, parts.stage, parts.legend, parts.detail), parts.side),
    element("p", { class: "unseen", id: "help" }, HELP), parts.aloud);
  return { root, ...parts };
}

// What the marks stand for; the same for a reader who cannot tell the colours apart.
export function legendOf(holder, { ranks, mixed }, few, kind) {
  const key = (mark, words, style = false) => element("span", { class: "key" }, element("i", { class: mark, style }), words);
  const words = (text) => element("span", { class: "key" }, text);
  const own = Array.from({ length: ranks <= few ? ranks : 0 }, (_, rank) => key("swatch", String(rank), `background:var(--lk-rank-${rank})`));
  const place = kind === "grid" ? "from left to right" : "from the inside to the outside";
  holder.replaceChildren(...(own.length ? [...own, words(`whose contribution, ${place}`), ...(mixed ? [key("frame", "all of them")] : [])]
    : [...(kind === "grid" ? [key("place", "a contribution is at its rank's place, rank 0 at the left")] : []),
      ...(mixed ? [key("some", kind === "grid" ? "some" : "the darker, the more contributions"), key("whole", `all ${ranks}`)] : [])]));
}
