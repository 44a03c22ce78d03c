// Delayed gradient descent: where it converges, and x over the updates at one point of the map. The
// formula and the recurrence are those of labkit.updates.stability.
import { curves, dot, explorer, factors, frame, nearest, range, rule, say } from "../../views/static/explorer.mjs";
import { niceTicks, polyline, rectangle } from "../../views/static/drawing.mjs";

export const stabilityLimit = (delay) => 2 * Math.sin(Math.PI / (2 * (2 * delay + 1)));

export function delayed(step, delay, updates = 100) {
  const x = [1];
  for (let k = 0; k < updates; k += 1) x.push(x[k] - step * x[Math.max(0, k - delay)]);
  return x;
}

// By trying: how the largest of a stretch of x grows in each update, as a logarithm; below 0 it converges.
export function growth(step, delay) {
  const x = delayed(step, delay, 60 * (delay + 2));
  const end = x.findIndex((one) => !(Math.abs(one) < 1e30));
  const seen = end < 0 ? x : x.slice(0, end);
  const half = Math.floor(seen.length / 2);
  const largest = (from, to) => Math.max(1e-300, ...seen.slice(from, to).map(Math.abs));
  const quarter = Math.max(1, Math.floor(half / 2));
  return Math.log(largest(-quarter) / largest(half - quarter, half)) / (seen.length - half);
}

const [DELAYS, STEPS] = [range(0, 20), factors(0.02, 2.5, 240).map((one) => Number(one.toPrecision(3)))];
const ROWS = factors(0.02, 2.5, 60);
let map = null; // computed once
const signed = (value) => String(value).replace("-", "−");
export const controls = [
  { key: "delay", label: "delay (staleness), updates", values: DELAYS, value: 3, text: String },
  { key: "step", label: "step (rate × curvature)", values: STEPS, value: nearest(STEPS, 0.5), text: String },
];

function draw(kit, { delay, step }, width) {
  const { pen, colours } = kit;
  const wide = width > 600;
  const box = wide ? { left: 42, right: width * 0.58 - 20, top: 26, bottom: 340 } : { left: 42, right: width - 12, top: 26, bottom: 190 };
  const under = wide ? { left: width * 0.58 + 44, right: width - 12, top: 26, bottom: 340 } : { ...box, top: 262, bottom: 346 };
  const cell = { x: { from: -0.5, to: 20.5, at: range(0, 10).map((i) => 2 * i), text: String, title: "delay in updates; N equal workers have N − 1" },
    y: { from: ROWS[0], to: ROWS.at(-1), log: true, text: String, title: "step" } };
  map ??= DELAYS.map((one) => ROWS.slice(1).map((to, i) => growth(Math.sqrt(to * ROWS[i]), one) * (one + 1)));
  const framed = frame(kit, box, cell.x, cell.y);
  map.forEach((column, one) => column.forEach((rate, i) => {
    pen.globalAlpha = 0.18 + 0.62 * Math.min(1, Math.abs(rate) * 1.5);
    const [left, top, right, bottom] = [framed.x(one - 0.5), framed.y(ROWS[i + 1]), framed.x(one + 0.5), framed.y(ROWS[i])].map(Math.round);
    rectangle(pen, colours[rate > 0 ? "s3" : "s0"], left, top, right - left, bottom - top);
  }));
  pen.globalAlpha = 1;
  polyline(pen, range(0, 80).map((one) => [framed.x(one / 4), framed.y(stabilityLimit(one / 4))]), colours.ink, 2.5);
  say(kit, "diverges", framed.x(12), framed.y(1.2), "center");
  say(kit, "limit by the formula", framed.x(5.5), framed.y(stabilityLimit(5.5)) - 14);
  say(kit, "converges (stronger: sooner)", box.left + 8, framed.y(0.04));
  dot(kit, framed.x(delay), framed.y(step), "mark", 7);

  const updates = 20 * (delay + 2);
  const x = delayed(step, delay, updates);
  const most = Math.min(20, Math.max(1, ...x.map(Math.abs))) * 1.1;
  const ticks = niceTicks(most, 3);
  const path = frame(kit, under, { from: 0, to: updates, text: String, title: "updates" },
    { from: -most, to: most, at: [...ticks.slice(1).map((one) => -one), ...ticks], text: signed, title: `x from 1, delay ${delay}, step ${step}` });
  rule(kit, path, { y: 0, colour: "soft" });
  const diverges = growth(step, delay) > 0;
  curves(kit, path, [{ name: "x", look: diverges ? 3 : 0, points: x.map((value, k) => [k, value]) }], { named: false, dashed: false });
  const says = `Delay ${delay}, step ${step}: ${diverges ? "it diverges" : "it converges"}; by the formula the limit is ${stabilityLimit(delay).toFixed(3)}. After ${updates} updates x is ${signed(Number(x.at(-1).toPrecision(2)))}.`;
  const inside = (px, py) => px >= box.left - 10 && px <= box.right + 10 && py >= box.top && py <= box.bottom;
  return { says, at: (px, py) => (inside(px, py) ? { delay: framed.x.back(px), step: framed.y.back(py) } : {}) };
}

export const Explorer = explorer({
  title: "How large a step does a stale gradient allow?",
  purpose: "Click on the map: each point is a delay and a step, with its descent beside it.",
  kind: "modelled: delayed gradient descent on x²/2, tried for each point of the map",
  controls, height: 384, draw,
});
