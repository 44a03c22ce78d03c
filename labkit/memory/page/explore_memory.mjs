// Memory of each pipeline stage of a transformer. The formulas are those of labkit.memory.
import { axis, doublings, explorer, frame, round, rule, say } from "../../views/static/explorer.mjs";
import { rectangle } from "../../views/static/drawing.mjs";
import { bytesText, countText } from "../../views/static/page.mjs";

const SIZES = { weights: 2, gradients: 2, optimizer: 12 }; // bytes per parameter: mixed precision with Adam
const SHARDED = ["optimizer", "gradients", "weights"]; // by stage of ZeRO
const MODELS = {
  "22 billion": { layers: 48, hidden: 6144, heads: 64 },
  "175 billion": { layers: 96, hidden: 12288, heads: 96 },
  "1 trillion": { layers: 128, hidden: 25600, heads: 160 },
};

// Bytes that a layer keeps for its backward pass.
function layerActivations({ hidden: h, heads, sequence: s, micro_batch: b, tensor: t, sequence_parallel }, recompute) {
  if (recompute === "full") return Math.floor((2 * s * b * h) / (sequence_parallel ? t : 1));
  const shared = sequence_parallel ? 34 / t : 10 + 24 / t;
  return Math.round(s * b * h * (shared + (recompute === "none" ? (5 * heads * s) / (h * t) : 0)));
}

// Bytes on a device of one stage under 1F1B, by what holds them.
export function footprint(model) {
  const { layers, hidden: h, sequence: s, vocabulary: v, micro_batch: b, tensor: t, pipeline: p, stage, data, zero, sequence_parallel, recompute } = model;
  const [first, last] = [stage === 0, stage === p - 1];
  const layer = Math.ceil((12 * h * h + 7 * h) / t) + 6 * h;
  const words = Math.ceil((v * h) / t);
  const held = (layers / p) * layer + words * (first || last) + s * h * first;
  const state = Object.entries(SIZES).map(([name, size]) => [name, Math.ceil((size * held) / (SHARDED.indexOf(name) < zero ? data : 1))]);
  const kept = layerActivations(model, recompute);
  const one = Math.floor((s * b * h) / (sequence_parallel ? t : 1));
  const ends = one * p * first + (4 * one + Math.floor((4 * s * b * v) / t)) * last;
  return Object.fromEntries([
    ...state,
    ["activations", Math.floor((kept * (p - stage) * layers) / p)],
    ["embedding and head", ends],
    ["recomputed layer", layerActivations(model, "none") - kept],
    ["gathered layer", zero === 3 && data > 1 ? (SIZES.weights + SIZES.gradients) * Math.max(layer, words) : 0],
  ]);
}

const total = (parts) => Object.values(parts).reduce((sum, one) => sum + one, 0);
const named = (names) => names.map((one) => [one, one]);
export const controls = [
  { key: "model", label: "parameters", options: named(Object.keys(MODELS)), value: "175 billion" },
  { key: "zero", label: "ZeRO stage", options: named([0, 1, 2, 3]), value: 0 },
  { key: "data", label: "data-parallel replicas", values: doublings(1, 256), value: 1, text: countText },
  { key: "tensor", label: "tensor-parallel ranks", values: doublings(1, 8), value: 8, text: countText },
  { key: "pipeline", label: "pipeline stages", values: doublings(1, 16), value: 8, text: countText },
  { key: "micro_batch", label: "micro-batch, sequences", values: doublings(1, 16), value: 1, text: countText },
  { key: "sequence_parallel", label: "sequence parallelism", options: [[true, "yes"], [false, "no"]], value: true },
  { key: "recompute", label: "recomputation", options: named(["none", "selective", "full"]), value: "none" },
  { key: "gpu", label: "memory of a GPU", options: [16, 40, 80, 141].map((one) => [one * 1e9, `${one} GB`]), value: 80e9 },
];

function draw(kit, values, width) {
  const { pen, colours } = kit;
  const model = { ...MODELS[values.model], sequence: 2048, vocabulary: 51200, ...values };
  const stages = Array.from({ length: values.pipeline }, (_, stage) => footprint({ ...model, stage }));
  const totals = stages.map(total);
  const most = Math.max(...totals);
  const x = { from: 0, to: Math.max(most, values.gpu) * 1.04, text: (one) => (one ? round(bytesText(one)) : "0"), title: "on each device of the stage" };
  const names = Object.keys(stages[0]).filter((name) => stages.some((parts) => parts[name]));
  let [key, line] = [0, 0];
  names.forEach((name) => {
    const wide = 19 + kit.wide(name);
    if (key + wide > width) [key, line] = [0, line + 17];
    rectangle(pen, colours[`s${Object.keys(stages[0]).indexOf(name)}`], key, 3 + line, 14, 12);
    say(kit, name, key + 19, 9 + line);
    key += wide + 17;
  });
  const box = { left: 62, right: width - 70, top: 27 + line, bottom: 360 };
  const framed = frame(kit, box, x, { from: 0, to: 1, at: [], title: "" });
  rule(kit, framed, { x: values.gpu });
  rule(kit, framed, { x: 0.9 * values.gpu, dash: [4, 4] });
  const row = axis({ from: 0, to: stages.length }, box.top + 4, box.bottom - 4);
  const high = Math.min(30, (row(1) - row(0)) * 0.72);
  stages.forEach((parts, stage) => {
    const middle = row(stage + 0.5);
    say(kit, `stage ${stage}`, 0, middle);
    let at = 0;
    Object.values(parts).forEach((bytes, i) => {
      const [from, to] = [framed.x(at), framed.x(at + bytes)];
      if (bytes) rectangle(pen, colours[`s${i}`], from, middle - high / 2, Math.max(to - from - 1, 0.5), high);
      at += bytes;
    });
    say(kit, bytesText(totals[stage]), box.right + 8, middle);
  });
  const fits = most <= 0.9 * values.gpu ? "fits" : "does not fit";
  const gpus = values.tensor * values.pipeline * values.data;
  return { says: `${countText(gpus)} GPU${gpus > 1 ? "s" : ""}. Stage ${totals.indexOf(most)} holds most: ${bytesText(most)}, which ${fits} into nine tenths (dashed) of ${round(bytesText(values.gpu))}.` };
}

export const Explorer = explorer({
  title: "Does it fit?",
  purpose: "Divide a transformer over devices, and see what each pipeline stage holds.",
  kind: "modelled: Narayanan et al. 2021 (parameters), Korthikanti et al. 2022 (activations); 1F1B, mixed precision with Adam",
  controls, height: 400, draw,
});
