// A backward pass and its all-reduces in buckets. The formulas are those of labkit.collectives.costs.
import { axis, curves, dot, doublings, explorer, factors, frame, oneTwoFive, range, round, rule, say } from "../../views/static/explorer.mjs";
import { rectangle } from "../../views/static/drawing.mjs";
import { bytesText, countText, secondsText } from "../../views/static/page.mjs";

const TENSORS = 161; // as many gradients as ResNet-50 has, here all alike

// `layers` are [seconds of the backward pass, bytes of gradient], the last layer first.
export function overlap(layers, { ranks, bucket, latency, bandwidth }) {
  const price = (nbytes) => 2 * (ranks - 1) * (latency + nbytes / ranks / bandwidth);
  const last = layers.findLastIndex(([, nbytes]) => nbytes);
  const buckets = [];
  let [time, held, free, first] = [0, 0, 0, 0];
  layers.forEach(([seconds, nbytes], layer) => {
    time += seconds;
    held += nbytes;
    if (!nbytes || (held < bucket && layer < last)) return;
    const start = Math.max(time, free);
    free = start + price(held);
    buckets.push({ first, last: layer, nbytes: held, start, end: free });
    [held, first] = [0, layer + 1];
  });
  return { backward: time, buckets, seconds: Math.max(free, time) };
}

const bytes = (one) => (one ? round(bytesText(one)) : "none, each alone");
export const controls = [
  { key: "bucket", label: "bucket", values: [0, ...oneTwoFive(1e6, 1e9)], value: 1e7, text: bytes },
  { key: "gradients", label: `${TENSORS} gradients, in all`, values: range(-3, 6).map((k) => 102e6 * 2 ** k), value: 102e6, text: bytes },
  { key: "backward", label: "backward pass", values: oneTwoFive(1e-3, 1).flatMap((one) => [one, 2 * one]).filter((one, i, all) => all.indexOf(one) === i).sort((a, b) => a - b), value: 0.04, text: (one) => round(secondsText(one)) },
  { key: "ranks", label: "ranks", values: doublings(2, 1024), value: 8, text: countText },
  { key: "latency", label: "latency", values: oneTwoFive(1e-6, 1e-3), value: 2e-5, text: (one) => round(secondsText(one)) },
  { key: "bandwidth", label: "bandwidth", values: oneTwoFive(1e8, 1e12), value: 1e10, text: (one) => `${round(bytesText(one))}/s` },
];

function draw(kit, values, width) {
  const { pen, colours } = kit;
  const each = values.gradients / TENSORS;
  const layers = Array(TENSORS).fill([values.backward / TENSORS, each]);
  const plan = overlap(layers, values);
  const sizes = factors(each, values.gradients, 60);
  const plans = sizes.map((bucket) => overlap(layers, { ...values, bucket }));
  const spent = ({ buckets }) => buckets.reduce((sum, { start, end }) => sum + end - start, 0);
  const best = plans.reduce((least, one, i) => (one.seconds < plans[least].seconds ? i : least), 0);

  const time = axis({ from: 0, to: plan.seconds * 1.001 }, 78, width - 16);
  const bar = (start, end, y, colour) => {
    rectangle(pen, colours[colour], time(start), y, Math.max(0.7, time(end) - time(start) - (time(end) - time(start) > 3)), 26);
  };
  say(kit, "backward", 0, 27);
  say(kit, "all-reduce", 0, 61);
  bar(0, plan.backward, 14, "s0");
  for (const { start, end } of plan.buckets) bar(start, end, 48, "s1");
  rectangle(pen, colours.mark, time(plan.backward) - 1, 8, 2, 74);
  const exposed = plan.seconds - plan.backward;
  const words = `exposed ${secondsText(exposed)}`;
  const fits = time(plan.backward) + kit.wide(words) + 14 < width;
  say(kit, words, time(plan.backward) + (fits ? 7 : -7), 92, fits ? "left" : "right");

  const all = plans.map((one) => plan.backward + spent(one));
  const framed = frame(kit, { left: 78, right: width - 130, top: 136, bottom: 350 },
    { from: each, to: values.gradients, log: true, text: bytes, title: "size of a bucket" },
    { from: 0, to: Math.max(...all) * 1.02, text: (one) => (one ? round(secondsText(one)) : "0"), title: "time of backward pass and all-reduces" });
  rule(kit, framed, { y: plan.backward, colour: "soft", dash: [3, 3] });
  curves(kit, framed, [
    { name: "with overlap", points: plans.map((one, i) => [sizes[i], one.seconds]) },
    { name: "without overlap", points: all.map((one, i) => [sizes[i], one]) },
    { name: "backward pass", look: 6, points: [[each, plan.backward], [values.gradients, plan.backward]] },
  ]);
  dot(kit, framed.x(Math.min(Math.max(values.bucket, each), values.gradients)), framed.y(plan.seconds), "mark", 6);
  const count = plan.buckets.length;
  return {
    says: `${count} all-reduce${count > 1 ? "s" : ""}: ${secondsText(plan.seconds)}, ${secondsText(exposed)} of it exposed. Without overlap ${secondsText(plan.backward + spent(plan))}. The best bucket is about ${bytesText(sizes[best])}: ${secondsText(plans[best].seconds)}.`,
    at: (px, py) => (py > 120 ? { bucket: framed.x.back(px) } : {}),
  };
}

export const Explorer = explorer({
  title: "How large should a bucket be?",
  purpose: "Small buckets overlap with the backward pass, large ones pay the latency less often.",
  kind: "modelled: ring all-reduce, 161 equal gradients; the backward pass is not slowed by it",
  controls, height: 394, draw,
});
