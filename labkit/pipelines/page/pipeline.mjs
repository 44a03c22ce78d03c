// The timeline of a pipeline under a moving playhead: what runs, what waits, what is held, what is sent.
import { barOfControls, onControls, Playback, showPlaying } from "../../views/static/controls.mjs";
import { coloursOf, curve, label, niceTicks, rectangle } from "../../views/static/drawing.mjs";
import { element, onKeys, penOf, redrawing, unpack, widthWith, write } from "../../views/static/page.mjs";
import { measured, played, SCHEDULES, short } from "./schedules.mjs";

const SERIES = { F: "forward", B: "backward", W: "gradient of the weights" };
const STEP_SECONDS = 0.35, LONGEST = 24; // of a step on average, and of the whole, at 1×
const COLOURS = [
  "ink", "ground", "edge", "faint", "soft", "lane", "now", "held", "line-F", "line-B", ...["F", "B", "W"].flatMap((kind) => [kind, `on-${kind}`]),
];
const MANY = 60; // pieces; of more, messages are shown of the micro-batch that is pointed at
const LEFT = 54, RIGHT = 140, AXIS = 34; // pixels beside the lanes and below them

// ---- without a page

// The times at which some piece starts, and the end.
export function stepTimes(rows) {
  const end = measured({ rows, parts: 1 }).total;
  const starts = rows.flat().map((piece) => piece[4]);
  return [...new Set(starts), end].sort((a, b) => a - b).filter((time, i, all) => !i || time - all[i - 1] > 1e-9 * end);
}

export function nameOf([kind, m, chunk], chunks) {
  return chunks > 1 ? `${kind}${m}.${chunk}` : `${kind}${m}`;
}

// Of each rank at a time: the piece that runs or null, the next one, and how many micro-batches it holds.
export function ranksAt({ rows, parts, weights }, time) {
  const tiny = 1e-9 * rows[0].at(-1)[5];
  return rows.map((row) => {
    const begun = row.filter((piece) => piece[4] <= time + tiny);
    const last = begun.at(-1);
    const ended = begun.filter((piece) => piece[0] === (weights ? "W" : "B") && piece[5] <= time + tiny);
    const held = (begun.filter(([kind]) => kind === "F").length - ended.length) / parts;
    return { running: last && last[5] > time + tiny ? last : null, next: row[begun.length] ?? null, held };
  });
}

export function sentence(data, time) {
  const ranks = ranksAt(data, time).slice(0, 8).map(({ running, next }, rank) => {
    if (running) return `rank ${rank} computes ${nameOf(running, data.chunks)}`;
    return next ? `rank ${rank} waits to begin ${nameOf(next, data.chunks)}` : `rank ${rank} is done`;
  });
  return `Time ${short(time)}${data.unit}: ${ranks.join("; ")}${data.rows.length > 8 ? "; …" : ""}.`;
}

// The piece that an arrow key leads to: along its rank, or the one of the next rank that is nearest in time.
export function neighbour(rows, { rank, index }, key) {
  const within = (number, size) => Math.min(Math.max(number, 0), size - 1);
  const along = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (along) return { rank, index: within(index + along, rows[rank].length) };
  const to = within(rank + { ArrowUp: -1, ArrowDown: 1 }[key], rows.length);
  const middle = ([, , , , start, end]) => start + end;
  const off = (piece) => Math.abs(middle(piece) - middle(rows[rank][index]));
  return { rank: to, index: rows[to].reduce((best, piece, i) => (off(piece) < off(rows[to][best]) ? i : best), 0) };
}

// "Rank 1, stage 1: F3, forward of micro-batch 3, from 4 to 5, after a wait of 1."
export function pieceText({ rows, chunks, unit }, { rank, index }) {
  const piece = rows[rank][index];
  const [kind, m, , stage, start, end] = piece;
  const wait = start - (rows[rank][index - 1]?.[5] ?? 0);
  const waited = wait > 1e-9 * end ? `, after a wait of ${short(wait)}${unit}` : "";
  return `Rank ${rank}, stage ${stage}: ${nameOf(piece, chunks)}, ${SERIES[kind]} of micro-batch ${m}, from ${short(start)} to ${short(end)}${unit}${waited}.`;
}

