"""What a finding says: which rank, which chunk, whose contribution, and how it must be."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collectives.diagnosis import Finding
from labkit.collectives.provenance import chunks

__all__ = ["NOUNS", "contributors", "elements", "listed", "place", "plural", "problem"]

NOUNS = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum", "prod": "product"}


def listed(items: Sequence[object]) -> str:
    """Items in a sentence.

    >>> listed([1, 2, 3])
    '1, 2 and 3'
    """
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def plural(count: int, what: str) -> str:
    """A count with its noun.

    >>> plural(1, "rank"), plural(4, "rank")
    ('1 rank', '4 ranks')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def elements(start: int, stop: int) -> str:
    """Elements of a buffer, the last one included.

    >>> elements(4, 8), elements(4, 5)
    ('elements 4–7', 'element 4')
    """
    return f"element {start}" if stop == start + 1 else f"elements {start}–{stop - 1}"


def place(rank: int, chunk: int | None, start: int, stop: int) -> str:
    """Where something is: the rank, the chunk, the elements."""
    where = "all chunks" if chunk is None else f"chunk {chunk}"
    return f"rank {rank}, {where} ({elements(start, stop)})"


def problem(finding: Finding, op: str | None, ranks: int, size: int) -> str:
    """What is wrong there, and how it must be."""
    start, stop, piece = finding.start, finding.stop, finding.piece
    noun = NOUNS.get(op or "", "")
    found = elements(start + finding.shift, stop + finding.shift)
    if piece.owner is not None:
        moved = piece.begin - piece.start
        must = f"must hold rank {piece.owner}'s {elements(start + moved, stop + moved)}"
    else:
        must = f"must hold the {noun} of all ranks' {elements(start, stop)}"
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
        return f"it holds the sum, which nobody has divided by {ranks}"
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
        what = f"rank {owners[0]}'s {elements(finding.start, finding.stop)}"
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
    here = elements(finding.start, finding.stop)
    parts = []
    for shift in sorted({shift for _, shift in finding.moved}):
        ranks = [rank for rank, moved in finding.moved if moved == shift]
        its = "its" if len(ranks) == 1 else "their"
        found = elements(finding.start + shift, finding.stop + shift)
        parts.append(f"{_whose(ranks)} {its} {found}, and must be {its} {here}")
    parts += [_counts(finding)] if any(count != 1 for count in finding.counts) else []
    return "; ".join(parts)


def _whose(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}'s contribution is"
    named = listed(ranks) if len(ranks) <= 8 else f"{', '.join(map(str, ranks[:6]))}, … {ranks[-1]}"
    return f"the contributions of ranks {named} are"


def _chunk(start: int, stop: int, ranks: int, size: int) -> str:
    for number, (first, last) in enumerate(chunks(size, ranks)):
        if first <= start and stop <= last:
            return f" (chunk {number})"
    return ""
