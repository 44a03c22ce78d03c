// The player without a page: run data, playback, geometry, sentences. Run by test_pages.py.
import assert from "node:assert/strict";
import test from "node:test";
import { Playback } from "../../labkit/views/static/controls.mjs";
import {
  contributions, gridGeometry, movesOf, playbackOf, RunData,
} from "../../labkit/collectives/page/player_data.mjs";
import { stageGeometry } from "../../labkit/collectives/page/player_stage.mjs";


// Two ranks exchange an element through memory beside their buffers and add it; then rank 1 sends all
// to rank 0, whose element 1 then holds rank 0 twice; rank 1 has ended.
function two(changes = {}) {
  return new RunData({
    program: "two", ranks: 2, steps: 2, options: {}, op: "sum", link: "modelled: nothing",
    sources: [["two", 1, "def two(comm, buffer):\n    exchange()\n    send()"]],
    places: [[0, 2], [0, 3]],
    where: [[0, 0], [1, -1]],
    messages: {
      source: [0, 1, 1], dest: [1, 0, 0], step: [1, 1, 2], nbytes: [8, 8, 16],
      from: [[0, 1], [0, 1], [0, 2]], into: [null, null, [0, 2]], sentAt: [0, 0, 1], receivedAt: [0, 0, 1],
    },
    cells: [[0, 1], [1, 2]],
    changes: {
      step: [0, 0, 0, 0, 1, 1, 2], rank: [0, 0, 1, 1, 0, 1, 0], cell: [0, 1, 0, 1, 0, 0, 1],
      holding: [0, 0, 1, 1, 2, 2, 3], text: ["1", "2", "3", "4", "4!", "4!", "8"],
    },
    holdings: ["10", "01", "11", "21"], clock: [0, 1e-6, 3e-6], ...changes,
  });
}

// A run of which only its size matters.
function empty(ranks, columns) {
  const cells = Array.from({ length: columns }, (_, i) => [i, i + 1]);
  const none = (...names) => Object.fromEntries(names.map((name) => [name, []]));
  const messages = none("source", "dest", "step", "nbytes", "from", "into", "sentAt", "receivedAt");
  const changes = none("step", "rank", "cell", "holding", "text");
  return new RunData({ ranks, cells, steps: 0, where: [], messages, changes, holdings: [], places: [] });
}

// ---- run data

test("a cell shows its last change up to the step, forwards and backwards", () => {
  const data = two();
  const texts = (step) => [0, 1].map((rank) => [0, 1].map((cell) => data.cell(step, rank, cell).text).join(" "));
  const all = [["1 2", "3 4"], ["4! 2", "4! 4"], ["4! 8", "4! 4"]];
  for (const step of [0, 1, 2, 1, 0, 2]) assert.deepEqual(texts(step), all[step]);
  assert.deepEqual(data.sent.map((one) => [...one]), [[0, 0], [8, 8], [8, 24]]);
});

test("a message beside the buffer is for the cell that changes, and carries what was sent", () => {
  const data = two();
  const { from, into, held } = data.route(data.messages[1][0]);
  assert.deepEqual([from, into, held[0].counts], [[0], [0], [1, 0]]);
  assert.deepEqual(data.route(data.messages[2][0]).into, [0, 1]);
});

test("the lines of a step name the ranks that communicate and those that wait", () => {
  const data = two();
  assert.deepEqual(data.lines(0), []);
  assert.deepEqual(data.lines(2), [{ source: 0, line: 3, busy: [0, 1], waiting: [] }]);
  data.where[1] = [1, 0];
  data.messages[2] = [];
  assert.deepEqual(data.lines(2).map((one) => [one.line, one.waiting]), [[2, [1]], [3, [0]]]);
});

test("contributions come to runs, doubles, and whether each is there once", () => {
  const { counts, runs: unbroken, ranks, whole } = contributions("1101");
  assert.deepEqual([counts, unbroken, ranks, whole], [[1, 1, 0, 1], [[0, 1], [3, 3]], 3, false]);
  assert.deepEqual([contributions("12").twice, contributions("12").whole], [[1], false]);
  assert.deepEqual([contributions("11").whole, contributions("1").whole, contributions(null)], [true, false, null]);
});

// ---- playback

