// Hosts and the links between them, with what each link carries: live, or from a recording.
import { barOfControls, onControls, Playback, showPlaying } from "../../views/static/controls.mjs";
import { bytesText, element, GAP, redrawing, write } from "../../views/static/page.mjs";
import { firstFrom, storeOf } from "../../telemetry/page/store.mjs";

const SPAN = 0.3; // seconds over which a rate is taken: three samples
const FULL = 0.7;
const PITCH = 86, TOP = 8, BOX = 118, THICKEST = 20, WIDTH = 860;
const MIDDLE = [26, 48], WORDS = [11, 72]; // of the two bands of a link, and of their numbers

// ---- without a page

// Of each link, by name, at a time: bits per second and bytes until then, from it and to it.
export function linksAt({ table, links }, time) {
  const row = Math.max(0, firstFrom(table.times, time + 1e-9) - 1);
  const before = Math.min(row, Math.max(0, firstFrom(table.times, table.times[row] - SPAN - 0.01)));
  const seconds = table.times[row] - table.times[before];
  return links.map(({ name, rate }) => {
    const ways = ["sent", "received"].map((way) => {
      const { values } = table.columns.get(`${name}|${way}`);
      const speed = seconds > 0 ? (8 * (values[row] - values[before])) / seconds : 0;
      return { bytes: values[row] - values[0], speed, share: speed / rate };
    });
    return { name, rate, sent: ways[0], received: ways[1] };
  });
}

// When most data moved: there a recording opens.
export function busiest({ table, links }) {
  const total = (time) => linksAt({ table, links }, time).reduce((sum, { sent }) => sum + sent.speed, 0);
  return table.times.reduce((best, time) => (total(time) > total(best) ? time : best), 0);
}

export function rateText(bits) {
  const [size, unit] = bits >= 1e9 ? [1e9, "Gbit/s"] : bits >= 1e6 ? [1e6, "Mbit/s"] : [1e3, "kbit/s"];
  return `${Number((bits / size).toPrecision(bits >= size ? 3 : 2))}${GAP}${unit}`;
}

export function sentence(links, time) {
  const full = links.flatMap(({ name, sent, received }) => [
    ...(sent.share >= FULL ? [`from ${name}`] : []), ...(received.share >= FULL ? [`to ${name}`] : []),
  ]);
  const idle = links.filter(({ sent, received }) => sent.share < 0.02 && received.share < 0.02);
  const when = `${time.toFixed(1)}${GAP}s`;
  if (idle.length === links.length) return `${when}: no link carries data.`;
  const some = full.length ? `full (70 % or more): the link ${full.slice(0, 6).join(", ")}${full.length > 6 ? ", …" : ""}` : "no link is full";
  return `${when}: ${some}; ${idle.length ? `idle: ${idle.slice(0, 6).map(({ name }) => name).join(", ")}` : "none is idle"}.`;
}

// Where boxes and bands stand: hosts on the left, a switch for each rack, and one for all racks.
export function layout({ hosts, racks }) {
  const high = PITCH - 12;
  const long = racks === 1 ? WIDTH - 2 * BOX : (WIDTH - 3 * BOX) / 2;
  const rows = hosts.map((host, row) => ({ ...host, x: 0, y: TOP + PITCH * row, high, label: `${host.name} · rank${host.ranks.length > 1 ? "s" : ""} ${host.ranks.join(", ")}` }));
  const bands = rows.map(({ name, y }) => ({ name, x: BOX, y, long }));
  const switches = [...Array(racks).keys()].map((rack) => {
    const own = rows.filter((host) => host.rack === rack);
    const [y, last] = [own[0].y, own.at(-1).y];
    if (racks > 1) bands.push({ name: `rack ${rack}`, x: 2 * BOX + long, y: (y + last) / 2, long });
    return { x: BOX + long, y, high: last - y + high, label: racks > 1 ? `rack ${rack}` : "switch" };
  });
  if (racks > 1) switches.push({ x: 2 * (BOX + long), y: TOP, high: rows.at(-1).y - TOP + high, label: "switch" });
  return { boxes: [...rows, ...switches], bands, height: TOP + PITCH * hosts.length };
}

