"""Who holds what, as a table of cells: a row for each rank, a column for each part of the buffer.

In a cell stands its true value. The slots below it are the ranks, from left to right: a full slot
is a contribution that the value holds. A cell of one rank alone carries that rank's tint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from labkit.views.figure import FAINT, FRAME, INK, OKABE_ITO, tint
from labkit.views.sketch import Box, Sketch

__all__ = ["Cells", "draw_cells", "ink_on", "rank_color", "size_of_values"]

Place: TypeAlias = tuple[float, float, float, float]  # x, y, width, height
Chosen: TypeAlias = Collection[tuple[int, int]]  # (rank, column)
Filled: TypeAlias = tuple[Box, str, str]  # with the colours of its ground and of its edge

_COLORS = tuple(OKABE_ITO.values())
_TWICE = OKABE_ITO["vermillion"]
_DIGIT = 0.89  # width of a digit in pixels, for each point of its size
_MOST_SLOTS = 24  # with more ranks than this a colour says how many of them are in there


def rank_color(rank: int) -> str:
    """The colour of a rank; after eight they begin again."""
    return _COLORS[rank % len(_COLORS)]


def ink_on(rank: int) -> str:
    """The colour of letters on the colour of a rank."""
    return "white" if rank_color(rank) == OKABE_ITO["black"] else INK


@dataclass(frozen=True)
class Cells:
    """Where a table of cells lies on its board."""

    x: float
    y: float
    width: float
    height: float
    ranks: int
    columns: int

    @property
    def wide(self) -> float:
        """Pixels from one column to the next."""
        return self.width / self.columns

    @property
    def high(self) -> float:
        """Pixels from one row to the next."""
        return self.height / self.ranks

    def box(self, rank: int, column: int) -> Box:
        """One cell. Cells that are large enough stand a little apart."""
        small = min(self.wide, self.high)
        gap = 6 if small > 34 else 3 if small > 14 else 0
        x, y = self.x + column * self.wide, self.y + rank * self.high
        return Box(x, y, self.wide - gap, self.high - gap)

    def level(self, rank: int, share: float) -> float:
        """A height in a rank's row, as a share of its cell."""
        box = self.box(rank, 0)
        return box.y + share * box.height


def draw_cells(
    board: Sketch,
    place: Place,
    held: Sequence[Sequence[Any]],
    *,
    heads: Sequence[str] = (),
    received: Chosen = (),
    sent: Chosen = (),
    faded: Chosen = (),
    names: bool = True,
    size: float | None = None,
) -> Cells:
    """Draw `held[rank][column]`, each with `.counts` and `.text`, into x, y, width, height.

    `received` cells have a heavy frame, `sent` ones a dashed one, `faded` ones do not matter;
    `heads` stand over the columns, the ranks' `names` at the left. Values are written in `size`
    points, 0 for not at all; left out, as large as all of them fit.
    """
    cells = Cells(*place, len(held), max(len(held[0]), 1))
    size = size_of_values(place, held) if size is None else size
    grounds: list[Filled] = []
    slots: list[Filled] = []
    for rank, row in enumerate(held):
        for column, change in enumerate(row):
            box, pale = cells.box(rank, column), (rank, column) in faded
            edge = FAINT if cells.wide > 14 and not pale else FRAME
            grounds.append((box, "#F6F7F8" if pale else _ground(change.counts or ()), edge))
            bar = Box(box.x, box.y + box.height, box.width, 0)
            if change.counts is not None and not pale and len(change.counts) <= _MOST_SLOTS:
                high = max(5.0, 0.34 * box.height) if size else box.height
                bar = Box(box.x, box.y + box.height - high, box.width, high)
                slots += _slots(board, bar, change.counts)
            if size:
                board.text(box.middle[0], (box.y + bar.y) / 2, change.text, size=size,
                           align="center", inside=box, faint=pale)  # fmt: skip
    edges = [(box, "none", edge) for box, _, edge in grounds]
    _rectangles(board, grounds, 3, 0)
    _rectangles(board, slots, 3.4, 0.5 if cells.wide > 60 else 0)
    _rectangles(board, edges, 3.6, 0.9 if cells.wide > 14 else 0.4)
    _frames(board, cells, sent, dashed=True)
    _frames(board, cells, received, dashed=False)
    if names:
        _names(board, cells)
    widest = max(map(len, heads), default=0) * 8.5 * _DIGIT + 8
    for column in range(0, len(heads), _every(widest, cells.wide)):  # where they do not touch
        middle_x = cells.box(0, column).middle[0]
        board.text(middle_x, cells.y - 12, heads[column], size=8.5, faint=True, align="center")
    return cells


