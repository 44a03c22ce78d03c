"""Does a run do what it is called? Each output must hold each contribution once, and it is proved.

The numbers of the run are compared with numpy's; then the program is run again on numbers that say
whose they are, because right numbers may be luck.

>>> print(check(record, "all_reduce"))                              # doctest: +SKIP
my_ring is no all_reduce (sum) on 4 ranks:
rank 2, chunk 1 (element 1): rank 0's contribution is counted 2 times, and must be once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from labkit.arguments import whole
from labkit.collectives.contributions import alike, run_again
from labkit.collectives.diagnosis import (
    NOUNS,
    Finding,
    contributors,
    findings,
    place,
    problem,
)
from labkit.collectives.probes import Expected, Piece, Probes, number_text
from labkit.collectives.programs.reduction import OPERATIONS, operation_name
from labkit.collectives.records import Array, Call, Record, chunk_bounds, counted, listed
from labkit.kinds import LabError
from labkit.plain import stored

__all__ = ["Fault", "Verdict", "check"]

SHOWN = 5
UNSTEADY = (
    "Run again on the same inputs, it does something else: it draws random numbers, remembers "
    "earlier runs, or reads memory that it has not written."
)
DIAGNOSED = 60  # pieces whose fault is looked for; the others are counted


REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "gather", "reduce", "scatter")
COLLECTIVES = (
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "gather", "reduce",
    "reduce_scatter", "scatter",
)  # fmt: skip


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

    def __str__(self) -> str:
        return self.text


@stored
@dataclass(frozen=True)
class Verdict:
    """True if the run kept the collective's promise; as text, it says what is wrong and where."""

    program: str
    collective: str
    op: str | None
    ranks: int
    right: bool
    proof: str
    faults: tuple[Fault, ...] = ()
    more: int = 0  # faults beyond those, which were only counted
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.right

    def __str__(self) -> str:
        op = f" ({self.op})" if self.op else ""
        article = "an" if self.collective[0] in "aeiou" else "a"
        what = f"{self.collective}{op} on {counted(self.ranks, 'rank')}"
        if self.right:
            lines = [f"{self.program} is {article} {what}: {self.proof}"]
        else:
            lines = [f"{self.program} is no {what}:"]
            lines += [f"{fault.text}." for fault in self.faults[:SHOWN]]
            beyond = len(self.faults) - SHOWN + self.more if len(self.faults) > SHOWN else self.more
            lines += [f"… and {beyond} more like these."] if beyond > 0 else []
        return "\n".join([*lines, *self.notes])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self)}


def check(record: Record, collective: str, op: Any = None, root: int | None = None) -> Verdict:
    """Whether the run did what the collective promises: each contribution, once, where it belongs.

    Without `op` and `root`, those that the run was given are taken, else a sum and rank 0. What a
    collective leaves open, such as the other ranks' buffers after a reduce, is not looked at.
    """
    _check_name(collective)
    if op is not None and collective not in REDUCTIONS:
        raise LabError(f"{collective} only moves data, so leave op={op!r} out.")
    name = _operation(record, op) if collective in REDUCTIONS else None
    center = _root(record, collective, root)
    if collective == "barrier":
        return _barrier(record)
    sizes = [buffer.size for buffer in record.inputs]
    if len(set(sizes)) > 1:
        raise LabError(
            f"The ranks' buffers have {listed(sorted(set(sizes)))} elements. "
            f"Run {record.program} on buffers of one size to check it as {collective}."
        )
    pieces = _postcondition(collective, record.ranks, sizes[0], center)
    found = _Checking(record, collective, name, pieces)
    found.compare()
    return Verdict(
        program=record.program,
        collective=collective,
        op=name,
        ranks=record.ranks,
        right=not found.faults,
        proof="" if found.faults else found.proof,
        faults=tuple(found.faults),
        more=found.more,
        notes=tuple(found.notes),
    )