// From each F to the F of the next stage, and from each B to that of the stage before, on another rank.
export function messagesOf(rows) {
  const found = new Map(rows.flatMap((row, rank) => row.map((piece) => [`${piece[0]}${piece[1]}.${piece[3]}`, { rank, piece }])));
  return [...found.values()].flatMap((from) => {
    const [kind, m, , stage] = from.piece;
    const to = kind === "W" ? null : found.get(`${kind}${m}.${stage + (kind === "F" ? 1 : -1)}`);
    return to && to.rank !== from.rank ? [{ kind, m, from, to }] : [];
  });
}

// Where the bubble of a rank is: its step as long as that of the slowest rank, and in it the times between its pieces.
export function gapsOf(row, { total, step }) {
  const begin = Math.min(row[0][4], total - step);
  const edges = [begin, ...row.flatMap((piece) => [piece[4], piece[5]]), begin + step];
  return edges.flatMap((time, i) => (i % 2 === 0 && edges[i + 1] - time > 1e-9 * total ? [[time, edges[i + 1]]] : []));
}

// "bubble 9 = (p − 1)(F + B)": with a formula only where it gives what the clock gives.
export function bubbleText({ formula, unit }, { bubble, step, ideal }) {
  const agrees = formula && Math.abs(formula.value - bubble) < 1e-9 * step;
  const share = (of) => `${((100 * bubble) / of).toFixed(1)} %`;
  return `${short(bubble)}${unit}${agrees ? ` = ${formula.text}` : ""}: ${share(step)} of the step ${short(step)}${unit}, ${share(ideal)} of the ideal ${short(ideal)}${unit}`;
}

// The numbers of micro-batches that a schedule can have.
export function countsOf(name, stages) {
  const all = [...Array(32).keys()].map((i) => i + 1);
  return name === "interleaved" ? all.filter((m) => m % stages === 0) : all;
}

// ---- the page

export class Pipeline {
  constructor(host) {
    Object.assign(this, { host, cursor: null });
  }

