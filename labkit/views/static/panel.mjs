// The device panel: its elements, pointer and keys, and what it says about itself. Words and values are
// real text, so that they can be read aloud, selected and printed; only curves are pixels.
import { element, onKeys, redrawing, write } from "./page.mjs";
import { storeOf } from "./panel_data.mjs";
import {
  AXIS_HEIGHT, METRICS, SPAN_HEIGHT, Viewport, coresUnfolded, deviceLabel, metricsOf, paintLanes, rowsOf, scaleOf, spanAt,
  stripsOf, summary, timeText, toPixel, toTime, valueOf, valueText,
} from "./panel_draw.mjs";

const TICK = 200; // milliseconds between two drawings of a live panel
const LATE = 1; // seconds that it may be behind its newest sample
const SILENT_AFTER = 3; // seconds without a message
const CONNECTED_WITHIN = 8; // seconds in which the kernel's model comes to life, if it is free
const HELP = "Arrow keys move the cursor, with Shift faster; plus and minus zoom; Home and End go to the beginning and the end; "
  + "0 shows everything; Space pauses; Escape lets the cursor go.";

// ---- what it says about itself

// live: made beside a running cell. recorded: by another program. Times in seconds.
export function stateOf({ live, recorded, ended, gone, opened, quiet, until, every, following }) {
  if (ended !== null) return "ended";
  if (!live) return recorded ? "replay" : "ended";
  if (gone) return "gone";
  if (!opened && quiet > CONNECTED_WITHIN) return "unconnected";
  if (!until) return "waiting";
  if (quiet > SILENT_AFTER + 3 * every) return "silent";
  return following ? "live" : "paused";
}

export const stateWords = (state, { ended, quiet }) => ({
  waiting: "waiting for the first samples",
  unconnected: "not connected: the kernel is busy, and the panel fills when it is idle; or it is gone, then run the cell again",
  silent: `no samples for ${Math.round(quiet)} s: the kernel or a driver is busy or gone`,
  gone: "ended: the kernel is gone (restarted or stopped)",
  live: "live",
  paused: "paused, still recording",
  ended: ended ? `ended: ${ended}` : "ended",
  replay: "replay",
})[state];

// The end of what a live panel shows. Samples come several in a message, twice a second; it moves on
// evenly behind them, and never far.
export function shownUntil(shown, newest, passed) {
  const next = Math.min(shown + passed, newest);
  return newest - next > LATE ? newest - LATE / 2 : next;
}

// ---- elements

const div = (name, attributes = {}, ...children) => element("div", { class: name, ...attributes }, ...children);
const span = (name, attributes = {}, ...children) => element("span", { class: name, ...attributes }, ...children);
const colours = (metric) => `--c:light-dark(${METRICS[metric].colours})`;
const at = (track, lane) => `top:${track + lane.top}px;height:${lane.height}px`;

function skeleton({ title, stamp, alt }, act) {
  const button = (name, words, title) => element("button", { type: "button", class: name, title, onclick: () => act(name) }, words);
  const parts = {
    state: span("state"), pause: button("pause", "Pause", "Space"), metrics: div("metrics", { role: "group", "aria-label": "metrics" }),
    labels: div("labels"), moment: span("moment"), axis: span("axis", { "aria-hidden": "true" }),
    lanes: element("canvas", { class: "lanes", "aria-hidden": "true" }), says: div("says"), tops: div("tops", { "aria-hidden": "true" }),
    cursor: div("cursor", { hidden: true }, element("span")),
    plot: div("plot", { tabindex: "0", role: "group", "aria-description": HELP }),
    notes: element("details", { class: "notes", hidden: true }), length: span("length"),
    aloud: element("p", { class: "unseen", "aria-live": "polite" }), still: div("still", { hidden: true }, element("slot")),
  };
  parts.plot.append(parts.lanes, parts.says, parts.cursor);
  parts.body = div("body", {}, parts.labels, parts.plot, parts.tops);
  parts.root = element("section", { class: "panel", "aria-label": alt },
    element("h3", { hidden: !title }, title),
    element("header", {}, div("what-it-is", {}, span("dot", { "aria-hidden": "true" }), parts.state, span("stamp", { title: stamp }, stamp)),
      div("controls", {}, parts.pause, button("out", "−", "Show more time (−)"), button("in", "+", "Show less time (+)"), button("all", "All", "Show everything (0)"))),
    parts.metrics, parts.body, parts.still,
    element("footer", {}, parts.notes, span("hint", {}, "Drag to move · click to hold the cursor"), parts.length), parts.aloud);
  return parts;
}

