"""A run of a collective as still pictures: who holds what after each step, and what was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from labkit.collectives.contributions import Contributions
from labkit.collectives.page.cells import FEW, draw_cells, draw_ranks
from labkit.collectives.records import Record
from labkit.kinds import bytes_text, counted, modelled
from labkit.views.figure import FAINT, Picture
from labkit.views.sketch import WIDTH, Sketch

COUNTED = modelled("run on simulated ranks; values, bytes and steps are counted, nothing is timed")
CHIP, GAP = 38.0, 46.0  # the ranks' numbers; between two tables, room for arrows
ROOM = WIDTH - 48 - CHIP  # for the tables of a line
TOP, MOST_LINES, MOST_CELLS = 106.0, 3, 220


def still(trace: Record, contributions: Contributions, alt: str, *, small: bool = False) -> Picture:
    """Returns a picture with a table after each step, as many of them as can be read."""
    layout = Layout.of(trace, contributions)
    most = max(3, MOST_CELLS // (layout.rows * layout.columns))
    most = min(most, MOST_LINES * layout.per_line)
    steps = list(range(trace.steps + 1))
    if len(steps) > most:  # the first step, the last one, and some between
        later = (1 + i * (trace.steps - 1) // (most - 2) for i in range(most - 1))
        steps = [0, *later]
    return _board(trace, contributions, steps, layout).picture(alt, small=small)


class Layout(NamedTuple):
    """How many ranks and columns are shown, and how large."""

    rows: int
    columns: int
    per_line: int
    wide: float  # of a table
    high: float  # of a row

    @classmethod
    def of(cls, trace: Record, contributions: Contributions) -> Layout:
        """Returns a layout with readable values and at least two tables beside each other."""
        both = (contributions.at(step) for step in (0, trace.steps))
        texts = [change.text for held in both for row in held[:FEW] for change in row[:FEW]]
        cell = max(27.0, 7 * max(map(len, texts), default=1) + 6)
        fitting = max(1, int((ROOM / 2 - GAP) / cell))
        columns = min(len(contributions.cells) or 1, FEW, fitting)
        per_line = min(max(1, int(ROOM / (columns * cell + GAP))), 9, trace.steps + 1)
        wide = min(ROOM / per_line - GAP, max(64, cell) * columns)
        rows = min(trace.ranks, FEW)
        return cls(rows, columns, per_line, wide, 36.0 if rows <= 4 else 29.0)


def draw_line(
    board: Sketch,
    trace: Record,
    contributions: Contributions,
    steps: Sequence[int],
    y: float,
    layout: Layout,
) -> None:
    """Draw a line of tables, one after each of these steps, its messages as arrows before it."""
    rows, columns, per_line, wide, high = layout
    pitch, start = ROOM / per_line, 24.0 + CHIP
    for number, step in enumerate(steps):
        held = [row[:columns] for row in contributions.at(step)[:rows]] or [[]] * rows
        x = 24 + CHIP + (number * pitch + GAP if step else 0)
        # Not only where messages arrive: most are added to the buffer from memory beside it.
        changes = [one for one in contributions.changes if step and one.step == step]
        changed = {(one.rank, one.cell) for one in changes}
        cells = draw_cells(board, (x, y, wide, high * rows), held, received=changed)
        if number == 0:
            draw_ranks(board, 24, cells)
        jump = "… " if number and step - steps[number - 1] > 1 else ""
        name = f"{jump}step {step}" if step else "the beginning"
        board.text(x, y - 12, name, size=9, faint=True)
        for message in trace.messages:
            if message.step == step and max(message.source, message.dest) < rows:
                ends = [cells.box(rank, 0).middle[1] for rank in (message.source, message.dest)]
                board.arrow((start, ends[0]), (x - 5, ends[1]), color=FAINT)
        start = x + wide + 3


def _board(
    trace: Record, contributions: Contributions, steps: Sequence[int], layout: Layout
) -> Sketch:
    lines = [steps[at : at + layout.per_line] for at in range(0, len(steps), layout.per_line)]
    tall = layout.high * layout.rows + 46
    end = TOP + tall * len(lines)
    counts = [counted(trace.ranks, "rank"), counted(len(trace.messages), "message")]
    number, sent = counted(trace.steps, "step"), bytes_text(sum(trace.bytes_sent))
    board = Sketch(
        f"{trace.program}: step by step", end + 12,
        f"{', '.join(counts)} in {number}, {sent} sent in all.", kind=COUNTED,
    )  # fmt: skip
    for place, line in enumerate(lines):
        draw_line(board, trace, contributions, line, TOP + tall * place, layout)
    words = "Slots: whose contribution is in the value."
    if trace.ranks > FEW:
        words = "Bar: how many ranks are in the value; green: all."
    words += " Arrows: messages. Heavy frame: changed in the step."
    board.text(24, end - 24, words, size=8.5, color=FAINT)
    board.text(24, end - 6, _shown(trace, contributions, steps, layout), size=8.5, color=FAINT)
    return board


def _shown(
    trace: Record, contributions: Contributions, steps: Sequence[int], layout: Layout
) -> str:
    """Returns how many steps, ranks and columns are shown, if not all of them."""
    wholes = (
        (len(steps) - 1, trace.steps, "steps"),
        (layout.rows, trace.ranks, "ranks"),
        (layout.columns, len(contributions.cells), "columns"),
    )
    parts = [f"{some} of {whole} {what}" for some, whole, what in wholes if some < whole]
    return f"Shown: {', '.join(parts)}. Run this cell to play all." if parts else ""
