// A parameter server and its workers: each pull and push as a dot that carries the version of the weights.
import { element, penOf, redrawing, unpack, write } from "../../views/static/page.mjs";
import { barOfControls, onControls, Playback, showPlaying } from "../../views/static/controls.mjs";
import { coloursOf, curve, disc, label, polyline, rectangle, spread } from "../../views/static/drawing.mjs";

const UNITS = 0.8; // gradients of a usual worker in a second of yours
const HEIGHT = 420;
const FIELDS = ["worker", "read", "written", "requested", "pulled", "began", "ended", "arrived", "ready", "applied"];
const COLOURS = ["ink", "faint", "ground", "raised", "edge", "pull", "push", "late", "line", "on"];

// ---- without a page

export const gradientsOf = (run) => run.gradients.map((row) => Object.fromEntries(FIELDS.map((name, i) => [name, row[i]])));

// What is to see at a time: the newest version, what each worker does, the messages under way, and the
// newest gradient that the server has taken.
export function sceneAt(gradients, workers, time) {
  const taken = gradients.filter(({ applied }) => applied <= time);
  const version = Math.max(0, ...taken.map(({ written }) => written ?? 0));
  const share = (from, to) => (time - from) / (to - from);
  const scene = { version, dots: [], workers: Array.from({ length: workers }, () => ({ does: "waits", share: 0, read: null })) };
  for (const one of gradients) {
    if (one.requested > time || one.applied <= time) continue;
    const { worker, read } = one;
    const state = (does, more = {}) => { scene.workers[worker] = { does, share: 0, read, ...more }; };
    const dot = (kind, at) => scene.dots.push({ worker, kind, share: at, version: read, behind: version - read, late: kind === "push" && one.written === null });
    if (time < one.pulled) state("waits");
    else if (time < one.began) { state("pulls"); dot("pull", share(one.pulled, one.began)); }
    else if (time < one.ended) state("computes", { share: share(one.began, one.ended) });
    else if (time < one.arrived) { state(one.written === null ? "pushes, too late" : version > read ? `pushes, ${version - read} behind` : "pushes"); dot("push", share(one.ended, one.arrived)); }
    else { state("waits"); dot("push", 1); }
  }
  const last = taken.toSorted((a, b) => a.applied - b.applied || (a.written ?? 0) - (b.written ?? 0)).at(-1);
  scene.last = last ? { worker: last.worker, staleness: last.written === null ? null : last.written - 1 - last.read } : null;
  return scene;
}

// The moments at which something begins or ends, for the keys that go step by step.
export function momentsOf(gradients, end) {
  const all = gradients.flatMap(({ pulled, began, ended, arrived, applied }) => [pulled, began, ended, arrived, applied]);
  return [...new Set([0, ...all, end])].filter((time) => time <= end).sort((a, b) => a - b);
}

export function sentenceOf(scene, time) {
  const count = (does) => scene.workers.filter((one) => one.does === does).length;
  const { last } = scene;
  const newest = last && (last.staleness === null ? `The gradient of worker ${last.worker} came too late and is dropped.`
    : `The last gradient, of worker ${last.worker}, was ${last.staleness === 0 ? "not stale" : `${last.staleness} version${last.staleness === 1 ? "" : "s"} stale`}.`);
  return [`${time.toFixed(1)}: version ${scene.version}; computing: ${count("computes")}, waiting: ${count("waits")}.`, newest].filter(Boolean).join(" ");
}

// Where they stand: the server in the middle, workers on an ellipse around it.
export function placesOf(workers, width, height = HEIGHT) {
  const [x, y] = [width / 2, height / 2];
  return {
    server: { x, y, r: 46 },
    workers: Array.from({ length: workers }, (_, i) => {
      const angle = ((i + 0.5) / workers) * 2 * Math.PI - Math.PI / 2;
      return { x: x + (x - 70) * Math.cos(angle), y: y + (y - 42) * Math.sin(angle) };
    }),
  };
}

