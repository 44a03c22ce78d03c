"""Whose contributions are in a result: the program runs again on numbers that say whose they are.

A sum over ranks that put in 1, 8, 64, … has a digit for each rank, in base 8: how often that rank
was counted. 4 ranks that are counted once, twice, never and once leave 1 + 2·8 + 0·64 + 512 = 529.

>>> exact_code("sum", np.dtype("float64"), ranks=4).read(529.0)
(1, 2, 0, 1)
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labkit.collectives.operations import OPERATIONS
from labkit.collectives.trace import Trace
from labkit.kinds import LabError

__all__ = [
    "Array",
    "Code",
    "Counts",
    "alike",
    "chunks",
    "exact_code",
    "operation",
    "precision",
    "quick_code",
    "run_again",
]

Array = npt.NDArray[Any]
Counts = tuple[int, ...]

UFUNCS = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod"}
UFUNCS |= {"fmax": "max", "fmin": "min", "logical_or": "max", "logical_and": "min"}


@dataclass(frozen=True)
class Code:
    """What each rank puts in, a few ranks at a time, and how a result is read."""

    op: str
    dtype: np.dtype[Any]
    ranks: int
    base: int
    per_run: int
    tally: int = 0  # bits at the low end that count how many contributions there are in all

    @property
    def runs(self) -> int:
        """How many runs it takes until every rank has been looked at."""
        return -(-self.ranks // self.per_run)

    def inputs(self, trace: Trace, run: int) -> list[Array]:
        """The buffers of one run: as those of the trace in shape, each filled with one number."""
        first = run * self.per_run
        given = []
        for rank, buffer in enumerate(trace.inputs):
            place = rank - first
            value = self._number(place) if 0 <= place < self.per_run else self._nothing()
            given.append(np.full(buffer.shape, value, self.dtype))
        return given

    def read(self, value: Any, divided: bool = False) -> Counts | None:
        """How often each rank of the run is in a value; None if no counts would give it."""
        number = complex(value)
        if number.imag or number.real != number.real or abs(number.real) > 2.0**1000:
            return None
        real = number.real
        if self.op in ("max", "min"):
            seen = real if self.op == "max" else 1 - real
            return (int(seen),) if seen in (0, 1) else None
        if self.op == "prod":
            if real <= 0:
                return None
            mantissa, exponent = np.frexp(real)
            return self._digits(int(exponent) - 1) if mantissa == 0.5 else None
        if self.op == "mean" and not divided:
            real /= self.ranks
        whole = round(real)
        return self._digits(whole) if abs(real - whole) <= 1e-9 * max(1, abs(real)) else None

    def _number(self, place: int) -> int | float:
        if self.op in ("max", "min"):
            return 1 if self.op == "max" else 0
        digit = (int(self.base**place) << self.tally) + bool(self.tally)
        if self.op == "prod":
            return float(np.ldexp(1.0, digit))
        return digit * self.ranks if self.op == "mean" else digit

    def _nothing(self) -> int:
        return 1 if self.op in ("prod", "min") else 0

    def _digits(self, number: int) -> Counts | None:
        digits = []
        number, counted = divmod(number, 1 << self.tally)
        for _ in range(self.per_run):
            number, digit = divmod(number, self.base)
            digits.append(digit)
        if number or (self.tally and sum(digits) != counted):
            return None
        return tuple(digits)


def exact_code(op: str, dtype: np.dtype[Any], ranks: int) -> Code | None:
    """The code that tells counts up to 7; None if the dtype is too small for any."""
    if dtype.kind == "b":
        op = {"sum": "max", "prod": "min"}.get(op, op)
    if op in ("max", "min"):
        return Code(op, dtype, ranks, 2, 1)
    if dtype.kind == "b":
        return None  # there is no mean of True and False
    bits, exponent = _room(op, dtype, ranks)
    if op == "prod":
        base = min(8, exponent + 1)
        digits = max((d for d in range(1, 5) if base**d - 1 <= exponent), default=0)
    else:
        base = min(8, 2 ** max(bits, 0))
        digits = bits // 3 or 1
    return Code(op, dtype, ranks, base, min(digits, ranks)) if base > 1 else None


def quick_code(op: str, dtype: np.dtype[Any], ranks: int) -> Code | None:
    """A code for sums that tells many ranks in one run, as long as none is counted twice.

    A bit for each rank, and a tally of all contributions: where two of a rank have made a carry
    there are fewer bits than the tally says, and nothing is read.
    """
    if op not in ("sum", "mean") or dtype.kind == "b":
        return None
    tally = (4 * ranks).bit_length()
    digits = _room(op, dtype, ranks)[0] - tally
    if digits < 2:
        return None
    return Code(op, dtype, ranks, 2, min(digits, ranks), tally)


def _room(op: str, dtype: np.dtype[Any], ranks: int) -> tuple[int, int]:
    bits, exponent = precision(dtype)
    bits = min(bits, precision(np.dtype("float64"))[0])
    return bits - ((ranks - 1).bit_length() if op == "mean" else 0), exponent


def precision(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Up to which power of two whole numbers are exact, and which power of two is the largest."""
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize - (dtype.kind == "i")
        return bits, bits - 1
    if dtype.kind in "fc":
        facts: Any = np.finfo(dtype)
    else:
        import ml_dtypes  # bfloat16 and its kind

        facts = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return min(facts.nmant + 1, 53), min(facts.maxexp - 1, 1023)  # as far as a float64 goes


def operation(trace: Trace, op: Any = None) -> str | None:
    """The name of the reduction: what is asked for, else what the run was given, else None."""
    if isinstance(op, np.ufunc):
        op = op.__name__
    if op is None:
        op = trace.options.get("op")
        ufunc = re.fullmatch(r"<ufunc '(\w+)'>", op or "")
        op = ufunc[1] if ufunc else op and op.strip("'\"")
        if op is not None and op not in OPERATIONS and op not in UFUNCS:
            return None
    name: str | None = UFUNCS.get(op, op)
    if name is not None and name not in OPERATIONS:
        raise LabError(f"op={op!r} is no reduction. Take one of {', '.join(OPERATIONS)}.")
    return name


def run_again(trace: Trace, inputs: Sequence[Array]) -> Trace:
    """The same program on other inputs, without what it prints, for traces that can run again."""
    assert trace._again is not None
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")  # about numbers that are ours
        return trace._again(list(inputs))


def alike(one: Trace, other: Trace) -> bool:
    """Whether two runs exchanged the same messages, whatever was in them."""
    return len(one.calls) == len(other.calls) and _pattern(one) == _pattern(other)


def _pattern(trace: Trace) -> list[tuple[int, ...]]:
    return [(m.source, m.dest, m.tag, m.count, m.step) for m in trace.messages]


def chunks(size: int, ranks: int) -> list[tuple[int, int]]:
    """Where the chunks of `np.array_split` begin and end."""
    short, longer = divmod(size, ranks)
    ends = [short * rank + min(rank, longer) for rank in range(ranks + 1)]
    return list(pairwise(ends))
