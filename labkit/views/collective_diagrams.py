"""Boards of the collectives lectures: one operation before and after, and a run step by step.

All of them are drawn from a trace and its story: no value, byte or step stands in this file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from labkit.views.cells import draw_cells, size_of_values
from labkit.views.collective_figure import COUNTED, moves_of
from labkit.views.sketch import WIDTH, Sketch

__all__ = ["operation", "steps"]

_CHIP = 38.0  # what the ranks' numbers take at the left of a table


def operation(
    trace: Any,
    title: str,
    subtitle: str,
    matter: tuple[Collection[tuple[int, int]], Collection[tuple[int, int]]],
) -> Sketch:
    """One operation: the cells that matter before, and those that it promises after."""
    story = trace.story()
    both = [story.at(step) for step in (0, trace.steps)]
    columns, high, top = len(story.cells), 48.0, 134.0
    wide, gap = 300.0, 752 - 2 * (300.0 + _CHIP)
    board = Sketch(title, top + high * trace.ranks + 38, subtitle, kind=COUNTED)
    size = min(size_of_values((0, 0, wide, high * trace.ranks), held) for held in both)
    everything = {(rank, column) for rank in range(trace.ranks) for column in range(columns)}
    for number, (held, kept) in enumerate(zip(both, matter, strict=True)):
        x = 24 + _CHIP + number * (wide + _CHIP + gap)
        draw_cells(
            board, (x, top, wide, high * trace.ranks), held,
            heads=[f"chunk {column}" for column in range(columns)],
            faded=everything - set(kept), size=size,
        )  # fmt: skip
        board.text(x + wide / 2 - 3, top - 36, ("before", "after")[number], size=9.5, bold=True,
                   align="center")  # fmt: skip
    middle, start = top + high * trace.ranks / 2, 24 + _CHIP + wide + 4
    board.arrow((start, middle), (start + gap - 12, middle))
    busiest = max(trace.messages_sent)
    words = (
        f"This program: {_counted(len(trace.messages), 'message')} in "
        f"{_counted(trace.steps, 'step')}; the busiest rank sends {busiest} of them."
    )
    board.text(24, top + high * trace.ranks + 18, words, size=9, faint=True)
    return board


def steps(
    trace: Any,
    title: str,
    subtitle: str,
    phases: Sequence[tuple[str, int, int]],
    notes: Sequence[str] = (),
) -> Sketch:
    """A small table after each step, four in a row; `phases` are (name, first step, last step)."""
    story = trace.story()
    high, top, across = 36.0, 132.0, (WIDTH - 48 - _CHIP) / 4
    tall = high * trace.ranks + 70
    rows = [list(range(first, last + 1)) for _, first, last in phases]
    board = Sketch(title, top + tall * len(rows) - 50, subtitle, kind=COUNTED)
    for line, (shown, (name, *_)) in enumerate(zip(rows, phases, strict=True)):
        y = top + tall * line
        board.text(24, y - 38, name, size=9.5, bold=True)
        for column, step in enumerate(shown):
            x = 24 + _CHIP + column * across
            place = (x, y, across - 18, high * trace.ranks)
            moves = moves_of(trace, story, step)
            draw_cells(board, place, story.at(step), received=moves.received, names=column == 0)
            head = f"step {step}" if step else "the beginning"
            board.text(x + across / 2 - 12, y - 12, head, size=9, faint=True, align="center")
        if len(shown) < 4 and line == len(rows) - 1:
            x = 24 + _CHIP + len(shown) * across
            for number, note in enumerate(notes):
                board.text(x, y + 18 + 40 * number, note, size=9, faint=True)
    return board


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
