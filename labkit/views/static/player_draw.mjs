// Painting of the player: what each rank holds, and the messages of a step.
import { bytesText, penOf, widthWith } from "./page.mjs";
import { cellName, FEW, LANDED, pointAt, travelled } from "./player_data.mjs";

// The colours of the style sheet. Whatever the theme, marks have a contrast of at least 3 with the
// ground: in the light one the edge of a rank's colour is a darker one.
export function paletteOf(node) {
  const style = getComputedStyle(node);
  const read = (name) => style.getPropertyValue(`--lk-${name}`).trim();
  const names = ["ink", "faint", "soft", "ground", "lane", "focus", "warn", "whole", "link", "some", "most", "family"];
  const palette = Object.fromEntries(names.map((name) => [name, read(name)]));
  palette.ranks = Array.from({ length: FEW }, (_, rank) => {
    const fill = read(`rank-${rank}`);
    return { fill, edge: `color-mix(in srgb, ${fill} ${read("edge-share")}, black)`, ink: read(`on-${rank}`) || "black" };
  });
  return palette;
}

// Of a cell on more ranks than have a colour of their own: from one contribution to all.
function shadeOf(held, ranks, palette) {
  if (!held) return palette.faint;
  if (held.whole) return palette.whole;
  const share = Math.round((100 * Math.max(held.ranks - 1, 0)) / ranks);
  return `color-mix(in srgb, ${palette.most} ${share}%, ${palette.some})`;
}

function label(pen, text, x, y, { size = 11, weight = 400, align = "center", colour, palette }) {
  pen.font = `${weight} ${size}px ${palette.family}`;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillStyle = colour ?? palette.ink;
  pen.fillText(text, x, y);
}

function outline(pen, { x, y, w, h }, colour, width, out = 0) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.strokeRect(x - out, y - out, w + 2 * out, h + 2 * out);
}

// For each rank a place from left to right, filled where its contribution is in the value, and with
// a bar across where it is counted twice.
function drawHeld(pen, box, held, ranks, palette) {
  const { x, y, w, h } = box;
  const wide = w / ranks;
  pen.fillStyle = palette.lane;
  pen.fillRect(x, y, w, h);
  if (!held && w >= 14 && h >= 11) label(pen, "?", x + w / 2, y + h / 2, { palette });
  const { indices = [], runs = [], twice = [] } = held ?? {};
  if (ranks <= FEW) for (const rank of indices) {
    const times = held.counts[rank] > 1 && wide >= 16 ? `${held.counts[rank]}×` : rank;
    drawStripe(pen, { x: x + wide * rank, y, w: wide, h }, rank, palette, times);
  }
  if (ranks > FEW) for (const [first, last] of runs) {
    const least = Math.max(wide * (last - first + 1), Math.min(1.6, w));
    pen.fillStyle = shadeOf(held, ranks, palette);
    pen.fillRect(Math.min(x + wide * first, x + w - least), y, least, h);
  }
  pen.fillStyle = palette.ink;
  for (const rank of twice) pen.fillRect(x + wide * rank, y + h * 0.1, Math.max(wide, 3), Math.max(h * 0.12, 2));
  if (w < 10 || h < 8) return;
  const framed = held?.whole && ranks <= FEW;
  outline(pen, box, framed ? palette.ink : palette.soft, framed ? 2 : 1, -0.5);
}

function drawStripe(pen, { x, y, w, h }, rank, palette, text = rank) {
  const { fill, edge, ink } = palette.ranks[rank];
  pen.fillStyle = edge;
  pen.fillRect(x, y, w > 4 ? w - 0.75 : w, h);
  pen.fillStyle = fill;
  if (w > 3) pen.fillRect(x + 1, y + 1, w - 2.75, h - 2);
  if (w >= 9 && h >= 11) label(pen, text, x + w / 2, y + h / 2 + 0.5, { size: 10, weight: 600, colour: ink, palette });
}

function curve(pen, { a, bend, b }, colour, { width, head = 0, dash = [] }) {
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(a.x, a.y);
  pen.quadraticCurveTo(bend.x, bend.y, b.x, b.y);
  pen.stroke();
  pen.setLineDash([]);
  if (!head) return;
  const back = Math.atan2(b.y - bend.y, b.x - bend.x);
  pen.beginPath();
  pen.moveTo(b.x, b.y);
  for (const side of [-0.42, 0.42]) pen.lineTo(b.x - head * Math.cos(back + side), b.y - head * Math.sin(back + side));
  pen.fill();
}

// What stands still during a step. Only the cells that have changed are painted, unless all is fresh.
export function drawBase(canvas, scene) {
  const { data, geometry, step, fresh } = scene;
  const pen = fresh ? penOf(canvas, geometry.width, geometry.height) : canvas.getContext("2d");
  if (fresh && geometry.curve) drawRing(pen, scene);
  else if (fresh) drawHeads(pen, scene);
  const cells = data.cellsAt(step);
  cells.forEach((found, slot) => {
    if (!fresh && found === canvas.cells[slot]) return;
    drawCell(pen, scene, Math.floor(slot / data.columns), slot % data.columns, found);
  });
  canvas.cells = cells;
  if (!geometry.curve) drawSent(pen, scene);
}

