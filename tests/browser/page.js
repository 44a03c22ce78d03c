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
    const dialog = document.querySelector(".jp-Dialog"); // "Select Kernel", of a notebook that names none
    const python = dialog?.querySelector("select option[value*=python3]");
    if (python) python.selected = true;
    dialog?.querySelector(".jp-mod-accept").click();
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
        const { output_type, ename, evalue } = outputs.get(i).toJSON();
        if (output_type === "error") found.push(`code cell ${number + 1}: ${ename}: ${evalue}`);
      }
    });
    if (kernel()?.status !== "idle") found.push(`the kernel is ${kernel()?.status}`);
    return found;
  };

  const outputs = () => codeCells().map((cell) => cell.model.outputs.toJSON());

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
    return Math.ceil(cells().reduce((sum, cell) => sum + cell.node.getBoundingClientRect().height + 10, 200));
  };

  // ---- figures

  const content = () =>
    [...document.querySelectorAll(".jp-Notebook .jp-OutputArea-output, .jp-Notebook .jp-MarkdownOutput")];
  const where = (element) => {
    const cell = element.closest(".jp-Cell");
    return cell ? `cell ${cells().findIndex((one) => one.node === cell) + 1}` : "page";
  };

  // How many shades a picture has, as it looks on white, and the share of it that covers the page.
  const spread = async (image) => {
    await image.decode();
    const canvas = new OffscreenCanvas(200, 200);
    const pen = canvas.getContext("2d");
    pen.drawImage(image, 0, 0, 200, 200);
    const { data } = pen.getImageData(0, 0, 200, 200);
    let opaque = 0;
    const shades = new Set();
    for (let i = 0; i < data.length; i += 4) {
      opaque += data[i + 3] >= 250;
      shades.add(Math.round(255 + (data[i + 3] / 255) * ((data[i] + data[i + 1] + data[i + 2]) / 3 - 255)));
    }
    return { shades: shades.size, opaque: opaque / 40_000 };
  };

  // Panels and players draw themselves in a tree of their own, in place of the still picture inside.
  const VIEWS = ".labkit-panel, .labkit-player, .labkit-players, .labkit-pipelines, .labkit-pipeline, .labkit-traffic, .labkit-explorer, .labkit-server";
  const drawn = ({ shadowRoot }) => [...(shadowRoot?.querySelectorAll("canvas, svg") ?? [])]
    .map((one) => one.getBoundingClientRect()).some(({ width, height }) => width > 200 && height > 30);

  // Pictures of a notebook; JupyterLab's own icons are none.
  const figures = () => content().flatMap((area) => [...area.querySelectorAll("img")].filter(
    (one) => !one.closest(VIEWS)?.shadowRoot && !one.closest("button, .jp-icon, [data-icon]")));

  const figureFaults = async () => {
    const found = [...document.querySelectorAll(VIEWS)].filter((view) => !drawn(view))
      .map((view) => `${where(view)}, ${view.className}: is not drawn (${view.dataset.state})`);
    for (const { dataset, className } of document.querySelectorAll(VIEWS))
      if (dataset.state?.startsWith("fault")) found.push(`${className}: ${dataset.state}`);
    for (const figure of figures()) {
      const complain = (words) => found.push(`${where(figure)}, img: ${words}`);
      try {
        const { shades, opaque } = await spread(figure);
        if (figure.getBoundingClientRect().height < 8) complain("takes no room in the page");
        if (shades < 2) complain("every pixel is the same");
        if (opaque < 0.99) complain("is transparent, so one theme or the other shows through it");
      } catch (error) {
        complain(`could not be loaded (${error.message})`);
      }
      // "Image" is what JupyterLab writes where there are no words.
      if (!figure.alt.replace(/^image$/i, "").trim()) complain("has no text for who cannot see it");
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
    return { rgb: [r, g, b], a: a / 255 };
  };
  const over = (top, below) => ({ rgb: top.rgb.map((one, i) => one * top.a + below.rgb[i] * (1 - top.a)), a: 1 });
  const background = (element) => {
    const layers = [];
    for (let e = element; e && layers.at(-1)?.a !== 1; e = e.parentElement)
      layers.push(colour(getComputedStyle(e).backgroundColor));
    return layers.reduceRight((below, top) => over(top, below), { rgb: [255, 255, 255], a: 1 });
  };
  const luminance = ({ rgb }) => {
    const [x, y, z] = rgb.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };

  // Drawn by others, or a traceback, which is a fault already; and words for ears alone.
  const FOREIGN = "svg, script, style, .jp-InternalAnchorLink, .MathJax, .unseen, "
    + "[data-mime-type='application/vnd.jupyter.stderr']";

  // Words inside an element whose colour is too near to their ground.
  const contrastIn = (area) => {
    const found = new Set();
    const walker = document.createTreeWalker(area, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim();
      const element = walker.currentNode.parentElement;
      if (!text || !element.getClientRects().length || element.closest(FOREIGN)) continue;
      const style = getComputedStyle(element);
      if (style.visibility === "hidden" || parseFloat(style.fontSize) === 0) continue;
      const ink = colour(style.color);
      for (let e = element; e && e !== area.parentElement; e = e.parentElement)
        ink.a *= Number(getComputedStyle(e).opacity);
      const ground = background(element);
      const [low, high] = [luminance(over(ink, ground)), luminance(ground)].sort((a, b) => a - b);
      const ratio = (high + 0.05) / (low + 0.05);
      if (ratio < 4.5) found.add(`${where(element)}: "${text.slice(0, 40)}" has a contrast of ${ratio.toFixed(1)}`);
    }
    return [...found];
  };
  const contrastFaults = () => content().flatMap(contrastIn);

  window.labkitPage = {
    isOpen, isDirty, watchKernel, kernelIsIdle, runAll, isDone, faults, outputs, shutdown, changeTheme, themeIs, height,
    figureFaults, figureCount, contrastIn, contrastFaults,
  };
})();
