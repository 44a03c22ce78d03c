// What the panel shows, and where: numbers in words, the visible stretch of time, the lanes, and all
// that is painted on canvas.
import { bytesText, countText, GAP, penOf, rgb, widthWith } from "../../views/static/page.mjs";
import { disc, polyline, rectangle } from "../../views/static/drawing.mjs";
import { firstFrom } from "./store.mjs";

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

export function deviceLabel({ key, sort, name, of }) {
  const number = /\d+$/.exec(key)?.[0];
  const numbered = number && (sort === "gpu" || sort === "core");
  const label = numbered ? `${sort === "gpu" ? "GPU" : "core"} ${number}` : sort === "cpu" ? "CPU" : name || key;
  return of ? `${of} · ${label}` : label;
}

// The value of a lane at a moment: a number, or in one word why there is none.
export function valueOf(store, { device, metric }, time) {
  const reason = store.reason(device, metric, time);
  const column = store.column(device, metric);
  return reason ? reason.why : valueText(metric, column ? column.table.at(column, time) : null);
}

// The values of all lanes at a moment, to be read aloud.
export function summary(store, strips, time) {
  const marks = outliers(store, time);
  const devices = strips.filter(({ device }) => device).map(({ device, lanes }) => {
    const values = lanes.map((lane) => `${METRICS[lane.metric].title} ${valueOf(store, lane, time)}`);
    return `${deviceLabel(device)}: ${[...values, ...(marks.has(device.key) ? [marks.get(device.key)] : [])].join(", ")}.`;
  });
  return `At ${timeText(time)}. ${devices.join(" ")}`;
}

// ---- what stands out, and what all have used

const WINDOW = 5; // seconds over which a device is held against the others
const RULES = [
  ["utilisation", (own, others) => own < others - 25, (own) => `only ${own} busy in ${WINDOW}${GAP}s`],
  ["clock", (own, others) => own < 0.85 * others, (own) => `slow clock: ${own}`],
  ["power", (own, others) => own < 0.7 * others, (own) => `little power: ${own}`],
];
const grouped = (list, keyOf) => list.reduce((map, one) => (map.get(keyOf(one))?.push(one) ?? map.set(keyOf(one), [one]), map), new Map());
const median = (sorted) => (sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : null);

function meanOver(column, from, to) {
  if (!column) return null;
  const { table: { times }, values } = column;
  const there = values.slice(firstFrom(times, from), firstFrom(times, to + 1e-6)).filter((value) => value === value);
  return there.length ? there.reduce((sum, value) => sum + value, 0) / there.length : null;
}

// In words, by its key, each GPU that does less than the median of the others of its kind.
export function outliers(store, time) {
  const found = new Map();
  const gpus = store.devices().filter(({ sort }) => sort === "gpu");
  for (const same of grouped(gpus, ({ of, name }) => `${of}|${name}`).values())
    for (const [metric, less, says] of RULES) {
      const means = same.map((one) => meanOver(store.column(one, metric), time - WINDOW, time));
      same.forEach(({ key }, i) => {
        const others = median(means.filter((mean, j) => j !== i && mean !== null).sort((a, b) => a - b));
        if (means[i] === null || others === null || found.has(key) || !less(means[i], others)) return;
        found.set(key, `${says(valueText(metric, means[i]))}, others ${valueText(metric, others)}`);
      });
    }
  return found;
}

// What all GPUs, or else the processor, have used from the beginning up to a moment, by the hardware's counters.
export function joulesText(store, time) {
  const gpus = store.devices().some(({ sort }) => sort === "gpu");
  const counted = store.devices().filter(({ sort }) => sort === (gpus ? "gpu" : "cpu"));
  const counters = counted.map((one) => store.column(one, "energy"));
  if (!counters.length || store.devices().some(({ of }) => of) || !counters.every((one) => one?.given)) return "";
  // A counter is read rarely; since then, the power of now.
  const used = counted.map((device, i) => {
    const { table, values } = counters[i], power = store.column(device, "power");
    const last = table.times.findLastIndex((at, row) => at <= time + table.every / 2 && values[row] === values[row]);
    return (values[last] ?? NaN) - values.find((one) => one === one) + ((power && table.at(power, time)) ?? 0) * Math.max(0, time - table.times[last]);
  });
  const joules = used.reduce((sum, one) => sum + one, 0);
  if (!(joules >= 0)) return "";
  const [factor, unit] = [[1e6, "MJ"], [1e3, "kJ"], [1, "J"]].find(([one]) => joules >= one) ?? [1, "J"];
  return `${(joules / factor).toPrecision(joules / factor >= 999.5 ? 4 : 3)}${GAP}${unit} so far`;
}

