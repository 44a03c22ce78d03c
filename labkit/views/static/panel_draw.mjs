// What the panel shows, and where: numbers in words, the visible stretch of time, the lanes, and all
// that is painted on canvas.
import { bytesText, countText, GAP, penOf, rgb, widthWith } from "./page.mjs";
import { firstFrom } from "./panel_data.mjs";

// ---- numbers and times in words

// Filled from the page's options, which have it from telemetry's metrics.py.
export const METRICS = {};

export function valueText(metric, value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const { unit } = METRICS[metric];
  if (unit === "B") return bytesText(value);
  if (unit === "W" && value < 9.95) return `${value.toFixed(1)}${GAP}W`;
  return `${countText(Math.round(value))}${GAP}${unit}`;
}

// 12.3 s below a minute; 2:05.0 and 1:02:05.0 above. `step` decides how many decimals are written.
export function timeText(seconds, step = 0.1, long = seconds >= 59.9995) {
  const decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : 2;
  const rounded = Number(Math.abs(seconds).toFixed(decimals));
  if (!long) return `${rounded.toFixed(decimals)}${GAP}s`;
  const [hours, minutes] = [Math.floor(rounded / 3600), Math.floor((rounded % 3600) / 60)];
  const rest = (rounded % 60).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
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
  return reason ? reason.why : valueText(metric, column ? column.table.at(column, time) : null);
}

// The values of all lanes at a moment, to be read aloud.
export function summary(store, strips, time) {
  const devices = strips.map(({ device, lanes }) => {
    const values = lanes.map((lane) => `${METRICS[lane.metric].title} ${valueOf(store, lane, time)}`);
    return `${deviceLabel(device)}: ${values.join(", ")}.`;
  });
  return `At ${timeText(time)}. ${devices.join(" ")}`;
}

// ---- the visible stretch of time: { from, to } in seconds of the recording

const SHORTEST = 0.5;
const FOLLOWED = 60; // seconds that a live panel shows
const JUST_STARTED = 15; // seconds that its axis has at least

export const toPixel = (view, time, width) => ((time - view.from) / (view.to - view.from)) * width;
export const toTime = (view, pixel, width) => view.from + (pixel / width) * (view.to - view.from);

// Inside [0, until], at least SHORTEST wide, as wide as asked for where that is possible.
export function inside({ from, to }, until) {
  const whole = Math.max(until, SHORTEST);
  const width = Math.min(Math.max(to - from, SHORTEST), whole);
  const start = Math.min(Math.max(from, 0), whole - width);
  return { from: start, to: start + width };
}

// The newest `width` seconds of a live recording.
export const followed = (until, width = FOLLOWED) => ({ from: Math.max(0, until - width), to: Math.max(until, JUST_STARTED) });

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
    this.held = this.hovered = null; // moments: the cursor, the pointer
    this.metrics = this.cores = null; // what the reader has chosen; null: what is usual
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

  hold(time) {
    this.held = time === null ? null : this.within(time);
  }

  move(by, { from, to } = this.view()) {
    this.show(from + by, to + by);
  }

  // A factor below 1 shows less time; the cursor stays where it is. A live panel goes on following.
  zoom(factor) {
    const { from, to } = this.view();
    const width = Math.min(Math.max((to - from) * factor, SHORTEST), Math.max(this.end(), SHORTEST));
    if (this.following) this.width = width >= Math.max(this.until, JUST_STARTED) ? Infinity : width;
    else {
      const middle = this.cursor() ?? (from + to) / 2;
      const start = middle - ((middle - from) / (to - from)) * width;
      this.show(start, start + width);
    }
  }

  step(by, every) {
    const { from, to } = this.view();
    const one = Math.max(every, (to - from) / 300);
    this.held = this.within((this.cursor() ?? (by < 0 ? this.moment() : from)) + by * one);
    this.hovered = null;
    this.keepInSight();
  }

  // Moves on when the cursor comes near an edge.
  keepInSight() {
    const { from, to } = this.view();
    if (this.held > from + 0.9 * (to - from)) this.move(this.held - (from + 0.9 * (to - from)));
    else if (this.held < from) this.move(this.held - 0.1 * (to - from) - from);
  }

  // To the beginning or the end; the end of a live recording is followed.
  jump(toEnd) {
    if (toEnd && this.live) this.seen = this.held = null;
    else this.held = toEnd ? this.until : 0;
    if (this.held !== null) this.keepInSight();
  }

  // Pause, or follow again; a recording is shown whole again.
  pause() {
    const { from, to } = this.view();
    if (this.seen) this.seen = null;
    else if (this.live) this.show(from, to);
  }
}

