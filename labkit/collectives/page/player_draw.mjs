// Painting of the player: what each rank holds, and the messages of a step.
import { coloursOf, curve, label, rectangle } from "../../views/static/drawing.mjs";
import { bytesText, penOf, widthWith } from "../../views/static/page.mjs";
import { boxOf, cellName, FEW, LANDED, movesOf, runs, strip, travelled } from "./player_data.mjs";

// The colours of the style sheet. Whatever the theme, marks have a contrast of at least 3 with the
// ground: in the light one the edge of a rank's colour is a darker one.
export function paletteOf(section) {
  const one = (rank) => [`rank-${rank}`, `on-${rank}`];
  const found = coloursOf(section, ["ink", "faint", "soft", "ground", "lane", "focus", "warn", "whole", "link", "some", "most", "edge-share",
    ...[...Array(FEW).keys()].flatMap(one)]);
  const ranks = [...Array(FEW).keys()].map((rank) => {
    const [fill, ink] = one(rank).map((name) => found[name]);
    return { fill, edge: `color-mix(in srgb, ${fill} ${found["edge-share"]}, black)`, ink: ink || "black" };
  });
  return { ...found, ranks };
}

// Of a cell on more ranks than have a colour of their own: from one contribution to all.
function shadeOf(held, ranks, palette) {
  if (!held) return palette.faint;
  if (held.whole) return palette.whole;
  const share = Math.round((100 * Math.max(held.ranks - 1, 0)) / ranks);
  return `color-mix(in srgb, ${palette.most} ${share}%, ${palette.some})`;
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
  rectangle(pen, palette.lane, x, y, w, h);
  if (!held && w >= 14 && h >= 11) label(pen, palette, "?", x + w / 2, y + h / 2);
  const { indices = [], runs = [], twice = [] } = held ?? {};
  if (ranks <= FEW) for (const rank of indices) {
    const times = held.counts[rank] > 1 && wide >= 16 ? `${held.counts[rank]}×` : rank;
    drawStripe(pen, { x: x + wide * rank, y, w: wide, h }, rank, palette, times);
  }
  if (ranks > FEW) for (const [first, last] of runs) {
    const least = Math.max(wide * (last - first + 1), Math.min(1.6, w));
    rectangle(pen, shadeOf(held, ranks, palette), Math.min(x + wide * first, x + w - least), y, least, h);
  }
  for (const rank of twice) rectangle(pen, palette.ink, x + wide * rank, y + h * 0.1, Math.max(wide, 3), Math.max(h * 0.12, 2));
  if (w < 10 || h < 8) return;
  const framed = held?.whole && ranks <= FEW;
  outline(pen, box, framed ? palette.ink : palette.soft, framed ? 2 : 1, -0.5);
}

function drawStripe(pen, { x, y, w, h }, rank, palette, text = rank) {
  const { fill, edge, ink } = palette.ranks[rank];
  rectangle(pen, edge, x, y, w > 4 ? w - 0.75 : w, h);
  if (w > 3) rectangle(pen, fill, x + 1, y + 1, w - 2.75, h - 2);
  if (w >= 9 && h >= 11) label(pen, palette, text, x + w / 2, y + h / 2 + 0.5, { size: 10, weight: 600, colour: ink });
}

// What stands still during a step. Only the cells that have changed are painted, unless all is fresh.
export function drawBase(canvas, scene) {
  const { data, geometry, step, fresh } = scene;
  const pen = fresh ? penOf(canvas, geometry.width, geometry.height) : canvas.getContext("2d");
  if (fresh && geometry.roads) drawRoads(pen, scene);
  else if (fresh) drawHeads(pen, scene);
  const cells = data.cellsAt(step);
  cells.forEach((found, slot) => {
    if (!fresh && found === canvas.cells[slot]) return;
    drawCell(pen, scene, Math.floor(slot / data.columns), slot % data.columns, found);
  });
  canvas.cells = cells;
  if (!geometry.roads) drawSent(pen, scene);
}

function drawRoads(pen, { data, geometry, palette }) {
  for (const box of geometry.groups) outline(pen, box, palette.soft, 1);
  const width = geometry.roads.size <= data.ranks ? 6 : geometry.roads.size <= 2 * data.ranks ? 3 : 1;
  for (const road of geometry.roads.values()) curve(pen, road, palette.lane, { width });
  geometry.boxes.forEach(({ x, y, w, h }, rank) => {
    pen.clearRect(x - w / 2, y - h / 2, w, h);
    const top = y - h / 2 + 8;
    label(pen, palette, `rank ${rank}`, x, top, { weight: 600 });
    if (data.ranks <= FEW) drawStripe(pen, { x: x - 36, y: top - 6, w: 8, h: 12 }, rank, palette);
  });
}

