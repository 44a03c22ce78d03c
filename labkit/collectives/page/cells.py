"""Who holds what, as a table of cells: a row for each rank, a column for each part of the buffer.

In a cell stands its true value. The slots below it are the ranks, from left to right: a full slot
is a contribution that the value holds. A cell of one rank alone carries that rank's tint.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from labkit.collectives.contributions import Change
from labkit.views.figure import FAINT, FRAME, INK, OKABE_ITO, tint
from labkit.views.sketch import Box, Sketch

FEW = 8  # so many ranks have a colour and a slot of their own
Place: TypeAlias = tuple[float, float, float, float]  # x, y, width, height
Chosen: TypeAlias = Collection[tuple[int, int]]  # (rank, column)

_COLORS = tuple(OKABE_ITO.values())
_TWICE = OKABE_ITO["vermillion"]
_DIGIT = 0.89  # width of a digit in pixels, for each point of its size
_SLOTS = 0.34  # share of a cell's height


def rank_color(rank: int) -> str:
    """Returns the colour of a rank; after eight they begin again."""
    return _COLORS[rank % len(_COLORS)]


def ink_on(rank: int) -> str:
    """Returns the colour of letters on the chip of a rank."""
    return "white" if rank_color(rank) == OKABE_ITO["black"] else INK


def chip_color(rank: int) -> str:
    """Returns the colour of a rank behind its number, which must also be read on a dark page."""
    return tint(rank_color(rank), 0.75 if ink_on(rank) == "white" else 0.4)


@dataclass(frozen=True)
class Cells:
    """Where a table of cells lies on its board."""

    x: float
    y: float
    width: float
    height: float
    ranks: int
    columns: int

    def box(self, rank: int, column: int) -> Box:
        """One cell; cells stand a little apart."""
        wide, high = self.width / self.columns, self.height / self.ranks
        gap = 6 if min(wide, high) > 34 else 3
        return Box(self.x + column * wide, self.y + rank * high, wide - gap, high - gap)


def draw_cells(
    board: Sketch,
    place: Place,
    held: Sequence[Sequence[Change]],
    *,
    heads: Sequence[str] = (),
    received: Chosen = (),
    faded: Chosen = (),
    size: float | None = None,
) -> Cells:
    """Draw `held[rank][column]`, each with `.counts` and `.text`, into x, y, width, height.

    `received` cells have a heavy frame, `faded` ones do not matter; `heads` stand over the columns.
    Values are written in `size` points, 0 for not at all; left out,
    as large as all of them fit.
    """
    cells = Cells(*place, len(held), max(len(held[0]), 1))
    size = size_of_values(place, held) if size is None else size
    for rank, row in enumerate(held):
        for column, change in enumerate(row):
            box, at = cells.box(rank, column), (rank, column)
            high = (_SLOTS if size else 1) * box.height
            bar = Box(box.x, box.y + box.height - high, box.width, high)
            pale = at in faded
            board.rectangle(box, "#F6F7F8" if pale else _ground(change.counts or ()))
            if not pale:
                _draw_contributions(board, bar, change.counts or ())
            board.rectangle(box, edge=FRAME if pale else FAINT, level=3.4)
            if at in received:
                board.rectangle(box, edge=INK, line=3.4, level=3.6)
            if size:
                middle = (box.y + bar.y) / 2
                board.text(box.middle[0], middle, change.text, size=size, align="center",
                           inside=box, faint=pale)  # fmt: skip
    for column, head in enumerate(heads):
        x = cells.box(0, column).middle[0]
        board.text(x, cells.y - 12, head, size=8.5, faint=True, align="center")
    return cells


def draw_ranks(board: Sketch, x: float, cells: Cells) -> None:
    """The ranks' numbers in their colours: the key to the slots, and the names of the rows."""
    for rank in range(cells.ranks):
        row = cells.box(rank, 0)
        chip = Box(x, row.y, 30, row.height)
        board.rectangle(chip, chip_color(rank))
        board.text(*chip.middle, str(rank), size=9.5, bold=True, align="center",
                   color=ink_on(rank))  # fmt: skip
    board.text(x + 15, cells.y - 12, "rank", size=8.5, faint=True, align="center")


def size_of_values(place: Place, held: Sequence[Sequence[Change]]) -> float:
    """Returns the size at which every value fits into its cell, or 0 if too small to read."""
    box = Cells(*place, len(held), max(len(held[0]), 1)).box(0, 0)
    longest = max((len(change.text) for row in held for change in row), default=1)
    size = min(11.0, 0.34 * box.height, (box.width - 4) / (_DIGIT * longest))
    return size if size >= 6.5 else 0.0


def _ground(counts: Sequence[int]) -> str:
    """Returns the tint of a rank alone."""
    holders = [rank for rank, count in enumerate(counts) if count]
    return tint(rank_color(holders[0]), 0.22) if len(holders) == 1 else "white"


def _draw_contributions(board: Sketch, bar: Box, counts: Sequence[int]) -> None:
    """Draw a slot for each of few ranks, or of many a bar of how many, green if complete."""
    if len(counts) > FEW:
        share = sum(map(bool, counts)) / len(counts)
        color = OKABE_ITO["green" if share == 1 else "blue"]
        board.rectangle(Box(bar.x, bar.y, bar.width * share, bar.height),
                        _TWICE if max(counts) > 1 else tint(color, 0.75))  # fmt: skip
        return
    wide = bar.width / max(len(counts), 1)
    for rank, count in enumerate(counts):
        slot = Box(bar.x + rank * wide, bar.y, wide, bar.height)
        if count:
            board.rectangle(slot, _TWICE if count > 1 else tint(rank_color(rank), 0.75))
        if count > 1 and wide > 14:
            board.text(*slot.middle, f"{count}×", size=6.5, align="center", inside=slot, bold=True,
                       color="white")  # fmt: skip
