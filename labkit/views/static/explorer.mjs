// What all explorers share: sliders and choices, and a plot that answers to them at once. Formulas and
// drawing of each are in a module of its own.
import { coloursOf, disc, label, niceTicks, polyline, rectangle, spread } from "./drawing.mjs";
import { element, penOf, redrawing, widthWith, write } from "./page.mjs";

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2], [], [3, 3]];
const COLOURS = ["ink", "ground", "edge", "faint", "soft", "lane", "mark", ...[0, 1, 2, 3, 4, 5, 6].map((i) => `s${i}`)];

// ---- without a page

export const range = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
export const doublings = (from, to) => range(0, Math.round(Math.log2(to / from))).map((i) => from * 2 ** i);
export const factors = (from, to, count) => range(0, count).map((i) => from * (to / from) ** (i / count));

// 1, 2, 5, 10 … between two powers of ten.
export function oneTwoFive(from, to) {
  const powers = range(Math.round(Math.log10(from)), Math.round(Math.log10(to)));
  return powers.flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`))).filter((one) => one <= to * 1.001);
}

export const round = (text) => text.replace(/\.0+(?=\D)/, ""); // of a tick
export const nearest = (values, value) => values.reduce((best, one) => (Math.abs(one - value) < Math.abs(best - value) ? one : best));

// From values to pixels; `back` is the other way.
export function axis({ from, to, log }, start, end) {
  const [of, back] = log ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  const [a, b] = [of(from), of(to)];
  const at = (value) => start + ((of(value) - a) * (end - start)) / (b - a);
  return Object.assign(at, { back: (pixel) => back(a + ((pixel - start) * (b - a)) / (end - start)) });
}

export function ticksOf({ from, to, log, at }, most) {
  if (at) return at;
  if (!log) return niceTicks(to, most).filter((one) => one >= from);
  const all = oneTwoFive(10 ** Math.floor(Math.log10(from)), 10 ** Math.ceil(Math.log10(to))).filter((one) => one >= from * 0.999 && one <= to * 1.001);
  if (all.length <= most) return all;
  const tens = all.filter((one) => /^1(e|0*$)|^0\.0*1$/.test(String(one)));
  return tens.filter((_, i) => i % Math.ceil(tens.length / most) === 0);
}

// Where another series becomes the lowest: { at, y, name }, by straight lines between points of log-log axes.
export function crossings(series) {
  const lowest = (i) => series.reduce((best, one) => (one.points[i][1] < best.points[i][1] * (1 - 1e-9) ? one : best));
  let leader = lowest(0);
  return series[0].points.flatMap(([x], i) => {
    const best = lowest(i);
    if (best.points[i][1] >= leader.points[i][1] * (1 - 1e-9)) return [];
    const gap = (j) => Math.log(best.points[j][1] / leader.points[j][1]);
    const before = series[0].points[i - 1][0];
    const share = gap(i - 1) / (gap(i - 1) - gap(i));
    const y = best.points[i - 1][1] * (best.points[i][1] / best.points[i - 1][1]) ** share;
    leader = best;
    return [{ at: before * (x / before) ** share, y, name: best.name }];
  });
}

// ---- drawing; a kit is { pen, colours, wide }

// Words, with the ground around them: they may stand on a line.
export function say({ pen, colours }, text, x, y, align = "left", colour = "ink") {
  label(pen, colours, text, x, y, { align, colour: colours[colour], around: colours.ground });
}

// Two axes with their grid: `x` and `y` are { from, to, log, text, title }.
export function frame(kit, box, x, y) {
  const { pen, colours } = kit;
  const [px, py] = [axis(x, box.left, box.right), axis(y, box.bottom, box.top)];
  for (const tick of ticksOf(y, 7)) {
    rectangle(pen, colours.edge, box.left, Math.round(py(tick)), box.right - box.left, 1);
    say(kit, y.text(tick), box.left - 6, py(tick), "right", "faint");
  }
  let free = -Infinity; // to the right of the label before
  for (const tick of ticksOf(x, Math.max(3, (box.right - box.left) / 75))) {
    rectangle(pen, colours.edge, Math.round(px(tick)), box.top, 1, box.bottom - box.top + 4);
    const half = kit.wide(x.text(tick)) / 2;
    if (px(tick) - half < free) continue;
    say(kit, x.text(tick), px(tick), box.bottom + 14, "center", "faint");
    free = px(tick) + half + 6;
  }
  say(kit, y.title, box.left, box.head ?? box.top - 12, "left", "faint");
  say(kit, x.title, box.right, box.bottom + 32, "right", "faint");
  return { ...box, x: px, y: py };
}

// Curves { name, points } inside a frame, each with its name at its right end.
export function curves(kit, framed, series, { named = true, dots = false, dashed = true } = {}) {
  const { pen, colours } = kit;
  const ends = spread(series.map(({ points }) => framed.y(points.at(-1)[1])), 15, framed.top + 4, framed.bottom);
  series.forEach(({ name, points, look }, i) => {
    const index = look ?? i;
    pen.save();
    pen.beginPath();
    pen.rect(framed.left - 1, framed.top - 2, framed.right - framed.left + 2, framed.bottom - framed.top + 4);
    pen.clip();
    const line = points.map(([x, y]) => [framed.x(x), framed.y(y)]);
    polyline(pen, line, colours[`s${index}`], 2.5, dashed ? DASHES[index] : []);
    if (dots) for (const [x, y] of line) dot(kit, x, y, `s${index}`, 3);
    pen.restore();
    if (named) say(kit, name, framed.right + 8, ends[i]);
  });
}

export function dot({ pen, colours }, x, y, colour, size = 4.5) {
  disc(pen, colours[colour], x, y, size);
  Object.assign(pen, { strokeStyle: colours.ground, lineWidth: 1.5 });
  pen.stroke();
}

// Words above a frame, each with a line down to its point { x, y, text }.
export function marks(kit, framed, points) {
  const wide = Math.max(...points.map(({ text }) => kit.wide(text))) + 12;
  const places = spread(points.map(({ x }) => framed.x(x)), wide, framed.left + wide / 2 - 44, framed.right + 60 - wide / 2);
  points.forEach(({ x, y, text }, i) => {
    const [left, top] = [framed.x(x), framed.top];
    polyline(kit.pen, [[places[i], top - 5], [left, top + 8], [left, framed.y(y)]], kit.colours.soft, 1);
    dot(kit, left, framed.y(y), "ink", 6);
    say(kit, text, places[i], top - 12, "center");
  });
}

// A line across a frame, upright at `x` or level at `y`.
export function rule({ pen, colours }, framed, { x, y, colour = "mark", dash = [] }) {
  const ends = x === undefined ? [framed.left, framed.right].map((at) => [at, framed.y(y)]) : [framed.top, framed.bottom].map((at) => [framed.x(x), at]);
  polyline(pen, ends, colours[colour], 1.5, dash);
}

// ---- the page

// `purpose` is a sentence, `kind` stands in the corner; `controls` are sliders { key, label, values, value, text } and choices { key, label, options, value };
// `draw(kit, values, width)` paints, and returns what is to be said, and `at(x, y)`: the values under a point.
export const explorer = (spec) => class extends Explored {
  constructor(host, root, { alt }) {
    super(host, root, { alt, ...spec });
  }
};

class Explored {
  constructor(host, root, { alt, title, purpose, kind, controls, height, draw }) {
    Object.assign(this, { host, controls, height, paint: draw, inputs: {} });
    this.values = Object.fromEntries(controls.map(({ key, value }) => [key, value]));
    this.canvas = element("canvas", { role: "img", "aria-label": alt });
    this.says = element("p", { class: "says", "aria-live": "polite" });
    this.section = element("section", { class: "explorer", role: "group", "aria-label": title },
      element("header", {}, element("b", {}, title), element("span", {}, purpose)),
      element("div", { class: "body" }, element("div", { class: "inputs" }, ...controls.map((one) => this.input(one))), this.canvas),
      this.says, element("footer", {}, element("em", {}, kind)));
    root.querySelector("slot").replaceWith(this.section);
    this.change = redrawing(host, this.section, () => this.draw());
    const point = ({ offsetX, offsetY, type, buttons }) => {
      if (type === "pointerdown" || buttons) this.set(this.at?.(offsetX, offsetY) ?? {});
    };
    for (const type of ["pointerdown", "pointermove"]) this.canvas.addEventListener(type, point);
    host.dataset.state = "ready";
  }

  input({ key, label, values, options, value, text }) {
    const words = element("span", {}, label);
    if (options) {
      const onchange = ({ target }) => this.set({ [key]: options[target.selectedIndex][0] });
      this.inputs[key] = element("select", { onchange }, ...options.map(([one, name]) => element("option", { selected: one === value }, name)));
      return element("label", {}, words, this.inputs[key]);
    }
    const oninput = ({ target }) => this.set({ [key]: values[target.value] });
    const shown = element("b", {}, text(value));
    const slider = element("input", { type: "range", min: 0, max: values.length - 1, value: values.indexOf(value), oninput, "aria-valuetext": text(value) });
    this.inputs[key] = Object.assign(slider, { shown });
    return element("label", {}, words, shown, slider);
  }

  // Changes some values, each to the nearest that its slider has.
  set(changes) {
    for (const { key, values, text } of this.controls) {
      if (!(key in changes)) continue;
      const value = values ? nearest(values, changes[key]) : changes[key];
      this.values[key] = value;
      if (!values) continue;
      this.inputs[key].value = values.indexOf(value);
      this.inputs[key].setAttribute("aria-valuetext", text(value));
      write(this.inputs[key].shown, text(value));
    }
    this.change();
  }

  draw() {
    const room = this.canvas.parentElement.clientWidth;
    const aside = room > 720 ? 236 : 0;
    const wide = Math.max(280, room - aside);
    const pen = penOf(this.canvas, wide, this.height);
    const colours = coloursOf(this.section, COLOURS);
    pen.font = `12px ${colours.family}`;
    const { says, at } = this.paint({ pen, colours, wide: widthWith(pen) }, this.values, wide);
    this.at = at;
    write(this.says, says);
  }
}
