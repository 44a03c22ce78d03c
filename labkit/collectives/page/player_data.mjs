// The player without a page: run data, playback, geometry and sentences as pure functions. Phases and a sentence for each
// step come from phases.py.
import { bytesText } from "../../views/static/page.mjs";
import { Playback, SPEEDS } from "../../views/static/controls.mjs";

// ---- run data

// { a: [1, 2], b: [3, 4] } → [{ a: 1, b: 3 }, { a: 2, b: 4 }]
function rows(table) {
  const names = Object.keys(table);
  return table[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, table[name][i]])));
}

// A run as player.py packs it, and what every rank holds at every step.
export class RunData {
  constructor(packed) {
    Object.assign(this, packed, { columns: packed.cells.length });
    const held = packed.holdings.map((digits) => contributions(digits));
    this.reduced = held.some((one) => one?.ranks > 1); // otherwise data was only copied
    this.doubled = held.some((one) => one?.twice.length);
    const byStep = () => Array.from({ length: this.steps + 1 }, () => []);
    this.messages = byStep();
    for (const one of rows(packed.messages)) this.messages[one.step].push(one);
    this.changes = byStep();
    for (const one of rows(packed.changes)) this.changes[one.step].push({ ...one, held: held[one.holding] });
    this.longest = packed.changes.text.reduce((most, text) => Math.max(most, text.length), 1);
    this.sent = [new Float64Array(this.ranks)]; // bytes of each rank until the end of each step
    for (let step = 1; step <= this.steps; step += 1) {
      this.sent.push(this.sent[step - 1].slice());
      for (const { source, nbytes } of this.messages[step]) this.sent[step][source] += nbytes;
    }
    this.seen = null;
  }

  phaseOf(step) {
    return this.phases.find(({ first, last }) => first <= step && step <= last) ?? null;
  }

  // The change that each cell of each rank shows after a step, one rank after the other.
  cellsAt(step) {
    if (this.seen?.step === step) return this.seen.cells;
    const on = this.seen?.step < step;
    const cells = on ? this.seen.cells.slice() : new Array(this.ranks * this.columns).fill(null);
    for (let now = on ? this.seen.step + 1 : 0; now <= step; now += 1)
      for (const one of this.changes[now]) cells[one.rank * this.columns + one.cell] = one;
    this.seen = { step, cells };
    return cells;
  }

  // { held, text } of one cell after a step, or null where nothing was recorded.
  cell(step, rank, cell) {
    return this.cellsAt(step)[rank * this.columns + cell] ?? null;
  }

  // The cells that elements [start, stop) lie in; none for memory beside the buffer.
  cellsIn(region) {
    if (!region) return [];
    return this.cells.flatMap(([start, stop], i) => (start < region[1] && stop > region[0] ? [i] : []));
  }

  // The cells that a message leaves, what they held, and the cells that it is for: where it arrives
  // beside the buffer, those that change at the receiver in its step.
  route(message) {
    message.route ??= this.findRoute(message); // needed in every frame
    return message.route;
  }

  findRoute({ step, source, dest, from: sent, into: received }) {
    const [from, arrives] = [this.cellsIn(sent), this.cellsIn(received)];
    const changed = this.changes[step].flatMap(({ rank, cell }) => (rank === dest ? [cell] : []));
    const both = from.filter((cell) => changed.includes(cell));
    const into = [arrives, both, from, changed].find((cells) => cells.length) ?? [];
    const leaves = from.length ? from : into;
    return { from: leaves, into, held: leaves.map((cell) => this.cell(step - 1, source, cell)?.held ?? null) };
  }

  // The lines of the program in a step, and which ranks communicate or wait there.
  lines(step) {
    const found = new Map();
    const posted = new Set();
    const note = (place, rank, what) => {
      if (place < 0) return;
      const [source, line] = this.places[place];
      if (!found.has(place)) found.set(place, { source, line, busy: new Set(), waiting: new Set() });
      found.get(place)[what].add(rank);
    };
    for (const { source, dest, sentAt, receivedAt } of this.messages[step]) {
      note(sentAt, source, "busy");
      note(receivedAt, dest, "busy");
      posted.add(`${source} ${sentAt}`).add(`${dest} ${receivedAt}`);
    }
    // A rank whose message was posted elsewhere, such as by an Isend, waits where it is.
    this.where[step - 1]?.forEach((place, rank) => posted.has(`${rank} ${place}`) || note(place, rank, "waiting"));
    const sorted = (ranks) => [...ranks].sort((a, b) => a - b);
    return [...found.values()]
      .map((one) => ({ ...one, busy: sorted(one.busy), waiting: sorted(one.waiting) }))
      .sort((a, b) => a.source - b.source || a.line - b.line);
  }
}

