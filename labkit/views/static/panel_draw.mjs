// What the panel shows, and where: the visible stretch of time, the lanes, the words for numbers, and
// all that is painted on canvas. Colours come from the style sheet, for every theme and for print.
import { penOf, rgb, widthWith } from "./page.mjs";
import { firstFrom } from "./panel_data.mjs";

// ---- numbers and times in words; the metrics are those of telemetry

export const METRICS = {
  utilisation: { title: "utilisation", unit: "%", most: 100 },
  sm_activity: { title: "SM activity", unit: "%", most: 100 },
  memory_activity: { title: "memory traffic", unit: "%", most: 100 },
  memory: { title: "memory", unit: "B", most: "memory_total" },
  process_memory: { title: "process memory", unit: "B" },
  power: { title: "power", unit: "W", most: "power_limit" },
  temperature: { title: "temperature", unit: "°C" },
  clock: { title: "clock", unit: "MHz" },
  pcie: { title: "PCIe", unit: "B/s" },
  nvlink: { title: "NVLink", unit: "B/s" },
};
const DEFAULTS = ["utilisation", "memory", "power"];
const GAP = "\u00a0"; // a number and its unit stay on one line

export function valueText(metric, value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const unit = METRICS[metric]?.unit ?? "";
  if (unit.startsWith("B")) {
    const [factor, prefix] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([one]) => Math.abs(value) >= 0.9995 * one) ?? [1, ""];
    const size = Math.abs(value / factor);
    return `${(value / factor).toFixed(factor === 1 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2)}${GAP}${prefix}${unit}`;
  }
  if (unit === "W" && Math.abs(value) < 9.95) return `${value.toFixed(1)}${GAP}W`;
  return `${Math.round(value).toLocaleString("en-GB")}${GAP}${unit}`;
}

// 12.3 s below a minute; 2:05 and 1:02:05 above. `step` decides how many decimals are written.
export function timeText(seconds, step = 0.1, long = seconds >= 59.9995) {
  const decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  const rounded = Number(Math.abs(seconds).toFixed(decimals));
  if (!long) return `${rounded.toFixed(decimals)}${GAP}s`;
  const [hours, minutes] = [Math.floor(rounded / 3600), Math.floor((rounded % 3600) / 60)];
  const rest = (rounded % 60).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

// How long something took: 3.20 s, 2 min 5 s.
export function lengthText(seconds) {
  if (seconds < 99.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)}${GAP}s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  return minutes >= 60 ? `${Math.floor(minutes / 60)}${GAP}h ${minutes % 60}${GAP}min` : `${minutes}${GAP}min ${Math.round(seconds) % 60}${GAP}s`;
}

export function deviceLabel({ key, sort, name }) {
  const number = /\d+$/.exec(key)?.[0];
  if (number && (sort === "gpu" || sort === "core")) return `${sort === "gpu" ? "GPU" : "core"} ${number}`;
  return sort === "cpu" ? "CPU" : name || key;
}

// The value of a lane at a moment: a number, or in one word why there is none.
export function valueOf(store, { device, metric }, time) {
  const reason = store.reason(device, metric, time);
  const column = store.column(device, metric);
  const value = column && !reason ? column.table.at(column, time) : null;
  return { words: reason ? reason.why : valueText(metric, value), none: value === null };
}

export function summary(store, strips, time) {
  const devices = strips.map(({ device, lanes }) => {
    const values = lanes.map((lane) => `${METRICS[lane.metric].title} ${valueOf(store, lane, time).words}`);
    return `${deviceLabel(device)}: ${values.join(", ")}.`;
  });
  return `At ${timeText(time)}. ${devices.join(" ")}`;
}

// ---- the visible stretch of time: { from, to } in seconds of the recording

export const SHORTEST = 0.5;
const FOLLOWED = 60; // seconds that a live panel shows
const JUST_STARTED = 10; // seconds that its axis has at least

export const toPixel = (view, time, width) => ((time - view.from) / (view.to - view.from)) * width;
export const toTime = (view, pixel, width) => view.from + (pixel / width) * (view.to - view.from);