// A button for each metric, and one for the cores.
function choiceButtons(holder, metrics, cores, act) {
  const focused = holder.getRootNode().activeElement?.dataset?.choice;
  const chip = (choice, words, shown, given, style) => element("button", {
    "data-choice": choice, type: "button", class: given ? "metric" : "metric none", style, "aria-pressed": String(shown),
    title: given ? false : "No device here gives a number; choose it to read why.", onclick: () => act(choice),
  }, words);
  holder.replaceChildren(...metrics.map(({ metric, given, shown }) => chip(metric, METRICS[metric].title, shown, given, colours(metric))),
    ...(cores.count ? [chip("cores", `${cores.count} ${cores.count === 1 ? "core" : "cores"}`, cores.shown, true, "--c:currentColor")] : []));
  holder.querySelector(`[data-choice="${focused}"]`)?.focus();
}

// The column on the left: the name of a strip, and for every lane its metric and its value. Returns the
// elements of the values by lane.
function laneLabels(holder, { strips, track }) {
  const values = new Map();
  holder.replaceChildren(...strips.map(({ device, lanes }) => {
    const label = deviceLabel(device);
    return div("strip", { role: "group", "aria-label": `${label}, ${device.name}` }, ...lanes.map((lane, i) => {
      values.set(lane, element("b", { class: "value" }));
      const name = span("name", { title: device.name || false });
      if (i === 0) name.append(element("strong", {}, label));
      else if (i === 1 && device.name !== label) name.append(element("small", {}, device.name));
      return div(`row ${device.sort}`, { style: at(track, lane) }, name, span("what", { style: colours(lane.metric) }, METRICS[lane.metric].title), values.get(lane));
    }));
  }));
  return values;
}

function notesOf(holder, store) {
  const names = new Map(store.devices().map((device) => [device.key, deviceLabel(device)]));
  const all = [...store.states.values()].flat().filter((one) => one.why !== "fine").slice(-50);
  holder.hidden = all.length === 0;
  holder.replaceChildren(element("summary", {}, all.length === 1 ? "1 note" : `${all.length} notes`),
    element("ul", {}, ...all.map(({ device, metric, why, time, says }) => element("li", {},
      element("b", {}, names.get(device) ?? device, metric ? `, ${METRICS[metric]?.title ?? metric}` : ""),
      ` ${why === "note" ? "" : `${why} `}from ${timeText(time)}: ${says}`))));
}

// ---- pointer and keys

const CLICK = 4; // pixels that a hand may tremble in a click

function plotInput(plot, viewport, change) {
  let grip = null;
  const timeAt = (x, view = viewport.view()) => toTime(view, x - plot.getBoundingClientRect().left, plot.clientWidth);
  const on = (type, act) => plot.addEventListener(type, (event) => { act(event); change(); });
  on("pointerdown", (event) => {
    if (event.button !== 0) return;
    plot.setPointerCapture(event.pointerId);
    grip = { x: event.clientX, view: viewport.view(), dragged: false };
  });
  on("pointermove", (event) => {
    viewport.hover(timeAt(event.clientX));
    if (grip && Math.abs(event.clientX - grip.x) > CLICK) grip.dragged = true;
    if (grip?.dragged) viewport.move(timeAt(grip.x, grip.view) - timeAt(event.clientX, grip.view), grip.view);
  });
  on("pointerup", (event) => {
    if (grip && !grip.dragged) viewport.hold(timeAt(event.clientX));
    grip = null;
    // JupyterLab puts the focus on the cell when it is clicked; keys are wanted here.
    plot.focus({ preventScroll: true });
  });
  on("pointercancel", () => { grip = null; });
  on("pointerleave", () => viewport.hover(null));
}