// ---- lanes: which devices and metrics, where, and what the top of a lane means

// GPUs come first.
export function ordered(devices) {
  const rank = ({ sort }) => (sort === "gpu" ? 0 : 1);
  return devices.toSorted((a, b) => rank(a) - rank(b));
}

// Cores are what a laptop has to show; beside GPUs, or in great number, they are folded away.
export function coresUnfolded(devices) {
  return devices.filter((one) => one.sort === "core").length <= 16 && !devices.some((one) => one.sort === "gpu");
}

const given = (store, device, metric) => Boolean(store.column(device, metric)?.given);

// The metrics that a source has, each with whether a device gives a number of it and whether it is shown.
export function metricsOf(store, chosen) {
  const devices = store.devices();
  const known = Object.keys(METRICS).filter((metric) => devices.some((one) => store.column(one, metric)));
  const usual = known.filter((metric) => METRICS[metric].usual && devices.some((one) => one.sort !== "core" && given(store, one, metric)));
  const shown = chosen ?? (usual.length ? usual : ["utilisation"]);
  return known.map((metric) => ({ metric, given: devices.some((one) => given(store, one, metric)), shown: shown.includes(metric) }));
}

// The strips from top to bottom: a device with its lanes. A lane without a number is a line of words
// (`reason`), if it is known why; without a reason there is nothing to show.
export function stripsOf(store, metrics, cores) {
  const laneOf = (device, metric) => {
    if (given(store, device, metric)) return [{ device, metric, reason: null }];
    const reason = device.sort === "core" ? null : store.reason(device, metric, store.until);
    return reason || (store.column(device, metric) && !store.until) ? [{ device, metric, reason }] : [];
  };
  const strips = ordered(store.devices()).filter((one) => one.sort !== "core" || cores)
    .map((device) => ({ device, lanes: metrics.filter((one) => device.sort !== "core" || one === "utilisation").flatMap((one) => laneOf(device, one)) }))
    .filter((one) => one.lanes.length);
  const lanes = strips.flatMap((one) => one.lanes);
  const count = lanes.filter((one) => one.device.sort !== "core").length;
  const tall = count <= 4 ? 56 : count <= 9 ? 38 : 24;
  let height = 0;
  lanes.forEach((lane, i) => {
    const core = lane.device.sort === "core";
    if (i && lane.device !== lanes[i - 1].device) height += core ? 2 : 10;
    lane.top = height;
    lane.height = core ? 18 : lane.reason ? 24 : tall;
    height += lane.height + (core ? 1 : 3);
  });
  return { strips, lanes, height };
}

// What the top of a lane stands for: what the device can do, else a round number above all. One scale
// for a metric on all devices, so that lanes can be compared.
export function scaleOf(store, lanes, { device, metric }) {
  const most = ({ key }) => store.column({ key }, metric)?.most ?? 0;
  const known = typeof METRICS[metric].most === "number" ? METRICS[metric].most : device[METRICS[metric].most];
  if (known && most(device) <= known) return known;
  return roundUp(Math.max(...lanes.filter((one) => one.metric === metric).map((one) => most(one.device))));
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
    rows[i] = free >= 0 ? free : Math.min(ends.length, MOST_SPAN_ROWS - 1);
    ends[rows[i]] = Math.max(ends[rows[i]] ?? 0, end);
  }
  return { spanRows: rows, spanCount: ends.length };
}

