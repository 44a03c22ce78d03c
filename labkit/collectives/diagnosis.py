"""What is wrong with a piece of a result, in words: whose contribution is missing or counted twice.

Each way of being wrong leaves a mark in runs on probe inputs; here the marks are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from labkit.collectives.contributions import Counts
from labkit.collectives.probes import Piece, Probes, number_text, plain
from labkit.collectives.programs.reduction import OPERATIONS
from labkit.collectives.records import Array, chunk_bounds, listed

__all__ = ["NOUNS", "Finding", "contributors", "findings", "place", "problem"]

EXAMINED = 1000  # elements of one piece, evenly over those that are wrong
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
    found: list[Finding] = []
    run = -1
    for index, here in zip(chosen.tolist(), _examined(probes, piece, places), strict=True):
        last = found[-1] if found else None
        # Every element up to this one is wrong, and those examined are so in the same way.
        together = last is not None and where[index] - index == run
        if last and together and here == replace(last, start=here.start, stop=here.stop):
            found[-1] = replace(last, stop=here.stop)
        else:
            found.append(here)
        run = where[index] - index
    return found


def _examined(probes: Probes, piece: Piece, places: Array) -> Iterator[Finding]:
    """One finding an element."""
    base = probes.untouched.left[piece.rank][places]
    left = [turn.left[piece.rank][places] for turn in probes.rounds]
    fixed = np.all([held == base for held in left], axis=0)
    divided = _division(probes, places, left)
    read = _contributions(probes, piece, places, base) if probes.affordable(probes.ranks) else None
    for at, place in enumerate(places.tolist()):
        here = Finding(piece, place, place + 1, "unknown")
        if fixed[at]:
            yield replace(here, what="fixed", value=number_text(base[at]))
        elif at in divided:
            yield replace(here, what=divided[at])
        elif read is None or (read[0][:, at] < 0).any():
            yield here
        else:
            extra = number_text(base[at]) if base[at] != probes.nothing()[place] else ""
            counts, shifts = read[0][:, at].tolist(), read[1][:, at].tolist()
            yield _classified(here, counts, shifts, extra)


def _division(probes: Probes, places: Array, left: list[Array]) -> dict[int, What]:
    """A mean that no rank, or more than one, has divided."""
    found: dict[int, What] = {}
    if probes.op != "mean" or probes.ranks == 1:
        return found
    ways: tuple[tuple[What, float, float], ...] = (
        ("undivided", probes.ranks, 0.25), ("twice divided", 1 / probes.ranks, 1),
    )  # fmt: skip
    for what, factor, tolerance in ways:
        hits = np.ones(places.size, dtype=bool)
        for turn, held in zip(probes.rounds, left, strict=True):
            hits &= np.abs(plain(held) - plain(turn.total[places]) * factor) < tolerance
        found |= dict.fromkeys(np.flatnonzero(hits).tolist(), what)
    return found


def _contributions(probes: Probes, piece: Piece, places: Array, base: Array) -> tuple[Array, Array]:
    """For each rank and element, how often the rank is in it (-1: not known), and from how far."""
    counts = np.full((probes.ranks, places.size), -1)
    shifts = np.zeros_like(counts)
    ufunc = OPERATIONS["sum" if probes.op in ("copy", "mean") else probes.op]
    for rank in range(probes.ranks):
        turn = probes.alone(rank)
        mine, held = turn.given[rank], turn.left[piece.rank][places]
        if probes.op == "mean":
            mine = mine // probes.ranks if mine.dtype.kind in "iu" else mine / probes.ranks
        value = base.copy()
        for count in range(MOST + 1):
            miss = np.abs(plain(value) - plain(held))
            fits = miss <= (1e-9 * np.abs(plain(held)) if probes.loose else 0)
            counts[rank, fits & (counts[rank] < 0)] = count
            value = ufunc(value, mine[places])
        for at in np.flatnonzero((counts[rank] < 0) & (base == probes.nothing()[places])):
            origin = np.flatnonzero(mine == held[at])
            if origin.size == 1:
                counts[rank, at], shifts[rank, at] = 1, origin[0] - places[at]
    return counts, shifts


def _classified(here: Finding, counts: list[int], shifts: list[int], extra: str) -> Finding:
    """What the contributions of an element mean."""
    present = [rank for rank, count in enumerate(counts) if count]
    moved = tuple((rank, shifts[rank]) for rank in present if shifts[rank])
    reduces = here.piece.owner is None
    if present and [counts[rank] for rank in present] == [1] and not extra:
        (owner,) = present
        if moved or not reduces:
            return replace(here, what="copy", owner=owner, shift=shifts[owner])
    if reduces and set(counts) == {1} and len(set(shifts)) == 1 and not extra:
        # Without a shift it is as it must be, so that something else is wrong.
        return replace(here, what="total", shift=shifts[0]) if moved else here
    if moved:
        return replace(here, what="misplaced", counts=tuple(counts), moved=moved)
    return replace(here, what="counts", counts=tuple(counts), value=extra)


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