function drawRing(pen, { data, geometry, palette }) {
  const { x, y, rx, ry } = geometry.curve;
  pen.strokeStyle = palette.lane;
  pen.lineWidth = 6;
  pen.beginPath();
  pen.ellipse(x, y, rx, ry, 0, 0, 2 * Math.PI);
  pen.stroke();
  geometry.names.forEach((place, rank) => {
    pen.clearRect(place.x - 36, place.y - 8, 72, 16);
    label(pen, `rank ${rank}`, place.x, place.y, { size: 12, weight: 600, palette });
    if (data.ranks <= FEW) drawStripe(pen, { x: place.x - 36, y: place.y - 6, w: 8, h: 12 }, rank, palette);
  });
}

function drawHeads(pen, { data, geometry, palette }) {
  const { row, pitch, left, right, every } = geometry;
  const faint = { colour: palette.faint, palette };
  label(pen, "elements", 0, 9, { ...faint, align: "left" });
  label(pen, "sent", right + 8, 9, { ...faint, align: "left" });
  const names = data.cells.map(cellName);
  const apart = Math.ceil((Math.max(...names.map(widthWith(pen)), 6) + 8) / pitch);
  for (let cell = 0; cell < data.columns; cell += apart) {
    const { x, w } = geometry.area(0, cell);
    label(pen, names[cell], x + w / 2, 9, faint);
  }
  for (let rank = 0; rank < data.ranks; rank += every) {
    const { y, h } = geometry.area(rank, 0);
    label(pen, `rank ${rank}`, left - 7, y + h / 2 + 0.5, { size: row >= 14 ? 12 : 10.5, align: "right", palette });
    if (data.ranks <= FEW) drawStripe(pen, { x: 0, y, w: 6, h }, rank, palette);
  }
}

function drawCell(pen, { data, geometry, palette }, rank, cell, found) {
  const box = geometry.area(rank, cell);
  const { x, y, w, h } = box;
  pen.clearRect(x, y, w, geometry.size ? h + 18 : h);
  drawHeld(pen, box, found?.held ?? null, data.ranks, palette);
  if (!geometry.size) return;
  const { whole, twice } = found?.held ?? {};
  const colour = twice?.length ? palette.warn : palette.ink;
  label(pen, found?.text ?? "–", x + w / 2, y + h + 10, { size: geometry.size, weight: whole ? 600 : 400, colour, palette });
}

// What each rank has sent so far.
function drawSent(pen, { data, geometry, step, palette }) {
  const x = geometry.right + 8;
  pen.clearRect(x, 18, geometry.width - x, geometry.height);
  for (let rank = 0; rank < data.ranks; rank += geometry.every) {
    const { y, h } = geometry.area(rank, 0);
    label(pen, bytesText(data.sent[step][rank]), x, y + h / 2 + 0.5, { align: "left", palette });
  }
}

// The messages on their way, or at rest an arrow for each message of the last step; and what is new.
export function drawMoves(canvas, scene) {
  const { data, geometry, step, phase, palette, picked } = scene;
  const pen = penOf(canvas, geometry.width, geometry.height);
  const told = phase ? step + 1 : step;
  const thin = data.ranks > 24;
  if (geometry.told !== told) Object.assign(geometry, { told, moving: geometry.moves(told) });
  for (const { arrow } of phase ? [] : geometry.moving) {
    if (!arrow) continue;
    if (!thin) curve(pen, arrow, palette.ground, { width: 4 });
    curve(pen, arrow, palette.link, { width: thin ? 0.8 : 1.6, head: thin ? 3.5 : 7 });
  }
  pen.globalAlpha = phase > LANDED ? Math.max(0, 1 - (phase - LANDED) / 0.12) : 1;
  if (phase && pen.globalAlpha) for (const move of geometry.moving) drawMoving(pen, scene, move, travelled(phase), thin);
  pen.globalAlpha = phase ? Math.max(0, (phase - LANDED) / (1 - LANDED)) : 1;
  const news = told && pen.globalAlpha ? data.changes[told] : [];
  for (const { rank, cell } of news) outline(pen, geometry.area(rank, cell), palette.focus, thin ? 1 : 2, thin ? 0 : 1.5);
  pen.globalAlpha = 1;
  pen.setLineDash([6, 3]);
  for (const one of scene.wrong) if (one.step <= step) outline(pen, geometry.area(one.rank, one.cell), palette.warn, 3, thin ? 0 : 1.5);
  pen.setLineDash([]);
  if (picked) outline(pen, geometry.area(picked.rank, picked.cell), palette.ink, 3, 2);
}

function drawMoving(pen, { data, palette }, { path, from, to, held }, share, thin) {
  if (!thin) curve(pen, path, palette.soft, { width: 1, dash: [3, 3] });
  const { x, y } = pointAt(path, share);
  const [w, h] = [from.w + (to.w - from.w) * share, Math.min(from.h, 26)];
  const box = { x: x - w / 2, y: y - h / 2, w, h };
  const each = w / held.length;
  held.forEach((one, i) => {
    const part = { ...box, x: box.x + each * i, w: each };
    if (each > 7) drawHeld(pen, part, one, data.ranks, palette);
    pen.fillStyle = shadeOf(one, data.ranks, palette);
    if (each <= 7) pen.fillRect(part.x, part.y, each, h);
  });
  outline(pen, box, palette.ink, thin ? 0.75 : 1.25, 0.5);
}