// The innermost span at a moment: the one that has begun last.
export function spanAt(spans, time) {
  return spans.filter((one) => one.start <= time && time < (one.end ?? Infinity)).sort((a, b) => b.start - a.start)[0] ?? null;
}

// The bands in sight, each at least a pixel wide.
export function bands(spans, rows, view, width, until) {
  return spans.flatMap(({ name, start, end }, i) => {
    const last = Math.min(end ?? until, until);
    if (last < view.from || start > Math.min(view.to, until)) return [];
    const [left, right] = [start, last].map((time) => toPixel(view, time, width));
    return [{ row: rows[i], left: Math.max(left, -2), right: Math.min(Math.max(right, left + 1), width + 2), name }];
  });
}

// ---- curves

// A column in pixels: for each its lowest and highest sample and their mean, or a point on the line
// between two samples that are no gap apart; NaN where nothing is known.
export function trace({ table: { times, gap }, values }, view, pixels, until = Infinity) {
  const [low, high, mid] = [0, 0, 0].map(() => new Float32Array(pixels).fill(NaN));
  const counts = new Uint32Array(pixels);
  const scale = pixels / (view.to - view.from);
  const last = firstFrom(times, Math.min(until + 1e-9, view.to + gap));
  let [beforeX, beforeValue, beforeTime] = [0, 0, -Infinity];
  for (let row = firstFrom(times, view.from - gap); row < last; row += 1) {
    const value = values[row];
    if (value !== value) continue;
    const x = Math.floor((times[row] - view.from) * scale);
    if (times[row] - beforeTime <= gap)
      for (let p = Math.max(beforeX + 1, 0); p < Math.min(x, pixels); p += 1)
        low[p] = high[p] = mid[p] = beforeValue + ((value - beforeValue) * (p - beforeX)) / (x - beforeX);
    if (x >= 0 && x < pixels) {
      if (!(value > low[x])) low[x] = value;
      if (!(value < high[x])) high[x] = value;
      counts[x] += 1;
      mid[x] = counts[x] > 1 ? mid[x] + (value - mid[x]) / counts[x] : value;
    }
    beforeX = x;
    beforeValue = value;
    beforeTime = times[row];
  }
  return { low, high, mid };
}

const packed = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // as a canvas keeps it

// A lane, pixel by pixel: a browser without a GPU takes frames for a thousand points in thirty lanes,
// and a millisecond for filling an array. The area under the mean, the band from lowest to highest,
// and the line of the mean.
export function fillLane({ width, pixels }, top, tall, { low, high, mid }, most, colour, ground, ratio) {
  const [empty, area, band, line] = [0, 0.16, 0.42, 1].map((share) => packed(ground.map((under, i) => Math.round(under + share * (colour[i] - under)))));
  const base = top + tall;
  const thick = Math.max(1, Math.round(1.5 * ratio));
  const y = (value) => Math.round(Math.min(Math.max(base - ratio - (value * (tall - 2 * ratio)) / most, top + ratio), base - ratio));
  const fill = (p, from, to, paint) => { for (let row = from; row < Math.min(to, base); row += 1) pixels[row * width + p] = paint; };
  pixels.fill(empty, top * width, base * width);
  for (let p = 0; p < width; p += 1) {
    const here = mid[p];
    if (here !== here) continue;
    // Half-way to both neighbours, so that the line has no holes.
    const left = mid[p - 1] >= 0 ? (mid[p - 1] + here) / 2 : here;
    const right = mid[p + 1] >= 0 ? (mid[p + 1] + here) / 2 : here;
    fill(p, y(here), base, area);
    if (high[p] > low[p]) fill(p, y(high[p]), y(low[p]) + 1, band);
    const upper = y(Math.max(left, here, right));
    fill(p, upper, Math.max(upper + thick, y(Math.min(left, here, right))), line);
  }
}

