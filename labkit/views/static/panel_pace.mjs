// Looks come several at a time, because each message costs the kernel as much as two looks. They are
// shown one after the other, as far apart as they were taken; a span with the first look after it.

const SAME = 0.055; // seconds: what lies nearer is shown as one, so that at most 18 a second are drawn
const MOST = 0.45; // seconds that anything is held back; what is older has been late already

// Lines in steps: [{ wait, lines }], with the seconds from the first.
export function steps(lines) {
  const rows = lines.filter(Array.isArray).sort((a, b) => a[1] - b[1]);
  // What names a source is in order with the rows before and after it.
  if (!rows.length || lines.some((line) => "source" in line)) return [{ wait: 0, lines }];
  const begin = Math.max(rows[0][1], rows.at(-1)[1] - MOST);
  const found = [{ wait: 0, lines: [] }];
  for (const row of rows) {
    const wait = row[1] - begin;
    if (wait - found.at(-1).wait >= SAME) found.push({ wait, lines: [] });
    found.at(-1).lines.push(row);
  }
  for (const line of lines.filter((line) => !Array.isArray(line)).reverse()) {
    const wait = (line.end ?? line.start ?? line.time ?? 0) - begin;
    (found.find((step) => step.lines.at(-1)[1] - begin >= wait) ?? found.at(-1)).lines.unshift(line);
  }
  return found;
}

// Shows lines step by step, by `show(lines)`. What still waits when more comes is late, and is shown
// with the first of that: so nothing adds up, however unevenly messages come.
export class Pace {
  constructor(show, world = globalThis) {
    this.show = show;
    this.world = world;
    this.waiting = [];
  }

  take(lines) {
    // A span does not hurry the looks before it.
    const hurry = lines.some((line) => Array.isArray(line) || "source" in line);
    const late = hurry ? this.stop() : [];
    const [first, ...rest] = steps(lines);
    this.show([...late, ...first.lines]);
    for (const step of rest) {
      this.waiting.push(step);
      step.timer = this.world.setTimeout(() => this.show(this.waiting.shift().lines), 1000 * step.wait);
    }
  }

  // Nothing more comes: all that waits is shown now.
  end() {
    const late = this.stop();
    if (late.length) this.show(late);
  }

  stop() {
    for (const { timer } of this.waiting) this.world.clearTimeout(timer);
    return this.waiting.splice(0).flatMap((step) => step.lines);
  }
}
