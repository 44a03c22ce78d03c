// The device panel: its elements, pointer and keys, and what it says about itself. Words and values are
// real text, so that they can be read aloud, selected and printed; only curves are pixels.
import { element, onKeys, redrawing, write } from "../../views/static/page.mjs";
import { storeOf } from "./store.mjs";
import { reachKernel } from "./panel_reload.mjs";
import {
  AXIS_HEIGHT, METRICS, SPAN_HEIGHT, Viewport, coresUnfolded, deviceLabel, joulesText, levelOf, metricsOf, othersText, outliers,
  paintHead, paintLanes, rowsOf, scaleOf, spanAt, stripsOf, summary, timeText, toPixel, toTime, trainingText, valueOf, valueText,
} from "./panel_draw.mjs";

const TICK = 200; // milliseconds between two drawings of a live panel
const LATE = 1; // seconds that it may be behind its newest sample
const SILENT_AFTER = 3; // seconds without a message
const REACHED_AFTER = 2; // seconds without the kernel's model, after which it is asked directly
const CONNECTED_WITHIN = 8; // seconds in which the kernel's model comes to life, if it is free
const HELP = "Arrow keys move the cursor, with Shift faster; plus and minus zoom; Home and End go to the beginning and the end; "
  + "0 shows everything; Space pauses, or plays a recording; Escape lets the cursor go.";
const LARGER = 1.4; // type and rows, where a room of people looks
const LEGENDS = {
  lanes: "Drag to move · click to hold the cursor",
  row: "Area: utilisation, pale below 30 %, dark from 80 % on · line: memory · bar: power · choose a device to unfold it",
  heat: (metric) => `Each line is a GPU: the stronger the colour, the higher its ${METRICS[metric].title} · choose a group to unfold it`,
};

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
const at = (track, { top, height }) => `top:${track + top}px;height:${height}px`;

function skeleton({ title, stamp, alt }, act) {
  const button = (name, words, title) => element("button", { type: "button", class: name, title, onclick: () => act(name) }, words);
  const parts = {
    state: span("state"), pause: button("pause", "Pause", "Space"), metrics: div("metrics", { role: "group", "aria-label": "metrics" }),
    labels: div("labels"), moment: span("moment"), axis: span("axis", { "aria-hidden": "true" }),
    head: element("canvas", { class: "head", "aria-hidden": "true" }), lanes: element("canvas", { class: "lanes", "aria-hidden": "true" }),
    says: div("says"), tops: div("tops", { "aria-hidden": "true" }), joules: span("joules"), hint: span("hint"), who: div("who", { hidden: true }),
    scale: button("scale", "", "Memory over all that the machine has, or from its least to its most"), large: button("large", "A+", "Larger type, for a projector"),
    cursor: div("cursor", { hidden: true }, element("span")),
    plot: div("plot", { tabindex: "0", role: "group", "aria-description": HELP }),
    notes: element("details", { class: "notes", hidden: true }), length: span("length"),
    aloud: element("p", { class: "unseen", "aria-live": "polite" }), still: div("still", { hidden: true }, element("slot")),
  };
  parts.plot.append(parts.head, parts.lanes, parts.says, parts.cursor);
  parts.body = div("body", {}, parts.labels, parts.plot, parts.tops);
  parts.scroll = div("scroll", {}, parts.body);
  parts.root = element("section", { class: "panel", "aria-label": alt },
    element("h3", { hidden: !title }, title),
    element("header", {}, div("what-it-is", {}, span("dot", { "aria-hidden": "true" }), parts.state, parts.joules, span("stamp", { title: stamp }, stamp)),
      div("controls", {}, parts.pause, button("out", "−", "Show more time (−)"), button("in", "+", "Show less time (+)"), button("all", "All", "Show everything (0)"), parts.scale, parts.large)),
    parts.metrics, parts.scroll, parts.still,
    element("footer", {}, parts.who, parts.notes, parts.hint, parts.length), parts.aloud);
  return parts;
}

// A button for each metric, and one for the cores.
function choiceButtons(holder, metrics, cores, act) {
  const chip = (choice, words, shown, given, style) => element("button", {
    "data-choice": choice, type: "button", class: given ? "metric" : "metric none", style, "aria-pressed": String(shown),
    title: given ? false : "No device here gives a number; choose it to read why.", onclick: () => act(choice),
  }, words);
  holder.replaceChildren(...metrics.map(({ metric, given, shown }) => chip(metric, METRICS[metric].title, shown, given, colours(metric))),
    ...(cores.count ? [chip("cores", `${cores.count} ${cores.count === 1 ? "core" : "cores"}`, cores.shown, true, "--c:currentColor")] : []));
}

