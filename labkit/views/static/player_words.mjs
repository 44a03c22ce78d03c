// What is said about a step, a cell, a rank and a message: for eyes, and to be read aloud.

const GAP = "\u00a0"; // a number and its unit stay on one line

function scaled(value, units, unit) {
  const [factor, prefix] = units.find(([one]) => Math.abs(value) >= 0.9995 * one) ?? [1, ""];
  const size = Math.abs(value / factor);
  const digits = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return { value: value / factor, digits, unit: `${prefix}${unit}`, plain: factor === 1 };
}

// As labkit.kinds writes them.
export function bytesText(bytes) {
  const { value, digits, unit, plain } = scaled(bytes, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]], "B");
  return `${value.toFixed(plain ? 0 : digits)}${GAP}${unit}`;
}

export function secondsText(seconds) {
  if (!seconds) return `0${GAP}s`;
  const { value, digits, unit } = scaled(seconds, [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]], "s");
  return seconds < 1e-9 ? `${(seconds * 1e9).toFixed(2)}${GAP}ns` : `${value.toFixed(digits)}${GAP}${unit}`;
}

export function countText(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function counted(count, what) {
  return `${countText(count)}${GAP}${what}${count === 1 ? "" : "s"}`;
}

// 0–3, 7
export function ranksText(ranks) {
  const runs = [];
  for (const rank of ranks) {
    const last = runs.at(-1);
    if (last && last[1] + 1 === rank) last[1] = rank;
    else runs.push([rank, rank]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(", ");
}

function named(ranks, all) {
  return ranks.length === all ? "Every rank" : `${ranks.length === 1 ? "Rank" : "Ranks"} ${ranksText(ranks)}`;
}

// Without a noun "the rank 4 back" would read like rank 4.
function away(places) {
  const count = Math.abs(places);
  return `${count} ${count === 1 ? "place" : "places"} ${places > 0 ? "further on" : "back"}`;
}

// Who sends to whom, in the shortest true words.
export function pattern(messages, ranks) {
  const sources = [...new Set(messages.map((one) => one.source))].sort((a, b) => a - b);
  const dests = new Set(messages.map((one) => one.dest));
  const only = (values) => (new Set(values).size === 1 ? values[0] : null);
  const all = sources.length === ranks;
  const many = sources.length > 1 && !all;
  const sends = `${named(sources, ranks)} ${many ? "send" : "sends"}`;
  if (messages.length === 1) return `Rank ${messages[0].source} sends to rank ${messages[0].dest}.`;
  const apart = only(messages.map(({ source, dest }) => source ^ dest));
  if (apart && messages.length === sources.length && sources.every((one) => dests.has(one))) {
    if (ranks === 2) return "The two ranks swap.";
    return `${named(sources, ranks)} ${many ? "swap" : "swaps"} with the rank ${apart === 1 ? "beside it" : `${apart} places away`}.`;
  }
  if (dests.size === 1) return `${sends} to rank ${messages[0].dest}.`;
  const by = only(messages.map(({ source, dest }) => dest - source));
  const shift = only(messages.map(({ source, dest }) => (dest - source + ranks) % ranks));
  if (by) return `${sends} to the rank ${away(by)}.`;
  if (all && shift === 1) return `${sends} to the next one, and the last one to rank 0.`;
  if (all && shift === ranks - 1) return `${sends} to the one before it, and rank 0 to the last one.`;
  if (shift && sources.length > 2) return `${sends} to the rank ${away(shift <= ranks / 2 ? shift : shift - ranks)}, round the circle.`;
  const shown = [...messages].sort((a, b) => a.source - b.source).slice(0, 4).map(({ source, dest }) => `${source} → ${dest}`).join(", ");
  return messages.length > 4 ? `${shown} and ${messages.length - 4} more.` : `${shown}.`;
}

export function stepWords(film, step) {
  if (film.steps === 0) return film.ranks === 1 ? "One rank has nobody to send to: no message, no step." : "No message was sent: there is no step to play.";
  if (step === 0) return "Before the first step: each rank holds what it was given.";
  const messages = film.messages(step);
  if (!messages.length) return `Step ${step}: no message is under way.`;
  const sizes = new Set(messages.map((one) => one.nbytes));
  const total = messages.reduce((sum, one) => sum + one.nbytes, 0);
  const amount = messages.length === 1 ? bytesText(total)
    : sizes.size === 1 ? `${counted(messages.length, "message")} of ${bytesText([...sizes][0])}`
      : `${counted(messages.length, "message")}, ${bytesText(total)} together`;
  const waiting = [];
  for (let rank = 0; rank < film.ranks; rank += 1) if (film.doing(step, rank).waits) waiting.push(rank);
  const waits = waiting.length ? ` ${named(waiting, film.ranks)} ${waiting.length === 1 ? "waits" : "wait"}.` : "";
  return `${pattern(messages, film.ranks).replace(/\.$/, "")} (${amount}).${waits}`;
}

export function cellName(film, cell) {
  const [start, stop] = film.data.cells[cell];
  if (stop <= start) return "no elements";
  return stop - start === 1 ? `element ${start}` : `elements ${start}–${stop - 1}`;
}

export function holdsWords({ counts, facts }, ranks) {
  if (!counts) return "Whose contributions are in there is not known.";
  const held = [];
  counts.forEach((count, rank) => count && held.push(rank));
  if (!held.length) return "No rank's contribution is in there.";
  const twice = facts.twice.map((rank) => `rank ${rank}'s ${counts[rank]} times`);
  if (twice.length) return `Contributions of ${counted(held.length, "rank")}: ${ranksText(held)}, and ${twice.slice(0, 3).join(", ")}.`;
  if (facts.whole) return `All ${ranks} contributions, each once.`;
  return held.length === 1 ? `Rank ${held[0]}'s contribution.` : `${held.length} of ${ranks} contributions: ranks ${ranksText(held)}.`;
}

export function cellWords(film, step, rank, cell) {
  const found = film.holding(step, rank, cell);
  const where = `Rank ${rank}, ${cellName(film, cell)}`;
  if (!found) return `${where}: not recorded.`;
  return `${where}: ${found.text}. ${holdsWords(found, film.ranks)}`;
}

export function rankWords(film, step, rank) {
  const { sends, receives, ended, waits } = film.doing(step, rank);
  const parts = [
    ...sends.map((one) => `sends ${bytesText(one.nbytes)} to ${one.dest}`),
    ...receives.map((one) => `receives ${bytesText(one.nbytes)} from ${one.source}`),
  ];
  if (waits) parts.push("waits");
  if (ended) parts.push("has ended");
  const sent = bytesText(film.bytes(step)[rank]);
  return `Rank ${rank}${parts.length ? `: ${parts.slice(0, 4).join(", ")}` : ""}. It has sent ${sent} so far.`;
}
