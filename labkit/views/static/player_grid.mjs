// The grid: a row for each rank, a column for each piece of its buffer, messages flying between.
import { penOf, widthWith } from "./page.mjs";
import { flown, LANDED } from "./player_clock.mjs";
import { along, bracket, lane } from "./player_layout.mjs";
import { FEW, paintArrow, paintHolding, shade } from "./player_paint.mjs";
import { bytesText, cellName } from "./player_words.mjs";

const MOST_PIECES = 700; // more are drawn as one strip for each message
const TEXT = 15; // pixels below the contributions, for the value

// Whether the values have room in the cells, at which size; decided once for all of them.
function valueFont(pen, film, layout, paint) {
  const { w, h } = layout.box(0, 0);
  if (h < 30) return null;
  if (!film.columns) return null;
  const longest = film.data.texts.reduce((a, b) => (b.length > a.length ? b : a), "");
  for (const size of [12, 10.5, 9.5]) {
    pen.font = `${size}px ${paint.family}`;
    if (widthWith(pen)(longest) <= w - 2) return pen.font;
  }
  return null;
}

// What stands still during a step. Only what has changed is painted, unless all is to be `fresh`.
export function paintGrid(canvas, { film, layout, step, paint, fresh }) {
  const all = fresh || canvas.shown?.length !== film.at(step).length;
  const pen = all ? penOf(canvas, layout.width, layout.height) : canvas.getContext("2d");
  if (all) {
    layout.font = valueFont(pen, film, layout, paint);
    layout.text = layout.font ? TEXT : 0;
    paintHeads(pen, film, layout, paint);
    for (let rank = 0; rank < film.ranks; rank += 1) paintLabel(pen, film, layout, rank, paint);
  }
  const found = film.at(step);
  for (let slot = 0; slot < found.length; slot += 1)
    if (all || found[slot] !== canvas.shown[slot]) paintCell(pen, film, layout, step, Math.floor(slot / film.columns), slot % film.columns, paint);
  canvas.shown = found;
  if (layout.side) for (let rank = 0; rank < film.ranks; rank += 1) paintSent(pen, film, layout, rank, step, paint);
}

function paintCell(pen, film, layout, step, rank, cell, paint) {
  const box = layout.box(rank, cell);
  const found = film.holding(step, rank, cell);
  // No further than half-way to its neighbours.
  const [mx, my] = [Math.min(1, layout.gap.x / 2), Math.min(1, layout.gap.y / 2)];
  pen.clearRect(box.x - mx, box.y - my, box.w + 2 * mx, box.h + 2 * my);
  paintHolding(pen, inside(layout, box), found, film.ranks, paint);
  if (!layout.font) return;
  pen.font = found?.facts.whole ? `600 ${layout.font}` : layout.font;
  pen.fillStyle = found?.facts.twice.length ? paint.warn : paint.ink;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(found?.text ?? "–", box.x + box.w / 2, box.y + box.h - TEXT / 2 + 1);
}

function paintHeads(pen, film, layout, paint) {
  pen.font = `11px ${paint.family}`;
  pen.fillStyle = paint.faint;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  const wide = widthWith(pen);
  const names = film.data.cells.map(([a, b]) => (b <= a ? "∅" : b - a === 1 ? `${a}` : `${a}–${b - 1}`));
  const longest = Math.max(...names.map(wide), wide("9"));
  const every = Math.max(1, Math.ceil((longest + 8) / layout.pitch));
  pen.fillText("elements", 0, 9);
  pen.textAlign = "center";
  for (let cell = 0; cell < film.columns; cell += every) {
    const { x, w } = layout.box(0, cell);
    const middle = every === 1 ? x + w / 2 : Math.max(x + w / 2, layout.left + wide(names[cell]) / 2);
    if (middle + wide(names[cell]) / 2 <= layout.right + 4) pen.fillText(names[cell], middle, 9);
  }
  if (layout.side) {
    pen.textAlign = "left";
    pen.fillText("sent", layout.right + 8, 9);
  }
}

