// How a cell looks: for each rank a place in it, filled where that rank's contribution is inside.
// Colours come from the style sheet, so that themes, forced colours and print need no second list.
import { rgb } from "./page.mjs";

export const FEW = 8; // so many ranks have a colour and a number of their own
const NAMES = ["ink", "faint", "ground", "lane", "edge", "focus", "warn", "whole", "some", "most", "link"];
const SHADES = 24;

export function paintOf(node) {
  const style = getComputedStyle(node);
  const read = (name) => style.getPropertyValue(`--lk-${name}`).trim() || "gray";
  const paint = Object.fromEntries(NAMES.map((name) => [name, read(name)]));
  paint.rank = Array.from({ length: FEW }, (_, rank) => read(`rank-${rank}`));
  paint.onRank = paint.rank.map((colour) => inkOn(rgb(colour)));
  paint.shades = shades(rgb(paint.some), rgb(paint.most));
  paint.family = style.getPropertyValue("--lk-family").trim() || "system-ui, sans-serif";
  return paint;
}

export function inkOn([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#1b1f23" : "#ffffff";
}

export function shades(from, to) {
  return Array.from({ length: SHADES }, (_, i) => {
    const mixed = from.map((one, c) => Math.round(one + ((to[c] - one) * i) / (SHADES - 1)));
    return `rgb(${mixed.join(",")})`;
  });
}

// The colour of many contributions in one: the more, the deeper; all of them have their own.
export function shade(facts, ranks, paint) {
  if (facts.whole) return paint.whole;
  return paint.shades[Math.min(SHADES - 1, Math.floor((SHADES * (facts.ranks - 1)) / Math.max(ranks - 1, 1)))];
}

// found: { counts, facts } or null.
export function paintHolding(pen, box, found, ranks, paint) {
  const { x, y, w, h } = box;
  const rounded = w >= 14 && h >= 10;
  pen.fillStyle = paint.lane;
  if (rounded) {
    pen.save();
    pen.beginPath();
    pen.roundRect(x, y, w, h, Math.min(4, h / 4));
    pen.fill();
    pen.clip();
  } else pen.fillRect(x, y, w, h); // thousands of them: no path, no clip
  if (!found?.counts) paintHatch(pen, box, paint.faint, 0.4);
  else if (ranks <= FEW) paintStripes(pen, box, found.counts, ranks, paint);
  else paintRuns(pen, box, found.facts, ranks, paint);
  for (const rank of found?.facts.twice ?? [])
    paintTwice(pen, { x: x + (w * rank) / ranks, y, w: Math.max(w / ranks, 5), h }, found.counts[rank], paint);
  if (rounded) pen.restore();
  if (found?.facts.whole && ranks <= FEW && h >= 8) {
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.roundRect(x, y, w, h, rounded ? Math.min(4, h / 4) : 0);
    pen.stroke();
  }
}

function paintStripes(pen, { x, y, w, h }, counts, ranks, paint) {
  const wide = w / ranks;
  const numbers = wide >= 9 && h >= 11;
  if (numbers) {
    pen.font = `600 ${Math.min(10, h - 2)}px ${paint.family}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
  }
  for (let rank = 0; rank < ranks; rank += 1) {
    if (!counts[rank]) continue;
    pen.fillStyle = paint.rank[rank];
    pen.fillRect(x + wide * rank, y, wide > 4 ? wide - 0.75 : wide, h);
    if (!numbers) continue;
    pen.fillStyle = paint.onRank[rank];
    pen.fillText(String(rank), x + wide * (rank + 0.5), y + h / 2 + 0.5);
  }
}

function paintRuns(pen, { x, y, w, h }, facts, ranks, paint) {
  pen.fillStyle = shade(facts, ranks, paint);
  for (const [from, to] of facts.runs) {
    const wide = Math.max((w * (to - from)) / ranks, Math.min(1.6, w));
    pen.fillRect(Math.min(x + (w * from) / ranks, x + w - wide), y, wide, h);
  }
}

// Counted more than once: hatched, and how often where there is room.
function paintTwice(pen, box, count, paint) {
  paintHatch(pen, box, paint.ink, 1, 4);
  if (box.w < 14 || box.h < 12) return;
  pen.fillStyle = paint.ground;
  pen.fillRect(box.x + box.w / 2 - 9, box.y + box.h / 2 - 6.5, 18, 13);
  pen.fillStyle = paint.warn;
  pen.font = `700 10px ${paint.family}`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(`${count}×`, box.x + box.w / 2, box.y + box.h / 2 + 0.5);
}

function paintHatch(pen, { x, y, w, h }, colour, alpha, apart = 5) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, w, h);
  pen.clip();
  pen.globalAlpha = alpha;
  pen.strokeStyle = colour;
  pen.lineWidth = 1.2;
  pen.beginPath();
  for (let at = x - h; at < x + w; at += apart) {
    pen.moveTo(at, y + h);
    pen.lineTo(at + h, y);
  }
  pen.stroke();
  pen.restore();
}

// A curve with a head at its end; with `then` it bends twice.
export function paintArrow(pen, { a, bend, then = null, b }, colour, { width = 1.4, head = 7, alpha = 1, dash = [] } = {}) {
  pen.save();
  pen.globalAlpha = alpha;
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(a.x, a.y);
  if (then) pen.bezierCurveTo(bend.x, bend.y, then.x, then.y, b.x, b.y);
  else pen.quadraticCurveTo(bend.x, bend.y, b.x, b.y);
  pen.stroke();
  if (head) {
    const before = then ?? bend;
    const back = Math.atan2(b.y - before.y, b.x - before.x) || 0;
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(b.x, b.y);
    for (const side of [-0.42, 0.42]) pen.lineTo(b.x - head * Math.cos(back + side), b.y - head * Math.sin(back + side));
    pen.closePath();
    pen.fill();
  }
  pen.restore();
}
