// The timeline of a pipeline, piece by piece: what runs, what each rank waits for and what it holds.
import { element, onKeys, penOf, redrawing, unpack, write } from "./page.mjs";

const KEYS = { ArrowRight: "on", ArrowUp: "on", ArrowLeft: "back", ArrowDown: "back", Home: "first", End: "last", " ": "play" };
const ACTS = { first: "⇤", back: "←", play: "▶", on: "→", last: "⇥" };
const NAMES = { first: "to the beginning (Home)", back: "one step back (←)", play: "play or pause (Space)", on: "one step on (→)", last: "to the end (End)" };
const SERIES = { F: "forward", B: "backward", W: "gradient of the weights" };

// ---- without a page

// The times at which some piece starts, and the end.
export function stepTimes(rows) {
  const starts = rows.flat().map(([, , , start]) => start);
  const end = Math.max(...rows.map((row) => row.at(-1)[4]));
  return [...new Set(starts), end].sort((a, b) => a - b).filter((time, i, all) => !i || time - all[i - 1] > 1e-9 * end);
}

export function nameOf([kind, m, chunk], chunks) {
  return chunks > 1 ? `${kind}${m}.${chunk}` : `${kind}${m}`;
}

// Of each rank at a time: the piece that runs or null, the next one, and how many micro-batches it holds.
export function ranksAt({ rows, chunks, weights }, time) {
  const tiny = 1e-9 * rows[0].at(-1)[4];
  return rows.map((row) => {
    const begun = row.filter(([, , , start]) => start <= time + tiny);
    const last = begun.at(-1);
    const ended = begun.filter(([kind, , , , end]) => kind === (weights ? "W" : "B") && end <= time + tiny);
    const held = (begun.filter(([kind]) => kind === "F").length - ended.length) / chunks;
    return { running: last && last[4] > time + tiny ? last : null, next: row[begun.length] ?? null, held };
  });
}

export function sentence(data, time) {
  const ranks = ranksAt(data, time).slice(0, 8).map(({ running, next }, rank) => {
    if (running) return `rank ${rank} computes ${nameOf(running, data.chunks)}`;
    return next ? `rank ${rank} waits to begin ${nameOf(next, data.chunks)}` : `rank ${rank} is done`;
  });
  return `Time ${Number(time.toPrecision(4))}${data.unit}: ${ranks.join("; ")}${data.rows.length > 8 ? "; …" : ""}.`;
}

// ---- the page

export class Pipeline {
  constructor(host, root, options) {
    this.host = host;
    this.open(root, options).catch((error) => {
      host.dataset.state = `fault: ${error.message}`; // the picture inside stays
      throw error;
    });
  }

  async open(root, options) {
    this.data = await unpack(options.data);
    [this.times, this.step] = [stepTimes(this.data.rows), 0];
    const button = (name) => element("button", { title: NAMES[name], "aria-label": NAMES[name], onclick: () => this.act(name) }, ACTS[name]);
    const input = ({ target }) => this.go(Number(target.value));
    this.slider = element("input", { type: "range", min: 0, max: this.times.length - 1, value: 0, "aria-label": "step", oninput: input });
    this.canvas = element("canvas", { role: "img", "aria-label": options.alt });
    this.says = element("p", { class: "says", "aria-live": "polite" });
    const tiles = Object.entries(this.data.tiles).map(([name, value]) => element("span", {}, `${name} `, element("b", {}, value)));
    const used = this.data.weights ? "FBW" : "FB";
    const keys = [...used].map((kind) => element("span", {}, element("i", { class: kind }, kind), ` ${SERIES[kind]}`));
    this.section = element("section", { class: "pipeline", tabindex: 0, role: "group", "aria-label": `${this.data.title}. Arrow keys go from piece to piece.` },
      element("header", {}, element("b", {}, this.data.title), ...tiles),
      element("div", { class: "controls" }, ...Object.keys(ACTS).map(button), this.slider),
      this.says, this.canvas, element("footer", {}, ...keys, element("em", {}, this.data.kind)));
    root.querySelector("slot").replaceWith(this.section);
    onKeys(this.section, ({ key, target }) => {
      if (!KEYS[key] || (key === " " && target.localName === "button")) return false;
      this.act(KEYS[key]);
      return true;
    });
    this.change = redrawing(this.host, this.section, () => this.draw());
    this.host.dataset.state = "ready";
  }

  act(name) {
    const last = this.times.length - 1;
    const playing = this.timer;
    clearInterval(this.timer);
    this.timer = null;
    if (name === "play" && !playing) {
      if (this.step === last) this.go(0);
      this.timer = setInterval(() => (this.step < last && this.host.isConnected ? this.go(this.step + 1) : this.act("stop")), 500);
    } else this.go({ first: 0, back: this.step - 1, on: this.step + 1, last }[name] ?? this.step);
  }

  go(step) {
    this.step = Math.min(Math.max(step, 0), this.times.length - 1);
    this.slider.value = this.step;
    this.host.dataset.step = this.step;
    this.change();
  }

  draw() {
    const { data, canvas } = this;
    const time = this.times[this.step];
    const width = Math.floor(this.section.getBoundingClientRect().width - 26);
    const [high, left, right] = [data.rows.length > 16 ? 14 : 30, 58, 58];
    const pen = penOf(canvas, width, high * data.rows.length + 4);
    const style = getComputedStyle(this.section);
    const colour = (name) => style.getPropertyValue(`--lk-${name}`).trim();
    const scale = (width - left - right) / this.times.at(-1);
    pen.font = `12px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    ranksAt(data, time).forEach(({ held }, rank) => {
      const middle = high * (rank + 0.5);
      const words = (text, x, align) => Object.assign(pen, { fillStyle: colour("ink"), textAlign: align }).fillText(text, x, middle);
      words(`rank ${rank}`, 0, "left");
      words(`holds ${Number(held.toFixed(2))}`, width, "right");
      for (const [kind, m, chunk, start, end] of data.rows[rank]) {
        const tall = (high - 6) / data.chunks;
        const [x, y, w] = [left + start * scale, high * rank + 3 + chunk * tall, (end - start) * scale];
        const now = start <= time && end > time;
        pen.globalAlpha = start > time ? 0.3 : 1;
        pen.fillStyle = colour(kind);
        pen.fillRect(x, y, w - 1, tall - 1);
        if (now) Object.assign(pen, { strokeStyle: colour("ink"), lineWidth: 2 }).strokeRect(x, y, w - 1, tall - 1);
        if (start > time) pen.globalAlpha = 0.6;
        Object.assign(pen, { fillStyle: colour(start > time ? "ink" : `on-${kind}`), textAlign: "center" });
        const text = [`${kind}${m}`, `${m}`].find((one) => pen.measureText(one).width < w - 3);
        if (text && tall > 10) pen.fillText(text, x + w / 2, y + tall / 2);
        pen.globalAlpha = 1;
      }
    });
    pen.fillStyle = colour("now");
    pen.fillRect(left + time * scale - 1, 0, 2, high * data.rows.length);
    write(this.says, sentence(data, time));
  }
}
