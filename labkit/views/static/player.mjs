// The player: redrawn only when something has changed, and only while somebody can see it.
import { isDark, penOf, watchTheme, write } from "./page.mjs";
import { paintCircle, paintCircleMoves } from "./player_circle.mjs";
import { Clock, LANDED } from "./player_clock.mjs";
import { codeView } from "./player_code.mjs";
import { Film, unpack } from "./player_film.mjs";
import { gridWords, paintGrid, paintGridMoves } from "./player_grid.mjs";
import { circleHit, circleLayout, gridHit, gridLayout } from "./player_layout.mjs";
import { FEW, paintOf } from "./player_paint.mjs";
import { icon, legendOf, skeleton } from "./player_parts.mjs";
import { bytesText, cellWords, countText, rankWords, secondsText, stepWords } from "./player_words.mjs";

const LOAD_HEIGHT = 20;

class Player {
  constructor(host, options, css) {
    this.began = performance.now();
    Object.assign(this, { host, options, dirty: {}, visible: true, kind: "grid", hovered: null, picked: null });
    host.dataset.state = "opening";
    // Lumino must leave our keys alone: "0 0" restarts a kernel.
    host.setAttribute("data-lm-suppress-shortcuts", "true");
    this.open(css).catch((error) => {
      // The picture inside stays, and says at least how it ends.
      host.dataset.state = `fault: ${error.message}`;
      throw error;
    });
  }

  async open(css) {
    const { host, options } = this;
    this.film = new Film(await unpack(options.data));
    const reduced = matchMedia("(prefers-reduced-motion: reduce)");
    this.clock = new Clock(this.film.steps, { still: reduced.matches });
    reduced.addEventListener("change", () => {
      this.clock.halt();
      this.clock.still = reduced.matches;
      this.change();
    });
    const parts = (this.parts = skeleton(options, (...what) => this.act(...what)));
    const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
    const sheet = document.createElement("style");
    sheet.textContent = css;
    root.replaceChildren(sheet, parts.root);
    this.furnish();
    this.hands();
    new ResizeObserver(() => this.change("layout")).observe(parts.stage);
    new IntersectionObserver(([one]) => {
      this.visible = one.isIntersecting;
      this.theme();
    }, { rootMargin: "200px" }).observe(host);
    // The page outlives its outputs: what is gone is not held by the theme.
    const self = new WeakRef(this);
    watchTheme(() => self.deref()?.theme());
    this.theme();
    host.dataset.state = "ready";
  }

  // What does not change while it plays.
  furnish() {
    const { parts, film } = this;
    const { op, options } = film.data;
    write(parts.title, film.program);
    const named = Object.entries(options).map(([name, value]) => `${name} = ${value}`);
    write(parts.about, [`${film.ranks} rank${film.ranks === 1 ? "" : "s"}`, ...(named.length ? named : this.film.mixed ? [op] : [])].join(" · "));
    parts.slider.max = String(film.steps);
    for (const part of [parts.slider, parts.first, parts.back, parts.play, parts.forward, parts.last]) part.disabled = !film.steps;
    parts.speed.value = String(this.clock.speed);
    this.code = codeView(film.data.sources);
    parts.root.classList.toggle("alone", !film.data.sources.length);
    if (film.data.sources.length) parts.side.prepend(this.code.node);
    parts.stage.setAttribute("aria-label", gridWords(film));
  }

