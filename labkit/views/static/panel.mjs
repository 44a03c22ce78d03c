// The panel: redrawn only when something has changed, and only while somebody can see it.
import { write } from "./page_elements.mjs";
import { isDark, watchTheme } from "./page_theme.mjs";
import { listen, place } from "./panel_hub.mjs";
import { colours, paintLanes, paintOverview, AXIS_HEIGHT, OVERVIEW_HEIGHT } from "./panel_draw.mjs";
import { keyMeans, overviewHands, plotHands } from "./panel_hands.mjs";
import { coresUnfolded, defaultMetrics, knownMetrics, ordered, scales, strips } from "./panel_lanes.mjs";
import { deviceMenu, labelsOf, laneWords, metricButtons, notesOf, skeleton } from "./panel_parts.mjs";
import { rowsOf, spanAt, trackHeight } from "./panel_spans.mjs";
import { Sight } from "./panel_sight.mjs";
import { Store } from "./panel_store.mjs";
import { METRICS, deviceLabel, lengthText, timeText, valueText } from "./panel_text.mjs";
import { toPixel } from "./panel_time.mjs";
import { unpack } from "./panel_unpack.mjs";
import { footWords, stateOf, stateWords, summary, valueOf } from "./panel_words.mjs";

const AWAY = 60; // seconds out of the page after which a panel is let go

class Panel {
  constructor(host, options, css) {
    this.began = performance.now();
    this.host = host;
    this.options = options;
    this.where = place(options.key);
    this.where.data ??= new Store();
    this.news = { at: this.began, count: 0, drawn: 0, stamps: [], heard: false };
    this.ended = null;
    this.elsewhere = /^recorded/i.test(options.stamp ?? "");
    this.fault = null;
    this.dirty = {};
    this.shape = { strips: [], lanes: [], metrics: [] };
    this.values = new Map();
    this.visible = true;
    this.sight = new Sight(() => this.where.data, Boolean(options.live), this.where.view, (...what) => this.change(...what));
    this.build(css);
  }

  get store() {
    return this.where.data;
  }

  build(css) {
    const { host, options, sight } = this;
    // Lumino must leave our keys alone: "0 0" restarts a kernel.
    host.setAttribute("data-lm-suppress-shortcuts", "true");
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const parts = (this.parts = skeleton(options, (name) => this.act(name)));
    const sheet = document.createElement("style");
    sheet.textContent = css;
    root.replaceChildren(sheet, parts.root);
    Object.assign(host.dataset, { updates: "0", state: options.live ? "waiting" : this.elsewhere ? "replay" : "ended" });
    plotHands(parts.plot, sight);
    overviewHands(parts.overview, sight);
    for (const part of [parts.plot, parts.overview])
      part.addEventListener("keydown", (event) => {
        if (!keyMeans(event, sight)) return;
        event.preventDefault();
        event.stopPropagation();
      });
    root.addEventListener("click", (event) => {
      if (!event.composedPath().includes(parts.devices)) parts.devices.open = false;
    });
    parts.devices.addEventListener("keydown", (event) => {
      if (event.key === "Escape") parts.devices.open = false;
    });
    const resized = new ResizeObserver(() => this.change("lanes", "overview"));
    resized.observe(host);
    const scrolled = new IntersectionObserver(([one]) => {
      this.visible = one.isIntersecting;
      this.change();
    }, { rootMargin: "200px" });
    scrolled.observe(host);
    const endings = [
      () => resized.disconnect(), () => scrolled.disconnect(), watchTheme(() => this.theme()),
      listen(this.where, takerOf(this.where), (news) => this.hear(news)),
    ];
    const clock = setInterval(() => this.tick(), 1000);
    this.end = () => [() => clearInterval(clock), ...endings].forEach((end) => end());
    this.theme();
    if (options.data) this.read(options.data);
  }

  // ---- news

  async read(text) {
    try {
      await loadInto(this.where, text);
    } catch (error) {
      this.fault = `cannot be shown here (${error.message})`;
    }
    if (!this.sight.live && !this.where.view) this.sight.all();
    this.change("layout");
  }

  hear(news) {
    const now = performance.now();
    if (news.opened) this.news.heard = true;
    if (news.lines) {
      Object.assign(this.news, { at: now, heard: true, count: this.news.count + 1 });
      this.news.stamps.push(now);
      if (this.news.stamps.length > 60) this.news.stamps.shift();
    }
    if (news.ended !== undefined) {
      this.ended = news.ended ?? "";
      this.sight.end();
    }
    this.change("overview");
  }

  // Once a second: "no news for 5 s" comes without news.
  tick() {
    // JupyterLab puts outputs away and takes them out again.
    this.away = this.host.isConnected ? 0 : (this.away ?? 0) + 1;
    if (this.away > AWAY) this.end();
    else if (this.sight.live) this.change();
  }

