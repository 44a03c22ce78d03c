// Spans as bands: which row each lies in, and which of them are wide enough to be seen and named.
import { toPixel } from "./panel_time.mjs";

export const SPAN_HEIGHT = 19;
const MOST_ROWS_OF_SPANS = 4;

// Room above the lanes; never less than the words beside it need.
export const trackHeight = (rows) => Math.max(rows * SPAN_HEIGHT + 6, 22);

// A span lies below those that hold it, and below what it overlaps. Rows do not depend on the view,
// so that nothing jumps while zooming.
export function rowsOf(spans) {
  const order = spans.map((span, i) => ({ span, i, end: span.end ?? Infinity }))
    .sort((a, b) => a.span.start - b.span.start || b.end - a.end || a.i - b.i);
  const ends = [];
  const rows = new Array(spans.length);
  for (const { span, i, end } of order) {
    let row = ends.findIndex((last) => last <= span.start + 1e-6);
    if (row < 0) row = Math.min(ends.length, MOST_ROWS_OF_SPANS - 1);
    ends[row] = Math.max(ends[row] ?? 0, end);
    rows[i] = row;
  }
  return { spanRows: rows, spanCount: rows.reduce((most, row) => Math.max(most, row + 1), 0) };
}

// The innermost span at a moment: the one that has begun last.
export function spanAt(spans, time) {
  const there = spans.filter((one) => one.start <= time && time < (one.end ?? Infinity));
  return there.reduce((best, one) => (!best || one.start >= best.start ? one : best), null);
}

// The bands in sight: [{ span, row, left, right, open, words }]. Spans too short for a pixel are
// drawn as one mark, and marks that would cover each other only once.
export function bands(spans, rows, view, width, until, widthOf) {
  const found = [];
  const marked = [];
  spans.forEach((span, i) => {
    const end = span.end ?? Math.max(until, span.start);
    if (end < view.from || span.start > view.to) return;
    const left = toPixel(view, span.start, width);
    const right = toPixel(view, end, width);
    const row = rows[i];
    if (right - left < 2) {
      const pixel = Math.round(left);
      if (marked[row] === pixel) return;
      marked[row] = pixel;
    }
    const room = Math.min(right, width) - Math.max(left, 0) - 8;
    found.push({ span, row, left, right: Math.max(right, left + 1), open: span.end === null, words: fitted(span.name, room, widthOf) });
  });
  return found;
}

// As much of the name as fits; fewer than three letters tell nothing.
export function fitted(name, room, widthOf) {
  if (widthOf(name) <= room) return name;
  const letters = [...name];
  let kept = Math.min(letters.length - 1, Math.floor(room / 4));
  while (kept >= 3 && widthOf(`${letters.slice(0, kept).join("")}…`) > room) kept -= 1;
  return kept >= 3 ? `${letters.slice(0, kept).join("").trimEnd()}…` : "";
}
