"""Going through a run step by step: what is in every rank's buffer after each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from labkit.collectives.provenance import Array
from labkit.collectives.trace import State, Trace

__all__ = ["Walk"]


class Walk:
    """The buffers of a trace while its steps are gone through."""

    def __init__(self, trace: Trace, cells: tuple[tuple[int, int], ...]) -> None:
        self.dtype = trace.inputs[0].dtype
        self.buffers = [buffer.reshape(-1).copy() for buffer in trace.inputs]
        self.cells = cells
        self.starts = [start for start, _ in cells]
        self.stops = [stop for _, stop in cells]
        self.states: dict[int, list[State]] = defaultdict(list)
        for state in trace.states:
            self.states[state.step].append(state)
        self.last = None if trace.complete else trace
        self.steps = set(self.states) if trace.complete else {trace.steps}

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
