"""The program run again on numbers of ours, which no wrong program gets right by luck.

Each rank puts another number into each element, and only the right ones add up to the total. In a
maximum only the largest number shows, so that each rank has to be the largest once in every
element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from labkit.collectives.operations import OPERATIONS
from labkit.collectives.promises import Piece
from labkit.collectives.provenance import Array, Code, alike, exact_code, precision, run_again
from labkit.collectives.trace import Trace

__all__ = ["Round", "Trials", "plain"]

CALLS = 300_000  # how many calls all runs of one check may make
TURNS = 70_000  # and those that look for each rank in a maximum
SEED = 20261121  # the numbers are the same every time


def plain(numbers: Array) -> Array:
    """The numbers in a dtype in which differences can be taken."""
    return numbers if numbers.dtype.kind == "c" else numbers.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Round:
    """What every rank put in, flat, what it ended with, and the reduction of what went in."""

    given: list[Array]
    left: list[Array]
    total: Array
    loose: bool
    alike: bool  # whether it exchanged the same messages as the recorded run

    def wrong(self, piece: Piece) -> Array:
        """Which elements of a piece are not as they must be."""
        actual, expected = self.left[piece.rank][piece.start : piece.stop], self.expected(piece)
        if self.loose:  # whole numbers, of which a division may have left a little
            actual, expected = plain(actual), plain(expected)
            with np.errstate(all="ignore"):
                return np.asarray(~(np.abs(actual - expected) <= 0.25))
        return np.asarray(actual != expected)

    def expected(self, piece: Piece) -> Array:
        """What must be in a piece."""
        start, stop = piece.start, piece.stop
        if piece.owner is None:
            return self.total[start:stop]
        return self.given[piece.owner][piece.begin : piece.begin + stop - start]


@dataclass
class Trials:
    """The runs of one check, made when they are needed and kept."""

    trace: Trace
    op: str  # "copy" for the collectives that reduce nothing
    small: bool = False  # numbers that fit into any dtype on the way
    calls: int = 0
    _alone: dict[int, Round] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    def __post_init__(self) -> None:
        self.dtype = self.trace.inputs[0].dtype
        self.ranks = self.trace.ranks
        self.size = self.trace.inputs[0].size
        if self.dtype.kind == "b":
            self.op = {"sum": "max", "prod": "min"}.get(self.op, self.op)

    @property
    def loose(self) -> bool:
        """Whether results may be a little off."""
        return self.op in ("sum", "mean") and self.dtype.kind in "fcV"

    @property
    def possible(self) -> bool:  # not with dates, and not with a mean of many ranks in int8
        """Whether the numbers fit into the program's dtype."""
        return self.dtype.kind in "biufcV" and (self.op != "mean" or self.largest >= 2)

    @property
    def exhaustive(self) -> bool:
        """Whether `rounds` looks at every rank in every element."""
        return self.op not in ("max", "min") or len(self.rounds) >= self.ranks

    @cached_property
    def rounds(self) -> list[Round]:
        """The runs that tell right from wrong."""
        return [self.run(self._numbers(turn)) for turn in range(self._turns)]

    @cached_property
    def untouched(self) -> Round:
        """The run on inputs that contribute nothing."""
        return self.run([self.nothing() for _ in range(self.ranks)])

    def run(self, given: list[Array]) -> Round:
        """Run the program on flat buffers of the right dtype."""
        shapes = [buffer.shape for buffer in self.trace.inputs]
        inputs = [flat.reshape(shape) for flat, shape in zip(given, shapes, strict=True)]
        self.calls += len(self.trace.calls) + self.ranks
        trace = run_again(self.trace, [buffer.copy() for buffer in inputs])
        left = [buffer.reshape(-1) for buffer in trace.outputs]
        return Round(given, left, self._reduced(given), self.loose, alike(self.trace, trace))

    def affordable(self, runs: int) -> bool:
        """Whether so many more runs stay within what a check may cost."""
        return self.calls + runs * (len(self.trace.calls) + self.ranks) <= CALLS

    def nothing(self) -> Array:
        """Elements that change no result."""
        if self.op == "min":
            return np.full(self.size, self._top, self.dtype)
        return np.full(self.size, 1 if self.op == "prod" else 0, self.dtype)

    def alone(self, rank: int) -> Round:
        """Only one rank contributes: other numbers in every element."""
        if rank not in self._alone:
            self._alone[rank] = self._run_alone(rank)
        return self._alone[rank]

    def _run_alone(self, rank: int) -> Round:
        given = [self.nothing() for _ in range(self.ranks)]
        if self.op == "prod":
            given[rank] = self._cast(2 + np.arange(self.size) % 7)
        elif self.op == "mean":
            given[rank] = self._cast(self._drawn(1, max(2, self.largest)) * self.ranks)
        else:
            given[rank] = self._cast(self._drawn(1, max(2, self.largest)))
        return self.run(given)

    @cached_property
    def code(self) -> Code | None:
        """The code for `coded`, where there is one and its runs are not too many."""
        code = exact_code("sum" if self.op == "copy" else self.op, self.dtype, self.ranks)
        if code is None or code.op in ("max", "min") or not self.affordable(code.runs):
            return None
        return code

    @cached_property
    def coded(self) -> list[Round]:
        """The runs from which the contributions can be read."""
        if self.code is None:
            return []
        given = (self.code.inputs(self.trace, run) for run in range(self.code.runs))
        return [self.run([buffer.reshape(-1) for buffer in buffers]) for buffers in given]

    @cached_property
    def largest(self) -> int:
        """Numbers below this can be added up over all ranks, and a few twice, exactly."""
        if self.dtype.kind == "b":
            return 2
        bits = min(precision(self.dtype)[0], 50)
        if self.small:
            return max(2, 128 // self.ranks if self.op != "mean" else 128 // self.ranks**2)
        if self.op == "copy":
            return 1 << max(1, bits - 1)
        over = (self.ranks - 1).bit_length()
        if self.op == "mean":
            return ((1 << bits) - 1) // (self.ranks * self.ranks) // (4 if bits > 20 else 1) + 1
        return 1 << max(1, bits - over - (3 if bits > 20 else 1))

    @cached_property
    def _top(self) -> int:
        """The largest number that is put in where a minimum or maximum is looked for."""
        return 1 if self.dtype.kind == "b" else 1 << min(precision(self.dtype)[0] - 1, 40)

    @property
    def _turns(self) -> int:
        turns = {"max": max(self.ranks, 8), "min": max(self.ranks, 8), "prod": 8}.get(self.op)
        if turns is None:  # so many that no two elements get the same numbers by chance
            bits = (self.largest - 1).bit_length()
            turns = min(16, -(-(8 if self.small else 24) // bits))
        each = len(self.trace.calls) + self.ranks
        return max(1, min(turns, TURNS // each))

    def _numbers(self, turn: int) -> list[Array]:
        if self.op in ("max", "min"):
            return self._one_above(turn)
        if self.op == "prod":
            return self._factors()
        lowest = 0 if self.largest <= 2 else 1
        drawn = [self._drawn(lowest, self.largest) for _ in range(self.ranks)]
        if self.dtype.kind == "c":
            drawn = [d + 1j * self._drawn(lowest, self.largest) for d in drawn]
        return [self._cast(d * self.ranks if self.op == "mean" else d) for d in drawn]

    def _one_above(self, turn: int) -> list[Array]:
        """In every element one rank, another in every turn, is above (below) all others."""
        half = max(1, self._top // 2)
        first = np.arange(self.size) + turn
        highest = first % self.ranks
        if turn >= self.ranks:
            highest = self._drawn(0, self.ranks)
        given = []
        for rank in range(self.ranks):
            value = self._drawn(0, half) + half * (highest == rank)
            given.append(self._cast(self._top - value if self.op == "min" else value))
        return given

    def _factors(self) -> list[Array]:
        """Powers of two with a sign, or odd whole numbers: products that stay exact."""
        if self.dtype.kind in "iu":
            return [self._cast(1 + 2 * self._drawn(0, 60)) for _ in range(self.ranks)]
        room = precision(self.dtype)[1]
        power = min(15, max(1, room // (2 * self.ranks)))
        some = min(1.0, room / (2 * self.ranks * power))  # how many may take part at once
        given = []
        for _ in range(self.ranks):
            exponent = self._drawn(-power, power + 1) * (self.random.random(self.size) < some)
            sign = 1 - 2 * self._drawn(0, 2)
            given.append(self._cast(sign * 2.0**exponent))
        return given

    def _drawn(self, low: int, high: int) -> Array:
        return self.random.integers(low, high, self.size)

    def _cast(self, numbers: Array) -> Array:
        return numbers.astype(self.dtype)

    def _reduced(self, given: list[Array]) -> Array:
        if self.op == "copy":
            return given[0]
        total = given[0].copy()
        for other in given[1:]:
            OPERATIONS[self.op](total, other, out=total)
        if self.op == "mean":
            kind = self.dtype.kind
            total = total // self.ranks if kind in "iu" else total / self.ranks
        return self._cast(total)
