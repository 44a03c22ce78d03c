// The device panel: its elements, pointer and keys, and what it says about itself. Words and values are
// real text, so that they can be read aloud, selected and printed; only curves are pixels.
import { element, isDark, watchTheme, write } from "./page.mjs";
import { storeOf } from "./panel_data.mjs";
import {
  AXIS_HEIGHT, METRICS, SHORTEST, SPAN_HEIGHT, Viewport, coloursOf, coresUnfolded, deviceLabel, lengthText, metricsOf,
  ordered, paintLanes, paintOverview, rowsOf, scalesOf, spanAt, stripsOf, summary, timeText, toPixel, toTime, valueOf, valueText,
} from "./panel_draw.mjs";

const TICK = 100; // milliseconds between two drawings of a live panel
const LATE = 1; // seconds that it may be behind its newest sample
const SILENT_AFTER = 3; // seconds without a message
const CONNECTED_WITHIN = 8; // seconds in which the kernel's model comes to life, if it is free
const FORGOTTEN_AFTER = 60; // seconds out of the page: JupyterLab takes outputs out and puts them back
const HELP = "Arrow keys move the cursor, with Shift faster; plus and minus zoom; Home and End go to the beginning and the end; "
  + "0 shows everything; square brackets go from span to span; Space pauses.";

// ---- what it says about itself

// live: made beside a running cell. recorded: by another program. Times in seconds.
export function stateOf({ live, recorded, ended, gone, opened, quiet, until, every, following }) {
  if (ended !== null) return "ended";
  if (!live) return recorded ? "replay" : "ended";
  if (gone) return "gone";
  if (!opened && quiet > CONNECTED_WITHIN) return until ? "kept" : "nothing";
  if (!until) return "waiting";
  if (quiet > SILENT_AFTER + 3 * every) return "silent";
  return following ? "live" : "paused";
}

