"""Does a run do what it is called? Each output must hold each contribution once, and it is proved.

The numbers of the run are compared with numpy's; then the program is run again on numbers that say
whose they are, because right numbers may be luck.

>>> print(collectives.run(my_ring, ranks=4).check("all_reduce"))     # doctest: +SKIP
my_ring is no all_reduce (sum) on 4 ranks:
rank 2, chunk 1 (element 1): rank 0's contribution is counted 2 times, and must be once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labkit.collectives.arrivals import unheard
from labkit.collectives.checking import Checking, Fault
from labkit.collectives.promises import REDUCTIONS, ROOTED, known, promises
from labkit.collectives.provenance import operation
from labkit.collectives.sentences import listed, plural
from labkit.collectives.trace import Trace
from labkit.kinds import LabError
from labkit.plain import stored

__all__ = ["Fault", "Verdict", "check"]

SHOWN = 5


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
    more: int = 0  # faults beyond those, which nobody has looked at one by one
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.right

    def __str__(self) -> str:
        op = f" ({self.op})" if self.op else ""
        article = "an" if self.collective[0] in "aeiou" else "a"
        what = f"{self.collective}{op} on {plural(self.ranks, 'rank')}"
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


def check(trace: Trace, collective: str, op: Any = None, root: int | None = None) -> Verdict:
    """Whether the run did what the collective promises: each contribution, once, where it belongs.

    Without `op` and `root`, those that the run was given are taken, else a sum and rank 0. What a
    collective leaves open, such as the other ranks' buffers after a reduce, is not looked at.
    """
    known(collective)
    if op is not None and collective not in REDUCTIONS:
        raise LabError(f"{collective} only moves data, so leave op={op!r} out.")
    name = (operation(trace, op) or "sum") if collective in REDUCTIONS else None
    center = _root(trace, collective, root)
    if collective == "barrier":
        return _barrier(trace)
    sizes = [buffer.size for buffer in trace.inputs]
    if len(set(sizes)) > 1:
        raise LabError(
            f"The ranks' buffers have {listed(sorted(set(sizes)))} elements. "
            f"Run {trace.program} on buffers of one size to check it as {collective}."
        )
    pieces = promises(collective, trace.ranks, sizes[0], center)
    found = Checking(trace, collective, name, pieces)
    found.look()
    return Verdict(
        program=trace.program,
        collective=collective,
        op=name,
        ranks=trace.ranks,
        right=not found.faults,
        proof="" if found.faults else found.proof,
        faults=tuple(found.faults),
        more=found.more,
        notes=tuple(found.notes),
    )


def _barrier(trace: Trace) -> Verdict:
    faults = tuple(
        Fault(
            rank,
            None,
            0,
            0,
            tuple(missing),
            f"rank {rank} can leave before {'rank' if len(missing) == 1 else 'ranks'} "
            f"{listed(missing)} arrived: no message has told it",
        )
        for rank, missing in unheard(trace)
    )
    proof = "no rank leaves before every rank has arrived."
    return Verdict(
        trace.program, "barrier", None, trace.ranks, not faults, "" if faults else proof, faults
    )


def _root(trace: Trace, collective: str, root: int | None) -> int:
    if collective not in ROOTED:
        if root is not None:
            raise LabError(f"{collective} has no root, so leave root={root!r} out.")
        return 0
    given = trace.options.get("root", "0") if root is None else root
    try:
        chosen = int(given)
    except (TypeError, ValueError):
        chosen = -1
    if not 0 <= chosen < trace.ranks:
        raise LabError(
            f"root={given} is none of the {plural(trace.ranks, 'rank')}: "
            f"give one from 0 to {trace.ranks - 1}."
        )
    return chosen
