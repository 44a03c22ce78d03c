// The stage: ranks with their cells on the spots of a shape, the paths of messages, and what their arrival does.
import { cellName, pointAt } from "./player_data.mjs";

const [NAME, STRIP, FOOT] = [17, 24, 15]; // pixels of a rank's name, its cells, their values
const WIDTHS = [72, 58, 46, 40, 34, 29, 25, 21, 17, 14, 11, 9, 7, 5, 4, 3]; // of a cell; the widest that fits
const MIDDLE = { w: 184, h: 100 }; // of a ring, is for words
const BANNER = 46; // pixels for the same words above every other shape
export const NARROW = 420; // a ring has no room for words inside

const apart = (a, b) => Math.abs(a.x - b.x) >= (a.w + b.w) / 2 + 6 || Math.abs(a.y - b.y) >= (a.h + b.h) / 2 + 2;

// Boxes are { x, y, w, h } around their middle.
function boxesOf({ columns, longest, shape }, { width, height, top }, cell) {
  const size = [12, 10.5, 9.5].find((one) => longest * 0.64 * one <= cell - 2);
  const [w, h] = [Math.max(cell * columns, 44), NAME + STRIP + (size ? FOOT : 0)];
  const [wide, high] = [width - w - 16, height - top - h - 8];
  return { size, boxes: shape.spots.map(([x, y]) => ({ x: w / 2 + 8 + wide * x, y: top + h / 2 + 4 + high * y, w, h })) };
}

export function stageGeometry(data, width, high = 0) {
  const { columns, shape } = data;
  const height = high || Math.max(400, Math.min(0.55 * width, 460));
  const room = { width, height, top: shape.kind === "ring" && width >= NARROW ? 0 : BANNER };
  const taken = room.top ? [] : [{ x: width / 2, y: height / 2, ...MIDDLE }];
  const isFree = (boxes) => boxes.every((one, i) => [...boxes.slice(i + 1), ...taken].every((other) => apart(one, other)));
  const cell = WIDTHS.find((one) => isFree(boxesOf(data, room, one).boxes)) ?? WIDTHS.at(-1);
  const { boxes, size } = boxesOf(data, room, cell);
  const gap = cell >= 21 ? 3 : cell >= 9 ? 1 : 0;
  const area = (rank, index) => {
    const { x, y, h } = boxes[rank];
    return { x: x - (cell * columns) / 2 + cell * index, y: y - h / 2 + NAME, w: cell - gap, h: STRIP };
  };
  const at = (x, y) => {
    const rank = boxes.findIndex((one) => isIn(one, { x, y }, 0));
    if (rank < 0) return null;
    const first = area(rank, 0);
    const index = Math.floor((x - first.x) / cell);
    return { rank, cell: y < first.y || index < 0 || index >= columns ? null : index };
  };
  const roads = roadsOf(data, boxes, room);
  const geometry = { width, height, size, area, at, boxes, roads, groups: groupsOf(data, boxes) };
  return { ...geometry, beside: (rank) => ({ ...area(rank, 0), x: boxes[rank].x - 4, w: 8 }), way: (message, ends) => wayOf(message, ends, geometry) };
}

const isIn = (box, { x, y }, more = 4) => Math.abs(x - box.x) <= box.w / 2 + more && Math.abs(y - box.y) <= box.h / 2 + more;

// The path between the middles of two ranks, for every two of which one sends to the other: Map "source dest" → { a, bend, b }.
function roadsOf({ ranks, shape, messages }, boxes, { width, height, top }) {
  const roads = new Map();
  for (const { source, dest } of messages.flat()) {
    const [a, b] = [boxes[source], boxes[dest]];
    const straight = middle(a, b);
    // A little to one side, so that two ways are seen; further where another rank is in between.
    const lens = Math.min(0.1, 14 / Math.hypot(a.x - b.x, a.y - b.y));
    const leaving = (by) => ({ x: straight.x + by * (a.y - b.y), y: straight.y - by * (a.x - b.x) });
    // Of a ring, to where the two tangents meet; messages the other way round are inside.
    const onward = shape.direction || (dest - source + ranks) % ranks === 1;
    const out = onward ? Math.min(1 / Math.cos(Math.PI / ranks) ** 2, 2.8) : 0.7;
    const round = { x: width / 2 + out * (straight.x - width / 2), y: height / 2 + out * (straight.y - height / 2) };
    const paths = (shape.kind === "ring" ? [round] : [lens, 0.3, -0.3, 0.5, -0.5].map(leaving)).map((bend) => ({ a, bend, b }));
    const others = boxes.filter((one) => one !== a && one !== b);
    const isFree = (path) => pointAt(path, 0.5).y > top && [0.2, 0.35, 0.5, 0.65, 0.8].every((t) => others.every((one) => !isIn(one, pointAt(path, t))));
    roads.set(`${source} ${dest}`, paths.find(isFree) ?? paths[0]);
  }
  return roads;
}

