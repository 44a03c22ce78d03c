// What the panel says about itself and, for those who listen, about what it shows.
import { METRICS, deviceLabel, lengthText, timeText, valueText } from "./panel_text.mjs";

const SILENT_AFTER = 3; // seconds without news
const NOBODY_AFTER = 8; // seconds without a kernel at all

// facts: { live, ended, elsewhere, following, playing, heard, count, quiet, until, every }
// elsewhere: it was recorded by another program, so that "ended" would be odd to say.
export function stateOf({ live, ended, elsewhere, following, heard, count, quiet, until, every }) {
  if (!live) return ended === null && elsewhere ? "replay" : "ended";
  if (!heard && quiet > NOBODY_AFTER) return until ? "kept" : "nothing";
  if (!count) return "waiting";
  if (quiet > SILENT_AFTER + 3 * every) return "silent";
  return following ? "live" : "paused";
}

export function stateWords(state, { ended, quiet }) {
  return {
    waiting: "waiting for the first numbers",
    nothing: "not live: the kernel is busy or gone; run the cell again to see it live",
    kept: "not live: as it was kept with the notebook",
    silent: `no news for ${Math.round(quiet)} s`,
    live: "live",
    paused: "paused, still recording",
    ended: ended ? `ended: ${ended}` : "ended",
    replay: "replay",
  }[state];
}

export function footWords(store, state, stamps, now) {
  return [
    store.damage,
    state === "live" || state === "paused" ? `${rate(stamps, now).toFixed(1)} updates/s` : null,
    store.until ? `${lengthText(store.until)} recorded` : null,
    store.cost === null ? null : `sampler: ${(100 * store.cost).toFixed(1)} % of one core`,
  ].filter(Boolean).join(" · ");
}

export function rate(stamps, now) {
  const recent = stamps.filter((one) => now - one < 5000);
  return recent.length > 1 ? (1000 * (recent.length - 1)) / (recent.at(-1) - recent[0]) : 0;
}

// The value of a lane at a moment: a number, or in one word why there is none.
export function valueOf(store, { device, metric }, time) {
  const state = store.reason(device.key, metric, device.table.source, time);
  if (state) return { words: state.why, none: true };
  const gauge = store.gauge(device.key, metric);
  const value = gauge ? gauge.table.at(gauge.column, time) : null;
  return { words: valueText(metric, value), none: value === null };
}

export function summary(store, strips, time) {
  const said = strips.map(({ device, lanes }) => {
    const values = lanes.map((lane) => `${METRICS[lane.metric].title} ${valueOf(store, lane, time).words}`);
    return `${deviceLabel(device)}: ${values.join(", ")}.`;
  });
  return `At ${timeText(time)}. ${said.join(" ")}`;
}
