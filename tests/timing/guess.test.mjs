// The slider of a guess: equal steps, or factors where the range is wide.
import assert from "node:assert/strict";
import { test } from "node:test";
import { numberAt, shareAt } from "../../labkit/timing/page/guess.mjs";

test("a narrow range goes in equal steps, a wide one in factors, and both ways agree", () => {
  assert.equal(numberAt(0.5, [0, 100]), 50);
  assert.equal(numberAt(0.5, [1, 10000]), 100);
  for (const range of [[0, 100], [1, 10000], [0.1, 100]])
    for (const share of [0, 0.25, 0.5, 1]) assert.ok(Math.abs(shareAt(numberAt(share, range), range) - share) < 0.01);
});

test("a number outside of the range stands at its end", () => {
  assert.deepEqual([0, -1, 1e9].map((number) => shareAt(number, [1, 100])), [0, 0, 1]);
});
