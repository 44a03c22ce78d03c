// Questions that the tests ask a JupyterLab page. It runs in the page, before anything else.
(() => {
  const app = () => window.jupyterapp;
  const panel = () => app()?.shell?.currentWidget;
  const kernel = () => panel()?.sessionContext?.session?.kernel;
  const cells = () => panel().content.widgets;
  const codeCells = () => cells().filter((cell) => cell.model.type === "code");
  let run = null;
  const ailments = [];

  // ---- the notebook and its kernel

  const isOpen = () =>
    Boolean(panel()?.context?.isReady && document.querySelector(".jp-Notebook .jp-Cell"));

  // What JupyterLab shows as a dot on the tab, and asks about when the tab is closed.
  const isDirty = () => panel().context.model.dirty;

  const watchKernel = () => {
    ailments.length = 0;
    run = null;
    panel().sessionContext.statusChanged.connect((_, status) => {
      if (["dead", "autorestarting", "terminating"].includes(status)) ailments.push(status);
    });
  };

  const kernelIsIdle = () => {
    document.querySelector(".jp-Dialog .jp-mod-accept")?.click(); // "Select Kernel": the proposed one
    return kernel()?.status === "idle";
  };

  const runAll = () => {
    run = { done: false };
    const finish = () => { run.done = true; };
    app().commands.execute("notebook:run-all-cells").then(finish, finish);
  };

  const isDone = () =>
    ailments.length > 0 ||
    (run.done && kernel()?.status === "idle" &&
      !codeCells().some((cell) => cell.inputArea.promptNode.textContent.includes("*")));

  const faults = () => {
    const found = ailments.map((status) => `the kernel was ${status}`);
    codeCells().forEach((cell, number) => {
      if (cell.model.sharedModel.getSource().trim() && cell.model.executionCount === null)
        found.push(`code cell ${number + 1} did not run`);
      const outputs = cell.model.outputs;
      for (let i = 0; i < outputs.length; i += 1) {
        const output = outputs.get(i).toJSON();
        if (output.output_type === "error")
          found.push(`code cell ${number + 1}: ${output.ename}: ${output.evalue}`);
      }
    });
    if (kernel()?.status !== "idle") found.push(`the kernel is ${kernel()?.status}`);
    return found;
  };

  const shutdown = async () => {
    await panel().context.revert();
    await app().serviceManager.sessions.shutdownAll();
  };

  // ---- themes

  const changeTheme = (theme) => app().commands.execute("apputils:change-theme", { theme });
  const themeIs = (name) =>
    document.body.dataset.jpThemeName === name &&
    document.body.dataset.jpThemeLight === String(name.endsWith("Light"));

  const height = () => {
    document.querySelectorAll(".jp-WindowedPanel-outer").forEach((e) => { e.scrollTop = 0; });
    const heights = cells().map((cell) => cell.node.getBoundingClientRect().height + 10);
    return Math.ceil(heights.reduce((sum, one) => sum + one, 200));
  };

  // ---- figures

  const content = () =>
    [...document.querySelectorAll(".jp-Notebook .jp-OutputArea-output, .jp-Notebook .jp-MarkdownOutput")];
  const visible = (element) => element.getClientRects().length > 0;
  const where = (element) => {
    const cell = element.closest(".jp-Cell");
    return `cell ${cells().findIndex((one) => one.node === cell) + 1}`;
  };

  const rasterOf = async (element) => {
    if (element instanceof HTMLImageElement) await element.decode();
    let source = element;
    if (element instanceof SVGElement) {
      const { width, height: tall } = element.getBoundingClientRect();
      const copy = element.cloneNode(true);
      copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
      copy.setAttribute("width", width);
      copy.setAttribute("height", tall);
      source = new Image();
      source.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(copy.outerHTML)}`;
      await source.decode();
    }
    const width = source.naturalWidth || source.width;
    const tall = source.naturalHeight || source.height;
    const canvas = new OffscreenCanvas(Math.min(width, 400), Math.max(1, Math.round(tall * Math.min(1, 400 / width))));
    const pen = canvas.getContext("2d");
    pen.drawImage(source, 0, 0, canvas.width, canvas.height);
    return pen.getImageData(0, 0, canvas.width, canvas.height).data;
  };

  const spread = (data) => {
    let [sum, squares, opaque] = [0, 0, 0];
    for (let i = 0; i < data.length; i += 4) {
      const ink = data[i + 3] / 255; // as it looks on white
      const grey = 255 + ink * ((data[i] + data[i + 1] + data[i + 2]) / 3 - 255);
      sum += grey;
      squares += grey * grey;
      opaque += data[i + 3] >= 250;
    }
    const count = data.length / 4;
    return { variance: squares / count - (sum / count) ** 2, opaque: opaque / count };
  };

  // A panel and a player draw themselves in a tree of their own, in place of the still picture inside.
  const VIEWS = ".labkit-panel, .labkit-player";
  const drawn = (panel) => [...(panel.shadowRoot?.querySelectorAll("canvas") ?? [])];

  // Pictures of a notebook; JupyterLab's own icons are none.
  const figures = () =>
    content().flatMap((area) =>
      [...area.querySelectorAll("img, canvas, svg")].filter(
        (one) => !one.closest(VIEWS)?.shadowRoot && !one.closest("button, .jp-icon, [data-icon]") && !one.parentElement.closest("svg")));

  const figureFaults = async () => {
    const found = [];
    for (const view of document.querySelectorAll(VIEWS))
      if (!drawn(view).some((canvas) => canvas.width > 200 && canvas.height > 40))
        found.push(`${where(view)}, ${view.className}: is not drawn`);
    for (const figure of figures()) {
      const name = `${where(figure)}, ${figure.localName}`;
      try {
        const { variance, opaque } = spread(await rasterOf(figure));
        if (!visible(figure) || figure.getBoundingClientRect().height < 8)
          found.push(`${name}: takes no room in the page`);
        if (!(variance > 1)) found.push(`${name}: every pixel is the same`);
        const backed = figure.localName !== "svg" ? opaque > 0.99 : true;
        if (!backed) found.push(`${name}: is transparent, so one theme or the other shows through it`);
      } catch (error) {
        found.push(`${name}: could not be loaded (${error.message})`);
      }
      // "Image" is what JupyterLab writes where there are no words.
      const words = figure.localName === "img" ? figure.alt.replace(/^image$/i, "")
        : figure.getAttribute("aria-label") || figure.querySelector?.("title")?.textContent
          || (figure.getAttribute("aria-hidden") === "true" ? "hidden" : "");
      if (!words?.trim()) found.push(`${name}: has no text for who cannot see it`);
    }
    return found;
  };

  const figureCount = () => figures().length;

  // ---- contrast (WCAG 2.2, 1.4.3)

  const painter = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const colour = (css) => {
    painter.clearRect(0, 0, 1, 1);
    painter.fillStyle = css;
    painter.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = painter.getImageData(0, 0, 1, 1).data;
    return { r, g, b, a: a / 255 };
  };
  const over = (top, below) => {
    const mix = (channel) => top[channel] * top.a + below[channel] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  const background = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const layer = colour(getComputedStyle(e).backgroundColor);
      layers.push(layer);
      if (layer.a === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), { r: 255, g: 255, b: 255, a: 1 });
  };
  const luminance = ({ r, g, b }) => {
    const [x, y, z] = [r, g, b].map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };

  // Drawn by others, or a traceback, which is a fault already.
  const FOREIGN = "svg, script, style, .jp-InternalAnchorLink, .MathJax, "
    + "[data-mime-type='application/vnd.jupyter.stderr']";

  const contrastFaults = (least = 4.5) => {
    const found = new Set();
    for (const area of content()) {
      const walker = document.createTreeWalker(area, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const text = walker.currentNode.textContent.trim();
        const element = walker.currentNode.parentElement;
        if (!text || !visible(element) || element.closest(FOREIGN))
          continue;
        const style = getComputedStyle(element);
        if (style.visibility === "hidden" || Number(style.fontSize.replace("px", "")) === 0) continue;
        let ink = colour(style.color);
        for (let e = element; e && e !== area.parentElement; e = e.parentElement)
          ink = { ...ink, a: ink.a * Number(getComputedStyle(e).opacity) };
        const ground = background(element);
        const ratio = contrast(over(ink, ground), ground);
        if (ratio < least)
          found.add(`${where(element)}: "${text.slice(0, 40)}" has a contrast of ${ratio.toFixed(1)}`);
      }
    }
    return [...found];
  };

  window.labkitPage = {
    isOpen, isDirty, watchKernel, kernelIsIdle, runAll, isDone, faults, shutdown, changeTheme, themeIs, height,
    figureFaults, figureCount, contrastFaults,
  };
})();
