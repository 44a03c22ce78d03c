"""A run of a collective as a still picture: who holds what after a step, and what moved in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.kinds import LabError, bytes_text, modelled
from labkit.views.cells import Cells, draw_cells, size_of_values
from labkit.views.figure import FAINT, Picture, style
from labkit.views.sketch import WIDTH, Sketch

__all__ = ["COUNTED", "Moves", "figure", "moves_of"]

COUNTED = modelled("run on simulated ranks; values, bytes and steps are counted, nothing is timed")
_MOST_NAMED = 8  # ranks and messages that the alt text spells out
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
        raise LabError(f"step must be one of 0 to {trace.steps}, or left out, got {step!r}.")
    held = trace.contributions()
    with style():
        board = _before_and_after(trace, held) if step is None else _after(trace, held, step)
    return board.picture(_alt(trace, held, step))


def moves_of(trace: Any, contributions: Any, step: int) -> Moves:
    """The messages of a step and the cells that they touch, as rank and column."""
    messages = [one for one in trace.messages if one.step == step] if step else []
    sent = {
        (message.source, column)
        for message in messages
        for column, (start, stop) in enumerate(contributions.cells)
        if message.sent_from and message.sent_from[0] < stop and start < message.sent_from[1]
    }
    # Not only where messages arrive: most are added to the buffer from memory beside it.
    changes = [one for one in contributions.changes if step and one.step == step]
    return Moves(messages, sent, {(one.rank, one.cell) for one in changes})


def _after(trace: Any, contributions: Any, step: int) -> Sketch:
    moves = moves_of(trace, contributions, step)
    held = contributions.at(step) or [()] * trace.ranks  # empty buffers have no cells
    when = f"after step {step} of {trace.steps}" if step else "what each rank begins with"
    high = _height(trace.ranks, len(held[0]))
    board = _board(trace, when, high * trace.ranks)
    lanes = _lanes(moves.messages)
    labelled = high >= 15  # in lower rows arrows and words would lie upon each other
    longest = max(map(len, map(_label, moves.messages)), default=0)
    room = 24 + _LANE * (max(lanes, default=0) + 1) + 18 + 7.4 * longest
    wide = WIDTH - 24 - _LEFT - (room if labelled and lanes else 0)
    cells = draw_cells(
        board, (_LEFT, _TOP, min(wide, 132 * len(held[0]) or wide), high * trace.ranks), held,
        heads=_heads(contributions.cells), received=moves.received, sent=moves.sent,
    )  # fmt: skip
    x = cells.box(0, cells.columns - 1).right[0] + 6
    for message, lane in zip(moves.messages, lanes, strict=True) if labelled else ():
        leave, enter = cells.level(message.source, 0.68), cells.level(message.dest, 0.32)
        turn = x + 22 + _LANE * lane
        board.arrow((x, leave), (turn, leave), (turn, enter), (x, enter))
        board.text(x + 34 + _LANE * max(lanes), leave, _label(message), size=8.5, faint=True)
    _key(board, cells, bool(moves.messages))
    return board


def _before_and_after(trace: Any, contributions: Any) -> Sketch:
    both = [contributions.at(step) or [()] * trace.ranks for step in (0, trace.steps)]
    columns = len(both[0][0])
    rows = trace.ranks * _height(trace.ranks, columns)
    board = _board(trace, "before and after", rows)
    wide = min((WIDTH - 24 - _LEFT - 74) / 2, 132 * columns or WIDTH)
    size = min(size_of_values((0, 0, wide, rows), held) for held in both)
    for number, held in enumerate(both):
        place = (_LEFT + number * (wide + 74), _TOP, wide, rows)
        cells = draw_cells(board, place, held, heads=_heads(contributions.cells), size=size)
    y = _TOP + rows / 2
    board.arrow((_LEFT + wide + 2, y), (_LEFT + wide + 30, y))
    _key(board, cells, moving=False)
    return board


def _height(ranks: int, columns: int) -> float:
    if ranks <= 8 and columns <= 16:
        return 48.0
    return 34.0 if ranks <= 16 else 20.0 if ranks <= 32 else 11.0


def _board(trace: Any, when: str, rows: float) -> Sketch:
    counts = [_counted(trace.ranks, "rank"), _counted(len(trace.messages), "message")]
    steps, sent = _counted(trace.steps, "step"), bytes_text(sum(trace.bytes_sent))
    subtitle = f"{', '.join(counts)} in {steps}, {sent} sent in all."
    return Sketch(f"{trace.program}: {when}", _TOP + rows + 40, subtitle, kind=COUNTED)


def _lanes(messages: Sequence[Any]) -> list[int]:
    """For each message the first lane in which its arrow touches no other."""
    taken: list[float] = []  # the lower end of what each lane holds
    lanes = {}
    for message in sorted(messages, key=_span):
        low, high = _span(message)
        lane = next((n for n, end in enumerate(taken) if end < low), len(taken))
        taken[lane : lane + 1] = [high]
        lanes[message.number] = lane
    return [lanes[message.number] for message in messages]


def _span(message: Any) -> tuple[float, float]:
    """From where to where its arrow goes: it leaves low in a row and enters high in another."""
    ends = message.source + 0.68, message.dest + 0.32
    return min(ends), max(ends)


def _heads(cells: Sequence[tuple[int, int]]) -> list[str]:
    return [f"{start}" if stop - start == 1 else f"{start}–{stop - 1}" for start, stop in cells]


def _label(message: Any) -> str:
    if message.sent_from is None or not message.count:
        return f"{_counted(message.count, 'value')} → rank {message.dest}"
    elements = "element" if message.count == 1 else "elements"
    return f"{elements} {_heads([message.sent_from])[0]} → rank {message.dest}"


def _key(board: Sketch, cells: Cells, moving: bool) -> None:
    words = "Columns: elements of the buffer. Slots: whose contribution is in the value."
    if cells.ranks > 24:
        words = "Pale: one rank's own. Blue: several ranks' contributions; green: all of them."
    if moving:
        words += " Dashed: sent. Heavy: changed."
    board.text(24, cells.y + cells.height + 20, words, size=8.5, color=FAINT)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _alt(trace: Any, contributions: Any, step: int | None) -> str:
    name = f"{trace.program} on {_counted(trace.ranks, 'rank')}"
    if step is None:
        before, after = (_holdings(trace, contributions.at(at)) for at in (0, trace.steps))
        return f"{name}. Before: {before}. After {trace.steps} steps: {after}."
    messages = moves_of(trace, contributions, step).messages
    sends = [
        f"rank {one.source} sends {_counted(one.count, 'element')} to rank {one.dest}"
        for one in messages[:_MOST_NAMED]
    ]
    if len(messages) > _MOST_NAMED:
        sends.append(f"and {_counted(len(messages) - _MOST_NAMED, 'more message')}")
    moved = f" In this step {'; '.join(sends)}." if sends else ""
    now = _holdings(trace, contributions.at(step))
    return f"{name}, step {step} of {trace.steps}.{moved} Now {now}."


def _holdings(trace: Any, held: Sequence[Sequence[Any]]) -> str:
    """Values of a small run; of a large one, how far it is."""
    if not held:
        return "no rank holds anything: the buffers are empty"
    if trace.ranks <= _MOST_NAMED and len(held[0]) <= _MOST_NAMED:
        rows = [", ".join(change.text for change in row) or "nothing" for row in held]
        return "; ".join(f"rank {rank} holds {row}" for rank, row in enumerate(rows))
    cells = [change for row in held for change in row]
    whole = sum(change.counts is not None and all(change.counts) for change in cells)
    return f"{whole} of {len(cells)} cells hold the contributions of all ranks"
