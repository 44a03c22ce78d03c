// Pointer, wheel and keys, told to the sight (panel_sight.mjs) as what they mean in time.
import { SHORTEST, inside, toTime } from "./panel_time.mjs";

const CLICK = 4; // pixels that a hand may tremble in a click
const MOST_WHEEL = 120;

export function plotHands(plot, sight) {
  let grip = null;
  const timeAt = (event, view = sight.view()) => {
    const box = plot.getBoundingClientRect();
    return toTime(view, event.clientX - box.left, box.width);
  };
  const perPixel = () => (sight.view().to - sight.view().from) / plot.clientWidth;
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    plot.setPointerCapture(event.pointerId);
    grip = { x: event.clientX, view: { ...sight.view() }, dragged: false };
  });
  plot.addEventListener("pointermove", (event) => {
    sight.hover(timeAt(event));
    if (!grip) return;
    if (Math.abs(event.clientX - grip.x) > CLICK) grip.dragged = true;
    if (!grip.dragged) return;
    plot.classList.add("dragged");
    const by = timeAt(event, grip.view) - toTime(grip.view, grip.x - plot.getBoundingClientRect().left, plot.clientWidth);
    shift(sight, grip.view, -by);
  });
  const release = (event) => {
    if (grip && !grip.dragged && event.type === "pointerup") sight.hold(timeAt(event), CLICK * perPixel());
    grip = null;
    plot.classList.remove("dragged");
    // JupyterLab puts the focus on the cell when it is clicked; keys and wheel are wanted here.
    plot.focus({ preventScroll: true });
  };
  plot.addEventListener("pointerup", release);
  plot.addEventListener("pointercancel", release);
  plot.addEventListener("pointerleave", () => sight.hover(null));
  plot.addEventListener("dblclick", () => sight.all());
  plot.addEventListener("wheel", (event) => {
    // The page must still scroll: zoom with a key held, or when the plot was chosen before.
    const chosen = plot.getRootNode().activeElement === plot;
    if (!chosen && !event.ctrlKey && !event.metaKey && !event.shiftKey) return;
    event.preventDefault();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey;
    if (sideways) sight.move(event.deltaX * perPixel());
    else sight.zoom(timeAt(event), Math.exp(Math.min(Math.max(event.deltaY || event.deltaX, -MOST_WHEEL), MOST_WHEEL) / 400));
  }, { passive: false });
}

function shift(sight, { from, to }, by) {
  const view = inside({ from: from + by, to: to + by }, sight.until());
  sight.show(view.from, view.to);
}

// The overview: its window is dragged, pulled at its edges, or put where one clicks.
export function overviewHands(overview, sight) {
  let grip = null;
  const timeAt = (event) => {
    const box = overview.getBoundingClientRect();
    return toTime({ from: 0, to: sight.until() }, event.clientX - box.left, box.width);
  };
  overview.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    overview.setPointerCapture(event.pointerId);
    const time = timeAt(event);
    const view = sight.view();
    const edge = ["from", "to"].find((one) => event.composedPath()[0].classList?.contains(one));
    if (!edge && (time < view.from || time > view.to)) shift(sight, view, time - (view.from + view.to) / 2);
    grip = { edge, time, view: { ...sight.view() } };
  });
  overview.addEventListener("pointermove", (event) => {
    if (!grip) return;
    const by = timeAt(event) - grip.time;
    const { from, to } = grip.view;
    if (grip.edge === "from") sight.show(Math.min(from + by, to - SHORTEST), to);
    else if (grip.edge === "to") sight.show(from, Math.max(to + by, from + SHORTEST));
    else shift(sight, grip.view, by);
  });
  const release = () => { grip = null; };
  overview.addEventListener("pointerup", release);
  overview.addEventListener("pointercancel", release);
  overview.addEventListener("dblclick", () => sight.all());
}

// The same keys on the plot and on the overview. True where the key meant something.
export function keyMeans({ key, shiftKey, ctrlKey, metaKey, altKey }, sight) {
  if (ctrlKey || metaKey || altKey) return false;
  const { from, to } = sight.view();
  const middle = sight.cursor() ?? (from + to) / 2;
  const meanings = {
    ArrowLeft: () => sight.step(shiftKey ? -10 : -1),
    ArrowRight: () => sight.step(shiftKey ? 10 : 1),
    ArrowUp: () => sight.zoom(middle, 1 / 1.5),
    ArrowDown: () => sight.zoom(middle, 1.5),
    PageUp: () => sight.move(from - to),
    PageDown: () => sight.move(to - from),
    0: () => sight.all(),
    Home: () => sight.jump(false),
    End: () => sight.jump(true),
    " ": () => sight.pause(),
    "[": () => sight.span(-1),
    "]": () => sight.span(1),
    Escape: () => sight.hold(null),
  };
  meanings["+"] = meanings["="] = meanings.ArrowUp;
  meanings["-"] = meanings.ArrowDown;
  if (!Object.hasOwn(meanings, key)) return false;
  meanings[key]();
  return true;
}
