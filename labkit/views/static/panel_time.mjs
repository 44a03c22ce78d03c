// The visible stretch of time, and what zooming, moving and following make of it. A view is
// { from, to } in seconds of the recording; nothing here knows of pixels but their number.

export const SHORTEST = 0.5;
export const FOLLOWED = 60;

// Inside [0, until], at least SHORTEST wide, as wide as asked for where that is possible.
export function inside({ from, to }, until) {
  const whole = Math.max(until, SHORTEST);
  const width = Math.min(Math.max(to - from, SHORTEST), whole);
  const start = Math.min(Math.max(from, 0), whole - width);
  return { from: start, to: start + width };
}

// What is under the pointer stays under the pointer. A factor below 1 shows less time.
export function zoomed({ from, to }, at, factor, until) {
  const width = Math.min(Math.max((to - from) * factor, SHORTEST), Math.max(until, SHORTEST));
  const share = (at - from) / (to - from);
  return inside({ from: at - share * width, to: at - share * width + width }, until);
}

export function moved({ from, to }, by, until) {
  return inside({ from: from + by, to: to + by }, until);
}

// The newest `width` seconds; until there are so many, an axis that stands still and fills: first a
// quarter of that, then half, then all of it.
export function followed(until, width = FOLLOWED) {
  if (width === Infinity) return { from: 0, to: Math.max(until, 10) };
  const still = [width / 4, width / 2, width].find((one) => one >= until);
  return still ? { from: 0, to: still } : { from: until - width, to: until };
}

// A moment, kept in sight: the view moves on when it comes near an edge.
export function keptInSight(view, moment, until) {
  const width = view.to - view.from;
  if (moment > view.from + 0.9 * width) return inside({ from: moment - 0.9 * width, to: moment + 0.1 * width }, until);
  if (moment < view.from) return inside({ from: moment - 0.1 * width, to: moment + 0.9 * width }, until);
  return view;
}

const STEPS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400,
];

// Round moments, far enough apart for their labels.
export function ticks({ from, to }, pixels, apart = 84) {
  const least = ((to - from) * apart) / Math.max(pixels, 1);
  const step = STEPS.find((one) => one >= least) ?? STEPS.at(-1);
  const moments = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + 1e-9; i += 1) moments.push(i * step);
  return { step, moments };
}

export const toPixel = (view, time, width) => ((time - view.from) / (view.to - view.from)) * width;
export const toTime = (view, pixel, width) => view.from + (pixel / width) * (view.to - view.from);

// Index of the first of the sorted `times[0..rows)` that is not before `moment`.
export function firstFrom(times, rows, moment) {
  let low = 0;
  let high = rows;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < moment) low = middle + 1;
    else high = middle;
  }
  return low;
}
