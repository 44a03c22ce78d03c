// The data of one recording in the page: samples by source, spans and states, taken line by line in
// the format of telemetry's recordings, and the packed history that panel_page.py makes.

export const MOST_ROWS = 40_960; // more than an hour at 10 Hz; then every second row goes
const TICKS = 10_000; // of a second, in a packed history

// The index of the first of the sorted `times` that is not before `moment`.
export function firstFrom(times, moment) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The samples of one source. A column is one metric of one device; NaN where there is no number.
class Table {
  constructor(source, metrics, devices, every, times = []) {
    const keys = devices.flatMap((device) => metrics.map((metric) => `${device.key}|${metric}`));
    const columns = new Map(keys.map((key) => [key, { table: this, values: new Array(times.length).fill(NaN), given: false, most: 0 }]));
    Object.assign(this, { source, devices, every, times, columns });
  }

  // Longer than this without a number is a gap. A slow metric is read only every few samples.
  get gap() {
    const { times, every } = this;
    return Math.max(1, 6 * every, (3 * (times.at(-1) - times[0])) / times.length || 0);
  }

  // A row that is not newer than the last one is known already. True: a column has its first number.
  append(time, devices) {
    if (time <= this.times.at(-1)) return false;
    if (this.times.length >= MOST_ROWS) this.thin();
    this.times.push(time);
    const numbers = devices.flat();
    let [at, first] = [0, false];
    for (const column of this.columns.values()) {
      const value = numbers[at++] ?? NaN;
      column.values.push(value);
      if (value !== value) continue;
      first ||= !column.given;
      column.given = true;
      if (value > column.most) column.most = value;
    }
    return first;
  }

  thin() {
    const half = (list) => list.filter((_, row) => row % 2 === 0);
    this.times = half(this.times);
    for (const column of this.columns.values()) column.values = half(column.values);
  }

  // The number nearest to `time` that is not across a gap, or null.
  at({ values }, time) {
    const { times, gap } = this;
    const next = firstFrom(times, time);
    let [best, distance] = [null, gap];
    for (let row = next; row < times.length && times[row] - time < distance; row += 1)
      if (values[row] === values[row]) [best, distance] = [values[row], times[row] - time];
    for (let row = next - 1; row >= 0 && time - times[row] <= distance; row -= 1)
      if (values[row] === values[row]) return values[row];
    return best;
  }
}

export class Store {
  constructor() {
    this.clear();
    // What is known of the kernel: whether a model has come to life here, when it last sent something,
    // why it has ended the recording, and whether the connection is lost.
    Object.assign(this, { opened: false, heardAt: null, ended: null, gone: false });
    this.version = 0; // changes with all that decides the layout
    this.listeners = new Set();
    this.waiting = null; // lines that came while a history was being unpacked
    this.viewport = null; // shared by all panels of this recording
  }

  clear() {
    Object.assign(this, { header: null, tables: [], spans: [], states: new Map(), until: 0, damage: null });
  }

  get every() {
    return this.header?.every ?? 0.1;
  }

