"""Whose numbers are these: which ranks' contributions each element of a run holds, at each step.

The program runs again on numbers that say whose they are. A sum over ranks that put in 1, 8, 64, …
has a digit for each rank, in base 8: how often that rank was counted. 4 ranks that are counted
once, twice, never and once leave 1 + 2·8 + 0·64 + 512 = 529.

>>> exact_code("sum", np.dtype("float64"), ranks=4).read(529.0)
(1, 2, 0, 1)
"""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from itertools import pairwise
from typing import Any

import numpy as np

from labkit.collectives.programs.reduction import OPERATIONS
from labkit.collectives.records import Array, Record, State, chunk_bounds
from labkit.kinds import LabError

__all__ = [
    "Change",
    "Code",
    "Counts",
    "Story",
    "alike",
    "contributions",
    "exact_code",
    "precision",
    "quick_code",
    "run_again",
]

Counts = tuple[int, ...]

CELLS = 256  # more pieces than this are not told apart
FEW_ELEMENTS = 8  # up to here every element is a cell
CALLS = 150_000  # how many calls the runs may make that find out about the contributions


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
        """How many runs it takes until every rank has been read."""
        return -(-self.ranks // self.per_run)

    def inputs(self, record: Record, run: int) -> list[Array]:
        """The buffers of one run: as those of the trace in shape, each filled with one number."""
        first = run * self.per_run
        given = []
        for rank, buffer in enumerate(record.inputs):
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


def run_again(record: Record, inputs: Sequence[Array]) -> Record:
    """The same program on other inputs, without what it prints, for records that can run again."""
    assert record.again is not None
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")  # about numbers that are ours
        return record.again(inputs)


def alike(one: Record, other: Record) -> bool:
    """Whether two runs exchanged the same messages, whatever was in them."""
    return len(one.calls) == len(other.calls) and _pattern(one) == _pattern(other)


def _pattern(record: Record) -> list[tuple[int, ...]]:
    return [(m.source, m.dest, m.tag, m.count, m.step) for m in record.messages]


@dataclass(frozen=True)
class Change:
    """What a rank holds in a cell from a step on; `counts[q]` is how often rank q is in there.

    The counts are None where they are not known, such as for a run loaded from a file.
    """

    step: int
    rank: int
    cell: int
    counts: Counts | None
    text: str


@dataclass(frozen=True)
class Story:
    """All changes of a run, in order. Step 0 is what every rank began with, in every cell.

    `op` is the reduction that the run was given, or that explains its results on any numbers; None
    where nothing is reduced, or no reduction explains them.
    """

    op: str | None
    cells: tuple[tuple[int, int], ...]
    changes: tuple[Change, ...]

    def at(self, step: int) -> list[list[Change]]:
        """What every rank holds in every cell after a step: `at(3)[rank][cell]`."""
        grid: dict[int, dict[int, Change]] = defaultdict(dict)
        for change in self.changes:
            if change.step <= step:
                grid[change.rank][change.cell] = change
        return [[held[cell] for cell in sorted(held)] for _, held in sorted(grid.items())]


def contributions(record: Record, op: str | None = None) -> Story:
    """Who holds what after each step, from further runs on numbers that say whose they are."""
    cells = _cells(record)
    op = op or record.op
    if op is not None:
        return _told(record, op, cells)
    # Nothing says which reduction it is: the one that explains other numbers as well.
    tests, best, most = _tests(record), None, 0.0
    for candidate in OPERATIONS:
        told = _told(record, candidate, cells)
        share = min((_explains(test, told) for test in tests), default=0.0)
        if best is None or share > most:
            adds = any(change.counts and sum(change.counts) > 1 for change in told.changes)
            best, most = told if share == 1.0 and adds else replace(told, op=None), share
        if share == 1.0 or not tests:
            break
    assert best is not None
    return best


def _tests(record: Record) -> list[Record]:
    """Two runs on numbers of which once the lowest rank has the largest, once the highest."""
    if record.again is None or record.inputs[0].dtype.kind not in "biufcV":
        return []
    random = np.random.default_rng(1)
    tests = []
    for turn in (-1, 1):
        inputs = []
        for rank, buffer in enumerate(record.inputs):
            low = 1 + 3 * (rank if turn > 0 else record.ranks - 1 - rank)
            low, high = (0, 2) if buffer.dtype.kind == "b" else (low, low + 3)
            inputs.append(random.integers(low, high, buffer.shape).astype(buffer.dtype))
        try:
            tests.append(run_again(record, inputs))
        except LabError:
            return []
    return tests


def _told(record: Record, op: str, cells: tuple[tuple[int, int], ...]) -> Story:
    code, probes = _probes(record, op)
    walks = [Walk(one, cells) for one in (record, *probes)]
    read = _reader(record, code, walks, cells)
    changes: list[Change] = []
    for step in sorted({0}.union(*(walk.steps for walk in walks))):
        touched = {place for walk in walks for place in walk.advance(step)}
        if step == 0:
            touched = {(rank, cell) for rank in range(record.ranks) for cell in range(len(cells))}
        for rank, cell in sorted(touched):
            changes.append(Change(step, rank, cell, read(rank, cell), walks[0].text(rank, cell)))
    return Story(op, cells, tuple(_new(changes)))


def _new(changes: list[Change]) -> Iterator[Change]:
    """Without those that change nothing, such as a part that was overwritten with itself."""
    held: dict[tuple[int, int], tuple[Counts | None, str]] = {}
    for change in changes:
        place, content = (change.rank, change.cell), (change.counts, change.text)
        if held.get(place) != content:
            held[place] = content
            yield change


def _cells(record: Record) -> tuple[tuple[int, int], ...]:
    """The pieces in which the program moves its buffer."""
    size = max((buffer.size for buffer in record.inputs), default=0)
    ends = {0, size}
    for message in record.messages:
        ends.update(message.sent_from or ())
        ends.update(message.into or ())
    if size <= FEW_ELEMENTS:
        ends = set(range(size + 1))
    elif not 2 < len(ends) <= CELLS + 1:
        ends = {end for piece in chunk_bounds(size, record.ranks) for end in piece}
    borders = sorted(ends)
    return tuple(pairwise(borders))


def _probes(record: Record, op: str) -> tuple[Code | None, list[Record]]:
    """The runs that tell the contributions, or none where they cannot be told."""
    dtype = record.inputs[0].dtype
    if record.again is None or dtype.kind not in "biufcV":
        return None, []
    for code in _codes(op, dtype, record.ranks):
        if code.runs * len(record.calls) > CALLS:
            continue
        try:
            probes = [run_again(record, code.inputs(record, run)) for run in range(code.runs)]
        except LabError:
            continue  # it refuses this dtype, or these numbers: then nothing is claimed
        if not all(alike(record, probe) and probe.complete == record.complete for probe in probes):
            continue
        if not code.tally or _readable(code, probes):
            return code, probes
    return None, []


def _codes(op: str, dtype: np.dtype[Any], ranks: int) -> Iterator[Code]:
    """The codes to try: those that need few runs first."""
    exact = exact_code(op, dtype, ranks)
    quick = quick_code(op, dtype, ranks)
    if exact is not None and quick is not None and quick.runs < exact.runs:
        yield quick
    if exact is None or (exact.runs > 4 and dtype.kind in "iuf"):
        # In float64 fewer runs are needed, if the program takes it.
        yield from _codes(op, np.dtype("float64"), ranks) if dtype != np.float64 else ()
    if exact is not None:
        yield exact


def _readable(code: Code, probes: list[Record]) -> bool:
    """Whether every number that a quick code left behind can be read."""
    found: set[Any] = set()
    for probe in probes:
        held = [values.data for values in probe.left] + [state.data for state in probe.states]
        found.update(np.unique(np.frombuffer(b"".join(held), code.dtype)).tolist())
    divided = (False, True) if code.op == "mean" else (False,)
    return all(any(code.read(value, d) is not None for d in divided) for value in found)


def _reader(record: Record, code: Code | None, walks: list[Walk], cells: Any) -> Any:
    """The function that says whose contributions are in a cell."""
    if code is None:
        own = [tuple(int(q == rank) for q in range(record.ranks)) for rank in range(record.ranks)]
        begun: set[tuple[int, int]] = set()

        def unknown(rank: int, cell: int) -> Counts | None:
            if (rank, cell) in begun:
                return None
            begun.add((rank, cell))
            return own[rank]

        return unknown

    real, probes = walks[0], walks[1:]
    inputs = [buffer.reshape(-1) for buffer in record.inputs]

    @cache
    def together(found: tuple[Any, ...], divided: bool = False) -> Counts | None:
        counts: list[int] = []
        for value in found:
            part = code.read(value, divided)
            if part is None:
                return None
            counts += part
        return tuple(counts[: record.ranks])

    def miss(counts: Counts, actual: float, at: int) -> float:
        return abs(
            sum(c * float(np.real(inputs[q][at])) for q, c in enumerate(counts) if c) - actual
        )

    def counts(rank: int, cell: int) -> Counts | None:
        held = [probe.values(rank, cell) for probe in probes]
        if any(not v.size or (v.size > 1 and (v != v[0]).any()) for v in held):
            return None
        found = tuple(v[0].item() for v in held)
        whole = together(found)
        if code.op != "mean":
            return whole
        divided = together(found, True)
        if whole is None or divided is None or any(b.size != inputs[0].size for b in inputs):
            return whole or divided
        # Before and after the division: either reading is possible, and the real numbers decide.
        at, actual = cells[cell][0], float(np.real(real.values(rank, cell)[0]))
        after = miss(divided, actual * record.ranks, at)
        return divided if after < miss(whole, actual, at) else whole

    return counts


def _explains(record: Record, told: Story) -> float:
    """The share of cells in which the final counts, under this operation, give the values."""
    inputs = [buffer.reshape(-1) for buffer in record.inputs]
    outputs = [buffer.reshape(-1) for buffer in record.outputs]

    @cache
    def total(op: str, counts: Counts, start: int, stop: int) -> Array | None:
        parts = [
            inputs[rank][start:stop] for rank, count in enumerate(counts) for _ in range(count)
        ]
        if not parts or any(buffer.size < stop for buffer in inputs):
            return None
        # As the ranks add: numpy itself would count True and True as 2.
        added: Array = OPERATIONS[op].reduce(np.array(parts), axis=0, dtype=parts[0].dtype)
        return added / record.ranks if op == "mean" else added

    def fits(change: Change) -> bool:
        start, stop = told.cells[change.cell]
        actual = outputs[change.rank][start:stop]
        if change.counts is None or not actual.size:
            return change.counts is not None
        if sum(change.counts) == 1 and told.op != "mean":  # a copy, perhaps from another place
            return bool(np.isin(actual, inputs[change.counts.index(1)]).all())
        expected = total(told.op, change.counts, start, start + actual.size)
        return expected is not None and _close(actual, expected)

    grid = [change for row in told.at(record.steps) for change in row]
    with np.errstate(all="ignore"):
        return sum(fits(change) for change in grid) / max(1, len(grid))


def _close(actual: Array, expected: Array) -> bool:
    if (actual == expected).all():
        return True
    return bool(np.isclose(actual, expected, rtol=1e-2, equal_nan=True).all())


class Walk:
    """The buffers of a record while its steps are gone through."""

    def __init__(self, record: Record, cells: tuple[tuple[int, int], ...]) -> None:
        self.dtype = record.inputs[0].dtype
        self.buffers = [buffer.reshape(-1).copy() for buffer in record.inputs]
        self.cells = cells
        self.starts = [start for start, _ in cells]
        self.stops = [stop for _, stop in cells]
        self.states: dict[int, list[State]] = defaultdict(list)
        for state in record.states:
            self.states[state.step].append(state)
        self.last = None if record.complete else record
        self.steps = set(self.states) if record.complete else {record.steps}

    def advance(self, step: int) -> Iterator[tuple[int, int]]:
        """Do what happened in a step, and say which cells of which ranks it touched."""
        for state in self.states.get(step, ()):
            content = np.frombuffer(state.data, self.dtype)
            stop = state.start + content.size
            self.buffers[state.rank][state.start : stop] = content
            first = bisect_right(self.starts, state.start) - 1
            for cell in range(first, bisect_left(self.starts, stop)):
                yield state.rank, cell
        if self.last is not None and step == self.last.steps:
            self.buffers = [buffer.reshape(-1) for buffer in self.last.outputs]
            yield from ((r, c) for r in range(len(self.buffers)) for c in range(len(self.cells)))

    def values(self, rank: int, cell: int) -> Array:
        """What is in a cell."""
        return self.buffers[rank][self.starts[cell] : self.stops[cell]]

    def text(self, rank: int, cell: int) -> str:
        """What is in a cell, in words: its only value, or the first and the last."""
        values = self.values(rank, cell)
        if not values.size:
            return ""
        first, last = _number(values[0]), _number(values[-1])
        return first if first == last and (values == values[0]).all() else f"{first} … {last}"


def _number(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (complex, np.complexfloating)):
        return f"{complex(value):.4g}"
    return f"{float(value):.6g}"
