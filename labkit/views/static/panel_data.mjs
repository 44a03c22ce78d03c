// The data of one recording in the page: samples by source, spans and states, taken line by line in
// the format of telemetry's recordings, and the packed history that panel_data.py makes.

export const MOST_ROWS = 40_960; // more than an hour at 10 Hz; then every second row goes
const TICKS = 10_000; // of a second, in a packed history

// The index of the first of the sorted `times[0..rows)` that is not before `moment`.
export function firstFrom(times, rows, moment) {
  let [low, high] = [0, rows];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < moment) low = middle + 1;
    else high = middle;
  }
  return low;
}

const grown = (old, made) => {
  made.set(old.subarray(0, Math.min(old.length, made.length)));
  return made;
};

// The samples of one source. A column is one metric of one device; NaN where there is no number.
class Table {
  constructor(source, metrics, devices, every) {
    Object.assign(this, { source, every, spacing: every, rows: 0, times: new Float64Array(256), columns: new Map() });
    this.describe(metrics, devices);
  }

  // The columns of devices that stay keep their past.
  describe(metrics, devices) {
    const old = this.columns;
    const keys = devices.flatMap((device) => metrics.map((metric) => `${device.key}|${metric}`));
    const empty = () => ({ table: this, values: new Float32Array(this.times.length).fill(NaN), numbers: 0, most: 0 });
    this.columns = new Map(keys.map((key) => [key, old.get(key) ?? empty()]));
    Object.assign(this, { metrics, devices });
  }

  // Longer than this without a number is a gap. A slow metric is read only every few samples.
  get gap() {
    return Math.max(1, 6 * this.every, 3 * this.spacing);
  }

  // A row that is not newer than the last one is known already. True: a column has its first number.
  append(time, devices) {
    if (this.rows && !(time > this.times[this.rows - 1])) return false;
    if (this.rows >= MOST_ROWS) this.thin();
    if (this.rows === this.times.length) {
      this.times = grown(this.times, new Float64Array(2 * this.rows));
      for (const column of this.columns.values()) column.values = grown(column.values, new Float32Array(2 * this.rows));
    }
    const values = devices.flat();
    let [at, first] = [0, false];
    for (const column of this.columns.values()) {
      const value = values[at++] ?? NaN;
      column.values[this.rows] = value;
      if (value !== value) continue;
      first ||= !column.numbers;
      column.numbers += 1;
      if (value > column.most) column.most = value;
    }
    this.times[this.rows] = time;
    this.rows += 1;
    return first;
  }

  // Half the rows: of every four, each column's lowest and highest, in the order in which they came.
  thin() {
    for (const { values } of this.columns.values())
      for (let from = 0; from < this.rows; from += 4) {
        let [low, high] = [-1, -1];
        for (let i = from; i < Math.min(from + 4, this.rows); i += 1) {
          if (values[i] !== values[i]) continue;
          if (low < 0 || values[i] < values[low]) low = i;
          if (high < 0 || values[i] > values[high]) high = i;
        }
        const pair = low < 0 ? [NaN, NaN] : low <= high ? [values[low], values[high]] : [values[high], values[low]];
        values.set(pair, from / 2);
      }
    for (let from = 0; from < this.rows; from += 4) {
      this.times[from / 2] = this.times[from];
      this.times[from / 2 + 1] = this.times[Math.min(from + 3, this.rows - 1)];
    }
    this.rows = 2 * Math.ceil(this.rows / 4);
    this.spacing *= 2;
  }

  // The number nearest to `time` that is not across a gap, or null.
  at({ values }, time) {
    const next = firstFrom(this.times, this.rows, time);
    let [best, distance] = [null, this.gap];
    for (let row = next; row < this.rows && this.times[row] - time < distance; row += 1)
      if (values[row] === values[row]) [best, distance] = [values[row], this.times[row] - time];
    for (let row = next - 1; row >= 0 && time - this.times[row] <= distance; row -= 1)
      if (values[row] === values[row]) return values[row];
    return best;
  }
}

export class Store {
  constructor() {
    Object.assign(this, { header: null, tables: [], spans: [], states: new Map(), until: 0, costs: [], cost: null, damage: null });
    // What is known of the kernel: whether a model has come to life here, when it last sent something,
    // why it has ended the recording, and whether the connection is lost.
    Object.assign(this, { opened: false, heardAt: null, ended: null, gone: false });
    this.version = 0; // changes with all that decides the layout
    this.listeners = new Set();
    this.waiting = null; // lines that came while a history was being unpacked
    this.viewport = null; // shared by all panels of this recording
  }

  get every() {
    return this.header?.every ?? 0.1;
  }

