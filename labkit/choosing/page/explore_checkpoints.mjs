// What checkpoints and failures cost by the interval. The formulas are those of labkit.choosing.large_systems.
import { curves, doublings, explorer, factors, frame, marks, rule } from "../../views/static/explorer.mjs";
import { countText, GAP } from "../../views/static/page.mjs";

export const young = (mtbf, write) => Math.sqrt(2 * mtbf * write);

// Daly's closed form: shares of the time of a long job.
export function goodput(interval, { mtbf, write, restart }) {
  const failed = (interval + write) / mtbf;
  const each = Math.exp(-restart / mtbf) / mtbf / Math.expm1(Math.min(failed, 700));
  const [training, writing] = [interval * each, write * each];
  return { training, writing, failures: 1 - training - writing };
}

// The interval with the largest share of training: it rises before and falls after.
export function bestInterval(costs) {
  let [low, high] = [1e-3, 1e9];
  while (high > low * (1 + 1e-6)) {
    const [a, b] = [1 / 3, 2 / 3].map((share) => low * (high / low) ** share);
    if (goodput(a, costs).training < goodput(b, costs).training) low = a;
    else high = b;
  }
  return low;
}

export function timeText(seconds) {
  const [size, unit, next, small] = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"], [1, "s", 1, ""]].find(([one]) => seconds >= one) ?? [1, "s", 1, ""];
  if (unit === "s") return `${Number(seconds.toPrecision(2))}${GAP}s`;
  const rest = Math.round((seconds % size) / next);
  return `${Math.floor(seconds / size)}${GAP}${unit}${rest && rest * next < size ? `${GAP}${rest}${GAP}${small}` : ""}`;
}

const INTERVALS = factors(10, 2 * 86400, 300);
export const controls = [
  { key: "interval", label: "a checkpoint after", values: INTERVALS, value: INTERVALS[160], text: timeText },
  { key: "devices", label: "GPUs", values: doublings(8, 131072), value: 16384, text: countText },
  { key: "hours", label: "hours to a GPU's failure", values: [5e3, 1e4, 2e4, 5e4, 1e5, 2e5], value: 5e4, text: countText },
  { key: "write", label: "writing one takes", values: [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800], value: 60, text: timeText },
  { key: "restart", label: "a restart takes", values: [0, 60, 120, 300, 600, 1200, 1800, 3600], value: 600, text: timeText },
];

function draw(kit, values, width) {
  const costs = { ...values, mtbf: (values.hours * 3600) / values.devices };
  const [mine, best] = [goodput(values.interval, costs), bestInterval(costs)];
  const share = (one) => `${(100 * one).toFixed(1)}${GAP}%`;
  const framed = frame(kit, { left: 44, right: width - 118, head: 9, top: 42, bottom: 340 },
    { from: 10, to: 2 * 86400, log: true, at: [10, 60, 600, 3600, 6 * 3600, 86400], text: timeText, title: "training between two checkpoints" },
    { from: 0, to: 1, text: (one) => `${Math.round(100 * one)} %`, title: "share of the time that is lost" });
  rule(kit, framed, { x: values.interval });
  const points = INTERVALS.map((interval) => [interval, goodput(interval, costs)]);
  curves(kit, framed, [
    { name: "lost in all", look: 3, points: points.map(([at, one]) => [at, 1 - one.training]) },
    { name: "to checkpoints", look: 1, points: points.map(([at, one]) => [at, one.writing]) },
    { name: "to failures", look: 2, points: points.map(([at, one]) => [at, one.failures]) },
  ]);
  const shown = [[best, "least loss"], [young(costs.mtbf, values.write), "Young"]].filter(([at]) => at >= 10 && at <= 2 * 86400);
  marks(kit, framed, shown.map(([at, name]) => ({ x: at, y: 1 - goodput(at, costs).training, text: `${name} ${timeText(at)}` })));
  return {
    says: `A failure every ${timeText(costs.mtbf)}. With a checkpoint after ${timeText(values.interval)}: ${share(mine.training)} training, ${share(mine.writing)} writing checkpoints, ${share(mine.failures)} lost to failures. Least loss: ${timeText(best)}, ${share(1 - goodput(best, costs).training)}; Young's interval: ${timeText(young(costs.mtbf, values.write))}.`,
    at: (px) => ({ interval: framed.x.back(px) }),
  };
}

export const Explorer = explorer({
  title: "How often should a job write a checkpoint?",
  purpose: "Writing often costs time, writing seldom loses work at a failure.",
  kind: "modelled: failures at random, Daly's closed form",
  controls, height: 384, draw,
});
