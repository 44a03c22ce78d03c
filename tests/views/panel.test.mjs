// The panel's pure parts: data, time, lanes, curves, input, words. Run by test_panel_page.py.
import assert from "node:assert/strict";
import test from "node:test";
import { gzipSync } from "node:zlib";

import { pressed, shownUntil, stateOf, stateWords } from "../../labkit/views/static/panel.mjs";
import { MOST_ROWS, Store, firstFrom, openChannel, storeOf } from "../../labkit/views/static/panel_data.mjs";
import {
  Viewport, bands, coresUnfolded, fillLane, fitted, followed, inside, keptInSight, lengthText, metricsOf, ordered,
  roundUp, rowsOf, scalesOf, spanAt, stripsOf, summary, ticks, timeText, trace, valueText, zoomed,
} from "../../labkit/views/static/panel_draw.mjs";

const plain = (text) => text.replaceAll("\u00a0", " ");
const near = (a, b, by = 1e-6) => assert.ok(Math.abs(a - b) <= by, `${a} is not ${b}`);
const GPU = (n) => ({ key: `gpu${n}`, name: "H200", sort: "gpu", memory_total: 80e9, power_limit: 700 });
const SOURCE = { source: "gpus", metrics: ["utilisation", "temperature"], devices: [GPU(0)] };

function random(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function filled(rows, value, every = 0.1) {
  const store = new Store();
  for (const line of [{ labkit: "recording", format: 1, every }, SOURCE]) store.take(line);
  for (let i = 0; i < rows; i += 1) store.take([0, i * every, value(i)]);
  return store;
}
const column = (store, metric = "utilisation", key = "gpu0") => store.column({ key }, metric);
const at = (store, time, metric, key) => column(store, metric, key).table.at(column(store, metric, key), time);

// ---- data

test("rows that are known already, or of an unknown source, are not taken", () => {
  const store = filled(10, () => [1, 2]);
  store.take([0, 0.5, [9, 9]]);
  store.take([7, 99, [1, 1]]);
  assert.equal(at(store, 0.5), 1);
  near(store.until, 0.9);
  assert.deepEqual([-1, 0, 1, 1.5, 5, 6].map((t) => firstFrom([0, 1, 1, 2, 5], 5, t)), [0, 0, 1, 3, 4, 5]);
});

test("null is no number and no zero", () => {
  const store = filled(30, (i) => [i < 10 ? 50 : null, null]);
  assert.deepEqual([at(store, 0.5), at(store, 2.9), at(store, 1, "temperature")], [50, null, null]);
  assert.deepEqual(metricsOf(store, null).map(({ metric, given }) => [metric, given]), [["utilisation", true], ["temperature", false]]);
});

test("a full table is thinned: no extreme is lost, their order and the time stay", () => {
  const next = random(3);
  const store = filled(0);
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < 3 * MOST_ROWS; i += 1) {
    const value = i === 777 ? 100 : i === 50_001 ? 0.001 : 20 + 60 * next();
    [low, high] = [Math.min(low, value), Math.max(high, value)];
    store.take([0, i * 0.1, [value, i]]);
  }
  const { table, values } = column(store);
  assert.ok(table.rows <= MOST_ROWS && table.rows > MOST_ROWS / 3);
  near(Math.max(...values.subarray(0, table.rows)), high, 1e-4);
  near(Math.min(...values.subarray(0, table.rows)), low, 1e-4);
  for (let i = 1; i < table.rows; i += 1)
    assert.ok(table.times[i] > table.times[i - 1] && column(store, "temperature").values[i] > column(store, "temperature").values[i - 1]);
  near(store.until, (3 * MOST_ROWS - 1) * 0.1, 1e-6);
});

