// The published pipeline schedules and their clock, so that a page needs no kernel to choose one.
// schedules.py has the same in Python; a test compares them.

const range = (count) => [...Array(count).keys()];

// First `ahead` forward passes, then one forward, one backward; each W `delay` micro-batches after its B.
function steady(m, ahead, delay = null) {
  const row = range(Math.min(ahead, m)).map((i) => ["F", i, 0]);
  for (const i of range(m)) {
    if (i + ahead < m) row.push(["F", i + ahead, 0]);
    row.push(["B", i, 0]);
    if (delay !== null && i >= delay) row.push(["W", i - delay, 0]);
  }
  if (delay !== null) for (let i = Math.max(m - delay, 0); i < m; i += 1) row.push(["W", i, 0]);
  return row;
}

function interleaved(rank, p, m, v) {
  const size = m / Math.max(1, Math.floor(m / p));
  const turns = range(m / size).flatMap((group) =>
    range(v).flatMap((chunk) => range(size).map((i) => [group * size + i, chunk])));
  const ahead = 2 * (p - 1 - rank) + (v - 1) * size;
  const row = turns.slice(0, ahead).map((turn) => ["F", ...turn]);
  turns.forEach(([i, chunk], number) => {
    if (number + ahead < turns.length) row.push(["F", ...turns[number + ahead]]);
    row.push(["B", i, v - 1 - chunk]);
  });
  return row;
}

// Turns such as "F0", F of chunk 0, with the next micro-batch each, without those that are too many.
function turned(m, ...turns) {
  const count = {};
  return turns.flatMap(([times, names]) => range(times).flatMap(() => names.split(" "))).flatMap((name) => {
    const i = (count[name] = (count[name] ?? -1) + 1);
    return i < m ? [[name[0], i, Number(name[1])]] : [];
  });
}

function zbV(p, m) {
  return withWeights(range(p).map((rank) => {
    const up = p - rank;
    return turned(m, [2 * up - 1, "F0"], [rank, "F1 F0"], [up, "F1 B1"], [Math.max(m, 2 * p - 1) - 2 * p + 1 + rank, "F0 B0 F1 B1"],
      [up - 1, "B0 F1 B1"], [rank, "B0 B1"], [up, "B0"]);
  }), 2 * p);
}

function dualpipeV(p, m) {
  return withWeights(range(p).map((rank) => {
    const up = p - 1 - rank;
    return turned(m, [2 * up, "F0"], [rank + 1, "F0 F1"], [up, "B1 F1"], [Math.max(m, 2 * p) - 2 * p + 1 + rank, "F0 B1 F1 B0"],
      [up, "B1 F1 B0"], [rank + 1, "B1 B0"], [up, "B0"]);
  }), 2 * p + 1, null, true);
}

const PERIOD = 6; // ticks of F, B and W of two chunks

// When each rank begins F of chunk 0 and 1, B of chunk 1 and 0 in a block, which is repeated every 6 ticks.
function vBlock(p, { down, late, gap }) {
  const first = down * (p - 1) + 1;
  const loss = first + p + late;
  const turn = loss + down * (p - 1) + gap;
  return range(p).map((r) => [down * r, first + p - 1 - r, loss + down * r, turn + p - 1 - r]);
}

function repeated(block, m, most, windows) {
  const kinds = [["F", 0], ["F", 1], ["B", 1], ["B", 0]];
  const rows = block.map((times) => range(m).flatMap((i) => kinds.map(([kind, chunk], k) => ({ time: times[k] + PERIOD * i, piece: [kind, i, chunk] })))
    .sort((a, b) => a.time - b.time || a.piece[0].charCodeAt() - b.piece[0].charCodeAt() || a.piece[1] - b.piece[1] || a.piece[2] - b.piece[2]).map(({ piece }) => piece));
  return withWeights(rows, most, windows);
}

function vHalf(p, m) {
  const even = Number(p % 2 === 0);
  const most = p + 1 + even;
  const windows = range(p).map((rank) => Math.min(rank + 1, Math.floor(most / 2))).map((one) => [most - one, one]);
  return repeated(vBlock(p, { down: 2, late: 3 * even, gap: 2 }), m, most, windows);
}

