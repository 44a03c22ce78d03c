// The panel's pure parts: data, time, lanes, curves, input, words. Run by test_pages.py.
import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync } from "node:zlib";

import { livingIn, redrawing } from "../../labkit/views/static/page.mjs";
import { pressed, stateOf, stateWords } from "../../labkit/telemetry/page/panel.mjs";
import { Store, openChannel, storeOf } from "../../labkit/telemetry/page/store.mjs";
import {
  METRICS, Viewport, coresUnfolded, fillHeat, fillLane, followed, joulesText, metricsOf, ordered, othersText, outliers, rowsOf, scaleOf, spanAt,
  stripsOf, summary, trace, trainingText, trainings,
} from "../../labkit/telemetry/page/panel_draw.mjs";

const plain = (text) => text.replaceAll("\u00a0", " ");
const near = (a, b, by = 1e-6) => assert.ok(Math.abs(a - b) <= by, `${a} is not ${b}`);
const GPU = (n) => ({ key: `gpu${n}`, name: "H200", sort: "gpu", memory_total: 80e9, power_limit: 700 });
const SOURCE = { source: "gpus", metrics: ["utilisation", "temperature"], devices: [GPU(0)] };

function filled(rows, value, every = 0.1) {
  const store = new Store();
  for (const line of [{ labkit: "recording", format: 1, every }, SOURCE]) store.take(line);
  for (let i = 0; i < rows; i += 1) store.take([0, i * every, value(i)]);
  return store;
}
// A page is given them by Python.
for (const [metric, unit, most] of [["utilisation", "%", 100], ["memory", "B", "memory_total"], ["power", "W", "power_limit"], ["temperature", "°C"], ["clock", "MHz"]])
  METRICS[metric] = { title: metric, unit, most };
const column = (store, metric = "utilisation", key = "gpu0") => store.column({ key }, metric);
const at = (store, time, metric, key) => column(store, metric, key).table.at(column(store, metric, key), time);

// ---- in the page and out of it

test("a view gives back what it has taken from the page when its output goes, and takes it again", () => {
  let held = 0;
  const count = { observe() { this.on ??= (held += 1); }, disconnect() { held -= 1; }, addEventListener() { held += 1; }, removeEventListener() { held -= 1; } };
  function Watch() { Object.setPrototypeOf(this, count); }
  const page = { body: { dataset: { theme: "dark" } } };
  Object.assign(globalThis, { ResizeObserver: Watch, IntersectionObserver: Watch, MutationObserver: Watch, matchMedia: () => new Watch(), requestAnimationFrame() {}, document: page });
  const life = new (livingIn(Object))();
  redrawing({ life }, { dataset: {} }, () => {});
  const seen = ["connected", "disconnected", "connected"].map((comes) => {
    life[`${comes}Callback`]();
    return held;
  });
  assert.deepEqual(seen, [7, 0, 7]);
});

test("a store stays while it is shown, or may be fed, and a little longer", (t) => {
  const [world, left, later] = [{}, [], []];
  t.mock.method(globalThis, "setTimeout", (act) => later.push(act));
  const store = storeOf("k", world);
  openChannel({ get: (name) => (name === "panel" ? "k" : ""), on() {} }, world);
  const kept = () => world[Symbol.for("labkit.panels")].has("k");
  store.leave = () => left.push("kernel");
  store.listen(() => {})();
  assert.deepEqual([kept(), later, left], [true, [], []]);
  store.receive({ ended: "stopped" });
  assert.deepEqual([kept(), left], [true, ["kernel"]]);
  for (const act of later) act();
  assert.equal(kept(), false);
});

// ---- data

test("rows that are known already, or of an unknown source, are not taken; null is no number", () => {
  const store = filled(30, (i) => [i < 10 ? 50 : null, null]);
  store.take([0, 0.5, [9, 9]]);
  store.take([7, 99, [1, 1]]);
  assert.deepEqual([at(store, 0.5), at(store, 2.9), at(store, 1, "temperature")], [50, null, null]);
  near(store.until, 2.9);
  assert.deepEqual(metricsOf(store, null).map(({ metric, given }) => [metric, given]), [["utilisation", true], ["temperature", false]]);
});

