// What the views share: elements, the theme of the page, a sharp canvas.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// Writing the same words again would make a browser lay out the page ten times a second.
export function write(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

// Light or dark, as the page around is. Paper is light.
export function isDark(host, world = globalThis) {
  const { jpThemeLight, vscodeThemeKind } = world.document.body.dataset;
  if (world.matchMedia("print").matches) return false;
  if (jpThemeLight) return jpThemeLight === "false";
  if (vscodeThemeKind) return !vscodeThemeKind.includes("light");
  const ground = world.getComputedStyle(host).getPropertyValue("--jp-layout-color0").trim();
  if (!ground) return world.matchMedia("(prefers-color-scheme: dark)").matches;
  const [r, g, b] = rgb(ground, world);
  return 0.3 * r + 0.59 * g + 0.11 * b < 128;
}

// Calls `changed` when the theme changes. Returns what ends the watching.
export function watchTheme(changed, world = globalThis) {
  const observer = new world.MutationObserver(changed);
  for (const node of [world.document.body, world.document.documentElement])
    observer.observe(node, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "data-vscode-theme-kind", "class"] });
  const queries = ["(prefers-color-scheme: dark)", "(forced-colors: active)", "print", "(resolution: 1dppx)"].map((one) => world.matchMedia(one));
  for (const query of queries) query.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    for (const query of queries) query.removeEventListener("change", changed);
  };
}

// Any colour of CSS as [r, g, b].
const known = new Map();
export function rgb(colour, world = globalThis) {
  if (!known.has(colour)) {
    const pen = Object.assign(world.document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
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
