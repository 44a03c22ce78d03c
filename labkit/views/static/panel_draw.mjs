// Everything that is painted on canvas: spans, lanes, time axis, overview. Colours come from the
// style sheet, so that themes, forced colours and print need no second list here.
import { penOf, rgb, widthWith } from "./page_canvas.mjs";
import { SPAN_HEIGHT, bands } from "./panel_spans.mjs";
import { timeText } from "./panel_text.mjs";
import { ticks, toPixel } from "./panel_time.mjs";
import { fillBox, fillLane, raster } from "./panel_raster.mjs";
import { trace } from "./panel_trace.mjs";

export const AXIS_HEIGHT = 22;
export const OVERVIEW_HEIGHT = 36;
const NAMES = ["ink", "faint", "lane", "band", "band-ink", "band-edge", "warn"];
const FONT = "11px system-ui, sans-serif";

export function colours(host, metrics) {
  const style = getComputedStyle(host);
  const read = (name) => style.getPropertyValue(`--lk-${name}`).trim() || "gray";
  return {
    ...Object.fromEntries(NAMES.map((name) => [name, read(name)])),
    metric: Object.fromEntries(metrics.map((metric) => [metric, read(metric.replace("_", "-"))])),
    rgb,
    font: style.getPropertyValue("--lk-canvas-font").trim() || FONT,
  };
}

// scene: { store, view, width, whole, track, lanes, scale, spanRows, colours }
export function paintLanes(canvas, scene) {
  const { width, whole, colours: paint } = scene;
  const pen = penOf(canvas, width, whole);
  pen.font = paint.font;
  pen.textBaseline = "middle";
  const bottom = whole - AXIS_HEIGHT;
  paintCurves(canvas, pen, scene);
  paintAxis(pen, scene, bottom);
  paintTroubles(pen, scene);
  paintSpans(pen, scene, bottom);
}

function paintAxis(pen, { view, width, track, colours: paint }, bottom) {
  const { step, moments } = ticks(view, width);
  const long = view.to >= 60;
  pen.fillStyle = paint.faint;
  pen.globalAlpha = 0.14;
  for (const moment of moments) pen.fillRect(Math.round(toPixel(view, moment, width)), track, 1, bottom - track + 4);
  pen.globalAlpha = 1;
  const widthOf = widthWith(pen);
  for (const moment of moments) {
    const words = timeText(moment, step, long);
    const half = widthOf(words) / 2;
    const x = Math.min(Math.max(toPixel(view, moment, width), half + 1), width - half - 1);
    pen.fillText(words, x - half, bottom + 13);
  }
}

// The curves of all lanes at once, in the pixels of the screen.
function paintCurves(canvas, pen, { store, view, track, lanes, scale, height, colours: paint }) {
  const ratio = canvas.width / parseFloat(canvas.style.width);
  const whole = Math.max(1, Math.round(height * ratio));
  if (sheet?.width !== canvas.width || sheet?.height !== whole) sheet = raster(canvas.width, whole);
  else sheet.pixels.fill(0);
  const ground = paint.rgb(paint.lane);
  for (const lane of lanes) {
    const gauge = store.gauge(lane.device.key, lane.metric);
    if (lane.says || !gauge) continue;
    const top = Math.round(lane.top * ratio);
    const tall = Math.round(lane.height * ratio);
    fillBox(sheet, top, tall, ground);
    const found = trace(gauge.table, gauge.column, view, canvas.width);
    fillLane(sheet, top, tall, found, scale(lane), paint.rgb(paint.metric[lane.metric]), ground, ratio);
  }
  pen.putImageData(new ImageData(sheet.bytes, sheet.width, sheet.height), 0, Math.round(track * ratio));
}
let sheet = null;

function paintTroubles(pen, { store, view, width, track, lanes, colours: paint }) {
  for (const { device, metric, top, height, says } of lanes)
    if (!says)
      for (const trouble of store.troubles(device.key, metric, device.table.source))
        paintTrouble(pen, trouble, { view, width, paint, until: store.until }, track + top, height);
}

