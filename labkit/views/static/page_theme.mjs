// Light or dark, as the page around is; and a word when that changes.

export function isDark(host, world = globalThis) {
  const { body } = world.document;
  if (world.matchMedia("print").matches) return false;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (body.dataset.vscodeThemeKind) return !body.dataset.vscodeThemeKind.includes("light");
  const ground = world.getComputedStyle(host).getPropertyValue("--jp-layout-color0").trim();
  if (ground) return brightness(ground, world) < 0.5;
  return world.matchMedia("(prefers-color-scheme: dark)").matches;
}

function brightness(colour, world) {
  const pen = world.document.createElement("canvas").getContext("2d");
  pen.fillStyle = "#fff";
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b] = pen.getImageData(0, 0, 1, 1).data;
  return (0.3 * r + 0.59 * g + 0.11 * b) / 255;
}

// Returns what ends the watching.
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