test("the reason for a missing number is that of the metric, its device or its source, at that time", () => {
  const store = filled(100, () => [1, null]);
  const say = (time, device, metric, state) => store.take({ state, time, device, metric, says: "" });
  for (const [time, device, metric, state] of [[0, "gpu0", "temperature", "not supported"], [3, "gpu0", "", "lost"], [5, "gpu0", "", "fine"], [7, "gpus", "", "silent"], [7, "gpus", "", "silent"]])
    say(time, device, metric, state);
  const gpu = { key: "gpu0", source: "gpus" };
  const why = (metric, time) => store.reason(gpu, metric, time)?.why ?? null;
  assert.deepEqual([2, 4, 6, 8].map((t) => why("utilisation", t)), [null, "lost", null, "silent"]);
  assert.equal(why("temperature", 6), "not supported");
});

// As panel.py packs it: the lines of a recording.
function packedPast(seconds) {
  const lines = [{ labkit: "recording", every: 0.1 }, SOURCE, [0, 0, [1, null]], { span: "a", start: 0 }, { end: seconds }];
  return gzipSync(JSON.stringify(lines)).toString("base64");
}

test("a page opened anew has the past and all that comes meanwhile; an older past takes nothing away", async () => {
  const store = new Store();
  const past = store.receive({ history: packedPast(1.3) });
  store.receive({ lines: JSON.stringify([[0, 2.5, [51, null]], { span: "a", start: 0, end: 2 }, { span: "b", start: 2 }, { span: "a", start: 0, end: 9 }]) });
  assert.equal(store.until, 0);
  await past;
  await store.receive({ history: packedPast(2) });
  assert.equal(at(store, 2.5), 51);
  assert.deepEqual(store.spans.map(({ name, end }) => [name, end]), [["a", 2], ["b", null]]);
});

// ---- time

function watched(live) {
  const viewport = new Viewport(live);
  viewport.until = 100;
  return viewport;
}

test("the cursor stays where it is while zooming, and the view stays inside", () => {
  for (let i = 0; i < 500; i += 1) {
    const [one, share] = [watched(false), (i * 0.618) % 1];
    one.show(90 * share, 100 - 3 * (i % 3));
    const { from, to } = one.view();
    const pointer = from + ((i * 0.33) % 1) * (to - from);
    one.hold(pointer);
    one.zoom(0.2 + 3 * share);
    const found = one.view();
    assert.ok(found.from >= -1e-9 && found.to <= 100 + 1e-9 && found.to - found.from >= 0.5 - 1e-9);
    if (found.from > 1e-9 && found.to < 100 - 1e-9) near((pointer - found.from) / (found.to - found.from), (pointer - from) / (to - from));
  }
});

test("a live panel fills a still axis, follows, holds when paused, and follows again", () => {
  assert.deepEqual([0, 12, 31, 90].map((until) => followed(until)), [[0, 15], [0, 15], [0, 31], [30, 90]].map(([from, to]) => ({ from, to })));
  const one = watched(true);
  assert.deepEqual(one.view(), { from: 40, to: 100 });
  one.pause();
  one.until = 120;
  assert.deepEqual(one.view(), { from: 40, to: 100 });
  one.pause();
  assert.deepEqual(one.view(), { from: 60, to: 120 });
  one.zoom(0.5);
  assert.deepEqual(one.view(), { from: 90, to: 120 });
  one.zoom(100);
  assert.deepEqual(one.view(), { from: 0, to: 120 });
});

test("a recording plays what is in sight, to its end, and begins again", () => {
  const one = watched(false);
  one.pause();
  assert.deepEqual([one.playing, one.held], [true, 0]);
  one.play(5);
  near(one.held, 25);
  one.pause(); // here it stops
  one.pause();
  for (let i = 0; i < 4; i += 1) one.play(5);
  assert.deepEqual([one.playing, one.held], [false, 100]);
  one.pause();
  assert.deepEqual([one.playing, one.held], [true, 0]);
});

test("every key has its meaning, and no other one", () => {
  const one = watched(false);
  one.show(0, 50);
  const press = (key, more = {}) => pressed({ key, ...more }, one, 0.1);
  assert.ok(press("0"));
  assert.deepEqual(one.view(), { from: 0, to: 100 });
  press("ArrowRight");
  const first = one.held;
  press("ArrowRight", { shiftKey: true });
  near(one.held - first, 10 * Math.max(0.1, 100 / 300));
  press("+");
  near(one.view().to - one.view().from, 100 / 1.5);
  for (const [key, held, edge] of [["Home", 0, 0], ["End", 100, 100], ["Escape", null, 100]]) {
    press(key);
    assert.equal(one.held, held);
    assert.ok(Object.values(one.view()).includes(edge));
  }
  press("0");
  assert.deepEqual(one.view(), { from: 0, to: 100 });
  assert.deepEqual([press("x"), press("toString")], [false, false]);
});

// ---- curves

