"""Does a run do what it is called? Each output must hold each contribution once, and it is proved.

The numbers of the run are compared with NumPy's; then the program is run again, on random numbers,
because right numbers may be luck, and on codes that say whose contribution is where.

>>> print(check(record, "all_reduce"))                              # doctest: +SKIP
my_ring is no all_reduce (sum) on 4 ranks:
rank 2, chunk 1 (element 1): rank 0's contribution is counted 2 times, and must be once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from labkit.arguments import one_of, whole
from labkit.collectives.contributions import (
    Code,
    coded_runs,
    holds,
    number_text,
    precision,
    random_runs,
)
from labkit.collectives.programs.buffers import OPERATIONS
from labkit.collectives.records import Array, Record, chunk_bounds, counted, listed
from labkit.kinds import LabError
from labkit.plain import stored

Wanted: TypeAlias = list[tuple[int, int, int | None, int]]
SHOWN = 5
NOUNS = {"sum": "sum", "mean": "mean", "max": "maximum", "min": "minimum"}
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


@stored
@dataclass(frozen=True, repr=False)
class Verdict:
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


def check(
    record: Record, collective: str, op: str | None = None, root: int | None = None
) -> Verdict:
    """Whether each rank ends with what the collective must leave there: each contribution, once.

    Without `op` and `root`, those that the run was given are taken, else a sum and rank 0. What a
    collective leaves open, such as the other ranks' buffers after a reduce, is not looked at.
    """
    one_of("collective", collective, (*POSTCONDITIONS, "barrier"))
    name = one_of("op", op or record.op or "sum", OPERATIONS) if collective in REDUCTIONS else None
    center = int(record.options.get("root", "0")) if root is None else root
    whole("root", center, at_most=record.ranks - 1)
    notes = [record.note] if record.note else []
    if collective == "barrier":
        faults, proof = list(_left_early(record)), "no rank leaves before every rank has arrived."
    else:
        pieces = _postcondition(collective, record, center)
        faults, proof = _judge(record, name, pieces, notes)
        proof = proof or _proof(collective, name, center)
    return Verdict(
        record.program, collective, name, record.ranks, proof, tuple(faults), tuple(notes)
    )


def _postcondition(collective: str, record: Record, root: int) -> list[Piece]:
    """What must be where in the end."""
    sizes, ranks = sorted({buffer.size for buffer in record.inputs}), record.ranks
    if len(sizes) > 1:
        raise LabError(
            f"The ranks' buffers have {listed(sizes)} elements. "
            f"Run {record.program} on buffers of one size to check it as {collective}."
        )
    if collective == "all_to_all" and sizes[0] % ranks:
        raise LabError(
            f"all_to_all swaps chunks of one size, but {sizes[0]} elements cannot be cut into "
            f"{ranks} equal chunks. Take a multiple of {ranks} elements."
        )
    cut = chunk_bounds(sizes[0], ranks)
    return [
        Piece(rank, chunk, *cut[chunk], owner, cut[origin][0] - cut[chunk][0])
        for rank, chunk, owner, origin in POSTCONDITIONS[collective](range(ranks), root)
        if cut[chunk][0] < cut[chunk][1]
    ]


def _proof(collective: str, op: str | None, root: int) -> str:
    where = {"reduce": f"rank {root} holds", "reduce_scatter": "every rank's own chunk holds"}
    holds = where.get(collective, "every rank holds")
    if op is None:
        return "every element is where it belongs."
    if op in ("max", "min"):
        once = f"A {NOUNS[op]} does not show whether a contribution was counted twice."
        return f"{holds} the {NOUNS[op]} of every rank's contribution.\n{once}"
    return f"{holds} every rank's contribution exactly once."


@dataclass(frozen=True)
class Piece:
    """Elements of one rank's buffer, in one chunk, and what must be in them at the end.

    The `owner`'s elements, `shift` further on; without an owner, the reduction of all ranks'
    elements at the same place.
    """

    rank: int
    chunk: int
    start: int
    stop: int
    owner: int | None
    shift: int


class _Run:
    """What every rank put in and what it ended with, flat, and what must come out."""

    def __init__(self, record: Record, op: str | None, random: bool) -> None:
        self.record, self.random = record, random
        self.given = [buffer.reshape(-1) for buffer in record.inputs]
        self.left = [buffer.reshape(-1) for buffer in record.outputs]
        if op is not None:
            self.total, self.bound = _reduced(op, self.given, random)

    def wanted(self, piece: Piece) -> tuple[Array, Array]:
        """What must be in a piece, and how far from it each element may be."""
        if piece.owner is not None:
            moved = slice(piece.start + piece.shift, piece.stop + piece.shift)
            return self.given[piece.owner][moved], np.zeros(piece.stop - piece.start)
        part = slice(piece.start, piece.stop)
        return self.total[part], self.bound[part]

    def wrong(self, piece: Piece) -> Array:
        """Which elements of a piece hold something else than they must."""
        wanted, bound = self.wanted(piece)
        held = self.left[piece.rank][piece.start : piece.stop]
        with np.errstate(all="ignore"):
            far = np.abs(held.astype(complex) - wanted.astype(complex))
            same = (held == wanted) | ((held != held) & (wanted != wanted))
        return np.asarray(~(same | np.isinf(bound) | ((bound > 0) & (far <= bound))))


def _reduced(op: str, inputs: list[Array], random: bool) -> tuple[Array, Array]:
    """NumPy's reduction of all ranks' buffers, and how far from it each element may be.

    A floating-point sum depends on its order. Where it may overflow, or NaN takes part, any value
    is right. Our random numbers are reduced exactly in any order, but for the division of a mean.
    """
    dtype, ranks = inputs[0].dtype, len(inputs)
    if dtype.kind not in "fc":
        total = reduce(OPERATIONS[op], inputs)
        bound = np.full(total.shape, 0.999 if op == "mean" else 0.0)  # rounded down or up
    else:
        wide = [part.astype(complex if dtype.kind == "c" else float) for part in inputs]
        bits, power = precision(dtype)
        with np.errstate(all="ignore"):
            total = reduce(OPERATIONS[op], wide)
            sizes = reduce(np.add, [np.abs(part) for part in wide])
            bound = 4 * (ranks + 1) * 2.0**-bits * sizes * (op not in ("max", "min"))
            bound = np.full_like(bound, 0.25 if op in ("sum", "mean") else 0.0) if random else bound
            bound[~(sizes < 2.0**power) | ~np.isfinite(sizes)] = np.inf
    return (total / ranks, bound) if op == "mean" else (total, bound)


def _judge(
    record: Record, op: str | None, pieces: list[Piece], notes: list[str]
) -> tuple[list[Fault], str]:
    """What is wrong with the numbers of this run and of others; what is proved, if not all."""
    if not pieces:
        return [], "its buffers are empty."
    this, proof, faults = _Run(record, op, random=False), "", []
    bad, wrong = [piece for piece in pieces if this.wrong(piece).any()], []
    if record.again is None or record.inputs[0].dtype.kind not in "fiu":
        proof = "the numbers of this run are right; it was not run again on others."
    else:
        try:
            probes = [_Run(run, op, random=True) for run in random_runs(record, op)]
            code, coded = coded_runs(record, op or "sum")
        except LabError as fault:
            text = f"on other numbers of the same shape it does not come to its end: {fault}"
            return [Fault(None, None, 0, 0, (), text.rstrip("."))], ""
        counts = {rank: _counts(code, coded, rank) for rank in {piece.rank for piece in pieces}}
        masks = [_mask(piece, op, probes, counts[piece.rank]) for piece in pieces]
        wrong = [piece for piece, mask in zip(pieces, masks, strict=True) if mask.any()]
        if wrong:
            faults = list(_explain(record, op, [this, *probes], pieces, masks))
        if wrong and not bad:
            notes.append("The numbers of this run are right, but only for these inputs.")
        elif code is None and op in ("max", "min"):
            notes.append("Too many ranks to look for each of them in each element.")
    faults += [_value_fault(op, piece, [this]) for piece in bad if piece not in wrong]
    return sorted(faults, key=lambda one: (-1 if one.rank is None else one.rank, one.start)), proof


def _mask(piece: Piece, op: str | None, probes: Sequence[_Run], counts: Array | None) -> Array:
    """Which elements of a piece are wrong: their numbers, or whose contributions are in them."""
    wrong = np.any([probe.wrong(piece) for probe in probes], axis=0)
    if op is not None and counts is not None:
        part = counts[:, piece.start : piece.stop]
        wrong |= (part == 0).any(axis=0) | ((part > 1).any(axis=0) & (op not in ("max", "min")))
    return np.asarray(wrong)


def _counts(code: Code | None, coded: list[list[Record]], rank: int) -> Array | None:
    """How often each rank is in each element of a rank's buffer, a row for each rank."""
    return code.read([run.outputs[rank].reshape(-1) for run in coded[0]]) if code else None


