// The panel's pure parts: time, data, traces, spans, lanes, sight, words. Run by test_panel_page.py.
import assert from "node:assert/strict";
import test from "node:test";

import { gzipSync } from "node:zlib";

import { takerOf } from "../../labkit/views/static/panel.mjs";
import { listen, openChannel, place, tell } from "../../labkit/views/static/panel_hub.mjs";
import { coresUnfolded, defaultMetrics, ordered, roundUp, scales, strips } from "../../labkit/views/static/panel_lanes.mjs";
import { fillLane, raster } from "../../labkit/views/static/panel_raster.mjs";
import { Pace, steps } from "../../labkit/views/static/panel_pace.mjs";
import { keyMeans } from "../../labkit/views/static/panel_hands.mjs";
import { Sight } from "../../labkit/views/static/panel_sight.mjs";
import { bands, fitted, rowsOf, spanAt } from "../../labkit/views/static/panel_spans.mjs";
import { Store } from "../../labkit/views/static/panel_store.mjs";
import { BLOCK, MOST_ROWS } from "../../labkit/views/static/panel_table.mjs";
import { lengthText, timeText, valueText } from "../../labkit/views/static/panel_text.mjs";
import { firstFrom, followed, inside, keptInSight, moved, ticks, zoomed } from "../../labkit/views/static/panel_time.mjs";
import { trace } from "../../labkit/views/static/panel_trace.mjs";
import { footWords, stateOf, summary, valueOf } from "../../labkit/views/static/panel_words.mjs";

const plain = (text) => text.replaceAll("\u00a0", " ");
const near = (a, b, by = 1e-6) => assert.ok(Math.abs(a - b) <= by, `${a} is not ${b}`);
const GPU = (n) => ({ key: `gpu${n}`, name: "H200", sort: "gpu", memory_total: 80e9, power_limit: 700 });

