// The player's page: buttons, keys and pointer; redrawn only when something has changed.
import { barOfControls, actOfKey, showPlaying } from "./controls.mjs";
import { bytesText, element, onKeys, redrawing, secondsText, unpack, write } from "./page.mjs";
import {
  cellText, FEW, gridGeometry, LANDED, Playback, programLines, ranksText, RunData, SPEEDS, stepText,
} from "./player_data.mjs";
import { drawBase, drawMoves, paletteOf } from "./player_draw.mjs";
import { middleText, ringGeometry } from "./player_ring.mjs";

// Words are text, to be read aloud, selected and printed; only ranks and messages are pixels.
const PAGE = `<section class="player">
  <header class="name"><span class="title"></span><span class="about"></span></header>
  ${barOfControls(SPEEDS, '<div class="phases" aria-hidden="true"></div>',
    '<select class="view" aria-label="picture" title="picture"><option>ring</option><option>grid</option></select>')}
  <p class="says"></p>
  <div class="body">
    <div>
      <div class="stage" tabindex="0" role="group" aria-describedby="help">
        <canvas class="base"></canvas><canvas class="moves"></canvas>
        <div class="middle" aria-hidden="true"><b class="head"></b><span class="text"></span><b class="sum"></b><span class="of"></span></div>
      </div>
      <div class="legend" aria-hidden="true"></div>
      <p class="detail"></p>
    </div>
    <div class="side"><button class="fold" data-act="fold" aria-pressed="false">whole program</button><p class="totals"></p></div>
  </div>
  <p class="unseen" id="help">Space plays and pauses; the arrow keys go a step back or on; Home and End go to the
    beginning and the end. With Shift, the arrow keys select a cell, and what it holds is read aloud; Escape ends that.</p>
  <p class="unseen aloud" aria-live="polite"></p></section>`;
