// The ranks on a circle: each with its pieces around it, and messages flying from rank to rank.
import { penOf } from "./page.mjs";
import { flown, LANDED } from "./player_clock.mjs";
import { along, edge } from "./player_layout.mjs";
import { FEW, paintArrow, paintHolding, shade } from "./player_paint.mjs";
import { counted } from "./player_words.mjs";

const TURN = 2 * Math.PI;

// What stands still during a step: the links that have been used, the more the thicker, below the
// ranks. Of the ranks only what has changed is painted, unless all is to be `fresh`.
export function paintCircle(canvas, { film, layout, step, paint, fresh, below }) {
  paintLinks(penOf(below, layout.width, layout.height), film, layout, step, paint);
  const found = film.at(step);
  const all = fresh || canvas.shown?.length !== found.length;
  const pen = all ? penOf(canvas, layout.width, layout.height) : canvas.getContext("2d");
  if (all) for (let rank = 0; rank < film.ranks; rank += 1) paintRank(pen, { film, layout, paint, rank });
  for (let slot = 0; slot < found.length; slot += 1)
    if (all || found[slot] !== canvas.shown[slot]) paintPart(pen, { film, layout, step, paint, rank: Math.floor(slot / film.columns), cell: slot % film.columns });
  canvas.shown = found;
}

function paintLinks(pen, film, layout, step, paint) {
  const used = new Map();
  let most = 1;
  for (let now = 1; now <= film.steps; now += 1)
    for (const { source, dest, nbytes } of film.messages(now)) {
      const key = source * film.ranks + dest;
      const link = used.get(key) ?? { source, dest, all: 0, sent: 0 };
      link.all += nbytes;
      if (now <= step) link.sent += nbytes;
      most = Math.max(most, link.all);
      used.set(key, link);
    }
  const crowd = used.size > 300;
  for (const { source, dest, sent } of used.values()) {
    if (crowd && !sent) continue;
    const way = edge(layout, source, dest);
    const share = sent / most;
    paintArrow(pen, { ...way, a: along(way, way.from), b: along(way, way.to) }, sent ? paint.link : paint.edge, {
      width: sent ? 0.8 + 2.4 * share : 0.8, head: 0, alpha: crowd ? 0.12 : sent ? 0.28 : 0.8, dash: sent ? [] : [2, 4],
    });
  }
}

function paintRank(pen, { film, layout, paint, rank }) {
  const { x, y, angle } = layout.at[rank];
  const { node } = layout;
  pen.beginPath();
  pen.arc(x, y, node + 1.5, 0, TURN);
  pen.fillStyle = paint.ground;
  pen.fill();
  pen.fillStyle = paint.ink;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  const inner = innerOf(film, layout);
  if (inner >= 6.5) {
    pen.font = `600 ${Math.max(9, Math.min(15, inner * 0.9))}px ${paint.family}`;
    pen.fillText(String(rank), x, y + 0.5);
  } else if (rank % 4 === 0) {
    pen.font = `10px ${paint.family}`;
    const out = layout.radius - node - 10;
    pen.fillText(String(rank), layout.centre.x + out * Math.cos(angle), layout.centre.y + out * Math.sin(angle));
  }
}

function innerOf(film, layout) {
  return layout.node * (film.ranks > FEW ? 0.52 : 0.42);
}

// One piece of a rank's buffer: a part of the ring around it; few ranks: a ring for each inside.
function paintPart(pen, { film, layout, step, paint, rank, cell }) {
  const { x, y } = layout.at[rank];
  const { node } = layout;
  const inner = innerOf(film, layout);
  const each = TURN / film.columns;
  const apart = each * node > 9 ? 1.5 / node : each * node > 4 ? 0.5 / node : 0;
  const from = -Math.PI / 2 + each * cell + apart;
  const to = -Math.PI / 2 + each * (cell + 1) - apart;
  const found = film.holding(step, rank, cell);
  const frame = (colour, width, dash = []) => {
    pen.beginPath();
    pen.arc(x, y, node + 2, from, to);
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.setLineDash(dash);
    pen.stroke();
    pen.setLineDash([]);
  };
  sector(pen, x, y, inner, node, from, to, paint.lane);
  if (node >= 14) frame(paint.ground, 4);
  if (!found?.counts) return;
  const ring = (node - inner) / film.ranks;
  if (film.ranks > FEW || ring < 1.8) {
    if (found.facts.ranks) sector(pen, x, y, inner, node, from, to, shade(found.facts, film.ranks, paint));
  } else found.counts.forEach((count, q) => count && sector(pen, x, y, inner + ring * q, inner + ring * (q + 1), from, to, paint.rank[q]));
  if (found.facts.twice.length) frame(paint.warn, 3, [3, 2]);
  else if (found.facts.whole && node >= 14) frame(paint.ink, 1.5);
}