const known = ({ mid }) => [...mid].map((one) => one === one);

test("few samples are joined by lines, and never across a gap; a slow metric has none", () => {
  const store = filled(100, (i) => [i >= 30 && i < 60 ? null : i, i % 5 ? null : 40]);
  const found = trace(column(store), { from: 0, to: 10 }, 1000);
  const there = known(found);
  assert.ok(there.slice(0, 290).every(Boolean) && there.slice(601, 990).every(Boolean));
  assert.ok(there.slice(292, 598).every((one) => !one));
  near(found.mid[105], 10.5, 0.1);
  assert.ok(known(trace(column(store, "temperature"), { from: 0, to: 9.4 }, 100)).every(Boolean));
  assert.ok(known(trace(column(store), { from: 50, to: 60 }, 80)).every((one) => !one));
  assert.ok(known(trace(column(store), { from: 0, to: 10 }, 100, 2)).slice(21).every((one) => !one)); // later is not shown yet
  assert.ok(known(trace(column(store), { from: 7.03, to: 7.07 }, 100)).every(Boolean)); // no sample in sight
});

test("zoomed out, every extreme is where it was, the middle is the mean, and a gap stays a gap", () => {
  const store = filled(30_000, (i) => [i === 12_345 ? 99 : i === 23_456 ? 1 : i % 2 ? 30 : 50, i > 8000 && i < 12_000 ? null : 40]);
  for (const width of [150, 400, 1500]) {
    const found = trace(column(store), { from: 0, to: 3000 }, width);
    near(Math.max(...found.high), 99, 1e-4);
    near(Math.min(...found.low), 1, 1e-4);
    assert.ok(Math.abs(found.high.findIndex((one) => one > 98) - (1234.5 / 3000) * width) <= 1.5);
    assert.ok(known(found).every(Boolean));
    near(found.mid[10], 40, 1);
  }
  const there = known(trace(column(store, "temperature"), { from: 0, to: 3000 }, 300));
  assert.ok(there[79] && !there[100] && there[121]);
});

test("the line is where the value is, and nothing is painted outside of the lane", () => {
  const pixels = new Uint32Array(40 * 60);
  const curve = trace(column(filled(100, () => [50, 1])), { from: 0, to: 9 }, 40);
  const paint = { colour: [0, 0, 200], ground: [255, 255, 255], ratio: 1 };
  fillLane({ width: 40, pixels }, { top: 10, tall: 40 }, curve, { from: 0, to: 100 }, paint);
  const rows = Array.from({ length: 60 }, (_, row) => pixels[row * 40 + 20]);
  assert.ok(rows.slice(0, 10).concat(rows.slice(50)).every((one) => one === 0));
  assert.ok(rows.slice(10, 29).every((one) => one === 0xffffffff));
  assert.ok((rows[30] & 0xff) < 128 && (rows[40] & 0xff) > 200 && rows[40] !== 0xffffffff); // the line, the area
});

test("what is higher is darker, in a row and in a heat map, and a line over an area leaves it", () => {
  const paint = { colour: [0, 0, 200], ground: [255, 255, 255], ratio: 1 };
  const red = (fill, value, more) => {
    const pixels = new Uint32Array(20 * 20);
    const curve = trace(column(filled(100, () => [value, 1])), { from: 0, to: 9 }, 20);
    fill({ width: 20, pixels }, { top: 0, tall: 20 }, curve, { from: 0, to: 100 }, { ...paint, ...more });
    return pixels[19 * 20 + 10] & 0xff;
  };
  const shades = [20, 50, 90].map((value) => red(fillLane, value, { style: "row" }));
  const heat = [0, 50, 100].map((value) => red(fillHeat, value));
  for (const [low, middle, high] of [shades, heat]) assert.ok(low > middle + 20 && middle > high + 20);
  assert.equal(red(fillLane, 90, { style: "over" }), 0); // nothing was painted below the line
});

// ---- spans and lanes

test("spans that hold others lie above them, and those that overlap below", () => {
  const span = (name, start, end) => ({ name, start, end });
  const list = [span("epoch 1", 1, 4), span("all", 0, 10), span("check", 3, 4), span("epoch 2", 4, 7), span("open", 8, null)];
  assert.deepEqual(rowsOf(list), { spanRows: [1, 0, 2, 1, 1], spanCount: 3 });
  assert.deepEqual(rowsOf([span("inner", 0, 1), span("outer", 0, 9)]).spanRows, [1, 0]);
  assert.deepEqual([3.5, 20].map((time) => spanAt(list, time).name), ["check", "open"]);
  assert.equal(spanAt([], 1), null);
});

