"""How collectives are timed, the same for every library: by all ranks together, in rounds.

For each size: every contender is checked, warmed up, and then called once in each round, in an
order drawn anew. All ranks meet at a barrier before each call, and the slowest rank's time counts:
the collective is done when all ranks have the result. Calls too short for the clock are timed
several at a time. At the end every contender is checked once more.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.collectives.bench.expected import inputs_of, wrong_elements
from labkit.collectives.records import Array

__all__ = ["Prepared", "Ranks", "time_all"]

SAMPLE = 1e-3  # seconds that one sample should last at least
MOST_CALLS = 200  # in one sample
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Ranks:
    """The ranks that measure together: how they meet, and find the largest of their numbers."""

    rank: int
    ranks: int
    barrier: Callable[[], object]
    largest: Callable[[float], float]


@dataclass(frozen=True)
class Prepared:
    """A contender at one size: fill its buffer, call it, and hand out what it holds.

    `held` gives (rank, buffer) of every rank in this process: usually one.
    """

    fill: Callable[[Callable[[int], Array]], object]
    call: Callable[[], object]
    held: Callable[[], list[tuple[int, Array]]]


def time_all(
    plan: Mapping[str, Any],
    prepare: Callable[[int], Mapping[str, Prepared]],
    ranks: Ranks,
    progress: Callable[[float], object],
) -> list[dict[str, Any]]:
    """Plain records of all sizes and contenders; `prepare` makes them for a number of elements."""
    records: list[dict[str, Any]] = []
    draw = random.Random(plan["seed"])  # the same on all ranks: they must call in the same order
    done = 0
    for nbytes in plan["sizes"]:
        progress(done / sum(plan["sizes"]))
        records += _time_size(plan, prepare, nbytes, ranks, draw)
        done += nbytes
    return records


def _time_size(
    plan: Mapping[str, Any],
    prepare: Callable[[int], Mapping[str, Prepared]],
    nbytes: int,
    ranks: Ranks,
    draw: random.Random,
) -> list[dict[str, Any]]:
    count = nbytes // np.dtype(plan["dtype"]).itemsize
    contenders = prepare(count)
    records: dict[str, dict[str, Any]] = {}
    start = time.perf_counter()
    for name, one in contenders.items():
        first, wrong = _checked(plan, one, count, ranks)
        # Sums of zeros stay zeros, however often they are added up.
        one.fill(lambda _: np.zeros(count, plan["dtype"]))
        warm = [_timed(one, 1, ranks) for _ in range(plan["warmup"])]
        calls = min(MOST_CALLS, max(1, math.ceil(SAMPLE / min(warm)))) if warm else 1
        records[name] = {
            "contender": name, "nbytes": nbytes, "first": first, "calls": calls,
            "seconds": [], "wrong": wrong,
        }  # fmt: skip
    for number in range(plan["rounds"]):
        late = ranks.largest(time.perf_counter() - start) > plan["seconds_per_size"]
        if late and number >= LEAST_ROUNDS:
            break
        for name in draw.sample(list(contenders), len(contenders)):
            record = records[name]
            record["seconds"].append(_timed(contenders[name], record["calls"], ranks))
    for name, one in contenders.items():
        records[name]["wrong"] += _checked(plan, one, count, ranks)[1]
    return list(records.values())


def _timed(one: Prepared, calls: int, ranks: Ranks) -> float:
    """Seconds of one call, on the slowest rank."""
    ranks.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        one.call()
    return ranks.largest((time.perf_counter() - start) / calls)


def _checked(plan: Mapping[str, Any], one: Prepared, count: int, ranks: Ranks) -> tuple[float, int]:
    """A call on numbers whose result is known: its seconds, and how many elements are wrong."""
    one.fill(lambda rank: inputs_of(rank, count, plan["dtype"]))
    seconds = _timed(one, 1, ranks)
    wrong = sum(
        wrong_elements(buffer, plan["collective"], rank, ranks.ranks) for rank, buffer in one.held()
    )
    return seconds, round(ranks.largest(wrong))
