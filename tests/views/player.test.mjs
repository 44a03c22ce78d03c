// The player's pure parts: the film, its clock, its words, its geometry. Run by test_player_page.py.
import assert from "node:assert/strict";
import test from "node:test";

import { Clock, LANDED, flown } from "../../labkit/views/static/player_clock.mjs";
import { coloured, dedented } from "../../labkit/views/static/player_code.mjs";
import { Film, factsOf } from "../../labkit/views/static/player_film.mjs";
import { piecesOf, runs } from "../../labkit/views/static/player_grid.mjs";
import { along, circleHit, circleLayout, edge, gridHit, gridLayout } from "../../labkit/views/static/player_layout.mjs";
import { inkOn, shade, shades } from "../../labkit/views/static/player_paint.mjs";
import { bytesText, cellWords, holdsWords, pattern, rankWords, ranksText, secondsText, stepWords } from "../../labkit/views/static/player_words.mjs";

const plain = (text) => text.replaceAll("\u00a0", " ");
const near = (a, b, by = 1e-6) => assert.ok(Math.abs(a - b) <= by, `${a} is not ${b}`);
const sent = (...pairs) => pairs.map(([source, dest]) => ({ source, dest, nbytes: 8 }));

// Two ranks swap a number into scratch memory and add it; then rank 1 sends all to rank 0; rank 1 has ended.
function two() {
  return new Film({
    program: "two", ranks: 2, steps: 2, options: {}, op: "sum", link: "modelled: nothing",
    sources: [["two", 1, "def two(comm, buffer):\n    swap()\n    send()"]],
    places: [[0, 2], [0, 3]],
    where: [[0, 0], [1, -1]],
    messages: {
      source: [0, 1, 1], dest: [1, 0, 0], step: [1, 1, 2], nbytes: [8, 8, 16],
      from: [[0, 1], [0, 1], [0, 2]], into: [null, null, [0, 2]], sentAt: [0, 0, 1], receivedAt: [0, 0, 1],
    },
    cells: [[0, 1], [1, 2]],
    changes: {
      // Not in the order of the cells: the film has to sort them.
      step: [1, 0, 0, 0, 0, 1, 2], rank: [1, 0, 0, 1, 1, 0, 0], cell: [0, 0, 1, 0, 1, 0, 1],
      holding: [2, 0, 0, 1, 1, 2, 3], text: [4, 0, 1, 2, 3, 4, 5],
    },
    holdings: ["10", "01", "11", "21"], texts: ["1", "2", "3", "4", "4!", "8"],
    clock: [0, 1e-6, 3e-6],
  });
}

// ---- the film

test("a cell shows its last change up to the step, forwards and backwards", () => {
  const film = two();
  const texts = (step) => [0, 1].map((rank) => [0, 1].map((cell) => film.holding(step, rank, cell).text).join(" "));
  const all = [["1 2", "3 4"], ["4! 2", "4! 4"], ["4! 8", "4! 4"]];
  for (const step of [0, 1, 2, 1, 0, 2]) assert.deepEqual(texts(step), all[step]);
  assert.equal(film.holding(2, 0, 1).since, 2);
  assert.equal(film.holding(1, 5, 0), null);
});

test("bytes are summed by rank and step", () => {
  const film = two();
  assert.deepEqual([0, 1, 2].map((step) => [...film.bytes(step)]), [[0, 0], [8, 8], [8, 24]]);
});

test("a message into scratch memory lands in the cell that changes, with what it was sent as", () => {
  const film = two();
  const [first] = film.messages(1);
  assert.deepEqual(film.ends(first), { from: [0], into: [0], scratchFrom: false, scratchInto: true });
  assert.deepEqual([...film.carried(first, 0).counts], [1, 0]);
  assert.deepEqual(film.ends(film.messages(2)[0]).into, [0, 1]);
});