// Who else uses the GPUs, in a sentence.
export function othersText(store, time) {
  const labels = new Map(store.devices().map((one) => [one.key, deviceLabel(one)]));
  const each = store.others(time).map(({ device, pid, user, memory }) =>
    `${labels.get(device) ?? device}: ${user || "another user"} (process ${pid}${memory ? `, ${bytesText(memory)}` : ""})`);
  return each.length ? `Other programs use ${each.join("; ")}.` : "";
}

// The stretches of a training that say how many images they had: { of, parts: [{ start, end, rate, loss }] }.
export function trainings(spans) {
  const counted = spans.filter(({ images, end }) => images && end !== null).sort((a, b) => b.start - a.start || a.end - b.end);
  // From the last to the first: one holds another if any that begins later, or with it, ends sooner, or with it.
  const inner = (all, first = all[0]) => all.filter((one) => {
    const holds = first.end < one.end || (first.end === one.end && first.start > one.start);
    if (one.end < first.end) first = one;
    return !holds;
  });
  return [...grouped(counted, (one) => one.of)].map(([of, all]) => ({
    of, parts: inner(all).reverse().map(({ start, end, images, loss }) => ({ start, end, loss, rate: images / (end - start) })),
  }));
}

// Throughput and loss of the part at a moment, or of the last one before it.
export function trainingText({ parts }, time) {
  const part = parts.findLast(({ start }) => start <= time) ?? parts[0];
  const loss = part.loss === null ? "" : `loss ${part.loss.toPrecision(3)}`;
  return [`${countText(Number(part.rate.toPrecision(3)))} images/s`, loss];
}

// ---- the visible stretch of time: { from, to } in seconds of the recording

