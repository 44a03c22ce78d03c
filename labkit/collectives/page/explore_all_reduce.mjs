// Cost of all-reduce algorithms over ranks or bytes. The formulas are those of labkit.collectives.formulas.
import { crossings, curves, dot, doublings, explorer, factors, frame, marks, oneTwoFive, round, rule } from "../../views/static/explorer.mjs";
import { bytesText, countText, GAP, secondsText } from "../../views/static/page.mjs";

const levels = (ranks) => 32 - Math.clz32(ranks - 1); // log2, rounded up
const coreOf = (ranks) => 2 ** (31 - Math.clz32(ranks));
const twice = ([messages, bytes]) => [2 * messages, 2 * bytes];
// Ranks beyond a power of two send everything in first, and get everything back at the end.
const folded = (ranks, [messages, bytes]) => (ranks === coreOf(ranks) ? [messages, bytes] : [messages + 2, bytes + 2]);

// By ranks: messages of the longest chain, and their bytes as a share of the buffer.
export const ALGORITHMS = {
  naive: (p) => twice([p - 1, p - 1]),
  tree: (p) => twice([levels(p), levels(p)]),
  "recursive doubling": (p) => folded(p, [levels(coreOf(p)), levels(coreOf(p))]),
  rabenseifner: (p) => folded(p, [2 * levels(coreOf(p)), (2 * (coreOf(p) - 1)) / coreOf(p)]),
  ring: (p) => twice([p - 1, (p - 1) / p]),
};

export function seconds(name, { ranks, nbytes, latency, bandwidth }) {
  const [messages, bytes] = ALGORITHMS[name](ranks);
  return messages * latency + (bytes * nbytes) / bandwidth;
}

export function costsAlong(values) {
  const along = values.along === "ranks" ? doublings(2, 16384) : factors(1e3, 1e10, 140);
  const key = values.along === "ranks" ? "ranks" : "nbytes";
  return Object.keys(ALGORITHMS).map((name) => ({ name, points: along.map((x) => [x, seconds(name, { ...values, [key]: x })]) }));
}

export const controls = [
  { key: "along", label: "axis", options: [["nbytes", "bytes"], ["ranks", "ranks"]], value: "nbytes" },
  { key: "ranks", label: "ranks", values: doublings(2, 16384), value: 64, text: countText },
  { key: "nbytes", label: "bytes in each buffer", values: oneTwoFive(1e3, 1e10), value: 1e6, text: (one) => round(bytesText(one)) },
  { key: "latency", label: "latency", values: oneTwoFive(1e-7, 1e-3), value: 1e-6, text: (one) => round(secondsText(one)) },
  { key: "bandwidth", label: "bandwidth", values: oneTwoFive(1e6, 1e12), value: 1e11, text: (one) => `${round(bytesText(one))}/s` },
];

function draw(kit, values, width) {
  const ofRanks = values.along === "ranks";
  const key = ofRanks ? "ranks" : "nbytes";
  const series = costsAlong(values);
  const all = series.flatMap(({ points }) => points.map(([, y]) => y));
  const ends = [10 ** Math.floor(Math.log10(Math.min(...all))), 10 ** Math.ceil(Math.log10(Math.max(...all)))];
  const x = ofRanks
    ? { from: 2, to: 16384, log: true, at: [2, 8, 32, 128, 512, 2048, 8192], text: countText, title: "ranks" }
    : { from: 1e3, to: 1e10, log: true, text: (one) => round(bytesText(one)), title: "bytes in each buffer" };
  const framed = frame(kit, { left: 58, right: width - 130, head: 9, top: 42, bottom: 340 }, x,
    { from: ends[0], to: ends[1], log: true, text: (one) => (one < 1e5 ? round(secondsText(one)) : `10${"⁵⁶⁷⁸⁹"[Math.round(Math.log10(one)) - 5]}${GAP}s`), title: "time of an all-reduce" });
  rule(kit, framed, { x: values[key] });
  curves(kit, framed, series, { dots: ofRanks });
  const found = crossings(series);
  const words = (at) => (ofRanks ? `about ${countText(Math.round(at))} ranks` : bytesText(at));
  marks(kit, framed, found.map(({ at, y }) => ({ x: at, y, text: ofRanks ? `≈ ${countText(Math.round(at))}` : bytesText(at) })));
  const prices = series.map(({ name }) => ({ name, cost: seconds(name, values) })).sort((a, b) => a.cost - b.cost);
  for (const { name, cost } of prices) dot(kit, framed.x(values[key]), framed.y(cost), `s${Object.keys(ALGORITHMS).indexOf(name)}`);
  const first = series.reduce((best, one) => (one.points[0][1] < best.points[0][1] ? one : best)).name;
  const fastest = [`fastest along this axis: ${first}`, ...found.map(({ at, name }) => `from ${words(at)} on ${name}`)].join(", ");
  const times = prices.map(({ name, cost }) => `${name} ${secondsText(cost)}`).join(", ");
  return {
    says: `${countText(values.ranks)} ranks, ${round(bytesText(values.nbytes))}: ${times}; ${fastest}.`,
    at: (px) => ({ [key]: framed.x.back(px) }),
  };
}

export const Explorer = explorer({
  title: "Which all-reduce is the fastest?",
  purpose: "Change ranks, bytes, latency and bandwidth, and see which algorithm wins, and from where.",
  kind: "modelled: latency and bandwidth alike on all links, adding up costs no time",
  controls, height: 384, draw,
});