export const stateWords = (state, { ended, quiet }) => ({
  waiting: "waiting for the first samples",
  nothing: "not connected: the kernel is busy, and the panel fills when it is idle; or it is gone, then run the cell again",
  kept: "not live: as it was saved with the notebook",
  silent: `no samples for ${Math.round(quiet)} s: the kernel is busy or gone`,
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

function skeleton({ stamp = "", alt = "Device panel" }, act) {
  const button = (name, words, title) => element("button", { type: "button", class: name, title, onclick: () => act(name) }, words);
  const div = (name, attributes = {}, ...children) => element("div", { class: name, ...attributes }, ...children);
  const span = (name, attributes = {}) => element("span", { class: name, ...attributes });
  const parts = {
    state: span("state"), stamp: span("stamp", { title: stamp }),
    pause: button("pause", "Pause", "Space"), out: button("out", "−", "Show more time (−)"),
    in: button("in", "+", "Show less time (+)"), all: button("all", "All", "Show everything (0)"),
    speed: element("select", { class: "speed", "aria-label": "speed of replay", onchange: () => act("speed") },
      ...[1, 4, 16].map((one) => element("option", { value: String(one) }, `${one}×`))),
    metrics: div("metrics", { role: "group", "aria-label": "metrics" }),
    devices: element("details", { class: "devices" }),
    labels: div("labels"), moment: span("moment"), axis: span("axis", { "aria-hidden": "true" }),
    lanes: element("canvas", { class: "lanes", "aria-hidden": "true" }), says: div("says"), tops: div("tops", { "aria-hidden": "true" }),
    after: div("after", { hidden: true }), cursor: div("cursor", { hidden: true }, element("span")),
    plot: div("plot", { tabindex: "0", role: "group", "aria-label": "time line", "aria-describedby": "help" }),
    mean: span("mean", { "aria-hidden": "true" }),
    overview: div("overview", { tabindex: "0", role: "slider", "aria-label": "visible stretch of time" }),
    small: element("canvas", { class: "small", "aria-hidden": "true" }),
    window: div("window", {}, element("i", { class: "from" }), element("i", { class: "to" })), here: div("here", { hidden: true }),
    notes: element("details", { class: "notes", hidden: true }), cost: span("cost"),
    aloud: element("p", { class: "unseen", "aria-live": "polite" }), still: div("still", { hidden: true }, element("slot")),
  };
  parts.stamp.textContent = stamp;
  parts.plot.append(parts.lanes, parts.says, parts.after, parts.cursor);
  parts.overview.append(parts.small, parts.window, parts.here);
  parts.body = div("body", {}, parts.labels, parts.plot, parts.tops, parts.mean, parts.overview);
  parts.root = element("section", { class: "panel", "aria-label": alt },
    element("header", {}, div("title", {}, span("dot", { "aria-hidden": "true" }), parts.state, parts.stamp),
      div("controls", {}, parts.pause, parts.speed, parts.out, parts.in, parts.all)),
    div("choices", {}, parts.metrics, parts.devices), parts.body, parts.still,
    element("footer", {}, parts.notes, element("span", { class: "hint" }, "Drag to move · Ctrl + wheel to zoom · click to hold the cursor"), parts.cost),
    element("p", { class: "unseen", id: "help" }, HELP), parts.aloud);
  return parts;
}

function metricButtons(holder, metrics, act) {
  const focused = holder.getRootNode().activeElement?.dataset?.metric;
  holder.replaceChildren(...metrics.map(({ metric, given, shown }) => element("button", {
    "data-metric": metric, type: "button", class: `metric ${metric}${given ? "" : " none"}`, "aria-pressed": String(shown),
    title: given ? false : "No device here gives a number; choose it to read why.", onclick: () => act(metric),
  }, METRICS[metric].title)));
  holder.querySelector(`[data-metric="${focused}"]`)?.focus();
}

function deviceMenu(holder, devices, hidden, act) {
  const shown = devices.filter((one) => !hidden.has(one.key)).length;
  const words = shown === devices.length ? `${shown} devices` : `${shown} of ${devices.length} devices`;
  holder.hidden = devices.length < 2;
  if (holder.open) return holder.firstChild.replaceChildren(words); // leave the boxes while one is chosen
  return holder.replaceChildren(element("summary", {}, words), element("fieldset", { "aria-label": "devices" }, ...devices.map((device) =>
    element("label", {}, element("input", { type: "checkbox", checked: !hidden.has(device.key), onchange: () => act(device.key) }),
      deviceLabel(device), element("small", {}, device.name === deviceLabel(device) ? "" : device.name ?? "")))));
}

// The column on the left: the name of a strip, and for every lane its metric and its value. Returns the
// elements of the values by lane.
function laneLabels(holder, { strips, track }, cores, coreCount, act) {
  const values = new Map();
  const nodes = strips.map(({ device, lanes }) => {
    const label = deviceLabel(device);
    const rows = lanes.map((lane, i) => {
      values.set(lane, element("b", { class: "value" }));
      const name = element("span", { class: "name", title: device.name || false });
      if (i === 0) name.append(element("strong", {}, label));
      else if (i === 1 && device.name && device.name !== label) name.append(element("small", {}, device.name));
      return element("div", { class: `row ${device.sort}`, style: `top:${track + lane.top}px;height:${lane.height}px` },
        name, element("span", { class: `what ${lane.metric}` }, METRICS[lane.metric].title), values.get(lane));
    });
    if (device.sort === "cpu" && coreCount)
      rows.at(-1).firstChild.append(element("button", { type: "button", class: "fold", "aria-expanded": String(cores), onclick: act },
        `${cores ? "▾" : "▸"} ${coreCount} ${coreCount === 1 ? "core" : "cores"}`));
    if (rows.length > 1) rows.at(-1).querySelector("small + .fold")?.previousSibling.remove();
    return element("div", { class: "strip", role: "group", "aria-label": `${label}, ${device.name}` }, ...rows);
  });
  holder.replaceChildren(...nodes);
  return values;
}

function notesOf(holder, store) {
  const names = new Map(store.devices().map((device) => [device.key, deviceLabel(device)]));
  const lists = [...store.states.values()];
  const now = lists.map((list) => list.at(-1));
  const all = [...now, ...lists.flatMap((list) => list.slice(0, -1)).slice(-30)].filter((one) => one.why !== "fine");
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
  const perPixel = () => (viewport.view().to - viewport.view().from) / plot.clientWidth;
  const on = (type, act) => plot.addEventListener(type, (event) => { act(event); change(); }, { passive: false });
  on("pointerdown", (event) => {
    if (event.button !== 0) return;
    plot.setPointerCapture(event.pointerId);
    grip = { x: event.clientX, view: viewport.view(), dragged: false };
  });
  on("pointermove", (event) => {
    viewport.hover(timeAt(event.clientX));
    if (grip && Math.abs(event.clientX - grip.x) > CLICK) grip.dragged = true;
    plot.classList.toggle("dragged", Boolean(grip?.dragged));
    if (grip?.dragged) viewport.move(timeAt(grip.x, grip.view) - timeAt(event.clientX, grip.view), grip.view);
  });
  on("pointerup", (event) => {
    if (grip && !grip.dragged) viewport.hold(timeAt(event.clientX), CLICK * perPixel());
    // JupyterLab puts the focus on the cell when it is clicked; keys and wheel are wanted here.
    plot.focus({ preventScroll: true });
  });
  for (const type of ["pointerup", "pointercancel"]) on(type, () => { grip = null; plot.classList.remove("dragged"); });
  on("pointerleave", () => viewport.hover(null));
  on("dblclick", () => viewport.all());
  on("wheel", (event) => {
    // The page must still scroll: zoom with a key held, or when the plot was chosen before.
    const chosen = plot.getRootNode().activeElement === plot;
    if (!chosen && !event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const turned = Math.min(Math.max(event.deltaY || event.deltaX, -120), 120);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey) viewport.move(event.deltaX * perPixel());
    else viewport.zoom(Math.exp(turned / 400), timeAt(event.clientX));
  });
}

// The overview: its window is dragged, pulled at its edges, or put where one clicks.
function overviewInput(overview, viewport, change) {
  let grip = null;
  const timeAt = (event) => toTime({ from: 0, to: viewport.end() }, event.clientX - overview.getBoundingClientRect().left, overview.clientWidth);
  overview.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    overview.setPointerCapture(event.pointerId);
    const [time, view] = [timeAt(event), viewport.view()];
    const edge = ["from", "to"].find((one) => event.composedPath()[0].classList?.contains(one));
    if (!edge && (time < view.from || time > view.to)) viewport.move(time - (view.from + view.to) / 2);
    grip = { edge, time, view: viewport.view() };
    change();
  });
  overview.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const by = timeAt(event) - grip.time;
    const { from, to } = grip.view;
    if (grip.edge === "from") viewport.show(Math.min(from + by, to - SHORTEST), to);
    else if (grip.edge === "to") viewport.show(from, Math.max(to + by, from + SHORTEST));
    else viewport.move(by, grip.view);
    change();
  });
  for (const type of ["pointerup", "pointercancel"]) overview.addEventListener(type, () => { grip = null; });
  overview.addEventListener("dblclick", () => { viewport.all(); change(); });
}