test("the lines of a step name who works there and who waits", () => {
  const film = two();
  assert.deepEqual(film.lines(0), []);
  assert.deepEqual(film.lines(1), [{ source: 0, line: 2, busy: [0, 1], waiting: [] }]);
  assert.deepEqual(film.lines(2), [{ source: 0, line: 3, busy: [0, 1], waiting: [] }]);
  film.data.where[1] = [1, 0];
  film.byStep[2] = [];
  assert.deepEqual(film.lines(2), [{ source: 0, line: 2, busy: [], waiting: [1] }, { source: 0, line: 3, busy: [], waiting: [0] }]);
});

test("contributions come to runs, doubles and whether they are whole", () => {
  assert.deepEqual(factsOf([1, 1, 0, 1], 4), { known: true, ranks: 3, runs: [[0, 2], [3, 4]], twice: [], whole: false });
  assert.deepEqual(factsOf([1, 2], 2).twice, [1]);
  assert.equal(factsOf([1, 2], 2).whole, false);
  assert.equal(factsOf([1, 1], 2).whole, true);
  assert.equal(factsOf([1], 1).whole, false);
  assert.equal(factsOf(null, 2).known, false);
});

// ---- the clock

test("playing goes through every step and stops at the end", () => {
  const clock = new Clock(3);
  clock.toggle(0);
  const told = new Set();
  for (let now = 0; clock.moving && now < 60_000; now += 16) {
    clock.playOn(now);
    told.add(clock.told);
    assert.ok(clock.phase >= 0 && clock.phase < 1);
  }
  assert.deepEqual([...told], [0, 1, 2, 3]);
  assert.equal(clock.position, 3);
  assert.equal(clock.playing, false);
  clock.toggle(0);
  assert.equal(clock.position, 0, "played again from the beginning");
});

test("a frame's stamp before the click, or long after, does no harm", () => {
  const clock = new Clock(3);
  clock.toggle(1000);
  clock.playOn(990);
  assert.equal(clock.position, 0);
  clock.playOn(90_000);
  assert.ok(clock.position < 0.3);
});

test("one step on is seen on its way, and a second press goes on from there", () => {
  const clock = new Clock(5);
  clock.forward(0);
  assert.deepEqual([clock.moving, clock.playing, clock.target], [true, false, 1]);
  clock.playOn(200);
  clock.forward(200);
  assert.deepEqual([clock.position, clock.target], [1, 2]);
  for (let now = 200; clock.moving; now += 100) clock.playOn(now);
  assert.equal(clock.position, 2);
  clock.back();
  assert.equal(clock.position, 1);
  clock.seek(99);
  clock.forward(0);
  assert.deepEqual([clock.position, clock.moving], [5, false]);
});

test("a pause shows a whole step: the nearest", () => {
  const clock = new Clock(3);
  for (const [at, expected] of [[0.3, 0], [0.7, 1]]) {
    clock.toggle(0);
    clock.position = at;
    clock.toggle(0);
    assert.equal(clock.position, expected);
    clock.seek(0);
  }
});

test("with less motion there is nothing between the steps", () => {
  const clock = new Clock(3, { still: true });
  clock.forward(0);
  assert.equal(clock.position, 1);
  clock.toggle(0);
  for (let now = 0; clock.moving; now += 50) {
    clock.playOn(now);
    assert.equal(clock.phase, 0);
  }
  assert.equal(clock.position, 3);
});

test("a run without steps stays where it is", () => {
  const clock = new Clock(0);
  clock.toggle(0);
  clock.forward(0);
  assert.deepEqual([clock.position, clock.moving], [0, false]);
});

test("long runs begin faster, and the speed stays within its choices", () => {
  assert.deepEqual([14, 60, 126, 5000].map((steps) => new Clock(steps).speed), [1, 2, 4, 16]);
  const clock = new Clock(3);
  for (let i = 0; i < 20; i += 1) clock.faster(1);
  assert.equal(clock.speed, 16);
  for (let i = 0; i < 20; i += 1) clock.faster(-1);
  assert.equal(clock.speed, 0.25);
});

