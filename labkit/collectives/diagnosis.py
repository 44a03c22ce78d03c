"""What is wrong with a result, in words: whose contribution is missing, counted twice or misplaced.

Codes say how often each rank is in an element; run again with only some of the elements coded,
they say which elements the contributions come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from labkit.collectives.probes import Code, Piece, RunBuffers, holds, number_text, run_again
from labkit.collectives.records import Array, Record, listed
from labkit.plain import stored

__all__ = ["NOUNS", "Fault", "explain", "value_fault"]

CALLS = 100_000  # how many calls the coded runs may make
NOUNS = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum", "prod": "product"}
UNKNOWN, READ, UNDIVIDED, CONSTANT = range(4)


@stored
@dataclass(frozen=True)
class Fault:
    """Elements of a rank's buffer that are wrong, and whose contributions are to blame.

    `chunk` is None where it is all of the buffer, and rank None where no rank is to blame.
    """

    rank: int | None
    chunk: int | None
    start: int
    stop: int
    contributors: tuple[int, ...]
    text: str


def explain(
    record: Record, op: str | None, probes: Sequence[RunBuffers], pieces: Sequence[Piece]
) -> Iterator[Fault]:
    """The faults of these pieces: one for neighbouring elements with the same thing wrong."""
    whole, this = op or "sum", RunBuffers(record, random=False)
    code = Code.of(whole, this.given[0].dtype, record.ranks)
    assert code is not None
    runs = _coded_runs(record, code)
    for rank in sorted({piece.rank for piece in pieces}):
        mine = [piece for piece in pieces if piece.rank == rank]
        wrong = [np.any([probe.wrong(one, op) for probe in probes], axis=0) for one in mine]
        at = np.concatenate(
            [one.start + np.flatnonzero(mask) for one, mask in zip(mine, wrong, strict=True)]
        )
        number = np.repeat(np.arange(len(mine)), [mask.sum() for mask in wrong])
        counts, origins = _read(code, runs, rank, at)
        what, shifts = np.full(at.size, UNKNOWN), origins - at
        for case, reduction in ((UNDIVIDED, "sum"), (READ, whole)):
            fits = [holds(reduction, probe, rank, at, counts, origins) for probe in probes]
            what[np.all(fits, axis=0) & (case == READ or op == "mean")] = case
        held = [probe.left[rank][at] for probe in probes]
        what[np.all([one == held[0] for one in held], axis=0) & (what == UNKNOWN)] = CONSTANT
        goals = np.array([(-1 if one.owner is None else one.owner, one.shift) for one in mine])
        key = np.vstack([what, np.where(what == READ, [*counts, *shifts], 0), goals[number].T])
        groups = _groups(key, at)
        everywhere = len(groups) == 1 and at.size == this.given[0].size and what[0] != UNKNOWN
        for first, last in groups if everywhere else _groups(np.vstack([key, number]), at):
            piece, start, stop = mine[number[first]], int(at[first]), int(at[last]) + 1
            chunk = None if everywhere else piece.chunk
            if what[first] == UNKNOWN:
                yield value_fault(op, piece, (this, *probes), at[first : last + 1])
            elif what[first] != READ:
                text = f"it holds a sum that no rank has divided by {record.ranks}"
                if what[first] == CONSTANT:
                    text = "it holds the same whatever the ranks put in"
                yield _fault(rank, chunk, start, stop, (), text)
            else:
                each = [(int(c[first]), int(s[first])) for c, s in zip(counts, shifts, strict=True)]
                yield _fault(rank, chunk, start, stop, *_misread(each, op, piece, start, stop))


def value_fault(op: str | None, piece: Piece, probes: Sequence[RunBuffers], at: Array) -> Fault:
    """A fault of which only the values are known, in the first run in which they are wrong."""
    for probe in probes:
        wrong = at[probe.wrong(piece, op)[at - piece.start]].tolist()
        if wrong:
            break
    first = wrong[0]
    held, right = probe.left[piece.rank][first], probe.wanted(piece, op)[0][first - piece.start]
    whose = f"the {NOUNS[op]}" if op else f"rank {piece.owner}'s element there"
    text = f"element {first} is {number_text(held, 12)}, and {whose} is {number_text(right, 12)}"
    text += ", in a run on other numbers" * probe.random
    return _fault(piece.rank, piece.chunk, first, wrong[-1] + 1, (), text)


def _coded_runs(record: Record, code: Code) -> list[list[RunBuffers]]:
    """The runs on codes: of all elements, then of those whose number has bit 0, bit 1, … set."""
    size = record.inputs[0].size
    masks = [np.arange(size) >> bit & 1 == 1 for bit in range((size - 1).bit_length())]
    if (1 + len(masks)) * code.runs * len(record.calls) > CALLS:
        return []
    return [
        [RunBuffers(run_again(record, code.inputs(record, run, mask))) for run in range(code.runs)]
        for mask in (slice(None), *masks)
    ]


def _read(code: Code, runs: list[list[RunBuffers]], rank: int, at: Array) -> tuple[Array, Array]:
    """How often each rank is in each element, and from which elements; -1: not known."""
    if not runs:
        return (unknown := np.full((code.ranks, at.size), -1)), unknown
    counts, *each = [code.read([probe.left[rank][at] for probe in some]) for some in runs]
    origins = np.zeros_like(counts)
    for bit, there in enumerate(each):
        origins += (there == counts) << bit
        origins[(there != counts) & (there != 0)] = -(1 << len(each))
    origins[origins >= runs[0][0].left[rank].size] = -1
    return counts, np.where(counts > 0, np.maximum(origins, -1), at)


def _groups(key: Array, at: Array) -> list[tuple[int, int]]:
    """The first and the last column of each run of equal columns of neighbouring elements."""
    cuts = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0) | (np.diff(at) != 1)) + 1
    return [(first, end - 1) for first, end in pairwise([0, *cuts.tolist(), at.size])]


def _fault(
    rank: int, chunk: int | None, start: int, stop: int, blamed: tuple[int, ...], text: str
) -> Fault:
    where = "all chunks" if chunk is None else f"chunk {chunk}"
    text = f"rank {rank}, {where} ({_elements(start, stop)}): {text}"
    return Fault(rank, chunk, start, stop, blamed, text)


def _misread(
    held: list[tuple[int, int]], op: str | None, piece: Piece, start: int, stop: int
) -> tuple[tuple[int, ...], str]:
    """The ranks to blame, and how what was found of each rank differs from what must be there."""
    present = tuple(rank for rank, (count, _) in enumerate(held) if count)
    if op is None:
        text = (
            f"it holds the sum of what ranks {listed(present)} put in" if present else "it holds 0"
        )
        if len(present) == 1:
            count, shift = held[present[0]]
            text = f"it holds rank {present[0]}'s {_elements(start + shift, stop + shift)}"
            text += f" {count} times" if count > 1 else ""
            if present == (piece.rank,) and (count, shift) == (1, 0):
                text = f"it still holds what rank {piece.rank} began with"
        goal = _elements(start + piece.shift, stop + piece.shift)
        return present, f"{text}, and must hold rank {piece.owner}'s {goal}"
    blamed = tuple(rank for rank, found in enumerate(held) if found != (1, 0))
    if len(present) == 1 < len(blamed) and held[present[0]] == (1, 0):
        return blamed, f"it holds only rank {present[0]}'s contribution, and no other rank's"
    alike: dict[tuple[int, int], list[int]] = {}
    for rank, found in enumerate(held):
        if found != (1, 0):
            alike.setdefault(found, []).append(rank)
    parts = []
    for (count, shift), ranks in sorted(alike.items()):
        whose, its = f"the contributions of ranks {listed(ranks)} are", "their"
        if len(ranks) == 1:
            whose, its = f"rank {ranks[0]}'s contribution is", "its"
        if count != 1:
            often = f"counted {count} times, and must be once" if count else "missing"
            parts.append(f"{whose} {often}")
        if shift:
            found_at, here = _elements(start + shift, stop + shift), _elements(start, stop)
            parts.append(f"{whose} {its} {found_at}, and must be {its} {here}")
    return blamed, "; ".join(parts)


def _elements(start: int, stop: int) -> str:
    return f"element {start}" if stop == start + 1 else f"elements {start}–{stop - 1}"
