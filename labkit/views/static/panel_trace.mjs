// A column of readings as columns of pixels. For each pixel: the line (`from` to `to`, in values), the
// lowest and the highest reading under it, and the middle; NaN where nothing is known. The cost is
// that of the pixels, not of the readings, however long the recording is.
import { BLOCK } from "./panel_table.mjs";
import { firstFrom } from "./panel_time.mjs";

const KINDS = ["from", "to", "low", "high", "mid"];
const scratch = { size: 0 };
let counts = new Float64Array(0);

// Reused from lane to lane: drawing must not make garbage sixty times a second.
function cleared(size) {
  if (scratch.size !== size) {
    for (const kind of KINDS) scratch[kind] = new Float32Array(size);
    counts = new Float64Array(size);
    scratch.size = size;
  }
  for (const kind of KINDS) scratch[kind].fill(NaN);
  return scratch;
}

export function trace(table, number, view, pixels) {
  const { times, rows, gap } = table;
  const found = cleared(pixels);
  // Lines run on beyond the edges, so a little more is looked at.
  const first = Math.max(0, firstFrom(times, rows, view.from - gap) - 1);
  const last = Math.min(rows, firstFrom(times, rows, view.to + gap) + 1);
  if (!rows || last <= first) return found;
  const column = table.column(number);
  if (last - first <= 3 * pixels) drawReadings(table, column, view, first, last);
  else drawPixels(table, column, view, first, last);
  return found;
}

// Few readings: straight lines between them.
function drawReadings({ times, gap }, { values }, view, first, last) {
  const { size } = scratch;
  const scale = size / (view.to - view.from);
  let before = -1;
  for (let row = first; row < last; row += 1) {
    const value = values[row];
    if (value !== value) continue;
    const x = (times[row] - view.from) * scale;
    if (before >= 0 && times[row] - times[before] <= gap)
      stroke((times[before] - view.from) * scale, values[before], x, value);
    else if (x >= 0 && x < size) touch(Math.floor(x), value, value);
    before = row;
  }
}

function stroke(x0, v0, x1, v1) {
  const slope = x1 > x0 ? (v1 - v0) / (x1 - x0) : 0;
  const last = Math.min(Math.floor(x1), scratch.size - 1);
  for (let p = Math.max(Math.floor(x0), 0); p <= last; p += 1) {
    const a = v0 + slope * (Math.max(p, x0) - x0);
    const b = v0 + slope * (Math.min(p + 1, x1) - x0);
    touch(p, a, p === Math.floor(x1) ? v1 : b);
  }
}

function touch(p, a, b) {
  const least = a < b ? a : b;
  const most = a < b ? b : a;
  if (!(scratch.from[p] <= least)) scratch.from[p] = least;
  if (!(scratch.to[p] >= most)) scratch.to[p] = most;
  scratch.mid[p] = (scratch.from[p] + scratch.to[p]) / 2;
}

// Many readings for each pixel: their lowest, highest and mean. Whole blocks, where they are not wider
// than a pixel and have no gap in them.
function drawPixels({ times, torn, gap }, column, view, first, last) {
  const { size } = scratch;
  const { values, low, high, sum, count } = column;
  const scale = size / (view.to - view.from);
  const whole = last - first >= size * BLOCK;
  let at = -1;
  let [lowest, highest, total, numbers] = [0, 0, 0, 0];
  counts.fill(0);
  const put = () => {
    if (!numbers || at < 0 || at >= size) return;
    scratch.low[at] = lowest;
    scratch.high[at] = highest;
    scratch.mid[at] = total / numbers;
    counts[at] = numbers;
  };
  const next = (p) => {
    put();
    at = p;
    lowest = Infinity;
    highest = -Infinity;
    total = numbers = 0;
  };
  for (let block = Math.floor(first / BLOCK); block * BLOCK < last; block += 1) {
    const from = block * BLOCK;
    const to = Math.min(from + BLOCK, last);
    if (whole && !torn[block]) {
      if (!count[block]) continue;
      const p = Math.floor((times[(from + to) >> 1] - view.from) * scale);
      if (p !== at) next(p);
      if (low[block] < lowest) lowest = low[block];
      if (high[block] > highest) highest = high[block];
      total += sum[block];
      numbers += count[block];
      continue;
    }
    for (let row = from; row < to; row += 1) {
      const value = values[row];
      if (value !== value) continue;
      const p = Math.floor((times[row] - view.from) * scale);
      if (p !== at) next(p);
      if (value < lowest) lowest = value;
      if (value > highest) highest = value;
      total += value;
      numbers += 1;
    }
  }
  put();
  join(Math.ceil(gap * scale));
}

// The means of neighbours make one line; pixels that only a slow gauge has missed are bridged.
function join(reach) {
  const { size, from, to, low, high, mid } = scratch;
  let before = -1;
  for (let p = 0; p < size; p += 1) {
    if (!counts[p]) continue;
    if (before >= 0 && p - before > 1 && p - before <= reach)
      for (let q = before + 1; q < p; q += 1) low[q] = high[q] = mid[q] = mid[before] + ((mid[p] - mid[before]) * (q - before)) / (p - before);
    before = p;
  }
  for (let p = 0; p < size; p += 1) {
    const here = mid[p];
    if (here !== here) continue;
    const left = p > 0 && mid[p - 1] === mid[p - 1] ? (mid[p - 1] + here) / 2 : here;
    const right = p + 1 < size && mid[p + 1] === mid[p + 1] ? (mid[p + 1] + here) / 2 : here;
    from[p] = Math.min(left, here, right);
    to[p] = Math.max(left, here, right);
  }
}