def _barrier(record: Record) -> Verdict:
    faults = []
    for rank, missing in _unheard(record):
        others = f"rank{'' if len(missing) == 1 else 's'} {listed(missing)}"
        text = f"rank {rank} can leave before {others} arrived: no message has told it"
        faults.append(Fault(rank, None, 0, 0, tuple(missing), text))
    proof = "" if faults else "no rank leaves before every rank has arrived."
    return Verdict(record.program, "barrier", None, record.ranks, not faults, proof, tuple(faults))


def _operation(record: Record, op: Any) -> str:
    """The reduction that is asked for, else that which the run was given, else a sum."""
    name = operation_name(op)
    if op is not None and name is None:
        raise LabError(f"op must be one of {', '.join(OPERATIONS)}, got {op!r}.")
    return name or record.op or "sum"


def _root(record: Record, collective: str, root: int | None) -> int:
    if collective not in ROOTED:
        if root is not None:
            raise LabError(f"{collective} has no root, so leave root={root!r} out.")
        return 0
    given = int(record.options.get("root", "0")) if root is None else root
    return whole("root", given, at_most=record.ranks - 1)


def _check_name(collective: str) -> None:
    if collective in COLLECTIVES:
        return
    close = get_close_matches(str(collective), COLLECTIVES, 1, 0.5)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    raise LabError(
        f"{collective!r} is no collective that labkit can check.{meant} "
        f"There are {', '.join(COLLECTIVES)}."
    )


def _postcondition(collective: str, ranks: int, size: int, root: int) -> tuple[Piece, ...]:
    """The pieces that a collective says something about; what it leaves open is in none."""
    cut = chunk_bounds(size, ranks)
    every = range(ranks)
    if collective == "all_to_all":
        if size % ranks:
            raise LabError(
                f"all_to_all swaps chunks of one size, but {size} elements cannot be cut into "
                f"{ranks} equal chunks. Take a multiple of {ranks} elements."
            )
        return tuple(
            Piece(r, j, *cut[j], owner=j, begin=cut[r][0])
            for r in every
            for j in every
            if cut[j][0] < cut[j][1]
        )
    every_rank = [(r, j) for r in every for j in every]
    holders: dict[str, list[tuple[int, int, int | None]]] = {
        "all_reduce": [(r, j, None) for r, j in every_rank],
        "reduce": [(root, j, None) for j in every],
        "reduce_scatter": [(r, r, None) for r in every],
        "broadcast": [(r, j, root) for r, j in every_rank],
        "scatter": [(r, r, root) for r in every],
        "gather": [(root, j, j) for j in every],
        "all_gather": [(r, j, j) for r, j in every_rank],
    }
    return tuple(
        Piece(rank, chunk, *cut[chunk], owner=owner, begin=cut[chunk][0])
        for rank, chunk, owner in holders[collective]
        if cut[chunk][0] < cut[chunk][1]
    )