// Inside [0, until], at least SHORTEST wide, as wide as asked for where that is possible.
export function inside({ from, to }, until) {
  const whole = Math.max(until, SHORTEST);
  const width = Math.min(Math.max(to - from, SHORTEST), whole);
  const start = Math.min(Math.max(from, 0), whole - width);
  return { from: start, to: start + width };
}

// What is under the pointer stays there. A factor below 1 shows less time.
export function zoomed({ from, to }, at, factor, until) {
  const width = Math.min(Math.max((to - from) * factor, SHORTEST), Math.max(until, SHORTEST));
  const share = (at - from) / (to - from);
  return inside({ from: at - share * width, to: at - share * width + width }, until);
}

// The newest `width` seconds; until there are so many, an axis that stands still and fills: first a
// quarter of that, then half, then all of it.
export function followed(until, width = FOLLOWED) {
  if (width === Infinity) return { from: 0, to: Math.max(until, JUST_STARTED) };
  const still = [width / 4, width / 2, width].find((one) => one >= until);
  return still ? { from: 0, to: still } : { from: until - width, to: until };
}

// Moves on when the moment comes near an edge.
export function keptInSight(view, moment, until) {
  const width = view.to - view.from;
  const from = moment > view.from + 0.9 * width ? moment - 0.9 * width : moment < view.from ? moment - 0.1 * width : null;
  return from === null ? view : inside({ from, to: from + width }, until);
}

// Round moments, far enough apart for their labels.
export function ticks({ from, to }, pixels, apart = 84) {
  const least = ((to - from) * apart) / Math.max(pixels, 1);
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const step = steps.find((one) => one >= least) ?? steps.at(-1);
  const first = Math.ceil(from / step - 1e-9);
  return { step, moments: Array.from({ length: Math.max(0, Math.floor(to / step + 1e-9) - first + 1) }, (_, i) => (first + i) * step) };
}

// What is seen and how: all that pointer and keys do to the panel ends here. The stretch is kept as an
// intention ("follow 60 s", "all", "from 3 to 8 s"), so that it is right whenever it is drawn.
export class Viewport {
  constructor(live) {
    this.live = live;
    this.until = 0; // the end of what is shown
    this.width = FOLLOWED; // that a live panel follows
    this.seen = null; // a stretch that was chosen; null: a live panel follows, another shows all
    this.held = this.hovered = this.playing = null; // moments: the cursor, the pointer, the last frame
    this.speed = 1;
    this.choices = { metrics: null, hidden: new Set(), cores: null };
  }

  get following() {
    return this.live && !this.seen;
  }

  view() {
    if (this.seen) return inside(this.seen, this.until);
    return this.live ? followed(this.until, this.width) : inside({ from: 0, to: Infinity }, this.until);
  }

  // The end of the time line. A live one reaches to the right edge before it has been filled.
  end() {
    return Math.max(this.until, this.view().to);
  }

  cursor() {
    return this.hovered ?? this.held;
  }

  // The moment whose values are written: at the cursor, else the newest in sight.
  moment() {
    return this.cursor() ?? Math.min(this.until, this.view().to);
  }

  within(time) {
    return Math.min(Math.max(time, 0), this.until);
  }

  show(from, to) {
    this.seen = inside({ from, to }, this.end());
  }

  all() {
    this.seen = null;
    this.width = Infinity;
  }

  hover(time) {
    this.hovered = time === null ? null : this.within(time);
  }

  // A click puts the cursor down, a second one there takes it away.
  hold(time, near = 0) {
    const again = this.held !== null && time !== null && Math.abs(time - this.held) <= near;
    this.held = time === null || again ? null : this.within(time);
  }

  move(by, { from, to } = this.view()) {
    this.show(from + by, to + by);
  }