// How often each rank's contribution is in a value ("102": rank 0 once, rank 2 twice), how many
// ranks that are, in which unbroken runs, which are counted twice, and whether each is in it once.
export function contributions(digits) {
  if (digits === null) return null;
  const counts = Array.from(digits, (one) => parseInt(one, 36));
  const indices = counts.flatMap((count, rank) => (count ? [rank] : []));
  const twice = indices.filter((rank) => counts[rank] > 1);
  const whole = counts.length > 1 && indices.length === counts.length && !twice.length;
  return { counts, indices, ranks: indices.length, runs: runs(indices), twice, whole };
}

// [3, 4, 5, 9] → [[3, 5], [9, 9]]
export function runs(numbers) {
  const found = [];
  for (const one of [...numbers].sort((a, b) => a - b)) {
    if (found.at(-1)?.[1] === one - 1) found.at(-1)[1] = one;
    else found.push([one, one]);
  }
  return found;
}

// ---- playback

const STEP_SECONDS = 2; // one step at 1×
const FASTER = 1.6; // of a step that repeats the one before it
const LONGEST = 64; // seconds for a whole run at the speed that it begins with

// Step by step, each as long; a later step of a phase is faster.
export function playbackOf(data) {
  const { steps } = data;
  const speed = SPEEDS.find((one) => one >= 1 && (steps * STEP_SECONDS) / one <= LONGEST) ?? SPEEDS.at(-1);
  const pace = (step) => ((data.phaseOf(step)?.first ?? step) < step ? FASTER : 1) / STEP_SECONDS;
  return new Playback([...Array(steps + 1).keys()], pace, { speed });
}

// From this phase of a step on the receivers show what they have made of the messages.
export const LANDED = 0.76;

// How far a message has come at a phase of its step.
export function travelled(phase) {
  const share = Math.min(1, Math.max(0, (phase - 0.06) / 0.68));
  return share * share * (3 - 2 * share);
}

export const FEW = 8; // so many ranks have a colour of their own

// ---- geometry: `area` says where a cell is drawn, and `at` which cell is under a point

const HEADER = 18;
const VALUE = 15; // pixels at the lower end of a cell for its value

export function gridGeometry(data, width) {
  const { ranks, columns } = data;
  const left = ranks > 99 ? 66 : 60;
  const row = Math.max(9, Math.min(46, Math.floor(440 / ranks)));
  const room = Math.max(width - left - 62, 20); // on the right, what each rank has sent
  const pitch = Math.min(room / Math.max(columns, 1), Math.max(120, room / 4));
  const gapX = [[44, 10], [24, 5], [12, 3], [4, 1]].find(([least]) => pitch >= least)?.[1] ?? 0;
  const gapY = row >= 24 ? 6 : row >= 12 ? 3 : 1;
  const [w, h] = [Math.max(pitch - gapX, 0.5), row - gapY];
  // The size at which every value has room below its cell, if there is one.
  const size = [12, 10.5, 9.5].find((one) => h >= 30 && data.longest * 0.64 * one <= w - 2);
  const area = (rank, cell) => ({ x: left + pitch * cell, y: HEADER + row * rank, w, h: size ? h - VALUE : h });
  const at = (x, y) => {
    const [rank, cell] = [Math.floor((y - HEADER) / row), Math.floor((x - left) / pitch)];
    if (rank < 0 || rank >= ranks || cell >= columns || x < 0) return null;
    return { rank, cell: x < left ? null : cell };
  };
  const right = left + pitch * Math.max(columns, 1);
  const every = row >= 12 ? 1 : 8; // so many ranks have one label
  const geometry = { width, height: HEADER + row * ranks + 2, row, every, pitch, gapX, left, right, size, area, at };
  const beside = (rank) => ({ ...area(rank, 0), x: left - 14, w: 8 });
  return { ...geometry, beside, way: (message, ends) => bow(ends, geometry) };
}

