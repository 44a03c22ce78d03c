// Load of experts that are not equally wanted: dropped choices and the slowest rank. The formula is that of
// labkit.memory.expert_models.
import { axis, doublings, explorer, frame, range, rule, say } from "../../views/static/explorer.mjs";
import { rectangle } from "../../views/static/drawing.mjs";
import { countText } from "../../views/static/page.mjs";

const sum = (list) => list.reduce((total, one) => total + one, 0);

export function load({ experts, chosen, ranks, skew, capacity }) {
  const wanted = range(1, experts).map((n) => n ** -skew);
  const shares = []; // of the tokens: an expert is chosen once by a token at most
  wanted.forEach((one, n) => shares.push(Math.min(1, ((chosen - sum(shares)) * one) / sum(wanted.slice(n)))));
  const even = shares.map((share) => (share * experts) / chosen);
  const kept = even.map((one) => Math.min(one, capacity));
  const held = experts / ranks;
  const work = range(0, ranks - 1).map((rank) => sum(kept.slice(rank * held, (rank + 1) * held)) / held);
  return { experts: even, dropped: 1 - sum(kept) / experts, work, slowest: Math.max(...work) };
}

const times = (value) => `${value.toFixed(2)} ×`;
export const controls = [
  { key: "experts", label: "experts", values: doublings(8, 64), value: 16, text: countText },
  { key: "chosen", label: "experts of a token (k)", values: doublings(1, 8), value: 2, text: countText },
  { key: "ranks", label: "ranks that share them", values: doublings(2, 8), value: 4, text: countText },
  { key: "skew", label: "skew: expert n is wanted as 1 / n^skew", values: range(0, 20).map((n) => n / 10), value: 0.8, text: String },
  { key: "capacity", label: "capacity, in even shares", values: [1, 1.25, 1.5, 2, 3, 4, 99], value: 1.5, text: (one) => (one === 99 ? "no limit" : String(one)) },
];

function draw(kit, values, width) {
  const { pen, colours } = kit;
  const { experts, ranks, capacity } = values;
  const found = load(values);
  const most = Math.max(...found.experts, Math.min(capacity, 2)) * 1.08;
  const text = (one) => `${Number(one.toFixed(2))}×`;
  const box = { left: 42, right: width - 12, top: 44, bottom: 232 };
  rectangle(pen, colours.s0, 0, 3, 14, 12);
  say(kit, "computed", 19, 9);
  rectangle(pen, colours.s3, 94, 3, 14, 6);
  say(kit, "dropped", 113, 9);
  say(kit, capacity > most ? "" : "dashed: capacity of an expert", 180, 9);
  const each = frame(kit, box, { from: 0, to: ranks, at: range(0, ranks), text: () => "", title: "" }, { from: 0, to: most, text, title: "load of each expert, in even shares" });
  const wide = (box.right - box.left) / experts;
  found.experts.forEach((one, n) => {
    const [left, kept] = [box.left + n * wide + 1, Math.min(one, capacity)];
    rectangle(pen, colours.s0, left, each.y(kept), wide - 2, box.bottom - each.y(kept));
    if (one > kept) rectangle(pen, colours.s3, left + wide / 4, each.y(one), wide / 2 - 2, each.y(kept) - each.y(one) - 2);
  });
  if (capacity <= most) rule(kit, each, { y: capacity, dash: [4, 4] });
  range(0, ranks - 1).forEach((rank) => say(kit, `rank ${rank}`, each.x(rank + 0.5), box.bottom + 14, "center"));
  const under = { left: 62, right: width - 62, top: 284, bottom: 388 };
  const bars = frame(kit, under, { from: 0, to: Math.max(1.1, found.slowest) * 1.04, text, title: "time of each rank, over that of a balanced layer" }, { from: 0, to: 1, at: [], title: "" });
  const row = axis({ from: 0, to: ranks }, under.top, under.bottom);
  rule(kit, bars, { x: 1 });
  found.work.forEach((one, rank) => {
    say(kit, `rank ${rank}`, 0, row(rank + 0.5));
    rectangle(pen, colours.s0, under.left, row(rank) + 2, bars.x(one) - under.left, row(1) - row(0) - 4);
    say(kit, times(one), under.right + 8, row(rank + 0.5));
  });
  const idle = 1 - sum(found.work) / ranks / found.slowest;
  const says = `The fullest expert has ${found.experts[0].toFixed(2)} times an even share; ${(100 * found.dropped).toFixed(1)} % of all choices are dropped. The slowest rank takes ${found.slowest.toFixed(2)} times the time of a balanced layer, and the ranks are idle for ${(100 * idle).toFixed(0)} % of it.`;
  return { says };
}

export const Explorer = explorer({
  title: "What does an unbalanced router cost?",
  purpose: "Skew the choices, limit what an expert takes, and see who waits.",
  kind: "modelled: expected loads, experts in the order of their popularity, time in proportion to tokens",
  controls, height: 430, draw,
});