function vMin(p, m) {
  const late = p % 3 === 0 ? 2 : 0;
  const block = vBlock(p, { down: 1, late, gap: 1 });
  const live = (from, to) => Math.floor((to - from + 1) / PERIOD) + 1;
  return repeated(block, m, 2 * (Math.floor((p + 1) / 3) + 1), late ? block.map(([f0, f1, b1, b0]) => [live(f0, b0), live(f1, b1)]) : null);
}

// Each W where its rank would wait, or holds `most` chunks: on a clock on which F, B and W take one tick each.
function withWeights(rows, most, windows = null, whole = false, chunks = 2) {
  const p = rows.length;
  const last = p * chunks - 1;
  const ended = new Map();
  const ranks = rows.map((row, rank) => ({
    rest: [...row], row: [], due: [], held: [0, 0], turned: false, window: windows?.[rank], left: row.filter(([kind]) => kind === "F").length,
    first: row.filter(([kind, , chunk]) => kind === "F" && !chunk).length, stages: [rank, 2 * p - 1 - rank],
  }));
  const next = (one, tick) => {
    if (whole && one.due.length && one.left) return -1;
    const overtakes = one.window && (!one.turned || !one.first);
    const seen = new Set();
    for (let place = 0; place < one.rest.length; place += 1) {
      const [kind, i, chunk] = one.rest[place];
      if (seen.has(kind + chunk)) continue;
      seen.add(kind + chunk);
      const stage = one.stages[chunk];
      const needs = kind === "F" ? `F${i}.${stage - 1}` : stage === last ? `F${i}.${stage}` : `B${i}.${stage + 1}`;
      const ready = (kind === "F" && stage === 0) || (ended.get(needs) ?? Infinity) <= tick;
      const fits = kind === "B" || (place === 0 && !one.due.length) || (one.held[chunk] < (one.window?.[chunk] ?? most) && one.held[0] + one.held[1] < most);
      if (ready && fits) return place;
      if (!overtakes || seen.size === 4) return -1;
    }
    return -1;
  };
  for (let tick = 0; ranks.some((one) => one.rest.length || one.due.length); tick += 1) {
    for (const one of ranks) {
      const place = next(one, tick);
      if (place >= 0) {
        const [[kind, i, chunk]] = one.rest.splice(place, 1);
        ended.set(`${kind}${i}.${one.stages[chunk]}`, tick + 1);
        one.row.push([kind, i, chunk]);
        if (kind === "F") [one.held[chunk], one.left, one.first] = [one.held[chunk] + 1, one.left - 1, one.first - (chunk === 0)];
        else one.due.push([i, chunk]), (one.turned ||= chunk === 0);
      } else if (one.due.length) {
        const [i, chunk] = one.due.shift();
        one.held[chunk] -= 1;
        one.row.push(["W", i, chunk]);
      }
    }
  }
  return ranks.map(({ row }) => row);
}

// Of too few micro-batches to fill it, each W is where its rank would wait.
function zbH2(p, m) {
  if (m >= 2 * p - 1) return range(p).map((rank) => steady(m, 2 * (p - 1 - rank), 2 * rank));
  return withWeights(range(p).map((rank) => steady(m, 2 * (p - 1 - rank))), 2 * p - 1, null, false, 1);
}

// By name: the row of a rank or all rows, and the bubble by p stages, m micro-batches, v chunks and times F, B, W.
export const SCHEDULES = {
  naive: {
    row: (rank, p, m) => range(m).flatMap((i) => [["F", i, 0], ["B", i, 0]]),
    text: "m (p − 1)(F + B)", bubble: ({ p, m, f, b }) => m * (p - 1) * (f + b),
  },
  gpipe: {
    row: (rank, p, m) => ["F", "B"].flatMap((kind) => range(m).map((i) => [kind, i, 0])),
    text: "(p − 1)(F + B)", bubble: ({ p, f, b }) => (p - 1) * (f + b),
  },
  "1f1b": {
    row: (rank, p, m) => steady(m, p - 1 - rank),
    text: "(p − 1)(F + B)", bubble: ({ p, f, b }) => (p - 1) * (f + b),
  },
  interleaved: {
    row: interleaved,
    text: "(p − 1)(F + B) / v", bubble: ({ p, v, f, b }) => ((p - 1) * (f + b)) / v,
  },
  "zb-h1": {
    row: (rank, p, m) => steady(m, p - 1 - rank, rank), weights: true,
    text: "(p − 1)(F + B − W)", bubble: ({ p, f, b, w }) => (p - 1) * (f + b - w),
  },
  "zb-h2": {
    rows: zbH2, weights: true,
    text: "(p − 1)(F + B − 2W)", bubble: ({ p, f, b, w }) => (p - 1) * (f + b - 2 * w),
  },
  "zb-v": { rows: zbV, weights: true, v: true },
  "v-half": { rows: vHalf, weights: true, v: true },
  "v-min": { rows: vMin, weights: true, v: true },
  "dualpipe-v": { rows: dualpipeV, weights: true, v: true },
};

