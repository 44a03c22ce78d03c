"""What is wrong with a piece of a result: whose contribution is missing, counted twice, misplaced.

Each way of being wrong leaves a mark in runs on numbers of ours; here the marks are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import numpy as np

from labkit.collectives.numbers import number
from labkit.collectives.operations import OPERATIONS
from labkit.collectives.promises import Piece
from labkit.collectives.provenance import Array, Counts
from labkit.collectives.trials import Trials, plain

__all__ = ["Finding", "findings"]

LOOKED_AT = 1000  # elements of one piece, evenly over those that are wrong
SEARCHED = 4_000_000  # numbers in which a misplaced one is looked for
MOST = 9  # a contribution is counted up to this often

What = Literal[
    "copy", "counts", "fixed", "misplaced", "total", "undivided", "twice divided", "unknown"
]


@dataclass(frozen=True)
class Finding:
    """Elements of a piece with the same thing wrong.

    `counts` is how often each rank is in there. `owner` and `shift` say whose elements were found,
    and how far from their place; `moved` says it for each of several ranks.
    """

    piece: Piece
    start: int
    stop: int
    what: What
    counts: Counts = ()
    owner: int = -1
    shift: int = 0
    value: str = ""
    moved: tuple[tuple[int, int], ...] = ()


def findings(trials: Trials, piece: Piece, wrong: Array) -> list[Finding]:
    """What is wrong with these elements of the piece, neighbours with the same fault together."""
    where = np.flatnonzero(wrong) + piece.start
    chosen = np.unique(np.linspace(0, where.size - 1, min(where.size, LOOKED_AT)).astype(int))
    places = where[chosen]
    marks: dict[int, tuple[Any, ...]] = {}
    for look in (_fixed, _division, _copies, _totals, _extremes, _counted, _alone):
        left = np.array([place for place in places.tolist() if place not in marks], dtype=int)
        if not left.size:
            break
        marks.update(look(trials, piece, left))
    found: list[Finding] = []
    run = -1
    for index, place in zip(chosen.tolist(), places.tolist(), strict=True):
        here = Finding(piece, place, place + 1, *marks.get(place, ("unknown",)))
        last = found[-1] if found else None
        # Every element up to this one is wrong, and those looked at are so in the same way.
        together = last is not None and where[index] - index == run
        if last and together and here == replace(last, start=place, stop=place + 1):
            found[-1] = replace(last, stop=place + 1)
        else:
            found.append(here)
        run = where[index] - index
    return found


Marks = Iterator[tuple[int, tuple[Any, ...]]]


def _fixed(trials: Trials, piece: Piece, places: Array) -> Marks:
    """The same number whatever goes in."""
    value = trials.untouched.left[piece.rank][places]
    same = np.all([r.left[piece.rank][places] == value for r in trials.rounds], axis=0)
    for place, held in zip(places[same].tolist(), value[same], strict=True):
        yield place, ("fixed", (), -1, 0, number(held))


def _division(trials: Trials, piece: Piece, places: Array) -> Marks:
    """A mean that nobody, or more than one, has divided."""
    if trials.op != "mean" or trials.ranks == 1:
        return
    for what, factor in (("undivided", trials.ranks), ("twice divided", 1 / trials.ranks)):
        hits = np.ones(places.size, dtype=bool)
        for turn in trials.rounds:
            expected = plain(turn.total[places]) * factor
            actual = plain(turn.left[piece.rank][places])
            hits &= np.abs(actual - expected) < (1 if what == "twice divided" else 0.25)
        yield from ((place, (what, (), -1, 0, "")) for place in places[hits].tolist())


def _copies(trials: Trials, piece: Piece, places: Array) -> Marks:
    """One rank's element, from its place or another."""
    tables = [np.concatenate(turn.given) for turn in trials.rounds]
    size = trials.size
    for place, index in _located(trials, piece, places, tables, size):
        owner, origin = divmod(index, size)
        if piece.owner is None and origin == place:
            yield place, ("counts", tuple(int(q == owner) for q in range(trials.ranks)))
        else:
            yield place, ("copy", (), owner, origin - place, "")


def _totals(trials: Trials, piece: Piece, places: Array) -> Marks:
    """The reduction of other elements."""
    if piece.owner is None:
        tables = [turn.total for turn in trials.rounds]
        for place, origin in _located(trials, piece, places, tables, trials.size):
            yield place, ("total", (), -1, origin - place, "")