test("a source that is named again keeps the past of the devices that stay", () => {
  const store = filled(5, (i) => [i, 40]);
  store.take({ source: "gpus", metrics: ["utilisation"], devices: [GPU(1), GPU(0)] });
  store.take([0, 9, [7], [8]]);
  assert.deepEqual([at(store, 0.2), at(store, 9), at(store, 9, "utilisation", "gpu1")], [2, 8, 7]);
  assert.equal(column(store, "temperature"), undefined);
});

test("a span that has ended takes the place of its beginning", () => {
  const store = filled(2, () => [1, 1]);
  for (const [start, end] of [[1, null], [1.0000004, 4], [1, null]]) store.take({ span: "epoch 1", start, end, by: "keras" });
  assert.deepEqual(store.spans, [{ name: "epoch 1", start: 1, end: 4 }]);
});

test("the reason for a missing number is that of the metric, its device or its source, at that time", () => {
  const store = filled(100, () => [1, null]);
  const say = (time, device, metric, state) => store.take({ state, time, device, metric, says: "" });
  say(0, "gpu0", "temperature", "not supported");
  say(3, "gpu0", "", "lost");
  say(5, "gpu0", "", "fine");
  say(7, "gpus", "", "silent");
  const gpu = { key: "gpu0", source: "gpus" };
  const why = (metric, time) => store.reason(gpu, metric, time)?.why ?? null;
  assert.deepEqual([2, 4, 6, 8].map((t) => why("utilisation", t)), [null, "lost", null, "silent"]);
  assert.equal(why("temperature", 6), "not supported");
  assert.deepEqual(store.troubles(gpu, "utilisation").map(({ from, to }) => [from, to]), [[3, 5], [7, Infinity]]);
});

// ---- the kernel's news

// As panel_data.py packs it: one source with one row, without numbers.
function packedPast(seconds) {
  const source = { ...SOURCE, rows: 1, bytes: 2, steps: 4000, ranges: [[null, null], [null, null]] };
  const states = [{ time: 0, device: "gpu0", metric: "power", why: "refused", says: "no" }];
  const about = { header: { every: 0.1 }, sources: [source], spans: [{ name: "a", start: 0 }], states, seconds };
  const text = Buffer.from(JSON.stringify(about));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  return gzipSync(Buffer.concat([length, text, Buffer.alloc(4)])).toString("base64");
}

test("a page opened anew has the past and all that comes meanwhile, in whatever order", async () => {
  const store = filled(20, (i) => [i, 40]);
  const past = store.receive({ history: packedPast(1.3) });
  store.receive({ lines: JSON.stringify([[0, 2.5, [51, null]], { span: "a", start: 0, end: 2 }, { span: "b", start: 2 }]) });
  assert.equal(store.until, 1.9000000000000001);
  await past;
  await store.receive({ history: packedPast(3) }); // older than what is known: it takes nothing away
  assert.deepEqual([0.1, 1.9, 2.5].map((t) => at(store, t)), [1, 19, 51]);
  assert.deepEqual(store.spans.map(({ name, end }) => [name, end]), [["a", 2], ["b", null]]);
  assert.deepEqual(store.states.get("gpu0|power").map((one) => one.why), ["refused"]);
});

test("a model hands on what it knows and what it is told; a lost connection is noted until the next message", async () => {
  const world = {};
  const says = {};
  const model = { get: (name) => ({ panel: "k", history: packedPast(1), ended: "" })[name], on: (event, callback) => { says[event] = callback; } };
  await openChannel(model, world);
  const store = storeOf("k", world);
  assert.deepEqual([store.opened, store.until, store.ended], [true, 1, null]);
  says.comm_live_update();
  assert.ok(store.gone);
  says["msg:custom"]({ lines: "[[0,4,[2,3]]]" });
  assert.deepEqual([store.gone, store.until], [false, 4]);
  says["msg:custom"]({ ended: "stopped" });
  assert.equal(store.ended, "stopped");
});

// ---- time

