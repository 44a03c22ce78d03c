// The ring as a stage: where ranks and cells stand on it, how messages travel, what their arrival does.
import { pointAt } from "./player_data.mjs";

const [NAME, STRIP, FOOT] = [17, 24, 15]; // pixels of a rank's name, its cells, their values
const WIDTHS = [72, 58, 46, 40, 34, 29, 25, 21, 17, 14, 11, 9, 7, 5, 4, 3]; // of a cell; the widest that fits
const MIDDLE = { w: 164, h: 100 }; // is for words

const apart = (a, b) => Math.abs(a.x - b.x) >= (a.w + b.w) / 2 + 6 || Math.abs(a.y - b.y) >= (a.h + b.h) / 2 + 2;

// Rank 0 at the top, the next one to the right. Boxes are { x, y, w, h } around their middle.
function boxesOf({ ranks, columns, longest }, width, height, cell) {
  const size = [12, 10.5, 9.5].find((one) => longest * 0.64 * one <= cell - 2);
  const [w, h] = [Math.max(cell * columns, 44), NAME + STRIP + (size ? FOOT : 0)];
  const [rx, ry] = [(width - w) / 2 - 4, (height - h) / 2 - 4];
  const boxes = Array.from({ length: ranks }, (_, rank) => {
    const angle = (2 * Math.PI * rank) / ranks - Math.PI / 2;
    return { x: width / 2 + rx * Math.cos(angle), y: height / 2 + ry * Math.sin(angle), w, h, angle };
  });
  return { boxes, size, rx, ry };
}

export function ringGeometry(data, width) {
  const { ranks, columns } = data;
  const height = Math.min(Math.max(400, 0.55 * width), 460);
  const middle = { x: width / 2, y: height / 2, ...MIDDLE };
  const free = (all) => all.every((one, i) => [...all.slice(i + 1), middle].every((other) => apart(one, other)));
  const cell = WIDTHS.find((one) => free(boxesOf(data, width, height, one).boxes)) ?? WIDTHS.at(-1);
  const { boxes, size, rx, ry } = boxesOf(data, width, height, cell);
  const gap = cell >= 21 ? 3 : cell >= 9 ? 1 : 0;
  const area = (rank, index) => {
    const { x, y, h } = boxes[rank];
    return { x: x - (cell * columns) / 2 + cell * index, y: y - h / 2 + NAME, w: cell - gap, h: STRIP };
  };
  const at = (x, y) => {
    const rank = boxes.findIndex((one) => Math.abs(x - one.x) <= one.w / 2 && Math.abs(y - one.y) <= one.h / 2);
    if (rank < 0) return null;
    const index = Math.floor((x - area(rank, 0).x) / cell);
    return { rank, cell: Math.min(Math.max(index, 0), columns - 1) };
  };
  const curve = { x: width / 2, y: height / 2, rx, ry };
  const geometry = { width, height, size, area, at, curve, names: boxes.map((one) => ({ x: one.x, y: one.y - one.h / 2 + 8 })) };
  return { ...geometry, moves: (step) => moves(data, geometry, boxes, step) };
}

// What moves in a step: { path, arrow, from, to, held }, along the ring.
function moves(data, { area, curve }, boxes, step) {
  const strip = (rank, cells) => {
    const [first, last] = [area(rank, cells[0]), area(rank, cells.at(-1))];
    return { ...first, w: last.x + last.w - first.x };
  };
  const middle = ({ x, y, w, h }) => ({ x: x + w / 2, y: y + h / 2 });
  const half = Math.PI / data.ranks;
  const out = Math.min(1 / Math.cos(half), 1.4); // of the point to which the two tangents lead
  const found = data.messages[step].map((message) => {
    const { from, into, held } = data.route(message);
    const ends = { from: strip(message.source, from.length ? from : [0]), to: strip(message.dest, into.length ? into : [0]) };
    const angle = boxes[message.source].angle + half * data.direction;
    const bend = { x: curve.x + curve.rx * out * Math.cos(angle), y: curve.y + curve.ry * out * Math.sin(angle) };
    return { ...ends, held: held.length ? held : [null], path: { a: middle(ends.from), bend, b: middle(ends.to) } };
  });
  // The longest arrows that touch no rank; none if there is no room for them.
  const clear = ({ x, y }) => boxes.every((one) => Math.abs(x - one.x) > one.w / 2 + 4 || Math.abs(y - one.y) > one.h / 2 + 4);
  const share = [0.14, 0.1, 0.06].find((one) => found.every(({ path }) =>
    [-one, 0, one].every((side) => clear(pointAt(path, 0.5 + side)))));
  return found.map((one) => ({ ...one, arrow: share ? part(one.path, 0.5 - share, 0.5 + share) : null }));
}

// The piece of a curve between two of its points.
function part(path, first, last) {
  const [a, middle, b] = [first, (first + last) / 2, last].map((share) => pointAt(path, share));
  return { a, bend: { x: 2 * middle.x - (a.x + b.x) / 2, y: 2 * middle.y - (a.y + b.y) / 2 }, b };
}

// What the middle of the ring says: { head, text, sum, of }; `arrived` once the messages are there.
export function middleText(data, step, arrived, rank) {
  const phase = data.phaseOf(step);
  if (!step || !phase) return { head: step ? `step ${step} of ${data.steps}` : "", text: "", sum: "", of: "" };
  const here = { head: phase.name, text: `${step - phase.first + 1} of ${phase.last - phase.first + 1}: ${phase.kind}` };
  if (!arrived) return { ...here, sum: "", of: "" };
  if (step === data.steps && data.phases.length > 1 && data.cellsAt(step).every((one) => one?.held?.whole)) {
    const counts = data.phases.map(({ kind, first, last }) => `${last - first + 1} ${kind === "adds" ? "to add" : "to copy"}`);
    return { head: "done", text: counts.join(" + "), sum: `${data.steps} steps`, of: `all ${data.ranks} ranks hold all of it` };
  }
  return { ...here, sum: arrival(data, step, rank, phase.kind), of: `on rank ${rank}` };
}

// "7 + 13 = 20" where a message is added, "20 overwrites 7" where it is copied.
function arrival(data, step, rank, kind) {
  const message = data.messages[step].find(({ dest }) => dest === rank);
  if (!message) return "";
  const { from, into } = data.route(message);
  const [own, came, now] = [data.cell(step - 1, rank, into[0]), data.cell(step - 1, message.source, from[0]),
    data.cell(step, rank, into[0])].map((one) => one?.text ?? "?");
  if (into.length > 1 || [own, came, now].some((one) => one.length > 7)) return kind === "adds" ? "adds" : "overwrites";
  if (kind === "copies") return `${came} overwrites ${own}`;
  return data.op === "sum" ? `${own} + ${came} = ${now}` : `${data.op}(${own}, ${came}) = ${now}`;
}