const SHORTEST = 0.5;
const FOLLOWED = 60; // seconds that a live panel shows
const PLAYED = 20; // seconds in which a recording plays what is in sight
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
    this.playing = false; // whether the cursor of a recording moves
    this.held = this.hovered = null; // moments: the cursor, the pointer
    this.metrics = this.cores = null; // what the reader has chosen; null: what is usual
    this.open = new Set(); // keys of the devices and groups that are unfolded
    this.data = this.large = false; // whether memory is shown from its least to its most; larger type
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

  // Pause, or follow again; a recording plays, or stops, from the cursor on.
  pause() {
    const { from, to } = this.view();
    if (!this.live) this.playing = !this.playing;
    else if (this.seen) this.seen = null;
    else this.show(from, to);
    if (this.playing && (this.held ?? Infinity) >= Math.min(to, this.until)) this.held = from;
  }

  // Moves the cursor on after so many seconds, to the end of what is in sight.
  play(seconds) {
    const { from, to } = this.view();
    const end = Math.min(to, this.until);
    Object.assign(this, { hovered: null, held: Math.min((this.held ?? from) + (seconds * (to - from)) / PLAYED, end) });
    this.playing = this.held < end;
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

// From so many devices on each has one row, and so many more are a heat map, eight in a group.
const OVERVIEW = 5;
const HEAT = 17;
const TOGETHER = 8;

function groupsOf(devices) {
  const gpus = devices.filter(({ sort }) => sort === "gpu");
  if (gpus.length < HEAT) return devices.map((one) => [one]);
  const groups = Array.from({ length: Math.ceil(gpus.length / TOGETHER) }, (_, i) => gpus.slice(i * TOGETHER, (i + 1) * TOGETHER));
  return [...groups, ...devices.filter(({ sort }) => sort !== "gpu").map((one) => [one])];
}

// The strips from top to bottom: the training, then each device with its lanes, or with one row (`kind`
// "row") that `open` unfolds, or a group of them in a heat map. A lane without a number is a line of
// words (`reason`), if it is known why; without a reason there is nothing to show.
export function stripsOf(store, metrics, cores, { open = new Set(), size = 1 } = {}) {
  const laneOf = (device, metric) => {
    if (given(store, device, metric)) return [{ device, metric, reason: null }];
    const reason = device.sort === "core" ? null : store.reason(device, metric, store.until);
    return reason || (store.column(device, metric) && !store.until) ? [{ device, metric, reason }] : [];
  };
  const devices = ordered(store.devices()).filter((one) => one.sort !== "core" || cores);
  const rows = devices.filter(({ sort }) => sort !== "core").length >= OVERVIEW;
  const strips = trainings(store.spans).map((training) => ({ kind: "training", lanes: [{ kind: "training", training }] }));
  const unfold = (device) => {
    const row = { kind: "row", key: device.key, device, open: open.has(device.key), lanes: [{ kind: "row", device, metric: "utilisation", reason: null }] };
    if (rows && device.sort !== "core") strips.push(row);
    if (rows && device.sort !== "core" && !row.open) return;
    const lanes = metrics.filter((one) => device.sort !== "core" || one === "utilisation").flatMap((one) => laneOf(device, one));
    if (lanes.length) strips.push({ kind: "lanes", device, lanes });
  };
  for (const group of groupsOf(devices)) {
    const key = `group ${group[0].key}`;
    const metric = metrics.find((one) => given(store, group[0], one)) ?? "utilisation";
    if (group.length > 1) strips.push({ kind: "heat", key, devices: group, metric, open: open.has(key), lanes: group.map((device) => ({ kind: "heat", device, metric, reason: null })) });
    if (group.length === 1 || open.has(key)) group.forEach(unfold);
  }
  const lanes = strips.flatMap((one) => one.lanes);
  const [full, map] = [({ kind, device }) => !kind && device.sort !== "core", ({ kind }) => kind === "heat"].map((one) => lanes.filter(one).length);
  const tall = full <= 4 ? 56 : full <= 9 && !rows ? 38 : 24;
  const cell = Math.max(5, Math.min(9, Math.floor(400 / map)));
  const heightOf = ({ kind, device, reason }) => ({ training: 36, row: 36, heat: cell })[kind] ?? (device.sort === "core" ? 18 : reason ? 24 : tall);
  let height = 0;
  strips.forEach((strip, i) => {
    const core = strip.device?.sort === "core";
    if (i) height += core ? 2 : strip.kind === "lanes" && !rows ? 10 : strip.kind === "lanes" || strip.kind === "row" ? 1 : 4;
    for (const lane of strip.lanes) {
      lane.top = height;
      lane.height = Math.round(size * heightOf(lane));
      height += lane.height + (core ? 1 : lane.kind === "heat" ? 0 : 3);
    }
  });
  return { strips, lanes, height };
}

// What the bottom and the top of a lane stand for: 0 and what the device can do, else a round number
// above all. One scale for a metric on all devices, so that lanes can be compared. With `data` memory
// has a scale of its own, around what there is: 188 MB of 25 GB would not be seen.
export function scaleOf(store, lanes, { device, metric }, data = false) {
  const { most, least } = store.column(device, metric) ?? { most: 0, least: 0 };
  if (data && METRICS[metric].unit === "B" && least <= most) {
    const step = roundUp(Math.max(most - least, most / 1000) / 4);
    return { from: Math.floor(least / step) * step, to: (Math.floor(most / step) + 1) * step };
  }
  const known = typeof METRICS[metric].most === "number" ? METRICS[metric].most : device[METRICS[metric].most];
  if (known && most <= known) return { from: 0, to: known };
  const all = lanes.filter((one) => one.metric === metric).map((one) => store.column(one.device, metric)?.most ?? 0);
  return { from: 0, to: roundUp(Math.max(most, ...all)) };
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
const blended = (share, colour, ground) => packed(ground.map((under, i) => Math.round(under + share * (colour[i] - under))));

// How much of its colour an area has: of a row by its height, so that shades tell low, middle and high.
const LEVELS = [0.3, 0.8]; // shares of the most
export const levelOf = (share) => LEVELS.filter((one) => share >= one).length;
const STYLES = {
  lane: { areas: [0.16, 0.16, 0.16], band: 0.42, line: 1, thick: 1.5 }, row: { areas: [0.2, 0.42, 0.72], band: 0, line: 0 },
  line: { areas: null, band: 0.42, line: 1, thick: 1.5 }, over: { areas: null, band: 0, line: 1, thick: 2, halo: 1 },
};

// A lane, pixel by pixel: a browser without a GPU takes frames for a thousand points in thirty lanes,
// and a millisecond for filling an array. The area under the mean, the band from lowest to highest,
// and the line of the mean. `over` leaves what is there already.
export function fillLane({ width, pixels }, { top, tall }, { low, high, mid }, { from, to }, { colour, ground, ratio, style = "lane" }) {
  const { areas, band, line, thick, halo = 0 } = STYLES[style];
  const shades = areas?.map((share) => blended(share, colour, ground));
  const [empty, between, full] = [0, band, line].map((share) => blended(share, colour, ground));
  const base = top + tall;
  const wide = Math.max(1, Math.round(thick * ratio));
  const y = (value) => Math.round(Math.min(Math.max(base - ratio - ((value - from) * (tall - 2 * ratio)) / (to - from), top + ratio), base - ratio));
  const fill = (p, start, end, paint) => { for (let row = Math.max(start, top); row < Math.min(end, base); row += 1) pixels[row * width + p] = paint; };
  if (style !== "over") pixels.fill(empty, top * width, base * width);
  for (let p = 0; p < width; p += 1) {
    const here = mid[p];
    if (here !== here) continue;
    // Half-way to both neighbours, so that the line has no holes.
    const left = mid[p - 1] >= 0 ? (mid[p - 1] + here) / 2 : here;
    const right = mid[p + 1] >= 0 ? (mid[p + 1] + here) / 2 : here;
    if (areas) fill(p, y(here), base, shades[levelOf((here - from) / (to - from))]);
    if (band && high[p] > low[p]) fill(p, y(high[p]), y(low[p]) + 1, between);
    if (!line) continue;
    const upper = y(Math.max(left, here, right));
    const lower = Math.max(upper + wide, y(Math.min(left, here, right)));
    if (halo) fill(p, upper - halo, lower + halo, empty);
    fill(p, upper, lower, full);
  }
}

// A line of a heat map: the darker (on a dark page the brighter), the higher.
export function fillHeat({ width, pixels }, { top, tall }, { mid }, { to }, { colour, ground }) {
  const shades = Array.from({ length: 101 }, (_, i) => blended(0.1 + 0.009 * i, colour, ground));
  for (let p = 0; p < width; p += 1) {
    const shade = mid[p] === mid[p] ? shades[Math.round(100 * Math.min(Math.max(mid[p] / to, 0), 1))] : packed(ground);
    for (let row = top; row < top + tall; row += 1) pixels[row * width + p] = shade;
  }
}

// ---- painting

export const AXIS_HEIGHT = 20;
const PALETTES = {
  light: { ink: "#1b1f23", faint: "#57606a", lane: "#f6f7f9", band: "#dfe5ec", edge: "#8c96a3", rate: "#b9c2cc" },
  dark: { ink: "#e6edf3", faint: "#9aa4af", lane: "#1a1e23", band: "#343c46", edge: "#7d8794", rate: "#4d5763" },
};
const metricColour = (metric, theme) => METRICS[metric].colours[theme === "dark" ? 1 : 0];
const fontOf = (canvas, size) => ({ font: `${11 * size}px ${getComputedStyle(canvas).fontFamily}`, textBaseline: "middle" });

// scene: { store, view, width, until, theme, size, data, track, height, lanes, spanRows }. Spans and the
// axis are a canvas of their own, which stays in sight while the lanes scroll.
export function paintHead(canvas, scene) {
  const pen = penOf(canvas, scene.width, scene.track);
  Object.assign(pen, fontOf(canvas, scene.size));
  paintSpans(pen, scene, PALETTES[scene.theme]);
  const { step, moments } = ticks(scene.view, scene.width, 84 * scene.size);
  pen.fillStyle = PALETTES[scene.theme].faint;
  for (const moment of moments) {
    const x = toPixel(scene.view, moment, scene.width);
    pen.fillRect(Math.round(x), scene.track - 4, 1, 4);
    const words = timeText(moment, step, scene.view.to >= 60);
    const half = widthWith(pen)(words) / 2;
    pen.fillText(words, Math.min(Math.max(x, half + 1), scene.width - half - 1) - half, scene.track - 4 - 6 * scene.size);
  }
}

export function paintLanes(canvas, scene) {
  const { store, view, width, until, height, theme, spanRows } = scene;
  const pen = penOf(canvas, width, height);
  const { faint, edge } = PALETTES[theme];
  paintCurves(canvas, pen, scene);
  for (const lane of scene.lanes) if (lane.kind === "training") paintTraining(pen, lane, scene, PALETTES[theme]);
  const line = (x, alpha, paint) => {
    Object.assign(pen, { globalAlpha: alpha, fillStyle: paint });
    pen.fillRect(Math.round(x), 0, 1, height);
  };
  for (const moment of ticks(view, width, 84 * scene.size).moments) line(toPixel(view, moment, width), 0.14, faint);
  // The edges of spans run down through the lanes: what changed when the epoch began?
  for (const { left, right } of bands(store.spans, spanRows, view, width, until))
    if (right - left > 4) for (const x of [left, right]) line(x, 0.35, edge);
  pen.globalAlpha = 1;
}

function paintCurves(canvas, pen, { store, view, until, lanes, height, theme, data }) {
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const sheet = new ImageData(canvas.width, Math.max(1, Math.round(height * ratio)));
  const target = { width: sheet.width, pixels: new Uint32Array(sheet.data.buffer) };
  const ground = rgb(PALETTES[theme].lane);
  for (const lane of lanes) {
    if (lane.kind === "training" || lane.reason) continue;
    const box = { top: Math.round(lane.top * ratio), tall: Math.round(lane.height * ratio) };
    const draw = (fill, metric, style) => {
      const column = store.column(lane.device, metric);
      if (!column?.given && style === "over") return;
      const colour = rgb(metricColour(metric, theme));
      if (column) fill(target, box, trace(column, view, sheet.width, until), scaleOf(store, lanes, { ...lane, metric }, data), { colour, ground, ratio, style });
    };
    if (lane.kind === "heat") draw(fillHeat, lane.metric);
    else if (lane.kind === "row") {
      draw(fillLane, "utilisation", "row");
      draw(fillLane, "memory", "over");
    } else draw(fillLane, lane.metric, scaleOf(store, lanes, lane, data).from ? "line" : "lane");
  }
  pen.putImageData(sheet, 0, 0);
}

// Throughput as a bar for each part, and the loss as dots at their ends.
function paintTraining(pen, { training: { parts }, top, height }, { view, width, until, lanes }, { lane, rate, ink }) {
  const all = lanes.flatMap((one) => one.training?.parts ?? []);
  const [most, worst] = [Math.max(...all.map((one) => one.rate)), Math.max(...all.map((one) => one.loss ?? 0))];
  rectangle(pen, lane, 0, top, width, height);
  const shown = parts.filter(({ end }) => end <= until + 1e-6);
  for (const { start, end, rate: own } of shown) {
    const [left, right] = [start, end].map((time) => toPixel(view, time, width));
    const tall = ((height - 2) * own) / most;
    rectangle(pen, rate, left, top + height - tall, Math.max(right - left - 1, 1), tall);
  }
  const dots = shown.filter(({ loss }) => loss !== null).map(({ end, loss }) => [toPixel(view, end, width), top + height - 4 - ((height - 8) * loss) / worst]);
  polyline(pen, dots, ink, 1.2);
  for (const [x, y] of dots) disc(pen, ink, x, y, 2.6);
}

function paintSpans(pen, { store, view, width, until, spanRows, size }, { band, edge, ink }) {
  const long = widthWith(pen);
  for (const { row, left, right, name } of bands(store.spans, spanRows, view, width, until)) {
    const [top, tall, wide] = [size * row * SPAN_HEIGHT + 2, size * SPAN_HEIGHT - 3, Math.max(right - left - 1, 1)];
    rectangle(pen, band, left, top, wide, tall);
    rectangle(pen, edge, left, top, 1.5, tall);
    const room = left + wide - Math.max(left, 0) - 8;
    let text = long(name) > room ? /\d+$/.exec(name)?.[0] ?? name : name; // of "epoch 12" the number is enough
    while (room > 12 && long(text) > room) text = `${text.slice(0, -2).trimEnd()}…`;
    pen.fillStyle = ink;
    if (room > 12) pen.fillText(text, Math.max(left, 0) + 5, top + tall / 2 + 0.5);
  }
}
