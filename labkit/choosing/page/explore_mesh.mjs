// What a device of a five-dimensional mesh holds, sends and waits for. The formulas are those of labkit.choosing.mesh.
import { axis, doublings, explorer, round, rule, say } from "../../views/static/explorer.mjs";
import { rectangle } from "../../views/static/drawing.mjs";
import { bytesText, countText, GAP, secondsText } from "../../views/static/page.mjs";

const TOKENS = 2 ** 24; // of a step
const [WEIGHT, GRADIENT, OPTIMIZER, REACHED, DEVICES] = [2, 2, 12, 0.5, 8];
const decoder = (layers, hidden, heads, key_heads, head, mlp, vocabulary, experts = 1, chosen = 1) => ({ layers, hidden, heads, key_heads, head, mlp, vocabulary, experts, chosen });
export const DECODERS = {
  "Llama 3 8B": decoder(32, 4096, 32, 8, 128, 14336, 128256),
  "Llama 3 70B": decoder(80, 8192, 64, 8, 128, 28672, 128256),
  "Llama 3 405B": decoder(126, 16384, 128, 8, 128, 53248, 128256),
  "Mixtral 8x7B": decoder(32, 4096, 32, 8, 128, 14336, 32000, 8, 2),
  "Qwen 3 235B": decoder(94, 4096, 64, 4, 128, 1536, 151936, 128, 8),
};
export const MACHINES = { // of a device: memory, FLOP/s, bytes per second inside a machine and between machines
  "A100 80 GB": { memory: 80e9, flops: 312e12, link: 300e9, network: 25e9 },
  "H100 SXM": { memory: 80e9, flops: 989e12, link: 450e9, network: 50e9 },
  "H200 SXM": { memory: 141e9, flops: 989e12, link: 450e9, network: 50e9 },
  "B200 SXM": { memory: 180e9, flops: 2250e12, link: 900e9, network: 50e9 },
};

const total = (parts) => Object.values(parts).reduce((sum, one) => sum + one, 0);

// Bytes held and sent, and seconds of a step, on the fullest device.
export function mesh(model, { data, tensor: t, pipeline: p, context: c, expert: e, sequence, recompute }, machine) {
  const { layers: all, hidden: h, heads, key_heads, head: d, mlp, vocabulary, experts, chosen: k } = model;
  const [ranks, n, m] = [data * c, data * c * t * p, Math.max(1, Math.floor(TOKENS / (sequence * data)))];
  const [layers, tokens, again, many] = [Math.ceil(all / p), sequence / c, recompute ? 1 : 0, experts > 1];
  const attention = 2 * h * d * (heads + key_heads);
  const [one, router, keys] = [3 * h * mlp, many ? h * experts : 0, Math.max(key_heads, t) / t];

  const [words, dense, own] = [(vocabulary * h) / t, 2 * h * d * (heads / t + keys) + 2 * h + router + (many ? 0 : one / t), many ? (layers * experts * one) / (e * t) : 0];
  const layer = (tokens / t) * (8 * h + 4 * d * (heads + keys * t) + 8 * mlp * k + (many ? 4 * h * k : 0) + 4 * heads + 8);
  const kept = recompute ? (2 * h * tokens) / t : layer;
  const stages = [[true, p === 1], [p === 1, true]].map(([first, last]) => {
    const held = layers * dense + words * (first + last);
    return {
      weights: WEIGHT * (held + own), gradients: GRADIENT * (held + own), optimizer: (OPTIMIZER * (held + own * e)) / ranks,
      activations: kept * layers * (first ? Math.min(p, m) : 1), "recomputed layer": layer - kept, "embedding and head": last ? (4 * tokens * (vocabulary + h)) / t : 0,
    };
  });

  const hops = 2 * (c - 1) * (2 + again) + 2 * c;
  const ring = c > 1 ? tokens * keys * d * 2 * hops : 0;
  const ulysses = ((c - 1) / c) * tokens * d * 2 * ((2 * heads) / t + 2 * Math.max(keys, c)) * (2 + again);
  const around = (heads / t) % c > 0 || keys * c <= heads / t + Math.max(keys, c);
  const step = m * layers;
  const sent = {
    tensor: (step * (5 + again) * 2 * (t - 1) * 2 * h * tokens) / t,
    context: step * (around ? ring : ulysses),
    expert: (step * (4 + 2 * again) * (e - 1) * tokens * k * h * 2) / (e * t),
    data: (WEIGHT + GRADIENT) * (((ranks - 1) / ranks) * (layers * dense + words) + (1 - e / ranks) * own),
    pipeline: p > 1 ? (2 * m * 2 * h * tokens) / t : 0,
  };
  const spans = { tensor: t, context: t * c, expert: t * e, data: t * ranks, pipeline: n };
  const flops = 6 * (all * (attention + router + k * one + heads * d * sequence) + vocabulary * h);
  const computation = (m * data * sequence * flops * (recompute ? 4 / 3 : 1)) / (n * machine.flops * REACHED);
  const waits = Object.entries(spans).map(([name, span]) => [name, sent[name] / (span <= DEVICES ? machine.link : machine.network)]);
  const held = total(stages[0]) >= total(stages[1]) ? stages[0] : stages[1];
  return { devices: n, micro_batches: m, held, sent, ring: around, seconds: { computation, bubble: (computation * (p - 1)) / m, ...Object.fromEntries(waits) } };
}