// The same keys on the plot and on the overview. Returns what is to be read aloud ("cursor", "span"),
// "" for nothing, or null for a key without a meaning.
export function pressed({ key, shiftKey, ctrlKey, metaKey, altKey }, viewport, store, now = performance.now()) {
  if (ctrlKey || metaKey || altKey) return null;
  const { from, to } = viewport.view();
  const far = shiftKey ? 10 : 1;
  const meanings = {
    ArrowLeft: () => { viewport.step(-far, store.every); return "cursor"; },
    ArrowRight: () => { viewport.step(far, store.every); return "cursor"; },
    "[": () => (viewport.span(-1, store.spans) ? "span" : ""),
    "]": () => (viewport.span(1, store.spans) ? "span" : ""),
    ArrowUp: () => viewport.zoom(1 / 1.5), "+": () => viewport.zoom(1 / 1.5), "=": () => viewport.zoom(1 / 1.5),
    ArrowDown: () => viewport.zoom(1.5), "-": () => viewport.zoom(1.5),
    PageUp: () => viewport.move(from - to), PageDown: () => viewport.move(to - from),
    Home: () => viewport.jump(false), End: () => viewport.jump(true),
    0: () => viewport.all(), " ": () => viewport.pause(now), Escape: () => viewport.hold(null),
  };
  return Object.hasOwn(meanings, key) ? meanings[key]() ?? "" : null;
}

// ---- the panel

