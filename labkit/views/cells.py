"""Who holds what, as a table of cells: a row for each rank, a column for each part of the buffer.

In a cell stands its true value. The slots below it are the ranks, from left to right: a full slot
is a contribution that the value holds. A cell of one rank alone carries that rank's tint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.views.figure import FAINT, FRAME, INK, OKABE_ITO, tint
from labkit.views.sketch import Box, Sketch

__all__ = [
    "Cells",
    "contributors",
    "draw_cells",
    "fitting",
    "ink_on",
    "rank_color",
    "size_of_values",
]

# The first six are those of `look`; yellow and black follow, and then position has to tell.
_COLORS = tuple(OKABE_ITO.values())
WRONG = OKABE_ITO["vermillion"]
_DIGIT = 0.89  # width of a digit in pixels, for each point of its size
_MOST_SLOTS = 24  # more ranks than this and one bar says how many of them are in there


def rank_color(rank: int) -> str:
    """The colour of a rank; after eight they begin again."""
    return _COLORS[rank % len(_COLORS)]


def ink_on(rank: int) -> str:
    """The colour of letters on the colour of a rank."""
    return "white" if _COLORS[rank % len(_COLORS)] == OKABE_ITO["black"] else INK


def contributors(counts: Sequence[int] | None) -> list[int]:
    """The ranks whose contribution is in there at least once."""
    return [rank for rank, count in enumerate(counts or ()) if count]


def fitting(words: Sequence[str], width: float, largest: float = 10.0) -> float:
    """The size of type, in points, at which each of the words fits into a width; 0 when none."""
    longest = max((len(word) for word in words), default=0)
    size = min(largest, width / (_DIGIT * max(longest, 1)))
    return size if size >= 6.5 else 0.0


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
        """The place of one cell. Cells that are large enough stand a little apart."""
        gap = (
            6.0 if min(self.wide, self.high) > 34 else 3.0 if min(self.wide, self.high) > 14 else 0
        )
        return Box(
            self.x + column * self.wide, self.y + rank * self.high, self.wide - gap, self.high - gap
        )

    def level(self, rank: int, share: float = 0.5) -> float:
        """A height in a rank's row, as a share of its cell."""
        box = self.box(rank, 0)
        return box.y + share * box.height


def draw_cells(
    board: Sketch,
    place: tuple[float, float, float, float],
    held: Sequence[Sequence[Any]],
    *,
    heads: Sequence[str] = (),
    received: Collection[tuple[int, int]] = (),
    sent: Collection[tuple[int, int]] = (),
    faded: Collection[tuple[int, int]] = (),
    names: bool = True,
    size: float | None = None,
) -> Cells:
    """Draw `held[rank][column]`, each with `.counts` and `.text`, into x, y, width, height.

    `received` cells have a heavy frame, `sent` ones a dashed one, `faded` ones do not matter;
    `heads` stand over the columns
    and `names` of the ranks, in their colours, at the left of the place. Values are written in
    `size` points, 0 for not at all; left out, as large as all of them fit.
    """
    cells = Cells(*place, len(held), max(len(held[0]), 1))
    size = size_of_values(place, held) if size is None else size
    _fills(board, cells, held, size > 0, faded)
    if size:
        _values(board, cells, held, size, faded)
    _frames(board, cells, received, sent)
    if names:
        _names(board, cells)
    if heads:
        _heads(board, cells, heads)
    return cells


def size_of_values(
    place: tuple[float, float, float, float], held: Sequence[Sequence[Any]]
) -> float:
    """Values are written when all of them fit: half a table of numbers would mislead."""
    one = Cells(*place, len(held), max(len(held[0]), 1)).box(0, 0)
    if one.height < 18:
        return 0.0
    words = [change.text for row in held for change in row]
    size = fitting(words, one.width - 6, min(10.5, one.height * 0.4))
    if size or one.height < 40:
        return size
    halves = [half for word in words for half in _halves(word).split("\n")]
    return fitting(halves, one.width - 6, 7.5)


def _halves(word: str) -> str:
    """The first and the last value of a cell, one above the other."""
    return word.replace(" … ", " …\n")


def _bar(box: Box, valued: bool) -> Box:
    """The place of the slots: under the value, or the whole cell where there is no room for it."""
    if not valued:
        return box
    high = max(5.0, 0.34 * box.height)
    return Box(box.x, box.y + box.height - high, box.width, high)


def _fills(
    board: Sketch,
    cells: Cells,
    held: Sequence[Sequence[Any]],
    valued: bool,
    faded: Collection[tuple[int, int]],
) -> None:
    """Grounds, slots and frames, each as one collection: single patches would take seconds."""
    grounds: list[tuple[Box, str, str]] = []
    frames: list[tuple[Box, str, str]] = []
    slots: list[tuple[Box, str, str]] = []
    for rank, row in enumerate(held):
        for column, change in enumerate(row):
            box, counts = cells.box(rank, column), change.counts
            if (rank, column) in faded:
                grounds.append((box, "#F6F7F8", "none"))
                frames.append((box, "none", FRAME))
                continue
            inside = contributors(counts)
            ground = tint(rank_color(inside[0]), 0.22) if len(inside) == 1 else "white"
            grounds.append((box, ground, "none"))
            frames.append((box, "none", FAINT if cells.wide > 14 else FRAME))
            if counts is not None:
                made = _slots if len(counts) <= _MOST_SLOTS else _share
                slots.extend(made(board, _bar(box, valued), counts))
    _rectangles(board, grounds, 3, 0)
    _rectangles(board, slots, 3.4, 0.5 if cells.wide > 60 else 0)
    _rectangles(board, frames, 3.6, 0.9 if cells.wide > 14 else 0.4)


