"""A program run again on inputs of ours: codes that say whose they are, and numbers for NumPy.

A sum over ranks that put in 1, 16, 256, … has a digit for each rank: how often it was counted.

>>> code = Code.of("sum", np.dtype("float64"), ranks=3)
>>> code.read([np.array([1 + 2 * 16 + 0 * 256.0])])[:, 0].tolist()
[1, 2, 0]
"""

from __future__ import annotations

import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import reduce
from io import StringIO
from typing import Any

import numpy as np

from labkit.collectives.programs.reduction import OPERATIONS
from labkit.collectives.records import Array, Record

__all__ = ["Code", "Piece", "RunBuffers", "holds", "number_text", "random_runs", "run_again"]

SEED = 20261121  # the numbers are the same every time
CALLS = 70_000  # how many calls the runs on random numbers may make
WIDE = 20  # bits of random numbers with which two runs leave nothing to chance


def run_again(record: Record, inputs: list[Array]) -> Record:
    """The same program on other flat inputs, without what it prints."""
    assert record.again is not None
    shaped = [flat.reshape(own.shape) for flat, own in zip(inputs, record.inputs, strict=True)]
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")  # about numbers that are ours
        return record.again(shaped)


def _precision(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Up to which power of two whole numbers are exact, and which power of two is the largest."""
    if dtype.kind == "b":
        return 1, 0
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize - (dtype.kind == "i")
        return min(bits, 50), bits - 1
    if dtype.kind == "V":
        import ml_dtypes  # bfloat16 and its kind

        facts: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    else:
        facts = np.finfo(dtype)
    return min(facts.nmant + 1, 50), min(facts.maxexp - 1, 1023)


def _logical(op: str, dtype: np.dtype[Any]) -> str:
    """Of True and False a sum is a maximum, and a product a minimum."""
    return {"sum": "max", "prod": "min"}.get(op, op) if dtype.kind == "b" else op


@dataclass(frozen=True)
class Code:
    """What each rank puts in, a few ranks in each run, so that results can be read."""

    op: str
    dtype: np.dtype[Any]
    ranks: int
    width: int  # bits of a digit
    per_run: int

    @classmethod
    def of(cls, op: str, dtype: np.dtype[Any], ranks: int) -> Code | None:
        """The code that needs the fewest runs; None where the dtype is too small for any."""
        op = _logical(op, dtype)
        if op in ("max", "min"):
            return cls(op, dtype, ranks, 1, 1)
        room, power = _precision(dtype)
        widths = [4, 3, 2]
        if op == "prod":
            room = (power + 1).bit_length() - 1
        elif op == "mean":  # a total may be divided already or not yet, and both can be read
            widths, room = [(4 * ranks - 1).bit_length()], room - 3 * (dtype.kind in "fcV")
        fitting = [cls(op, dtype, ranks, one, room // one) for one in widths if one <= room]
        return min(fitting, key=lambda code: code.runs, default=None)

    @property
    def runs(self) -> int:
        """How many runs it takes until every rank has been read."""
        return -(-self.ranks // self.per_run)

    def inputs(self, record: Record, run: int, where: Array | slice = slice(None)) -> list[Array]:
        """The flat buffers of one run; only the elements in `where` contribute."""
        given = []
        for rank, buffer in enumerate(record.inputs):
            flat = np.full(buffer.size, self.op in ("prod", "min"), self.dtype)
            if rank // self.per_run == run:
                digit = 1 << self.width * (rank % self.per_run)
                if self.op == "min":
                    digit = 0
                elif self.op == "mean":
                    digit *= self.ranks
                flat[where] = 2.0**digit if self.op == "prod" else digit
            given.append(flat)
        return given

    def read(self, results: list[Array]) -> Array:
        """How often each rank is in each element, from one array a run; -1: cannot be read."""
        counts = np.concatenate([self._digits(values) for values in results])[: self.ranks]
        counts[:, (counts < 0).any(axis=0)] = -1
        if self.op == "mean":  # not divided yet: every rank is in there so many times
            undivided = (counts % self.ranks == 0).all(axis=0)
            counts[:, undivided] //= self.ranks
        return counts

    def _digits(self, values: Array) -> Array:
        number = values.astype(complex)
        real = number.real
        if self.op == "prod":
            mantissa, exponent = np.frexp(real)
            real = np.where(mantissa == 0.5, exponent - 1.0, -1)
        elif self.op == "min":
            real = 1 - real
        whole = np.rint(real)
        with np.errstate(invalid="ignore"):
            valid = (number.imag == 0) & (np.abs(real - whole) < 0.1) & (whole >= 0)
        valid &= whole < 2.0 ** (self.width * self.per_run)
        places = self.width * np.arange(self.per_run)[:, None]
        digits = np.where(valid, whole, 0).astype(np.int64) >> places & (1 << self.width) - 1
        return np.where(valid, digits, -1)


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


class RunBuffers:
    """What every rank put in and what it ended with, flat, and what must come out."""

    def __init__(self, record: Record, random: bool = True) -> None:
        self.given = [buffer.reshape(-1) for buffer in record.inputs]
        self.left = [buffer.reshape(-1) for buffer in record.outputs]
        self.random = random
        self._reduced: dict[str, tuple[Array, Array]] = {}

    def wanted(self, piece: Piece, op: str | None) -> tuple[Array, Array]:
        """What must be in a piece, and how far from it each element may be."""
        part = slice(piece.start, piece.stop)
        if piece.owner is not None:
            moved = slice(piece.start + piece.shift, piece.stop + piece.shift)
            return self.given[piece.owner][moved], np.zeros(piece.stop - piece.start)
        assert op is not None
        if op not in self._reduced:
            self._reduced[op] = reduced(op, self.given, self.random)
        total, bound = self._reduced[op]
        return total[part], bound[part]

    def wrong(self, piece: Piece, op: str | None) -> Array:
        """Which elements of a piece hold something else than they must."""
        wanted, bound = self.wanted(piece, op)
        held = self.left[piece.rank][piece.start : piece.stop]
        with np.errstate(all="ignore"):
            far = np.abs(held.astype(complex) - wanted.astype(complex))
            same = (held == wanted) | ((held != held) & (wanted != wanted))
        return np.asarray(~(same | np.isinf(bound) | ((bound > 0) & (far <= bound))))


def random_runs(record: Record, op: str | None, most: int = 1000) -> list[RunBuffers]:
    """The program on random whole numbers: as many runs as tell right from wrong, or can be had.

    In each element one rank, another in each run, stands out: else a maximum would not show it.
    """
    dtype, ranks = record.inputs[0].dtype, record.ranks
    op, size = _logical(op or "copy", dtype), max(buffer.size for buffer in record.inputs)
    exact = 1 << _precision(dtype)[0]
    spread = max(1, exact // 4 // {"sum": ranks, "mean": ranks * ranks}.get(op, 1))
    needed = {"max": ranks, "min": ranks, "prod": 8}.get(op, 2)
    if spread < 1 << WIDE:
        needed = ranks + 8
    random = np.random.default_rng(SEED)
    probes = []
    for number in range(min(needed, most, max(2, CALLS // (len(record.calls) + ranks)))):
        leader = (np.arange(size) + number) % ranks
        if number >= ranks:  # True and False differ in nothing else
            leader = random.integers(0, ranks, size)
        given = []
        for rank, buffer in enumerate(record.inputs):
            drawn = random.integers(0, spread, size) + spread * (leader == rank)
            if op == "min":
                drawn = 2 * spread - 1 - drawn
            elif op == "prod":  # with these a product is exact in any order
                large = 3 if dtype.kind in "iu" else 2
                drawn = random.choice([1, -1, large, -large], size)
            elif dtype.kind not in "bu":  # a maximum of negative numbers: no 0 may get in
                drawn = drawn - spread * (2 if op == "max" else 1)
            if op == "mean":
                drawn = drawn * ranks
            if dtype.kind == "c" and op != "prod":
                drawn = drawn * (1 - 2j)
            given.append(drawn[: buffer.size].astype(dtype))
        probes.append(RunBuffers(run_again(record, given)))
    return probes


def reduced(op: str, inputs: list[Array], random: bool) -> tuple[Array, Array]:
    """NumPy's reduction of all ranks' buffers, and how far from it each element may be.

    A floating-point sum depends on its order. Where it may overflow, or NaN takes part, any value
    is right. Our random numbers are reduced exactly in any order, but for the division of a mean.
    """
    dtype, ranks = inputs[0].dtype, len(inputs)
    if dtype.kind not in "fcV":
        total = reduce(OPERATIONS[op], inputs)
        bound = np.full(total.shape, 0.999 if op == "mean" else 0.0)  # rounded down or up
    else:
        wide = [part.astype(complex if dtype.kind == "c" else float) for part in inputs]
        bits, power = _precision(dtype)
        with np.errstate(all="ignore"):
            total = reduce(OPERATIONS[op], wide)
            sizes = reduce(np.add, [np.abs(part) for part in wide])
            scale = np.abs(total) if op == "prod" else sizes
            bound = 4 * (ranks + 1) * 2.0**-bits * scale * (op not in ("max", "min"))
            bound = np.full_like(bound, 0.25 if op in ("sum", "mean") else 0.0) if random else bound
            bound[~(scale < 2.0**power) | ~np.isfinite(sizes)] = np.inf
    return (total / ranks, bound) if op == "mean" else (total, bound)


def holds(op: str, run: RunBuffers, rank: int, at: Array, counts: Array, origins: Array) -> Array:
    """Which elements of a rank have every other rank's element `origins[other]` so many times.

    `counts` and `origins` have a row for each rank and a column for each element in `at`.
    """
    known = (counts >= 0).all(axis=0) & (origins >= 0).all(axis=0)
    values, begun = np.zeros(at.size, run.given[0].dtype), np.zeros(at.size, bool)
    for other, buffer in enumerate(run.given):
        mine = buffer[origins[other]]
        for often in range(1, counts[other].max(initial=0) + 1):
            here = counts[other] >= often
            values[here] = np.where(begun, OPERATIONS[op](values, mine), mine)[here]
            begun |= here
    total = values.astype(complex) / (len(run.given) if op == "mean" else 1)
    return np.asarray(known & (np.abs(run.left[rank][at] - total) <= 0.25))


def number_text(value: Any, digits: int = 6) -> str:
    """A number of any dtype in a sentence or a cell."""
    if isinstance(value, (np.bool_, np.integer)):
        return str(value.item())
    value = complex(value) if isinstance(value, np.complexfloating) else float(value)
    return f"{value:.{digits}g}"
