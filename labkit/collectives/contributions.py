"""Whose numbers are these: which ranks' contributions each rank holds, after each step.

>>> held = contributions(record).at(3)                              # doctest: +SKIP
>>> held[2][0].counts  # rank 2, piece 0: not yet rank 3            # doctest: +SKIP
(1, 1, 1, 0)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from labkit.collectives.probes import Code, holds, number_text, random_runs, run_again
from labkit.collectives.programs.reduction import OPERATIONS
from labkit.collectives.records import Array, Record, State, chunk_bounds
from labkit.kinds import LabError

__all__ = ["Change", "Contributions", "Counts", "contributions"]

Counts = tuple[int, ...]

CELLS = 256  # more pieces than this are not told apart
FEW_ELEMENTS = 8  # up to here every element is a cell
CALLS = 150_000  # how many calls the runs may make that find out about the contributions


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
class Contributions:
    """All changes of a run, in order. Step 0 is what every rank began with, in every cell.

    `op` is the reduction that the run was given, or that explains its results on other inputs;
    None where nothing is reduced, or no reduction explains them.
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


def contributions(record: Record, op: str | None = None) -> Contributions:
    """Who holds what after each step, read from further runs on numbers that say whose they are."""
    if op or record.op:
        return _replay(record, op or record.op, *_coded(record, op or record.op or "sum"))
    # Nothing says which reduction it is: take the one that explains results on random numbers.
    best, most = _replay(record, None, None, []), 0.0
    for candidate in OPERATIONS if record.again else ():
        code, runs = _coded(record, candidate)
        share = _explained(record, candidate, code, runs)
        if share > most:
            best, most = _replay(record, candidate, code, runs), share
        if share == 1.0:
            adds = any(change.counts and sum(change.counts) > 1 for change in best.changes)
            return best if adds else replace(best, op=None)
    return replace(best, op=None)


def _coded(record: Record, op: str) -> tuple[Code | None, list[Record]]:
    """The runs that tell the contributions; none where they cannot be told."""
    code = Code.of(op, record.inputs[0].dtype, record.ranks)
    if record.again is None or code is None or code.runs * len(record.calls) > CALLS:
        return None, []
    try:
        runs = [run_again(record, code.inputs(record, run)) for run in range(code.runs)]
    except LabError:
        return None, []  # it refuses these numbers: then nothing is claimed
    if any(_messages(run) != _messages(record) for run in runs):
        return None, []
    return code, runs


def _messages(record: Record) -> list[tuple[int, ...]]:
    return [(m.source, m.dest, m.tag, m.count, m.step) for m in record.messages]


def _explained(record: Record, op: str, code: Code | None, runs: list[Record]) -> float:
    """The share of elements whose contributions give their values on random numbers, too."""
    total = sum(buffer.size for buffer in record.inputs)
    try:
        probes = random_runs(record, op, most=2) if code else []
    except LabError:
        probes = []
    if code is None or not probes or not total:
        return float(not total)
    size, right = max(buffer.size for buffer in record.inputs), 0
    for probe, (rank, own) in product(probes, enumerate(record.inputs)):
        probe.given = [np.resize(buffer, size) for buffer in probe.given]  # some may be longer
        counts = code.read([run.outputs[rank].reshape(-1) for run in runs])
        at = np.arange(own.size)
        fits = holds(op, probe, rank, at, counts, np.broadcast_to(at, counts.shape))
        for owner in np.flatnonzero(counts.any(axis=1)):  # copies, perhaps from elsewhere
            alone = (counts.sum(axis=0) == 1) & (counts[owner] == 1)
            fits |= alone & np.isin(probe.left[rank], probe.given[owner])
        right += int(fits.sum())
    return right / (2 * total)


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
    """Every change, with the number of its run; of a run that kept none, what it ended with."""
    for number, record in enumerate(records):
        if record.complete:
            yield from ((number, state) for state in record.states)
        else:
            for rank, values in enumerate(record.left):
                yield number, State(record.steps, rank, 0, values.data)


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
    return tuple(pairwise(sorted(ends)))


def _text(values: Array) -> str:
    """What is in a cell: its only value, or the first and the last."""
    if not values.size:
        return ""
    first, last = number_text(values[0]), number_text(values[-1])
    return first if first == last and (values == values[0]).all() else f"{first} … {last}"