test("what is under the pointer stays there while zooming, and the view stays inside", () => {
  const next = random(1);
  for (let i = 0; i < 2000; i += 1) {
    const until = 1 + 4000 * next();
    const from = until * 0.9 * next();
    const view = inside({ from, to: from + until * next() }, until);
    const pointer = view.from + next() * (view.to - view.from);
    const found = zoomed(view, pointer, 0.2 + 3 * next(), until);
    assert.ok(found.from >= -1e-9 && found.to <= Math.max(until, 0.5) + 1e-9 && found.to - found.from >= 0.5 - 1e-9);
    if (found.from > 1e-9 && found.to < until - 1e-9)
      near((pointer - found.from) / (found.to - found.from), (pointer - view.from) / (view.to - view.from));
  }
});

test("a live axis stands still until it is full, then moves; a moment takes the view along", () => {
  assert.deepEqual([0, 12, 16, 31].map((until) => followed(until, 60).to), [15, 15, 30, 60]);
  assert.deepEqual(followed(100, 60), { from: 40, to: 100 });
  assert.deepEqual(followed(100, Infinity), { from: 0, to: 100 });
  assert.deepEqual(keptInSight({ from: 0, to: 10 }, 5, 100), { from: 0, to: 10 });
  near(keptInSight({ from: 0, to: 10 }, 9.5, 100).from, 0.5);
  near(keptInSight({ from: 50, to: 60 }, 40, 100).from, 39);
});

test("ticks are round, in sight, and far enough apart", () => {
  for (const width of [0.5, 3, 60, 3600, 86_400]) {
    const { step, moments } = ticks({ from: 7, to: 7 + width }, 700);
    assert.ok((step / width) * 700 >= 84 - 1e-6);
    assert.ok(moments.length >= 1 && moments.every((one) => one >= 7 - 1e-6 && one <= 7 + width + 1e-6));
  }
});

test("samples that come five at a time are shown evenly, and never far behind", () => {
  let [shown, newest, most] = [0, 0, 0];
  for (let tick = 1; tick <= 100; tick += 1) {
    if (tick % 5 === 0) newest += 0.5;
    const next = shownUntil(shown, newest, 0.1);
    most = Math.max(most, next - shown);
    shown = next;
  }
  near(shown, newest, 0.5);
  assert.ok(most < 0.15);
  assert.ok(newest + 60 - shownUntil(shown, newest + 60, 0.1) <= 1);
});

// ---- the viewport

function watched(live) {
  const viewport = new Viewport(live);
  viewport.until = 100;
  return viewport;
}

test("a live panel follows, holds when paused, and follows again", () => {
  const one = watched(true);
  assert.deepEqual(one.view(), { from: 40, to: 100 });
  one.pause(0);
  one.until = 120;
  assert.deepEqual(one.view(), { from: 40, to: 100 });
  one.pause(0);
  assert.deepEqual(one.view(), { from: 60, to: 120 });
  one.zoom(0.5);
  assert.deepEqual(one.view(), { from: 90, to: 120 });
  one.zoom(100);
  assert.deepEqual(one.view(), { from: 0, to: 120 });
});

test("at its end a panel that followed shows all, however late the last samples come; a chosen stretch stays", () => {
  const [one, other] = [watched(true), watched(true)];
  other.show(30, 50);
  for (const viewport of [one, other]) {
    viewport.until = 6; // out of sight: nothing was drawn for long
    viewport.stop();
    viewport.until = 100;
  }
  assert.deepEqual(one.view(), { from: 0, to: 100 });
  assert.deepEqual(other.view(), { from: 30, to: 50 });
});

test("a replay plays at its speed, keeps the moment in sight, and stops at the end", () => {
  const one = watched(false);
  one.show(0, 10);
  one.speed = 4;
  one.pause(1000);
  one.play(990); // the stamp of a frame may lie before the click
  near(one.held, 0);
  one.play(1090);
  near(one.held, 0.4);
  for (let now = 1200; one.playing !== null && now < 100_000; now += 100) {
    one.play(now);
    assert.ok(one.held >= one.view().from && one.held <= one.view().to + 1e-9);
  }
  near(one.held, 100);
  assert.equal(one.playing, null);
});

