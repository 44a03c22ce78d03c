"""A run of a collective as still pictures: who holds what after each step, and what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.kinds import LabError, bytes_text, modelled
from labkit.views.cells import FEW, draw_cells, draw_ranks
from labkit.views.figure import FAINT, Picture
from labkit.views.sketch import WIDTH, Sketch

COUNTED = modelled("run on simulated ranks; values, bytes and steps are counted, nothing is timed")
CHIP, GAP = 38.0, 46.0  # the ranks' numbers; between two tables, room for arrows
ROOM = WIDTH - 48 - CHIP  # for the tables of a line
TOP, MOST_LINES, MOST_CELLS = 106.0, 3, 220


class Moves(NamedTuple):
    """What moves in one step: its messages, the cells they leave and the cells that change."""

    messages: Sequence[Any]
    sent: set[tuple[int, int]]
    received: set[tuple[int, int]]


def figure(trace: Any, step: int | None = None) -> Picture:
    """Who holds what before and after one step, and its messages; without a step, all steps.

    >>> figure(trace, step=3)                       # doctest: +SKIP
    """
    if step is not None and step not in range(trace.steps + 1):
        raise LabError(f"step must be one of 0 to {trace.steps}, or left out, got {step!r}.")
    held = trace.contributions()
    if step is None:
        return still(trace, held, _alt(trace, held, trace.steps))
    steps = [step - 1, step] if step else [0]
    name = f"step {step} of {trace.steps}"
    layout = Layout.of(trace, held, most=2)._replace(high=48.0, close=True)
    return _board(trace, held, steps, name, layout).picture(_alt(trace, held, step))


def still(trace: Any, contributions: Any, alt: str, *, small: bool = False) -> Picture:
    """A table after each step; of a long run or many ranks, as much of it as can be read."""
    layout = Layout.of(trace, contributions)
    most = max(3, MOST_CELLS // (layout.rows * layout.columns))
    most = min(most, MOST_LINES * layout.per_line)
    steps = list(range(trace.steps + 1))
    if len(steps) > most:  # the first step, the last one, and some between
        later = (1 + i * (trace.steps - 1) // (most - 2) for i in range(most - 1))
        steps = [0, *later]
    board = _board(trace, contributions, steps, "step by step", layout)
    return board.picture(alt, small=small)


class Layout(NamedTuple):
    """How many ranks and columns are shown, and how large; `close` up with more to read."""

    rows: int
    columns: int
    per_line: int
    wide: float  # of a table
    high: float  # of a row
    close: bool = False

    @classmethod
    def of(cls, trace: Any, contributions: Any, most: int = 9) -> Layout:
        """So that values can be read, and two tables at least stand beside each other."""
        both = (contributions.at(step) for step in (0, trace.steps))
        texts = [change.text for held in both for row in held[:FEW] for change in row[:FEW]]
        cell = max(27.0, 7 * max(map(len, texts), default=1) + 6)
        fitting = max(1, int((ROOM / 2 - GAP) / cell))
        columns = min(len(contributions.cells) or 1, FEW, fitting)
        per_line = min(max(1, int(ROOM / (columns * cell + GAP))), most, trace.steps + 1)
        wide = min(ROOM / per_line - GAP, max(64, cell) * columns)
        rows = min(trace.ranks, FEW)
        return cls(rows, columns, per_line, wide, 36.0 if rows <= 4 else 29.0)


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


def draw_line(
    board: Sketch, trace: Any, contributions: Any, steps: Sequence[int], y: float, layout: Layout
) -> None:
    """A line of tables, one after each of these steps, its messages as arrows before it."""
    rows, columns, per_line, wide, high, close = layout
    pitch, last = ROOM / per_line, steps[-1]
    start = 24.0 + CHIP
    for number, step in enumerate(steps):
        held = [row[:columns] for row in contributions.at(step)[:rows]] or [()] * rows
        before = close and number == 0  # the step itself is between the two tables
        x = 24 + CHIP + (number * pitch + GAP if step and not before else 0)
        moves = moves_of(trace, contributions, 0 if before else step)
        cells = draw_cells(
            board, (x, y, wide, high * rows), held, received=moves.received,
            sent=moves_of(trace, contributions, step + 1).sent if before and step != last else (),
            heads=_heads(contributions.cells[:columns]) if close else (),
        )  # fmt: skip
        if number == 0:
            draw_ranks(board, 24, cells)
        jump = "… " if number and step - steps[number - 1] > 1 else ""
        name = f"{jump}step {step}" if step else "the beginning"
        board.text(x, y - (30 if close else 12), name, size=9, faint=True)
        for message in moves.messages:
            if max(message.source, message.dest) < rows:
                ends = [cells.box(rank, 0).middle[1] for rank in (message.source, message.dest)]
                board.arrow((start, ends[0]), (x - 5, ends[1]), color=FAINT)
        start = x + wide + 3


def _board(
    trace: Any, contributions: Any, steps: Sequence[int], name: str, layout: Layout
) -> Sketch:
    lines = [steps[at : at + layout.per_line] for at in range(0, len(steps), layout.per_line)]
    tall = layout.high * layout.rows + 46
    top = TOP + 18 * layout.close
    end = top + tall * len(lines)
    counts = [_counted(trace.ranks, "rank"), _counted(len(trace.messages), "message")]
    number, sent = _counted(trace.steps, "step"), bytes_text(sum(trace.bytes_sent))
    board = Sketch(
        f"{trace.program}: {name}", end + 12,
        f"{', '.join(counts)} in {number}, {sent} sent in all.", kind=COUNTED,
    )  # fmt: skip
    for place, line in enumerate(lines):
        draw_line(board, trace, contributions, line, top + tall * place, layout)
    words = "Slots: whose contribution is in the value."
    if trace.ranks > FEW:
        words = "Bar: how many ranks are in the value; green: all."
    words += " Arrows: messages. Heavy frame: changed in the step."
    words += " Dashed: sent in it." * (layout.close and len(steps) > 1)
    board.text(24, end - 24, words, size=8.5, color=FAINT)
    board.text(24, end - 6, _shown(trace, contributions, steps, layout), size=8.5, color=FAINT)
    return board


def _shown(trace: Any, contributions: Any, steps: Sequence[int], layout: Layout) -> str:
    """Of what is too much for a picture, which part of it this is."""
    wholes = (
        (len(steps) - 1, trace.steps, "steps") if len(steps) > 2 else (0, 0, ""),
        (layout.rows, trace.ranks, "ranks"),
        (layout.columns, len(contributions.cells), "columns"),
    )
    parts = [f"{some} of {whole} {what}" for some, whole, what in wholes if some < whole]
    whole = "" if layout.close else " Run this cell to play all."
    return f"Shown: {', '.join(parts)}.{whole}" if parts else ""


def _heads(cells: Sequence[tuple[int, int]]) -> list[str]:
    return [f"{start}" if stop - start == 1 else f"{start}–{stop - 1}" for start, stop in cells]


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _alt(trace: Any, contributions: Any, step: int) -> str:
    name = f"{trace.program} on {_counted(trace.ranks, 'rank')}"
    messages = moves_of(trace, contributions, step).messages
    sends = [
        f"rank {one.source} sends {_counted(one.count, 'element')} to rank {one.dest}"
        for one in messages[:FEW]
    ]
    if len(messages) > FEW:
        sends.append(f"and {_counted(len(messages) - FEW, 'more message')}")
    moved = f" In this step {'; '.join(sends)}." if sends else ""
    now = _holdings(trace, contributions.at(step))
    return f"{name}, step {step} of {trace.steps}.{moved} Now {now}."


def _holdings(trace: Any, held: Sequence[Sequence[Any]]) -> str:
    """Values of a small run; of a large one, how far it is."""
    if not held:
        return "no rank holds anything: the buffers are empty"
    if trace.ranks <= FEW and len(held[0]) <= FEW:
        rows = [", ".join(change.text for change in row) or "nothing" for row in held]
        return "; ".join(f"rank {rank} holds {row}" for rank, row in enumerate(rows))
    cells = [change for row in held for change in row]
    whole = sum(change.counts is not None and all(change.counts) for change in cells)
    return f"{whole} of {len(cells)} cells hold the contributions of all ranks"