  // News of the kernel: { opened, history, lines, ended, gone }.
  async receive({ opened, history, lines, ended, gone }) {
    if (opened) this.opened = true;
    if (gone) this.gone = true;
    if (ended) this.ended = ended;
    if (lines) {
      Object.assign(this, { heardAt: performance.now(), gone: false });
      if (this.waiting) this.waiting.push(...JSON.parse(lines));
      else JSON.parse(lines).forEach((line) => this.take(line));
    }
    this.tell();
    if (!history) return;
    this.waiting ??= [];
    const about = await unpack(history);
    if (about.seconds > this.until - 0.01) this.load(about);
    this.waiting?.forEach((line) => this.take(line));
    this.waiting = null;
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  // One line of the recording, as an object. Unknown lines are from a newer labkit.
  take(line) {
    if (Array.isArray(line)) {
      const [number, time, ...devices] = line;
      if (!this.tables[number]) return;
      if (this.tables[number].append(time, devices)) this.version += 1;
      this.until = Math.max(this.until, time);
    } else if ("labkit" in line) this.header = line;
    else if ("source" in line) this.describe(line);
    else if ("span" in line) this.addSpan({ ...line, name: line.span });
    else if ("state" in line) this.addState({ ...line, why: line.state });
  }

  // While a page loads it is told of a source several times.
  describe({ source, metrics, devices }) {
    if (this.tables.some((one) => one.source === source)) return;
    this.version += 1;
    this.tables.push(new Table(source, metrics, devices, this.every));
  }

  // A whole recording, in place of what is here.
  load({ header, sources, spans, states, seconds, damage }) {
    this.clear();
    Object.assign(this, { header, damage, until: seconds });
    for (const { source, metrics, devices, times, columns } of sources) {
      const table = new Table(source, metrics, devices, this.every, times);
      [...table.columns.values()].forEach((column, i) => Object.assign(column, columns[i]));
      this.tables.push(table);
    }
    spans.forEach((span) => this.addSpan(span));
    states.forEach((state) => this.addState(state));
    this.version += 1;
  }

  // A span is sent when it begins and again when it has ended. Lines and a history round differently.
  addSpan({ name, start, end = null }) {
    const known = this.spans.find((one) => one.name === name && Math.abs(one.start - start) < 1e-4);
    if (!known) this.spans.push({ name, start, end });
    else known.end ??= end;
    this.version += 1;
  }

  addState(state) {
    const key = `${state.device}|${state.metric}`;
    const known = this.states.get(key) ?? [];
    if (known.some((one) => one.time === state.time && one.why === state.why)) return;
    this.states.set(key, [...known, state]);
    this.version += 1;
  }

  devices() {
    return this.tables.flatMap((table) => table.devices.map((device) => ({ ...device, source: table.source })));
  }

  // The column of a metric of a device, or undefined.
  column({ key }, metric) {
    return this.tables.map((table) => table.columns.get(`${key}|${metric}`)).find(Boolean);
  }

  // Why there is no number at a moment: the newest state of the metric, its device, or its source.
  reason({ key, source }, metric, time) {
    for (const about of [`${key}|${metric}`, `${key}|`, `${source}|`]) {
      const state = this.states.get(about)?.findLast((one) => one.why !== "note" && one.time <= time + 1e-6);
      if (state && state.why !== "fine") return state;
    }
    return null;
  }
}

// ---- where the kernel's model and the panels of a page meet

// Either may come first, and each brings its own copy of this code.
export function storeOf(key, world = globalThis) {
  const stores = (world[Symbol.for("labkit.panels")] ??= new Map());
  if (!stores.has(key)) stores.set(key, new Store());
  return stores.get(key);
}

// What the widget model of live.py does when it comes to life in the page.
export function openChannel(model, world = globalThis) {
  const store = storeOf(model.get("panel"), world);
  model.on("msg:custom", (message) => store.receive(message));
  model.on("comm_live_update", () => store.receive({ gone: true }));
  return store.receive({ opened: true, history: model.get("history"), ended: model.get("ended") });
}

// ---- the packed history: base64, gzip, JSON, then columns of differences in whole steps

export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(whole.buffer).getUint32(0, true);
  const about = JSON.parse(new TextDecoder().decode(whole.subarray(4, 4 + length)));
  let at = 4 + length;
  // Differences, modulo what `width` bytes hold: all low bytes first.
  const sums = (rows, width, value) => {
    const mask = width === 4 ? -1 : (1 << (8 * width)) - 1;
    const values = new Array(rows);
    let sum = 0;
    for (let i = 0; i < rows; i += 1) {
      for (let byte = 0; byte < width; byte += 1) sum += whole[at + byte * rows + i] << (8 * byte);
      sum &= mask;
      values[i] = value(sum >>> 0);
    }
    at += width * rows;
    return values;
  };
  about.sources = about.sources.map(({ rows, ranges, steps, ...source }) => {
    const times = sums(rows, 4, (ticks) => ticks / TICKS);
    const columns = ranges.map(([low, high]) => {
      if (low === null) return {};
      const step = (high - low || 1) / steps;
      return { values: sums(rows, 2, (code) => (code ? low + (code - 1) * step : NaN)), given: true, most: high };
    });
    return { ...source, times, columns };
  });
  return about;
}