function drawHeads(pen, { data, geometry, palette }) {
  const { row, pitch, left, right, every } = geometry;
  const faint = { size: 11, colour: palette.faint };
  label(pen, palette, "elements", 0, 9, { ...faint, align: "left" });
  label(pen, palette, "sent", right + 8, 9, { ...faint, align: "left" });
  const names = data.cells.map(cellName);
  const apart = Math.ceil((Math.max(...names.map(widthWith(pen)), 6) + 8) / pitch);
  for (let cell = 0; cell < data.columns; cell += apart) {
    const { x, w } = geometry.area(0, cell);
    label(pen, palette, names[cell], x + w / 2, 9, faint);
  }
  for (let rank = 0; rank < data.ranks; rank += every) {
    const { y, h } = geometry.area(rank, 0);
    label(pen, palette, `rank ${rank}`, left - 7, y + h / 2 + 0.5, { size: row >= 14 ? 12 : 10.5, align: "right" });
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
  label(pen, palette, found?.text ?? "–", x + w / 2, y + h + 10, { size: geometry.size, weight: whole ? 600 : 400, colour });
}

// What each rank has sent so far.
function drawSent(pen, { data, geometry, step, palette }) {
  const x = geometry.right + 8;
  pen.clearRect(x, 18, geometry.width - x, geometry.height);
  for (let rank = 0; rank < data.ranks; rank += geometry.every) {
    const { y, h } = geometry.area(rank, 0);
    label(pen, palette, bytesText(data.sent[step][rank]), x, y + h / 2 + 0.5, { size: 11, align: "left" });
  }
}

// The messages on their way, or at rest an arrow for each message of the last step; and what is new.
export function drawMoves(canvas, scene) {
  const { data, geometry, step, phase, palette, picked } = scene;
  const pen = penOf(canvas, geometry.width, geometry.height);
  const told = phase ? step + 1 : step;
  const thin = data.ranks > 24;
  if (geometry.told !== told) Object.assign(geometry, { told, moving: movesOf(data, geometry, told) });
  for (const { arrow } of phase ? [] : geometry.moving) {
    if (!arrow) continue;
    if (!thin) curve(pen, arrow, palette.ground, { width: 4 });
    curve(pen, arrow, palette.link, { width: thin ? 0.8 : 1.6, head: thin ? 3.5 : 7 });
  }
  pen.globalAlpha = phase > LANDED ? Math.max(0, 1 - (phase - LANDED) / 0.12) : 1;
  if (phase && pen.globalAlpha) geometry.moving.forEach((move, i) =>
    drawMoving(pen, scene, move, travelled(phase), { thin, strong: picked?.message === i }));
  pen.globalAlpha = phase ? Math.max(0, (phase - LANDED) / (1 - LANDED)) : 1;
  const news = Map.groupBy(told && pen.globalAlpha ? data.changes[told] : [], ({ rank }) => rank);
  for (const [rank, found] of news) for (const ends of runs(found.map(({ cell }) => cell)))
    outline(pen, strip(geometry.area, rank, ends), palette.focus, thin ? 1 : 2, thin ? 0 : 1.5);
  pen.globalAlpha = 1;
  pen.setLineDash([6, 3]);
  for (const one of scene.wrong) if (one.step <= step) outline(pen, geometry.area(one.rank, one.cell), palette.warn, 3, thin ? 0 : 1.5);
  pen.setLineDash([]);
  if (picked?.rank === undefined || !data.columns) return;
  const whole = picked.cell === null ? [...data.cells.keys()] : [picked.cell];
  outline(pen, strip(geometry.area, picked.rank, whole), palette.ink, 3, 2);
}

function drawMoving(pen, { data, palette }, move, share, { thin, strong }) {
  const { path, held } = move;
  if (!thin) curve(pen, path, palette.soft, { width: 1, dash: [3, 3] });
  const box = boxOf(move, share);
  const { w, h } = box;
  const each = w / held.length;
  held.forEach((one, i) => {
    const part = { ...box, x: box.x + each * i, w: each };
    if (each > 7) drawHeld(pen, part, one, data.ranks, palette);
    if (each <= 7) rectangle(pen, shadeOf(one, data.ranks, palette), part.x, part.y, each, h);
  });
  outline(pen, box, palette.ink, strong ? 3 : thin ? 0.75 : 1.25, strong ? 2 : 0.5);
}