function random(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function filled(rows, value, every = 0.1) {
  const store = new Store();
  store.take({ labkit: "recording", format: 1, every });
  store.take({ source: "gpus", metrics: ["utilisation", "temperature"], devices: [GPU(0)] });
  for (let i = 0; i < rows; i += 1) store.take([0, i * every, value(i)]);
  return store;
}

// ---- time

test("what is under the pointer stays there while zooming, and the view stays inside", () => {
  const next = random(1);
  for (let i = 0; i < 2000; i += 1) {
    const until = 1 + 4000 * next();
    const from = until * 0.9 * next();
    const view = inside({ from, to: from + until * next() }, until);
    const at = view.from + next() * (view.to - view.from);
    const factor = 0.2 + 3 * next();
    const found = zoomed(view, at, factor, until);
    assert.ok(found.from >= -1e-9 && found.to <= Math.max(until, 0.5) + 1e-9);
    assert.ok(found.to - found.from >= 0.5 - 1e-9);
    const free = found.from > 1e-9 && found.to < until - 1e-9;
    if (free) near((at - found.from) / (found.to - found.from), (at - view.from) / (view.to - view.from), 1e-6);
  }
});

test("moving past an end stops there with the same width", () => {
  assert.deepEqual(moved({ from: 10, to: 20 }, -50, 100), { from: 0, to: 10 });
  assert.deepEqual(moved({ from: 10, to: 20 }, 500, 100), { from: 90, to: 100 });
});

test("a live view stands still until it is full, then follows", () => {
  assert.deepEqual([0, 12, 16, 31].map((until) => followed(until, 60).to), [15, 15, 30, 60]);
  assert.deepEqual(followed(100, 60), { from: 40, to: 100 });
  assert.deepEqual(followed(100, Infinity), { from: 0, to: 100 });
});

test("a moment that leaves the view takes it along", () => {
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

test("looking up a time finds the first that is not before it", () => {
  const times = Float64Array.from([0, 1, 1, 2, 5]);
  assert.deepEqual([-1, 0, 1, 1.5, 5, 6].map((t) => firstFrom(times, 5, t)), [0, 0, 1, 3, 4, 5]);
});

// ---- words

test("numbers carry units that keep them short", () => {
  assert.deepEqual(
    [["utilisation", 97.4], ["memory", 41.26e9], ["power", 7.25], ["power", 612.3], ["clock", 1980], ["pcie", 2.4e9], ["power", null], ["power", NaN]]
      .map(([metric, value]) => plain(valueText(metric, value))),
    ["97 %", "41.3 GB", "7.3 W", "612 W", "1,980 MHz", "2.40 GB/s", "–", "–"]);
});

test("times are read as a clock above a minute", () => {
  assert.deepEqual([5, 59.96, 65.25, 3725].map((t) => plain(timeText(t))), ["5.0 s", "60.0 s", "1:05.3", "1:02:05.0"]);
  assert.equal(timeText(125, 5), "2:05");
  assert.deepEqual([2.5, 125, 3725].map((t) => plain(lengthText(t))), ["2.50 s", "2 min 5 s", "1 h 2 min"]);
});

// ---- data

test("rows that were seen already are not taken twice", () => {
  const store = filled(10, () => [1, 2]);
  store.take([0, 0.5, [9, 9]]);
  assert.equal(store.tables[0].rows, 10);
  store.take([7, 99, [1, 1]]); // a source that nobody has named
  near(store.until, 0.9);
});

test("null is no number and no zero", () => {
  const store = filled(30, (i) => [i < 10 ? 50 : null, null]);
  const table = store.tables[0];
  assert.equal(table.at(0, 0.5), 50);
  assert.equal(table.at(0, 2.9), null);
  assert.ok(store.has("gpu0", "utilisation"));
  assert.ok(!store.has("gpu0", "temperature"));
});

test("a full table is thinned, and no extreme is lost", () => {
  const next = random(3);
  const store = filled(0, () => []);
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < 3 * MOST_ROWS; i += 1) {
    const value = i === 777 ? 100 : i === 50_001 ? 0.001 : 20 + 60 * next();
    [low, high] = [Math.min(low, value), Math.max(high, value)];
    store.take([0, i * 0.1, [value, null]]);
  }
  const table = store.tables[0];
  assert.ok(table.rows <= MOST_ROWS);
  assert.ok(table.rows > MOST_ROWS / 3);
  const values = table.column(0).values.subarray(0, table.rows);
  near(Math.max(...values), high, 1e-4);
  near(Math.min(...values), low, 1e-4);
  for (let i = 1; i < table.rows; i += 1) assert.ok(table.times[i] > table.times[i - 1]);
  near(table.times[table.rows - 1], (3 * MOST_ROWS - 1) * 0.1, 1e-6);
});

test("thinning keeps the order in which the extremes came", () => {
  const store = filled(MOST_ROWS + 1, (i) => [1e6 - i, i]);
  const table = store.tables[0];
  assert.ok(table.rows < MOST_ROWS);
  for (let i = 1; i < table.rows; i += 1) {
    assert.ok(table.column(0).values[i] < table.column(0).values[i - 1]);
    assert.ok(table.column(1).values[i] > table.column(1).values[i - 1]);
  }
});

test("the summaries of blocks agree with their rows", () => {
  const next = random(5);
  const { tables: [table] } = filled(1000, () => [next() < 0.2 ? null : 100 * next(), null]);
  const column = table.column(0);
  for (let block = 0; block * BLOCK < 1000; block += 1) {
    const rows = [...column.values.subarray(block * BLOCK, Math.min((block + 1) * BLOCK, 1000))].filter((one) => one === one);
    assert.equal(column.count[block], rows.length);
    if (rows.length) assert.equal(column.high[block], Math.max(...rows));
    if (rows.length) assert.equal(column.low[block], Math.min(...rows));
  }
});

test("a source that is named again keeps the past of the devices that stay", () => {
  const store = filled(5, (i) => [i, 40]);
  store.take({ source: "gpus", metrics: ["utilisation"], devices: [GPU(1), GPU(0)] });
  store.take([0, 9, [7], [8]]);
  const gauge = store.gauge("gpu0", "utilisation");
  assert.equal(store.tables.length, 1);
  assert.equal(gauge.table.at(gauge.column, 0.2), 2);
  assert.equal(gauge.table.at(gauge.column, 9), 8);
  assert.equal(store.gauge("gpu0", "temperature"), null);
});

test("what a page was given is loaded, and what came meanwhile is kept", () => {
  const store = filled(20, (i) => [i, 40]);
  const table = { source: "gpus", metrics: ["utilisation", "temperature"], devices: [GPU(0)] };
  const column = (values) => ({ make: () => Float32Array.from(values), numbers: values.length, most: 9 });
  store.load({
    header: { every: 0.1 }, seconds: 1, cost: null, damage: null, spans: [{ name: "a", start: 0, end: 1 }],
    states: [{ time: 0, device: "gpu0", metric: "power", why: "refused", says: "no" }],
    sources: [{ ...table, times: Float64Array.from([0, 0.5, 1]), columns: [column([5, 6, 7]), column([1, 1, 1])] }],
  });
  assert.deepEqual([0, 1, 1.5].map((t) => store.tables[0].at(0, t)), [5, 7, 15]);
  assert.equal(store.spans.length, 1);
  assert.equal(store.reason("gpu0", "power", "gpus", 1).why, "refused");
});

test("spans and states that come while the page unpacks its past are kept, in order and once", () => {
  const store = filled(20, (i) => [i, 40]);
  const say = (time, state) => ({ state, time, device: "gpu0", metric: "power", says: "" });
  for (const line of [{ span: "a", start: 0.5, end: 1.5, by: "you" }, { span: "b", start: 1.6, end: null, by: "you" },
    say(1.2, "fine"), say(1.8, "lost")]) store.take(line);
  const source = { source: "gpus", metrics: ["utilisation", "temperature"], devices: [GPU(0)] };
  const column = { make: () => Float32Array.from([1]), numbers: 1, most: 9 };
  store.load({
    header: { every: 0.1 }, seconds: 1.3, cost: null, damage: null, spans: [{ name: "a", start: 0.5 }],
    states: [say(0, "refused"), say(1.2, "fine")].map((one) => ({ ...one, why: one.state })),
    sources: [{ ...source, times: Float64Array.from([0]), columns: [column, column] }],
  });
  assert.deepEqual(store.spans.map(({ name, end }) => [name, end]), [["a", 1.5], ["b", null]]);
  assert.deepEqual(store.states.get("gpu0|power").map((one) => one.why), ["refused", "fine", "lost"]);
});

test("a span that has ended takes the place of its beginning", () => {
  const store = filled(2, () => [1, 1]);
  store.take({ span: "epoch 1", start: 1, end: null, by: "keras" });
  store.take({ span: "epoch 1", start: 1, end: 4, by: "keras" });
  store.take({ span: "epoch 1", start: 1, end: null, by: "keras" });
  assert.deepEqual(store.spans.map((one) => one.end), [4]);
});

test("the reason for a missing number is that of the gauge, its device or its source, at that time", () => {
  const store = filled(100, () => [1, null]);
  const say = (time, device, metric, state) => store.take({ state, time, device, metric, says: "" });
  say(0, "gpu0", "temperature", "not supported");
  say(3, "gpu0", "", "lost");
  say(5, "gpu0", "", "fine");
  say(7, "gpus", "", "silent");
  const why = (metric, time) => store.reason("gpu0", metric, "gpus", time)?.why ?? null;
  assert.deepEqual([2, 4, 6, 8].map((t) => why("utilisation", t)), [null, "lost", null, "silent"]);
  assert.equal(why("temperature", 6), "not supported");
  assert.deepEqual(store.troubles("gpu0", "utilisation", "gpus").map(({ from, to }) => [from, to]), [[3, 5], [7, Infinity]]);
});

// ---- traces

const known = (found, kind = "mid") => [...found[kind]].map((one) => one === one);

test("few readings are joined by lines, and never across a gap", () => {
  const store = filled(100, (i) => [i >= 30 && i < 60 ? null : 50, 40]);
  const found = trace(store.tables[0], 0, { from: 0, to: 10 }, 100);
  const there = known(found);
  assert.ok(there.slice(0, 29).every(Boolean));
  assert.ok(there.slice(31, 59).every((one) => !one));
  assert.ok(there.slice(61, 99).every(Boolean));
});

test("a gauge that is read every few looks has no gaps", () => {
  const store = filled(100, (i) => [50, i % 5 ? null : 40]);
  assert.ok(known(trace(store.tables[0], 1, { from: 0, to: 9.4 }, 100)).every(Boolean));
});

test("zoomed out, every extreme is seen, whatever the width", () => {
  const next = random(9);
  const values = Array.from({ length: 30_000 }, () => 30 + 40 * next());
  values[12_345] = 99;
  values[23_456] = 1;
  const store = filled(30_000, (i) => [values[i], null]);
  for (const width of [150, 400, 700, 1500]) {
    const found = trace(store.tables[0], 0, { from: 0, to: 3000 }, width);
    near(Math.max(...[...found.high].filter((one) => one === one)), 99, 1e-4);
    near(Math.min(...[...found.low].filter((one) => one === one)), 1, 1e-4);
    assert.ok(Math.abs([...found.high].findIndex((one) => one > 98.9) - (1234.5 / 3000) * width) <= 1.5);
    assert.ok(known(found).every(Boolean));
  }
});

test("zoomed out, the middle is the mean and a gap stays a gap", () => {
  const store = filled(20_000, (i) => [i > 8000 && i < 12_000 ? null : i % 2 ? 20 : 40, null]);
  const found = trace(store.tables[0], 0, { from: 0, to: 2000 }, 500);
  near(found.mid[50], 30, 0.6);
  assert.ok(!known(found)[250]);
  assert.ok(!known(found)[204] && known(found)[195]);
});

test("a jump in time is a gap, also inside a block", () => {
  const store = filled(0, () => []);
  for (let i = 0; i < 20_000; i += 1) store.take([0, i * 0.1 + (i > 10_003 ? 300 : 0), [i === 10_002 ? 99 : 50, 1]]);
  const found = trace(store.tables[0], 0, { from: 0, to: 2300 }, 230);
  const there = known(found);
  assert.equal([...found.high].findIndex((one) => one > 98), 100);
  assert.ok(there[99] && there[131]);
  assert.ok(there.slice(102, 129).every((one) => !one));
});

test("a view beside the data is empty", () => {
  const store = filled(10, () => [1, 1]);
  assert.ok(known(trace(store.tables[0], 0, { from: 50, to: 60 }, 80)).every((one) => !one));
});

// ---- pixels

test("the line is where the value is, and nothing is painted outside of the lane", () => {
  const store = filled(100, () => [50, 1]);
  const sheet = raster(40, 60);
  const found = trace(store.tables[0], 0, { from: 0, to: 9 }, 40);
  fillLane(sheet, 10, 40, found, 100, [0, 0, 200], [255, 255, 255], 1);
  const at = (row) => sheet.pixels[row * 40 + 20];
  assert.deepEqual([0, 9, 50, 59].map(at), [0, 0, 0, 0]);
  const painted = Array.from({ length: 60 }, (_, row) => row).filter(at);
  assert.equal(painted.at(-1), 49);
  assert.ok(Math.abs(painted[0] - 29) <= 1);
});

// ---- spans

test("spans that hold others lie above them, and those that overlap below", () => {
  const span = (name, start, end) => ({ name, start, end });
  const list = [span("epoch 1", 1, 4), span("all", 0, 10), span("check", 3, 4), span("epoch 2", 4, 7), span("open", 8, null)];
  const { spanRows, spanCount } = rowsOf(list);
  assert.deepEqual(spanRows, [1, 0, 2, 1, 1]);
  assert.equal(spanCount, 3);
  assert.deepEqual(rowsOf([span("inner", 0, 1), span("outer", 0, 9)]).spanRows, [1, 0]);
  assert.equal(spanAt(list, 3.5).name, "check");
  assert.equal(spanAt(list, 20).name, "open");
  assert.equal(spanAt([], 1), null);
});

test("a band has as much of its name as fits, and short ones become one mark", () => {
  const wide = (text) => 6 * text.length;
  assert.equal(fitted("epoch 12", 100, wide), "epoch 12");
  assert.equal(fitted("epoch 12", 40, wide), "epoch…");
  assert.equal(fitted("epoch 12", 15, wide), "");
  const many = Array.from({ length: 1000 }, (_, i) => ({ name: `step ${i}`, start: i / 100, end: i / 100 + 0.005 }));
  const found = bands(many, many.map(() => 0), { from: 0, to: 100 }, 500, 100, wide);
  assert.ok(found.length < 60);
});

// ---- lanes

function machine() {
  const store = new Store();
  store.take({ labkit: "recording", format: 1, every: 0.1 });
  store.take({
    source: "host", metrics: ["utilisation", "memory", "power"],
    devices: [{ key: "cpu", name: "Xeon", sort: "cpu", memory_total: 26e9 }, { key: "core0", sort: "core", part_of: "cpu" }, { key: "core1", sort: "core", part_of: "cpu" }],
  });
  store.take({ state: "not supported", time: 0, device: "cpu", metric: "power", says: "No RAPL." });
  store.take([0, 0, [50, 6e9, null], [90, null, null], [10, null, null]]);
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
  assert.deepEqual(defaultMetrics(store), ["utilisation", "memory", "power"]);
});

test("what cannot be read is said at its lane; lanes do not overlap", () => {
  const store = machine();
  assert.deepEqual(defaultMetrics(store), ["utilisation", "memory"]);
  const { lanes, height } = strips(store, { metrics: ["utilisation", "memory", "power"], hidden: new Set(), cores: true });
  assert.deepEqual(lanes.map((one) => `${one.device.key} ${one.metric} ${one.says?.says ?? ""}`.trim()),
    ["cpu utilisation", "cpu memory", "cpu power No RAPL.", "core0 utilisation", "core1 utilisation"]);
  lanes.slice(1).forEach((lane, i) => assert.ok(lane.top >= lanes[i].top + lanes[i].height));
  assert.ok(height >= lanes.at(-1).top + lanes.at(-1).height);
  const hidden = strips(store, { metrics: ["utilisation"], hidden: new Set(["cpu"]), cores: false });
  assert.deepEqual(hidden.lanes, []);
});

test("a scale is what the device can do, else round and the same for all", () => {
  const store = machine();
  store.take({ source: "gpus", metrics: ["clock", "power"], devices: [GPU(0), GPU(1)] });
  store.take([1, 0, [1980, 300], [345, 90]]);
  const { lanes } = strips(store, { metrics: ["memory", "clock", "power"], hidden: new Set(), cores: false });
  const scale = scales(store, lanes);
  assert.deepEqual(lanes.filter((one) => !one.says).map((one) => [one.device.key, one.metric, scale(one)]), [
    ["gpu0", "clock", 2000], ["gpu0", "power", 700], ["gpu1", "clock", 2000], ["gpu1", "power", 700], ["cpu", "memory", 26e9]]);
  assert.deepEqual([0.3, 1, 1.01, 23, 700].map(roundUp).map((one) => Number(one.toPrecision(3))), [0.5, 1, 2, 25, 1000]);
});

// ---- sight

function sight(live, store = filled(1001, () => [1, 1])) {
  store.take({ span: "a", start: 10, end: 20 });
  store.take({ span: "b", start: 30, end: 40 });
  const said = [];
  return { sight: new Sight(() => store, live, null, (...what) => said.push(...what)), said, store };
}

test("a live panel follows, holds when paused, and follows again", () => {
  const { sight: one, store } = sight(true);
  assert.deepEqual(one.view(), { from: 40, to: 100 });
  one.pause();
  store.take([0, 120, [1, 1]]);
  assert.deepEqual(one.view(), { from: 40, to: 100 });
  one.pause();
  assert.deepEqual(one.view(), { from: 60, to: 120 });
  one.zoom(100, 0.5);
  assert.deepEqual(one.view(), { from: 90, to: 120 });
  one.zoom(100, 100);
  assert.deepEqual(one.view(), { from: 0, to: 120 });
  const other = new Sight(() => store, true, one.kept(), () => {});
  assert.ok(other.following);
  other.show(30, 50);
  other.end();
  assert.deepEqual(other.view(), { from: 30, to: 50 });
  one.zoom(100, 0.1);
  one.end();
  assert.deepEqual(one.view(), { from: 0, to: 120 });
  assert.ok(!one.following);
});

test("a replay plays at its speed, keeps the moment in sight, and stops at the end", () => {
  const { sight: one } = sight(false);
  one.show(0, 10);
  one.speed = 4;
  one.pause(1000);
  one.playOn(990); // the stamp of a frame may lie before the click
  near(one.held, 0);
  one.playOn(1090);
  near(one.held, 0.4);
  for (let now = 1200; one.playing !== null && now < 100_000; now += 100) {
    one.playOn(now);
    assert.ok(one.held >= one.view().from && one.held <= one.view().to + 1e-9);
  }
  near(one.held, 100);
  assert.equal(one.playing, null);
});

test("every key means something, and only without Control", () => {
  const { sight: one, said } = sight(false);
  one.show(0, 50);
  const press = (key, more = {}) => keyMeans({ key, ...more }, one);
  assert.ok(press("]"));
  assert.ok(one.view().from < 10 && one.view().to > 20 && one.view().to < 30);
  press("]");
  assert.equal(one.spanShown.name, "b");
  press("[");
  assert.equal(one.spanShown.name, "a");
  press("0");
  assert.deepEqual(one.view(), { from: 0, to: 100 });
  press("ArrowRight");
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
  assert.ok(press(" ") && one.playing !== null);
  assert.ok(!press("0", { ctrlKey: true }) && !press("x") && !press("toString"));
  assert.ok(said.includes("aloud"));
});

test("a second click on the cursor takes it away", () => {
  const { sight: one } = sight(false);
  one.hold(30, 1);
  assert.equal(one.moment(), 30);
  one.hold(30.5, 1);
  assert.equal(one.cursor(), null);
});

// ---- words about itself

test("a panel says what it is: waiting, live, silent, ended, kept", () => {
  const facts = { live: true, ended: null, following: true, heard: true, count: 5, quiet: 0.1, until: 3, every: 0.1 };
  assert.equal(stateOf(facts), "live");
  assert.equal(stateOf({ ...facts, following: false }), "paused");
  assert.equal(stateOf({ ...facts, quiet: 7 }), "silent");
  assert.equal(stateOf({ ...facts, quiet: 7, every: 5 }), "live");
  assert.equal(stateOf({ ...facts, count: 0, heard: false }), "waiting");
  assert.equal(stateOf({ ...facts, count: 0, heard: false, quiet: 60, until: 0 }), "nothing");
  assert.equal(stateOf({ ...facts, count: 0, heard: false, quiet: 60 }), "kept");
  assert.equal(stateOf({ ...facts, live: false, elsewhere: true }), "replay");
  assert.equal(stateOf({ ...facts, live: false }), "ended");
  assert.equal(stateOf({ ...facts, live: false, ended: "" }), "ended");
});

test("values are said with their reasons, and the cost is of one core", () => {
  const store = machine();
  store.take({ cost: 1, time: 10 });
  store.take({ cost: 1.06, time: 20 });
  const made = strips(store, { metrics: ["utilisation", "power"], hidden: new Set(), cores: false }).strips;
  assert.equal(plain(summary(store, made, 0)), "At 0.0 s. CPU: utilisation 50 %, power not supported.");
  assert.equal(valueOf(store, made[0].lanes[1], 0).none, true);
  assert.match(plain(footWords(store, "live", [0, 100, 200, 300], 400)), /10\.0 updates\/s .* sampler: 0\.6 % of one core/);
});

// ---- the pace

const cut = (lines) => steps(lines).map(({ wait, lines: some }) => [Number(wait.toFixed(3)), some.map((one) => one[1] ?? one)]);
const pair = (time) => [[0, time, [1]], [0, time + 0.1, [2]], [1, time + 0.001, [3]], [1, time + 0.101, [4]]];

// A page's clock that goes on when it is told to, and what was shown when.
function paced() {
  const page = { now: 0, due: [], shown: [] };
  const world = {
    setTimeout: (call, wait) => {
      const one = { call, at: page.now + wait };
      page.due.push(one);
      return one;
    },
    clearTimeout: (one) => { page.due = page.due.filter((other) => other !== one); },
  };
  page.until = (moment) => {
    page.due.sort((a, b) => a.at - b.at);
    while (page.due.length && page.due[0].at <= moment) {
      const { call, at } = page.due.shift();
      page.now = at;
      call();
    }
    page.now = moment;
  };
  page.pace = new Pace((lines) => page.shown.push([Math.round(page.now), lines.map((one) => one[1] ?? one.span)]), world);
  return page;
}

test("looks that came together are cut where they lie apart, each with all of its sources", () => {
  assert.deepEqual(cut(pair(3)), [[0, [3, 3.001]], [0.1, [3.1, 3.101]]]);
  assert.deepEqual(cut([[0, 3, [1]]]), [[0, [3]]]);
  // The end of a span is a look of its own: nearer than an eye can tell from the one before.
  assert.deepEqual(cut([...pair(3), [0, 3.13, [9]]]), [[0, [3, 3.001]], [0.1, [3.1, 3.101, 3.13]]]);
});

test("what is no row is shown with the first look after it, and what names a source holds nothing back", () => {
  const span = { span: "epoch 1", start: 3.05, end: null };
  assert.deepEqual(cut([span, ...pair(3)]), [[0, [3, 3.001]], [0.1, [span, 3.1, 3.101]]]);
  const [ended, next] = [{ ...span, end: 3.0008 }, { span: "epoch 2", start: 3.0009, end: null }];
  assert.deepEqual(cut([...pair(3), ended, next])[0], [0, [ended, next, 3, 3.001]]);
  const [later, cost] = [{ state: "lost", time: 4 }, { cost: 0.1, time: 2 }];
  assert.deepEqual(cut([later, ...pair(3), cost]), [[0, [cost, 3, 3.001]], [0.1, [later, 3.1, 3.101]]]);
  assert.deepEqual(cut([span]), [[0, [span]]]);
  assert.equal(cut([...pair(3), { source: "gpus", metrics: [], devices: [] }]).length, 1);
});

test("of fifty looks a second three are shown as one, and old ones at once", () => {
  const rows = Array.from({ length: 23 }, (_, i) => [0, 5 + 0.02 * i, [i]]);
  assert.deepEqual(cut(rows).map(([wait]) => wait), [0, 0.06, 0.12, 0.18, 0.24, 0.3, 0.36, 0.42]);
  const late = Array.from({ length: 30 }, (_, i) => [0, 0.1 * i, [i]]); // after a call that held the lock for 3 s
  assert.deepEqual(cut(late).map(([, some]) => some.length), [26, 1, 1, 1, 1]);
});

test("five looks are shown a tenth of a second apart, without drift, however unevenly they come", () => {
  const page = paced();
  const next = random(5);
  for (let i = 0; i < 1200; i += 1) {
    page.until(500 * i + 40 * next());
    page.pace.take(Array.from({ length: 5 }, (_, k) => [0, 0.5 * i + 0.1 * k, [k]]));
  }
  page.until(1e6);
  assert.equal(page.shown.length, 6000);
  page.shown.forEach(([at, times], i) => {
    assert.equal(times.length, 1);
    near(times[0], 0.1 * i);
    assert.ok(at >= 100 * i && at <= 100 * i + 41, `${at} for ${i}`);
  });
});

test("what comes late is shown with the next, in order, and nothing twice", () => {
  const page = paced();
  for (const [at, time] of [[0, 0], [200, 0.2], [600, 0.4], [601, 0.6], [602, 0.8], [1000, 1.0]]) {
    page.until(at);
    page.pace.take([[0, time, [1]], [0, time + 0.1, [2]]]);
  }
  page.until(2000);
  const rounded = page.shown.map(([at, times]) => [at, times.map((time) => Math.round(10 * time))]);
  assert.deepEqual(rounded, [[0, [0]], [100, [1]], [200, [2]], [300, [3]], [600, [4]], [601, [5, 6]], [602, [7, 8]], [702, [9]], [1000, [10]], [1100, [11]]]);
});

test("a span is told at once and hurries nobody; a source and the end leave nothing waiting", () => {
  const page = paced();
  page.pace.take([[0, 0, [1]], [0, 0.1, [2]]]);
  page.until(30);
  page.pace.take([{ span: "epoch 1", start: 0.15 }]);
  assert.deepEqual(page.shown, [[0, [0]], [30, ["epoch 1"]]]);
  page.pace.take([{ source: "gpus", metrics: [], devices: [] }, [0, 0.2, [1]], [0, 0.3, [2]]]);
  assert.deepEqual(page.shown[2], [30, [0.1, undefined, 0.2, 0.3]]);
  page.pace.take([[0, 0.4, [1]], [0, 0.5, [2]]]);
  page.pace.end();
  page.pace.end();
  page.until(1000);
  assert.deepEqual(page.shown.slice(3), [[30, [0.4]], [30, [0.5]]]);
});

// ---- the meeting place

test("news that come before anybody draws are kept, and told once", () => {
  const world = {};
  const where = place("k", world);
  assert.equal(place("k", world), where);
  tell(where, { lines: [1] });
  const [taken, heard] = [[], []];
  const stop = listen(where, (news) => taken.push(news), (news) => heard.push(news));
  const second = [];
  listen(where, () => assert.fail("taken twice"), (news) => second.push(news));
  tell(where, { lines: [2] });
  stop();
  tell(where, { lines: [3] });
  assert.deepEqual([taken.length, heard.length, second.length], [3, 2, 2]);
});

test("a model hands on what it knows and what it is told", () => {
  const world = { setTimeout: () => 0, clearTimeout: () => {} };
  let said = null;
  openChannel({ get: (name) => ({ panel: "k", history: "abc" })[name], on: (_, callback) => { said = callback; } }, world);
  said({ lines: "[[0,1,[2]]]", number: 1 });
  said({ lines: "[[0,1,[2]]]", number: 1 }); // a second model of the same panel
  said({ history: "def" });
  said({ lines: "[[0,2,[2]],[0,2.1,[3]]]", number: 2 }); // the second of these is still to be shown
  said({ ended: "stopped" });
  const heard = [];
  listen(place("k", world), (news) => heard.push(news), () => {});
  assert.deepEqual(heard, [{ opened: true }, { history: "abc" }, { lines: [[0, 1, [2]]] }, { history: "def" },
    { lines: [[0, 2, [2]]] }, { lines: [[0, 2.1, [3]]] }, { ended: "stopped" }]);
});

// As panel_data.py packs it: one source with one row, without numbers.
function packedPast(seconds) {
  const source = { source: "gpus", metrics: ["utilisation"], devices: [GPU(0)], rows: 1, bytes: 2, steps: 4000, ranges: [[null, null]] };
  const about = { header: { every: 0.1 }, sources: [source], spans: [{ name: "a", start: 0, end: seconds }], states: [], seconds };
  const text = Buffer.from(JSON.stringify(about));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  return gzipSync(Buffer.concat([length, text, Buffer.alloc(4)])).toString("base64");
}

test("a panel that comes into sight long after its page was opened has the past, and all since then", async () => {
  const where = place("k", {});
  where.data = new Store();
  tell(where, { history: packedPast(1) });
  for (let i = 0; i < 50; i += 1) tell(where, { lines: [[0, 1 + i / 10, [i]]] });
  let loaded = null;
  const unpacked = new Promise((done) => { loaded = done; });
  listen(where, takerOf(where), ({ lines }) => { if (!lines) setTimeout(loaded); });
  await unpacked;
  while (!where.data.spans.length) await new Promise(setImmediate);
  await new Promise(setImmediate);
  tell(where, { lines: [[0, 6, [50]]] });
  const [table] = where.data.tables;
  assert.deepEqual([table.rows, where.data.until, where.data.spans.length], [52, 6, 1]);
  // Another model's past is older than what is known, and takes nothing away.
  tell(where, { history: packedPast(3) });
  tell(where, { lines: [[0, 6.1, [51]], { span: "b", start: 6, end: null, by: "you" }] });
  while (where.data.spans.length < 2) await new Promise(setImmediate);
  assert.equal(where.data.tables[0].rows, 53);
  assert.equal(where.data.tables[0].at(0, 6.1), 51);
});
