import assert from "node:assert/strict";
import test from "node:test";
import { nameOf, ranksAt, sentence, stepTimes } from "../../labkit/views/static/pipeline.mjs";

// Two ranks, two micro-batches, GPipe with F = B = 1.
const data = {
  rows: [
    [["F", 0, 0, 0, 1], ["F", 1, 0, 1, 2], ["B", 0, 0, 4, 5], ["B", 1, 0, 5, 6]],
    [["F", 0, 0, 1, 2], ["F", 1, 0, 2, 3], ["B", 0, 0, 3, 4], ["B", 1, 0, 4, 5]],
  ],
  chunks: 1, weights: false, unit: "",
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

test("what waits for its W is still held", () => {
  const rows = [[["F", 0, 0, 0, 1], ["B", 0, 0, 1, 2], ["W", 0, 0, 2, 3]]];
  const held = [0, 1, 2, 3].map((time) => ranksAt({ rows, chunks: 1, weights: true }, time)[0].held);
  assert.deepEqual(held, [1, 1, 1, 0]);
});
