"""Does a run do what it is called? Each output must hold each contribution once, and it is proved.

The numbers of the run are compared with NumPy's; then the program is run again, on random numbers,
because right numbers may be luck, and on codes that say whose contribution is where.

>>> print(check(record, "all_reduce"))                              # doctest: +SKIP
my_ring is no all_reduce (sum) on 4 ranks:
rank 2, chunk 1 (element 1): rank 0's contribution is counted 2 times, and must be once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from labkit.arguments import one_of, whole
from labkit.collectives.buffers import OPERATIONS
from labkit.collectives.contributions import (
    Change,
    Contributions,
    coded_runs,
    holds,
    number_text,
    random_runs,
    run_again,
)
from labkit.collectives.records import Array, Record, chunk_bounds, listed
from labkit.kinds import LabError, counted

Wanted: TypeAlias = list[tuple[int, int, int | None, int]]
SHOWN = 5
ALL, OPEN = -1, -2  # in place of the rank whose contribution must be in an element
NOUNS = {"sum": "sum", "max": "maximum", "min": "minimum"}
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
# By collective, of `ranks` and `root`: a rank, its chunk, the rank whose contribution must be in
# there (None: all of them), and from which chunk. What a collective leaves open is not mentioned.
POSTCONDITIONS: dict[str, Callable[[range, int], Wanted]] = {
    "all_reduce": lambda ranks, root: [(r, c, None, c) for r in ranks for c in ranks],
    "reduce": lambda ranks, root: [(root, c, None, c) for c in ranks],
    "reduce_scatter": lambda ranks, root: [(r, r, None, r) for r in ranks],
    "broadcast": lambda ranks, root: [(r, c, root, c) for r in ranks for c in ranks],
    "scatter": lambda ranks, root: [(r, r, root, r) for r in ranks],
    "gather": lambda ranks, root: [(root, c, c, c) for c in ranks],
    "all_gather": lambda ranks, root: [(r, c, c, c) for r in ranks for c in ranks],
    "all_to_all": lambda ranks, root: [(r, c, c, r) for r in ranks for c in ranks],
}


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


@dataclass(frozen=True, repr=False)
class CollectiveCheck:
    """True if every rank ended with what the collective must leave; as text, what is wrong."""

    program: str
    collective: str
    op: str | None
    ranks: int
    proof: str
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.faults

    def __repr__(self) -> str:
        op = f" ({self.op})" if self.op else ""
        what = f"{self.collective}{op} on {counted(self.ranks, 'rank')}"
        if self:
            article = "an" if self.collective[0] in "aeiou" else "a"
            lines = [f"{self.program} is {article} {what}: {self.proof}"]
        else:
            lines = [f"{self.program} is no {what}:"]
            lines += [f"{fault.text}." for fault in self.faults[:SHOWN]]
            more = len(self.faults) - SHOWN
            lines += [f"… and {more} more like these."] if more > 0 else []
        return "\n".join([*lines, *self.notes])


def where_wrong(
    faults: tuple[Fault, ...], held: Contributions, steps: int
) -> list[tuple[int, int, int]]:
    """Returns the wrong cells as (first step in which it is wrong, rank, cell), in order.

    What was counted twice, or was overwritten, is wrong from there on; a sum that lacks something,
    at the end; and what is wrong for another reason, since it was last written.
    """
    wrong: dict[tuple[int, int], int] = {}
    before: dict[tuple[int, int], Change] = {}
    for now in held.changes:
        place = (now.rank, now.cell)
        old = before.get(place, now).counts or ()
        new = now.counts or ()
        lost = held.op and any(was and not left for was, left in zip(old, new, strict=False))
        if max(new, default=0) > 1 or lost:
            wrong.setdefault(place, now.step)
        before[place] = now
    for fault in faults if held.changes else ():
        for cell, (start, stop) in enumerate(held.cells):
            if fault.rank is not None and start < fault.stop and fault.start < stop:
                last = before[fault.rank, cell]
                incomplete = held.op and last.counts
                since = steps if incomplete else last.step or steps
                wrong.setdefault((fault.rank, cell), since)
    return sorted((step, *place) for place, step in wrong.items())


def check(
    record: Record, collective: str, op: str | None = None, root: int | None = None
) -> CollectiveCheck:
    """Whether each rank ends with what the collective must leave there: each contribution, once.

    Without `op` and `root`, those that the run was given are taken, else a sum and rank 0. What a
    collective leaves open, such as the other ranks' buffers after a reduce, is not looked at.
    """
    one_of("collective", collective, POSTCONDITIONS)
    name = one_of("op", op or record.op or "sum", OPERATIONS) if collective in REDUCTIONS else None
    center = whole("root", record.root if root is None else root, at_most=record.ranks - 1)
    notes = [record.note] if record.note else []
    faults, proof = _judge(record, name, *_targets(collective, record, center), notes)
    proof = proof or _proof(collective, name, center)
    return CollectiveCheck(
        record.program, collective, name, record.ranks, proof, tuple(faults), tuple(notes)
    )


def _targets(collective: str, record: Record, root: int) -> tuple[Array, Array]:
    """Returns for each rank and element whose contribution it must hold, and from which element.

    Both arrays are [rank, element].
    """
    sizes, ranks = sorted({buffer.size for buffer in record.inputs}), record.ranks
    if len(sizes) > 1 or (collective == "all_to_all" and sizes[0] % ranks):
        raise LabError(
            f"{collective} is checked on buffers of one size, that of all_to_all a multiple of the "
            f"ranks; the buffers of the {ranks} ranks have {listed(sizes)} elements."
        )
    cut = chunk_bounds(sizes[0], ranks)
    owners, origins = np.full((ranks, *sizes), OPEN), np.tile(np.arange(*sizes), (ranks, 1))
    for rank, chunk, owner, source in POSTCONDITIONS[collective](range(ranks), root):
        owners[rank, slice(*cut[chunk])] = ALL if owner is None else owner
        origins[rank, slice(*cut[chunk])] = np.arange(*cut[source])
    return owners, origins


def _proof(collective: str, op: str | None, root: int) -> str:
    where = {"reduce": f"rank {root} holds", "reduce_scatter": "every rank's own chunk holds"}
    holds = where.get(collective, "every rank holds")
    if op is None:
        return "every element is where it belongs."
    if op in ("max", "min"):
        once = f"A {NOUNS[op]} does not show whether a contribution was counted twice."
        return f"{holds} the {NOUNS[op]} of every rank's contribution.\n{once}"
    return f"{holds} every rank's contribution exactly once."


class _Run:
    """What every rank put in and ended with, and which elements are wrong, by rank and element.

    A run on random numbers, which are exact in any order of adding, has a bound of its own.
    """

    def __init__(
        self, record: Record, op: str | None, owners: Array, origins: Array, own: float | None
    ) -> None:
        self.random, self.bound = own is not None, own or 0.0
        self.given = np.stack([buffer.reshape(-1) for buffer in record.inputs])
        self.held = np.stack([buffer.reshape(-1) for buffer in record.outputs])
        self.wanted, bound = self.given[np.maximum(owners, 0), origins], np.array(0.0)
        with np.errstate(all="ignore"):
            if op is not None:
                total, bound = _reduced(op, self.given)
                self.wanted = np.where(owners == ALL, total, self.wanted)
            bound = bound if own is None else np.array(own)
            far = np.abs(self.held.astype(complex) - self.wanted.astype(complex))
            right = (self.held == self.wanted) | (far <= bound)
        right |= np.isnan(self.held) & np.isnan(self.wanted)
        self.wrong: Array = ~right & (owners != OPEN)


def _reduced(op: str, given: Array) -> tuple[Array, Array]:
    """Returns NumPy's reduction of all ranks' buffers, and how far from it each element may be.

    A floating-point sum depends on its order.
    """
    total, dtype, ranks = reduce(OPERATIONS[op], given), given.dtype, len(given)
    bound = np.zeros(total.shape)
    if dtype.kind in "fc" and op == "sum":
        sizes = np.abs(given).astype(float).sum(axis=0)
        bound = 4 * (ranks + 1) * float(np.finfo(dtype).eps) * sizes
    return total, bound


def _judge(
    record: Record, op: str | None, owners: Array, origins: Array, notes: list[str]
) -> tuple[list[Fault], str]:
    """Returns the faults of this run and of further ones, and what is proved if not everything."""
    if not owners.size:
        return [], "its buffers are empty."
    this = _Run(record, op, owners, origins, None)
    try:
        again = random_runs(record, op)
        others = [_Run(one, op, owners, origins, own) for one, own in again]
        counts = None if op is None else _counts(record, op)
    except LabError as fault:
        text = f"on other numbers of the same shape it does not come to its end: {fault}"
        return [Fault(None, None, 0, 0, (), text.rstrip("."))], ""
    wrong = np.any([run.wrong for run in others], axis=0)
    if counts is not None:  # on random numbers a maximum does not show which rank is missing
        wrong |= (counts == 0).any(axis=0) & (owners == ALL)
    if wrong.any() and not this.wrong.any():
        notes.append("The numbers of this run are right, but only for these inputs.")
    found = np.full((1, *wrong.shape), -1)
    if op is None:
        found = _sources(*others)
    elif counts is not None:
        read = np.all([holds(op, o.given, o.held, counts, o.bound) for o in others], axis=0)
        read |= ~np.any([run.wrong for run in others], axis=0)  # only the codes show it
        found = np.where(read, counts, -1)
    if not wrong.any():
        wrong, found = this.wrong, np.full_like(found, -1)
    if not wrong.any():
        return list(_apart(record, again[0], op, owners, origins)), ""
    return list(_explain(op, [this, *others], wrong, found, owners, origins)), ""


def _apart(
    record: Record, probe: tuple[Record, float], op: str | None, owners: Array, origins: Array
) -> Iterator[Fault]:
    """Yields a fault if a rank needs a variable that ranks share only in this process."""
    text = (
        "a variable that the ranks share here, and processes do not: keep what a rank knows "
        "inside the function, and send the others what they need"
    )
    try:
        again = run_again(record, [one.reshape(-1) for one in probe[0].inputs], apart=True)
    except LabError as fault:
        yield Fault(None, None, 0, 0, (), f"the program needs {text} ({fault})")
        return
    run = _Run(again, op, owners, origins, probe[1])
    for rank in np.flatnonzero(run.wrong.any(axis=1))[:1].tolist():
        yield Fault(rank, None, 0, owners.shape[1], (), f"rank {rank} needs {text}")


def _counts(record: Record, op: str) -> Array | None:
    """Returns how often each rank is in each element, [giver, rank, element], if it is known."""
    code, coded = coded_runs(record, op)
    if code is None:
        return None
    outputs = [np.concatenate([b.reshape(-1) for b in run.outputs]) for run in coded]
    return code.read(outputs).reshape(record.ranks, record.ranks, -1)


def _sources(one: _Run, two: _Run) -> Array:
    """Returns of which rank, and which of its elements, each element is a copy; -1 if of none.

    The array is [rank or shift, rank, element].
    """
    given, held = (one.given + 1j * two.given).reshape(-1), one.held + 1j * two.held
    order = np.argsort(given)
    first, after = (np.searchsorted(given[order], held, side) for side in ("left", "right"))
    source = np.where(after - first == 1, order[np.minimum(first, given.size - 1)], -1)
    size = held.shape[1]
    return np.stack([source // size, np.where(source < 0, -1, source % size - np.arange(size))])


def _explain(
    op: str | None, runs: list[_Run], wrong: Array, found: Array, owners: Array, origins: Array
) -> Iterator[Fault]:
    """Yields a fault for each run of neighbouring elements with the same mistake."""
    ranks, size = wrong.shape
    ends = [stop for _, stop in chunk_bounds(size, ranks)]
    for rank in np.flatnonzero(wrong.any(axis=1)).tolist():
        at = np.flatnonzero(wrong[rank])
        chunks = np.searchsorted(ends, at, side="right")
        key = np.vstack([found[:, rank, at], owners[rank, at], origins[rank, at] - at])
        groups = _groups(key, at)
        everywhere = len(groups) == 1 and at.size == size and key[0, 0] >= 0
        if not everywhere:
            groups = _groups(np.vstack([key, chunks]), at)
        for first, last in groups:
            start, stop = int(at[first]), int(at[last]) + 1
            place = rank, None if everywhere else int(chunks[first]), start, stop
            facts = key[:-2, first].tolist()
            if facts[0] < 0:
                yield _value_fault(op, runs, owners, *place)
            elif op is None:
                aim = int(owners[rank, start]), int(origins[rank, start])
                yield _fault(*place, (facts[0],), _misplaced(facts, rank, aim, start, stop))
            else:
                yield _fault(*place, *_miscounted(facts))


def _groups(key: Array, at: Array) -> list[tuple[int, int]]:
    """Returns the first and the last column of each run of equal columns of neighbours."""
    cuts = np.flatnonzero((key[:, 1:] != key[:, :-1]).any(axis=0) | (np.diff(at) != 1)) + 1
    return [(first, end - 1) for first, end in pairwise([0, *cuts.tolist(), at.size])]


def _value_fault(
    op: str | None, runs: list[_Run], owners: Array, rank: int, chunk: int | None, start: int,
    stop: int,
) -> Fault:  # fmt: skip
    """Returns a fault that shows only the values, of the first run in which they are wrong."""
    run = next(run for run in runs if run.wrong[rank, start:stop].any())
    first = start + int(np.flatnonzero(run.wrong[rank, start:stop])[0])
    held, right = (number_text(one[rank, first], 12) for one in (run.held, run.wanted))
    whose = f"the {NOUNS[op]}" if op else f"rank {owners[rank, first]}'s element there"
    text = f"element {first} is {held}, and {whose} is {right}"
    return _fault(rank, chunk, start, stop, (), text + ", in a run on other numbers" * run.random)


def _fault(
    rank: int, chunk: int | None, start: int, stop: int, blamed: tuple[int, ...], text: str
) -> Fault:
    where = "all chunks" if chunk is None else f"chunk {chunk}"
    text = f"rank {rank}, {where} ({_elements(start, stop)}): {text}"
    return Fault(rank, chunk, start, stop, blamed, text)


def _misplaced(found: list[int], rank: int, aim: tuple[int, int], start: int, stop: int) -> str:
    """Returns whose elements these are, and whose they must be."""
    owner, shift = found
    text = f"it holds rank {owner}'s {_elements(start + shift, stop + shift)}"
    if (owner, shift) == (rank, 0):
        text = f"it still holds what rank {rank} began with"
    return f"{text}, and must hold rank {aim[0]}'s {_elements(aim[1], aim[1] + stop - start)}"


def _miscounted(counts: list[int]) -> tuple[tuple[int, ...], str]:
    """Returns the ranks that are not counted once, and how often they are, in words."""
    blamed = tuple(other for other, count in enumerate(counts) if count != 1)
    if sum(counts) == 1 < len(blamed):
        only = counts.index(1)
        return blamed, f"it holds only rank {only}'s contribution, and no other rank's"
    parts = []
    for count in sorted({counts[other] for other in blamed}):
        ranks = [other for other in blamed if counts[other] == count]
        whose = f"the contributions of ranks {listed(ranks)} are"
        if len(ranks) == 1:
            whose = f"rank {ranks[0]}'s contribution is"
        often = f"counted {count} times, and must be once" if count else "missing"
        parts.append(f"{whose} {often}")
    return blamed, "; ".join(parts)


def _elements(start: int, stop: int) -> str:
    return f"element {start}" if stop == start + 1 else f"elements {start}–{stop - 1}"