def _slots(board: Sketch, bar: Box, counts: Sequence[int]) -> list[tuple[Box, str, str]]:
    """A slot for each rank; its number where it fits; "2×" on what is in there twice."""
    wide = bar.width / len(counts)
    out = []
    for rank, count in enumerate(counts):
        if not count:
            continue
        slot = Box(bar.x + rank * wide, bar.y, wide, bar.height)
        often = count > 1
        out.append((slot, WRONG if often else tint(rank_color(rank), 0.75), "white"))
        word = f"{count}×" if often else str(rank)
        size = fitting([word], wide - (5 if often else 2), 8.5) if bar.height >= 11 else 0
        if size >= 8.5 or (size and often):
            board.text(
                *slot.middle, word, size=size, align="center", inside=slot, bold=often,
                color="white" if often else ink_on(rank),
            )  # fmt: skip
    return out


def _share(board: Sketch, bar: Box, counts: Sequence[int]) -> list[tuple[Box, str, str]]:
    """For many ranks: how many are in there, as a bar; green when it is each of them once."""
    inside = contributors(counts)
    if not inside:
        return []
    whole = len(inside) == len(counts)
    color = OKABE_ITO["green"] if whole else tint(OKABE_ITO["blue"], 0.75)
    if len(inside) == 1:
        color = tint(rank_color(inside[0]), 0.45)
    if max(counts) > 1:
        color = WRONG
    share = 1.0 if len(inside) == 1 else len(inside) / len(counts)
    return [(Box(bar.x, bar.y, bar.width * share, bar.height), color, color)]


def _rectangles(
    board: Sketch, boxes: Sequence[tuple[Box, str, str]], order: float, line: float
) -> None:
    from matplotlib.collections import PolyCollection

    corners = [
        ((b.x, b.y), (b.x + b.width, b.y), (b.x + b.width, b.y + b.height), (b.x, b.y + b.height))
        for b, _, _ in boxes
    ]
    board.axes.add_collection(
        PolyCollection(
            corners, facecolors=[fill for _, fill, _ in boxes], linewidths=line, zorder=order,
            edgecolors=[edge for *_, edge in boxes] if line else "none", antialiased=line > 0.5,
        ),
        autolim=False,
    )  # fmt: skip


def _values(
    board: Sketch,
    cells: Cells,
    held: Sequence[Sequence[Any]],
    size: float,
    faded: Collection[tuple[int, int]],
) -> None:
    longest = max(len(change.text) for row in held for change in row)
    broken = size < 7.6 and longest * _DIGIT * size > cells.box(0, 0).width - 5
    for rank, row in enumerate(held):
        for column, change in enumerate(row):
            word = _halves(change.text) if broken else change.text
            box, pale = cells.box(rank, column), (rank, column) in faded
            slots = 0.0 if change.counts is None or pale else _bar(box, True).height
            middle = box.y + (box.height - slots) / 2
            board.text(
                box.middle[0], middle, word, size=size, align="center", inside=box, faint=pale,
            )  # fmt: skip


def _frames(
    board: Sketch,
    cells: Cells,
    received: Collection[tuple[int, int]],
    sent: Collection[tuple[int, int]],
) -> None:
    """Neighbouring cells that move together are framed together."""
    from matplotlib.patches import Rectangle

    for chosen, dashed in ((sent, True), (received, False)):
        for rank, first, last in _runs(chosen):
            start, end = cells.box(rank, first), cells.box(rank, last)
            large = min(start.width, start.height) > 14
            inset = -1.5 if dashed and large else 0
            board.axes.add_patch(
                Rectangle(
                    (start.x + inset, start.y + inset), end.x + end.width - start.x - 2 * inset,
                    start.height - 2 * inset, facecolor="none", edgecolor=INK,
                    linewidth=(1.3 if dashed else 2.4) * (1 if large else 0.5),
                    linestyle=(0, (3, 2)) if dashed else "-", zorder=5 if dashed else 4.5,
                )
            )  # fmt: skip


def _runs(chosen: Collection[tuple[int, int]]) -> list[tuple[int, int, int]]:
    runs: list[tuple[int, int, int]] = []
    for rank, column in sorted(chosen):
        if runs and runs[-1][0] == rank and runs[-1][2] == column - 1:
            runs[-1] = (rank, runs[-1][1], column)
        else:
            runs.append((rank, column, column))
    return runs


def _names(board: Sketch, cells: Cells) -> None:
    """The ranks' numbers in their colours: the key to the slots, and the rows' names."""
    every = next(n for n in (1, 2, 4, 8, 16, 32, 10**6) if n * cells.high >= 13)
    wide = 30.0
    chips = []
    for rank in range(cells.ranks):
        box = cells.box(rank, 0)
        chip = Box(cells.x - wide - 8, box.y, wide, box.height)
        chips.append((chip, tint(rank_color(rank), 0.75), "white"))
        if rank % every == 0:
            board.text(
                *chip.middle, str(rank), size=9.5 if cells.high > 15 else 8.5, bold=True,
                align="center", color=ink_on(rank),
                inside=chip if every == 1 else None,
            )  # fmt: skip
    _rectangles(board, chips, 3, 0)
    board.text(cells.x - wide / 2 - 8, cells.y - 12, "rank", size=8.5, faint=True, align="center")


def _heads(board: Sketch, cells: Cells, heads: Sequence[str]) -> None:
    """What each column is; every second or fifth where they would touch."""
    widest = max(map(len, heads)) * 8.5 * _DIGIT + 8
    every = next(n for n in (1, 2, 4, 5, 8, 10, 16, 32, 64, 10**6) if n * cells.wide >= widest)
    for column in range(0, len(heads), every):
        middle = cells.box(0, column).middle[0]
        board.text(middle, cells.y - 12, heads[column], size=8.5, faint=True, align="center")