  hands() {
    const { parts } = this;
    parts.slider.addEventListener("input", () => {
      this.clock.seek(Number(parts.slider.value));
      this.change("aloud");
    });
    parts.root.addEventListener("keydown", (event) => {
      if (!this.key(event)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    const under = (event) => {
      const box = parts.stage.getBoundingClientRect();
      const hit = this.kind === "grid" ? gridHit : circleHit;
      return this.layout ? hit(this.layout, event.clientX - box.left, event.clientY - box.top) : null;
    };
    parts.stage.addEventListener("pointermove", (event) => {
      this.hovered = under(event);
      this.change();
    });
    parts.stage.addEventListener("pointerleave", () => {
      this.hovered = null;
      this.change();
    });
    parts.stage.addEventListener("click", (event) => {
      const found = under(event);
      const again = found && this.picked && found.rank === this.picked.rank && found.cell === this.picked.cell;
      this.picked = again ? null : found;
      // JupyterLab puts the focus on the cell when it is clicked; keys are wanted here.
      parts.stage.focus({ preventScroll: true });
      this.change();
    });
  }

  // The same keys everywhere in the player, but for those that a control needs itself.
  key({ key, shiftKey, ctrlKey, metaKey, altKey, target }) {
    if (ctrlKey || metaKey || altKey || !this.film.steps && key !== "v") return false;
    const on = target.localName;
    if (on === "select" || (on === "button" && (key === " " || key === "Enter"))) return false;
    if (on === "div" && target.classList.contains("code") && ["ArrowUp", "ArrowDown"].includes(key)) return false;
    const pick = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[key];
    if (pick && (shiftKey || ["ArrowUp", "ArrowDown"].includes(key) && this.picked)) return this.pick(...pick);
    const meanings = {
      " ": "play", k: "play", ArrowLeft: "back", ArrowRight: "forward", ArrowDown: "back", ArrowUp: "forward", PageUp: "back", PageDown: "forward",
      Home: "first", End: "last", "+": "faster", "=": "faster", "-": "slower", v: "view", Escape: "escape",
    };
    if (!Object.hasOwn(meanings, key)) return false;
    this.act(meanings[key]);
    return true;
  }

  pick(down, across) {
    const { film } = this;
    const { rank, cell } = this.picked ?? { rank: 0, cell: null };
    const turn = (value, size) => (value + size) % size;
    if (!film.columns) return false;
    this.picked = cell === null ? { rank, cell: 0 } : { rank: turn(rank + down, film.ranks), cell: turn(cell + across, film.columns) };
    this.hovered = null;
    this.change("pick");
    return true;
  }

  act(name, value) {
    const { clock, parts } = this;
    const now = performance.now();
    if (name === "play") clock.toggle(now);
    else if (name === "forward") clock.forward(now);
    else if (name === "back") clock.back();
    else if (name === "first") clock.seek(0);
    else if (name === "last") clock.seek(clock.steps);
    else if (name === "speed") clock.speed = Number(parts.speed.value);
    else if (name === "faster" || name === "slower") clock.faster(name === "faster" ? 1 : -1);
    else if (name === "escape") this.picked = null;
    else if (name === "view") {
      this.kind = value ?? (this.kind === "grid" ? "circle" : "grid");
      return this.change("layout");
    }
    return this.change(clock.moving ? "" : "aloud");
  }

  theme() {
    if (!this.parts) return;
    this.parts.root.dataset.theme = isDark(this.host) ? "dark" : "light";
    this.paint = null;
    this.change();
    // A page that is about to be printed has no next frame.
    if (matchMedia("print").matches) this.draw();
    // JupyterLab names the theme before its style sheet counts.
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      this.paint = null;
      this.change();
    }, 200);
  }

  // ---- drawing

  change(...what) {
    for (const one of what) this.dirty[one] = true;
    if (this.asked || !this.visible) return;
    this.asked = true;
    requestAnimationFrame((now) => {
      this.asked = false;
      this.frame(now);
    });
  }

  frame(now) {
    const { clock } = this;
    const moved = clock.moving;
    clock.playOn(now);
    if (moved && !clock.moving) this.dirty.aloud = true;
    this.draw();
    if (clock.moving) this.change();
  }

  arrange() {
    const { parts, film } = this;
    const width = Math.floor(parts.stage.getBoundingClientRect().width);
    if (width < 40) return false;
    const grid = gridLayout({ width, ranks: film.ranks, columns: film.columns });
    this.layout = this.kind === "grid" ? grid
      : circleLayout({ width, height: Math.min(Math.max(grid.height, 440), Math.max(width, 300), 600), ranks: film.ranks, columns: film.columns });
    parts.below.hidden = this.kind === "grid";
    parts.stage.style.height = `${this.layout.height}px`;
    parts.side.style.setProperty("--lk-tall", `${Math.max(this.layout.height + 40, 420)}px`);
    legendOf(parts.legend, film, FEW, this.kind);
    for (const view of parts.views) view.setAttribute("aria-pressed", String(view.dataset.view === this.kind));
    this.hovered = null;
    this.dirty.fresh = this.dirty.load = true;
    return true;
  }

  draw() {
    const { parts, film, clock, dirty } = this;
    if ((dirty.layout || !this.layout || parts.stage.clientWidth !== this.layout.width) && !this.arrange()) return;
    if (!this.paint) {
      this.paint = paintOf(parts.root);
      dirty.fresh = dirty.load = true;
    }
    const { layout, paint } = this;
    const { step, phase, told } = clock;
    const shown = phase >= LANDED ? step + 1 : step;
    const scene = { film, layout, paint, step, phase, still: clock.still, picked: this.hovered ?? this.picked, fresh: dirty.fresh, below: parts.below };
    if (dirty.fresh || shown !== this.shown) (this.kind === "grid" ? paintGrid : paintCircle)(parts.base, { ...scene, step: shown });
    (this.kind === "grid" ? paintGridMoves : paintCircleMoves)(parts.moves, scene);
    if (dirty.load || told !== this.told || shown !== this.shown) {
      this.paintLoad(told);
      this.words(told, shown);
    }
    this.controls(told);
    this.pointed(shown);
    if (dirty.aloud) write(parts.aloud, `Step ${told} of ${film.steps}. ${stepWords(film, told)}`);
    Object.assign(this, { shown, told, dirty: {} });
    const where = `${step}${phase ? "+" : ""}`; // a plus: on the way to the next
    if (this.host.dataset.step !== where) this.host.dataset.step = where;
    this.host.dataset.opening ??= String(Math.round(performance.now() - this.began));
  }

  // Behind the slider: the bytes of each step, so that the phases of a program can be seen.
  paintLoad(told) {
    const { film, parts, paint } = this;
    const width = parts.scrub.clientWidth;
    const pen = penOf(parts.load, width, LOAD_HEIGHT);
    if (!film.steps) return;
    const loads = film.loads.slice(1);
    const most = Math.max(...loads, 1);
    const room = width - 16; // a slider's thumb stays inside
    loads.forEach((load, i) => {
      const x = 8 + (room * (i + 0.5)) / film.steps;
      const wide = Math.max(1, Math.min(room / film.steps - 1, 26));
      const tall = Math.max(1.5, (LOAD_HEIGHT - 3) * (load / most));
      pen.fillStyle = i + 1 === told ? paint.focus : i + 1 < told ? paint.faint : paint.edge;
      pen.fillRect(x - wide / 2, LOAD_HEIGHT - tall, wide, tall);
    });
  }

  words(told, shown) {
    const { film, parts } = this;
    const { step, messages, bytes, time } = parts.tiles;
    const sent = film.bytes(shown);
    const all = film.bytes(film.steps);
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const count = (until) => film.byStep.slice(0, until + 1).reduce((total, one) => total + one.length, 0);
    write(parts.says, stepWords(film, told));
    write(step.value, `${told}`);
    write(step.more, `of ${film.steps}`);
    write(messages.value, countText(count(shown)));
    write(messages.more, `of ${countText(count(film.steps))}`);
    write(bytes.value, bytesText(sum(sent)));
    write(bytes.more, `of ${bytesText(sum(all))}; busiest rank ${bytesText(Math.max(...sent))} of ${bytesText(Math.max(...all))}`);
    write(time.value, secondsText(film.data.clock[shown] ?? 0));
    write(time.more, `of ${secondsText(film.data.clock.at(-1))}, ${film.data.link.replace(/^modelled: /, "")}`);
    this.code.show(film.lines(told), film.ranks);
  }

  controls(told) {
    const { parts, clock, film } = this;
    if (Number(parts.slider.value) !== told) parts.slider.value = String(told);
    const says = `step ${told} of ${film.steps}`;
    if (parts.slider.getAttribute("aria-valuetext") !== says) parts.slider.setAttribute("aria-valuetext", says);
    if (parts.speed.value !== String(clock.speed)) parts.speed.value = String(clock.speed);
    const name = clock.playing ? "pause" : "play";
    if (parts.play.dataset.shows === name) return;
    parts.play.dataset.shows = name;
    parts.play.replaceChildren(icon(name));
    parts.play.setAttribute("aria-label", name);
    parts.play.title = `${name} (Space)`;
  }

  pointed(shown) {
    const { parts, film } = this;
    const at = this.hovered ?? this.picked;
    const words = !at ? "" : at.cell === null ? rankWords(film, this.clock.told, at.rank) : cellWords(film, shown, at.rank, at.cell);
    write(parts.detail, words || "Point at a cell or a rank, or pick one with Shift and the arrow keys, to read what it holds.");
    parts.detail.classList.toggle("hint", !words);
    if (this.dirty.pick) write(parts.aloud, words);
  }
}

export function mount(host, options, css) {
  return new Player(host, options, css);
}

export function mountAll(options, css, tries = 100) {
  const hosts = [...document.querySelectorAll(".labkit-player")].filter(
    (one) => one.dataset.labkitPlayer === options.key && !one.dataset.state);
  for (const host of hosts) mount(host, options, css);
  // JupyterLab may run a script before its output is in the page.
  if (!hosts.length && tries) requestAnimationFrame(() => mountAll(options, css, tries - 1));
}