  act(name) {
    const { sight, parts } = this;
    const { from, to } = sight.view();
    const middle = sight.cursor() ?? (from + to) / 2;
    if (name === "speed") sight.speed = Number(parts.speed.value);
    else if (name === "pause") sight.pause();
    else if (name === "all") sight.all();
    else if (name === "cores") {
      sight.choices.cores = !(sight.choices.cores ?? coresUnfolded(this.store.devices()));
      this.change("layout");
    } else sight.zoom(middle, name === "in" ? 1 / 1.5 : 1.5);
  }

  theme() {
    this.parts.root.dataset.theme = isDark(this.host) ? "dark" : "light";
    this.colours = null;
    this.change("lanes", "overview");
    // A page that is about to be printed has no next frame.
    if (matchMedia("print").matches) this.draw();
    // JupyterLab names the theme before its style sheet counts.
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      this.colours = null;
      this.change("lanes", "overview");
    }, 200);
  }

  // ---- drawing

  change(...what) {
    for (const one of what) this.dirty[one] = true;
    if (this.asked || !this.visible || !this.parts) return;
    this.asked = true;
    requestAnimationFrame((now) => {
      this.asked = false;
      if (this.sight.playing !== null) this.sight.playOn(now);
      this.draw();
    });
  }

  draw() {
    const { store, parts, news, host, sight } = this;
    const width = Math.floor(parts.plot.getBoundingClientRect().width);
    if (width < 20) return;
    const numbers = store.tables.map((table) => table.columns.map((one) => Number(one.numbers > 0)).join("")).join(" ");
    const laidOut = `${store.version} ${store.spansVersion} ${numbers}`;
    if (this.dirty.layout || laidOut !== this.laidOut) this.layout();
    this.laidOut = laidOut;
    if (width !== this.width || this.colours === null) this.dirty.lanes = this.dirty.overview = true;
    this.width = width;
    this.colours ??= colours(parts.root, Object.keys(METRICS));
    if (this.dirty.overview) this.drawOverview();
    const view = sight.view();
    if (this.dirty.lanes || news.drawn !== news.count)
      paintLanes(parts.lanes, { ...this.shape, store, view, width, colours: this.colours });
    write(parts.axis, view.to >= 60 ? "time, min:s" : "time");
    this.placeCursor(view);
    this.writeValues();
    this.writeState();
    if (this.dirty.aloud) write(parts.aloud, summary(store, this.shape.strips, sight.moment()));
    if (this.dirty.span) write(parts.aloud, `${sight.spanShown.name}, ${lengthText((sight.spanShown.end ?? store.until) - sight.spanShown.start)}`);
    this.dirty = {};
    this.where.view = store.until ? sight.kept() : null;
    news.drawn = news.count;
    host.dataset.updates = String(news.count);
    if (store.until && !host.dataset.opening) host.dataset.opening = String(Math.round(performance.now() - this.began));
    if (sight.playing !== null) this.change();
  }

  layout() {
    const { store, parts, shape } = this;
    const { choices } = this.sight;
    const devices = ordered(store.devices());
    const known = knownMetrics(store);
    const chosen = choices.metrics ?? defaultMetrics(store);
    const cores = choices.cores ?? coresUnfolded(devices);
    const again = () => this.change("layout");
    shape.metrics = known.filter((one) => chosen.includes(one));
    Object.assign(shape, rowsOf(store.spans), strips(store, { metrics: shape.metrics, hidden: choices.hidden, cores }));
    shape.track = trackHeight(shape.spanCount);
    shape.whole = shape.track + shape.height + AXIS_HEIGHT;
    parts.body.style.setProperty("--lk-height", `${shape.whole}px`);
    const given = (metric) => devices.some((one) => store.has(one.key, metric));
    metricButtons(parts.metrics, known, shape.metrics, given, (metric) => {
      choices.metrics = shape.metrics.includes(metric) ? shape.metrics.filter((one) => one !== metric) : [...shape.metrics, metric];
      again();
    });
    deviceMenu(parts.devices, devices, choices.hidden, (key) => {
      if (!choices.hidden.delete(key)) choices.hidden.add(key);
      again();
    });
    const coreCount = devices.filter((one) => one.sort === "core").length;
    this.values = labelsOf(parts.labels, shape, { cores, coreCount, act: () => this.act("cores") });
    const names = new Map(devices.map((device) => [device.key, deviceLabel(device)]));
    notesOf(parts.notes, [...store.states.values()], (key) => names.get(key) ?? key);
    shape.topWords = null;
    this.dirty.lanes = this.dirty.overview = true;
  }

  drawOverview() {
    const { store, shape, parts } = this;
    shape.scale = scales(store, shape.lanes);
    const words = shape.lanes.map((lane) => valueText(lane.metric, shape.scale(lane)));
    if (words.join() !== shape.topWords) {
      shape.topWords = words.join();
      laneWords(parts, shape, words);
      this.dirty.lanes = true;
    }
    const wholes = shape.strips.map((one) => one.device).filter((one) => one.sort !== "core");
    const gpus = wholes.filter((one) => one.sort !== "cpu");
    const devices = gpus.length ? gpus : wholes;
    const metric = shape.metrics.find((one) => METRICS[one].most === 100) ?? "utilisation";
    write(parts.mean, `${devices.length > 1 ? "mean " : ""}${METRICS[metric].title}`);
    paintOverview(parts.small, { store, width: this.width, until: this.sight.until(), colours: this.colours, devices, metric });
  }

  placeCursor(view) {
    const { parts, sight, width } = this;
    const whole = { from: 0, to: sight.until() };
    const at = (node, x) => { node.style.transform = `translateX(${x.toFixed(1)}px)`; };
    const left = Math.max(0, toPixel(whole, view.from, width));
    at(parts.window, left);
    parts.window.style.width = `${Math.max(Math.min(width, toPixel(whole, view.to, width)) - left, 8)}px`;
    for (const [name, value] of Object.entries({ min: 0, max: whole.to.toFixed(1), now: view.from.toFixed(1), text: `${timeText(view.from)} to ${timeText(view.to)}` }))
      parts.overview.setAttribute(`aria-value${name}`, value);
    const cursor = sight.cursor();
    const x = cursor === null ? -1 : toPixel(view, cursor, width);
    parts.cursor.hidden = !(x >= 0 && x <= width);
    parts.here.hidden = cursor === null;
    parts.after.hidden = sight.playing === null || parts.cursor.hidden;
    if (cursor === null) return;
    at(parts.cursor, x);
    at(parts.here, toPixel(whole, cursor, width));
    parts.cursor.classList.toggle("held", sight.hovered === null);
    const tag = parts.cursor.firstChild;
    const span = spanAt(this.store.spans, cursor);
    write(tag, timeText(cursor, (view.to - view.from) / width < 0.03 ? 0.01 : 0.1) + (span ? ` · ${span.name}` : ""));
    // The tag stays inside the plot.
    const wide = tag.offsetWidth;
    tag.style.transform = `translateX(${Math.min(Math.max(-wide / 2, -x), width - x - wide)}px)`;
    parts.after.style.left = `${x}px`;
  }

  writeValues() {
    const { store, sight, parts } = this;
    const time = sight.moment();
    write(parts.moment, sight.cursor() === null && sight.following ? "now" : `at ${timeText(time)}`);
    for (const [lane, node] of this.values) {
      const { words, none } = valueOf(store, lane, time);
      write(node, lane.says ? "" : words);
      node.classList.toggle("reason", none);
    }
  }

  writeState() {
    const { parts, store, news, sight } = this;
    const now = performance.now();
    const facts = {
      live: sight.live, ended: this.ended, elsewhere: this.elsewhere, following: sight.following, heard: news.heard, count: news.count,
      quiet: (now - news.at) / 1000, until: store.until, every: store.every,
    };
    const state = stateOf(facts);
    this.host.dataset.state = parts.root.dataset.state = state;
    write(parts.state, this.fault ?? stateWords(state, facts));
    parts.still.hidden = !(this.fault || state === "nothing");
    parts.body.hidden = !parts.still.hidden;
    const words = sight.live ? (sight.following ? "Pause" : "Follow") : sight.playing === null ? "Play" : "Stop";
    write(parts.pause, words);
    parts.speed.hidden = sight.live;
    const second = `${Math.floor(now / 1000)} ${state} ${this.dirty.layout}`;
    if (second === this.second) return;
    this.second = second;
    write(parts.cost, footWords(store, state, news.stamps, now));
  }
}

