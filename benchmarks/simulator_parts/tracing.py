"""What tracing costs: an 8-rank ring, against the promise and against one thread per rank.

The promise: the whole of `collectives.run`, from the arrays to the trace, in less than 20 ms for
arrays of 8 elements, as lectures have them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Row
from simulator_parts import threads

from labkit import collectives
from labkit.timing.verdict import judge

PROMISED = 0.020  # seconds
RANKS, ELEMENTS = 8, (8, 10_000)


def tracing(quick: bool) -> list[Row]:
    """A row for the promise, and one for the peer at each size."""
    rows = []
    ring = collectives.programs.ring_all_reduce
    for elements in ELEMENTS:
        inputs = [np.arange(float(elements)) + rank for rank in range(RANKS)]
        expected = np.sum(inputs, axis=0)
        contenders: tuple[Callable[..., Any], ...] = (collectives.run, threads.run)
        assert all(np.array_equal(out, expected) for out in threads.run(ring, inputs))
        assert all(np.array_equal(o, expected) for o in collectives.run(ring, inputs).outputs)
        rounds = [
            [_seconds(contender, ring, inputs) for contender in contenders]
            for _ in range(15 if quick else 60)
        ]
        what = f"trace of a ring, {RANKS} ranks, {elements:,} elements"
        ours = [pair[0] for pair in rounds]
        print(f"{what}: {1e3 * float(np.median(ours)):.1f} ms", flush=True)
        if elements == ELEMENTS[0]:
            rows.append(_row(what, "20 ms promised", [PROMISED / seconds for seconds in ours]))
        rows.append(_row(what, "a thread per rank", [peer / mine for mine, peer in rounds]))
    return rows


def _seconds(contender: Callable[..., Any], program: Any, inputs: list[np.ndarray]) -> float:
    begin = time.perf_counter()
    contender(program, inputs)
    return time.perf_counter() - begin


def _row(what: str, against: str, ratios: list[float]) -> Row:
    found = judge(what, against, [math.log(ratio) for ratio in ratios]).estimate
    return Row(what, against, found.value, found.low, found.high)
