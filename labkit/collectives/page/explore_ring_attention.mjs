// Ring attention with a causal mask: which rank computes how much in each hop, by where the tokens are.
import { axis, curves, dot, doublings, explorer, frame, range, rule, say } from "../../views/static/explorer.mjs";
import { rectangle } from "../../views/static/drawing.mjs";
import { countText, GAP } from "../../views/static/page.mjs";

// Pairs of a query of `rank` and a key of `owner`, which have m tokens each; two chunks in zigzag.
const PAIRS = {
  contiguous: (rank, owner, m) => (rank === owner ? (m * (m + 1)) / 2 : owner < rank ? m * m : 0),
  zigzag: (rank, owner, m) => (rank === owner ? (m * (m + 1)) / 2 : (m * m) / 2),
  striped: (rank, owner, m) => (owner <= rank ? m * (m + 1) : m * (m - 1)) / 2,
};
const PLACEMENTS = Object.keys(PAIRS);

// work[hop][rank], as a share of a block without a mask.
export const work = ({ ranks, placement, mask, tokens }) => range(0, ranks - 1).map((hop) => range(0, ranks - 1).map((rank) =>
  (mask === "causal" ? PAIRS[placement](rank, (rank - hop + ranks) % ranks, tokens) / tokens ** 2 : 1)));
const sum = (list) => list.reduce((a, b) => a + b, 0);
const spans = (hops) => hops.map((each) => Math.max(...each));
export const usefulShare = (values) => sum(work(values).flat()) / (values.ranks * sum(spans(work(values))));

export const controls = [
  { key: "ranks", label: "ranks", values: range(2, 16), value: 4, text: String },
  { key: "placement", label: "placement", options: PLACEMENTS.map((one) => [one, one]), value: "contiguous" },
  { key: "mask", label: "mask", options: [["causal", "causal"], ["none", "none"]], value: "causal" },
  { key: "tokens", label: "tokens of each rank", values: doublings(2, 8192), value: 1024, text: countText },
];
const percent = (share) => `${(100 * share).toFixed(share > 0.999 ? 0 : 1)}${GAP}%`;

function draw(kit, values, width) {
  const { pen, colours } = kit;
  const { ranks, placement } = values;
  const hops = work(values);
  const long = spans(hops);
  const [left, right, top, bottom] = [52, width - 12, 30, 214];
  const time = axis({ from: 0, to: sum(long) }, left, right);
  const high = (bottom - top) / ranks;
  say(kit, "time: each hop lasts as long as its slowest rank", left, 12, "left", "faint");
  let start = 0;
  hops.forEach((each, hop) => {
    each.forEach((share, rank) => {
      const y = top + rank * high;
      rectangle(pen, colours.edge, time(start), y, time(start + long[hop]) - time(start) - 2, high - 2);
      rectangle(pen, colours[`s${hop ? 0 : 2}`], time(start), y, Math.max(0, time(start + share) - time(start) - 2), high - 2);
    });
    start += long[hop];
  });
  range(0, ranks - 1).forEach((rank) => {
    if (ranks < 12 || rank % 2 === 0) say(kit, `rank ${rank}`, left - 6, top + (rank + 0.5) * high, "right", "faint");
  });
  say(kit, "coloured: computes (first its own keys), grey: waits", left, bottom + 14, "left", "faint");

  const framed = frame(kit, { left, right: width - 96, top: 268, bottom: 392 }, { from: 2, to: 16, at: [2, 4, 6, 8, 10, 12, 14, 16], text: String, title: "ranks" },
    { from: 0.4, to: 1, at: [0.4, 0.6, 0.8, 1], text: (one) => `${Math.round(100 * one)}${GAP}%`, title: "useful share of the time" });
  const share = (one, count) => usefulShare({ ...values, ranks: count, placement: one });
  rule(kit, framed, { x: ranks });
  curves(kit, framed, PLACEMENTS.map((name) => ({ name, points: range(2, 16).map((count) => [count, share(name, count)]) })));
  dot(kit, framed.x(ranks), framed.y(usefulShare(values)), "mark", 6);
  const idle = hops.map((each, hop) => each.filter((one) => one < long[hop] * 0.995).length);
  const waiting = Math.max(...idle);
  const words = waiting ? `In its worst hop ${waiting} of ${ranks} ranks wait.` : "No rank waits for another.";
  const all = PLACEMENTS.map((one) => `${one} ${percent(share(one, ranks))}`).join(", ");
  return {
    says: `${ranks} ranks, ${values.mask === "causal" ? "causal mask" : "no mask"}, ${placement}: ${percent(usefulShare(values))} of the time is useful. ${words} Here ${all}.`,
    at: (px, py) => (py > 250 ? { ranks: framed.x.back(px) } : {}),
  };
}

export const Explorer = explorer({
  title: "Who waits in ring attention?",
  purpose: "Change the ranks, the mask and where the tokens are, and see how much each rank computes in each hop.",
  kind: "counted: pairs of a query and a key that it sees; messages cost no time",
  controls, height: 436, draw,
});