const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class Player {
  constructor(host, root, options) {
    Object.assign(this, { host, began: performance.now(), width: 0, picked: null });
    this.open(root, options).catch((error) => {
      host.dataset.state = `fault: ${error.message}`; // the picture inside stays
      throw error;
    });
  }

  async open(root, options) {
    this.data = new RunData(await unpack(options.data));
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.playback = new Playback(this.data.steps, still, (step) => (this.data.phaseOf(step)?.first ?? step) < step);
    this.wrong = options.wrong.map(([step, rank, cell]) => ({ step, rank, cell }));
    this.playback.seek(this.wrong[0]?.step ?? 0);
    const page = element("div");
    page.innerHTML = PAGE;
    root.querySelector("slot").replaceWith(page);
    this.parts = Object.fromEntries([...page.querySelectorAll("[class]")].map((one) => [[...one.classList].at(-1), one]));
    this.parts.player.setAttribute("aria-label", options.alt);
    this.fillStatic();
    this.change = redrawing(this.host, this.parts.player, (now) => this.draw(now));
    this.listen();
    this.host.dataset.state = "ready";
  }

  fillStatic() {
    const { parts, data } = this;
    const options = Object.entries(data.options).map(([name, value]) => `${name} = ${value}`);
    if (!options.length && data.reduced && data.op) options.push(data.op);
    write(parts.title, data.program);
    write(parts.about, [`${data.ranks} rank${data.ranks === 1 ? "" : "s"}`, ...options].join(" · "));
    parts.slider.max = data.steps;
    for (const name of ["slider", "first", "back", "play", "forward", "last"]) parts[name].disabled = !data.steps;
    parts.stage.setAttribute("aria-label", `${data.ranks} ranks with ${data.columns} cells each`);
    parts.fold.before(this.fillCode());
    parts.view.hidden = !data.direction;
    this.choose();
    if (data.phases.length > 1) for (const { name, first, last } of data.phases)
      parts.phases.append(element("span", { style: `flex:${last - first + 1}` }, name));
  }

  // The ring has the whole width; of the program there are the current lines, until all are asked for.
  choose() {
    const { parts, data } = this;
    this.ring = Boolean(data.direction) && parts.view.value === "ring";
    parts.player.dataset.view = this.ring ? "ring" : "grid";
    parts.middle.hidden = !this.ring;
    this.width = 0; // so that all of it is arranged anew
  }

  fillCode() {
    const line = (text, i) => {
      // A line that is too long goes on below, further in.
      const indent = text.search(/\S|$/) + 2;
      const code = element("code", { style: `padding-left:${indent}ch;text-indent:-${indent}ch` }, text, "\u200b");
      const number = element("span", { class: "number", "aria-hidden": "true" }, String(i + 1));
      return element("div", { class: "line" }, element("span", { class: "on" }), number, code);
    };
    this.lines = this.data.sources.map(([, , text]) => programLines(text).map(line));
    const head = element("div", { class: "heads", "aria-hidden": "true" }, "ranks",
      element("span", { class: "chip busy" }, "communicating"), element("span", { class: "chip waiting" }, "waiting"));
    const about = "the program, with the line in which each rank is";
    this.code = element("div", { class: "code", tabindex: "0", role: "group", "aria-label": about }, head,
      ...this.lines.map((lines) => element("div", { class: "source" }, ...lines)));
    return this.code;
  }

  listen() {
    const { parts } = this;
    parts.player.addEventListener("click", ({ target }) => this.act(target.closest("[data-act]")?.dataset.act));
    parts.speed.addEventListener("change", () => {
      this.playback.speed = Number(parts.speed.value);
    });
    parts.view.addEventListener("change", () => {
      this.choose();
      this.change();
    });
    parts.slider.addEventListener("input", () => {
      this.playback.seek(Number(parts.slider.value));
      this.change();
    });
    onKeys(parts.player, (event) => this.press(event));
    const pick = (found) => {
      this.picked = found;
      this.change();
    };
    const pickUnder = ({ clientX, clientY }) => {
      const { left, top, width } = parts.stage.getBoundingClientRect();
      const zoom = width / parts.stage.clientWidth; // on a slide that is full
      pick(this.geometry?.at((clientX - left) / zoom, (clientY - top) / zoom) ?? null);
    };
    parts.stage.addEventListener("pointermove", pickUnder);
    parts.stage.addEventListener("pointerdown", pickUnder); // a finger does not move
    parts.stage.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && pick(null));
    // JupyterLab puts the focus on the cell that is clicked; keys are wanted here.
    parts.stage.addEventListener("click", () => parts.stage.focus({ preventScroll: true }));
  }

  // The same keys everywhere in the player, but for those that a control needs itself.
  press({ key, shiftKey, target }) {
    const { data } = this;
    const act = key === "Escape" ? "escape" : actOfKey({ key, target });
    if (!act || (target === this.code && ["ArrowUp", "ArrowDown"].includes(key))) return false;
    if (shiftKey && ARROWS[key] && data.columns) {
      const { rank, cell } = this.picked ?? { rank: 0, cell: -1 };
      const [down, across] = this.picked ? ARROWS[key] : [0, 1];
      const turn = (index, size) => (index + size) % size;
      this.picked = { rank: turn(rank + down, data.ranks), cell: turn(cell + across, data.columns) };
      this.change();
    } else this.act(act);
    return true;
  }

  act(name) {
    const { playback } = this;
    const now = performance.now();
    if (name === "play") playback.toggle(now);
    else if (name === "forward") playback.forward(now);
    else if (name === "back") playback.seek(playback.told - 1);
    else if (name === "first") playback.seek(0);
    else if (name === "last") playback.seek(playback.steps);
    else if (name === "escape") this.picked = null;
    else if (name === "fold") this.parts.fold.setAttribute("aria-pressed", this.code.classList.toggle("whole"));
    else return;
    this.change();
  }

  // Where everything stands: once for a width.
  arrange(width) {
    const { parts, data } = this;
    this.width = width;
    if (width < 40) return;
    this.geometry = this.ring ? ringGeometry(data, width) : gridGeometry(data, width);
    this.fresh = true;
    parts.stage.style.height = `${this.geometry.height}px`;
    parts.side.style.setProperty("--lk-tall", `${Math.max(this.geometry.height + 40, 420)}px`);
    this.fillLegend();
  }

  fillLegend() {
    const { data } = this;
    const key = (mark, words, style = "") => element("span", { class: "key" }, element("i", { class: mark, style }), words);
    const keys = [];
    if (data.ranks <= FEW) {
      for (let rank = 0; rank < data.ranks; rank += 1) keys.push(key("swatch", rank, `background:var(--lk-rank-${rank})`));
      keys.push("whose contribution, from left to right");
      if (data.reduced) keys.push(key("frame", "all of them"));
    } else {
      keys.push(key("place", "a contribution is at its rank's place, rank 0 at the left"));
      if (data.reduced) keys.push(key("some", "one to many"), key("whole", `all ${data.ranks}`));
    }
    if (data.doubled) keys.push("with a bar: counted more than once");
    if (this.wrong.length) keys.push(key("wrong", "wrong from here on"));
    this.parts.legend.replaceChildren(...keys);
  }

  draw(now) {
    const { parts, data, playback } = this;
    playback.advance(now);
    const width = parts.stage.clientWidth;
    if (width !== this.width) this.arrange(width);
    const { geometry } = this;
    if (!geometry) return;
    const palette = paletteOf(parts.player);
    const looks = JSON.stringify([palette, devicePixelRatio]);
    this.fresh ||= looks !== this.looks;
    this.looks = looks;
    const { step, phase, told } = playback;
    const shown = phase >= LANDED ? step + 1 : step;
    const { picked, fresh } = this;
    const scene = { data, geometry, palette, phase, fresh, picked, wrong: this.wrong };
    if (fresh || shown !== this.shown) drawBase(parts.base, { ...scene, step: shown });
    drawMoves(parts.moves, { ...scene, step });
    if (fresh || told !== this.told || shown !== this.shown) this.explain(told, shown);
    if (this.ring) {
      const middle = middleText(data, told, shown === told, picked?.rank ?? 0);
      for (const name of ["head", "text", "sum", "of"]) write(parts[name], middle[name]);
    }
    if (parts.speed.value !== String(playback.speed)) parts.speed.value = playback.speed;
    showPlaying(parts.play, playback.target === playback.steps);
    const words = picked && cellText(data, shown, picked.rank, picked.cell);
    write(parts.detail, words ?? "Point at a cell, or select one with Shift and the arrow keys, to read what it holds.");
    parts.detail.classList.toggle("hint", !words);
    if (this.told !== undefined && !playback.moving)
      write(parts.aloud, words ?? parts.says.textContent);
    Object.assign(this, { shown, told, fresh: false });
    this.host.dataset.step = `${step}${phase ? "+" : ""}`; // a plus: on the way to the next
    this.host.dataset.opening ??= Math.round(performance.now() - this.began);
    if (playback.moving) this.change();
  }

  // What changes from step to step.
  explain(told, shown) {
    const { parts, data } = this;
    const total = (numbers) => bytesText(numbers.reduce((a, b) => a + b, 0));
    const busiest = (numbers) => bytesText(Math.max(...numbers));
    const [sent, all] = [data.sent[shown], data.sent.at(-1)];
    write(parts.says, `Step ${told} of ${data.steps}. ${stepText(data, told)}`);
    parts.slider.value = told;
    parts.slider.setAttribute("aria-valuetext", `step ${told} of ${data.steps}`);
    const bytes = `${total(sent)} of ${total(all)} sent, by the busiest rank ${busiest(sent)} of ${busiest(all)}`;
    write(parts.totals, `${bytes}. ${secondsText(data.clock[shown])} of ${secondsText(data.clock.at(-1))}, ${data.link}.`);
    this.showLines(told);
  }

  showLines(told) {
    const chip = (kind, ranks, verb) => {
      const text = ranks.length === this.data.ranks ? "all" : ranksText(ranks);
      const short = text.length > 7 ? `${ranks.length} of ${this.data.ranks}` : text;
      return element("span", { class: `chip ${kind}`, title: `ranks ${ranksText(ranks)} ${verb}` }, short,
        element("span", { class: "unseen" }, ` ${verb}`));
    };
    const lines = this.data.lines(told);
    const key = JSON.stringify(lines);
    if (key === this.key) return; // the next step may be in the same lines
    this.key = key;
    for (const node of this.code.querySelectorAll("[aria-current]")) {
      node.removeAttribute("aria-current");
      node.firstChild.replaceChildren();
    }
    const nodes = lines.map(({ source, line, busy, waiting }) => {
      const node = this.lines[source][line - 1];
      node.setAttribute("aria-current", busy.length ? "step" : "true");
      if (busy.length) node.firstChild.append(chip("busy", busy, "communicating"));
      if (waiting.length) node.firstChild.append(chip("waiting", waiting, "waiting"));
      return node;
    });
    // Only the program scrolls, never the page.
    const [top, end] = [nodes[0]?.offsetTop ?? 0, (nodes.at(-1)?.offsetTop ?? 0) + 20];
    const box = this.code;
    if (nodes.length && (top < box.scrollTop + 30 || end > box.scrollTop + box.clientHeight)) box.scrollTop = top - 48;
  }
}
