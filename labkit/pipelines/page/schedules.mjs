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

// By name: the row of a rank, and the bubble by p stages, m micro-batches, v chunks and times F, B, W.
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
    row: (rank, p, m) => steady(m, 2 * (p - 1 - rank), 2 * rank), weights: true,
    text: "(p − 1)(F + B − 2W)", bubble: ({ p, f, b, w }) => (p - 1) * (f + b - 2 * w),
  },
};

export const short = (value) => `${Number(value.toPrecision(4))}`;

// All pieces [kind, micro-batch, chunk, stage, start, end] of a schedule. `times` are those of F, of a B,
// of W or null (then it is half of B where it is a piece), and of a message to a neighbour.
export function played({ name, stages: p, microbatches: m, chunks, times: [f, backward, weight, hop] }) {
  const { row, weights = false, text, bubble } = SCHEDULES[name];
  const v = name === "interleaved" ? chunks : 1;
  const [b, w] = weights ? [weight === null ? backward / 2 : backward, weight ?? backward / 2] : [backward + (weight ?? 0), 0];
  const seconds = { F: f / v, B: b / v, W: w / v };
  const rows = range(p).map((rank) => row(rank, p, m, v).map(([kind, i, chunk]) => [kind, i, chunk, chunk * p + rank]));
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
    const crosses = needs[1] >= 0 && needs[1] % p !== rank;
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
    rows, chunks: v, parts: v, weights, unit: "", formula: { text: text.replace("/ v", `/ ${v}`), value: bubble({ p, m, v, f, b, w }) },
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