// ---- the page

const svg = (name, attributes, ...children) => {
  const { namespaceURI } = Object.assign(document.createElement("div"), { innerHTML: "<svg></svg>" }).firstChild;
  const made = document.createElementNS(namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

export class Traffic {
  constructor(host, root, options) {
    Object.assign(this, { host, options, store: storeOf(options.key), playback: new Playback([0], () => 1) });
    this.build(root);
    this.change = redrawing(host, this.section, (now) => this.draw(now));
    host.life.add(() => this.store.listen(this.change));
    const failed = (error) => { host.dataset.state = `fault: ${error.message}`; };
    if (options.data) this.store.receive({ history: options.data }).then(() => this.first(), failed);
  }

  build(root) {
    const { options } = this;
    const bar = Object.assign(element("div"), { innerHTML: barOfControls() });
    [this.play, this.slider] = [".play", ".slider"].map((name) => bar.querySelector(name));
    this.slider.step = 0.1;
    this.says = element("p", { class: "says", "aria-live": options.live ? "off" : "polite" });
    const { boxes, bands, height } = layout(options);
    this.bands = new Map();
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": options.alt });
    for (const { x, y, long, name } of bands) {
      const ways = [0, 1].map((way) => {
        const middle = y + MIDDLE[way];
        const band = svg("rect", { x, width: long, y: middle, height: 0, class: way ? "received" : "sent" });
        const words = svg("text", { x: x + long / 2, y: y + WORDS[way], "text-anchor": "middle" });
        drawing.append(svg("line", { x1: x, x2: x + long, y1: middle, y2: middle }), band, words);
        return { band, words, middle };
      });
      this.bands.set(name, ways);
    }
    for (const { x, y, high, label } of boxes) {
      const words = svg("text", { x: x + BOX / 2, y: y + high / 2 + 4, "text-anchor": "middle" }, label);
      drawing.append(svg("rect", { x, y, width: BOX, height: high, class: "box", rx: 4 }), words);
    }
    const ways = ["sent", "received"].map((way) => element("span", {}, element("i", { class: way }), ` ${way} by the host (thickness: share of the rate)`));
    this.section = element("section", { class: "traffic", tabindex: 0, role: "group", "aria-label": `${options.title}. Arrow keys move in time.` },
      element("header", {}, element("b", {}, options.title)), bar, this.says, drawing, element("footer", {}, ...ways, element("em", {}, options.stamp)));
    root.querySelector("slot").replaceWith(this.section);
    onControls(this, this.section);
  }

  first() {
    const [table] = this.store.tables;
    if (!table) return;
    this.playback.moments = [0, ...table.times];
    this.playback.seek(busiest({ table, links: this.options.links }));
    this.change();
  }

  draw(now) {
    const [table] = this.store.tables;
    if (!table?.times.length) return write(this.says, this.options.live ? "No samples yet: the panel fills while ranks run." : "Nothing was counted.");
    const { playback } = this;
    const follows = this.options.live && this.store.ended === null && playback.time === playback.end; // the newest sample
    playback.moments = [0, ...table.times];
    if (follows) playback.seek(playback.end);
    playback.advance(now);
    Object.assign(this.slider, { max: playback.end, value: playback.time });
    showPlaying(this);
    const links = linksAt({ table, links: this.options.links }, playback.time);
    write(this.says, sentence(links, playback.time));
    for (const { name, ...ways } of links)
      this.bands.get(name).forEach(({ band, words, middle }, way) => {
        const { bytes, speed, share } = way ? ways.received : ways.sent;
        const thick = share > 0 ? Math.max(1.5, THICKEST * Math.min(1, share)) : 0;
        band.setAttribute("y", middle - thick / 2);
        band.setAttribute("height", thick);
        band.classList.toggle("full", share >= FULL);
        write(words, `${way ? "←" : "→"} ${rateText(speed)}, ${Math.round(100 * share)} % · ${bytesText(bytes)} so far`);
      });
    this.host.dataset.state = "ready";
  }
}
