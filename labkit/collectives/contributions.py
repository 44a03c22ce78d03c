"""Whose numbers are these: which ranks' contributions each rank holds, after each step.

>>> held = contributions(record).at(3)                              # doctest: +SKIP
>>> held[2][0].counts  # rank 2, piece 0: not yet rank 3            # doctest: +SKIP
(1, 1, 1, 0)

The program is run again on numbers that say whose they are. A sum over ranks that put in 1, 16, 256
and so on has a digit for each rank, which is how often it was counted:

>>> code = Code.of("sum", np.dtype("float64"), ranks=3)
>>> code.read([np.array([1 + 2 * 16 + 0 * 256.0])])[:, 0].tolist()
[1, 2, 0]
"""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from io import StringIO
from itertools import pairwise
from typing import Any

import numpy as np

from labkit.collectives.buffers import OPERATIONS
from labkit.collectives.records import Array, Record, State, chunk_bounds
from labkit.kinds import LabError

Counts = tuple[int, ...]

CELLS = 256  # of more pieces than this, one is shown for each rank
FEW_ELEMENTS = 8  # up to here every element is a cell
CALLS = 150_000  # how many calls the coded runs may make
SEED = 20261121  # the random numbers are the same every time


@dataclass(frozen=True)
class Change:
    """What a rank holds in a cell from a step on; `counts[q]` is how often rank q is in there.

    The counts are None where they are not known.
    """

    step: int
    rank: int
    cell: int
    counts: Counts | None
    text: str


@dataclass(frozen=True)
class Contributions:
    """All changes of a run, in order. Step 0 is what every rank began with, in every cell.

    `op` is the reduction; None where nothing is reduced, or it is not known.
    """

    op: str | None
    cells: tuple[tuple[int, int], ...]
    changes: tuple[Change, ...]

    def at(self, step: int) -> list[list[Change]]:
        """Returns what every rank holds in every cell after a step: `at(3)[rank][cell]`."""
        grid: dict[int, dict[int, Change]] = defaultdict(dict)
        for change in self.changes:
            if change.step <= step:
                grid[change.rank][change.cell] = change
        return [[held[cell] for cell in sorted(held)] for _, held in sorted(grid.items())]


# The program, run again on inputs of ours.


def run_again(record: Record, inputs: list[Array], *, apart: bool = False) -> Record:
    """Returns the same program on other flat inputs, without what it prints.

    `apart`: the ranks share no variable.
    """
    shaped = [flat.reshape(own.shape) for flat, own in zip(inputs, record.inputs, strict=True)]
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")  # about numbers that are ours
        return record.again(shaped, apart=apart)