function machine() {
  const store = new Store();
  const core = (n) => ({ key: `core${n}`, sort: "core", part_of: "cpu" });
  for (const line of [{ labkit: "recording", format: 1, every: 0.1 },
    { source: "host", metrics: ["utilisation", "memory", "power"], devices: [{ key: "cpu", name: "Xeon", sort: "cpu", memory_total: 26e9 }, core(0), core(1)] },
    { state: "not supported", time: 0, device: "cpu", metric: "power", says: "No RAPL." },
    [0, 0, [50, 6e9, null], [90, null, null], [10, null, null]]]) store.take(line);
  return store;
}

test("a laptop shows its cores, below their processor; a machine with GPUs folds them away", () => {
  const store = machine();
  assert.deepEqual(ordered(store.devices()).map((one) => one.key), ["cpu", "core0", "core1"]);
  assert.ok(coresUnfolded(store.devices()));
  store.take({ source: "gpus", metrics: ["utilisation", "power"], devices: [GPU(0)] });
  assert.deepEqual(ordered(store.devices()).map((one) => one.key), ["gpu0", "cpu", "core0", "core1"]);
  assert.ok(!coresUnfolded(store.devices()));
});

test("what cannot be read is said at its lane and aloud; lanes do not overlap", () => {
  const store = machine();
  const { strips, lanes, height } = stripsOf(store, ["utilisation", "memory", "power"], true);
  assert.deepEqual(lanes.map((one) => `${one.device.key} ${one.metric} ${one.reason?.says ?? ""}`.trim()),
    ["cpu utilisation", "cpu memory", "cpu power No RAPL.", "core0 utilisation", "core1 utilisation"]);
  lanes.slice(1).forEach((lane, i) => assert.ok(lane.top >= lanes[i].top + lanes[i].height));
  assert.ok(height >= lanes.at(-1).top + lanes.at(-1).height);
  assert.equal(stripsOf(store, ["utilisation"], false).lanes.length, 1);
  assert.equal(plain(summary(store, strips.slice(0, 1), 0)), "At 0.0 s. CPU: utilisation 50 %, memory 6.00 GB, power not supported.");
});

test("a scale is what the device can do, else round and the same for all", () => {
  const store = machine();
  store.take({ source: "gpus", metrics: ["clock", "power"], devices: [GPU(0), GPU(1)] });
  store.take([1, 0, [1980, 300], [345, 1040]]);
  const { lanes } = stripsOf(store, ["memory", "clock", "power"], false);
  assert.deepEqual(lanes.filter((one) => !one.reason).map((one) => [one.device.key, one.metric, scaleOf(store, lanes, one).to]), [
    ["gpu0", "clock", 2000], ["gpu0", "power", 700], ["gpu1", "clock", 2000], ["gpu1", "power", 2000], ["cpu", "memory", 26e9]]);
});

test("188 MB of 26 GB are seen where the scale is that of the data", () => {
  const store = machine();
  store.take([0, 1, [50, 6.188e9, null], [90, null, null], [10, null, null]]);
  const [lane] = stripsOf(store, ["memory"], false).lanes;
  const { from, to } = scaleOf(store, [lane], lane, true);
  assert.ok(from > 5.7e9 && from <= 6e9 && to >= 6.188e9 && 0.188e9 / (to - from) > 0.4);
  assert.deepEqual(scaleOf(store, [lane], lane, false), { from: 0, to: 26e9 });
});

// Many GPUs of one kind, sampled for six seconds: `value(gpu)` is [utilisation, memory, power, clock, energy].
function many(count, value) {
  const store = new Store();
  store.take({ labkit: "recording", format: 1, every: 0.1 });
  store.take({ source: "gpus", metrics: ["utilisation", "memory", "power", "clock", "energy"], devices: Array.from({ length: count }, (_, n) => GPU(n)) });
  for (let i = 0; i <= 60; i += 1) store.take([0, i / 10, ...Array.from({ length: count }, (_, n) => [...value(n), 10 * i])]);
  return store;
}
const BUSY = [95, 40e9, 600, 1980];