  zoom(factor, at = this.cursor()) {
    const view = this.view();
    if (this.following) {
      const width = Math.max(2, (view.to - view.from) * factor);
      this.width = width >= Math.max(this.until, JUST_STARTED) ? Infinity : width;
    } else this.seen = zoomed(view, at ?? (view.from + view.to) / 2, factor, this.end());
  }

  step(by, every) {
    const view = this.view();
    const one = Math.max(every, (view.to - view.from) / 300);
    this.held = this.within((this.cursor() ?? (by < 0 ? this.moment() : view.from)) + by * one);
    this.hovered = null;
    this.keep();
  }

  keep() {
    const view = this.view();
    const next = keptInSight(view, this.held, this.end());
    if (next !== view) this.seen = next;
  }

  // To the beginning or the end; the end of a live recording is followed.
  jump(toEnd) {
    const { from, to } = this.view();
    if (!this.live) this.held = toEnd ? this.until : 0;
    if (toEnd) this.show(this.until - (to - from), this.until);
    else this.show(0, to - from);
    if (toEnd && this.live) this.follow();
  }

  follow() {
    const { from, to } = this.view();
    this.width = this.width === Infinity ? Infinity : Math.max(to - from, 2);
    this.seen = null;
  }

  // The next span, or the one before, fills the view. Returns it.
  span(by, spans) {
    const sorted = [...spans].sort((a, b) => a.start - b.start);
    if (!sorted.length) return null;
    const now = sorted.indexOf(this.spanShown);
    this.spanShown = sorted[now < 0 ? (by > 0 ? 0 : sorted.length - 1) : (now + by + sorted.length) % sorted.length];
    const { start, end } = this.spanShown;
    const to = end ?? this.until;
    const margin = Math.max(0.05 * (to - start), 0.1);
    this.show(start - margin, to + margin);
    return this.spanShown;
  }

  // Pause and follow while it is live, play and stop afterwards.
  pause(now) {
    const { from, to } = this.view();
    if (this.live) {
      if (this.seen) this.seen = null;
      else this.show(from, to);
    } else if (this.playing !== null) this.playing = null;
    else {
      this.playing = now;
      this.hovered = null;
      if (this.held === null || this.held < from || this.held > to || this.held >= this.until - 0.05) this.held = from;
    }
  }

  play(now) {
    // The stamp of a frame can lie before the click that started it, or long after (a hidden page).
    const passed = Math.max(0, Math.min(now - this.playing, 250)) / 1000;
    this.held = this.within(this.held + passed * this.speed);
    this.keep();
    this.playing = this.held >= this.until ? null : now;
  }

  // The recording is over: a panel that has followed shows all of it, another stretch stays.
  stop() {
    this.live = false;
  }
}

// ---- lanes: which devices and metrics, where, and what the top of a lane means

// Parts follow the whole that they are a part of; GPUs come first.
export function ordered(devices) {
  const rank = ({ sort }) => ({ gpu: 0, mig: 0, cpu: 1, core: 1 })[sort] ?? 2;
  const wholes = devices.filter((one) => !devices.some((other) => other.key === one.part_of));
  return wholes.sort((a, b) => rank(a) - rank(b)).flatMap((whole) => [whole, ...devices.filter((one) => one.part_of === whole.key)]);
}

// Cores are what a laptop has to show; beside GPUs, or in great number, they are folded away.
export function coresUnfolded(devices) {
  return devices.filter((one) => one.sort === "core").length <= 16 && !devices.some((one) => one.sort === "gpu" || one.sort === "mig");
}

const hasNumbers = (store, device, metric) => Boolean(store.column(device, metric)?.numbers);

// The metrics that a source has, each with whether a device gives a number of it and whether it is shown.
export function metricsOf(store, chosen) {
  const devices = store.devices();
  const known = Object.keys(METRICS).filter((metric) => devices.some((one) => store.column(one, metric)));
  const given = (metric) => devices.some((one) => hasNumbers(store, one, metric));
  const usual = DEFAULTS.filter((metric) => devices.some((one) => one.sort !== "core" && hasNumbers(store, one, metric)));
  const shown = chosen ?? (usual.length ? usual : ["utilisation"]);
  return known.map((metric) => ({ metric, given: given(metric), shown: shown.includes(metric) }));
}

