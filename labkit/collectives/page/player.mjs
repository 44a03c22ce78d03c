// The player's page: buttons, keys and pointer; redrawn only when something has changed.
import { barOfControls, onControls, showPlaying } from "../../views/static/controls.mjs";
import { bytesText, element, onKeys, redrawing, secondsText, unpack, write } from "../../views/static/page.mjs";
import {
  boxOf, cellText, FEW, gridGeometry, LANDED, messageText, playbackOf, programLines, ranksText, RunData, travelled,
} from "./player_data.mjs";
import { drawBase, drawMoves, paletteOf } from "./player_draw.mjs";
import { bannerText, NARROW, stageGeometry } from "./player_stage.mjs";

// Words are text, to be read aloud, selected and printed; only ranks and messages are pixels.
const PAGE = `<section class="player">
  <header class="name"><span class="title"></span><span class="about"></span></header>
  ${barOfControls()}
  <p class="says"></p>
  <div class="body">
    <div class="main">
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
  constructor(host) {
    Object.assign(this, { host, began: performance.now(), picked: null });
  }

  async open(root, options) {
    this.data = new RunData(await unpack(options.data));
    this.playback = playbackOf(this.data);
    this.wrong = options.wrong.map(([step, rank, cell]) => ({ step, rank, cell }));
    this.playback.seek(this.wrong[0]?.step ?? 0);
    const page = element("div");
    page.innerHTML = PAGE;
    root.querySelector("slot").replaceWith(page);
    this.parts = Object.fromEntries([...page.querySelectorAll("[class]")].map((one) => [[...one.classList].at(-1), one]));
    this.play = this.parts.play;
    this.parts.player.setAttribute("aria-label", options.alt);
    this.fillStatic();
    const staged = this.data.shape ? [["stage", stageGeometry, this.parts.main]] : [];
    const all = [...staged, ["grid", gridGeometry, staged.length ? this.parts.side : this.parts.main]];
    this.parts.player.classList.toggle("brief", !!options.brief);
    this.panes = (options.leader || options.brief ? all.slice(0, 1) : all).map((one) => this.pane(...one));
    Object.assign(this, { clock: this.data.clock, leader: options.leader });
    this.change = redrawing(this.host, this.parts.player, (now) => this.draw(now));
    this.listen(options.leader);
    if (options.brief && !this.playback.still) this.playback.act("play", performance.now()); // as far as it is in sight
  }

  fillStatic() {
    const { parts, data } = this;
    const options = Object.entries(data.options).map(([name, value]) => `${name} = ${value}`);
    if (!options.length && data.reduced && data.op) options.push(data.op);
    write(parts.title, data.program);
    write(parts.about, [`${data.ranks} rank${data.ranks === 1 ? "" : "s"}`, ...options].join(" · "));
    parts.slider.max = data.steps;
    for (const name of ["slider", "first", "back", "play", "forward", "last"]) parts[name].disabled = !data.steps;
    parts.fold.before(this.fillCode());
    parts.player.dataset.shape = data.shape?.kind ?? "none"; // with a stage, of the program there are the current lines
    parts.track.append(...this.phaseBar());
  }

  // Below the slider, the name of each phase; what is between them has none. With the end of a clock, of the whole
  // program, which names those without room behind its end.
  phaseBar(end) {
    const { phases, steps, clock, program } = this.data;
    if (phases.length < 2) return [];
    const at = (step) => (end ? clock[step] / end : step / steps);
    const isNarrow = phases.some(({ first, last }) => at(last) - at(first - 1) < 0.15);
    const nameOf = ({ name, kind }) => name ?? kind;
    const marks = phases.flatMap((one, i) => [
      element("span", { style: `flex:${at(one.last) - at(one.first - 1)}`, title: nameOf(one) }, isNarrow ? "" : nameOf(one)),
      element("i", { style: `flex:${(phases[i + 1] ? at(phases[i + 1].first - 1) : 1) - at(one.last)}` }),
    ]);
    if (end && isNarrow) marks.at(-1).append(`${program}: ${phases.map(nameOf).join(", ")}`);
    return [element("div", { class: "phases", "aria-hidden": "true" }, ...marks)];
  }

  // Where it is, for those who hear several players.
  said() {
    const { data, playback: { step, time, end } } = this;
    const phase = data.phaseOf(Math.min(step + 1, data.steps));
    return `${data.program}: ${time === end ? "done" : phase?.name ?? `step ${step + 1} of ${data.steps}`}`;
  }

  // The stage or the grid: what stands still and what moves, and what is under a point.
  pane(name, geometryOf, parent) {
    const { data } = this;
    const [base, moves] = ["base", "moves"].map((one) => element("canvas", { class: one }));
    const node = element("div", { class: `pane ${name}`, tabindex: "0", role: "group", "aria-describedby": "help",
      "aria-label": `${name}: ${data.ranks} ranks with ${data.columns} cells each` }, base, moves);
    if (name === "stage") {
      this.banner = Object.fromEntries(["head", "text", "sum", "of"].map((one) => [one, element("span", { class: one })]));
      node.append(element("div", { class: "banner", "aria-hidden": "true" }, ...Object.values(this.banner)));
    }
    parent.prepend(node);
    return { node, base, moves, geometryOf };
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
    this.code = element("div", { class: "scrolls code", tabindex: "0", role: "group", "aria-label": about }, head,
      ...this.lines.map((lines) => element("div", { class: "source" }, ...lines)));
    return this.code;
  }

  listen(leader) {
    const { parts } = this;
    const own = (event) => this.press(event);
    if (leader) onKeys(parts.player, own);
    else onControls(this, parts.player, { own });
    parts.fold.addEventListener("click", () => parts.fold.setAttribute("aria-pressed", this.code.classList.toggle("whole")));
    for (const pane of this.panes) this.listenTo(pane);
  }

  // What is pointed at in the stage is marked in the grid as well, and the other way round.
  listenTo(pane) {
    const { node } = pane;
    const pick = (found) => {
      this.picked = found;
      this.change();
    };
    const pickUnder = ({ clientX, clientY }) => {
      const { left, top, width } = node.getBoundingClientRect();
      const zoom = width / node.clientWidth; // on a slide that is full
      pick(this.under(pane, (clientX - left) / zoom, (clientY - top) / zoom));
    };
    node.addEventListener("pointermove", pickUnder);
    node.addEventListener("pointerdown", pickUnder); // a finger does not move
    node.addEventListener("pointerleave", ({ pointerType }) => pointerType === "mouse" && pick(null));
    // JupyterLab puts the focus on the cell that is clicked; keys are wanted here.
    node.addEventListener("click", () => node.focus({ preventScroll: true }));
  }

  // A message on its way, or a cell, or a rank.
  under({ geometry }, x, y) {
    const phase = this.playback.shown - this.playback.step;
    const share = travelled(phase);
    const message = phase && phase < LANDED ? geometry.moving.findIndex((one) => {
      const box = boxOf(one, share);
      return x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h;
    }) : -1;
    return message < 0 ? geometry.at(x, y) : { message, step: this.told };
  }

  // With Shift, arrows select a cell; the program scrolls by its own.
  press({ key, shiftKey, target }) {
    const { data, picked } = this;
    if (key === "Escape") this.picked = null;
    else if (shiftKey && ARROWS[key] && data.columns) {
      const { rank = 0, cell } = picked ?? {};
      const [down, across] = picked ? ARROWS[key] : [0, 1];
      const turn = (index, size) => (index + size) % size;
      this.picked = { rank: turn(rank + down, data.ranks), cell: turn((cell ?? -1) + across, data.columns) };
    } else return false;
    this.change();
    return true;
  }

  // Where everything stands: once for a size.
  arrange() {
    const { panes, data, parts } = this;
    const widths = panes.map(({ node }) => node.clientWidth);
    const isBelow = widths[0] > 0.6 * this.leader?.section.clientWidth; // of two that were narrow beside each other
    const isLow = innerHeight < 680; // a projector at 125 %
    const low = parts.player.matches(".brief") ? 340 : (isBelow || isLow) && data.ranks < 5 ? 280 : 0;
    const high = document.fullscreenElement ? Math.max(isBelow ? 280 : 400, (innerHeight - 230) / (isBelow ? 2 : 1)) : low;
    const key = `${widths} ${high}`;
    if (key === this.widths || Math.min(...widths) < 40) return;
    this.widths = key;
    if (data.shape) parts.player.dataset.shape = data.shape.kind === "ring" && widths[0] < NARROW ? "narrow" : data.shape.kind;
    panes.forEach((pane, i) => {
      pane.geometry = pane.geometryOf(data, widths[i], high);
      pane.node.style.height = `${pane.geometry.height}px`;
    });
    this.fresh = true;
    parts.side.style.setProperty("--lk-tall", `${Math.max(panes[0].geometry.height + 40, isLow ? 300 : 420)}px`);
    this.fillLegend();
  }

  fillLegend() {
    const { data } = this;
    const key = (mark, words, style = "") => element("span", { class: "key" }, element("i", { class: mark, style }), words);
    const keys = []; // each an element: texts side by side would run into one another
    if (data.ranks <= FEW) {
      for (let rank = 0; rank < data.ranks; rank += 1) keys.push(key("swatch", rank, `background:var(--lk-rank-${rank})`));
      keys.push(element("span", {}, "whose contribution, from left to right"));
      if (data.reduced) keys.push(key("frame", "all of them"));
    } else {
      keys.push(key("place", "a contribution is at its rank's place, rank 0 at the left"));
      if (data.reduced) keys.push(key("some", "one to many"), key("whole", `all ${data.ranks}`));
    }
    if (data.doubled) keys.push(element("span", {}, "with a bar: counted more than once"));
    if (this.wrong.length) keys.push(key("wrong", "wrong from here on"));
    this.parts.legend.replaceChildren(...keys);
  }

  draw(now) {
    const { parts, data, playback } = this;
    playback.advance(now);
    this.arrange();
    if (!this.widths) return;
    const palette = paletteOf(parts.player);
    const looks = JSON.stringify([palette, devicePixelRatio]);
    this.fresh ||= looks !== this.looks;
    this.looks = looks;
    const { step } = playback;
    const phase = playback.shown - step;
    const told = phase ? step + 1 : step; // the step that the page explains: the one under way, or the last
    const shown = phase >= LANDED ? step + 1 : step;
    if (this.picked?.step !== undefined && (!phase || this.picked.step !== told)) this.picked = null; // it has arrived
    const { picked, fresh } = this;
    for (const { geometry, base, moves } of this.panes) {
      const scene = { data, geometry, palette, phase, fresh, picked, wrong: this.wrong };
      if (fresh || shown !== this.shown) drawBase(base, { ...scene, step: shown });
      drawMoves(moves, { ...scene, step });
    }
    if (fresh || told !== this.told || shown !== this.shown) this.explain(told, shown);
    const key = JSON.stringify([told, shown, picked]);
    if (this.banner && key !== this.bannerKey) {
      const words = bannerText(data, told, shown === told, picked);
      for (const name in words) write(this.banner[name], words[name]);
      this.bannerKey = key;
    }
    if (parts.speed.value !== String(playback.speed)) parts.speed.value = playback.speed;
    const words = picked && (picked.step === undefined ? cellText(data, shown, picked.rank, picked.cell)
      : messageText(data, data.messages[told][picked.message]));
    write(parts.detail, words ?? "Point at a cell, a rank or a chunk, or select a cell with Shift and the arrow keys, to read what it holds.");
    parts.detail.classList.toggle("hint", !words);
    if (this.told !== undefined && !playback.moving)
      write(parts.aloud, words ?? parts.says.textContent);
    Object.assign(this, { shown, told, fresh: false });
    this.host.dataset.step = `${step}${phase ? "+" : ""}`; // a plus: on the way to the next
    this.host.dataset.opening ??= Math.round(performance.now() - this.began);
    showPlaying(this);
  }

  // What changes from step to step.
  explain(told, shown) {
    const { parts, data } = this;
    const total = (numbers) => bytesText(numbers.reduce((a, b) => a + b, 0));
    const busiest = (numbers) => bytesText(Math.max(...numbers));
    const [sent, all] = [data.sent[shown], data.sent.at(-1)];
    write(parts.says, `Step ${told} of ${data.steps}. ${data.says[told]}`);
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
