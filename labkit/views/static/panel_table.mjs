// The rows of one source: typed columns that grow, a summary of every 16 rows so that drawing an hour
// costs as much as drawing a minute, and where there are gaps.
import { firstFrom } from "./panel_time.mjs";

export const BLOCK = 16;
export const MOST_ROWS = 40_960;

export class Table {
  constructor(source, metrics, devices, every) {
    this.source = source;
    this.metrics = metrics;
    this.devices = devices;
    this.every = every;
    this.rows = 0;
    this.spacing = every;
    this.times = new Float64Array(0);
    this.torn = new Uint8Array(0);
    this.columns = Array.from({ length: this.width }, () => ({
      values: new Float32Array(0), low: null, high: null, sum: null, count: null, numbers: 0, most: 0, make: null,
    }));
  }

  get width() {
    return this.devices.length * this.metrics.length;
  }

  // Longer than this without a number is a gap. Slow gauges are read only every few looks.
  get gap() {
    return Math.max(1, 6 * this.every, 3 * this.spacing);
  }

  room(rows) {
    const grown = (old, Kind, size) => {
      const made = new Kind(size);
      if (old) made.set(old.subarray(0, Math.min(old.length, size)));
      return made;
    };
    const blocks = Math.ceil(rows / BLOCK);
    this.times = grown(this.times, Float64Array, rows);
    this.torn = grown(this.torn, Uint8Array, blocks);
    this.columns.forEach((column, c) => {
      this.column(c);
      column.values = grown(column.values, Float32Array, rows);
      for (const name of ["low", "high", "count"]) column[name] = grown(column[name], Float32Array, blocks);
      column.sum = grown(column.sum, Float64Array, blocks);
    });
  }

  // A column from a file is unpacked when somebody wants to see it: most are never looked at.
  column(number) {
    const column = this.columns[number];
    if (column.make) {
      column.values = column.make();
      column.make = null;
      summariseColumn(column, this.rows);
    }
    return column;
  }

  // A row that is not newer than the last one has been seen already.
  append(time, devices) {
    if (this.rows && !(time > this.times[this.rows - 1])) return false;
    if (this.rows >= MOST_ROWS) this.thin();
    if (this.rows === this.times.length) this.room(Math.min(Math.max(2 * this.rows, 1024), MOST_ROWS));
    const each = this.metrics.length;
    this.times[this.rows] = time;
    this.columns.forEach((column, c) => {
      const value = devices[Math.floor(c / each)]?.[c % each];
      column.values[this.rows] = typeof value === "number" ? value : NaN;
    });
    this.rows += 1;
    this.summarise(this.rows - 1);
    return true;
  }

  // Whole columns at once, from a file: [{ make, numbers, most }].
  fill(times, columns) {
    this.times = times;
    this.rows = times.length;
    this.spacing = this.rows > 1 ? (times[this.rows - 1] - times[0]) / this.rows : this.every;
    this.columns.forEach((column, c) => Object.assign(column, columns[c]));
    this.tear();
  }

  // In which blocks there is a gap, so that they are never drawn as one.
  tear() {
    const { times, rows, gap } = this;
    this.torn = new Uint8Array(Math.ceil(times.length / BLOCK));
    for (let row = 1; row < rows; row += 1) if (times[row] - times[row - 1] > gap) this.torn[Math.floor(row / BLOCK)] = 1;
  }

  summarise(row) {
    const block = Math.floor(row / BLOCK);
    if (row % BLOCK === 0) this.torn[block] = 0;
    if (row && this.times[row] - this.times[row - 1] > this.gap) this.torn[block] = 1;
    for (const column of this.columns) this.account(column, row);
  }

  account(column, row) {
    const block = Math.floor(row / BLOCK);
    if (row % BLOCK === 0) {
      column.low[block] = Infinity;
      column.high[block] = -Infinity;
      column.sum[block] = column.count[block] = 0;
    }
    const value = column.values[row];
    if (value !== value) return;
    if (value < column.low[block]) column.low[block] = value;
    if (value > column.high[block]) column.high[block] = value;
    column.sum[block] += value;
    column.count[block] += 1;
    column.numbers += 1;
    if (value > column.most) column.most = value;
  }

  // Half the rows, evenly over all of the time: of every stretch, each column's lowest and highest,
  // in the order in which they came.
  thin() {
    const begin = this.times[0];
    const width = (4 * (this.times[this.rows - 1] - begin)) / this.rows;
    let kept = 0;
    for (let from = 0; from < this.rows; ) {
      const end = firstFrom(this.times, this.rows, begin + (Math.floor((this.times[from] - begin) / width) + 1) * width);
      const to = Math.max(end, from + 1);
      const two = to - from > 2;
      const marks = two ? [this.times[from], this.times[to - 1]] : this.times.slice(from, to);
      for (const column of this.columns) {
        const pair = two ? extremes(column.values, from, to) : column.values.slice(from, to);
        column.values.set(pair, kept);
      }
      this.times.set(marks, kept);
      kept += marks.length;
      from = to;
    }
    this.rows = kept;
    this.spacing = Math.max(this.spacing, width / 2);
    this.tear();
    for (const column of this.columns) summariseColumn(column, kept);
  }

  // The number nearest to `time` that is not across a gap, or null.
  at(column, time) {
    const { values } = this.column(column);
    const next = firstFrom(this.times, this.rows, time);
    let best = null;
    let distance = this.gap;
    for (let row = next; row < this.rows && this.times[row] - time < distance; row += 1)
      if (values[row] === values[row]) [best, distance] = [values[row], this.times[row] - time];
    for (let row = next - 1; row >= 0 && time - this.times[row] <= distance; row -= 1)
      if (values[row] === values[row]) return values[row];
    return best;
  }
}

// The same as `account` for every row, without a call for each of three million numbers.
function summariseColumn(column, rows) {
  const { values } = column;
  const blocks = Math.ceil(values.length / BLOCK);
  const [low, high, count] = [0, 0, 0].map(() => new Float32Array(blocks));
  const sum = new Float64Array(blocks);
  Object.assign(column, { low, high, count, sum });
  let [numbers, most] = [0, 0];
  for (let block = 0, from = 0; from < rows; block += 1, from += BLOCK) {
    const to = Math.min(from + BLOCK, rows);
    let [lowest, highest, total, found] = [Infinity, -Infinity, 0, 0];
    for (let row = from; row < to; row += 1) {
      const value = values[row];
      if (value !== value) continue;
      if (value < lowest) lowest = value;
      if (value > highest) highest = value;
      total += value;
      found += 1;
    }
    low[block] = lowest;
    high[block] = highest;
    sum[block] = total;
    count[block] = found;
    numbers += found;
    if (highest > most) most = highest;
  }
  column.numbers = numbers;
  column.most = most;
}

function extremes(values, from, to) {
  let low = -1;
  let high = -1;
  for (let i = from; i < to; i += 1) {
    const value = values[i];
    if (value !== value) continue;
    if (low < 0 || value < values[low]) low = i;
    if (high < 0 || value > values[high]) high = i;
  }
  if (low < 0) return [NaN, NaN];
  return low <= high ? [values[low], values[high]] : [values[high], values[low]];
}

// The number of a gauge among the columns, or -1.
export function columnOf(table, device, metric) {
  const d = table.devices.findIndex((one) => one.key === device);
  const m = table.metrics.indexOf(metric);
  return d < 0 || m < 0 ? -1 : d * table.metrics.length + m;
}
