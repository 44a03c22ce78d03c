"""What is wrong with a piece of a result, in words: whose contribution is missing or counted twice.

Each way of being wrong leaves a mark in runs on probe inputs; here the marks are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal

import numpy as np

from labkit.collectives.contributions import Counts
from labkit.collectives.probes import Piece, Probes, number_text, plain
from labkit.collectives.programs.reduction import OPERATIONS
from labkit.collectives.records import Array, chunk_bounds, listed

__all__ = ["NOUNS", "Finding", "contributors", "findings", "place", "problem"]

EXAMINED = 1000  # elements of one piece, evenly over those that are wrong
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


def findings(probes: Probes, piece: Piece, wrong: Array) -> list[Finding]:
    """What is wrong with these elements of the piece, neighbours with the same fault together."""
    where = np.flatnonzero(wrong) + piece.start
    chosen = np.unique(np.linspace(0, where.size - 1, min(where.size, EXAMINED)).astype(int))
    places = where[chosen]
    marks: dict[int, tuple[Any, ...]] = {}
    for read in (_fixed, _division, _copies, _totals, _extremes, _counted, _alone):
        left = np.array([place for place in places.tolist() if place not in marks], dtype=int)
        if not left.size:
            break
        marks.update(read(probes, piece, left))
    found: list[Finding] = []
    run = -1
    for index, place in zip(chosen.tolist(), places.tolist(), strict=True):
        here = Finding(piece, place, place + 1, *marks.get(place, ("unknown",)))
        last = found[-1] if found else None
        # Every element up to this one is wrong, and those examined are so in the same way.
        together = last is not None and where[index] - index == run
        if last and together and here == replace(last, start=place, stop=place + 1):
            found[-1] = replace(last, stop=place + 1)
        else:
            found.append(here)
        run = where[index] - index
    return found


Marks = Iterator[tuple[int, tuple[Any, ...]]]


def _fixed(probes: Probes, piece: Piece, places: Array) -> Marks:
    """The same number whatever goes in."""
    value = probes.untouched.left[piece.rank][places]
    same = np.all([r.left[piece.rank][places] == value for r in probes.rounds], axis=0)
    for place, held in zip(places[same].tolist(), value[same], strict=True):
        yield place, ("fixed", (), -1, 0, number_text(held))


def _division(probes: Probes, piece: Piece, places: Array) -> Marks:
    """A mean that no rank, or more than one, has divided."""
    if probes.op != "mean" or probes.ranks == 1:
        return
    for what, factor in (("undivided", probes.ranks), ("twice divided", 1 / probes.ranks)):
        hits = np.ones(places.size, dtype=bool)
        for turn in probes.rounds:
            expected = plain(turn.total[places]) * factor
            actual = plain(turn.left[piece.rank][places])
            hits &= np.abs(actual - expected) < (1 if what == "twice divided" else 0.25)
        yield from ((place, (what, (), -1, 0, "")) for place in places[hits].tolist())


def _copies(probes: Probes, piece: Piece, places: Array) -> Marks:
    """One rank's element, from its place or another."""
    tables = [np.concatenate(turn.given) for turn in probes.rounds]
    size = probes.size
    for place, index in _located(probes, piece, places, tables, size):
        owner, origin = divmod(index, size)
        if piece.owner is None and origin == place:
            yield place, ("counts", tuple(int(q == owner) for q in range(probes.ranks)))
        else:
            yield place, ("copy", (), owner, origin - place, "")


def _totals(probes: Probes, piece: Piece, places: Array) -> Marks:
    """The reduction of other elements."""
    if piece.owner is None:
        tables = [turn.total for turn in probes.rounds]
        for place, origin in _located(probes, piece, places, tables, probes.size):
            yield place, ("total", (), -1, origin - place, "")


def _located(
    probes: Probes, piece: Piece, places: Array, tables: list[Array], size: int
) -> Iterator[tuple[int, int]]:
    """Where in the tables the numbers at these places are, for those that are in one place only."""
    if tables[0].size > SEARCHED:
        return
    first = plain(tables[0])
    order = np.argsort(first.real if first.dtype.kind == "c" else first, kind="stable")
    ranked = (first.real if first.dtype.kind == "c" else first)[order]
    for place in places.tolist():
        held = [turn.left[piece.rank][place] for turn in probes.rounds]
        wanted = float(np.real(held[0]))
        low, high = np.searchsorted(ranked, [wanted, np.nextafter(wanted, np.inf)])
        where = order[low:high]
        for table, value in zip(tables, held, strict=True):
            where = where[table[where] == value]
        own = where[where % size == place]
        if where.size == 1 or own.size == 1:
            yield place, int((where if where.size == 1 else own)[0])


