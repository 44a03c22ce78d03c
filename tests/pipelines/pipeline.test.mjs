import assert from "node:assert/strict";
import test from "node:test";
import { bubbleText, countsOf, gapsOf, messagesOf, nameOf, neighbour, pieceText, ranksAt, sentence, stepTimes } from "../../labkit/pipelines/page/pipeline.mjs";
import { niceTicks } from "../../labkit/views/static/drawing.mjs";
import { momentAt } from "../../labkit/views/static/together.mjs";
import { measured, played } from "../../labkit/pipelines/page/schedules.mjs";

// Two ranks, two micro-batches, GPipe with F = B = 1.
const data = {
  rows: [
    [["F", 0, 0, 0, 0, 1], ["F", 1, 0, 0, 1, 2], ["B", 0, 0, 0, 4, 5], ["B", 1, 0, 0, 5, 6]],
    [["F", 0, 0, 1, 1, 2], ["F", 1, 0, 1, 2, 3], ["B", 0, 0, 1, 3, 4], ["B", 1, 0, 1, 4, 5]],
  ],
  chunks: 1, parts: 1, weights: false, unit: "",
};

test("a step is a time at which a piece starts, or the end", () => {
  assert.deepEqual(stepTimes(data.rows), [0, 1, 2, 3, 4, 5, 6]);
});

test("at each time it is known what runs, what comes next and what is held", () => {
  const [first, second] = ranksAt(data, 3);
  assert.equal(first.running, null);
  assert.equal(nameOf(first.next, 1), "B0");
  assert.equal(nameOf(second.running, 1), "B0");
  assert.deepEqual([first.held, second.held], [2, 2]);
  assert.deepEqual(ranksAt(data, 6).map(({ held }) => held), [0, 0]);
});

test("a sentence says what each rank does", () => {
  assert.equal(sentence(data, 0), "Time 0: rank 0 computes F0; rank 1 waits to begin F0.");
  assert.equal(sentence(data, 6), "Time 6: rank 0 is done; rank 1 is done.");
  assert.equal(nameOf(["F", 3, 1], 2), "F3.1");
});

test("arrow keys lead along a rank, and to the nearest piece of the next one", () => {
  let at = { rank: 0, index: 0 };
  const went = ["ArrowUp", "ArrowLeft", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowDown", "ArrowDown"].map((key) => {
    at = neighbour(data.rows, at, key);
    return nameOf(data.rows[at.rank][at.index], 1) + at.rank;
  });
  assert.deepEqual(went, ["F00", "F00", "F10", "F01", "F11", "F10", "F01", "F01"]);
  assert.equal(pieceText(data, { rank: 0, index: 2 }), "Rank 0, stage 0: B0, backward of micro-batch 0, from 4 to 5, after a wait of 2.");
});

test("what waits for its W is still held", () => {
  const rows = [[["F", 0, 0, 0, 0, 1], ["B", 0, 0, 0, 1, 2], ["W", 0, 0, 0, 2, 3]]];
  const held = [0, 1, 2, 3].map((time) => ranksAt({ rows, parts: 1, weights: true }, time)[0].held);
  assert.deepEqual(held, [1, 1, 1, 0]);
});

test("an F is sent to the next stage, and a B to the one before", () => {
  const found = messagesOf(data.rows).map(({ kind, m, from, to }) => `${kind}${m} ${from.rank}→${to.rank}`);
  assert.deepEqual(found.sort(), ["B0 1→0", "B1 1→0", "F0 0→1", "F1 0→1"]);
});

test("the hatched times of each rank are as long as the bubble", () => {
  for (const name of ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"]) {
    const found = played({ name, stages: 4, microbatches: 8, chunks: 2, times: [1, 1, 1, 0.1] });
    const sizes = measured(found);
    for (const row of found.rows) {
      const long = gapsOf(row, sizes).reduce((sum, [start, end]) => sum + end - start, 0);
      assert.ok(Math.abs(long - sizes.bubble) < 1e-9, `${name}: ${long}, ${sizes.bubble}`);
    }
  }
});

test("a formula stands beside the bubble only where the clock gives the same", () => {
  const of = (hop) => played({ name: "1f1b", stages: 4, microbatches: 8, chunks: 1, times: [1, 2, null, hop] });
  const [free, paid] = [0, 0.1].map((hop) => bubbleText(of(hop), measured(of(hop))));
  assert.equal(free, "9 = (p − 1)(F + B): 27.3 % of the step 33, 37.5 % of the ideal 24");
  assert.ok(paid.startsWith("10.6: "), paid);
});

test("interleaving takes groups of as many micro-batches as ranks", () => {
  assert.deepEqual(countsOf("interleaved", 8), [8, 16, 24, 32]);
  assert.equal(countsOf("gpipe", 8).length, 32);
});

test("ticks are round numbers", () => {
  assert.deepEqual(niceTicks(33, 7), [0, 5, 10, 15, 20, 25, 30]);
  assert.deepEqual(niceTicks(0.31, 4), [0, 0.1, 0.2, 0.30000000000000004]);
});

test("a time of the common clock leads to a moment of each player", () => {
  const found = [0, 1, 2, 4, 9].map((time) => momentAt([0, 2, 4], [0, 1, 2], time));
  assert.deepEqual(found, [0, 0.5, 1, 2, 2]);
});