  async open(root, options) {
    this.given = await unpack(options.data);
    this.leader = options.leader;
    const { times } = this.given.choice;
    this.choice = { ...this.given.choice, chunks: Math.max(2, this.given.chunks) };
    // B and W apart from the beginning: where B is one piece, it takes both times.
    if (times) this.choice.times = times[2] === null ? [times[0], times[1] / 2, times[1] / 2, times[3]] : times;
    const page = element("div");
    page.innerHTML = barOfControls();
    [this.slider, this.play, this.speed] = [".slider", ".play", ".speed"].map((name) => page.querySelector(name));
    this.canvas = element("canvas", { role: "application", tabindex: 0 });
    this.says = element("p", { class: "says", "aria-live": "polite" });
    [this.numbers, this.keys, this.kind] = [element("span"), element("span", { class: "keys" }), element("em")];
    this.section = element("section", { class: "pipeline", tabindex: 0, role: "group", "aria-label": "A pipeline. Arrow keys go on and back in time; in the timeline, from piece to piece." },
      element("header", {}, this.chooser(), this.numbers), page.firstElementChild, this.says, this.canvas, element("footer", {}, this.keys, this.kind));
    root.querySelector("slot").replaceWith(this.section);
    this.change = redrawing(this.host, this.section, (now) => this.draw(now));
    this.show(this.given);
    this.playback.seek(this.given.opens ?? 0);
    const own = (event) => this.press(event);
    if (this.leader) onKeys(this.section, own);
    else onControls(this, this.section, { timeOf: (value) => this.playback.moments[value], own });
    this.canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => this.point(this.place.at(offsetX, offsetY)));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
  }

  // The title; where the times are known for any schedule, as choices.
  chooser() {
    const { name, stages, times } = this.choice;
    if (!times) return element("b", {}, this.given.title);
    const select = (key, label, values) => {
      const onchange = ({ target }) => this.choose({ [key]: key === "name" ? target.value : Number(target.value) });
      return (this[key] = element("select", { "aria-label": label, onchange }, ...values.map((one) => element("option", {}, one))));
    };
    const most = 2 * Math.max(times[0], times[1] + times[2]);
    this.durations = ["F", "B", "W", "hop"].map((kind, i) => {
      const input = element("input", { type: "range", min: i < 3 ? most / 40 : 0, max: most, step: "any", "aria-label": `time of ${kind === "hop" ? "a message" : SERIES[kind]}`, oninput: () => this.choose({ [kind]: Number(Number(input.value).toPrecision(2)) }) });
      return { kind, input, words: element("span"), get label() { return element("label", {}, `${kind} `, input, this.words); } };
    });
    return element("span", { class: "choice" }, select("name", "schedule", [...new Set([name, ...Object.keys(SCHEDULES)])]),
      select("stages", "stages", [...new Set([1, 2, 3, 4, 5, 6, 7, 8, stages])]), "stages ×",
      select("microbatches", "micro-batches", []), "micro-batches", ...this.durations.map((one) => one.label));
  }

  // F, B, W and hop are times. Of a schedule whose B is one piece, half of it is W.
  choose({ F, B, W, hop, ...change }) {
    const choice = Object.assign(this.choice, change);
    if (!choice.times) return;
    const [f, b, w, h] = choice.times;
    const apart = SCHEDULES[choice.name]?.weights;
    choice.times = [F ?? f, B === undefined ? b : apart ? B : B / 2, W ?? (B === undefined || apart ? w : B / 2), hop ?? h];
    const counts = countsOf(choice.name, choice.stages);
    if (!(choice.name in SCHEDULES)) Object.assign(choice, { ...this.given.choice, times: choice.times }); // the reader's own
    else if (!counts.includes(choice.microbatches)) choice.microbatches = counts.find((m) => m >= choice.microbatches) ?? counts.at(-1);
    this.show(choice.name in SCHEDULES ? played(choice) : this.given);
    this.leader?.retime();
  }

  show(data) {
    const { choice } = this;
    if (choice.times) {
      const counts = [...new Set([...countsOf(choice.name, choice.stages), choice.microbatches])];
      this.microbatches.replaceChildren(...counts.map((one) => element("option", {}, one)));
      for (const key of ["name", "stages", "microbatches"]) this[key].value = choice[key];
      const { weights } = data;
      const [f, b, w, hop] = choice.times;
      [f, weights ? b : b + w, w, hop].forEach((time, i) => {
        const { input, words } = this.durations[i];
        if (Number(Number(input.value).toPrecision(2)) !== time) input.value = time; // not under the pointer
        write(words, short(time));
        input.parentElement.hidden = i === 2 && !weights;
      });
      for (const one of [this.stages, this.microbatches, ...this.durations.map(({ input }) => input)]) one.disabled = !(choice.name in SCHEDULES);
    }
    const sizes = measured(data);
    const formula = choice.times && choice.name in SCHEDULES ? played(choice).formula : null;
    const most = Math.max(...sizes.peaks);
    const times = stepTimes(data.rows);
    const pace = () => sizes.total / Math.min(LONGEST, STEP_SECONDS * times.length);
    this.playback = new Playback(times, pace, { speed: Number(this.speed.value) });
    this.crowded = data.rows.flat().length > MANY;
    Object.assign(this, { data, sizes, messages: messagesOf(data.rows), gaps: data.rows.map((row) => gapsOf(row, sizes)), most, cursor: null });
    const [bubble, shares] = bubbleText({ formula, unit: data.unit }, sizes).split(": ");
    const title = data === this.given ? data.title : `${choice.name}, ${choice.stages} stages × ${choice.microbatches} micro-batches`;
    this.canvas.setAttribute("aria-label", `Timeline of ${title}: bubble ${bubble}, ${shares}. Arrow keys go from piece to piece.`);
    this.numbers.replaceChildren("bubble ", element("b", {}, bubble), `: ${shares}`);
    const keys = [...(data.weights ? "FBW" : "FB")].map((kind) => element("span", {}, element("i", { class: kind }, kind), ` ${SERIES[kind]}`));
    this.keys.replaceChildren(...keys, element("span", {}, element("i", { class: "bubble" }), " bubble"),
      element("span", {}, "→ message"), element("span", {}, "Point at a piece, or go to it with arrow keys, to follow its micro-batch."));
    this.says.style.minHeight = data.rows.length > 4 ? "36px" : "18px";
    write(this.kind, data.kind);
    this.slider.max = times.length - 1;
    this.change();
  }

  point(cursor) {
    const is = (one) => one && `${one.rank} ${one.index}`;
    if (is(cursor) !== is(this.cursor)) this.change();
    this.cursor = cursor;
  }

  // On the canvas, arrows lead from piece to piece.
  press({ key, target }) {
    if (key === "Escape" && this.cursor) this.point(null);
    else if (target === this.canvas && key.startsWith("Arrow")) this.point(this.cursor ? neighbour(this.data.rows, this.cursor, key) : { rank: 0, index: 0 });
    else return false;
    return true;
  }

  draw(now) {
    const { data, playback, cursor } = this;
    playback.advance(now);
    const { moments, step, playing } = playback;
    const onPaper = matchMedia("print").matches;
    this.paint(onPaper ? playback.end : playback.shown, onPaper);
    write(this.says, cursor && !playing ? pieceText(data, cursor) : sentence(data, moments[step]));
    this.slider.value = step;
    this.slider.setAttribute("aria-valuetext", `time ${short(moments[step])}`);
    this.says.setAttribute("aria-live", playing ? "off" : "polite");
    this.host.dataset.step = step;
    showPlaying(this);
  }

  // All pieces are drawn once; what is still to come is veiled.
  paint(time, onPaper) {
    const { data, sizes, most, cursor, playback } = this;
    const picked = cursor && data.rows[cursor.rank][cursor.index];
    const width = Math.floor(this.section.firstChild.clientWidth);
    const colours = coloursOf(this.section, COLOURS);
    const end = this.leader?.end ?? sizes.total;
    const scene = { width, colours, follow: picked?.[1], end, room: document.fullscreenElement ? (innerHeight - 60) / (this.leader?.views.length ?? 1) - 180 : this.leader ? 175 : 280 };
    const looks = JSON.stringify([scene, devicePixelRatio]);
    if (looks !== this.looks || this.pictured !== data) {
      this.place = layout(data, scene);
      this.picture = this.drawAll(scene);
      Object.assign(this, { looks, pictured: data });
    }
    const { x, top, tall, high, gap, bottom } = this.place;
    const pen = penOf(this.canvas, width, bottom + AXIS);
    const now = x(time);
    pen.drawImage(this.picture, 0, 0, width, bottom + AXIS);
    if (time > 0 && time < playback.end) {
      Object.assign(pen, { fillStyle: colours.ground, globalAlpha: 0.4 }).fillRect(now, 18, width - RIGHT - now, bottom - 18);
      pen.globalAlpha = 1;
    }
    if (!this.crowded || picked) this.drawMessages(pen, colours, time, scene.follow, true);
    Object.assign(pen, { strokeStyle: colours.ink, lineWidth: 2 });
    ranksAt(data, time).forEach(({ held, running }, rank) => {
      if (running) pen.strokeRect(x(running[4]), top(rank, running[2]), x(running[5]) - x(running[4]) - 1, tall - 1);
      const [middle, long, now] = [top(rank) + (high - gap) / 2, RIGHT - 82, onPaper ? sizes.peaks[rank] : held];
      rectangle(pen, colours.held, width - RIGHT + 14, middle - 6, (long * now) / most, 12);
      label(pen, colours, `${short(now)} of ${short(sizes.peaks[rank])}`, width, middle, { align: "right" });
    });
    if (picked) Object.assign(pen, { strokeStyle: colours.now, lineWidth: 3 }).strokeRect(x(picked[4]), top(cursor.rank, picked[2]), x(picked[5]) - x(picked[4]) - 1, tall - 1);
    if (!onPaper) rectangle(pen, colours.now, now - 1, 14, 2, bottom - 8);
  }

  drawAll({ width, colours, follow, end }) {
    const { data, sizes } = this;
    const { x, top, tall, high, gap, bottom } = this.place;
    const canvas = document.createElement("canvas");
    const pen = penOf(canvas, width, bottom + AXIS);
    const words = (text, at, y, align = "left", ink = "faint") => label(pen, colours, text, at, y, { align, colour: colours[ink] });
    words("holds", width - RIGHT + 14, 8);
    words("at most", width, 8, "right");
    words(data.unit ? "seconds" : "time", 0, bottom + 14);
    for (const tick of niceTicks(end, Math.max(2, (width - LEFT - RIGHT) / 60))) {
      rectangle(pen, colours.edge, Math.round(x(tick)), 18, 1, bottom - 12);
      words(short(tick), x(tick), bottom + 14, "center");
    }
    const [wide, hatch] = [widthWith(pen), hatching(pen, colours.soft)];
    const longest = "0".repeat(String(Math.max(...data.rows[0].map((piece) => piece[1]))).length);
    data.rows.forEach((row, rank) => {
      words(`rank ${rank}`, 0, top(rank) + (high - gap) / 2, "left", "ink");
      rectangle(pen, colours.lane, width - RIGHT + 14, top(rank) + (high - gap) / 2 - 6, ((RIGHT - 82) * sizes.peaks[rank]) / this.most, 12);
      for (const [start, end] of this.gaps[rank]) rectangle(pen, hatch, x(start), top(rank), x(end) - x(start), high - gap);
      for (const [kind, m, chunk, , start, end] of row) {
        const [left, y, w] = [x(start), top(rank, chunk), x(end) - x(start) - 1];
        rectangle(pen, colours.ground, left, y, w, tall - 1);
        pen.globalAlpha = follow !== undefined && follow !== m ? 0.3 : 1;
        rectangle(pen, colours[kind], left, y, w, tall - 1);
        const text = [`${kind}${m}`, `${m}`].find((one, i) => wide((i ? "" : kind) + longest) < w - 3);
        if (text && tall > 10) words(text, left + w / 2, y + tall / 2, "center", `on-${kind}`);
        pen.globalAlpha = 1;
      }
    });
    if (!this.crowded && follow === undefined) this.drawMessages(pen, colours, Infinity);
    return canvas;
  }

  // Thin and faint; strong while they are on the way, or where their micro-batch is pointed at.
  drawMessages(pen, colours, time, follow, strong = false) {
    const { x, top, tall } = this.place;
    for (const { kind, m, from, to } of this.messages) {
      const isStrong = follow !== undefined ? follow === m : from.piece[5] <= time && time < to.piece[5];
      if (strong && !isStrong) continue;
      const down = to.rank > from.rank;
      const [x1, x2] = [x(from.piece[5]) - 1.5, x(to.piece[4]) + 0.5];
      const y1 = top(from.rank, from.piece[2]) + (down ? tall - 1 : 0);
      const y2 = top(to.rank, to.piece[2]) + (down ? 0 : tall - 1);
      pen.globalAlpha = strong ? 1 : 0.55;
      curve(pen, { a: { x: x1, y: y1 }, b: { x: x2, y: y2 } }, colours[`line-${kind}`], { width: strong ? 2 : 1, head: strong ? 6 : 4 });
    }
    pen.globalAlpha = 1;
  }
}