test("a message has landed before its receiver shows what came of it", () => {
  assert.equal(flown(0), 0);
  assert.equal(flown(LANDED), 1);
  let last = 0;
  for (let phase = 0; phase <= 1; phase += 0.01) {
    assert.ok(flown(phase) >= last);
    last = flown(phase);
  }
});

// ---- words

test("who sends to whom is said in the shortest true words", () => {
  const ring = (n, by) => sent(...Array.from({ length: n }, (_, r) => [r, (r + by + n) % n]));
  assert.equal(pattern(ring(4, 1), 4), "Every rank sends to the next one, and the last one to rank 0.");
  assert.equal(pattern(ring(5, -1), 5), "Every rank sends to the one before it, and rank 0 to the last one.");
  assert.equal(pattern(ring(8, 3), 8), "Every rank sends to the rank 3 places further on, round the circle.");
  assert.equal(pattern(ring(8, 6), 8), "Every rank sends to the rank 2 places back, round the circle.");
  assert.equal(pattern(sent([4, 0], [5, 1], [6, 2], [7, 3]), 8), "Ranks 4–7 send to the rank 4 places back.");
  assert.equal(pattern(sent([0, 1], [1, 0]), 2), "The two ranks swap.");
  assert.equal(pattern(sent([0, 2], [2, 0], [1, 3], [3, 1]), 4), "Every rank swaps with the rank 2 places away.");
  assert.equal(pattern(sent([0, 2], [2, 0], [1, 3], [3, 1]), 6), "Ranks 0–3 swap with the rank 2 places away.");
  assert.equal(pattern(sent([3, 1]), 4), "Rank 3 sends to rank 1.");
  assert.equal(pattern(sent([1, 0], [2, 0], [3, 0]), 4), "Ranks 1–3 send to rank 0.");
  assert.equal(pattern(sent([0, 1], [1, 3], [5, 0], [6, 2], [4, 5]), 8), "0 → 1, 1 → 3, 4 → 5, 5 → 0 and 1 more.");
});

test("what is said of a step can be checked against its messages", () => {
  const film = two();
  assert.equal(stepWords(film, 0), "Before the first step: each rank holds what it was given.");
  assert.equal(plain(stepWords(film, 1)), "The two ranks swap (2 messages of 8 B).");
  assert.equal(plain(stepWords(film, 2)), "Rank 1 sends to rank 0 (16 B).");
});

test("a cell says its value and whose contributions are in it", () => {
  const film = two();
  assert.equal(cellWords(film, 0, 1, 0), "Rank 1, element 0: 3. Rank 1's contribution.");
  assert.equal(cellWords(film, 1, 0, 0), "Rank 0, element 0: 4!. All 2 contributions, each once.");
  assert.equal(plain(cellWords(film, 2, 0, 1)), "Rank 0, element 1: 8. Contributions of 2 ranks: 0, 1, and rank 0's 2 times.");
  assert.equal(holdsWords({ counts: null, facts: factsOf(null, 2) }, 2), "Whose contributions are in there is not known.");
  assert.equal(plain(rankWords(film, 2, 1)), "Rank 1: sends 16 B to 0, has ended. It has sent 24 B so far.");
});

test("numbers are written as everywhere in labkit", () => {
  assert.deepEqual([12, 407_080, 15e9].map((one) => plain(bytesText(one))), ["12 B", "407 kB", "15.0 GB"]);
  assert.deepEqual([0, 0.00123, 2.5, 70e-6].map((one) => plain(secondsText(one))), ["0 s", "1.23 ms", "2.50 s", "70.0 µs"]);
  assert.equal(ranksText([0, 1, 2, 3, 7, 9, 10]), "0–3, 7, 9, 10");
});

// ---- geometry