class Panel {
  constructor(host, options, css) {
    this.host = host;
    this.options = options;
    this.began = this.ticked = performance.now();
    this.store = storeOf(options.key);
    if (options.ended) this.store.ended ??= options.ended;
    const fresh = !this.store.viewport;
    this.viewport = this.store.viewport ??= new Viewport(Boolean(options.live));
    if (!options.live || this.store.ended !== null) this.viewport.stop();
    this.updates = 0;
    this.visible = true;
    this.shape = { strips: [], lanes: [] };
    this.build(css, fresh);
  }

  build(css) {
    const { host, options, viewport, store } = this;
    const change = () => this.change();
    // JupyterLab must leave our keys alone: "0 0" restarts a kernel.
    host.setAttribute("data-lm-suppress-shortcuts", "true");
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const parts = (this.parts = skeleton(options, (name) => this.act(name)));
    root.replaceChildren(element("style", {}, css), parts.root);
    Object.assign(host.dataset, { updates: "0", state: "waiting" });
    plotInput(parts.plot, viewport, change);
    overviewInput(parts.overview, viewport, change);
    for (const part of [parts.plot, parts.overview])
      part.addEventListener("keydown", (event) => {
        const aloud = pressed(event, viewport, store);
        if (aloud === null) return;
        event.preventDefault();
        event.stopPropagation();
        this.aloud = aloud;
        change();
      });
    const close = (event) => { if (event.key ? event.key === "Escape" : !event.composedPath().includes(parts.devices)) parts.devices.open = false; };
    root.addEventListener("click", close);
    parts.devices.addEventListener("keydown", close);
    const resized = new ResizeObserver(change);
    resized.observe(host);
    const scrolled = new IntersectionObserver((entries) => {
      this.visible = entries.at(-1).isIntersecting;
      change();
    }, { rootMargin: "200px" });
    scrolled.observe(host);
    store.listeners.add(change);
    const unwatch = watchTheme(() => this.theme());
    const clock = setInterval(() => this.tick(), TICK);
    this.end = () => {
      clearInterval(clock);
      resized.disconnect();
      scrolled.disconnect();
      unwatch();
      store.listeners.delete(change);
    };
    this.theme();
    if (options.data)
      store.receive({ history: options.data }).catch((error) => {
        this.fault = `cannot be shown here (${error.message})`;
        change();
      });
  }

  // Time goes on without news of the kernel: the end of what is shown, and "no samples for 5 s".
  tick() {
    const now = performance.now();
    const { store, viewport, host } = this;
    this.goneSince = host.isConnected ? null : this.goneSince ?? now;
    if (this.goneSince && now - this.goneSince > 1000 * FORGOTTEN_AFTER) this.end();
    const second = Math.floor(now / 1000) !== Math.floor(this.ticked / 1000);
    this.ticked = now;
    if (viewport.live && (viewport.until < store.until || second)) this.change();
  }

  // Several panels of a recording share a viewport: whichever draws moves it on.
  moveOn(now) {
    const { store, viewport } = this;
    if (viewport.live && (store.ended !== null || store.gone)) viewport.stop();
    if (!viewport.live && this.options.live && store.ended === null && !store.gone && store.heardAt) viewport.live = true;
    viewport.until = viewport.live ? shownUntil(viewport.until, store.until, (now - (viewport.movedAt ?? now)) / 1000) : store.until;
    viewport.movedAt = now;
    if (viewport.playing !== null) viewport.play(now);
  }

  act(name) {
    const { viewport, parts, store } = this;
    if (name === "speed") viewport.speed = Number(parts.speed.value);
    else if (name === "pause") viewport.pause(performance.now());
    else if (name === "all") viewport.all();
    else if (name === "cores") viewport.choices.cores = !(viewport.choices.cores ?? coresUnfolded(store.devices()));
    else viewport.zoom(name === "in" ? 1 / 1.5 : 1.5);
    this.laidOut = null;
    this.change();
  }

  theme() {
    this.parts.root.dataset.theme = isDark(this.host) ? "dark" : "light";
    this.colours = null;
    this.change();
    // A page that is about to be printed has no next frame.
    if (matchMedia("print").matches) this.draw();
    // JupyterLab names the theme before its style sheet counts.
    clearTimeout(this.later);
    this.later = setTimeout(() => { this.colours = null; this.change(); }, 200);
  }