VALUE, READ, UNDIVIDED, CONSTANT = range(4)


def _explain(
    record: Record, op: str | None, runs: list[_Run], pieces: list[Piece], masks: list[Array]
) -> Iterator[Fault]:
    """The faults of all ranks: one for neighbouring elements with the same thing wrong."""
    whole, size, probes = op or "sum", record.inputs[0].size, runs[1:]
    # Runs in which only the elements whose number has bit 0, bit 1, … set contribute.
    bits = [np.arange(size) >> bit & 1 == 1 for bit in range((size - 1).bit_length())]
    code, coded = coded_runs(record, whole, bits)
    for rank in sorted({piece.rank for piece in pieces}):
        chosen = [pair for pair in zip(pieces, masks, strict=True) if pair[0].rank == rank]
        mine = [piece for piece, _ in chosen]
        at = np.concatenate([piece.start + np.flatnonzero(mask) for piece, mask in chosen])
        if not at.size:
            continue
        number = np.repeat(np.arange(len(mine)), [mask.sum() for _, mask in chosen])
        counts = origins = np.full((record.ranks, at.size), -1)
        if code is not None:
            counts, origins = _read(code, coded, rank, at)
        case, shifts = np.full(at.size, VALUE), origins - at
        held = [probe.left[rank][at] for probe in probes]
        case[np.all([one == held[0] for one in held], axis=0)] = CONSTANT
        for kind, reduction in ((UNDIVIDED, "sum"), (READ, whole)):
            fits = [holds(reduction, probe.record, rank, at, counts, origins) for probe in probes]
            case[np.all(fits, axis=0) & (kind == READ or op == "mean")] = kind
        goals = np.array([(-1 if one.owner is None else one.owner, one.shift) for one in mine])
        key = np.vstack([case, np.where(case == READ, [*counts, *shifts], 0), goals[number].T])
        groups = _groups(key, at)
        everywhere = len(groups) == 1 and at.size == size and case[0] != VALUE
        for first, last in groups if everywhere else _groups(np.vstack([key, number]), at):
            piece, start, stop = mine[number[first]], int(at[first]), int(at[last]) + 1
            chunk = None if everywhere else piece.chunk
            if case[first] == VALUE:
                yield _value_fault(op, piece, runs, slice(start - piece.start, stop - piece.start))
            elif case[first] != READ:
                text = f"it holds a sum that no rank has divided by {record.ranks}"
                if case[first] == CONSTANT:
                    text = "it holds the same whatever the ranks put in"
                yield _fault(rank, chunk, start, stop, (), text)
            else:
                found = [
                    (int(c[first]), int(s[first])) for c, s in zip(counts, shifts, strict=True)
                ]
                yield _fault(rank, chunk, start, stop, *_misread(found, op, piece, start, stop))