// Hatched: there was a number, and it cannot be believed; or there was none, and it is known why.
function paintTrouble(pen, { from, to, why }, { view, width, paint, until }, top, height) {
  const left = Math.max(toPixel(view, from, width), 0);
  const right = Math.min(toPixel(view, Math.min(to, Math.max(until, from)), width), width);
  if (right <= left) return;
  pen.save();
  pen.beginPath();
  pen.rect(left, top, Math.max(right - left, 2), height);
  pen.clip();
  pen.strokeStyle = why === "implausible" ? paint.warn : paint.faint;
  pen.globalAlpha = why === "implausible" ? 0.8 : 0.45;
  pen.lineWidth = 1;
  pen.beginPath();
  // From a fixed origin, so that the hatching does not crawl while the view moves.
  for (let x = left - height - ((left - height) % 6); x < right; x += 6) {
    pen.moveTo(x, top + height);
    pen.lineTo(x + height, top);
  }
  pen.stroke();
  const words = why;
  if (right - left > widthWith(pen)(words) + 12 && height >= 18) {
    pen.globalAlpha = 1;
    pen.fillStyle = paint.lane;
    const wide = widthWith(pen)(words) + 8;
    pen.fillRect(left + 4, top + height / 2 - 8, wide, 16);
    pen.fillStyle = paint.ink;
    pen.fillText(words, left + 8, top + height / 2 + 0.5);
  }
  pen.restore();
}

function paintSpans(pen, scene, bottom) {
  const { store, view, width, spanRows, track, colours: paint } = scene;
  const drawn = new Set();
  const edge = (x) => {
    const pixel = Math.round(x);
    if (x < 0 || x > width || drawn.has(pixel)) return;
    drawn.add(pixel);
    pen.fillRect(pixel, track, 1, bottom - track);
  };
  for (const band of bands(store.spans, spanRows, view, width, store.until, widthWith(pen))) {
    const top = band.row * SPAN_HEIGHT + 2;
    const left = Math.max(band.left, -2);
    const right = Math.min(band.right, width + 2);
    pen.fillStyle = paint.band;
    pen.fillRect(left, top, Math.max(right - left - 1, 1), SPAN_HEIGHT - 3);
    pen.fillStyle = paint["band-edge"];
    pen.fillRect(left, top, 1.5, SPAN_HEIGHT - 3);
    if (right - left > 3) {
      // Edges run down through the lanes: what changed when the epoch began?
      pen.globalAlpha = 0.35;
      edge(band.left);
      if (!band.open) edge(band.right);
      pen.globalAlpha = 1;
    }
    if (band.words) {
      pen.fillStyle = paint["band-ink"];
      pen.fillText(band.words, Math.max(left, 0) + 5, top + (SPAN_HEIGHT - 3) / 2 + 0.5);
    }
  }
}

// The whole recording, small: the mean over the devices that count, of a metric in per cent.
export function paintOverview(canvas, { store, width, devices, metric, until, colours: paint }) {
  const height = OVERVIEW_HEIGHT;
  const pen = penOf(canvas, width, height);
  const view = { from: 0, to: until };
  pen.fillStyle = paint.lane;
  pen.fillRect(0, 0, width, height);
  const total = new Float32Array(width);
  const count = new Uint16Array(width);
  for (const device of devices) {
    const gauge = store.gauge(device.key, metric);
    if (!gauge) continue;
    const { mid } = trace(gauge.table, gauge.column, view, width);
    for (let p = 0; p < width; p += 1) {
      if (mid[p] !== mid[p]) continue;
      total[p] += mid[p];
      count[p] += 1;
    }
  }
  pen.fillStyle = paint.metric[metric];
  pen.globalAlpha = 0.55;
  for (let p = 0; p < width; p += 1) {
    if (!count[p]) continue;
    const tall = Math.max(1, Math.min(total[p] / count[p] / 100, 1) * (height - 6));
    pen.fillRect(p, height - tall, 1, tall);
  }
  pen.globalAlpha = 1;
  pen.fillStyle = paint["band-edge"];
  for (const span of store.spans) {
    const left = toPixel(view, span.start, width);
    pen.fillRect(left, 0, Math.max(toPixel(view, span.end ?? until, width) - left - 1, 1), 3);
  }
}
