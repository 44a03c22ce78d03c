// What all pages share: how they open, elements, keys, the theme of the page, a sharp canvas,
// numbers in words.

// What embed.py's `packed` has packed.
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// An element that the browser tells when it enters and leaves the page. What a view takes from the page (observers, timers,
// listeners) it takes in `host.life.add(take)`, and `take` returns how it is given back: when the output goes, until it
// comes again. (JupyterLab takes cells out that are far from sight, and moves them.)
export const livingIn = (Element) => class extends Element {
  takes = [];
  gives = null;

  add(take) {
    this.takes.push(take);
    this.gives?.push(take());
  }

  connectedCallback() {
    this.gives = this.takes.map((take) => take());
  }

  disconnectedCallback() {
    for (const give of this.gives) give();
    this.gives = null;
  }
};

// A view in each element that waits for it, over the picture or the sentence inside, which stays where `open` fails.
export function mount(View, name, options, css, tries = 100) {
  if (!customElements.get("labkit-life")) customElements.define("labkit-life", livingIn(HTMLElement)); // by the first view of a page
  const waits = ({ dataset }) => dataset.labkit === options.key && !dataset.state;
  const hosts = [...document.querySelectorAll(`.labkit-${name}`)].filter(waits);
  for (const host of hosts) {
    host.dataset.state = "opening";
    // JupyterLab must leave our keys alone: "0 0" restarts a kernel.
    host.setAttribute("data-lm-suppress-shortcuts", "true");
    const root = host.attachShadow({ mode: "open" });
    host.life = element("labkit-life");
    root.append(element("style", {}, css), element("slot"), host.life);
    const view = new View(host, root, options);
    view.open?.(root, options).then(() => { host.dataset.state = "ready"; }, (error) => {
      host.dataset.state = `fault: ${error.message}`;
      throw error;
    });
  }
  // JupyterLab may run a script before its output is in the page.
  if (!hosts.length && tries) requestAnimationFrame(() => mount(View, name, options, css, tries - 1));
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// Writing the same words again would make a browser lay out the page at every drawing.
export function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

// Light or dark, as the page around is. Paper is light.
export function isDark(host) {
  const { jpThemeLight, vscodeThemeKind, theme } = document.body.dataset;
  if (matchMedia("print").matches) return false;
  if (jpThemeLight) return jpThemeLight === "false";
  if (vscodeThemeKind) return !vscodeThemeKind.includes("light");
  if (["light", "dark"].includes(theme)) return theme === "dark"; // the course as a web site
  const ground = getComputedStyle(host).getPropertyValue("--jp-layout-color0").trim();
  if (!ground) return matchMedia("(prefers-color-scheme: dark)").matches;
  const [r, g, b] = rgb(ground);
  return 0.3 * r + 0.59 * g + 0.11 * b < 128;
}

const THEME_ATTRIBUTES = ["data-jp-theme-name", "data-jp-theme-light", "data-vscode-theme-kind", "data-theme", "class"];
const THEME_QUERIES = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print", "(resolution: 1dppx)"];

// Returns `change`, after which `draw` is called in the next frame while the host is in sight and `root` has a width (on
// a slide that is not shown, it has none). It is called for another size or theme as well; `root` is told of the theme.
export function redrawing(host, root, draw) {
  let [asked, visible] = [false, true];
  const change = () => {
    if (asked || !visible) return;
    asked = true;
    requestAnimationFrame((now) => {
      asked = false;
      if (root.clientWidth) draw(now);
    });
  };
  const theme = () => {
    root.dataset.theme = isDark(host) ? "dark" : "light";
    change();
    setTimeout(change, 200); // JupyterLab names the theme before its style sheet counts
    if (matchMedia("print").matches) draw(performance.now()); // there is no next frame
  };
  const show = (is) => {
    visible = is;
    theme();
  };
  host.life.add(() => {
    const themed = new MutationObserver(theme);
    const observers = [themed, new ResizeObserver(change), new IntersectionObserver((entries) => show(entries.at(-1).isIntersecting), { rootMargin: "200px" })];
    const queries = THEME_QUERIES.map((query) => matchMedia(query));
    for (const one of observers.slice(1)) one.observe(host);
    for (const node of [document.body, document.documentElement]) themed.observe(node, { attributes: true, attributeFilter: THEME_ATTRIBUTES });
    for (const one of queries) one.addEventListener("change", theme);
    show(true);
    return () => {
      visible = false;
      for (const one of observers) one.disconnect();
      for (const one of queries) one.removeEventListener("change", theme);
    };
  });
  return change;
}

// `handle` returns whether it knows the key. A known key reaches neither the page nor JupyterLab.
export function onKeys(node, handle) {
  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !handle(event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

// Any colour of CSS as [r, g, b].
const known = new Map();
export function rgb(colour) {
  if (!known.has(colour)) {
    const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    known.set(colour, [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)]);
  }
  return known.get(colour);
}

// A canvas that is sharp on this screen, cleared, with a pen that works in CSS pixels.
export function penOf(canvas, width, height) {
  const ratio = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    Object.assign(canvas, { width: w, height: h });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

// The width of words in pixels, measured once.
const widths = new Map();
export function widthWith(pen) {
  return (text) => {
    const key = pen.font + text;
    if (!widths.has(key)) {
      if (widths.size > 5000) widths.clear();
      widths.set(key, pen.measureText(text).width);
    }
    return widths.get(key);
  };
}

// ---- numbers in words, as labkit.kinds writes them

export const GAP = "\u00a0"; // a number and its unit stay on one line

function scaled(value, units, unit) {
  const [factor, prefix] = units.find(([one]) => value >= 0.9995 * one) ?? units.at(-1);
  const size = value / factor;
  const digits = (factor === 1 && unit === "B") || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return `${size.toFixed(digits)}${GAP}${prefix}${unit}`;
}

export function bytesText(bytes) {
  return scaled(bytes, [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]], "B");
}

export function secondsText(seconds) {
  return seconds ? scaled(seconds, [[1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"]], "s") : `0${GAP}s`;
}

export function countText(count) {
  return count.toLocaleString("en-GB");
}
