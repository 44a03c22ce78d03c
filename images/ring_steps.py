"""Ring all-reduce on 4 ranks, a table after each step."""

from __future__ import annotations

from _operation import RANKS

from labkit.collectives import programs, run
from labkit.collectives.page.still import COUNTED, Layout, draw_line
from labkit.views.sketch import Sketch

ALT = (
    "Ring all-reduce on 4 ranks in seven tables, with an arrow for each message. In the "
    "reduce-scatter, steps 1 to 3, every rank sends one chunk to its right neighbour, which adds "
    "it; then rank 0 holds the sum 32, rank 1 holds 36, rank 2 holds 40, rank 3 holds 28. In the "
    "all-gather, steps 4 to 6, these sums travel on, until every rank holds 28, 32, 36, 40."
)
PHASES = {
    "Reduce-scatter: partial sums travel": (0, 1, 2, 3),
    "All-gather: finished sums travel": (4, 5, 6),
}


def draw() -> Sketch:
    trace = run(programs.ring_all_reduce, ranks=RANKS)
    contributions = trace.contributions()
    layout = Layout.of(trace, contributions)
    top, tall = 132.0, layout.high * RANKS + 70
    board = Sketch(
        "Ring all-reduce, step by step",
        top + tall * len(PHASES) - 50,
        "Every rank sends to its right neighbour in every step. Heavy: what a step has changed.",
        kind=COUNTED,
    )
    for line, (phase, steps) in enumerate(PHASES.items()):
        board.text(24, top + tall * line - 38, phase, size=9.5, bold=True)
        draw_line(board, trace, contributions, steps, top + tall * line, layout)
    chunks, buffers = trace.messages_sent[0], trace.bytes_sent[0] / trace.inputs[0].nbytes
    note = f"Every rank has sent\n{chunks} chunks, together\n{buffers:g} times its buffer."
    board.text(648, top + tall + 18, note, size=9, faint=True)
    return board