const steps = (count, options) => new Playback([...Array(count + 1).keys()], () => 1 / 1.3, options);

test("playing goes through every step, stops at the end, and begins again from there", () => {
  const playback = steps(3);
  playback.act("play", 0);
  const seen = new Set();
  for (let now = 0; playback.moving && now < 60_000; now += 16) {
    playback.advance(now);
    seen.add(playback.step);
  }
  assert.deepEqual([[...seen], playback.shown, playback.moving], [[0, 1, 2, 3], 3, false]);
  playback.act("play", 0);
  assert.deepEqual([playback.step, playback.playing], [0, true]);
});

test("a frame's stamp before the click, or long after, does no harm", () => {
  const playback = steps(3);
  playback.act("play", 1000);
  for (const now of [990, 90_000]) playback.advance(now);
  assert.ok(playback.time >= 0 && playback.time < 0.3);
});

test("one step on is seen on its way, and a second press goes on from there", () => {
  const playback = steps(5);
  playback.act("forward", 0);
  playback.advance(200);
  playback.act("forward", 200);
  assert.deepEqual([playback.time, playback.target], [1, 2]);
  for (let now = 200; playback.moving; now += 100) playback.advance(now);
  assert.equal(playback.time, 2);
  playback.seek(99);
  playback.act("forward", 0);
  assert.deepEqual([playback.time, playback.moving], [5, false]);
});

test("moments may be at any times: a step back goes to the one before", () => {
  const playback = new Playback([0, 1, 4, 6], () => 1);
  playback.seek(4.5);
  for (const time of [4, 1, 0, 0]) {
    playback.act("back", 0);
    assert.equal(playback.time, time);
  }
});

test("with reduced motion there is nothing between the steps", () => {
  const playback = steps(3, { still: true });
  playback.act("forward", 0);
  assert.deepEqual([playback.step, playback.moving], [1, false]);
  playback.act("play", 0);
  for (let now = 0; playback.moving; now += 50) {
    playback.advance(now);
    assert.equal(playback.shown, playback.step);
  }
  assert.equal(playback.step, 3);
});

test("a run without steps stays where it is; long runs begin faster", () => {
  const playback = steps(0);
  for (const name of ["play", "forward", "back"]) playback.act(name, 0);
  assert.deepEqual([playback.time, playback.moving], [0, false]);
  const speeds = [14, 60, 126, 5000].map((steps) => playbackOf({ steps, phaseOf: () => null }).speed);
  assert.deepEqual(speeds, [1, 2, 4, 16]);
});

// ---- geometry

test("the pointer finds every cell where it is drawn, at every width", () => {
  for (const ranks of [1, 2, 8, 33, 64])
    for (let width = 320; width < 720; width += 13) {
      const grid = gridGeometry(empty(ranks, ranks), width);
      for (let rank = 0; rank < ranks; rank += 7)
        for (let cell = 0; cell < ranks; cell += 5) {
          const { x, y, w, h } = grid.area(rank, cell);
          assert.ok(x >= 0 && x + w <= width && y + h <= grid.height);
          for (const share of [0.01, 0.5, 0.99]) assert.deepEqual(grid.at(x + share * w, y + share * h), { rank, cell });
        }
      assert.deepEqual([grid.at(-5, 20), grid.at(3, 20)], [null, { rank: 0, cell: null }]); // beside the cells is the rank
    }
});

test("each message moves as a strip of its cells, from row to row; without cells too", () => {
  const [move, ...others] = movesOf(two(), gridGeometry(two(), 700), 2);
  assert.deepEqual([others.length, move.held.map((one) => one.counts)], [0, [[1, 1], [0, 1]]]);
  assert.ok(move.path.a.y > move.path.b.y && move.arrow.a.x > move.from.x + move.from.w);
  const data = two({ cells: [] });
  assert.equal(movesOf(data, gridGeometry(data, 700), 2).length, 1);
});

test("on a narrow page the words of a ring are above it, and its cells keep their room", () => {
  const spots = [[0.5, 0], [1, 0.5], [0.5, 1], [0, 0.5]];
  const data = { ranks: 4, columns: 4, longest: 2, messages: [], shape: { kind: "ring", spots } };
  for (const width of [316, 480]) assert.ok(stageGeometry(data, width).area(0, 0).w >= 18);
});
