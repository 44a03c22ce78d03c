"""What pictures of collectives share: an operation before and after, ranks as coloured chips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labkit.collectives import programs
from labkit.collectives.page.cells import chip_color, draw_cells, draw_ranks, ink_on, size_of_values
from labkit.collectives.page.still import COUNTED
from labkit.collectives.trace import Trace, run
from labkit.views.sketch import Box, Sketch

RANKS = 4
CHIP = 38.0  # width of the ranks' numbers at the left of a table

Cells = Callable[[int, int], bool]  # which cells, by rank and chunk


def everywhere(rank: int, chunk: int) -> bool:
    return True


def root(rank: int, chunk: int) -> bool:
    return rank == 0


def own(rank: int, chunk: int) -> bool:
    return rank == chunk


def ran(name: str, ranks: int, size: int, **options: Any) -> Trace:
    """A run of one of the course's programs on `size` elements a rank."""
    return run(getattr(programs, name), [np.zeros(size) for _ in range(ranks)], **options)


def operation(name: str, subtitle: str, before: Cells, after: Cells) -> Sketch:
    """The cells that an operation needs, and the cells that it promises."""
    program = programs.ring_all_reduce if name == "all_reduce" else getattr(programs, name)
    trace = run(program, ranks=RANKS)
    contributions = trace.contributions()
    both = [contributions.at(step) for step in (0, trace.steps)]
    high, top, wide = 48.0, 134.0, 300.0
    gap = 752 - 2 * (wide + CHIP)
    title = name.replace("_", "-").capitalize()
    board = Sketch(title, top + high * RANKS + 38, subtitle, kind=COUNTED)
    size = min(size_of_values((0, 0, wide, high * RANKS), held) for held in both)
    cells = [(rank, chunk) for rank in range(RANKS) for chunk in range(RANKS)]
    for number, (held, shown) in enumerate(zip(both, (before, after), strict=True)):
        x = 24 + CHIP + number * (wide + CHIP + gap)
        table = draw_cells(
            board, (x, top, wide, high * RANKS), held, size=size,
            heads=[f"chunk {chunk}" for chunk in range(RANKS)],
            faded={cell for cell in cells if not shown(*cell)},
        )  # fmt: skip
        draw_ranks(board, x - CHIP, table)
        word = ("before", "after")[number]
        board.text(x + wide / 2 - 3, top - 36, word, size=9.5, bold=True, align="center")
    middle, start = top + high * RANKS / 2, 24 + CHIP + wide + 4
    board.arrow((start, middle), (start + gap - 12, middle))
    busiest = max(trace.messages_sent)
    words = (
        f"This program: {_counted(len(trace.messages), 'message')} in "
        f"{_counted(trace.steps, 'step')}; the busiest rank sends {busiest} of them."
    )
    board.text(24, top + high * RANKS + 18, words, size=9, faint=True)
    return board


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def rank_chip(board: Sketch, box: Box, rank: int) -> None:
    """A rank's number in its colour."""
    board.box(box.x, box.y, box.width, box.height, fill=chip_color(rank), corner=3)
    board.text(
        *box.middle, str(rank), size=9.5, bold=True, align="center", inside=box, color=ink_on(rank)
    )


def buffer_bytes(trace: Trace) -> int:
    """Bytes of one rank's buffer."""
    return int(trace.inputs[0].nbytes)


def buffers_text(buffers: float) -> str:
    """1.75 as "1.75 buffers"."""
    return "1 buffer" if buffers == 1 else f"{buffers:.2f} buffers".replace(".00 ", " ")
