"""A run of a collective as still pictures: who holds what after a step, and what moved in it.

`figure` draws the table of cells; `timeline`, lanes over time, comes from collective_timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from labkit.kinds import LabError, bytes_text, modelled
from labkit.views.cells import Cells, contributors, draw_cells, size_of_values
from labkit.views.collective_timeline import timeline
from labkit.views.figure import FAINT, Picture, style
from labkit.views.sketch import WIDTH, Sketch

__all__ = ["Moves", "arrows", "column_names", "figure", "moves_of", "timeline"]

COUNTED = modelled("run on simulated ranks; values, bytes and steps are counted, nothing is timed")
MOST_COLUMNS = 128  # a column narrower than five pixels shows nothing
_MOST_SAID = 8  # ranks and cells that the alt text spells out
_LEFT, _TOP, _LANE = 62.0, 108.0, 11.0


class Moves(NamedTuple):
    """What moves in one step: its messages, the cells they leave and the cells that change."""

    messages: Sequence[Any]
    sent: set[tuple[int, int]]
    received: set[tuple[int, int]]


def figure(trace: Any, step: int | None = None) -> Picture:
    """Who holds what after one step, with that step's messages; before and after without a step.

    >>> figure(trace, step=3)                       # doctest: +SKIP
    """
    if step is not None and step not in range(trace.steps + 1):
        raise LabError(
            f"This run has the steps 0 to {trace.steps}; there is no step {step!r}. "
            "Write figure(step=0) for what each rank began with, or figure() for before and after."
        )
    story = trace.story()
    with style():
        board = _before_and_after(trace, story) if step is None else _one(trace, story, step)
    return board.picture(_alt(trace, story, step))


def column_names(cells: Sequence[tuple[int, int]]) -> list[str]:
    """The elements of each cell, counted from 0.

    >>> column_names([(0, 1), (1, 5)])
    ['0', '1–4']
    """
    return [f"{a}" if b - a == 1 else "–" if a == b else f"{a}–{b - 1}" for a, b in cells]


def moves_of(trace: Any, story: Any, step: int) -> Moves:
    """The messages of a step and the cells that they touch, as rank and column."""
    messages = [one for one in trace.messages if one.step == step] if step else []
    sent = {
        (message.source, column)
        for message in messages
        if message.sent_from is not None
        for column, (start, stop) in enumerate(story.cells)
        if message.sent_from[0] < stop and start < message.sent_from[1]
    }
    # Not only where messages arrive: most are added to the buffer from memory beside it.
    received = {(one.rank, one.cell) for one in story.changes if step and one.step == step}
    return Moves(messages, sent, received)


def arrows(board: Sketch, cells: Cells, messages: Sequence[Any], x: float) -> float:
    """Messages as arrows from row to row, each in the first free lane from `x` to the right.

    Gives back where the lanes end.
    """
    lanes: list[float] = []  # the lower end of what each lane holds
    spans = []
    for message in messages:
        leave, enter = cells.level(message.source, 0.68), cells.level(message.dest, 0.32)
        spans.append((min(leave, enter), max(leave, enter), leave, enter))
    for low, high, leave, enter in sorted(spans, key=lambda one: (one[0], one[1])):
        lane = next((n for n, end in enumerate(lanes) if end < low - 1), len(lanes))
        if lane == len(lanes):
            lanes.append(0.0)
        lanes[lane] = high
        turn = x + 22 + _LANE * lane
        board.arrow((x, leave), (turn, leave), (turn, enter), (x, enter))
    return x + 22 + _LANE * max(len(lanes) - 1, 0)


def _one(trace: Any, story: Any, step: int) -> Sketch:
    moves = moves_of(trace, story, step)
    held = _shown(story.at(step), trace.ranks)
    words = (
        f"{trace.program}: what each rank begins with"
        if step == 0
        else f"{trace.program}: after step {step} of {trace.steps}"
    )
    board, high = _board(trace, story, words, _height(trace.ranks, len(held[0])))
    lanes = _lanes(moves.messages)
    labels = high >= 15 and bool(moves.messages)
    longest = max(map(len, map(_said, moves.messages)), default=0)
    room = (24 + _LANE * lanes + 18 + 7.4 * longest) if labels else 0
    wide = min(WIDTH - 24 - _LEFT - room, 132 * len(held[0]))
    cells = draw_cells(
        board, (_LEFT, _TOP, wide, high * trace.ranks), held,
        heads=column_names(story.cells[: len(held[0])]),
        received=moves.received, sent=moves.sent,
    )  # fmt: skip
    end = cells.box(0, len(held[0]) - 1).right[0] + 6
    if high >= 15:  # in lower rows the heads of arrows would lie upon each other
        end = arrows(board, cells, moves.messages, end)
    for message in moves.messages if labels else ():
        board.text(
            end + 12, cells.level(message.source, 0.68), _said(message), size=8.5, faint=True
        )
    _key(board, cells, len(story.cells), bool(moves.messages))
    return board


def _before_and_after(trace: Any, story: Any) -> Sketch:
    """Side by side, or below each other where the numbers would not fit otherwise."""
    both = [_shown(story.at(step), trace.ranks) for step in (0, trace.steps)]
    columns = len(both[0][0])
    stacked = 10 < columns <= 20
    high = _height(trace.ranks, columns)
    rows = trace.ranks * high
    title = f"{trace.program}: before and after"
    board, _ = _board(trace, story, title, high, rows + 76 if stacked else 0)
    room = WIDTH - 24 - _LEFT
    wide = room if stacked else min((room - 74) / 2, 132 * columns)
    heads = column_names(story.cells[:columns])
    size = min(size_of_values((0, 0, wide, rows), held) for held in both)
    for number, held in enumerate(both):
        x = _LEFT if stacked else _LEFT + number * (wide + 74)
        y = _TOP + (16 + number * (rows + 60) if stacked else 0)
        cells = draw_cells(board, (x, y, wide, rows), held, heads=heads, size=size)
        if stacked:
            board.text(x + 4, y - 30, ("before", "after")[number], bold=True, size=9.5)
    if not stacked:
        y = _TOP + rows / 2
        board.arrow((_LEFT + wide + 2, y), (_LEFT + wide + 30, y))
    _key(board, cells, len(story.cells), moving=False)
    return board


def _height(ranks: int, columns: int) -> float:
    if ranks <= 8 and columns <= 16:
        return 48.0
    return 34.0 if ranks <= 16 else 20.0 if ranks <= 32 else 11.0


def _board(
    trace: Any, story: Any, title: str, high: float, more: float = 0
) -> tuple[Sketch, float]:
    count = f"{trace.ranks} rank{'s' * (trace.ranks != 1)}"
    messages, steps = len(trace.messages), trace.steps
    moved = f"{messages} message{'s' * (messages != 1)} in {steps} step{'s' * (steps != 1)}"
    subtitle = f"{count}, {moved}, {bytes_text(sum(trace.bytes_sent))} sent in all."
    height = _TOP + high * trace.ranks + 40 + more
    return Sketch(title, height, subtitle, kind=COUNTED), high


def _shown(held: Sequence[Sequence[Any]], ranks: int) -> list[Sequence[Any]]:
    # Empty buffers have no cells, and then nobody holds anything.
    return [row[:MOST_COLUMNS] for row in held] or [()] * ranks


def _lanes(messages: Sequence[Any]) -> int:
    """At most so many arrows pass the same height."""
    ends = sorted({end for one in messages for end in (one.source, one.dest)})
    middles = [(a + b) / 2 for a, b in pairwise(ends)]
    return max(
        (
            sum(min(m.source, m.dest) < at < max(m.source, m.dest) for m in messages)
            for at in middles
        ),
        default=1,
    )


def _said(message: Any) -> str:
    if message.sent_from is None:
        return f"{message.count} value{'s' * (message.count != 1)} → rank {message.dest}"
    names = column_names([message.sent_from])[0]
    elements = "element" if message.count == 1 else "elements"
    what = f"{elements} {names}" if message.count else "0 elements"
    return f"{what} → rank {message.dest}"


def _key(board: Sketch, cells: Cells, columns: int, moving: bool) -> None:
    words = "Columns: elements of the buffer. Slots: whose contribution is in the value."
    if cells.ranks > 24:
        words = "Tint: one rank's own. Bar: how many ranks are in the value; green: all of them."
    if moving:
        words += " Dashed: sent. Heavy: changed."
    if not columns:
        words = "The buffers are empty: what counts is that messages arrive."
    if columns > cells.columns:
        words = f"The first {cells.columns} of {columns} columns. {words}"
    board.text(24, cells.y + cells.height + 20, words, size=8.5, color=FAINT)


def _alt(trace: Any, story: Any, step: int | None) -> str:
    count = f"{trace.program} on {trace.ranks} rank{'s' * (trace.ranks != 1)}"
    if step is None:
        before, after = (_holdings(trace, story, at) for at in (0, trace.steps))
        return f"{count}. Before: {before}. After {trace.steps} steps: {after}."
    moves = moves_of(trace, story, step).messages
    sends = "; ".join(
        f"rank {one.source} sends {one.count} element{'s' * (one.count != 1)} to rank {one.dest}"
        for one in moves[:_MOST_SAID]
    )
    extra = len(moves) - _MOST_SAID
    more = f"; and {extra} more message{'s' * (extra != 1)}" if extra > 0 else ""
    moved = f" In this step {sends}{more}." if moves else ""
    return f"{count}, step {step} of {trace.steps}.{moved} Now {_holdings(trace, story, step)}."


def _holdings(trace: Any, story: Any, step: int) -> str:
    """Values of a small run; of a large one, how far it is."""
    held = story.at(step)
    if not held:
        return "nobody holds anything, for the buffers are empty"
    if trace.ranks <= _MOST_SAID and len(held[0]) <= _MOST_SAID:
        return "; ".join(
            f"rank {rank} holds {', '.join(change.text for change in row) or 'nothing'}"
            for rank, row in enumerate(held)
        )
    known = [change.counts for row in held for change in row if change.counts is not None]
    whole = sum(len(contributors(counts)) == len(counts) for counts in known)
    return f"{whole} of {sum(map(len, held))} cells hold the contributions of all ranks"