test("every key has its meaning, and only without Control", () => {
  const store = { every: 0.1, spans: [{ name: "b", start: 30, end: 40 }, { name: "a", start: 10, end: 20 }] };
  const one = watched(false);
  one.show(0, 50);
  const press = (key, more = {}) => pressed({ key, ...more }, one, store, 0);
  assert.equal(press("]"), "span");
  assert.ok(one.view().from < 10 && one.view().to > 20 && one.view().to < 30);
  press("]");
  assert.equal(one.spanShown.name, "b");
  press("[");
  assert.equal(one.spanShown.name, "a");
  press("0");
  assert.deepEqual(one.view(), { from: 0, to: 100 });
  assert.equal(press("ArrowRight"), "cursor");
  const first = one.held;
  press("ArrowRight", { shiftKey: true });
  near(one.held - first, 10 * Math.max(0.1, 100 / 300));
  press("+");
  near(one.view().to - one.view().from, 100 / 1.5);
  press("Home");
  assert.equal(one.held, 0);
  press("End");
  near(one.held, 100);
  press("Escape");
  assert.equal(one.held, null);
  press(" ");
  assert.equal(one.playing, 0);
  assert.deepEqual([press("0", { ctrlKey: true }), press("x"), press("toString")], [null, null, null]);
});

test("a second click on the cursor takes it away", () => {
  const one = watched(false);
  one.hold(30, 1);
  assert.equal(one.moment(), 30);
  one.hold(30.5, 1);
  assert.equal(one.cursor(), null);
});

// ---- curves

const known = ({ mid }) => [...mid].map((one) => one === one);