// The column on the left: the name of a strip, and for every lane its metric and its value. Returns the
// elements of the values by lane, and those of what stands out, each with its devices.
function laneLabels(holder, { strips, track }, unfold) {
  const [values, marks] = [new Map(), []];
  const value = (lane) => values.set(lane, element("b", { class: "value" })).get(lane);
  const mark = (...devices) => marks[marks.push({ devices, node: element("small", { class: "mark" }) }) - 1].node;
  const fold = ({ key, open }, label, title) => element("button", {
    type: "button", class: "fold", "data-choice": key, "aria-expanded": String(open), title, onclick: () => unfold(key),
  }, label);
  const whole = ({ lanes }) => ({ top: lanes[0].top, height: lanes.at(-1).top + lanes.at(-1).height - lanes[0].top });
  const several = new Set(strips.map(({ device }) => device?.name)).size > 2; // else the title or the tooltip is enough
  const lanesOf = ({ device, lanes }, marked) => lanes.map((lane, i) => {
    const name = span("name", { title: device.name || false });
    if (i === 0) name.append(element("strong", {}, marked ? "" : deviceLabel(device)));
    else if (i === 1 && !marked && device.name !== deviceLabel(device)) name.append(element("small", {}, device.name));
    if (i === Math.min(2, lanes.length - 1) && !marked) name.append(mark(device));
    return div(`row ${device.sort}`, { style: at(track, lane) }, name, span("what", { style: colours(lane.metric) }, METRICS[lane.metric].title), value(lane));
  });
  const makers = {
    training: (strip) => [div("row training", { style: at(track, strip.lanes[0]) }, span("name", {}, element("strong", {}, "training")), value(strip.lanes[0]), element("small", { class: "kind" }, strip.lanes[0].training.of))],
    row: (strip) => [div("row device", { style: at(track, strip.lanes[0]) }, fold(strip, deviceLabel({ ...strip.device, of: "" }), strip.device.name), value(strip.lanes[0]),
      mark(strip.device), element("small", { class: "kind" }, strip.device.of || (several ? strip.device.name : "")))],
    heat: (strip) => [div("row device", { style: at(track, whole(strip)) },
      fold(strip, `${deviceLabel(strip.devices[0])} to ${/\d+$/.exec(strip.devices.at(-1).key)?.[0]}`, strip.devices[0].name), value(strip), mark(...strip.devices))],
  };
  const opened = new Set(strips.filter(({ kind }) => kind === "row").map(({ device }) => device.key));
  holder.replaceChildren(...strips.map((strip) => div("strip", { role: "group", "aria-label": strip.device ? `${deviceLabel(strip.device)}, ${strip.device.name}` : strip.kind },
    ...(makers[strip.kind]?.(strip) ?? lanesOf(strip, opened.has(strip.device.key))))));
  return { values, marks };
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
    viewport.height = event.clientY - plot.getBoundingClientRect().top;
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
    viewport.metrics ??= options.shown;
    const parts = (this.parts = skeleton(options, (name) => this.act(name)));
    root.querySelector("slot").replaceWith(parts.root);
    Object.assign(host.dataset, { updates: "0", state: "waiting" });
    this.change = redrawing(host, parts.root, () => this.draw());
    plotInput(parts.plot, viewport, this.change);
    onKeys(parts.plot, (event) => {
      const known = pressed(event, viewport, store.every);
      this.aloud = known && viewport.held !== null;
      this.change();
      return known;
    });
    host.life.add(() => store.listen(this.change));
    if (options.live) host.life.add(() => this.keepLive());
    // Out of sight, too: a panel that took its height when it is reached would move the page.
    if (options.data) store.receive({ history: options.data }).then(() => this.draw()).catch((error) => { this.fault = `cannot be shown here (${error.message})`; host.dataset.state = `fault: ${error.message}`; this.change(); });
  }

  // Time goes on without news of the kernel: the end of what is shown, and "no samples for 5 s".
  keepLive() {
    const { store, viewport, options } = this;
    const tick = setInterval(() => viewport.live && this.change(), TICK);
    const reach = setTimeout(() => { if (!store.opened) store.leave ??= reachKernel(options.address, (news) => store.receive(news)); }, 1000 * REACHED_AFTER);
    return () => {
      clearInterval(tick);
      clearTimeout(reach);
    };
  }

  // Several panels of a recording share a viewport: whichever draws moves it on.
  moveOn(now) {
    const { store, viewport, options } = this;
    if (store.ended !== null || store.gone) viewport.live = false;
    else if (options.live && store.heardAt) viewport.live = true;
    const passed = (now - (viewport.movedAt ?? now)) / 1000;
    viewport.until = viewport.live ? shownUntil(viewport.until, store.until, passed) : store.until;
    if (viewport.playing) {
      viewport.play(Math.min(passed, 0.25)); // a hidden page is not drawn
      this.change();
    }
    viewport.movedAt = now;
  }

  act(name) {
    const { viewport } = this;
    if (name === "pause") viewport.pause();
    else if (name === "all") viewport.all();
    else if (name === "scale") viewport.data = !viewport.data;
    else if (name === "large") viewport.large = !viewport.large;
    else viewport.zoom(name === "in" ? 1 / 1.5 : 1.5);
    if (name === "large") this.laidOut = null;
    this.change();
  }

  draw() {
    const { store, parts, host, viewport } = this;
    this.moveOn(performance.now());
    this.writeState();
    if (parts.plot.clientWidth < 20) return;
    if (this.laidOut !== store.version) this.layout();
    this.laidOut = store.version;
    const width = Math.floor(parts.plot.clientWidth);
    const view = viewport.view();
    const { data } = viewport;
    const scene = { store, view, width, until: viewport.until, theme: parts.root.dataset.theme, data, ...this.shape };
    // Only what has changed: a cursor moves over the same curves.
    const seen = [view.from, view.to, scene.until, width, store.version, this.layouts, scene.theme, data].join();
    if (seen !== this.painted) {
      paintHead(parts.head, scene);
      paintLanes(parts.lanes, scene);
    }
    this.painted = seen;
    for (const [lane, [high, low]] of this.tops) {
      const { from, to } = scaleOf(store, scene.lanes, lane, data);
      write(high, valueText(lane.metric, to));
      write(low, from ? valueText(lane.metric, from) : "");
    }
    write(parts.axis, view.to >= 60 ? "min:s" : "time");
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
    const focused = parts.root.getRootNode().activeElement?.dataset?.choice;
    const size = viewport.large ? LARGER : 1;
    const shape = (this.shape = { size, ...rowsOf(store.spans), ...stripsOf(store, shown, cores.shown, { open: viewport.open, size }) });
    shape.track = Math.round(size * (shape.spanCount * SPAN_HEIGHT + AXIS_HEIGHT + 2));
    this.layouts = (this.layouts ?? 0) + 1;
    for (const [name, pixels] of [["--lk-height", shape.track + shape.height], ["--lk-head", shape.track]]) parts.body.style.setProperty(name, `${pixels}px`);
    parts.root.classList.toggle("larger", viewport.large);
    const [row, heat] = ["row", "heat"].map((kind) => shape.strips.find((one) => one.kind === kind));
    write(parts.hint, heat ? LEGENDS.heat(heat.metric) : row ? LEGENDS.row : LEGENDS.lanes);
    choiceButtons(parts.metrics, metrics, cores, (choice) => {
      if (choice === "cores") viewport.cores = !cores.shown;
      else viewport.metrics = shown.includes(choice) ? shown.filter((one) => one !== choice) : [...shown, choice];
      this.laidOut = null;
      this.change();
    });
    Object.assign(this, laneLabels(parts.labels, shape, (key) => {
      if (!viewport.open.delete(key)) viewport.open.add(key);
      this.laidOut = null;
      this.change();
    }));
    parts.labels.prepend(div("corner", {}, parts.moment));
    parts.root.querySelector(`[data-choice="${CSS.escape(focused)}"]`)?.focus();
    notesOf(parts.notes, store);
    parts.says.replaceChildren(...shape.lanes.filter((lane) => lane.reason).map((lane) => element("p", { style: at(shape.track, lane), title: lane.reason.says },
      element("b", {}, lane.reason.why), ` ${lane.reason.says}`)));
    const plain = shape.lanes.filter((lane) => !lane.kind && !lane.reason && lane.device.sort !== "core");
    this.tops = plain.map((lane) => [lane, [element("span", { style: at(shape.track, lane) }), element("small", { style: at(shape.track, lane) })]]);
    this.bars = shape.lanes.filter(({ kind, device }) => kind === "row" && store.column(device, "power")?.given)
      .map((lane) => [lane, span("watts"), div("filled")]);
    parts.tops.replaceChildren(div("corner", {}, parts.axis), ...this.tops.flatMap(([, nodes]) => nodes),
      ...this.bars.map(([lane, watts, filled]) => div("power", { style: at(shape.track, lane) }, watts, div("bar", { style: colours("power") }, filled))));
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
    const y = viewport.height - this.shape.track;
    const line = viewport.hovered !== null && this.shape.lanes.find(({ kind, top, height }) => kind === "heat" && y >= top && y < top + height);
    const device = line ? `${deviceLabel(line.device)} ${valueOf(this.store, line, cursor)}` : "";
    write(tag, [timeText(cursor, (view.to - view.from) / width < 0.03 ? 0.01 : 0.1), device, inner?.name].filter(Boolean).join(" · "));
    tag.style.top = `${this.shape.track + 2}px`; // the tag stays inside the plot
    move(tag, Math.min(Math.max(-tag.offsetWidth / 2, -x), width - x - tag.offsetWidth));
  }

  writeValues() {
    const { store, viewport, parts } = this;
    const time = viewport.moment();
    write(parts.moment, viewport.cursor() === null && viewport.following ? "now" : `at ${timeText(time)}`);
    for (const [lane, node] of this.values) write(node, this.textOf(lane, time));
    for (const [{ device }, watts, filled] of this.bars) {
      const column = store.column(device, "power");
      const [power, { to }] = [column.table.at(column, time) ?? 0, scaleOf(store, this.shape.lanes, { device, metric: "power" })];
      write(watts, valueText("power", power));
      filled.style.width = `${Math.min((100 * power) / to, 100).toFixed(0)}%`;
      filled.dataset.level = levelOf(power / to);
    }
    const marks = outliers(store, time);
    for (const { devices, node } of this.marks) {
      const marked = devices.filter(({ key }) => marks.has(key));
      const says = marked.slice(0, 1).map((one) => `${devices.length > 1 ? `${deviceLabel(one)} ` : ""}${marks.get(one.key)}`);
      write(node, [...says, ...(marked.length > 1 ? [`and ${marked.length - 1} more`] : [])].join("; "));
    }
    write(parts.joules, joulesText(store, time));
    const others = othersText(store, time);
    parts.who.hidden = !others;
    write(parts.who, others);
    if (this.aloud) write(parts.aloud, summary(store, this.shape.strips, time));
    this.aloud = false;
  }

  textOf(lane, time) {
    const { store } = this;
    if (lane.reason) return "";
    if (lane.kind === "training") return trainingText(lane.training, time).filter(Boolean).join(" · ");
    if (lane.kind === "row") return ["utilisation", "memory"].filter((metric) => store.column(lane.device, metric)).map((metric) => valueOf(store, { ...lane, metric }, time)).join(" · ");
    if (lane.kind !== "heat") return valueOf(store, lane, time);
    const values = lane.devices.map((device) => store.column(device, lane.metric)).flatMap((one) => one?.table.at(one, time) ?? []);
    return `mean ${valueText(lane.metric, values.length ? values.reduce((sum, one) => sum + one, 0) / values.length : null)}`;
  }

  writeState() {
    const { parts, store, viewport, options } = this;
    const { ended, gone, opened, until, every } = store;
    const quiet = (performance.now() - Math.max(this.began, store.heardAt ?? 0)) / 1000;
    const recorded = /^(recorded|modelled)/i.test(options.stamp);
    const state = stateOf({ live: options.live, recorded, ended, gone, opened, quiet, until, every, following: viewport.following });
    this.host.dataset.state = parts.root.dataset.state = state;
    write(parts.state, this.fault ?? stateWords(state, { ended, quiet }));
    parts.still.hidden = !(this.fault || state === "unconnected");
    parts.scroll.hidden = !parts.still.hidden;
    write(parts.scale, viewport.data ? "Scale: data" : "Scale: machine");
    parts.scale.setAttribute("aria-pressed", String(viewport.data));
    parts.large.setAttribute("aria-pressed", String(viewport.large));
    write(parts.pause, viewport.playing || (viewport.live && !viewport.seen) ? "Pause" : viewport.live ? "Follow" : "Play");
    write(parts.length, [options.damage, until ? `${timeText(until)} recorded` : null].filter(Boolean).join(" · "));
  }
}
