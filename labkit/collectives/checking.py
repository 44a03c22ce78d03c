"""Looking for what is wrong with a run: at its numbers, then at where they come from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from labkit.collectives.diagnosis import Finding, findings
from labkit.collectives.numbers import Numbers, number
from labkit.collectives.operations import OPERATIONS
from labkit.collectives.promises import Piece
from labkit.collectives.provenance import Array, alike, run_again
from labkit.collectives.sentences import NOUNS, contributors, place, problem
from labkit.collectives.trace import Trace
from labkit.collectives.trials import Trials
from labkit.kinds import LabError
from labkit.plain import stored

__all__ = ["Checking", "Fault"]

UNSTEADY = (
    "Run again on the same inputs, it does something else: it draws random numbers, remembers "
    "earlier runs, or reads memory that it has not written."
)
DIAGNOSED = 60  # pieces whose fault is looked for; the others are counted


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


class Checking:
    """One check: what it has found so far."""

    def __init__(
        self, trace: Trace, collective: str, op: str | None, pieces: tuple[Piece, ...]
    ) -> None:
        self.trace, self.collective, self.op, self.pieces = trace, collective, op, pieces
        self.inputs = [buffer.reshape(-1) for buffer in trace.inputs]
        self.outputs = [buffer.reshape(-1) for buffer in trace.outputs]
        self.numbers = Numbers(op or "copy", self.inputs)
        self.faults: list[Fault] = []
        self.more = 0
        self.notes = [trace.note] if trace.note else []
        self.proof = "every number is right."

    def look(self) -> None:
        """Look at the numbers, then at where they come from."""
        bad = self._numbers()
        if not self.pieces:
            self.proof = "its buffers are empty, so that nothing can be wrong."
        elif self.trace._again is None:
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
        trials = Trials(self.trace, self.op or "copy")
        if not trials.possible:
            self.notes.append(
                f"Only the numbers were compared: {self.trace.inputs[0].dtype} is too small for "
                "numbers that say whose they are."
            )
            return bad
        try:
            wrong = self._wrong(trials)
            if wrong or bad:
                self._steady()
            if wrong and not self._another_operation(trials) and not self._loses_digits():
                self._explain(trials, wrong)
        except LabError as fault:
            text = f"on other numbers of the same shape it does not come to its end: {fault}"
            self.faults.append(Fault(None, None, 0, 0, (), text.rstrip(".")))
            return bad
        if wrong and not bad and UNSTEADY not in self.notes:
            self.notes.append("The numbers of this run are right, but only for these inputs.")
        if not wrong and not bad:
            self._proved(trials)
        return {piece: mask for piece, mask in bad.items() if piece not in wrong}

    def _wrong(self, trials: Trials) -> dict[Piece, Array]:
        """The pieces that are wrong when the program runs on numbers of ours."""
        masks = (
            (piece, np.any([turn.wrong(piece) for turn in trials.rounds], axis=0))
            for piece in self.pieces
        )
        return {piece: mask for piece, mask in masks if mask.any()}

    def _steady(self) -> None:
        again = run_again(self.trace, self.trace.inputs)
        if not alike(self.trace, again) or again.left != self.trace.left:
            self.notes.append(UNSTEADY)

    def _another_operation(self, trials: Trials) -> bool:
        """Whether every piece holds another reduction of all contributions."""
        if self.op is None or trials.op != self.op:
            return False
        for other in (name for name in OPERATIONS if name != self.op):
            numbers = [Numbers(other, turn.given) for turn in trials.rounds]
            if all(
                not n.open_anywhere and not n.off(turn.left[piece.rank], piece).any()
                for n, turn in zip(numbers, trials.rounds, strict=True)
                for piece in self.pieces
            ) and not self._wrong(Trials(self.trace, other)):
                text = f"it takes the {NOUNS[other]} of all ranks, and not the {NOUNS[self.op]}"
                self.faults.append(Fault(None, None, 0, self.inputs[0].size, (), text))
                return True
        return False

    def _loses_digits(self) -> bool:
        """Whether all is right as long as the numbers are small."""
        trials = Trials(self.trace, self.op or "copy", small=True)
        if trials.op not in ("sum", "mean", "copy") or trials.largest < 4 or self._wrong(trials):
            return False
        text = (
            "small numbers come out right, and large ones lose digits: look where the data goes "
            f"through a smaller dtype than {self.trace.inputs[0].dtype}"
        )
        self.faults.append(Fault(None, None, 0, self.inputs[0].size, (), text))
        return True

    def _explain(self, trials: Trials, wrong: dict[Piece, Array]) -> None:
        found: list[Finding] = []
        for piece, mask in list(wrong.items())[:DIAGNOSED]:
            found += findings(trials, piece, mask)
        self.more += max(0, len(wrong) - DIAGNOSED)
        for rank in range(self.trace.ranks):
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
        text = problem(finding, self.op, self.trace.ranks, self.inputs[0].size)
        where = place(rank, chunk, start, stop)
        return Fault(rank, chunk, start, stop, contributors(finding), f"{where}: {text}")

    def _value(self, piece: Piece, mask: Array) -> Fault:
        """A fault in words of the run's own numbers."""
        at = np.flatnonzero(mask)
        start, stop = piece.start + int(at[0]), piece.start + int(at[-1]) + 1
        right = self.numbers.wanted(piece)[at[0]]
        actual = self.outputs[piece.rank][start]
        whose = f"the {NOUNS[self.op]} is" if self.op else f"rank {piece.owner}'s element there is"
        text = f"it holds {number(actual)}, and {whose} {number(right)}"
        if at.size > 1:
            text = f"element {start} is {number(actual)}, and {whose} {number(right)}"
        where = place(piece.rank, piece.chunk, start, stop)
        return Fault(piece.rank, piece.chunk, start, stop, (), f"{where}: {text}")

    def _proved(self, trials: Trials) -> None:
        holders = {
            "reduce": f"rank {self.pieces[0].rank} holds",
            "reduce_scatter": "every rank's own chunk holds",
        }
        where = holders.get(self.collective, "every rank holds")
        if self.op is None:
            self.proof = "every element is where it belongs."
        elif trials.op in ("max", "min"):
            self.proof = f"{where} the {NOUNS[self.op]} of every rank's contribution."
            self.notes.append(
                f"A {NOUNS[self.op]} does not show whether a contribution was counted twice."
            )
        else:
            self.proof = f"{where} every rank's contribution exactly once."
        if not trials.exhaustive:
            self.notes.append(
                f"There are too many ranks to look for each in every element; {len(trials.rounds)} "
                f"of {trials.ranks} turns were made."
            )
        if not all(turn.alike for turn in trials.rounds):
            self.notes.append("What it sends depends on the data, or on chance.")