def _read(code: Code, coded: list[list[Record]], rank: int, at: Array) -> tuple[Array, Array]:
    """How often each rank is in each element, and from which elements; -1: not known."""
    counts, *each = [
        code.read([run.outputs[rank].reshape(-1)[at] for run in some]) for some in coded
    ]
    origins = np.zeros_like(counts)
    for bit, there in enumerate(each):
        origins += (there == counts) << bit
        origins[(there != counts) & (there != 0)] = -(1 << len(each))
    return counts, np.where(counts > 0, np.maximum(origins, -1), at)


def _value_fault(
    op: str | None, piece: Piece, runs: Sequence[_Run], part: slice = slice(None)
) -> Fault:
    """A fault of which only the values are known, in the first run in which they are wrong."""
    for run in runs:
        wrong = np.flatnonzero(run.wrong(piece)[part]) + (part.start or 0)
        if wrong.size:
            break
    first, last = piece.start + int(wrong[0]), piece.start + int(wrong[-1])
    held, right = run.left[piece.rank][first], run.wanted(piece)[0][wrong[0]]
    whose = f"the {NOUNS[op]}" if op else f"rank {piece.owner}'s element there"
    text = f"element {first} is {number_text(held, 12)}, and {whose} is {number_text(right, 12)}"
    text += ", in a run on other numbers" * run.random
    return _fault(piece.rank, piece.chunk, first, last + 1, (), text)


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


def _left_early(record: Record) -> Iterator[Fault]:
    """Ranks that can leave a barrier before they have heard of all others.

    A message tells its receiver what its sender knew when it was sent. It tells the sender
    nothing: MPI may put a small message away and let the sender go on.
    """
    knows = [{rank} for rank in range(record.ranks)]
    before: dict[int, set[int]] = {}  # by call: what its rank knew when it was made
    for call in record.calls:  # in the order in which they came back
        messages = [record.messages[number] for number in call.awaits]
        heard = [(one.sent_by, one.source) for one in messages if one.dest == call.rank]
        if call.barrier is not None:
            heard += [(one.number, one.rank) for one in record.calls if one.barrier == call.barrier]
        before[call.number] = knows[call.rank]
        # A call that is not back yet is its rank's next one: it was made with what that knows now.
        heard_of = [before.get(number, knows[rank]) for number, rank in heard]
        knows[call.rank] = knows[call.rank].union(*heard_of)
    for rank, others in enumerate(knows):
        missing = tuple(sorted(set(range(record.ranks)) - others))
        if missing:
            late = f"rank{'s' * (len(missing) > 1)} {listed(missing)}"
            text = f"rank {rank} can leave before {late} arrived: no message has told it"
            yield Fault(rank, None, 0, 0, missing, text)