// The strips from top to bottom: a device with its lanes. A lane without a number is a line of words
// (`reason`), if it is known why; without a reason there is nothing to show.
export function stripsOf(store, metrics, hidden, cores) {
  const lanesOf = (device) => metrics
    .filter((metric) => device.sort !== "core" || metric === "utilisation" || metric === "clock")
    .flatMap((metric) => {
      if (hasNumbers(store, device, metric)) return [{ device, metric, reason: null }];
      const reason = store.reason(device, metric, store.until);
      if (reason && device.sort !== "core") return [{ device, metric, reason }];
      return store.column(device, metric) && !store.until ? [{ device, metric, reason: null }] : [];
    });
  const strips = ordered(store.devices())
    .filter((one) => !hidden.has(one.key) && (one.sort !== "core" || cores))
    .map((device) => ({ device, lanes: lanesOf(device) })).filter((one) => one.lanes.length);
  const count = strips.filter((one) => one.device.sort !== "core").reduce((sum, one) => sum + one.lanes.length, 0);
  const tall = count <= 4 ? 56 : count <= 9 ? 38 : 24;
  let height = 0;
  strips.forEach(({ device, lanes }, i) => {
    const core = device.sort === "core";
    if (i) height += !core ? 10 : strips[i - 1].device.sort === "core" ? 2 : 5;
    for (const lane of lanes) {
      lane.top = height;
      lane.height = core ? 18 : lane.reason ? Math.min(tall, 24) : tall;
      height += lane.height + (core ? 1 : 3);
    }
  });
  return { strips, lanes: strips.flatMap((one) => one.lanes), height };
}

// What the top of a lane stands for: what the device can do, else a round number above all. One scale
// for a metric on all devices, so that lanes can be compared.
export function scalesOf(store, lanes) {
  const tops = new Map();
  const keyed = ({ device, metric }) => {
    const { most } = METRICS[metric];
    const known = typeof most === "number" ? most : device[most];
    return { known, key: known ? `${metric}|${device.key}` : metric };
  };
  for (const lane of lanes) {
    const { known, key } = keyed(lane);
    const seen = store.column(lane.device, lane.metric)?.most ?? 0;
    tops.set(key, Math.max(tops.get(key) ?? 0, known && seen <= known ? known : roundUp(seen)));
  }
  return (lane) => tops.get(keyed(lane).key);
}

// 1, 2, 2.5, 5 × a power of ten.
export function roundUp(value) {
  if (!(value > 0)) return 1e-9;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].find((one) => one * power >= value * 0.9999) * power;
}

// ---- spans as bands

export const SPAN_HEIGHT = 19;
const MOST_SPAN_ROWS = 4;

// A span lies below those that hold it, and below what it overlaps. Rows do not depend on the view, so
// that nothing jumps while zooming.
export function rowsOf(spans) {
  const order = spans.map((span, i) => ({ i, start: span.start, end: span.end ?? Infinity }))
    .sort((a, b) => a.start - b.start || b.end - a.end || a.i - b.i);
  const ends = [];
  const rows = [];
  for (const { i, start, end } of order) {
    const free = ends.findIndex((last) => last <= start + 1e-6);
    const row = free >= 0 ? free : Math.min(ends.length, MOST_SPAN_ROWS - 1);
    ends[row] = Math.max(ends[row] ?? 0, end);
    rows[i] = row;
  }
  return { spanRows: rows, spanCount: ends.length };
}

// The innermost span at a moment: the one that has begun last.
export function spanAt(spans, time) {
  return spans.filter((one) => one.start <= time && time < (one.end ?? Infinity)).sort((a, b) => b.start - a.start)[0] ?? null;
}