// ---- painting

export const AXIS_HEIGHT = 22;
const PALETTES = {
  light: { ink: "#1b1f23", faint: "#57606a", lane: "#f6f7f9", band: "#dfe5ec", edge: "#8c96a3" },
  dark: { ink: "#e6edf3", faint: "#9aa4af", lane: "#1a1e23", band: "#343c46", edge: "#7d8794" },
};
const metricColour = (metric, theme) => METRICS[metric].colours[theme === "dark" ? 1 : 0];

// scene: { store, view, width, until, theme, track, height, lanes, spanRows }
export function paintLanes(canvas, scene) {
  const { width, track, height, theme } = scene;
  const bottom = track + height;
  const pen = penOf(canvas, width, bottom + AXIS_HEIGHT);
  Object.assign(pen, { font: `11px ${getComputedStyle(canvas).fontFamily}`, textBaseline: "middle" });
  paintCurves(canvas, pen, scene);
  paintAxis(pen, scene, bottom, PALETTES[theme]);
  paintSpans(pen, scene, bottom, PALETTES[theme]);
}

function paintCurves(canvas, pen, { store, view, until, track, lanes, height, theme }) {
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const sheet = new ImageData(canvas.width, Math.max(1, Math.round(height * ratio)));
  const pixels = new Uint32Array(sheet.data.buffer);
  for (const lane of lanes) {
    const column = store.column(lane.device, lane.metric);
    if (lane.reason || !column) continue;
    const [top, tall] = [lane.top, lane.height].map((one) => Math.round(one * ratio));
    const [colour, ground] = [metricColour(lane.metric, theme), PALETTES[theme].lane].map((one) => rgb(one));
    fillLane({ width: sheet.width, pixels }, top, tall, trace(column, view, sheet.width, until), scaleOf(store, lanes, lane), colour, ground, ratio);
  }
  pen.putImageData(sheet, 0, Math.round(track * ratio));
}

function paintAxis(pen, { view, width, track }, bottom, { faint }) {
  const { step, moments } = ticks(view, width);
  pen.fillStyle = faint;
  for (const moment of moments) {
    const x = toPixel(view, moment, width);
    pen.globalAlpha = 0.14;
    pen.fillRect(Math.round(x), track, 1, bottom - track + 4);
    pen.globalAlpha = 1;
    const words = timeText(moment, step, view.to >= 60);
    const half = widthWith(pen)(words) / 2;
    pen.fillText(words, Math.min(Math.max(x, half + 1), width - half - 1) - half, bottom + 13);
  }
}

function paintSpans(pen, { store, view, width, until, spanRows, track }, bottom, { band, edge, ink }) {
  for (const { row, left, right, name } of bands(store.spans, spanRows, view, width, until)) {
    const [top, tall, wide] = [row * SPAN_HEIGHT + 2, SPAN_HEIGHT - 3, Math.max(right - left - 1, 1)];
    pen.fillStyle = band;
    pen.fillRect(left, top, wide, tall);
    pen.fillStyle = edge;
    pen.fillRect(left, top, 1.5, tall);
    // Its edges run down through the lanes: what changed when the epoch began?
    pen.globalAlpha = 0.35;
    if (wide > 3) for (const x of [left, right]) pen.fillRect(Math.round(x), track, 1, bottom - track);
    pen.globalAlpha = 1;
    // As much of the name as fits.
    pen.save();
    pen.beginPath();
    pen.rect(left, top, wide - 2, tall);
    pen.clip();
    pen.fillStyle = ink;
    pen.fillText(name, Math.max(left, 0) + 5, top + tall / 2 + 0.5);
    pen.restore();
  }
}