export const short = (value) => `${Number(value.toPrecision(4))}`;

// All pieces [kind, micro-batch, chunk, stage, start, end] of a schedule. `times` are those of F, of a B,
// of W or null (then it is half of B where it is a piece), and of a message to a neighbour.
export function played({ name, stages: p, microbatches: m, chunks, times: [f, backward, weight, hop] }) {
  const { row, rows: all, weights = false, v: onV, text, bubble } = SCHEDULES[name];
  const v = name === "interleaved" ? chunks : onV ? 2 : 1;
  const stageOf = (rank, chunk) => (onV && chunk ? 2 * p - 1 - rank : chunk * p + rank);
  const rankOf = (stage) => (onV && stage >= p ? 2 * p - 1 - stage : stage % p);
  const [b, w] = weights ? [weight === null ? backward / 2 : backward, weight ?? backward / 2] : [backward + (weight ?? 0), 0];
  const seconds = { F: f / v, B: b / v, W: w / v };
  const rows = (all ? all(p, m) : range(p).map((rank) => row(rank, p, m, v)))
    .map((one, rank) => one.map(([kind, i, chunk]) => [kind, i, chunk, stageOf(rank, chunk)]));
  const ended = new Map();
  const at = rows.map(() => 0);
  const free = rows.map(() => 0);
  const next = (rank) => {
    const piece = rows[rank][at[rank]];
    if (!piece) return false;
    const [kind, i, , stage] = piece;
    const isLast = stage === p * v - 1;
    // F takes the previous stage's F; B the next one's B, or the last its own F; W its B.
    const needs = { F: ["F", stage - 1], B: isLast ? ["F", stage] : ["B", stage + 1], W: ["B", stage] }[kind];
    const ready = needs[1] < 0 ? 0 : ended.get(`${needs[0]}${i}.${needs[1]}`);
    if (ready === undefined) return false;
    const crosses = needs[1] >= 0 && rankOf(needs[1]) !== rank;
    const start = Math.max(free[rank], ready + hop * crosses);
    free[rank] = start + seconds[kind];
    ended.set(`${kind}${i}.${stage}`, free[rank]);
    piece.push(start, free[rank]);
    at[rank] += 1;
    return true;
  };
  let going = true;
  while (going) {
    going = false;
    for (const rank of range(p)) while (next(rank)) going = true;
  }
  const given = { F: f, B: b, ...(weights ? { W: w } : {}), hop };
  const clock = Object.entries(given).map(([key, value]) => `${key} ${Number(value.toPrecision(6))}`).join(", ");
  return {
    rows, chunks: v, parts: v, weights, unit: "", formula: text ? { text: text.replace("/ v", `/ ${v}`), value: bubble({ p, m, v, f, b, w }) } : null,
    kind: `modelled: a piece starts when its rank is free and its input is there; ${clock}`,
  };
}

// Of any timeline: its length, the longest time of a rank, the work of a rank, the bubble, and what each holds at most.
export function measured({ rows, parts, weights }) {
  const total = Math.max(...rows.map((row) => row.at(-1)[5]));
  const step = Math.max(...rows.map((row) => row.at(-1)[5] - row[0][4]));
  const ideal = rows.flat().reduce((sum, piece) => sum + piece[5] - piece[4], 0) / rows.length;
  const peaks = rows.map((row) => {
    let [held, most] = [0, 0];
    for (const [kind] of row) {
      held += kind === "F" ? 1 : kind === (weights ? "W" : "B") ? -1 : 0;
      most = Math.max(most, held);
    }
    return most / parts;
  });
  return { total, step, ideal, bubble: step - ideal, peaks };
}
