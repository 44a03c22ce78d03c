// Numbers and times as a reader wants them. The names of metrics are those of telemetry/metrics.py.

const PER_CENT = { unit: "%", most: 100 };
export const METRICS = {
  utilisation: { title: "utilisation", ...PER_CENT },
  sm_activity: { title: "SM activity", ...PER_CENT },
  memory_activity: { title: "memory traffic", ...PER_CENT },
  memory: { title: "memory", unit: "B", most: "memory_total" },
  process_memory: { title: "process memory", unit: "B" },
  power: { title: "power", unit: "W", most: "power_limit" },
  temperature: { title: "temperature", unit: "°C" },
  clock: { title: "clock", unit: "MHz" },
  pcie: { title: "PCIe", unit: "B/s" },
  nvlink: { title: "NVLink", unit: "B/s" },
};

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const GAP = "\u00a0"; // a number and its unit stay on one line

export function valueText(metric, value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const unit = METRICS[metric]?.unit ?? "";
  if (unit.startsWith("B")) {
    const [factor, prefix] = PREFIXES.find(([one]) => Math.abs(value) >= 0.9995 * one) ?? [1, ""];
    return `${threeDigits(value / factor, factor === 1)}${GAP}${prefix}${unit}`;
  }
  if (unit === "W" && Math.abs(value) < 9.95) return `${value.toFixed(1)}${GAP}W`;
  return `${Math.round(value).toLocaleString("en-GB")}${GAP}${unit}`;
}

function threeDigits(value, whole) {
  const size = Math.abs(value);
  return value.toFixed(whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

// 12.30 s below a minute; 2:05 and 1:02:05 above. `step` says how many decimals are worth writing.
export function timeText(seconds, step = 0.1, long = seconds >= 59.9995) {
  const decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3;
  const sign = seconds < 0 ? "−" : "";
  const rounded = Number(Math.abs(seconds).toFixed(decimals));
  if (!long) return `${sign}${rounded.toFixed(decimals)}${GAP}s`;
  const hours = Math.floor(rounded / 3600);
  const minutes = Math.floor((rounded % 3600) / 60);
  const rest = (rounded % 60).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, "0");
  return sign + (hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`);
}

// How long something took, for people: 3.2 s, 2 min 5 s.
export function lengthText(seconds) {
  if (seconds < 99.95) return `${seconds < 9.995 ? seconds.toFixed(2) : seconds.toFixed(1)}${GAP}s`;
  const whole = Math.round(seconds);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  return hours ? `${hours}${GAP}h ${minutes}${GAP}min` : `${minutes}${GAP}min ${whole % 60}${GAP}s`;
}

export function deviceLabel(device) {
  const number = /\d+$/.exec(device.key)?.[0];
  if (device.sort === "gpu" && number) return `GPU ${number}`;
  if (device.sort === "core" && number) return `core ${number}`;
  return device.sort === "cpu" ? "CPU" : device.name || device.key;
}