// What a key does on the plot. Returns whether it has a meaning.
export function pressed({ key, shiftKey }, viewport, every) {
  const far = shiftKey ? 10 : 1;
  const meanings = {
    ArrowLeft: () => viewport.step(-far, every), ArrowRight: () => viewport.step(far, every),
    "+": () => viewport.zoom(1 / 1.5), "=": () => viewport.zoom(1 / 1.5), "-": () => viewport.zoom(1.5),
    Home: () => viewport.jump(false), End: () => viewport.jump(true),
    0: () => viewport.all(), " ": () => viewport.pause(), Escape: () => viewport.hold(null),
  };
  if (!Object.hasOwn(meanings, key)) return false;
  meanings[key]();
  return true;
}

// ---- the panel

export class Panel {
  constructor(host, root, options) {
    const store = storeOf(options.key);
    Object.assign(this, { host, options, store, began: performance.now(), updates: 0, shape: null, aloud: false });
    Object.assign(METRICS, options.metrics);
    if (options.ended) store.ended ??= options.ended;
    const viewport = (this.viewport = store.viewport ??= new Viewport(options.live));
    if (!options.live) viewport.live = false;
    const parts = (this.parts = skeleton(options, (name) => this.act(name)));
    root.querySelector("slot").replaceWith(parts.root);
    Object.assign(host.dataset, { updates: "0", state: "waiting" });
    this.change = redrawing(host, parts.root, () => this.draw());
    store.listeners.add(this.change);
    plotInput(parts.plot, viewport, this.change);
    onKeys(parts.plot, (event) => {
      const known = pressed(event, viewport, store.every);
      this.aloud = known && viewport.held !== null;
      this.change();
      return known;
    });
    // Time goes on without news of the kernel: the end of what is shown, and "no samples for 5 s".
    if (options.live) setInterval(() => viewport.live && this.change(), TICK);
    if (options.data) store.receive({ history: options.data }).catch((error) => { this.fault = `cannot be shown here (${error.message})`; host.dataset.state = `fault: ${error.message}`; this.change(); });
  }

  // Several panels of a recording share a viewport: whichever draws moves it on.
  moveOn(now) {
    const { store, viewport, options } = this;
    if (store.ended !== null || store.gone) viewport.live = false;
    else if (options.live && store.heardAt) viewport.live = true;
    viewport.until = viewport.live ? shownUntil(viewport.until, store.until, (now - (viewport.movedAt ?? now)) / 1000) : store.until;
    viewport.movedAt = now;
  }

  act(name) {
    const { viewport } = this;
    if (name === "pause") viewport.pause();
    else if (name === "all") viewport.all();
    else viewport.zoom(name === "in" ? 1 / 1.5 : 1.5);
    this.change();
  }

  draw() {
    const { store, parts, host, viewport } = this;
    const width = Math.floor(parts.plot.clientWidth);
    this.moveOn(performance.now());
    this.writeState();
    if (width < 20) return;
    if (this.laidOut !== store.version) this.layout();
    this.laidOut = store.version;
    const view = viewport.view();
    const scene = { store, view, width, until: viewport.until, theme: parts.root.dataset.theme, ...this.shape };
    // Only what has changed: a cursor moves over the same curves.
    const seen = [view.from, view.to, scene.until, width, store.version, this.layouts, scene.theme].join();
    if (seen !== this.painted) paintLanes(parts.lanes, scene);
    this.painted = seen;
    for (const [lane, node] of this.tops) write(node, valueText(lane.metric, scaleOf(store, scene.lanes, lane)));
    write(parts.axis, view.to >= 60 ? "time, min:s" : "time");
    parts.plot.setAttribute("aria-label", `time line, ${timeText(view.from)} to ${timeText(view.to)}`);
    this.placeCursor(view, width);
    this.writeValues();
    if (viewport.until !== this.drawn) host.dataset.updates = String((this.updates += 1));
    this.drawn = viewport.until;
    if (store.until && !host.dataset.opening) host.dataset.opening = String(Math.round(performance.now() - this.began));
  }

