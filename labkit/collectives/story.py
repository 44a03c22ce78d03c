"""The story of a run: whose contributions each rank holds in each cell, after each step.

>>> trace = collectives.run(collectives.programs.ring_all_reduce, ranks=4)    # doctest: +SKIP
>>> trace.story().at(1)[1][0]                                                 # doctest: +SKIP
Change(step=1, rank=1, cell=0, counts=(1, 1, 0, 0), text='6')
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from labkit.collectives.operations import OPERATIONS
from labkit.collectives.provenance import (
    Array,
    Code,
    Counts,
    alike,
    chunks,
    exact_code,
    operation,
    quick_code,
    run_again,
)
from labkit.collectives.trace import Trace
from labkit.collectives.walking import Walk
from labkit.kinds import LabError

__all__ = ["Change", "Story", "story"]

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
class Story:
    """All changes of a run, in order. Step 0 is what every rank began with, in every cell."""

    op: str
    cells: tuple[tuple[int, int], ...]
    changes: tuple[Change, ...]

    def at(self, step: int) -> list[list[Change]]:
        """What every rank holds in every cell after a step: `at(3)[rank][cell]`."""
        grid: dict[int, dict[int, Change]] = defaultdict(dict)
        for change in self.changes:
            if change.step <= step:
                grid[change.rank][change.cell] = change
        return [[held[cell] for cell in sorted(held)] for _, held in sorted(grid.items())]


def story(trace: Trace, op: str | None = None) -> Story:
    """Who holds what after each step, from further runs on numbers that say whose they are."""
    cells = _cells(trace)
    asked = operation(trace, op)
    if asked:
        return _told(trace, asked, cells)
    # Nobody says which reduction it is: the first that explains the real numbers.
    best: list[tuple[float, Story]] = []
    for candidate in OPERATIONS:
        told = _told(trace, candidate, cells)
        best.append((_explained(trace, told), told))
        if best[-1][0] == 1.0:
            break
    return max(best, key=lambda one: one[0])[1]


def _told(trace: Trace, op: str, cells: tuple[tuple[int, int], ...]) -> Story:
    code, probes = _probes(trace, op)
    walks = [Walk(t, cells) for t in (trace, *probes)]
    read = _reader(trace, code, walks, cells)
    changes: list[Change] = []
    for step in sorted({0}.union(*(walk.steps for walk in walks))):
        touched = {place for walk in walks for place in walk.advance(step)}
        if step == 0:
            touched = {(rank, cell) for rank in range(trace.ranks) for cell in range(len(cells))}
        for rank, cell in sorted(touched):
            changes.append(Change(step, rank, cell, read(rank, cell), walks[0].text(rank, cell)))
    return Story(op, cells, tuple(_news(changes)))


def _news(changes: list[Change]) -> Iterator[Change]:
    """Without those that change nothing, such as a part that was overwritten with itself."""
    held: dict[tuple[int, int], tuple[Counts | None, str]] = {}
    for change in changes:
        place, content = (change.rank, change.cell), (change.counts, change.text)
        if held.get(place) != content:
            held[place] = content
            yield change


def _cells(trace: Trace) -> tuple[tuple[int, int], ...]:
    """The pieces in which the program moves its buffer."""
    size = max((buffer.size for buffer in trace.inputs), default=0)
    ends = {0, size}
    for message in trace.messages:
        ends.update(message.sent_from or ())
        ends.update(message.into or ())
    if size <= FEW_ELEMENTS:
        ends = set(range(size + 1))
    elif not 2 < len(ends) <= CELLS + 1:
        ends = {end for piece in chunks(size, trace.ranks) for end in piece}
    borders = sorted(ends)
    return tuple(pairwise(borders))


def _probes(trace: Trace, op: str) -> tuple[Code | None, list[Trace]]:
    """The runs that tell the contributions, or none where they cannot be told."""
    dtype = trace.inputs[0].dtype
    if trace._again is None or dtype.kind not in "biufcV":
        return None, []
    for code in _codes(op, dtype, trace.ranks):
        if code.runs * len(trace.calls) > CALLS:
            continue
        try:
            probes = [run_again(trace, code.inputs(trace, run)) for run in range(code.runs)]
        except LabError:
            continue  # it refuses this dtype, or these numbers: then nothing is claimed
        if not all(alike(trace, probe) and probe.complete == trace.complete for probe in probes):
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


def _readable(code: Code, probes: list[Trace]) -> bool:
    """Whether every number that a quick code left behind can be read."""
    found: set[Any] = set()
    for probe in probes:
        held = [values.data for values in probe.left] + [state.data for state in probe.states]
        found.update(np.unique(np.frombuffer(b"".join(held), code.dtype)).tolist())
    divided = (False, True) if code.op == "mean" else (False,)
    return all(any(code.read(value, d) is not None for d in divided) for value in found)


def _reader(trace: Trace, code: Code | None, walks: list[Walk], cells: Any) -> Any:
    """The function that says whose contributions are in a cell."""
    if code is None:
        own = [tuple(int(q == rank) for q in range(trace.ranks)) for rank in range(trace.ranks)]
        begun: set[tuple[int, int]] = set()

        def unknown(rank: int, cell: int) -> Counts | None:
            if (rank, cell) in begun:
                return None
            begun.add((rank, cell))
            return own[rank]

        return unknown

    real, probes = walks[0], walks[1:]
    inputs = [buffer.reshape(-1) for buffer in trace.inputs]

    @cache
    def together(found: tuple[Any, ...], divided: bool = False) -> Counts | None:
        counts: list[int] = []
        for value in found:
            part = code.read(value, divided)
            if part is None:
                return None
            counts += part
        return tuple(counts[: trace.ranks])

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
        after = miss(divided, actual * trace.ranks, at)
        return divided if after < miss(whole, actual, at) else whole

    return counts


def _explained(trace: Trace, told: Story) -> float:
    """The share of cells in which the final counts, under this operation, give the real values."""
    share = _explains(trace, told)
    adds = any(message.into is None for message in trace.messages)
    if share < 1.0 or not adds or trace._again is None:
        return share
    if any(change.counts and sum(change.counts) > 1 for change in told.changes):
        return share
    # It looks like copies, but so does a maximum that is always of one rank: swap the ranks.
    try:
        return _explains(run_again(trace, [*trace.inputs[1:], trace.inputs[0]]), told)
    except LabError:
        return share


def _explains(trace: Trace, told: Story) -> float:
    inputs = [buffer.reshape(-1) for buffer in trace.inputs]
    outputs = [buffer.reshape(-1) for buffer in trace.outputs]

    @cache
    def total(op: str, counts: Counts, start: int, stop: int) -> Array | None:
        parts = [
            inputs[rank][start:stop] for rank, count in enumerate(counts) for _ in range(count)
        ]
        if not parts or any(buffer.size < stop for buffer in inputs):
            return None
        # As the ranks add: numpy itself would count True and True as 2.
        added: Array = OPERATIONS[op].reduce(np.array(parts), axis=0, dtype=parts[0].dtype)
        return added / trace.ranks if op == "mean" else added

    def fits(change: Change) -> bool:
        start, stop = told.cells[change.cell]
        actual = outputs[change.rank][start:stop]
        if change.counts is None or not actual.size:
            return change.counts is not None
        if sum(change.counts) == 1 and told.op != "mean":  # a copy, perhaps from another place
            return bool(np.isin(actual, inputs[change.counts.index(1)]).all())
        expected = total(told.op, change.counts, start, start + actual.size)
        return expected is not None and _close(actual, expected)

    grid = [change for row in told.at(trace.steps) for change in row]
    with np.errstate(all="ignore"):
        return sum(fits(change) for change in grid) / max(1, len(grid))


def _close(actual: Array, expected: Array) -> bool:
    if (actual == expected).all():
        return True
    return bool(np.isclose(actual, expected, rtol=1e-2, equal_nan=True).all())
