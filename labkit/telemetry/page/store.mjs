// The data of one recording in the page: samples by source, spans and states, taken line by line in
// the format of telemetry's recordings.
import { unpack } from "../../views/static/page.mjs";

const KEPT = 10_000; // milliseconds that a store outlives its last listener

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
  constructor(source, metrics, devices, every) {
    const keys = devices.flatMap((device) => metrics.map((metric) => `${device.key}|${metric}`));
    const columns = new Map(keys.map((key) => [key, { table: this, values: [], given: false, most: 0, least: Infinity }]));
    Object.assign(this, { source, devices, every, columns, times: [] });
  }

  // Longer than this without a number is a gap. A slow metric is read only every few samples.
  get gap() {
    const { times, every } = this;
    return Math.max(1, 6 * every, (3 * (times.at(-1) - times[0])) / times.length || 0);
  }

  // A row that is not newer than the last one is known already. True: a column has its first number.
  append(time, devices) {
    if (time <= this.times.at(-1)) return false;
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
      if (value < column.least) column.least = value;
    }
    return first;
  }

  // The number nearest to `time`, or an earlier one that is not across a gap; null without.
  at({ values }, time) {
    const { times, every, gap } = this;
    for (let row = firstFrom(times, Math.max(time, times[0]) + every / 2) - 1; row >= 0 && time - times[row] <= gap; row -= 1)
      if (values[row] === values[row]) return values[row];
    return null;
  }
}

export class Store {
  constructor() {
    Object.assign(this, { header: null, tables: [], spans: [], named: new Map(), states: new Map(), processes: [], until: 0 });
    // What is known of the kernel: whether a model has come to life here, when it last sent something,
    // why it has ended the recording, and whether the connection is lost.
    Object.assign(this, { opened: false, heardAt: null, ended: null, gone: false });
    this.version = 0; // changes with all that decides the layout
    this.listeners = new Set();
    this.leave = null; // ends the connection that a panel has made by itself
    this.waiting = null; // lines that came while a history was being unpacked
    this.viewport = null; // shared by all panels of this recording
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
    const past = new Store();
    (await unpack(history)).forEach((line) => past.take(line));
    if (past.until > this.until - 0.01) {
      const { header, tables, spans, named, states, processes, until } = past;
      Object.assign(this, { header, tables, spans, named, states, processes, until, version: this.version + 1 });
    }
    this.waiting?.forEach((line) => this.take(line));
    this.waiting = null;
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  // Tells `listener` of all that comes, until what is returned is called. The last to go takes the store along, a little
  // later: the picture of a recording that has ended comes in place of its live panel, and goes on from what was seen.
  listen(listener) {
    const { stores, key } = this;
    this.listeners.add(listener);
    stores?.set(key, this);
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size) return;
      this.leave?.();
      Object.assign(this, { leave: null, opened: false });
      setTimeout(() => { if (!this.listeners.size && stores?.get(key) === this) stores.delete(key); }, KEPT);
    };
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
    else if ("processes" in line) this.processes.push({ ...line, device: line.processes });
    else if ("state" in line) this.addState({ ...line, why: line.state });
    else if ("end" in line) this.until = Math.max(this.until, line.end);
  }

  // While a page loads it is told of a source several times.
  describe({ source, metrics, devices }) {
    if (this.tables.some((one) => one.source === source)) return;
    this.version += 1;
    this.tables.push(new Table(source, metrics, devices, this.every));
  }

  // A span is sent when it begins and again when it has ended.
  addSpan({ name, start, end = null, images = null, loss = null, of = "" }) {
    const [key, one] = [`${start} ${name}`, { name, start, end, images, loss, of }];
    const known = this.named.get(key);
    if (!known) this.named.set(key, one) && this.spans.push(one);
    else if (known.end === null) Object.assign(known, { end, images, loss });
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

  // Programs of others on GPUs at a moment, each with the key of its device.
  others(time) {
    const newest = new Map(this.processes.filter((one) => one.time <= time + 1e-6).map((one) => [one.device, one.found]));
    return [...newest].flatMap(([device, found]) => found.filter(({ user }) => user !== "this program").map((one) => ({ device, ...one })));
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
  if (!stores.has(key)) stores.set(key, Object.assign(new Store(), { stores, key }));
  return stores.get(key);
}

// What the widget model of bridge.py does when it comes to life in the page. It keeps the store until there is an end.
export function openChannel(model, world = globalThis) {
  const store = storeOf(model.get("panel"), world);
  const end = store.listen(() => { if (store.ended !== null || store.gone) end(); });
  model.on("msg:custom", (message) => store.receive(message));
  model.on("comm_live_update", () => store.receive({ gone: true }));
  store.receive({ opened: true, history: model.get("history"), ended: model.get("ended") });
  return end;
}