// The bands in sight. Spans too short for a pixel are one mark, and marks that would cover each other
// are drawn once.
export function bands(spans, rows, view, width, until, widthOf) {
  const marked = new Set();
  return spans.flatMap((span, i) => {
    const end = Math.min(span.end ?? until, until);
    if (end < view.from || span.start > Math.min(view.to, until)) return [];
    const [left, right] = [span.start, end].map((time) => toPixel(view, time, width));
    const mark = `${rows[i]} ${Math.round(left)}`;
    if (right - left < 2 && marked.has(mark)) return [];
    marked.add(mark);
    const words = fitted(span.name, Math.min(right, width) - Math.max(left, 0) - 8, widthOf);
    return [{ row: rows[i], left, right: Math.max(right, left + 1), open: span.end === null, words }];
  });
}

// As much of the name as fits, at least three letters.
export function fitted(name, room, widthOf) {
  if (widthOf(name) <= room) return name;
  const letters = [...name];
  let kept = Math.min(letters.length - 1, Math.floor(room / 4));
  while (kept >= 3 && widthOf(`${letters.slice(0, kept).join("")}…`) > room) kept -= 1;
  return kept >= 3 ? `${letters.slice(0, kept).join("").trimEnd()}…` : "";
}

// ---- curves

// A column in pixels: for each its lowest and highest sample and their mean, or a point on the line
// between two samples that are no gap apart; NaN where nothing is known.
export function trace({ table, values }, view, pixels, until = Infinity) {
  const [low, high, mid] = [0, 0, 0].map(() => new Float32Array(pixels).fill(NaN));
  const { times, gap } = table;
  const scale = pixels / (view.to - view.from);
  const last = firstFrom(times, table.rows, until + 1e-9);
  let row = firstFrom(times, last, view.from - gap);
  // Lines run on beyond the edges: pixel -1 holds the samples before the view, the last those after it.
  let [beforeX, beforeMean, beforeEnd] = [-1, 0, -Infinity];
  for (let p = -1; p <= pixels; p += 1) {
    const edge = p < pixels ? view.from + (p + 1) / scale : view.to + gap;
    let lowest = Infinity;
    let highest = -Infinity;
    let total = 0;
    let count = 0;
    let began = 0;
    let ended = 0;
    for (; row < last && times[row] < edge; row += 1) {
      const value = values[row];
      if (value !== value) continue;
      if (value < lowest) lowest = value;
      if (value > highest) highest = value;
      if (count === 0) began = row;
      ended = row;
      total += value;
      count += 1;
    }
    if (!count) continue;
    const within = p >= 0 && p < pixels;
    const next = p < 0 ? ended : began;
    const mean = within ? total / count : values[next];
    const x = within ? p : (times[next] - view.from) * scale - 0.5;
    if (times[began] - beforeEnd <= gap)
      for (let q = Math.max(Math.floor(beforeX) + 1, 0); q < Math.min(x, pixels); q += 1)
        low[q] = high[q] = mid[q] = beforeMean + ((mean - beforeMean) * (q - beforeX)) / (x - beforeX);
    if (within) [low[p], high[p], mid[p]] = [lowest, highest, mean];
    [beforeX, beforeMean, beforeEnd] = [x, mean, times[ended]];
  }
  return { low, high, mid };
}

export const mix = (over, under, share) => over.map((one, i) => Math.round(under[i] + share * (one - under[i])));
const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // as a canvas keeps it

