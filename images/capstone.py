"""The seven steps of the capstone project."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.sketch import Sketch

STEPS = (
    ("1 · Plan", "a question that\na number can answer"),
    ("2 · Baseline", "one device,\nas fast as it can be"),
    ("3 · Predict", "a speed-up,\nwith reasons"),
    ("4 · Same result", "as the serial\nprogram"),
    ("5 · Measure", "interleaved rounds,\nwith an interval"),
    ("6 · Explain", "breakdown, panel,\nwhat went wrong"),
    ("7 · Report", "one page;\nnumbers that agree"),
)
ALT = (
    "The capstone project in seven steps, one after the other: plan, baseline, predict, same "
    "result, measure, explain, report. From explain an arrow leads back to predict: a prediction "
    "that was wrong is the beginning of a better one."
)


def draw() -> Sketch:
    board = Sketch("One training, from the question to the report", 330)
    boxes = []
    for index, (name, words) in enumerate(STEPS):
        row, column = divmod(index, 4)
        x, y = 24 + 194.0 * column, 72 + 130.0 * row
        boxes.append(board.box(x, y, 170, 86, series=2 if index in (2, 4) else None))
        board.text(x + 85, y + 20, name, size=10, bold=True, align="center", inside=boxes[-1])
        board.text(x + 85, y + 54, words, size=9, align="center", inside=boxes[-1])
    for one, other in pairwise(boxes[:4]):
        board.arrow(one.right, other.left)
    last, first = boxes[3].bottom, boxes[4].top
    board.arrow(last, (last[0], last[1] + 16), (first[0], last[1] + 16), first)
    for one, other in pairwise(boxes[4:]):
        board.arrow(one.right, other.left)
    start, end = boxes[5].x + 130, boxes[2].x + 40
    down = boxes[5].y - 14
    board.arrow((start, boxes[5].y), (start, down), (end, down), (end, down - 30), dashed=True)
    board.text(24, 310, "Dashed: a wrong prediction leads to a better one.", size=9, faint=True)
    return board