const named = (names) => names.map((one) => [one, one]);
const size = (key, label, most, value) => ({ key, label, values: doublings(1, most), value, text: countText });
const short = (tokens) => (tokens < 2 ** 20 ? `${tokens / 1024}${GAP}Ki` : `${tokens / 2 ** 20}${GAP}Mi`);
export const controls = [
  { key: "model", label: "model", options: named(Object.keys(DECODERS)), value: "Llama 3 70B" },
  { key: "machine", label: "machines of 8", options: named(Object.keys(MACHINES)), value: "H100 SXM" },
  { key: "sequence", label: "tokens of a sequence", values: doublings(4096, 2 ** 20), value: 131072, text: short },
  { key: "recompute", label: "recomputation", options: [[false, "none"], [true, "full"]], value: false },
  size("data", "data", 1024, 2), size("tensor", "tensor", 16, 8), size("pipeline", "pipeline", 32, 4), size("context", "context", 64, 8),
  size("expert", "experts on, of data × context", 128, 1),
];

// A row of parts { name: size } along one axis to `most`, with the names of those that are there above it.
function row(kit, { title, parts, most, text, top, width, first }) {
  const { pen, colours } = kit;
  say(kit, `${title}: ${text(total(parts))}`, 0, top, "left", "ink");
  let [key, line] = [0, top + 19];
  const colour = (i) => colours[`s${(first + i) % 7}`];
  Object.entries(parts).forEach(([name, one], i) => {
    if (!one) return;
    const words = `${name} ${text(one)}`;
    const wide = 19 + kit.wide(words);
    if (key + wide > width) [key, line] = [0, line + 17];
    rectangle(pen, colour(i), key, line - 6, 14, 12);
    say(kit, words, key + 19, line);
    key += wide + 15;
  });
  const x = axis({ from: 0, to: most }, 0, width - 2);
  let at = 0;
  Object.values(parts).forEach((one, i) => {
    if (one) rectangle(pen, colour(i), x(at), line + 13, Math.max(x(at + one) - x(at) - 1, 0.5), 24);
    at += one;
  });
  return { x, top: line + 9, bottom: line + 41, left: 0, right: width };
}

function draw(kit, values, width) {
  const [model, machine] = [DECODERS[values.model], MACHINES[values.machine]];
  const expert = Math.min(values.expert, values.data * values.context, model.experts);
  const found = mesh(model, { ...values, expert }, machine);
  const [held, seconds] = [total(found.held), total(found.seconds)];
  const room = { title: `Held on a device of ${round(bytesText(machine.memory))}`, parts: found.held, most: Math.max(held, machine.memory) * 1.01, text: bytesText, first: 0 };
  const memory = row(kit, { ...room, top: 8, width });
  rule(kit, memory, { x: machine.memory });
  rule(kit, memory, { x: 0.9 * machine.memory, dash: [4, 4] });
  const sent = row(kit, { title: "Sent by it in a step", parts: found.sent, most: total(found.sent) || 1, text: bytesText, top: memory.bottom + 30, width, first: 2 });
  row(kit, { title: "A step, if nothing overlaps", parts: found.seconds, most: seconds, text: secondsText, top: sent.bottom + 30, width, first: 0 });
  const fits = held <= 0.9 * machine.memory ? "fits" : "does not fit";
  const how = values.context > 1 ? ` Context: ${found.ring ? "ring attention" : "Ulysses"}${(model.heads / values.tensor) % values.context ? ", for Ulysses has too few heads" : ", which sends less forward"}.` : "";
  const fewer = expert < values.expert ? ` There are experts on ${expert} only.` : "";
  return { says: `${countText(found.devices)} GPUs, ${countText(found.micro_batches)} micro-batches of a sequence. It ${fits} into nine tenths (dashed) of the memory; ${Math.round((100 * found.seconds.computation) / seconds)}${GAP}% of a step is computation.${how}${fewer}` };
}

export const Explorer = explorer({
  title: "Five dimensions of a mesh",
  purpose: "Divide a model, and see what a device holds, sends and waits for.",
  kind: "modelled: half of the peak, 16 Mi tokens a step, Adam sharded, FlashAttention, no overlap",
  controls, height: 350, draw,
});