function paintLabel(pen, film, layout, rank, paint) {
  const every = layout.row >= 12 ? 1 : film.ranks > 40 ? 8 : 4;
  if (rank % every && rank !== film.ranks - 1) return;
  if (every > 1 && rank === film.ranks - 1 && rank % every < every / 2) return;
  const { y, h } = layout.box(rank, 0);
  pen.font = `${layout.row >= 14 ? 12 : 10.5}px ${paint.family}`;
  pen.fillStyle = paint.ink;
  pen.textBaseline = "middle";
  if (film.ranks <= FEW) {
    pen.fillStyle = paint.rank[rank];
    pen.fillRect(0, y, 4, h);
    pen.fillStyle = paint.ink;
    pen.textAlign = "left";
    pen.fillText(`rank ${rank}`, 9, y + h / 2 + 0.5);
    return;
  }
  pen.textAlign = "right";
  pen.fillText(layout.row >= 12 || rank === 0 ? `rank ${rank}` : `${rank}`, layout.left - 7, y + h / 2 + 0.5);
}

// What this rank has sent so far, beside the most that any sends in the whole run.
function paintSent(pen, film, layout, rank, step, paint) {
  const most = film.most;
  const sent = film.bytes(step)[rank];
  const { y, h } = layout.box(rank, 0);
  const x = layout.right + 8;
  const wide = layout.side - 12;
  const text = h >= 24;
  const tall = text ? 6 : Math.max(2, Math.min(8, h - 1));
  const top = text ? y + h / 2 + 5 : y + (h - tall) / 2;
  pen.clearRect(x, y, layout.side, h);
  pen.fillStyle = paint.lane;
  pen.fillRect(x, top, wide, tall);
  pen.fillStyle = paint.faint;
  pen.fillRect(x, top, (wide * sent) / most, tall);
  if (!text) return;
  pen.font = `11px ${paint.family}`;
  pen.fillStyle = paint.ink;
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  pen.fillText(bytesText(sent), x, y + h / 2 - 4);
}

// The pieces of a step: { message, from, to, found } with boxes; few, or one strip a message.
export function piecesOf(film, layout, step) {
  const all = film.messages(step).map((message) => ({ message, ...film.ends(message) }));
  const count = all.reduce((sum, one) => sum + one.into.length, 0);
  const beside = (rank) => {
    const { y, h } = layout.box(rank, 0);
    return { x: layout.left - 12, y: y + h / 2 - 3, w: 6, h: 6 };
  };
  return all.flatMap(({ message, from, into }) => {
    if (!into.length) return [{ message, from: beside(message.source), to: beside(message.dest), found: null, dot: true }];
    if (count > MOST_PIECES || from.length !== into.length) {
      const found = film.carried(message, from[0]);
      return [{ message, from: strip(layout, message.source, from), to: strip(layout, message.dest, into), found, strip: true }];
    }
    return from.map((cell, i) => ({
      message, from: layout.box(message.source, cell), to: layout.box(message.dest, into[i]), found: film.carried(message, cell),
    }));
  });
}

// The same pieces fly for many frames.
let kept = {};
function piecesAt(film, layout, step) {
  if (kept.film !== film || kept.layout !== layout || kept.step !== step)
    kept = { film, layout, step, pieces: piecesOf(film, layout, step) };
  return kept.pieces;
}

function strip(layout, rank, cells) {
  const [first, last] = [layout.box(rank, cells[0]), layout.box(rank, cells.at(-1))];
  return { x: first.x, y: first.y, w: last.x + last.w - first.x, h: first.h };
}

// What moves, and at rest the arrows of the step that was made last.
export function paintGridMoves(canvas, { film, layout, step, phase, paint, picked, still }) {
  const pen = penOf(canvas, layout.width, layout.height);
  const told = phase > 0 ? step + 1 : step;
  const pieces = told > 0 ? piecesAt(film, layout, told) : [];
  if (phase > 0 && !still) paintFlights(pen, { film, layout, pieces, phase, paint });
  else paintArrows(pen, { film, layout, pieces, paint });
  if (phase === 0 || phase >= LANDED) paintNews(pen, { film, layout, step: told, paint, alpha: phase === 0 ? 0.9 : Math.max(0.25, (phase - LANDED) / (1 - LANDED)) });
  if (picked) paintPicked(pen, layout, picked, paint);
}