function sector(pen, x, y, inner, outer, from, to, colour) {
  pen.beginPath();
  pen.arc(x, y, outer, from, to);
  pen.arc(x, y, inner, to, from, true);
  pen.closePath();
  pen.fillStyle = colour;
  pen.fill();
}

export function paintCircleMoves(canvas, { film, layout, step, phase, paint, picked, still }) {
  const pen = penOf(canvas, layout.width, layout.height);
  const told = phase > 0 ? step + 1 : step;
  const messages = told > 0 ? film.messages(told) : [];
  paintMiddle(pen, { film, layout, told, messages, paint });
  if (phase > 0 && !still) {
    const share = flown(phase);
    pen.globalAlpha = phase > LANDED ? Math.max(0, 1 - (phase - LANDED) / 0.12) : 1;
    for (const message of messages) paintPacket(pen, { film, layout, message, share, paint });
    pen.globalAlpha = 1;
  } else {
    for (const { source, dest } of messages) {
      const way = edge(layout, source, dest);
      const [a, b] = [along(way, way.from), along(way, way.to)];
      const thin = film.ranks > 24;
      paintArrow(pen, { ...way, a, b }, paint.link, { width: thin ? 1.2 : 2, head: thin ? 5 : 9 });
    }
  }
  if (picked) {
    const { x, y } = layout.at[picked.rank];
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 2;
    pen.setLineDash([4, 2]);
    pen.beginPath();
    const each = TURN / film.columns;
    if (picked.cell === null) pen.arc(x, y, layout.node + 4, 0, TURN);
    else pen.arc(x, y, layout.node + 4, -Math.PI / 2 + each * picked.cell, -Math.PI / 2 + each * (picked.cell + 1));
    pen.stroke();
    pen.setLineDash([]);
  }
}

function paintPacket(pen, { film, layout, message, share, paint }) {
  const way = edge(layout, message.source, message.dest);
  const { x, y } = along(way, way.from + (way.to - way.from) * share);
  const { from } = film.ends(message);
  const found = from.length ? film.carried(message, from[0]) : null;
  if (!message.nbytes || film.ranks > 24 || !found) {
    const r = message.nbytes ? Math.max(3, Math.min(layout.node * 0.45, 7)) : 3;
    pen.beginPath();
    pen.arc(x, y, r, 0, TURN);
    pen.fillStyle = found && message.nbytes ? shade(found.facts, film.ranks, paint) : paint.faint;
    pen.fill();
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 1;
    pen.stroke();
    return;
  }
  const pieces = Math.min(from.length, 4);
  const [w, h] = [Math.max(24, Math.min(40, layout.node)), 13];
  // A deck of cards: as many as there are pieces in the message, up to four.
  for (let card = pieces - 1; card >= 0; card -= 1) {
    const box = { x: x - w / 2 + 3 * card, y: y - h / 2 - 3 * card, w, h };
    pen.fillStyle = paint.ground;
    pen.fillRect(box.x - 1, box.y - 1, w + 2, h + 2);
    paintHolding(pen, box, film.carried(message, from[card]), film.ranks, paint);
    pen.strokeStyle = paint.ink;
    pen.lineWidth = 1.25;
    pen.strokeRect(box.x - 0.5, box.y - 0.5, w + 1, h + 1);
  }
}

function paintMiddle(pen, { film, layout, told, messages, paint }) {
  const room = layout.radius - layout.node;
  if (room < 46 || film.ranks < 4) return;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillStyle = paint.ink;
  const lines = [`step ${told}`, messages.length ? counted(messages.length, "message") : ""];
  lines.forEach((words, i) => {
    pen.font = i ? `11.5px ${paint.family}` : `600 17px ${paint.family}`;
    const y = layout.centre.y - 8 + 20 * i;
    const wide = pen.measureText(words).width + 10;
    pen.fillStyle = paint.ground;
    pen.globalAlpha = 0.8;
    if (words) pen.fillRect(layout.centre.x - wide / 2, y - 10, wide, 19);
    pen.globalAlpha = 1;
    pen.fillStyle = i ? paint.faint : paint.ink;
    pen.fillText(words, layout.centre.x, y);
  });
}