def _located(
    trials: Trials, piece: Piece, places: Array, tables: list[Array], size: int
) -> Iterator[tuple[int, int]]:
    """Where in the tables the numbers at these places are, for those that are in one place only."""
    if tables[0].size > SEARCHED:
        return
    first = plain(tables[0])
    order = np.argsort(first.real if first.dtype.kind == "c" else first, kind="stable")
    ranked = (first.real if first.dtype.kind == "c" else first)[order]
    for place in places.tolist():
        held = [turn.left[piece.rank][place] for turn in trials.rounds]
        wanted = float(np.real(held[0]))
        low, high = np.searchsorted(ranked, [wanted, np.nextafter(wanted, np.inf)])
        where = order[low:high]
        for table, value in zip(tables, held, strict=True):
            where = where[table[where] == value]
        own = where[where % size == place]
        if where.size == 1 or own.size == 1:
            yield place, int((where if where.size == 1 else own)[0])


def _extremes(trials: Trials, piece: Piece, places: Array) -> Marks:
    """In a maximum: the ranks that were on top, and are not in it."""
    if trials.op not in ("max", "min") or piece.owner is not None:
        return
    ufunc, top = OPERATIONS[trials.op], np.argmax if trials.op == "max" else np.argmin
    turns = [(np.array([g[places] for g in turn.given]), turn) for turn in trials.rounds]
    held = [turn.left[piece.rank][places] for turn in trials.rounds]
    for at, place in enumerate(places.tolist()):
        columns = [(given[:, at], value[at]) for (given, _), value in zip(turns, held, strict=True)]
        missing = {int(top(column)) for column, value in columns if ufunc.reduce(column) != value}
        present = [rank for rank in range(trials.ranks) if rank not in missing]
        if present and all(ufunc.reduce(column[present]) == value for column, value in columns):
            counts = tuple(int(rank not in missing) for rank in range(trials.ranks))
            yield place, ("counts", counts)


def _counted(trials: Trials, piece: Piece, places: Array) -> Marks:
    """How often each rank is in a sum, read from digits and tried on the other numbers."""
    if trials.op not in ("sum", "mean", "copy") or trials.code is None:
        return
    extra = plain(trials.untouched.left[piece.rank][places])
    held = [plain(turn.left[piece.rank][places]) - extra for turn in trials.coded]
    for at, place in enumerate(places.tolist()):
        for divided in (True, False) if trials.op == "mean" else (False,):
            parts = [trials.code.read(values[at], divided) for values in held]
            if any(part is None for part in parts):
                continue
            counts = tuple(c for part in parts if part for c in part)[: trials.ranks]
            if piece.owner is None and set(counts) == {1} and not extra[at]:
                continue  # as it must be: what is wrong is something else
            if _predicts(trials, piece, place, counts, extra[at], divided):
                yield place, ("counts", counts, -1, 0, number(extra[at]) if extra[at] else "")
                break


def _predicts(
    trials: Trials, piece: Piece, place: int, counts: Counts, extra: Any, divided: bool
) -> bool:
    for turn in trials.rounds:
        parts = [plain(g[place]) * c for g, c in zip(turn.given, counts, strict=True) if c]
        expected = sum(parts) / (trials.ranks if divided else 1) + extra
        if trials.dtype.kind in "iu":
            expected = plain(np.array(int(expected)).astype(trials.dtype))
        miss = abs(plain(turn.left[piece.rank][place]) - expected)
        if not miss <= 0.25 + 1e-6 * abs(expected):
            return False
    return True


def _alone(trials: Trials, piece: Piece, places: Array) -> Marks:
    """Each rank by itself: how often it is there, or from which place."""
    if trials.op in ("max", "min") or not trials.affordable(trials.ranks):
        return
    nothing = trials.untouched.left[piece.rank]
    for place in places.tolist():
        counts, moved = [], []
        for rank in range(trials.ranks):
            turn = trials.alone(rank)
            mine, held = turn.given[rank], turn.left[piece.rank][place]
            count = _times(trials, mine[place], held, nothing[place])
            if count is None:
                origin = np.flatnonzero(mine == held)
                if origin.size != 1 or nothing[place] != trials.nothing()[place]:
                    break
                moved.append((rank, int(origin[0]) - place))
                count = 1
            counts.append(count)
        else:
            if moved or any(count != 1 for count in counts):
                what = "misplaced" if moved else "counts"
                yield place, (what, tuple(counts), -1, 0, "", tuple(moved))


def _times(trials: Trials, one: Any, held: Any, nothing: Any) -> int | None:
    """How often a rank's number is in what was held when all others put in nothing."""
    ufunc = OPERATIONS["sum" if trials.op in ("copy", "mean") else trials.op]
    if trials.op == "mean":
        one = (one / trials.ranks) if trials.dtype.kind not in "iu" else one // trials.ranks
    actual = plain(np.asarray(held))
    for count in range(MOST + 1):
        expected = plain(np.asarray(reduce(ufunc, [one] * count, nothing)))
        if abs(expected - actual) <= 1e-9 * abs(actual):
            return count
    return None