function paintFlights(pen, { film, layout, pieces, phase, paint }) {
  const share = flown(phase);
  const fade = phase > LANDED ? Math.max(0, 1 - (phase - LANDED) / 0.12) : 1;
  if (fade <= 0) return;
  const thin = layout.row < 16;
  for (const { message, from: start, to: end, found, dot, strip: whole } of pieces) {
    const [from, to] = [inside(layout, start), inside(layout, end)];
    const way = lane(layout, from, to);
    const here = along(way, share);
    if (!thin && share > 0.02) paintArrow(pen, { ...way, b: way.b }, paint.faint, { width: 1, head: 0, alpha: 0.35 * fade, dash: [3, 3] });
    pen.globalAlpha = fade;
    if (dot) {
      pen.fillStyle = message.nbytes ? paint.ink : paint.faint;
      pen.beginPath();
      pen.arc(here.x, here.y, thin ? 2.5 : 4, 0, 7);
      pen.fill();
      continue;
    }
    const grow = thin ? 1 : 1 - 0.1 * Math.sin(Math.PI * share);
    const w = (from.w + (to.w - from.w) * share) * grow;
    const h = Math.min(from.h, 26) * grow;
    const box = { x: here.x - w / 2, y: here.y - h / 2, w, h };
    if (whole && film.ranks > FEW) {
      pen.fillStyle = found ? shade(found.facts, film.ranks, paint) : paint.faint;
      pen.fillRect(box.x, box.y, box.w, box.h);
    } else paintHolding(pen, box, found, film.ranks, paint);
    pen.strokeStyle = paint.ink;
    pen.lineWidth = thin ? 0.75 : 1.25;
    pen.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
  }
  pen.globalAlpha = 1;
}

function paintArrows(pen, { film, layout, pieces, paint }) {
  const thin = layout.row < 16;
  // One arrow for each message, through another of its pieces than that of the message before.
  const grouped = new Map();
  for (const piece of pieces) grouped.set(piece.message, [...(grouped.get(piece.message) ?? []), piece]);
  let number = 0;
  for (const mine of grouped.values()) {
    const { from, to } = mine[number % mine.length];
    number += 1;
    const way = bracket(layout, inside(layout, from), inside(layout, to));
    if (!thin) paintArrow(pen, way, paint.ground, { width: 3.5, head: 0, alpha: 0.8 });
    paintArrow(pen, way, paint.link, { width: thin ? 0.8 : 1.6, head: thin ? 3.5 : 7, alpha: film.ranks > 40 ? 0.55 : 1 });
  }
}

// The part of a box that shows the contributions.
function inside(layout, box) {
  return layout.text && box.h > layout.text + 8 ? { ...box, h: box.h - layout.text } : box;
}

// A frame around what is new.
function paintNews(pen, { film, layout, step, paint, alpha }) {
  if (step < 1) return;
  pen.strokeStyle = paint.focus;
  pen.globalAlpha = alpha;
  pen.lineWidth = layout.row < 16 ? 1 : 2;
  for (const [rank, cells] of film.changed[step] ?? [])
    for (const [first, last] of runs(cells)) {
      const { x, y, w, h } = strip(layout, rank, [first, last]);
      const out = layout.row < 16 ? 0 : 1.5;
      pen.strokeRect(x - out, y - out, w + 2 * out, h + 2 * out);
    }
  pen.globalAlpha = 1;
}

// [3, 4, 5, 9] → [[3, 5], [9, 9]]
export function runs(cells) {
  const found = [];
  for (const cell of [...cells].sort((a, b) => a - b)) {
    if (found.length && found.at(-1)[1] >= cell - 1) found.at(-1)[1] = cell;
    else found.push([cell, cell]);
  }
  return found;
}

function paintPicked(pen, layout, { rank, cell }, paint) {
  pen.strokeStyle = paint.ink;
  pen.lineWidth = 2;
  pen.setLineDash([4, 2]);
  const { x, y, w, h } = cell === null ? { x: 0, y: layout.box(rank, 0).y, w: layout.right - layout.gap.x, h: layout.box(rank, 0).h } : layout.box(rank, cell);
  pen.strokeRect(x - 2, y - 2, w + 4, h + 4);
  pen.setLineDash([]);
}

export function gridWords(film) {
  if (!film.columns) return `${film.ranks} ranks; their buffers have no elements.`;
  return `Grid: ${film.ranks} ranks, one row each, and ${film.columns} pieces of the buffer, from ${cellName(film, 0)} to ${cellName(film, film.columns - 1)}.`;
}
