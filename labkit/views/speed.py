"""Diagrams of speed: why two can be slower than one, and how a benchmark misleads."""

from __future__ import annotations

from labkit.kinds import modelled
from labkit.views.figure import OKABE_ITO
from labkit.views.sketch import Box, Diagram, Sketch

__all__ = ["diagrams", "step_length"]

# Parts of a step in made-up units, chosen to show the idea. Host work and the all-reduce cost the
# same for a small and a large model here; only the computing grows.
HOST, REDUCE, UPDATE = 3, 4, 1
SERIES = {"compute": 0, "all-reduce": 2, "update": 1}
LEGEND = {
    "host": "host starts the work",
    "compute": "compute",
    "all-reduce": "all-reduce",
    "update": "update",
}


def step_length(compute: int, replicas: int) -> tuple[tuple[str, int], ...]:
    """The parts of one step with `compute` units of work shared by so many replicas.

    >>> sum(n for _, n in step_length(4, 1)), sum(n for _, n in step_length(4, 2))
    (8, 13)
    >>> sum(n for _, n in step_length(24, 1)), sum(n for _, n in step_length(24, 2))
    (28, 23)
    """
    parts = [("host", HOST * replicas), ("compute", compute // replicas)]
    if replicas > 1:
        parts.append(("all-reduce", REDUCE))
    return (*parts, ("update", UPDATE))


def _part(
    board: Sketch, x: float, y: float, width: float, height: float, part: str, words: str = ""
) -> Box:
    if part == "host":
        return board.box(x, y, width, height, words, size=8.5, corner=2, fill="#ECEEF0")
    return board.box(
        x, y, width, height, words, series=SERIES[part], hatch=True, size=8.5, corner=2
    )


def why_slower() -> Sketch:
    board = Sketch(
        "Why two replicas can be slower than one",
        452,
        "Computing is shared out. Starting the work and agreeing on the gradient are extra.",
        kind=modelled("schematic, lengths chosen to show the idea; lecture 03 measures yours"),
    )
    unit, left = 23.0, 120.0
    for block, (name, compute) in enumerate((("small model", 4), ("large model", 24))):
        top = 94 + 164 * block
        board.text(24, top, name, bold=True)
        for row, replicas in enumerate((1, 2)):
            y = top + 18 + row * 60
            board.text(
                24, y + 20, "1 replica" if replicas == 1 else f"{replicas} replicas", size=9.5
            )
            x = left
            for part, length in step_length(compute, replicas):
                words = part if length > 2 else "½" if part == "compute" else ""
                x = _part(board, x, y, unit * length, 40, part, words).right[0]
    x = left
    for part, words in LEGEND.items():
        _part(board, x, 418, 22, 14, part)
        board.text(x + 30, 425, words, size=9)
        x += 60 + 8.0 * len(words)
    return board


def scaling() -> Sketch:
    board = Sketch(
        "Strong and weak scaling",
        384,
        "Say which of the two you measure: they answer different questions.",
    )
    panels = (
        ("strong scaling", "same global batch", "ideal: the step takes 1/n of the time", False),
        ("weak scaling", "same batch per replica", "ideal: as long a step, n × the data", True),
    )
    for side, (name, what, ideal, weak) in enumerate(panels):
        left = 24 + 388 * side
        board.frame(left, 80, 364, 274, "")
        board.text(left + 20, 102, name, bold=True, size=11)
        board.text(left + 344, 102, what, faint=True, size=9.5, align="right")
        for row, replicas in enumerate((1, 2, 4)):
            y = 126 + 68 * row
            board.text(left + 20, y + 24, f"{replicas} ×", bold=True)
            pitch = 290 / (4 if weak else replicas)
            words = str(32 if weak else 32 // replicas)
            for number in range(replicas):
                board.box(
                    left + 60 + pitch * number, y, pitch - 6, 48, words,
                    series=(0, 1, 3, 4)[number], hatch=True, size=9.5, corner=3,
                )  # fmt: skip
        board.text(left + 20, 332, ideal, size=9.5, faint=True)
    return board


def naive_benchmark() -> Sketch:
    board = Sketch(
        "A benchmark that answers nothing",
        448,
        "Each mark is a reason why its two times cannot be compared. Lecture 04 mends them.",
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
    board.frame(24, 80, 448, 340, "the naive benchmark, in outline")
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


def diagrams() -> dict[str, Diagram]:
    """The pictures of this file for the folder of images."""
    return {
        "why_slower": Diagram(
            "03",
            why_slower,
            "Schematic bars of one step. Small model: with two replicas the computing halves, "
            "but the host starts twice the work and an all-reduce is added, so the step is "
            "longer than with one. Large model: the halved computing outweighs both, so the "
            "step is shorter.",
        ),
        "scaling": Diagram(
            "03",
            scaling,
            "Strong scaling keeps the global batch of 32 and cuts it: 32, then 16 and 16, then "
            "four times 8. Weak scaling keeps 32 examples per replica: 32, then two times 32, "
            "then four times 32.",
        ),
        "naive_benchmark": Diagram(
            "04",
            naive_benchmark,
            "An outline of the naive benchmark with five marks: 1 it counts CPU seconds of all "
            "threads; 2 tracing and start-up are counted with the first epoch; 3 the batch of "
            "64 is written by hand and the pipeline differs; 4 the loss expects probabilities "
            "while the model gives logits; 5 each is run once only.",
        ),
    }