test("five devices have a row each that unfolds; sixty-four are a heat map of groups that unfold", () => {
  const kinds = ({ strips }) => strips.map(({ kind }) => kind).join(" ");
  const metrics = ["utilisation", "power"];
  const eight = many(8, () => BUSY);
  assert.equal(kinds(stripsOf(many(4, () => BUSY), metrics, false)), Array(4).fill("lanes").join(" "));
  assert.equal(kinds(stripsOf(eight, metrics, false)), Array(8).fill("row").join(" "));
  const open = stripsOf(eight, metrics, false, { open: new Set(["gpu1"]) });
  assert.equal(kinds(open), "row row lanes row row row row row row");
  assert.ok(stripsOf(eight, metrics, false).height < 400 && open.height < 500);
  const crowd = many(64, () => BUSY);
  const map = stripsOf(crowd, metrics, false);
  assert.equal(kinds(map), Array(8).fill("heat").join(" "));
  assert.ok(map.lanes.length === 64 && map.height < 450);
  assert.equal(kinds(stripsOf(crowd, metrics, false, { open: new Set(["group gpu56"]) })), `${kinds(map)} ${Array(8).fill("row").join(" ")}`);
});

test("a GPU that does less than the others is told, and what each does less of", () => {
  const marks = (count, odd) => Object.fromEntries([...outliers(many(count, (n) => (n === 1 ? odd : BUSY)), 6)].map(([key, says]) => [key, plain(says)]));
  assert.deepEqual(marks(8, BUSY), {});
  assert.deepEqual(marks(8, [3, 40e9, 90, 300]), { gpu1: "only 3 % busy in 5 s, others 95 %" });
  assert.deepEqual(marks(2, [3, 40e9, 90, 300]), { gpu1: "only 3 % busy in 5 s, others 95 %" });
  assert.deepEqual(marks(8, [95, 40e9, 300, 1300]), { gpu1: "slow clock: 1,300 MHz, others 1,980 MHz" });
  assert.deepEqual(marks(8, [95, 40e9, 300, 1980]), { gpu1: "little power: 300 W, others 600 W" });
  assert.deepEqual(marks(1, BUSY), {});
});

test("throughput and loss are those of the innermost spans with images; joules those since the beginning", () => {
  const store = many(2, () => BUSY);
  for (const [span, start, end, images, loss] of [["all", 0, 6, 900, null], ["epoch 1", 0, 2, 300, 0.5], ["epoch 2", 2, 6, 600, 0.25], ["open", 5, null, 9, null]])
    store.take({ span, start, end, images, loss });
  const [training, ...more] = trainings(store.spans);
  assert.deepEqual([training.parts.length, more.length], [2, 0]);
  assert.deepEqual([1, 3].map((time) => trainingText(training, time)), [["150 images/s", "loss 0.500"], ["150 images/s", "loss 0.250"]]);
  assert.equal(plain(joulesText(store, 3)), "600 J so far");
  assert.equal(joulesText(machine(), 0), "");
  const rarely = new Store();
  rarely.take({ source: "gpus", metrics: ["power", "energy"], devices: [{ key: "gpu0", sort: "gpu", of: "" }] });
  for (const [at, read] of [[0, 1000], [1, null], [2, 1200], [3, null]]) rarely.take([0, at, [150, read]]);
  assert.deepEqual([1, 2, 3].map((at) => plain(joulesText(rarely, at))), ["150 J so far", "200 J so far", "350 J so far"]);
});

test("who else uses a GPU is said from the moment on", () => {
  const store = many(2, () => BUSY);
  store.take({ processes: "gpu1", time: 2, found: [{ pid: 7, user: "ann", memory: 8e9 }, { pid: 8, user: "this program", memory: 1e9 }, { pid: 9, user: "", memory: null }] });
  store.take({ processes: "gpu1", time: 4, found: [] });
  assert.deepEqual([1, 3, 5].map((time) => plain(othersText(store, time))), ["", "Other programs use GPU 1: ann (process 7, 8.00 GB); GPU 1: another user (process 9).", ""]);
});

// ---- words

test("a panel says what it is: waiting, live, silent, gone, ended, unconnected", () => {
  const facts = { live: true, recorded: false, ended: null, gone: false, opened: true, following: true, quiet: 0.1, until: 3, every: 0.1 };
  const cases = [[{}, "live"], [{ following: false }, "paused"], [{ quiet: 7 }, "silent"], [{ quiet: 7, every: 5 }, "live"],
    [{ until: 0, opened: false }, "waiting"], [{ opened: false, quiet: 60 }, "unconnected"],
    [{ gone: true }, "gone"], [{ gone: true, ended: "stopped" }, "ended"], [{ live: false, recorded: true }, "replay"], [{ live: false }, "ended"]];
  for (const [more, state] of cases) assert.equal(stateOf({ ...facts, ...more }), state);
  assert.match(stateWords("gone", facts), /kernel is gone/);
  assert.equal(stateWords("ended", { ended: "stopped" }), "ended: stopped");
});