  layout() {
    const { store, parts, viewport } = this;
    const count = store.devices().filter((one) => one.sort === "core").length;
    const cores = { count, shown: viewport.cores ?? coresUnfolded(store.devices()) };
    const metrics = metricsOf(store, viewport.metrics);
    const shown = metrics.filter((one) => one.shown).map((one) => one.metric);
    const shape = (this.shape = { ...rowsOf(store.spans), ...stripsOf(store, shown, cores.shown) });
    shape.track = Math.max(shape.spanCount * SPAN_HEIGHT + 6, 22);
    this.layouts = (this.layouts ?? 0) + 1;
    parts.body.style.setProperty("--lk-height", `${shape.track + shape.height + AXIS_HEIGHT}px`);
    choiceButtons(parts.metrics, metrics, cores, (choice) => {
      if (choice === "cores") viewport.cores = !cores.shown;
      else viewport.metrics = shown.includes(choice) ? shown.filter((one) => one !== choice) : [...shown, choice];
      this.laidOut = null;
      this.change();
    });
    this.values = laneLabels(parts.labels, shape);
    parts.moment.style.top = `${shape.track - 18}px`;
    parts.labels.append(parts.moment, parts.axis);
    notesOf(parts.notes, store);
    parts.says.replaceChildren(...shape.lanes.filter((lane) => lane.reason).map((lane) => element("p", { style: at(shape.track, lane), title: lane.reason.says },
      element("b", {}, lane.reason.why), ` ${lane.reason.says}`)));
    this.tops = shape.lanes.filter((lane) => !lane.reason && lane.device.sort !== "core").map((lane) => [lane, element("span", { style: at(shape.track, lane) })]);
    parts.tops.replaceChildren(...this.tops.map(([, node]) => node));
  }

  placeCursor(view, width) {
    const { parts, viewport } = this;
    const move = (node, x) => { node.style.transform = `translateX(${x.toFixed(1)}px)`; };
    const cursor = viewport.cursor();
    const x = cursor === null ? -1 : toPixel(view, cursor, width);
    parts.cursor.hidden = !(x >= 0 && x <= width);
    if (cursor === null) return;
    move(parts.cursor, x);
    const inner = spanAt(this.store.spans, cursor);
    const tag = parts.cursor.firstChild;
    write(tag, timeText(cursor, (view.to - view.from) / width < 0.03 ? 0.01 : 0.1) + (inner ? ` · ${inner.name}` : ""));
    // The tag stays inside the plot.
    move(tag, Math.min(Math.max(-tag.offsetWidth / 2, -x), width - x - tag.offsetWidth));
  }

  writeValues() {
    const { store, viewport, parts } = this;
    const time = viewport.moment();
    write(parts.moment, viewport.cursor() === null && viewport.following ? "now" : `at ${timeText(time)}`);
    for (const [lane, node] of this.values) write(node, lane.reason ? "" : valueOf(store, lane, time));
    if (this.aloud) write(parts.aloud, summary(store, this.shape.strips, time));
    this.aloud = false;
  }

  writeState() {
    const { parts, store, viewport, options } = this;
    const { ended, gone, opened, until, every } = store;
    const quiet = (performance.now() - Math.max(this.began, store.heardAt ?? 0)) / 1000;
    const recorded = /^recorded/i.test(options.stamp);
    const state = stateOf({ live: options.live, recorded, ended, gone, opened, quiet, until, every, following: viewport.following });
    this.host.dataset.state = parts.root.dataset.state = state;
    write(parts.state, this.fault ?? stateWords(state, { ended, quiet }));
    parts.still.hidden = !(this.fault || state === "unconnected");
    parts.body.hidden = !parts.still.hidden;
    parts.pause.hidden = !viewport.live;
    write(parts.pause, viewport.seen ? "Follow" : "Pause");
    write(parts.length, [options.damage, until ? `${timeText(until)} recorded` : null].filter(Boolean).join(" · "));
  }
}