class _Checking:
    """One check: what it has found so far."""

    def __init__(
        self, record: Record, collective: str, op: str | None, pieces: tuple[Piece, ...]
    ) -> None:
        self.record, self.collective, self.op, self.pieces = record, collective, op, pieces
        self.inputs = [buffer.reshape(-1) for buffer in record.inputs]
        self.outputs = [buffer.reshape(-1) for buffer in record.outputs]
        self.numbers = Expected(op or "copy", self.inputs)
        self.faults: list[Fault] = []
        self.more = 0
        self.notes = [record.note] if record.note else []
        self.proof = "every number is right."

    def compare(self) -> None:
        """The numbers, then where they come from."""
        bad = self._numbers()
        if not self.pieces:
            self.proof = "its buffers are empty, so that nothing can be wrong."
        elif self.record.again is None:
            self.notes.append(
                "Only the numbers were compared: a trace from a file cannot run its program again."
            )
        else:
            bad = self._provenance(bad)
        for piece, mask in bad.items():
            self.faults.append(self._value(piece, mask))
        self.faults.sort(key=lambda fault: (-1 if fault.rank is None else fault.rank, fault.start))

    def _numbers(self) -> dict[Piece, Array]:
        """The pieces with wrong numbers, and which elements are wrong."""
        masks = (
            (piece, self.numbers.off(self.outputs[piece.rank], piece)) for piece in self.pieces
        )
        return {piece: mask for piece, mask in masks if mask.any()}

    def _provenance(self, bad: dict[Piece, Array]) -> dict[Piece, Array]:
        """Find what is wrong by other runs, and give back what they have not explained."""
        probes = Probes(self.record, self.op or "copy")
        if not probes.possible:
            self.notes.append(
                f"Only the numbers were compared: {self.record.inputs[0].dtype} is too small for "
                "numbers that say whose they are."
            )
            return bad
        try:
            wrong = self._wrong(probes)
            if wrong or bad:
                self._steady()
            if wrong and not self._another_operation(probes) and not self._loses_digits():
                self._explain(probes, wrong)
        except LabError as fault:
            text = f"on other numbers of the same shape it does not come to its end: {fault}"
            self.faults.append(Fault(None, None, 0, 0, (), text.rstrip(".")))
            return bad
        if wrong and not bad and UNSTEADY not in self.notes:
            self.notes.append("The numbers of this run are right, but only for these inputs.")
        if not wrong and not bad:
            self._proved(probes)
        return {piece: mask for piece, mask in bad.items() if piece not in wrong}

    def _wrong(self, probes: Probes) -> dict[Piece, Array]:
        """The pieces that are wrong when the program runs on numbers of ours."""
        masks = (
            (piece, np.any([turn.wrong(piece) for turn in probes.rounds], axis=0))
            for piece in self.pieces
        )
        return {piece: mask for piece, mask in masks if mask.any()}

    def _steady(self) -> None:
        again = run_again(self.record, self.record.inputs)
        if not alike(self.record, again) or again.left != self.record.left:
            self.notes.append(UNSTEADY)

    def _another_operation(self, probes: Probes) -> bool:
        """Whether every piece holds another reduction of all contributions."""
        if self.op is None or probes.op != self.op:
            return False
        for other in (name for name in OPERATIONS if name != self.op):
            numbers = [Expected(other, turn.given) for turn in probes.rounds]
            if all(
                not n.open_anywhere and not n.off(turn.left[piece.rank], piece).any()
                for n, turn in zip(numbers, probes.rounds, strict=True)
                for piece in self.pieces
            ) and not self._wrong(Probes(self.record, other)):
                text = f"it takes the {NOUNS[other]} of all ranks, and not the {NOUNS[self.op]}"
                self.faults.append(Fault(None, None, 0, self.inputs[0].size, (), text))
                return True
        return False

    def _loses_digits(self) -> bool:
        """Whether all is right as long as the numbers are small."""
        probes = Probes(self.record, self.op or "copy", small=True)
        if probes.op not in ("sum", "mean", "copy") or probes.largest < 4 or self._wrong(probes):
            return False
        text = (
            "small numbers are right, and large ones lose digits: look where the data goes "
            f"through a smaller dtype than {self.record.inputs[0].dtype}"
        )
        self.faults.append(Fault(None, None, 0, self.inputs[0].size, (), text))
        return True

    def _explain(self, probes: Probes, wrong: dict[Piece, Array]) -> None:
        found: list[Finding] = []
        for piece, mask in list(wrong.items())[:DIAGNOSED]:
            found += findings(probes, piece, mask)
        self.more += max(0, len(wrong) - DIAGNOSED)
        for rank in range(self.record.ranks):
            mine = [finding for finding in found if finding.piece.rank == rank]
            if self._same_everywhere(mine):
                whole = replace(mine[0], stop=mine[-1].stop)
                self.faults.append(self._fault(whole, None))
            else:
                self.faults += [self._fault(finding, finding.piece.chunk) for finding in mine]

    def _same_everywhere(self, mine: list[Finding]) -> bool:
        """Whether one thing is wrong with all of a rank's buffer."""
        size = self.inputs[0].size
        alone = replace(mine[0], piece=mine[0].piece, start=0, stop=0) if mine else None
        return (
            len(mine) > 1
            and (mine[0].start, mine[-1].stop) == (0, size)
            and sum(finding.stop - finding.start for finding in mine) == size
            and all(replace(f, piece=mine[0].piece, start=0, stop=0) == alone for f in mine)
            and len({(f.piece.owner, f.piece.begin - f.piece.start) for f in mine}) == 1
        )

    def _fault(self, finding: Finding, chunk: int | None) -> Fault:
        rank, start, stop = finding.piece.rank, finding.start, finding.stop
        if finding.what == "unknown":
            mask = self.numbers.off(self.outputs[rank], finding.piece)
            places = np.arange(finding.piece.start, finding.piece.stop)
            if (mask := mask & (places >= start) & (places < stop)).any():
                return self._value(finding.piece, mask)
        text = problem(finding, self.op, self.record.ranks, self.inputs[0].size)
        where = place(rank, chunk, start, stop)
        return Fault(rank, chunk, start, stop, contributors(finding), f"{where}: {text}")

    def _value(self, piece: Piece, mask: Array) -> Fault:
        """A fault in words of the run's own numbers."""
        at = np.flatnonzero(mask)
        start, stop = piece.start + int(at[0]), piece.start + int(at[-1]) + 1
        right = self.numbers.wanted(piece)[at[0]]
        actual = self.outputs[piece.rank][start]
        whose = f"the {NOUNS[self.op]} is" if self.op else f"rank {piece.owner}'s element there is"
        text = f"it holds {number_text(actual)}, and {whose} {number_text(right)}"
        if at.size > 1:
            text = f"element {start} is {number_text(actual)}, and {whose} {number_text(right)}"
        where = place(piece.rank, piece.chunk, start, stop)
        return Fault(piece.rank, piece.chunk, start, stop, (), f"{where}: {text}")

    def _proved(self, probes: Probes) -> None:
        holders = {
            "reduce": f"rank {self.pieces[0].rank} holds",
            "reduce_scatter": "every rank's own chunk holds",
        }
        where = holders.get(self.collective, "every rank holds")
        if self.op is None:
            self.proof = "every element is where it belongs."
        elif probes.op in ("max", "min"):
            self.proof = f"{where} the {NOUNS[self.op]} of every rank's contribution."
            self.notes.append(
                f"A {NOUNS[self.op]} does not show whether a contribution was counted twice."
            )
        else:
            self.proof = f"{where} every rank's contribution exactly once."
        if not probes.exhaustive:
            self.notes.append(
                f"There are too many ranks to look for each in every element; {len(probes.rounds)} "
                f"of {probes.ranks} turns were made."
            )
        if not all(turn.alike for turn in probes.rounds):
            self.notes.append("What it sends depends on the data, or on chance.")