// What puts news into the data that all panels of a key share.
export function takerOf(where) {
  const later = []; // what comes while the past is being unpacked: rows need the sources that it names
  let unpacking = 0;
  const take = (lines) => { for (const line of lines) where.data.take(line); };
  const load = async (text) => {
    unpacking += 1;
    try {
      await loadInto(where, text);
    } finally {
      unpacking -= 1;
      if (!unpacking) take(later.splice(0));
    }
  };
  return (news) => {
    if (news.history) load(news.history);
    if (news.lines) {
      if (unpacking) later.push(...news.lines);
      else take(news.lines);
    }
  };
}

// However old it is: a page may have been told of the past long before its panel came into sight.
async function loadInto(where, text) {
  where.data.load(await unpack(text));
  for (const listener of where.listeners) listener({});
}

export function mount(host, options, css) {
  return new Panel(host, options, css);
}

export function mountAll(options, css, tries = 100) {
  const hosts = [...document.querySelectorAll(".labkit-panel")].filter(
    (one) => one.dataset.labkitPanel === options.key && !one.dataset.state);
  for (const host of hosts) mount(host, options, css);
  // JupyterLab may run a script before its output is in the page.
  if (!hosts.length && tries) requestAnimationFrame(() => mountAll(options, css, tries - 1));
}