// ---- painting

function paintStage(canvas, scene, width, colours) {
  const pen = penOf(canvas, width, HEIGHT);
  const { server, workers } = placesOf(scene.workers.length, width);
  for (const worker of workers) curve(pen, { a: server, b: worker }, colours.line, { width: 2 });
  for (const dot of scene.dots) paintDot(pen, dot, server, workers[dot.worker], colours); // its tail comes out of the worker
  scene.workers.forEach(({ does, share, read }, i) => {
    const [w, h] = [128, 58];
    const [x, y] = [workers[i].x - w / 2, workers[i].y - h / 2];
    const idle = does === "waits";
    rectangle(pen, idle ? colours.ground : colours.raised, x, y, w, h);
    pen.setLineDash(idle ? [4, 4] : []);
    Object.assign(pen, { strokeStyle: colours.edge, lineWidth: 1.2 });
    pen.strokeRect(x, y, w, h);
    pen.setLineDash([]);
    label(pen, colours, `worker ${i}`, x + w / 2, y + 15, { weight: 600, size: 13 });
    label(pen, colours, does === "computes" ? `computes from v${read}` : does, x + w / 2, y + 33);
    if (does !== "computes") return;
    rectangle(pen, colours.line, x + 8, y + h - 12, w - 16, 6);
    rectangle(pen, colours.push, x + 8, y + h - 12, (w - 16) * share, 6);
  });
  disc(pen, colours.ink, server.x, server.y, server.r);
  label(pen, colours, "version", server.x, server.y - 18, { colour: colours.ground });
  label(pen, colours, String(scene.version), server.x, server.y + 8, { size: 30, weight: 600, colour: colours.ground });
}

// A push drags a tail: a piece for each version that was made since its weights were pulled.
function paintDot(pen, { kind, share, version, behind, late }, server, worker, colours) {
  const long = Math.hypot(worker.x - server.x, worker.y - server.y);
  const [dx, dy] = [(worker.x - server.x) / long, (worker.y - server.y) / long];
  const [near, far] = [server.r + 14, long - 66 * Math.min(1 / Math.abs(dx), 0.75 / Math.abs(dy))];
  const at = kind === "pull" ? near + (far - near) * share : far - (far - near) * share;
  const [x, y] = [server.x + dx * at, server.y + dy * at];
  const colour = late ? colours.late : colours[kind];
  if (kind === "push") for (let i = 0; i < Math.min(behind, 12); i += 1) disc(pen, colour, x + dx * (18 + 7 * i), y + dy * (18 + 7 * i), 3);
  disc(pen, colour, x, y, 13);
  label(pen, colours, `v${version}`, x, y + 0.5, { size: 11, weight: 600, colour: colours.on });
}

// The loss of all modes with this straggler, and a playhead.
function paintLoss(canvas, runs, chosen, time, end, width, colours) {
  const pen = penOf(canvas, width, HEIGHT);
  const { ink, faint, line, push } = colours;
  const [left, right, top, bottom] = [40, width - 108, 26, HEIGHT - 34];
  const most = runs[0].losses[0][1];
  const x = (when) => left + ((right - left) * when) / end;
  const y = (loss) => bottom - (bottom - top) * Math.min(loss / most, 1.05);
  label(pen, colours, "loss", left, 11, { colour: faint, align: "left" });
  label(pen, colours, "time (a gradient takes 1)", right, HEIGHT - 8, { colour: faint, align: "right" });
  for (const loss of [0, most / 2, most]) {
    rectangle(pen, line, left, Math.round(y(loss)), right - left, 1);
    label(pen, colours, loss.toFixed(2), left - 6, y(loss), { size: 11, colour: faint, align: "right" });
  }
  for (let tick = 0; tick <= end; tick += 10) label(pen, colours, String(tick), x(tick), bottom + 12, { size: 11, colour: faint });
  runs.forEach(({ losses, mode }, i) => {
    const own = mode === chosen;
    const stairs = losses.flatMap(([when, loss], k) => [[x(when), y(loss)], [x(losses[k + 1]?.[0] ?? end), y(loss)]]);
    polyline(pen, stairs, own ? push : faint, own ? 3 : 1.2, own ? [] : [[6, 3], [2, 3], [9, 3, 2, 3]][i % 3]);
  });
  // Names beside the ends of their curves, none over another.
  const ends = spread(runs.map(({ losses }) => y(losses.at(-1)[1])), 15, top, bottom);
  runs.forEach(({ mode }, i) => label(pen, colours, mode, right + 8, ends[i], { weight: mode === chosen ? 600 : 400, colour: mode === chosen ? push : faint, align: "left" }));
  rectangle(pen, ink, Math.round(x(time)), top, 1.5, bottom - top);
}