const middle = (a, b) => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });

// The frames around the ranks of each group, where there are two levels.
function groupsOf({ ranks, shape }, boxes) {
  return shape.kind !== "levels" ? [] : [...Array(ranks / shape.size).keys()].map((one) => {
    const [first, last] = [boxes[one * shape.size], boxes[(one + 1) * shape.size - 1]];
    return { x: first.x - first.w / 2 - 6, y: first.y - first.h / 2 - 2, w: last.x - first.x + first.w + 12, h: last.y - first.y + first.h + 4 };
  });
}

// From the middle of one strip of cells to that of another, as the road between their ranks bends; and of that the longest
// arrow that touches no rank, if there is room for one.
function wayOf({ source, dest }, { from, to }, { roads, boxes }) {
  const road = roads.get(`${source} ${dest}`);
  const [a, b] = [from, to].map(({ x, y, w, h }) => ({ x: x + w / 2, y: y + h / 2 }));
  const [own, straight] = [middle(a, b), middle(road.a, road.b)];
  const path = { a, bend: { x: own.x + road.bend.x - straight.x, y: own.y + road.bend.y - straight.y }, b };
  const isFree = (half) => [-half, 0, half].every((side) => boxes.every((one) => !isIn(one, pointAt(path, 0.5 + side))));
  const share = [0.2, 0.14, 0.1, 0.06].find(isFree);
  return { path, arrow: share ? part(path, 0.5 - share, 0.5 + share) : null };
}

// The piece of a curve between two of its points.
function part(path, first, last) {
  const [a, between, b] = [first, (first + last) / 2, last].map((share) => pointAt(path, share));
  return { a, bend: { x: 2 * between.x - (a.x + b.x) / 2, y: 2 * between.y - (a.y + b.y) / 2 }, b };
}

// The banner: { head, text, sum, of }; `arrived` once the messages of the step are there.
export function bannerText(data, step, arrived, picked) {
  const phase = data.phaseOf(step);
  const [nth, all] = phase?.name ? [step - phase.first + 1, phase.last - phase.first + 1] : [step, data.steps];
  const here = { head: phase?.name ?? "step", text: `${nth} of ${all}${phase ? `: ${phase.kind}` : ""}`, sum: "", of: "" };
  if (!step) return { ...here, head: "", text: "" };
  if (!arrived) return here;
  const done = step === data.steps && !picked && closing(data);
  return { ...here, ...(done || arrival(data, step, picked)) };
}

// Where all ranks hold the same after the last step.
function closing(data) {
  const cells = data.cellsAt(data.steps);
  if (!cells.every((one, i) => one?.held && one.held === cells[i % data.columns].held)) return null;
  const counted = { adds: 0, copies: 0 };
  for (const { kind, first, last } of data.phases) counted[kind] += last - first + 1;
  const { adds, copies } = counted;
  const text = adds + copies < data.steps ? "" : [adds && `${adds} to add`, copies && `${copies} to copy`].filter(Boolean).join(" + ");
  const all = cells.every(({ held }) => held.whole) ? "all of it" : "the same";
  return { head: "done", text, sum: `${data.steps} step${data.steps > 1 ? "s" : ""}`, of: `all ${data.ranks} ranks hold ${all}` };
}

// "7 + 13 = 20" where a message is added, "20 overwrites 7" where it is copied: of what is picked, or of one message.
function arrival(data, step, picked) {
  const messages = data.messages[step];
  const index = picked?.message ?? messages.findIndex(({ dest }) => dest === (picked?.rank ?? 0));
  const message = messages[index] ?? (picked ? null : messages[0]);
  if (!message) return { of: picked ? `nothing arrives on rank ${picked.rank}` : "" };
  if (!message.nbytes) return { of: "an empty message" };
  const { source, dest, fate } = message;
  const { from, into } = data.route(message);
  const nth = Math.max(into.indexOf(picked?.cell), 0);
  const [own, came, now] = [data.cell(step - 1, dest, into[nth]), data.cell(step - 1, source, from[nth]), data.cell(step, dest, into[nth])];
  if (own === now) return { of: `arrives beside the buffer of rank ${dest}` };
  const of = `on rank ${dest}${into.length > 1 ? `, element ${cellName(data.cells[into[nth]])}` : ""}`;
  const [a, b, c] = [own, came, now].map((one) => one?.text ?? "?");
  if ([a, b, c].some((one) => one.length > 7)) return { sum: { adds: "adds", copies: "overwrites" }[fate] ?? "changes", of };
  if (fate === "copies") return { sum: `${c} overwrites ${a}`, of };
  if (fate && data.op === "sum" && Number(a) + Number(b) === Number(c)) return { sum: `${a} + ${b} = ${c}`, of };
  return { sum: fate && data.op && data.op !== "sum" ? `${data.op}(${a}, ${b}) = ${c}` : `${a} becomes ${c}`, of };
}
