"""One notebook, two replicas, one honest comparison."""

from __future__ import annotations

from labkit.kinds import modelled
from labkit.views.sketch import Sketch

ALT = (
    "A schematic of labkit. Left: a notebook with three cells, labkit.hardware, "
    "labkit.replicas and labkit.compare. Middle: replica 0 and replica 1, joined by an all- "
    "reduce. Right: what you learn, a comparison of 1 device with 2 replicas that ends in one "
    "of four verdicts: faster, slower, same within 0.5 per cent, or cannot tell."
)


def draw() -> Sketch:
    board = Sketch(
        "One notebook, two replicas, one honest comparison",
        372,
        "The same training step on one device and on several, timed fairly and explained.",
        kind=modelled("schematic; the numbers come from your own machine"),
    )
    board.frame(24, 84, 236, 268, "your notebook")
    cells = ("labkit.hardware()", "pair = labkit.replicas(2)", "labkit.compare({...})")
    for row, code in enumerate(cells):
        board.box(42, 120 + 74 * row, 200, 34, code, size=8.5, mono=True, corner=3, fill="white")
        for line in range(2):
            y = 166 + 74 * row + 10 * line
            board.line((48, y), (48 + (150, 96)[line], y), color="#D5D8DC", heavy=True)
    shared = board.box(308, 190, 204, 56, "all-reduce", series=2, hatch=True, bold=True)
    for number, y in enumerate((84, 280)):
        replica = board.box(
            308, y, 204, 72, f"replica {number}", series=number, hatch=True, bold=True
        )
        ends = (replica.bottom, shared.top) if number == 0 else (replica.top, shared.bottom)
        board.arrow(*ends, both=True)
    board.arrow((260, 218), (308, 218))
    board.arrow((512, 218), (560, 218))
    board.frame(560, 84, 216, 268, "what you learn")
    for row, (name, series) in enumerate((("1 device", None), ("2 replicas", 2))):
        y = 118 + 42 * row
        board.text(578, y + 13, name, size=9)
        # No lengths that could be read as a result: those come from the reader's machine.
        board.box(
            656, y, 102, 26, "?", series=series, hatch=series is not None, bold=True, corner=3,
            fill="#ECEEF0" if series is None else None,
        )  # fmt: skip
    for row, verdict in enumerate(("faster", "slower", "same within 0.5 %", "cannot tell")):
        y = 216 + 32 * row
        board.box(578, y, 180, 24, verdict, size=9, corner=11)
    return board
