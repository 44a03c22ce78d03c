// Which devices and metrics are shown, where their lanes lie, and what the top of a lane means.
import { METRICS } from "./panel_text.mjs";

export const DEFAULTS = ["utilisation", "memory", "power"];
const STRIP_GAP = 10;
const CORE_HEIGHT = 18;
const CORES_UNFOLDED = 16;

// Parts follow the whole that they are a part of; sources keep their order, GPUs come first.
export function ordered(devices) {
  const rank = { gpu: 0, mig: 0, cpu: 1, core: 1 };
  const wholes = devices.filter((one) => !devices.some((other) => other.key === one.part_of));
  const family = wholes.flatMap((whole) => [whole, ...devices.filter((one) => one.part_of === whole.key)]);
  return family.map((device, i) => [device, i])
    .sort(([a, i], [b, j]) => (rank[a.sort] ?? 2) - (rank[b.sort] ?? 2) || i - j)
    .map(([device]) => device);
}

// Cores are what a laptop has to show; beside GPUs, or in great number, they are folded away.
export function coresUnfolded(devices) {
  const cores = devices.filter((one) => one.sort === "core").length;
  return cores <= CORES_UNFOLDED && !devices.some((one) => one.sort === "gpu" || one.sort === "mig");
}

export function knownMetrics(store) {
  const named = new Set(store.tables.filter((table) => table.devices.length).flatMap((table) => table.metrics));
  return Object.keys(METRICS).filter((metric) => named.has(metric));
}

export function defaultMetrics(store) {
  const devices = store.devices().filter((one) => one.sort !== "core");
  const shown = DEFAULTS.filter((metric) => devices.some((one) => store.has(one.key, metric)));
  return shown.length ? shown : ["utilisation"];
}

// The strips from top to bottom: a device with its lanes. A lane without a single number is a line
// of words (`says`), if anybody has said why; without a reason, there is nothing to show.
export function strips(store, { metrics, hidden, cores }) {
  const shown = ordered(store.devices()).filter(
    (one) => !hidden.has(one.key) && (one.sort !== "core" || cores));
  const lanesOf = (device) => metrics
    .filter((metric) => device.sort !== "core" || metric === "utilisation" || metric === "clock")
    .flatMap((metric) => {
      if (store.has(device.key, metric)) return [{ device, metric, says: null }];
      const state = store.reason(device.key, metric, device.table.source, store.until);
      if (state && device.sort !== "core") return [{ device, metric, says: state }];
      return store.gauge(device.key, metric) && !store.until ? [{ device, metric, says: null }] : [];
    });
  const made = shown.map((device) => ({ device, lanes: lanesOf(device) }))
    .filter((one) => one.lanes.length);
  const count = made.reduce((sum, one) => sum + (one.device.sort === "core" ? 0 : one.lanes.length), 0);
  const tall = count <= 4 ? 56 : count <= 9 ? 38 : 24;
  let top = 0;
  made.forEach((strip, i) => {
    const part = strip.device.sort === "core";
    const afterPart = i > 0 && made[i - 1].device.sort === "core";
    if (i) top += part ? (afterPart ? 2 : 5) : STRIP_GAP;
    strip.top = top;
    for (const lane of strip.lanes) {
      lane.top = top;
      lane.height = part ? CORE_HEIGHT : lane.says ? Math.min(tall, 24) : tall;
      top += lane.height + (part ? 1 : 3);
    }
    strip.height = top - strip.top;
  });
  return { strips: made, lanes: made.flatMap((one) => one.lanes), height: top };
}

// What the top edge of a lane stands for: what the device can do, else a round number above all.
// One scale for a metric on all devices, so that lanes can be compared.
export function scales(store, lanes) {
  const tops = new Map();
  for (const { device, metric } of lanes) {
    const { most } = METRICS[metric];
    const known = typeof most === "number" ? most : device[most];
    const gauge = store.gauge(device.key, metric);
    const seen = gauge ? gauge.table.columns[gauge.column].most : 0;
    const key = known ? `${metric}|${device.key}` : metric;
    tops.set(key, known ? Math.max(known, roundUp(seen <= known ? 0 : seen)) : Math.max(tops.get(key) ?? 0, roundUp(seen)));
  }
  return ({ device, metric }) => tops.get(`${metric}|${device.key}`) ?? tops.get(metric) ?? 1;
}

// 1, 2, 2.5, 5 × a power of ten.
export function roundUp(value) {
  if (!(value > 0)) return 1e-9;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].find((one) => one * power >= value * 0.9999) * power;
}