test("every cell is found again under its middle, from 1 to 64 ranks", () => {
  for (const ranks of [1, 2, 8, 33, 64])
    for (const width of [320, 700]) {
      const grid = gridLayout({ width, ranks, columns: ranks });
      for (let rank = 0; rank < ranks; rank += 7)
        for (let cell = 0; cell < ranks; cell += 5) {
          const { x, y, w, h } = grid.box(rank, cell);
          assert.ok(x >= 0 && x + w <= width && y + h <= grid.height);
          assert.deepEqual(gridHit(grid, x + w / 2, y + h / 2), { rank, cell });
        }
      assert.equal(gridHit(grid, -5, 30), null);
      assert.deepEqual(gridHit(grid, 3, grid.box(0, 0).y + 3), { rank: 0, cell: null });
    }
});

test("ranks on the circle do not touch, and each of their cells is found", () => {
  for (const ranks of [2, 3, 8, 33, 64]) {
    const circle = circleLayout({ width: 600, height: 440, ranks, columns: 8 });
    circle.at.forEach((one, rank) => {
      const next = circle.at[(rank + 1) % ranks];
      assert.ok(Math.hypot(one.x - next.x, one.y - next.y) > 2 * circle.node);
      assert.ok(one.y - circle.node >= 0 && one.y + circle.node <= 440);
    });
    const { x, y } = circle.at[1];
    assert.deepEqual(circleHit(circle, x + 0.8 * circle.node * Math.sin(0.1), y - 0.8 * circle.node * Math.cos(0.1)), { rank: 1, cell: 0 });
    assert.deepEqual(circleHit(circle, x, y), { rank: 1, cell: null });
  }
});

test("the way there and the way back are two", () => {
  const circle = circleLayout({ width: 600, height: 440, ranks: 6, columns: 6 });
  const there = along(edge(circle, 0, 2), 0.5);
  const back = along(edge(circle, 2, 0), 0.5);
  assert.ok(Math.hypot(there.x - back.x, there.y - back.y) > 10);
  near(along(edge(circle, 0, 2), 0).x, circle.at[0].x);
});

test("a step's messages fly in pieces, cell by cell, or in strips when they are too many", () => {
  const film = two();
  const grid = gridLayout({ width: 700, ranks: 2, columns: 2 });
  const pieces = piecesOf(film, grid, 2);
  assert.equal(pieces.length, 2);
  assert.deepEqual(pieces[1].from, grid.box(1, 1));
  assert.deepEqual(pieces[1].to, grid.box(0, 1));
  film.data.messages.from[2] = null;
  film.data.messages.into[2] = [0, 0];
  film.byStep[2] = [film.message(2)];
  assert.equal(piecesOf(film, grid, 2).length, 1);
  assert.deepEqual(runs([9, 3, 4, 5]), [[3, 5], [9, 9]]);
});

// ---- colours and program

test("the more contributions the deeper, and all of them stand out", () => {
  const paint = { whole: "green", shades: shades([255, 255, 255], [0, 0, 0]) };
  const level = (ranks) => Number(/\d+/.exec(shade({ whole: false, ranks }, 64, paint)));
  assert.ok(level(1) > level(20) && level(20) > level(63));
  assert.equal(shade({ whole: true, ranks: 64 }, 64, paint), "green");
  assert.deepEqual([inkOn([0, 114, 178]), inkOn([240, 228, 66])], ["#ffffff", "#1b1f23"]);
});

test("a program is coloured, and not one letter of it is lost", () => {
  const text = 'def ring(comm, x="a\\"#"):\n    """One\n    two."""  # three\n    if x < 3.5e-1 and not y: pass\n    s = f\'{x}\' "';
  const lines = coloured(text);
  assert.equal(lines.map((parts) => parts.map(([, words]) => words).join("")).join("\n"), text);
  const kinds = (kind) => lines.flat().filter(([one]) => one === kind).map(([, words]) => words);
  assert.deepEqual(kinds("keyword"), ["def", "if", "and", "not", "pass"]);
  assert.deepEqual(kinds("name"), ["ring"]);
  assert.deepEqual(kinds("comment"), ["# three"]);
  assert.ok(kinds("string").includes('    two."""'));
  assert.equal(dedented("    def f():\n        pass\n"), "def f():\n    pass\n");
});