def _extremes(probes: Probes, piece: Piece, places: Array) -> Marks:
    """In a maximum: the ranks that were on top, and are not in it."""
    if probes.op not in ("max", "min") or piece.owner is not None:
        return
    ufunc, top = OPERATIONS[probes.op], np.argmax if probes.op == "max" else np.argmin
    turns = [(np.array([g[places] for g in turn.given]), turn) for turn in probes.rounds]
    held = [turn.left[piece.rank][places] for turn in probes.rounds]
    for at, place in enumerate(places.tolist()):
        columns = [(given[:, at], value[at]) for (given, _), value in zip(turns, held, strict=True)]
        missing = {int(top(column)) for column, value in columns if ufunc.reduce(column) != value}
        present = [rank for rank in range(probes.ranks) if rank not in missing]
        if present and all(ufunc.reduce(column[present]) == value for column, value in columns):
            counts = tuple(int(rank not in missing) for rank in range(probes.ranks))
            yield place, ("counts", counts)


def _counted(probes: Probes, piece: Piece, places: Array) -> Marks:
    """How often each rank is in a sum, read from digits and tried on the other numbers."""
    if probes.op not in ("sum", "mean", "copy") or probes.code is None:
        return
    extra = plain(probes.untouched.left[piece.rank][places])
    held = [plain(turn.left[piece.rank][places]) - extra for turn in probes.coded]
    for at, place in enumerate(places.tolist()):
        for divided in (True, False) if probes.op == "mean" else (False,):
            parts = [probes.code.read(values[at], divided) for values in held]
            if any(part is None for part in parts):
                continue
            counts = tuple(c for part in parts if part for c in part)[: probes.ranks]
            if piece.owner is None and set(counts) == {1} and not extra[at]:
                continue  # as it must be: what is wrong is something else
            if _predicts(probes, piece, place, counts, extra[at], divided):
                yield place, ("counts", counts, -1, 0, number_text(extra[at]) if extra[at] else "")
                break


def _predicts(
    probes: Probes, piece: Piece, place: int, counts: Counts, extra: Any, divided: bool
) -> bool:
    for turn in probes.rounds:
        parts = [plain(g[place]) * c for g, c in zip(turn.given, counts, strict=True) if c]
        expected = sum(parts) / (probes.ranks if divided else 1) + extra
        if probes.dtype.kind in "iu":
            expected = plain(np.array(int(expected)).astype(probes.dtype))
        miss = abs(plain(turn.left[piece.rank][place]) - expected)
        if not miss <= 0.25 + 1e-6 * abs(expected):
            return False
    return True


def _alone(probes: Probes, piece: Piece, places: Array) -> Marks:
    """Each rank by itself: how often it is there, or from which place."""
    if probes.op in ("max", "min") or not probes.affordable(probes.ranks):
        return
    nothing = probes.untouched.left[piece.rank]
    for place in places.tolist():
        counts, moved = [], []
        for rank in range(probes.ranks):
            turn = probes.alone(rank)
            mine, held = turn.given[rank], turn.left[piece.rank][place]
            count = _times(probes, mine[place], held, nothing[place])
            if count is None:
                origin = np.flatnonzero(mine == held)
                if origin.size != 1 or nothing[place] != probes.nothing()[place]:
                    break
                moved.append((rank, int(origin[0]) - place))
                count = 1
            counts.append(count)
        else:
            if moved or any(count != 1 for count in counts):
                what = "misplaced" if moved else "counts"
                yield place, (what, tuple(counts), -1, 0, "", tuple(moved))


def _times(probes: Probes, one: Any, held: Any, nothing: Any) -> int | None:
    """How often a rank's number is in what was held when all others put in nothing."""
    ufunc = OPERATIONS["sum" if probes.op in ("copy", "mean") else probes.op]
    if probes.op == "mean":
        one = (one / probes.ranks) if probes.dtype.kind not in "iu" else one // probes.ranks
    actual = plain(np.asarray(held))
    for count in range(MOST + 1):
        expected = plain(np.asarray(reduce(ufunc, [one] * count, nothing)))
        if abs(expected - actual) <= 1e-9 * abs(actual):
            return count
    return None


NOUNS = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum", "prod": "product"}


def _elements(start: int, stop: int) -> str:
    """Elements of a buffer, the last one included.

    >>> _elements(4, 8), _elements(4, 5)
    ('elements 4–7', 'element 4')
    """
    return f"element {start}" if stop == start + 1 else f"elements {start}–{stop - 1}"