// ---- the page

export class Server {
  constructor(host, root, options) {
    Object.assign(this, { host, options, mode: "asynchronous" });
  }

  async open(root, options) {
    this.data = await unpack(options.data);
    this.slow = [...new Set(this.data.runs.map((one) => one.slow))].at(-2) ?? this.data.runs[0].slow;
    this.build(root);
    this.change = redrawing(this.host, this.section, (now) => this.draw(now));
  }

  build(root) {
    const { runs, workers, kind } = this.data;
    const choice = (name, values, words_) => element("label", {}, `${words_} `, element("select", {
      class: name, onchange: ({ target }) => this.choose({ [name]: name === "slow" ? Number(target.value) : target.value }),
    }, ...values.map((one) => element("option", { value: one, selected: one === this[name] }, name === "slow" ? `${one}×` : one))));
    const bar = Object.assign(element("div"), { innerHTML: barOfControls() });
    [this.stage, this.loss] = ["stage", "loss"].map((name) => element("canvas", { class: name, "aria-hidden": "true" }));
    this.says = element("p", { class: "says" });
    this.section = element("section", { class: "server", tabindex: "0", "aria-label": this.options.alt },
      element("header", {}, choice("mode", [...new Set(runs.map((one) => one.mode))], "mode"),
        choice("slow", [...new Set(runs.map((one) => one.slow))], `worker ${workers - 1} is slower by`),
        element("span", { class: "kind" }, kind)),
      element("div", { class: "both" }, this.stage, this.loss), this.says, bar,
      element("footer", {}, element("i", { class: "pull" }), " pull, with the version of the weights ", element("i", { class: "push" }),
        " push, with the version that its gradient was computed from; its tail: versions made since then"));
    root.querySelector("slot").replaceWith(this.section);
    [this.slider, this.play] = [".slider", ".play"].map((one) => bar.querySelector(one));
    Object.assign(this.slider, { max: this.data.end, step: 0.05 });
    this.playback = new Playback([0], () => UNITS);
    onControls(this, this.section);
    this.choose({});
  }

  choose(what) {
    Object.assign(this, what);
    this.runs = this.data.runs.filter(({ slow }) => slow === this.slow);
    this.gradients = gradientsOf(this.runs.find(({ mode }) => mode === this.mode));
    this.playback.moments = momentsOf(this.gradients, this.data.end);
    this.change?.();
  }

  draw(now) {
    const { playback, data: { end, workers } } = this;
    playback.advance(now);
    const time = playback.shown;
    const colours = coloursOf(this.section, COLOURS);
    const scene = sceneAt(this.gradients, workers, time);
    // Side by side, or one below the other where there is no room.
    const [room, shares] = [this.stage.parentElement.clientWidth, this.section.clientWidth < 760 ? [1, 1] : [0.6, 0.38]];
    paintStage(this.stage, scene, Math.floor(room * shares[0]), colours);
    paintLoss(this.loss, this.runs, this.mode, time, end, Math.floor(room * shares[1]), colours);
    write(this.says, sentenceOf(scene, time));
    this.slider.value = time;
    showPlaying(this);
  }
}