def _unheard(record: Record) -> list[tuple[int, list[int]]]:
    """Ranks that can leave a barrier early, each with the ranks that it has not heard of.

    A message tells its receiver what its sender knew when it was sent. It tells the sender
    nothing: MPI may put a small message away and let the sender go on.
    """
    knows = [1 << rank for rank in range(record.ranks)]  # a bit for each rank that has arrived
    earlier = _calls_before(record)
    members: dict[int, list[Call]] = defaultdict(list)
    for call in record.calls:
        if call.barrier is not None:
            members[call.barrier].append(call)
    after: dict[int, int] = {}  # by call: what its rank knew when it came back
    # Calls are in the order in which they came back: what was sent to them has been here before.
    for call in record.calls:
        heard = knows[call.rank]
        messages = [record.messages[number] for number in call.awaits]
        ends = [(m.sent_by, m.source) for m in messages if m.dest == call.rank]
        if call.barrier is not None:
            ends += [(member.number, member.rank) for member in members[call.barrier]]
        for number, rank in ends:
            heard |= after.get(earlier[number], 1 << rank)
        after[call.number] = knows[call.rank] = heard
    every = range(record.ranks)
    missing = [[other for other in every if not heard >> other & 1] for heard in knows]
    return [(rank, others) for rank, others in enumerate(missing) if others]


def _calls_before(record: Record) -> dict[int, int]:
    """For each call the call of the same rank before it, or -1."""
    latest = [-1] * record.ranks
    earlier = {}
    for call in record.calls:
        earlier[call.number], latest[call.rank] = latest[call.rank], call.number
    return earlier
