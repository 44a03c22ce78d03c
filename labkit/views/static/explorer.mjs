// What all explorers share: sliders and choices, and a plot that answers to them at once. Formulas and
// drawing of each are in a module of its own.
import { coloursOf, label } from "./drawing.mjs";
import { element, penOf, redrawing, widthWith, write } from "./page.mjs";
import { niceTicks } from "./ticks.mjs";

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

// Labels that want to stand at these heights, moved apart.
export function apart(heights, least = 15) {
  const order = heights.map((y, i) => ({ y, i })).sort((a, b) => a.y - b.y);
  order.forEach((one, k) => { if (k) one.y = Math.max(one.y, order[k - 1].y + least); });
  const over = (order.at(-1)?.y ?? 0) - Math.max(...heights);
  for (const one of order) one.y -= over / 2;
  return heights.map((_, i) => order.find((one) => one.i === i).y);
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
  pen.fillStyle = colours.edge;
  for (const tick of ticksOf(y, 7)) {
    pen.fillStyle = colours.edge;
    pen.fillRect(box.left, Math.round(py(tick)), box.right - box.left, 1);
    say(kit, y.text(tick), box.left - 6, py(tick), "right", "faint");
  }
  const shown = ticksOf(x, Math.max(3, (box.right - box.left) / 75));
  for (const tick of shown) {
    pen.fillStyle = colours.edge;
    pen.fillRect(Math.round(px(tick)), box.top, 1, box.bottom - box.top + 4);
    say(kit, x.text(tick), px(tick), box.bottom + 14, "center", "faint");
  }
  say(kit, y.title, box.left, box.top - 12, "left", "faint");
  say(kit, x.title, box.right, box.bottom + 32, "right", "faint");
  return { ...box, x: px, y: py };
}

// Curves { name, points } inside a frame, each with its name at its right end.
export function curves(kit, framed, series, { named = true, dots = false, dashed = true } = {}) {
  const { pen, colours } = kit;
  const ends = apart(series.map(({ points }) => Math.min(Math.max(framed.y(points.at(-1)[1]), framed.top), framed.bottom)));
  series.forEach(({ name, points, look }, i) => {
    const index = look ?? i;
    pen.save();
    pen.beginPath();
    pen.rect(framed.left - 1, framed.top - 2, framed.right - framed.left + 2, framed.bottom - framed.top + 4);
    pen.clip();
    Object.assign(pen, { strokeStyle: colours[`s${index}`], lineWidth: 2.5 });
    pen.setLineDash(dashed ? DASHES[index] : []);
    pen.beginPath();
    for (const [x, y] of points) pen.lineTo(framed.x(x), framed.y(y));
    pen.stroke();
    pen.setLineDash([]);
    if (dots) for (const [x, y] of points) dot(kit, framed.x(x), framed.y(y), `s${index}`, 3);
    pen.restore();
    if (named) say(kit, name, framed.right + 8, ends[i]);
  });
}

export function dot({ pen, colours }, x, y, colour, size = 4.5) {
  Object.assign(pen, { fillStyle: colours[colour], strokeStyle: colours.ground, lineWidth: 1.5 });
  pen.beginPath();
  pen.arc(x, y, size, 0, 7);
  pen.fill();
  pen.stroke();
}

// A line across a frame, upright at `x` or level at `y`.
export function rule({ pen, colours }, framed, { x, y, colour = "mark", dash = [] }) {
  Object.assign(pen, { strokeStyle: colours[colour], lineWidth: 1.5 });
  pen.setLineDash(dash);
  pen.beginPath();
  if (x === undefined) [framed.left, framed.right].forEach((at) => pen.lineTo(at, framed.y(y)));
  else [framed.top, framed.bottom].forEach((at) => pen.lineTo(framed.x(x), at));
  pen.stroke();
  pen.setLineDash([]);
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
