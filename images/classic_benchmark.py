"""Five faults of a classic benchmark."""

from __future__ import annotations

from labkit.views.figure import OKABE_ITO
from labkit.views.sketch import Sketch

ALT = (
    "An outline of the classic benchmark with five marks: 1 it counts CPU seconds of all "
    "threads; 2 tracing and start-up are counted with the first epoch; 3 the batch of 64 is "
    "written by hand and the pipeline differs; 4 the loss expects probabilities while the "
    "model gives logits; 5 each is run once only."
)


def draw() -> Sketch:
    board = Sketch(
        "Five faults of a classic benchmark",
        448,
        "Each mark is a reason why its two times cannot be compared. Lecture 04 fixes them.",
    )
    lines = (
        ("one = build(loss=from_logits)", 0),
        ("start = process_time()", 1),
        ("one.fit(arrays, batch=32, epochs=5)", 2),
        ("print(process_time() - start)", 0),
        ("", 0),
        ("global_batch = 32 * replicas", 0),
        ("data = pipeline(arrays, batch=64)", 3),
        ("with strategy.scope():", 0),
        ("    two = build(loss='crossentropy')", 4),
        ("start = process_time()", 0),
        ("two.fit(data, epochs=5)", 5),
        ("print(process_time() - start)", 0),
    )
    notes = (
        "CPU seconds of all threads,\nnot the time on the wall",
        "tracing and start-up counted\nin with the first epoch",
        "64 written by hand; another\npipeline, another batch",
        "the loss expects probabilities,\nthe model gives logits",
        "one run of each: no way to\nknow what chance did",
    )
    board.frame(24, 80, 448, 340, "the classic benchmark, in outline")
    ys = {}
    for index, (line, mark) in enumerate(lines):
        y = 124 + 25 * index
        board.text(44, y, line, size=9, mono=True)
        if mark:
            ys[mark] = y
    for number, note in enumerate(notes, 1):
        y = 112 + 70 * (number - 1)
        _mark(board, 448, ys[number], number)
        _mark(board, 520, y, number)
        board.line((460, ys[number]), (508, y), color=OKABE_ITO["vermillion"])
        board.text(540, y, note, size=9.5)
    return board


def _mark(board: Sketch, x: float, y: float, number: int) -> None:
    board.box(x - 10, y - 10, 20, 20, series=3, fill=OKABE_ITO["vermillion"], corner=9.9)
    board.text(x, y, str(number), size=9, bold=True, color="white", align="center")
