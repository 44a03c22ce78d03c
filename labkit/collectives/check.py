"""Does a run do what it is called? Each output must hold each contribution once, and it is proved.

The numbers of the run are compared with NumPy's; then the program is run again on random numbers,
because right numbers may be luck.

>>> print(check(record, "all_reduce"))                              # doctest: +SKIP
my_ring is no all_reduce (sum) on 4 ranks:
rank 2, chunk 1 (element 1): rank 0's contribution is counted 2 times, and must be once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from labkit.arguments import whole
from labkit.collectives.diagnosis import NOUNS, Fault, explain, value_fault
from labkit.collectives.probes import Code, Piece, RunBuffers, random_runs, run_again
from labkit.collectives.programs.reduction import OPERATIONS, operation_name
from labkit.collectives.records import Record, chunk_bounds, counted, listed
from labkit.kinds import LabError
from labkit.plain import stored

__all__ = ["Fault", "Verdict", "check"]

Wanted: TypeAlias = list[tuple[int, int, int | None, int]]
SHOWN = 5
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


def check(record: Record, collective: str, op: Any = None, root: int | None = None) -> Verdict:
    """Whether each rank ends with what the collective must leave there: each contribution, once.

    Without `op` and `root`, those that the run was given are taken, else a sum and rank 0. What a
    collective leaves open, such as the other ranks' buffers after a reduce, is not looked at.
    """
    if collective not in (names := (*POSTCONDITIONS, "barrier")):
        raise LabError(f"collective must be one of {', '.join(names)}, got {collective!r}.")
    if op is not None and operation_name(op) is None:
        raise LabError(f"op must be one of {', '.join(OPERATIONS)}, got {op!r}.")
    name = (operation_name(op) or record.op or "sum") if collective in REDUCTIONS else None
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


def _judge(
    record: Record, op: str | None, pieces: list[Piece], notes: list[str]
) -> tuple[list[Fault], str]:
    """What is wrong with the numbers of this run and of others; what is proved, if not all."""
    if not pieces:
        return [], "its buffers are empty."
    this, proof, faults = RunBuffers(record, random=False), "", []
    bad, wrong = _wrong([this], op, pieces), []
    if record.again is None or Code.of(op or "sum", this.given[0].dtype, record.ranks) is None:
        proof = "the numbers of this run are right; the program could not run again on others."
    else:
        try:
            probes = random_runs(record, op)
            wrong = _wrong(probes, op, pieces)
            faults = list(explain(record, op, probes, wrong)) if wrong else []
            if wrong or bad:
                notes += _luck(record, bool(bad))
            elif op in ("max", "min") and len(probes) < record.ranks:
                notes.append(f"{len(probes)} runs do not look for each rank in each element.")
        except LabError as fault:
            text = f"on other numbers of the same shape it does not come to its end: {fault}"
            return [Fault(None, None, 0, 0, (), text.rstrip("."))], ""
    for piece in set(bad) - set(wrong):
        faults.append(value_fault(op, piece, [this], np.arange(piece.start, piece.stop)))
    return sorted(faults, key=lambda one: (-1 if one.rank is None else one.rank, one.start)), proof


def _wrong(probes: Sequence[RunBuffers], op: str | None, pieces: list[Piece]) -> list[Piece]:
    return [piece for piece in pieces if any(probe.wrong(piece, op).any() for probe in probes)]


def _luck(record: Record, bad: bool) -> Iterator[str]:
    """Why this run may differ from those on other numbers."""
    again = run_again(record, [buffer.reshape(-1) for buffer in record.inputs])
    if (again.left, again.messages) != (record.left, record.messages):
        yield (
            "Run again on the same inputs, it does something else: it draws random numbers, "
            "remembers earlier runs, or reads memory that it has not written."
        )
    elif not bad:
        yield "The numbers of this run are right, but only for these inputs."


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