test("few samples are joined by lines, and never across a gap; a slow metric has none", () => {
  const store = filled(100, (i) => [i >= 30 && i < 60 ? null : i, i % 5 ? null : 40]);
  const found = trace(column(store), { from: 0, to: 10 }, 1000);
  const there = known(found);
  assert.ok(there.slice(0, 290).every(Boolean) && there.slice(601, 990).every(Boolean));
  assert.ok(there.slice(292, 598).every((one) => !one));
  near(found.mid[105], 10.5, 0.06);
  assert.ok(known(trace(column(store, "temperature"), { from: 0, to: 9.4 }, 100)).every(Boolean));
  assert.ok(known(trace(column(store), { from: 50, to: 60 }, 80)).every((one) => !one));
  assert.ok(known(trace(column(store), { from: 0, to: 10 }, 100, 2)).slice(21).every((one) => !one)); // later is not shown yet
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
  fillLane({ width: 40, pixels }, 10, 40, trace(column(filled(100, () => [50, 1])), { from: 0, to: 9 }, 40), 100, [0, 0, 200], [255, 255, 255], 1);
  const rows = Array.from({ length: 60 }, (_, row) => pixels[row * 40 + 20]);
  assert.ok(rows.slice(0, 10).concat(rows.slice(50)).every((one) => one === 0));
  assert.ok(rows.slice(10, 29).every((one) => one === 0xffffffff));
  assert.ok((rows[30] & 0xff) < 128 && (rows[40] & 0xff) > 200 && rows[40] !== 0xffffffff); // the line, the area
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

test("a band has as much of its name as fits, and short ones become one mark", () => {
  const wide = (text) => 6 * text.length;
  assert.deepEqual([100, 40, 15].map((room) => fitted("epoch 12", room, wide)), ["epoch 12", "epoch…", ""]);
  const many = Array.from({ length: 1000 }, (_, i) => ({ name: `step ${i}`, start: i / 100, end: i / 100 + 0.005 }));
  assert.ok(bands(many, many.map(() => 0), { from: 0, to: 100 }, 500, 100, wide).length < 60);
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
  store.take([1, 0, [95, 300]]);
  assert.deepEqual(ordered(store.devices()).map((one) => one.key), ["gpu0", "cpu", "core0", "core1"]);
  assert.ok(!coresUnfolded(store.devices()));
});

test("what cannot be read is said at its lane and aloud; lanes do not overlap", () => {
  const store = machine();
  const { strips, lanes, height } = stripsOf(store, ["utilisation", "memory", "power"], new Set(), true);
  assert.deepEqual(lanes.map((one) => `${one.device.key} ${one.metric} ${one.reason?.says ?? ""}`.trim()),
    ["cpu utilisation", "cpu memory", "cpu power No RAPL.", "core0 utilisation", "core1 utilisation"]);
  lanes.slice(1).forEach((lane, i) => assert.ok(lane.top >= lanes[i].top + lanes[i].height));
  assert.ok(height >= lanes.at(-1).top + lanes.at(-1).height);
  assert.deepEqual(stripsOf(store, ["utilisation"], new Set(["cpu"]), false).lanes, []);
  assert.equal(plain(summary(store, strips.slice(0, 1), 0)), "At 0.0 s. CPU: utilisation 50 %, memory 6.00 GB, power not supported.");
});

test("a scale is what the device can do, else round and the same for all", () => {
  const store = machine();
  store.take({ source: "gpus", metrics: ["clock", "power"], devices: [GPU(0), GPU(1)] });
  store.take([1, 0, [1980, 300], [345, 90]]);
  const { lanes } = stripsOf(store, ["memory", "clock", "power"], new Set(), false);
  const scale = scalesOf(store, lanes);
  assert.deepEqual(lanes.filter((one) => !one.reason).map((one) => [one.device.key, one.metric, scale(one)]), [
    ["gpu0", "clock", 2000], ["gpu0", "power", 700], ["gpu1", "clock", 2000], ["gpu1", "power", 700], ["cpu", "memory", 26e9]]);
  assert.deepEqual([0.3, 1, 1.01, 23, 700].map(roundUp).map((one) => Number(one.toPrecision(3))), [0.5, 1, 2, 25, 1000]);
});

// ---- words

test("numbers and times are short and have their units", () => {
  assert.deepEqual(
    [["utilisation", 97.4], ["memory", 41.26e9], ["power", 7.25], ["power", 612.3], ["clock", 1980], ["pcie", 2.4e9], ["power", null], ["power", NaN]]
      .map(([metric, value]) => plain(valueText(metric, value))),
    ["97 %", "41.3 GB", "7.3 W", "612 W", "1,980 MHz", "2.40 GB/s", "–", "–"]);
  assert.deepEqual([5, 59.96, 65.25, 3725].map((t) => plain(timeText(t))), ["5.0 s", "60.0 s", "1:05.3", "1:02:05.0"]);
  assert.deepEqual([2.5, 125, 3725].map((t) => plain(lengthText(t))), ["2.50 s", "2 min 5 s", "1 h 2 min"]);
});

test("a panel says what it is: waiting, live, silent, gone, ended, kept", () => {
  const facts = { live: true, recorded: false, ended: null, gone: false, opened: true, following: true, quiet: 0.1, until: 3, every: 0.1 };
  const cases = [[{}, "live"], [{ following: false }, "paused"], [{ quiet: 7 }, "silent"], [{ quiet: 7, every: 5 }, "live"],
    [{ until: 0, opened: false }, "waiting"], [{ until: 0, opened: false, quiet: 60 }, "nothing"], [{ opened: false, quiet: 60 }, "kept"],
    [{ gone: true }, "gone"], [{ gone: true, ended: "stopped" }, "ended"], [{ live: false, recorded: true }, "replay"], [{ live: false }, "ended"]];
  for (const [more, state] of cases) assert.equal(stateOf({ ...facts, ...more }), state);
  assert.match(stateWords("gone", facts), /kernel is gone/);
  assert.equal(stateWords("ended", { ended: "stopped" }), "ended: stopped");
});