def place(rank: int, chunk: int | None, start: int, stop: int) -> str:
    """Where something is: the rank, the chunk, the elements."""
    where = "all chunks" if chunk is None else f"chunk {chunk}"
    return f"rank {rank}, {where} ({_elements(start, stop)})"


def problem(finding: Finding, op: str | None, ranks: int, size: int) -> str:
    """What is wrong there, and how it must be."""
    start, stop, piece = finding.start, finding.stop, finding.piece
    noun = NOUNS.get(op or "", "")
    found = _elements(start + finding.shift, stop + finding.shift)
    if piece.owner is not None:
        moved = piece.begin - piece.start
        must = f"must hold rank {piece.owner}'s {_elements(start + moved, stop + moved)}"
    else:
        must = f"must hold the {noun} of all ranks' {_elements(start, stop)}"
    if finding.what == "fixed":
        return f"it holds {finding.value} whatever the ranks put in, and {must}"
    if finding.what == "copy":
        if finding.owner == piece.rank and finding.shift == 0:
            return f"it still holds what rank {piece.rank} began with, and {must}"
        return f"it holds rank {finding.owner}'s {found}, and {must}"
    if finding.what == "total":
        chunk = _chunk(start + finding.shift, stop + finding.shift, ranks, size)
        return f"it holds the {noun} of {found}{chunk}, and {must}"
    if finding.what == "misplaced":
        return _moved(finding)
    if finding.what == "undivided":
        return f"it holds the sum, which no rank has divided by {ranks}"
    if finding.what == "twice divided":
        return f"the sum is divided by {ranks} twice"
    if finding.what == "counts":
        return _counts(finding) if piece.owner is None else _added(finding, must)
    return f"what it holds is not made of the ranks' contributions, and it {must}"


def contributors(finding: Finding) -> tuple[int, ...]:
    """The ranks whose contributions are to blame."""
    if finding.what in ("counts", "misplaced") and finding.piece.owner is None:
        moved = {rank for rank, _ in finding.moved}
        return tuple(rank for rank, c in enumerate(finding.counts) if c != 1 or rank in moved)
    if finding.what == "counts":
        return tuple(rank for rank, count in enumerate(finding.counts) if count)
    return (finding.owner,) if finding.owner >= 0 else ()


def _added(finding: Finding, must: str) -> str:
    owners = [rank for rank, count in enumerate(finding.counts) if count]
    what = f"the sum of what ranks {listed(owners)} put in" if owners else "nothing of any rank"
    if len(owners) == 1:
        times = finding.counts[owners[0]]
        what = f"rank {owners[0]}'s {_elements(finding.start, finding.stop)}"
        what += f" {times} times" if times > 1 else ""
    what += f" and {finding.value} more" if finding.value else ""
    return f"it holds {what}, and {must}"


def _counts(finding: Finding) -> str:
    counts = finding.counts
    if sum(counts) == 1 and len(counts) > 2:
        only = counts.index(1)
        own = "its own" if only == finding.piece.rank else f"rank {only}'s"
        others = [rank for rank, count in enumerate(counts) if not count]
        return f"it holds only {own} contribution; {_whose(others)} missing"
    parts = []
    for count in sorted(set(counts) - {1}):
        whose = _whose([rank for rank, c in enumerate(counts) if c == count])
        often = f"counted {count} times, and must be once" if count else "missing"
        parts.append(f"{whose} {often}")
    if finding.value:
        parts.append(f"there is {finding.value} in it that no rank has put in")
    return "; ".join(parts)


def _moved(finding: Finding) -> str:
    here = _elements(finding.start, finding.stop)
    parts = []
    for shift in sorted({shift for _, shift in finding.moved}):
        ranks = [rank for rank, moved in finding.moved if moved == shift]
        its = "its" if len(ranks) == 1 else "their"
        found = _elements(finding.start + shift, finding.stop + shift)
        parts.append(f"{_whose(ranks)} {its} {found}, and must be {its} {here}")
    parts += [_counts(finding)] if any(count != 1 for count in finding.counts) else []
    return "; ".join(parts)


def _whose(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}'s contribution is"
    named = listed(ranks) if len(ranks) <= 8 else f"{', '.join(map(str, ranks[:6]))}, … {ranks[-1]}"
    return f"the contributions of ranks {named} are"


def _chunk(start: int, stop: int, ranks: int, size: int) -> str:
    for number, (first, last) in enumerate(chunk_bounds(size, ranks)):
        if first <= start and stop <= last:
            return f" (chunk {number})"
    return ""
