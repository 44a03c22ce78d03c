// The parameter server's pure parts: what is to see at a time. Run by test_pages.py.
import assert from "node:assert/strict";
import test from "node:test";

import { gradientsOf, momentsOf, placesOf, sceneAt, sentenceOf } from "../../labkit/updates/page/parameter_server.mjs";

// worker, read, written, requested, pulled, began, ended, arrived, ready, applied
const gradients = gradientsOf({ gradients: [
  [0, 0, 1, 0, 0, 1, 3, 4, 4, 4],
  [1, 0, 2, 0, 0, 1, 8, 9, 9, 9],
  [0, 1, null, 4, 5, 6, 7, 9.5, 9.5, 9.5],
] });
const at = (time) => sceneAt(gradients, 2, time);

test("a message is a dot with the version that it carries, and a push knows how far it is behind", () => {
  assert.deepEqual(at(0.5).dots.map(({ worker, kind, share, version }) => [worker, kind, share, version]), [[0, "pull", 0.5, 0], [1, "pull", 0.5, 0]]);
  const push = at(8.5).dots.find(({ worker }) => worker === 1);
  assert.deepEqual([push.kind, push.share, push.version, push.behind, push.late], ["push", 0.5, 0, 1, false]);
  assert.ok(at(8.5).dots.find(({ worker }) => worker === 0).late);
});

test("the server's version is the newest that was made, and workers compute or wait", () => {
  assert.deepEqual([0, 3.9, 4, 9, 20].map((time) => at(time).version), [0, 0, 1, 2, 2]);
  assert.deepEqual([2, 4.5, 6.5].map((time) => at(time).workers[0].does), ["computes", "waits", "computes"]);
  assert.equal(at(2).workers[0].share, 0.5);
  assert.deepEqual([5, 9.2, 20].map((time) => at(time).last.staleness), [0, 1, null]);
  assert.match(sentenceOf(at(9.2), 9.2), /worker 1, was 1 version stale/);
  assert.match(sentenceOf(at(20), 20), /worker 0 came too late/);
});

test("keys go to each moment; workers stand inside the stage, apart from the server", () => {
  assert.deepEqual(momentsOf(gradients, 8), [0, 1, 3, 4, 5, 6, 7, 8]);
  for (const workers of [2, 4, 8])
    for (const width of [420, 760]) {
      const { server, workers: places } = placesOf(workers, width);
      for (const { x, y } of places) assert.ok(x >= 64 && x <= width - 64 && y >= 29 && y <= 391 && Math.hypot(x - server.x, y - server.y) > server.r + 29);
    }
});