  // News of the kernel, in any order and more than once: { opened, history, lines, ended, gone }.
  async receive(news) {
    if (news.opened) this.opened = true;
    if (news.gone) this.gone = true;
    if (news.lines) {
      this.heardAt = performance.now();
      this.gone = false;
      const lines = typeof news.lines === "string" ? JSON.parse(news.lines) : news.lines;
      if (this.waiting) this.waiting.push(...lines);
      else lines.forEach((line) => this.take(line));
    }
    if (news.ended) this.ended = news.ended;
    this.tell();
    if (!news.history) return;
    this.waiting ??= [];
    const about = await unpack(news.history);
    this.load(about);
    const waiting = this.waiting ?? [];
    this.waiting = null;
    waiting.forEach((line) => this.take(line));
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
    else if ("cost" in line) this.addCost(line);
  }

  describe({ source, metrics, devices }) {
    this.version += 1;
    const known = this.tables.find((one) => one.source === source);
    if (known) known.describe(metrics, devices);
    else this.tables.push(new Table(source, metrics, devices, this.every));
  }

  // A whole recording. What is newer here is kept.
  load(about) {
    const { tables, spans, states } = this;
    Object.assign(this, { header: about.header, tables: [], spans: [], states: new Map(), damage: about.damage, cost: about.cost ?? this.cost });
    for (const { source, metrics, devices, times, columns } of about.sources) {
      const table = new Table(source, metrics, devices, this.every);
      Object.assign(table, { times, rows: times.length });
      if (times.length > 1) table.spacing = (times.at(-1) - times[0]) / (times.length - 1);
      [...table.columns.values()].forEach((column, i) => Object.assign(column, columns[i]));
      this.tables.push(table);
      this.until = Math.max(this.until, times.at(-1) ?? 0);
    }
    this.until = Math.max(this.until, about.seconds ?? 0);
    about.spans.forEach((span) => this.addSpan(span));
    about.states.forEach((state) => this.addState(state));
    tables.forEach((old, number) => {
      if (!this.tables[number]) this.tables.push(old);
      const { times, rows } = this.tables[number];
      const columns = [...old.columns.values()];
      for (let row = firstFrom(old.times, old.rows, rows ? times[rows - 1] : -Infinity); row < old.rows; row += 1)
        this.tables[number].append(old.times[row], columns.map(({ values }) => values[row]));
    });
    spans.forEach((span) => this.addSpan(span));
    [...states.values()].flat().forEach((state) => this.addState(state));
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
    const list = this.states.get(key) ?? [];
    if (list.some((one) => one.time === state.time && one.why === state.why)) return;
    list.push(state);
    this.states.set(key, list.sort((a, b) => a.time - b.time).slice(-500));
    this.version += 1;
  }

  // The cost over the last half minute or so: what it is now, without the start.
  addCost({ time, cost }) {
    this.costs = [...this.costs.slice(-5), [time, cost]];
    const [[began, from]] = this.costs;
    if (time > began) this.cost = (cost - from) / (time - began);
  }

  devices() {
    return this.tables.flatMap((table) => table.devices.map((device) => ({ ...device, source: table.source })));
  }

  // The column of a metric of a device, or undefined.
  column({ key }, metric) {
    return this.tables.map((table) => table.columns.get(`${key}|${metric}`)).find(Boolean);
  }

  // Stretches without good numbers, and why: of the metric, its device, or its source.
  troubles({ key, source }, metric) {
    return [`${key}|${metric}`, `${key}|`, `${source}|`].flatMap((one) => (this.states.get(one) ?? [])
      .map((state, i, all) => ({ ...state, from: state.time, to: all[i + 1]?.time ?? Infinity }))
      .filter(({ why }) => why !== "fine" && why !== "note"));
  }

  reason(device, metric, time) {
    return this.troubles(device, metric).find(({ from, to }) => from <= time + 1e-6 && time + 1e-6 < to) ?? null;
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
  const sums = (rows, width, use) => {
    let sum = 0;
    for (let i = 0; i < rows; i += 1) {
      for (let byte = 0; byte < width; byte += 1) sum += whole[at + byte * rows + i] * 2 ** (8 * byte);
      sum %= 2 ** (8 * width);
      use(i, sum);
    }
    at += width * rows;
  };
  about.sources = about.sources.map(({ rows, bytes, ranges, steps, ...source }) => {
    const times = new Float64Array(rows);
    sums(rows, 4, (i, ticks) => { times[i] = ticks / TICKS; });
    const columns = ranges.map(([low, high]) => {
      const values = new Float32Array(rows).fill(NaN);
      if (low === null) return { values, numbers: 0, most: 0 };
      const step = (high - low || 1) / steps;
      sums(rows, bytes, (i, code) => { if (code) values[i] = low + (code - 1) * step; });
      return { values, numbers: rows, most: high };
    });
    return { ...source, times, columns };
  });
  return about;
}