// A lane, pixel by pixel: a browser without a GPU takes frames for a thousand points in thirty lanes,
// and a millisecond for filling an array. `sheet`: { width, pixels }; the area under the mean, the band
// from lowest to highest, and the line with smooth edges.
export function fillLane({ width, pixels }, top, tall, { low, high, mid }, most, colour, ground, ratio) {
  const [under, between] = [0.16, 0.42].map((share) => mix(colour, ground, share));
  const [area, band] = [under, between].map(packed);
  const shades = [ground, under, between].map((one) => Uint32Array.from({ length: 9 }, (_, i) => packed(mix(colour, one, i / 8))));
  const base = top + tall;
  const y = (value) => Math.min(Math.max(base - ratio - (value * (tall - 2 * ratio)) / most, top + ratio), base - ratio);
  pixels.fill(packed(ground), top * width, base * width);
  const fill = (p, from, to, paint) => { for (let row = from; row < Math.min(to, base); row += 1) pixels[row * width + p] = paint; };
  for (let p = 0; p < width; p += 1) {
    const here = mid[p];
    if (here !== here) continue;
    const left = mid[p - 1] >= 0 ? (mid[p - 1] + here) / 2 : here;
    const right = mid[p + 1] >= 0 ? (mid[p + 1] + here) / 2 : here;
    const middle = Math.round(y(here));
    fill(p, middle, base, area);
    const banded = high[p] > low[p];
    if (banded) fill(p, Math.floor(y(high[p])), Math.floor(y(low[p])) + 1, band);
    const above = y(Math.max(left, here, right)) - 0.75 * ratio;
    const below = y(Math.min(left, here, right)) + 0.75 * ratio;
    for (let row = Math.max(top, Math.floor(above)); row <= Math.min(base - 1, Math.floor(below)); row += 1) {
      const cover = Math.min(row + 1, below) - Math.max(row, above, 0);
      pixels[row * width + p] = shades[banded ? 2 : row > middle ? 1 : 0][Math.round(8 * Math.min(cover, 1))];
    }
  }
}

// ---- painting

export const AXIS_HEIGHT = 22;
const OVERVIEW_HEIGHT = 36;

export function coloursOf(root) {
  const style = getComputedStyle(root);
  const read = (name) => style.getPropertyValue(`--lk-${name}`).trim() || "gray";
  const named = (names) => Object.fromEntries(names.map((name) => [name, read(name.replace("_", "-"))]));
  const font = style.getPropertyValue("--lk-canvas-font").trim() || "11px system-ui, sans-serif";
  return { ...named(["ink", "faint", "lane", "band", "band-ink", "band-edge", "warn"]), metric: named(Object.keys(METRICS)), font };
}

// scene: { store, view, width, until, track, height, lanes, scale, spanRows, colours }
export function paintLanes(canvas, scene) {
  const { width, track, height, colours } = scene;
  const bottom = track + height;
  const pen = penOf(canvas, width, bottom + AXIS_HEIGHT);
  Object.assign(pen, { font: colours.font, textBaseline: "middle" });
  paintCurves(canvas, pen, scene);
  paintAxis(pen, scene, bottom);
  for (const lane of scene.lanes)
    if (!lane.reason) for (const trouble of scene.store.troubles(lane.device, lane.metric)) paintTrouble(pen, scene, lane, trouble);
  paintSpans(pen, scene, bottom);
}

function paintCurves(canvas, pen, { store, view, until, track, lanes, scale, height, colours }) {
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const sheet = new ImageData(canvas.width, Math.max(1, Math.round(height * ratio)));
  const pixels = new Uint32Array(sheet.data.buffer);
  for (const lane of lanes) {
    const column = store.column(lane.device, lane.metric);
    if (lane.reason || !column) continue;
    const [top, tall] = [lane.top, lane.height].map((one) => Math.round(one * ratio));
    fillLane({ width: sheet.width, pixels }, top, tall, trace(column, view, sheet.width, until), scale(lane), rgb(colours.metric[lane.metric]), rgb(colours.lane), ratio);
  }
  pen.putImageData(sheet, 0, Math.round(track * ratio));
}

function paintAxis(pen, { view, width, track, colours }, bottom) {
  const { step, moments } = ticks(view, width);
  const widthOf = widthWith(pen);
  pen.fillStyle = colours.faint;
  for (const moment of moments) {
    const x = toPixel(view, moment, width);
    pen.globalAlpha = 0.14;
    pen.fillRect(Math.round(x), track, 1, bottom - track + 4);
    pen.globalAlpha = 1;
    const words = timeText(moment, step, view.to >= 60);
    const half = widthOf(words) / 2;
    pen.fillText(words, Math.min(Math.max(x, half + 1), width - half - 1) - half, bottom + 13);
  }
}