// Where lanes and pieces stand, and which piece is at a point.
function layout(data, { width, end, room }) {
  const many = data.rows.length > 16;
  const high = many ? 14 : Math.max(34, Math.min(room > 280 ? 120 : 60, Math.floor(room / data.rows.length)));
  const gap = many ? 2 : Math.round(high / 3);
  const tall = (high - gap) / data.chunks;
  const x = (time) => LEFT + (time * (width - LEFT - RIGHT)) / end;
  const top = (rank, chunk = 0) => 18 + high * rank + gap / 2 + chunk * tall;
  const at = (px, py) => {
    const rank = Math.floor((py - 18) / high);
    const inside = ([, , chunk, , start, end]) => px >= x(start) && px < x(end) && py >= top(rank, chunk) && py < top(rank, chunk) + tall;
    const index = data.rows[rank]?.findIndex(inside) ?? -1;
    return index < 0 ? null : { rank, index };
  };
  return { high, gap, tall, x, top, at, bottom: high * data.rows.length + 18 };
}

function hatching(pen, colour) {
  const tile = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
  const of = tile.getContext("2d");
  Object.assign(of, { strokeStyle: colour, lineWidth: 1 });
  for (const shift of [-6, 0, 6]) {
    of.moveTo(shift, 6);
    of.lineTo(shift + 6, 0);
  }
  of.stroke();
  return pen.createPattern(tile, "repeat");
}