  change() {
    if (this.asked || !this.visible) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  draw() {
    const { store, parts, host, viewport } = this;
    const width = Math.floor(parts.plot.clientWidth);
    this.moveOn(performance.now());
    this.writeState();
    if (width < 20) return;
    if (this.laidOut !== store.version) this.layout();
    this.laidOut = store.version;
    if (!this.colours) this.painted = this.overviewed = null;
    this.colours ??= coloursOf(parts.root);
    const view = viewport.view();
    const scene = { store, view, width, until: viewport.until, colours: this.colours, ...this.shape };
    this.writeTops(scene);
    // Only what has changed: a cursor moves over the same curves.
    const all = [viewport.end(), viewport.until, width, store.version, this.layouts].join();
    const seen = [view.from, view.to, all].join();
    if (all !== this.overviewed) this.drawOverview(scene);
    if (seen !== this.painted) paintLanes(parts.lanes, scene);
    Object.assign(this, { overviewed: all, painted: seen });
    write(parts.axis, view.to >= 60 ? "time, min:s" : "time");
    this.placeCursor(view, width);
    this.writeValues();
    if (viewport.until !== this.drawn) host.dataset.updates = String((this.updates += 1));
    this.drawn = viewport.until;
    if (store.until && !host.dataset.opening) host.dataset.opening = String(Math.round(performance.now() - this.began));
    if (viewport.playing !== null) this.change();
  }

  layout() {
    const { store, parts, viewport: { choices } } = this;
    const devices = ordered(store.devices());
    const cores = choices.cores ?? coresUnfolded(devices);
    const again = () => { this.laidOut = null; this.change(); };
    const metrics = metricsOf(store, choices.metrics);
    const shown = metrics.filter((one) => one.shown).map((one) => one.metric);
    this.layouts = (this.layouts ?? 0) + 1;
    const shape = { ...rowsOf(store.spans), ...stripsOf(store, shown, choices.hidden, cores), metrics: shown };
    shape.track = Math.max(shape.spanCount * SPAN_HEIGHT + 6, 22);
    shape.scale = scalesOf(store, shape.lanes);
    this.shape = shape;
    parts.body.style.setProperty("--lk-height", `${shape.track + shape.height + AXIS_HEIGHT}px`);
    metricButtons(parts.metrics, metrics, (metric) => {
      choices.metrics = shown.includes(metric) ? shown.filter((one) => one !== metric) : [...shown, metric];
      again();
    });
    deviceMenu(parts.devices, devices.filter((one) => one.sort !== "core"), choices.hidden, (key) => {
      if (!choices.hidden.delete(key)) choices.hidden.add(key);
      again();
    });
    this.values = laneLabels(parts.labels, shape, cores, devices.filter((one) => one.sort === "core").length, () => this.act("cores"));
    parts.moment.style.top = `${shape.track - 18}px`;
    parts.labels.append(parts.moment, parts.axis);
    notesOf(parts.notes, store);
    parts.says.replaceChildren(...shape.lanes.filter((lane) => lane.reason).map((lane) => element("p", {
      style: `top:${shape.track + lane.top}px;height:${lane.height}px`, title: lane.reason.says,
    }, element("b", {}, lane.reason.why), ` ${lane.reason.says}`)));
    this.tops = shape.lanes.filter((lane) => !lane.reason && lane.device.sort !== "core")
      .map((lane) => [lane, element("span", { style: `top:${shape.track + lane.top}px` })]);
    parts.tops.replaceChildren(...this.tops.map(([, node]) => node));
  }

  // What the top of each lane stands for.
  writeTops(scene) {
    scene.scale = this.shape.scale = scalesOf(scene.store, scene.lanes);
    for (const [lane, node] of this.tops) write(node, valueText(lane.metric, scene.scale(lane)));
  }

  drawOverview(scene) {
    const wholes = scene.strips.map((one) => one.device).filter((one) => one.sort !== "core");
    const gpus = wholes.filter((one) => one.sort !== "cpu");
    const devices = gpus.length ? gpus : wholes;
    const metric = scene.metrics.find((one) => METRICS[one].most === 100) ?? "utilisation";
    write(this.parts.mean, `${devices.length > 1 ? "mean " : ""}${METRICS[metric].title}`);
    paintOverview(this.parts.small, { ...scene, devices, metric, end: this.viewport.end() });
  }

  placeCursor(view, width) {
    const { parts, viewport } = this;
    const whole = { from: 0, to: viewport.end() };
    const at = (node, x) => { node.style.transform = `translateX(${x.toFixed(1)}px)`; };
    const left = Math.max(0, toPixel(whole, view.from, width));
    at(parts.window, left);
    parts.window.style.width = `${Math.max(Math.min(width, toPixel(whole, view.to, width)) - left, 8)}px`;
    for (const [name, value] of Object.entries({ min: 0, max: whole.to.toFixed(1), now: view.from.toFixed(1), text: `${timeText(view.from)} to ${timeText(view.to)}` }))
      parts.overview.setAttribute(`aria-value${name}`, value);
    const cursor = viewport.cursor();
    const x = cursor === null ? -1 : toPixel(view, cursor, width);
    parts.cursor.hidden = !(x >= 0 && x <= width);
    parts.here.hidden = cursor === null;
    parts.after.hidden = viewport.playing === null || parts.cursor.hidden;
    if (cursor === null) return;
    at(parts.cursor, x);
    at(parts.here, toPixel(whole, cursor, width));
    parts.cursor.classList.toggle("held", viewport.hovered === null);
    const tag = parts.cursor.firstChild;
    const span = spanAt(this.store.spans, cursor);
    write(tag, timeText(cursor, (view.to - view.from) / width < 0.03 ? 0.01 : 0.1) + (span ? ` · ${span.name}` : ""));
    // The tag stays inside the plot.
    const wide = tag.offsetWidth;
    tag.style.transform = `translateX(${Math.min(Math.max(-wide / 2, -x), width - x - wide)}px)`;
    parts.after.style.left = `${x}px`;
  }

  writeValues() {
    const { store, viewport, parts } = this;
    const time = viewport.moment();
    write(parts.moment, viewport.cursor() === null && viewport.following ? "now" : `at ${timeText(time)}`);
    for (const [lane, node] of this.values) {
      const { words, none } = valueOf(store, lane, time);
      write(node, lane.reason ? "" : words);
      node.classList.toggle("reason", none);
    }
    if (this.aloud === "cursor") write(parts.aloud, summary(store, this.shape.strips, time));
    if (this.aloud === "span") {
      const { name, start, end } = viewport.spanShown;
      write(parts.aloud, `${name}, ${lengthText((end ?? viewport.until) - start)}`);
    }
    this.aloud = "";
  }

  writeState() {
    const { parts, store, viewport, options } = this;
    const quiet = (performance.now() - Math.max(this.began, store.heardAt ?? 0)) / 1000;
    const recorded = /^recorded/i.test(options.stamp ?? "");
    const facts = { ...options, recorded, ended: store.ended, gone: store.gone, opened: store.opened, quiet, until: store.until, every: store.every, following: viewport.following };
    const state = stateOf(facts);
    this.host.dataset.state = parts.root.dataset.state = state;
    write(parts.state, this.fault ?? stateWords(state, facts));
    parts.still.hidden = !(this.fault || state === "nothing");
    parts.body.hidden = !parts.still.hidden;
    write(parts.pause, viewport.live ? (viewport.seen ? "Follow" : "Pause") : viewport.playing === null ? "Play" : "Stop");
    parts.speed.hidden = viewport.live;
    write(parts.cost, [store.damage, store.until ? `${lengthText(store.until)} recorded` : null,
      store.cost === null ? null : `sampler: ${(100 * store.cost).toFixed(1)} % of one core`].filter(Boolean).join(" · "));
  }
}

export function mountAll(options, css, tries = 100) {
  const hosts = [...document.querySelectorAll(".labkit-panel")].filter(
    (one) => one.dataset.labkitPanel === options.key && !one.dataset.state);
  for (const host of hosts) new Panel(host, options, css);
  // JupyterLab may run a script before its output is in the page.
  if (!hosts.length && tries) requestAnimationFrame(() => mountAll(options, css, tries - 1));
}