def precision(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Returns two exponents of 2: up to which whole numbers are exact, and the largest one."""
    if dtype.kind == "b":
        return 1, 0
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize - (dtype.kind == "i")
        return min(bits, 50), bits - 1
    facts = np.finfo(dtype)
    return facts.nmant + 1, min(facts.maxexp - 1, 1023)


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
        """Returns the code that needs the fewest runs, or None if the dtype has no room for one."""
        if dtype.kind not in "fiu":
            return None
        if op in ("max", "min"):
            return cls(op, dtype, ranks, 1, 1)
        room, _ = precision(dtype)
        fitting = [cls(op, dtype, ranks, one, room // one) for one in (4, 3, 2) if one <= room]
        return min(fitting, key=lambda code: code.runs, default=None)

    @property
    def runs(self) -> int:
        """How many runs it takes until every rank has been read."""
        return -(-self.ranks // self.per_run)

    def inputs(self, record: Record, run: int) -> list[Array]:
        """Returns the flat buffers of one run."""
        given = []
        for rank, buffer in enumerate(record.inputs):
            number = int(self.op == "min")
            if rank // self.per_run == run:
                digit = 1 << self.width * (rank % self.per_run)
                number = 0 if self.op == "min" else digit
            given.append(np.full(buffer.size, number, self.dtype))
        return given

    def read(self, results: list[Array]) -> Array:
        """Returns how often each rank is in each element, [rank, element], or -1 if unreadable."""
        counts = np.concatenate([self._digits(values) for values in results])[: self.ranks]
        counts[:, (counts < 0).any(axis=0)] = -1
        return counts

    def _digits(self, values: Array) -> Array:
        number = values.astype(float)
        if self.op == "min":
            number = 1 - number
        whole = np.rint(number)
        with np.errstate(invalid="ignore"):
            valid = (np.abs(number - whole) < 0.1) & (whole >= 0)
        valid &= whole < 2.0 ** (self.width * self.per_run)
        places = self.width * np.arange(self.per_run)[:, None]
        digits = np.where(valid, whole, 0).astype(np.int64) >> places & (1 << self.width) - 1
        return np.where(valid, digits, -1)


def coded_runs(record: Record, op: str) -> tuple[Code | None, list[Record]]:
    """Returns the code and the runs from which contributions are read, or none if unreadable."""
    code = Code.of(op, record.inputs[0].dtype, record.ranks)
    if code is None or code.runs * len(record.calls) > CALLS:
        return None, []
    return code, [run_again(record, code.inputs(record, run)) for run in range(code.runs)]


def random_runs(record: Record, op: str | None) -> list[tuple[Record, float]]:
    """Returns runs on random multiples of 1 and of a fraction: sums are exact in any order."""
    dtype, ranks = record.inputs[0].dtype, record.ranks
    size = max(buffer.size for buffer in record.inputs)
    spread = (1 << precision(dtype)[0]) // 2
    spread //= ranks if op == "sum" else 1
    random = np.random.default_rng(SEED)
    probes = []
    for unit in (1, 0.5 ** spread.bit_length() if dtype.kind in "fc" else 1):
        given = []
        for buffer in record.inputs:
            drawn = random.integers(0, max(spread, 2), size)
            if dtype.kind != "u":  # of both signs; of a maximum below 0, so that no 0 may get in
                drawn = drawn - spread // 2 if op != "max" else drawn - spread - 1
            given.append((drawn[: buffer.size] * unit).astype(dtype))
        probes.append((run_again(record, given), unit / 4))
    return probes


def holds(op: str, given: Array, held: Array, counts: Array, bound: float) -> Array:
    """Returns which elements hold each rank's element `counts` times.

    `given` is [giver, element], `held` is [element] or [rank, element], `counts` one axis more.
    """
    values, begun = np.zeros(held.shape, held.dtype), np.zeros(held.shape, bool)
    for mine, count in zip(given, counts, strict=True):
        for often in range(1, count.max(initial=0) + 1):
            more = np.where(begun, OPERATIONS[op](values, mine), mine)
            values = np.where(count >= often, more, values)
            begun |= count >= often
    return np.asarray((counts >= 0).all(axis=0) & (np.abs(held - values.astype(float)) <= bound))


# Step by step.


def contributions(record: Record, op: str | None = None) -> Contributions:
    """Who holds what after each step, read from further runs on numbers that say whose they are.

    Without `op`, that which the run was given is taken, else a sum; of a program that is found to
    do something else, or that sends other messages on other numbers, nothing is claimed.
    """
    known = op or record.op
    try:
        code, runs = coded_runs(record, known or "sum")
        same_way = all(_messages(run) == _messages(record) for run in runs)
        if code and not (same_way and (known or _are_sums(record, code, runs))):
            code, runs = None, []
    except LabError:  # it refuses these numbers
        code, runs = None, []
    held = _replay(record, known, code, runs)
    adds = any(change.counts and sum(change.counts) > 1 for change in held.changes)
    return replace(held, op=known or ("sum" if adds else None))


def _are_sums(record: Record, code: Code, runs: list[Record]) -> bool:
    """Returns whether the results on random numbers are sums and copies of contributions, too."""
    size = max(buffer.size for buffer in record.inputs)
    for probe, bound in random_runs(record, "sum"):
        given = np.stack([np.resize(buffer, size) for buffer in probe.inputs])  # some are shorter
        for rank, held in enumerate(buffer.reshape(-1) for buffer in probe.outputs):
            counts = code.read([run.outputs[rank].reshape(-1) for run in runs])
            right = holds("sum", given[:, : held.size], held, counts, bound)
            for owner in np.flatnonzero(counts.any(axis=1)):  # copies, perhaps from elsewhere
                alone = (counts.sum(axis=0) == 1) & (counts[owner] == 1)
                right |= alone & np.isin(held, given[owner])
            if not right.all():
                return False
    return True


def _messages(record: Record) -> list[tuple[int, ...]]:
    return [(m.source, m.dest, m.tag, m.count, m.step) for m in record.messages]


def _replay(record: Record, op: str | None, code: Code | None, runs: list[Record]) -> Contributions:
    """Go through the steps of the run and of the coded runs together, and note what changes."""
    cells = _cells(record)
    starts, every = [start for start, _ in cells], (record, *runs)
    buffers = [[buffer.reshape(-1).copy() for buffer in one.inputs] for one in every]

    @cache
    def read(found: tuple[Any, ...]) -> Counts | None:
        assert code is not None
        counts = code.read([np.array([value], code.dtype) for value in found])[:, 0]
        return None if (counts < 0).any() else tuple(counts.tolist())

    def counts(step: int, rank: int, start: int, stop: int) -> Counts | None:
        if code is None:
            return tuple(int(q == rank) for q in range(record.ranks)) if step == 0 else None
        held = [one[rank][start:stop] for one in buffers[1:]]
        if any(not part.size or (part != part[0]).any() for part in held):
            return None
        return read(tuple(part[0].item() for part in held))

    changes: list[Change] = []
    known: dict[tuple[int, int], tuple[Counts | None, str]] = {}
    touched = {(rank, cell) for rank in range(record.ranks) for cell in range(len(cells))}
    states = defaultdict(list)
    for number, state in _states(every):
        states[state.step].append((number, state))
    for step in sorted({0, *states}):
        for number, state in states[step]:
            content = np.frombuffer(state.data, record.inputs[0].dtype)
            stop = state.start + content.size
            buffers[number][state.rank][state.start : stop] = content
            first, last = bisect_right(starts, state.start) - 1, bisect_left(starts, stop)
            touched |= {(state.rank, cell) for cell in range(first, last)}
        for rank, cell in sorted(touched):
            start, stop = cells[cell]
            content_now = counts(step, rank, start, stop), _text(buffers[0][rank][start:stop])
            if known.get((rank, cell)) != content_now:
                known[rank, cell] = content_now
                changes.append(Change(step, rank, cell, *content_now))
        touched = set()
    return Contributions(op, cells, tuple(changes))


def _states(records: tuple[Record, ...]) -> Iterator[tuple[int, State]]:
    """Yields every change with the number of its run, or the end of a run that kept none."""
    for number, record in enumerate(records):
        if record.complete:
            yield from ((number, state) for state in record.states)
        else:
            for rank, values in enumerate(record.outputs):
                yield number, State(record.steps, rank, 0, values.tobytes())


def _cells(record: Record) -> tuple[tuple[int, int], ...]:
    """Returns the pieces (start, stop) in which the program moves its buffer."""
    size = max((buffer.size for buffer in record.inputs), default=0)
    ends = {0, size}
    for message in record.messages:
        ends.update(message.sent_from or ())
        ends.update(message.into or ())
    if size <= FEW_ELEMENTS:
        ends = set(range(size + 1))
    elif not 2 < len(ends) <= CELLS + 1:
        ends = {end for piece in chunk_bounds(size, record.ranks) for end in piece}
    return tuple(pairwise(sorted(ends)))


def _text(values: Array) -> str:
    """Returns a cell in words: its only value, or the first and the last."""
    if not values.size:
        return ""
    first, last = number_text(values[0]), number_text(values[-1])
    return first if first == last and (values == values[0]).all() else f"{first} … {last}"


def number_text(value: Any, digits: int = 6) -> str:
    """Returns a number of any dtype in a sentence or a cell."""
    if isinstance(value, (np.bool_, np.integer)):
        return str(value.item())
    value = complex(value) if isinstance(value, np.complexfloating) else float(value)
    return f"{value:.{digits}g}"
