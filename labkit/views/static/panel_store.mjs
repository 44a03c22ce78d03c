// The recording as the page holds it: its sources, spans, states and cost, taken line by line.
import { Table, columnOf } from "./panel_table.mjs";
import { firstFrom } from "./panel_time.mjs";

export class Store {
  constructor() {
    this.header = null;
    this.tables = [];
    this.spans = [];
    this.states = new Map(); // "device|metric" -> what became of it, in order of time
    this.said = 0;
    this.until = 0;
    this.cost = null;
    this.costs = [];
    this.ended = null;
    this.damage = null;
    this.version = 0; // changes with devices, metrics and states: what the layout hangs on
    this.spansVersion = 0;
  }

  get every() {
    return this.header?.every ?? 0.1;
  }

  // One line of the recording, as lines.py writes it. Unknown lines are from a newer labkit.
  take(line) {
    if (Array.isArray(line)) {
      const table = this.tables[line[0]];
      if (table?.append(line[1], line.slice(2))) this.until = Math.max(this.until, line[1]);
    } else if ("labkit" in line) this.header = line;
    else if ("source" in line) this.describe(line.source, line.metrics, line.devices);
    else if ("span" in line) this.addSpan({ ...line, name: line.span });
    else if ("state" in line) this.addState({ ...line, why: line.state });
    else if ("cost" in line) this.addCost(line);
    else if ("end" in line) this.ended = line.end;
  }

  // Everything that a page was given. Keeps what is newer here already.
  load(about) {
    const { tables: live, spans, states } = this;
    this.header = about.header;
    this.tables = [];
    this.spans = [];
    this.states = new Map();
    this.damage = about.damage;
    this.cost = about.cost ?? this.cost;
    for (const one of about.sources) {
      this.describe(one.source, one.metrics, one.devices).fill(one.times, one.columns);
      if (one.times.length) this.until = Math.max(this.until, one.times.at(-1));
    }
    about.spans.forEach((span) => this.addSpan(span));
    about.states.forEach((state) => this.addState(state));
    this.until = Math.max(this.until, about.seconds ?? 0);
    for (const table of live) this.rescue(table);
    spans.forEach((span) => this.addSpan(span));
    for (const [key, list] of states) {
      const last = this.states.get(key)?.at(-1)?.time ?? -Infinity;
      list.filter((one) => one.time > last).forEach((one) => this.addState(one));
    }
  }

  // Rows that came while the page was unpacking what it was given.
  rescue(old) {
    const table = this.tables.find((one) => one.source === old.source);
    if (!table || table.width !== old.width) return;
    const last = table.rows ? table.times[table.rows - 1] : -Infinity;
    const each = old.metrics.length;
    for (let row = firstFrom(old.times, old.rows, last); row < old.rows; row += 1)
      table.append(old.times[row], old.devices.map((_, d) =>
        old.metrics.map((_, m) => old.column(d * each + m).values[row])));
  }

  // A source that is named again keeps its number and the past of the devices that it still has.
  describe(source, metrics, devices) {
    this.version += 1;
    const table = new Table(source, metrics, devices, this.every);
    const number = this.tables.findIndex((one) => one.source === source);
    if (number < 0) {
      this.tables.push(table);
      return table;
    }
    const old = this.tables[number];
    const past = devices.flatMap((device) => metrics.map((metric) => {
      const column = columnOf(old, device.key, metric);
      if (column < 0) return { make: () => new Float32Array(old.rows).fill(NaN), numbers: 0, most: 0 };
      const { values, numbers, most } = old.column(column);
      return { make: () => values.slice(0, old.rows), numbers, most };
    }));
    table.fill(old.times.slice(0, old.rows), past);
    this.tables[number] = table;
    return table;
  }

  // A span is told when it begins and again when it has ended.
  addSpan(span) {
    const known = this.spans.findIndex((one) => one.name === span.name && one.start === span.start);
    const told = { name: span.name, start: span.start, end: span.end ?? null, images: span.images, by: span.by };
    if (known < 0) this.spans.push(told);
    else if (told.end !== null || this.spans[known].end === null) this.spans[known] = told;
    this.spansVersion += 1;
  }

  addState(state) {
    const key = `${state.device}|${state.metric}`;
    const list = this.states.get(key) ?? [];
    const last = list.at(-1);
    if (last && last.time === state.time && last.why === state.why) return;
    list.push(state);
    if (list.length > 500) list.splice(0, 100);
    this.states.set(key, list);
    this.said += 1;
    this.version += 1;
  }

  // Over the last half minute or so: what it costs now, not what starting it did.
  addCost({ time, cost }) {
    this.costs.push([time, cost]);
    if (this.costs.length > 6) this.costs.shift();
    const [[began, from]] = this.costs;
    this.cost = time > began ? (cost - from) / (time - began) : null;
  }

  devices() {
    return this.tables.flatMap((table) => table.devices.map((device) => ({ ...device, table })));
  }

  // { table, column } of a gauge, or null where the device has no such gauge.
  gauge(device, metric) {
    for (const table of this.tables) {
      const column = columnOf(table, device, metric);
      if (column >= 0) return { table, column };
    }
    return null;
  }

  has(device, metric) {
    const gauge = this.gauge(device, metric);
    return Boolean(gauge && gauge.table.columns[gauge.column].numbers);
  }

  // Why there is no number at this moment: of the gauge, its device, or its source.
  reason(device, metric, source, time) {
    for (const key of [`${device}|${metric}`, `${device}|`, `${source}|`]) {
      const state = this.states.get(key)?.findLast((one) => one.time <= time + 1e-6);
      if (state && state.why !== "fine" && state.why !== "note") return state;
    }
    return null;
  }

  // Stretches without good numbers, to be marked in a lane: [{ from, to, why, says }].
  troubles(device, metric, source) {
    const found = [];
    for (const key of [`${device}|${metric}`, `${device}|`, `${source}|`]) {
      const list = this.states.get(key) ?? [];
      list.forEach((state, i) => {
        if (state.why !== "fine" && state.why !== "note")
          found.push({ from: state.time, to: list[i + 1]?.time ?? Infinity, why: state.why, says: state.says });
      });
    }
    return found;
  }
}