// What moves in a step, a strip of cells for each message: { path, arrow, from, to, held }.
export function movesOf(data, { area, beside, way }, step) {
  return data.messages[step].map((message) => {
    const { source, dest } = message;
    const { from, into, held } = data.route(message);
    const ends = into.length
      ? { from: strip(area, source, from), to: strip(area, dest, into), held }
      : { from: beside(source), to: beside(dest), held: [null] };
    return { ...ends, ...way(message, ends) };
  });
}

// From the middle of one strip to that of another, past those between them; and beside the cells.
function bow({ from, to }, { row, pitch, gapX }) {
  const [ay, by] = [from.y + from.h / 2, to.y + to.h / 2];
  const [ax, bx] = [from.x + from.w / 2, to.x + to.w / 2];
  const rows = Math.abs(by - ay) / row;
  const aside = rows < 1.5 ? 0 : Math.min(0.3 * pitch + 3 * rows, 40) * Math.sign(by - ay);
  const path = { a: { x: ax, y: ay }, bend: { x: (ax + bx) / 2 + aside, y: (ay + by) / 2 }, b: { x: bx, y: by } };
  const [a, b] = [{ x: from.x + from.w + 1, y: ay }, { x: to.x + to.w + 1, y: by }];
  return { path, arrow: { a, bend: { x: Math.max(a.x, b.x) + 2 * gapX + 6, y: (ay + by) / 2 }, b } };
}

// The box of some cells of a rank.
export function strip(area, rank, cells) {
  const [first, last] = [area(rank, cells[0]), area(rank, cells.at(-1))];
  return { ...first, w: last.x + last.w - first.x };
}

// Where what moves is when it has come so far.
export function boxOf({ path, from, to }, share) {
  const { x, y } = pointAt(path, share);
  const [w, h] = [from.w + (to.w - from.w) * share, Math.min(from.h, 26)];
  return { x: x - w / 2, y: y - h / 2, w, h };
}

// A point of a curve a → bend → b.
export function pointAt({ a, bend, b }, t) {
  const s = 1 - t;
  return { x: s * s * a.x + 2 * s * t * bend.x + t * t * b.x, y: s * s * a.y + 2 * s * t * bend.y + t * t * b.y };
}

// ---- the program's text

// The lines of a Python text, without their common indentation.
export function programLines(text) {
  const indents = text.split("\n").filter((line) => line.trim()).map((line) => line.search(/\S/));
  return text.replace(new RegExp(`^ {${Math.min(...indents, 80)}}`, "gm"), "").trimEnd().split("\n");
}

// ---- sentences

export function ranksText(ranks) {
  return runs(ranks).map(([a, b]) => (a === b ? a : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(", ");
}

export function cellName([start, stop]) {
  return stop <= start ? "∅" : stop - start === 1 ? `${start}` : `${start}–${stop - 1}`;
}

export function contributionsText(held) {
  if (!held) return "Whose contributions it holds is not known.";
  if (!held.ranks) return "It holds no rank's contribution.";
  if (held.whole) return `It holds all ${held.ranks} contributions, each once.`;
  const twice = held.twice.slice(0, 3).map((rank) => `rank ${rank}'s ${held.counts[rank]} times`).join(", ");
  const whose = `It holds the contribution${held.ranks > 1 ? "s of ranks" : " of rank"} ${ranksText(held.indices)}`;
  return twice ? `${whose}: ${twice}.` : `${whose}.`;
}

export function cellText(data, step, rank, cell) {
  if (cell === null) return `Rank ${rank} has sent ${bytesText(data.sent[step][rank])} of ${bytesText(data.sent.at(-1)[rank])}.`;
  const found = data.cell(step, rank, cell);
  const [start, stop] = data.cells[cell];
  const where = `Rank ${rank}, element${stop - start === 1 ? "" : "s"} ${cellName(data.cells[cell])}`;
  return found ? `${where}: ${found.text}. ${contributionsText(found.held)}` : `${where}: not recorded.`;
}

export function messageText(data, message) {
  const { from } = data.route(message);
  const names = from.length && from.length < data.columns ? ` element${from.length > 1 ? "s" : ""} ${from.map((cell) => cellName(data.cells[cell])).join(", ")}` : "";
  return `Rank ${message.source} sends${names || " its data"} to rank ${message.dest} (${bytesText(message.nbytes)}).`;
}