def size_of_values(place: Place, held: Sequence[Sequence[Any]]) -> float:
    """The type in which all values fit, in points; 0 for none: half of them would mislead."""
    box = Cells(*place, len(held), max(len(held[0]), 1)).box(0, 0)
    words = [change.text for row in held for change in row]
    return _fitting(words, box.width - 6, min(10.5, box.height * 0.4)) if box.height >= 18 else 0.0


def _fitting(words: Sequence[str], width: float, largest: float) -> float:
    """The size at which each of the words fits into a width; 0 when none can be read."""
    size = min(largest, width / (_DIGIT * max(map(len, words), default=1)))
    return size if size >= 6.5 else 0.0


def _every(needed: float, pitch: float) -> int:
    """Each second, fourth, … where all would need more room than there is."""
    return next(n for n in (1, 2, 4, 8, 16, 32, 64, 10**6) if n * pitch >= needed)


def _ground(counts: Sequence[int]) -> str:
    """The tint of a rank alone; where there are too many ranks for slots, how far a sum is."""
    holders = [rank for rank, count in enumerate(counts) if count]
    if len(holders) == 1:
        return tint(rank_color(holders[0]), 0.22)
    if not holders or len(counts) <= _MOST_SLOTS:
        return "white"
    color = OKABE_ITO["green" if len(holders) == len(counts) else "blue"]
    return tint(_TWICE if max(counts) > 1 else color, 0.6)


def _slots(board: Sketch, bar: Box, counts: Sequence[int]) -> list[Filled]:
    """A slot for each rank; its number where it fits; "2×" on what is in there twice."""
    wide, out = bar.width / len(counts), []
    for rank, count in enumerate(counts):
        if not count:
            continue
        slot, twice = Box(bar.x + rank * wide, bar.y, wide, bar.height), count > 1
        out.append((slot, _TWICE if twice else tint(rank_color(rank), 0.75), "white"))
        word = f"{count}×" if twice else str(rank)
        size = _fitting([word], wide - (5 if twice else 2), 8.5) if bar.height >= 11 else 0
        if size >= 8.5 or (size and twice):
            color = "white" if twice else ink_on(rank)
            board.text(*slot.middle, word, size=size, align="center", inside=slot, bold=twice,
                       color=color)  # fmt: skip
    return out


def _rectangles(board: Sketch, boxes: Sequence[Filled], order: float, line: float) -> None:
    """All of one kind as one collection: single patches would take seconds."""
    from matplotlib.collections import PolyCollection

    corners = [
        ((b.x, b.y), (b.x + b.width, b.y), (b.x + b.width, b.y + b.height), (b.x, b.y + b.height))
        for b, _, _ in boxes
    ]
    drawn = PolyCollection(
        corners, facecolors=[fill for _, fill, _ in boxes], linewidths=line, zorder=order,
        edgecolors=[edge for *_, edge in boxes] if line else "none", antialiased=line > 0.5,
    )  # fmt: skip
    board.axes.add_collection(drawn, autolim=False)


def _frames(board: Sketch, cells: Cells, chosen: Chosen, dashed: bool) -> None:
    """Neighbouring cells that move together are framed together."""
    from matplotlib.patches import Rectangle

    runs: list[list[int]] = []  # rank, first column, last column
    for rank, column in sorted(chosen):
        if runs and runs[-1][0] == rank and runs[-1][2] == column - 1:
            runs[-1][2] = column
        else:
            runs.append([rank, column, column])
    for rank, first, last in runs:
        start, end = cells.box(rank, first), cells.box(rank, last)
        large = min(start.width, start.height) > 14
        out = 1.5 if dashed and large else 0
        board.axes.add_patch(
            Rectangle(
                (start.x - out, start.y - out), end.x + end.width - start.x + 2 * out,
                start.height + 2 * out, facecolor="none", edgecolor=INK,
                linewidth=(1.3 if dashed else 2.4) * (1 if large else 0.5),
                linestyle=(0, (3, 2)) if dashed else "-", zorder=5 if dashed else 4.5,
            )
        )  # fmt: skip


def _names(board: Sketch, cells: Cells) -> None:
    """The ranks' numbers in their colours: the key to the slots, and the rows' names."""
    every, wide, chips = _every(13, cells.high), 30.0, []
    for rank in range(cells.ranks):
        box = cells.box(rank, 0)
        chip = Box(cells.x - wide - 8, box.y, wide, box.height)
        chips.append((chip, tint(rank_color(rank), 0.75), "white"))
        if rank % every == 0:
            board.text(*chip.middle, str(rank), size=9.5 if cells.high > 15 else 8.5, bold=True,
                       align="center", color=ink_on(rank))  # fmt: skip
    _rectangles(board, chips, 3, 0)
    board.text(cells.x - wide / 2 - 8, cells.y - 12, "rank", size=8.5, faint=True, align="center")
