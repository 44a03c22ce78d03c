"""What the ranks of a measurement run under `run_mpi`: a program for each backend.

For each size: every contender is checked, warmed up, and then called once in each round, in an
order drawn anew. All ranks meet at a barrier before each call, and the slowest rank's time counts:
the collective is done when all ranks have the result. Calls too short for the clock are timed
several at a time. At the end every contender is checked once more.
"""

import json
import math
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives import programs
from labkit.collectives.records import Array

MOST_RANKS = 64  # the sum of what so many hold is exact in float32
WARM_UP = 3  # calls
SAMPLE = 1e-3  # seconds that one sample should last at least
MOST_CALLS = 200  # in one sample
LEAST_ROUNDS = 3
PERIOD = 97  # a prime: no chunk of a usual size looks like the next one


class Prepared(NamedTuple):
    """A contender at one size: fill its buffer, call it, and give what it holds.

    `fill` takes a function of the rank; `held` gives the buffer of every rank in this process:
    usually one.
    """

    fill: Callable[[Callable[[int], Array]], object]
    call: Callable[[], object]
    held: Callable[[], list[Array]]


Contenders = dict[str, Prepared]


def time_all(
    comm: Any, plan: dict[str, Any], library: str, prepare: Callable[[int], Contenders]
) -> None:
    """Time all sizes; rank 0 writes the result into the file of the plan."""
    draw, timings = random.Random(1), []
    for nbytes in plan["sizes"]:
        timings += time_size(comm, plan, nbytes, prepare(nbytes // 4), draw)
    if comm.Get_rank() == 0:
        result = json.dumps({"timings": timings, "library": library})
        Path(plan["file"]).write_text(result, encoding="utf-8")


def time_size(
    comm: Any, plan: dict[str, Any], nbytes: int, contenders: Contenders, draw: random.Random
) -> list[tuple[str, int, int, list[float], int]]:
    """Returns the fields of a `Timing` by contender. All ranks draw the same order of calls."""
    count = nbytes // 4
    calls, wrong, seconds = {}, {}, {}
    start = time.perf_counter()
    for name, one in contenders.items():
        wrong[name] = _checked(comm, one, count, plan["ranks"])
        # Sums of zeros stay zeros, however often they are added up.
        one.fill(lambda _: np.zeros(count, "float32"))
        warm = min(_timed(comm, one, 1) for _ in range(WARM_UP))
        calls[name] = min(MOST_CALLS, max(1, math.ceil(SAMPLE / warm)))
        seconds[name] = list[float]()
    for number in range(plan["rounds"]):
        late = max(comm.allgather(time.perf_counter() - start)) > plan["seconds_per_size"]
        if late and number >= LEAST_ROUNDS:
            break
        for name in draw.sample(list(contenders), len(contenders)):
            seconds[name].append(_timed(comm, contenders[name], calls[name]))
    for name, one in contenders.items():
        wrong[name] += _checked(comm, one, count, plan["ranks"])
    return [(name, nbytes, calls[name], seconds[name], wrong[name]) for name in contenders]


def _timed(comm: Any, one: Prepared, calls: int) -> float:
    """Returns the seconds of one call on the slowest rank."""
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        one.call()
    return float(max(comm.allgather((time.perf_counter() - start) / calls)))


def _checked(comm: Any, one: Prepared, count: int, ranks: int) -> int:
    """Returns the number of wrong elements after a call on numbers whose sum is known."""
    one.fill(lambda rank: inputs_of(rank, count))
    comm.Barrier()
    one.call()
    return int(max(comm.allgather(max(wrong_elements(held, ranks) for held in one.held()))))


def inputs_of(rank: int, count: int) -> Array:
    """Returns a rank's buffer before the call: random whole numbers that contain the rank.

    A chunk in the wrong position, a contribution that is missing or counted twice gives another
    sum, and no rounding hides it.
    """
    pattern = np.random.default_rng(rank).integers(0, 100, PERIOD) * MOST_RANKS + rank + 1
    return np.resize(pattern.astype("float32"), count)


def wrong_elements(buffer: Array, ranks: int) -> int:
    """Returns how many elements of a rank's buffer are not the sum over all ranks."""
    total = np.sum([inputs_of(rank, PERIOD) for rank in range(ranks)], axis=0)
    return int(np.count_nonzero(buffer != np.resize(total, buffer.size)))


def time_mpi(comm: Any, buffer: Array, plan: dict[str, Any], own: dict[str, Any]) -> None:
    """The library's own all-reduce and programs, interleaved."""
    from mpi4py import MPI

    rank = comm.Get_rank()

    def prepare(count: int) -> Contenders:
        held = np.empty(count, "float32")

        def fill(values: Callable[[int], Array]) -> None:
            held[:] = values(rank)

        def call_of(name: str) -> Callable[[], object]:
            if name == "mpi":
                return lambda: comm.Allreduce(MPI.IN_PLACE, held)
            return partial(own.get(name) or getattr(programs, name), comm, held)

        return {name: Prepared(fill, call_of(name), lambda: [held]) for name in plan["contenders"]}

    vendor, version = MPI.get_vendor()
    time_all(comm, plan, f"{vendor} {'.'.join(map(str, version))}, mpi4py", prepare)
