"""The numbers that a result is compared with: numpy's own, and those of runs on probe inputs.

A sum of floating-point numbers depends a little on its order, and every order is right. In a probe
run each rank puts another number into each element, and only the right ones add up to the total; in
a maximum only the largest number shows, so that each rank has to be the largest once in every
element.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from labkit.collectives.contributions import alike, precision, run_again
from labkit.collectives.programs.reduction import OPERATIONS
from labkit.collectives.records import Array, Record

__all__ = ["Expected", "Piece", "Probe", "Probes", "number_text", "plain"]

CALLS = 300_000  # how many calls all runs of one check may make
TURNS = 70_000  # and those that look for each rank in a maximum
SEED = 20261121  # the numbers are the same every time


@dataclass(frozen=True)
class Piece:
    """Elements of one rank's buffer, in one chunk, and what must be in them at the end.

    The `owner`'s elements from `begin` on; without an owner, the reduction of all ranks' elements
    at the same place.
    """

    rank: int
    chunk: int
    start: int
    stop: int
    owner: int | None
    begin: int


class Expected:
    """What numpy makes of the ranks' buffers, and how far from it a result may be."""

    def __init__(self, op: str, inputs: list[Array]) -> None:
        self.inputs = inputs
        self.op = op
        with np.errstate(all="ignore"):
            self.total = inputs[0] if op == "copy" else _total(op, inputs)
            self.bound, self.open = (None, None) if op == "copy" else _slack(op, inputs, self.total)

    @property
    def open_anywhere(self) -> bool:
        """Whether there are elements in which no number would be wrong."""
        return self.open is not None and bool(self.open.any())

    def wanted(self, piece: Piece) -> Array:
        """What must be in a piece: another rank's elements, or the reduction of all."""
        if piece.owner is None:
            return self.total[piece.start : piece.stop]
        return self.inputs[piece.owner][piece.begin : piece.begin + piece.stop - piece.start]

    def off(self, output: Array, piece: Piece) -> Array:
        """Which elements of a piece hold a number that they must not hold."""
        part = slice(piece.start, piece.stop)
        actual, expected = output[part], self.wanted(piece)
        with np.errstate(all="ignore"):
            same = (actual == expected) | ((actual != actual) & (expected != expected))
            if piece.owner is None and self.bound is not None and self.open is not None:
                same |= np.abs(_wide(actual) - _wide(expected)) <= self.bound[part]
                same |= self.open[part]
        return np.asarray(~same)


def _wide(numbers: Array) -> Array:
    """In more digits than the programs have, where there are any."""
    if numbers.dtype.kind == "V":  # bfloat16 and its kind
        numbers = numbers.astype(np.float64)
    return numbers.astype(np.clongdouble if numbers.dtype.kind == "c" else np.longdouble)


def _total(op: str, inputs: list[Array]) -> Array:
    parts = inputs
    if op not in ("max", "min") and inputs[0].dtype.kind in "fcV":
        parts = [_wide(part) for part in inputs]
    total = parts[0].copy()
    for part in parts[1:]:
        OPERATIONS[op](total, part, out=total)
    return np.asarray(total / len(parts)) if op == "mean" else total


def _slack(op: str, inputs: list[Array], total: Array) -> tuple[Array | None, Array | None]:
    """How far from the total every element may be, and where anything may come out."""
    kind = inputs[0].dtype.kind
    if op in ("max", "min"):
        # The maximum of NaN and a number is NaN for numpy, the number for other libraries.
        return np.zeros(total.shape), np.any([part != part for part in inputs], axis=0)
    if kind in "iu" and op == "mean":
        return np.full(total.shape, 0.999), np.zeros(total.shape, dtype=bool)  # rounded either way
    if kind not in "fcV":
        return None, None
    sizes = [np.abs(_wide(part)) for part in inputs]
    finite = np.all([np.isfinite(size) for size in sizes], axis=0)
    digits, power = precision(inputs[0].dtype)
    rough = 2.0**-digits * (len(inputs) + 1) * (4 if kind == "c" else 2)
    if op == "prod":
        bound = rough * np.abs(total)
        powers = np.sum(np.abs(np.log2(np.where(np.array(sizes) > 0, sizes, 1))), axis=0)
        disordered = powers >= power - 1  # a part may overflow, or vanish, in another order
    else:
        bound = rough * np.sum(sizes, axis=0) / (len(inputs) if op == "mean" else 1)
        disordered = np.sum(sizes, axis=0) >= 2.0**power
    return np.asarray(bound), np.asarray(disordered & finite)


def number_text(value: Any) -> str:
    """A number in a sentence."""
    kind = np.asarray(value).dtype.kind
    if kind in "biu":
        return str(value.item())
    if kind not in "fcV":
        return str(value)
    return f"{complex(value):.6g}" if kind == "c" else f"{float(value):.12g}"


def plain(numbers: Array) -> Array:
    """The numbers in a dtype in which differences can be taken."""
    return numbers if numbers.dtype.kind == "c" else numbers.astype(np.float64)


@dataclass(frozen=True, eq=False)
class Probe:
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
class Probes:
    """The runs of one check, made when they are needed and kept."""

    record: Record
    op: str  # "copy" for the collectives that reduce nothing
    small: bool = False  # numbers that fit into any dtype on the way
    calls: int = 0
    _alone: dict[int, Probe] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    def __post_init__(self) -> None:
        self.dtype = self.record.inputs[0].dtype
        self.ranks = self.record.ranks
        self.size = self.record.inputs[0].size
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
    def rounds(self) -> list[Probe]:
        """The runs that tell right from wrong."""
        return [self.run(self._numbers(turn)) for turn in range(self._turns)]

    @cached_property
    def untouched(self) -> Probe:
        """The run on inputs that contribute nothing."""
        return self.run([self.nothing() for _ in range(self.ranks)])

    def run(self, given: list[Array]) -> Probe:
        """Run the program on flat buffers of the right dtype."""
        shapes = [buffer.shape for buffer in self.record.inputs]
        inputs = [flat.reshape(shape) for flat, shape in zip(given, shapes, strict=True)]
        self.calls += len(self.record.calls) + self.ranks
        record = run_again(self.record, [buffer.copy() for buffer in inputs])
        left = [buffer.reshape(-1) for buffer in record.outputs]
        return Probe(given, left, self._reduced(given), self.loose, alike(self.record, record))

    def affordable(self, runs: int) -> bool:
        """Whether so many more runs stay within what a check may cost."""
        return self.calls + runs * (len(self.record.calls) + self.ranks) <= CALLS

    def nothing(self) -> Array:
        """Elements that change no result."""
        if self.op == "min":
            return np.full(self.size, self._top, self.dtype)
        return np.full(self.size, 1 if self.op == "prod" else 0, self.dtype)

    def alone(self, rank: int) -> Probe:
        """Only one rank contributes: other numbers in every element."""
        if rank not in self._alone:
            self._alone[rank] = self._run_alone(rank)
        return self._alone[rank]

    def _run_alone(self, rank: int) -> Probe:
        given = [self.nothing() for _ in range(self.ranks)]
        if self.op == "prod":
            numbers = 2 + np.arange(self.size) % 7
        elif self.op == "min":
            numbers = self._drawn(0, self._top)
        else:
            numbers = self._drawn(1, max(2, self.largest))
        given[rank] = self._cast(numbers * self.ranks if self.op == "mean" else numbers)
        return self.run(given)

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
        each = len(self.record.calls) + self.ranks
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
