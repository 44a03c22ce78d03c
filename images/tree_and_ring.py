"""Steps and bytes of tree and ring all-reduce on 2 to 64 ranks."""

from __future__ import annotations

from collections.abc import Callable

from _operation import buffer_bytes, buffers_text, ran

from labkit.collectives import Trace
from labkit.collectives.page.still import COUNTED
from labkit.views.sketch import Sketch

ALT = (
    "Tree and ring all-reduce on 2, 4, 8, 16, 32 and 64 ranks. Steps of the tree: 2, 4, 6, 8, "
    "10, 12; of the ring: 2, 6, 14, 30, 62, 126. The busiest rank of the tree sends 1, 2, 3, 4, "
    "5, 6 buffers; of the ring 1, 1.50, 1.75, 1.88, 1.94, 1.97."
)
NAMES = ("tree_all_reduce", "ring_all_reduce")
COUNTS = (2, 4, 8, 16, 32, 64)
# Title of a panel, its value for a run, the value as text.
PANELS: tuple[tuple[str, Callable[[Trace], float], Callable[[float], str]], ...] = (
    ("steps, one after the other", lambda trace: trace.steps, lambda value: f"{value:g}"),
    (
        "the busiest rank sends",
        lambda trace: max(trace.bytes_sent) / buffer_bytes(trace),
        buffers_text,
    ),
)


def draw() -> Sketch:
    traces = {name: [ran(name, ranks, 64) for ranks in COUNTS] for name in NAMES}
    board = Sketch(
        "Few large messages or many small ones",
        162 + 40 * len(COUNTS),
        "The tree needs few steps, and each moves everything. The ring needs many, each a chunk.",
        kind=COUNTED,
    )
    for series, name in enumerate(NAMES):
        board.box(24 + 170 * series, 79, 20, 12, series=series, hatch=True, corner=1.5)
        board.text(51 + 170 * series, 85, name, size=9)
    for number, (head, value, text) in enumerate(PANELS):
        x = 24.0 + 388 * number
        board.text(x, 122, head, size=9.5, bold=True)
        most = max(value(trace) for each in traces.values() for trace in each)
        for row, ranks in enumerate(COUNTS):
            y = 142.0 + 40 * row
            board.text(x, y + 14, f"{ranks} ranks", size=9)
            for series, name in enumerate(NAMES):
                amount = value(traces[name][row])
                wide, at = max(1.0, 240 * amount / most), y + 14 * series
                board.box(
                    x + 66, at, wide, 12.5, series=series, hatch=True, corner=min(1.5, wide / 4)
                )
                board.text(x + 74 + wide, at + 6.5, text(amount), size=8.5)
    return board