// Hatched: there was a number that cannot be right, or none, and it is known why.
function paintTrouble(pen, { view, width, until, track, colours }, lane, { from, to, why }) {
  const [left, right] = [Math.max(toPixel(view, from, width), 0), Math.min(toPixel(view, Math.min(to, Math.max(until, from)), width), width)];
  if (right <= left) return;
  const [top, height] = [track + lane.top, lane.height];
  pen.save();
  pen.beginPath();
  pen.rect(left, top, Math.max(right - left, 2), height);
  pen.clip();
  pen.strokeStyle = why === "implausible" ? colours.warn : colours.faint;
  pen.globalAlpha = why === "implausible" ? 0.8 : 0.45;
  pen.beginPath();
  // From a fixed origin, so that the hatching does not crawl while the view moves.
  for (let x = left - height - ((left - height) % 6); x < right; x += 6) {
    pen.moveTo(x, top + height);
    pen.lineTo(x + height, top);
  }
  pen.stroke();
  const wide = widthWith(pen)(why) + 8;
  if (right - left > wide + 4 && height >= 18) {
    pen.globalAlpha = 1;
    pen.fillStyle = colours.lane;
    pen.fillRect(left + 4, top + height / 2 - 8, wide, 16);
    pen.fillStyle = colours.ink;
    pen.fillText(why, left + 8, top + height / 2 + 0.5);
  }
  pen.restore();
}

function paintSpans(pen, { store, view, width, until, spanRows, track, colours }, bottom) {
  const edges = new Set();
  for (const band of bands(store.spans, spanRows, view, width, until, widthWith(pen))) {
    const top = band.row * SPAN_HEIGHT + 2;
    const [left, right] = [Math.max(band.left, -2), Math.min(band.right, width + 2)];
    pen.fillStyle = colours.band;
    pen.fillRect(left, top, Math.max(right - left - 1, 1), SPAN_HEIGHT - 3);
    pen.fillStyle = colours["band-edge"];
    pen.fillRect(left, top, 1.5, SPAN_HEIGHT - 3);
    if (right - left > 3) for (const x of band.open ? [band.left] : [band.left, band.right]) edges.add(Math.round(x));
    if (!band.words) continue;
    pen.fillStyle = colours["band-ink"];
    pen.fillText(band.words, Math.max(left, 0) + 5, top + (SPAN_HEIGHT - 3) / 2 + 0.5);
  }
  // Edges run down through the lanes: what changed when the epoch began?
  pen.fillStyle = colours["band-edge"];
  pen.globalAlpha = 0.35;
  for (const x of edges) pen.fillRect(x, track, 1, bottom - track);
  pen.globalAlpha = 1;
}

// The whole recording, small: the mean over some devices of a metric in per cent.
export function paintOverview(canvas, { store, width, devices, metric, end, until, colours }) {
  const pen = penOf(canvas, width, OVERVIEW_HEIGHT);
  const view = { from: 0, to: end };
  pen.fillStyle = colours.lane;
  pen.fillRect(0, 0, width, OVERVIEW_HEIGHT);
  const traces = devices.map((device) => store.column(device, metric)).filter(Boolean).map((column) => trace(column, view, width, until).mid);
  pen.fillStyle = colours.metric[metric];
  pen.globalAlpha = 0.55;
  for (let p = 0; p < width; p += 1) {
    const there = traces.map((one) => one[p]).filter((one) => one === one);
    if (!there.length) continue;
    const mean = there.reduce((sum, one) => sum + one, 0) / there.length;
    const tall = Math.max(1, (Math.min(mean, 100) / 100) * (OVERVIEW_HEIGHT - 6));
    pen.fillRect(p, OVERVIEW_HEIGHT - tall, 1, tall);
  }
  pen.globalAlpha = 1;
  pen.fillStyle = colours["band-edge"];
  for (const { left, right } of bands(store.spans, store.spans.map(() => 0), view, width, until, () => Infinity))
    pen.fillRect(left, 0, Math.max(right - left - 1, 1), 3);
}
