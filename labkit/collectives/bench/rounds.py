"""How collectives are timed, the same for every library: by all ranks together, in rounds.

For each size: every contender is checked, warmed up, and then called once in each round, in an
order drawn anew. All ranks meet at a barrier before each call, and the slowest rank's time counts:
the collective is done when everybody has it. Calls too short for the clock are timed several at a
time. At the end every contender is checked once more.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labkit.collectives.bench.values import inputs_of, wrong_elements
from labkit.collectives.operations import Array

__all__ = ["Contender", "Group", "Tell", "time_all"]

SAMPLE = 1e-3  # seconds that one sample should last at least
MOST_CALLS = 200  # in one sample
LEAST_ROUNDS = 3

Tell = Callable[[str, float], object]


@dataclass(frozen=True)
class Group:
    """The ranks that measure together: how they meet, and how they agree on the largest number."""

    rank: int
    ranks: int
    barrier: Callable[[], object]
    largest: Callable[[float], float]


@dataclass(frozen=True)
class Contender:
    """Something to time for one size: fill its buffer, call it, and hand out what it holds.

    `held` gives (rank, buffer) of every rank that this process holds: usually one.
    """

    fill: Callable[[Callable[[int], Array]], object]
    call: Callable[[], object]
    held: Callable[[], list[tuple[int, Array]]]


def time_all(
    plan: Mapping[str, Any],
    contenders: Callable[[int], Mapping[str, Contender]],
    group: Group,
    tell: Tell,
) -> list[dict[str, Any]]:
    """Plain records of all sizes and contenders, in the order of the plan."""
    found: list[dict[str, Any]] = []
    draw = random.Random(plan["seed"])  # the same on all ranks: they must call alike
    total = sum(plan["sizes"])
    done = 0.0
    for nbytes in plan["sizes"]:
        count = nbytes // np.dtype(plan["dtype"]).itemsize
        ready = contenders(count)
        found += _time_size(plan, ready, count, group, draw, lambda: tell("", done / total))  # noqa: B023
        done += nbytes
    return found


def _time_size(
    plan: Mapping[str, Any],
    ready: Mapping[str, Contender],
    count: int,
    group: Group,
    draw: random.Random,
    alive: Callable[[], object],
) -> list[dict[str, Any]]:
    nbytes = count * np.dtype(plan["dtype"]).itemsize
    records: dict[str, dict[str, Any]] = {}
    began = time.perf_counter()
    for name, one in ready.items():
        alive()
        first, wrong = _checked(plan, one, count, group)
        # Sums of zeros stay zeros, however often they are added up.
        one.fill(lambda _: np.zeros(count, plan["dtype"]))
        warm = [_timed(one, 1, group) for _ in range(plan["warmup"])]
        calls = min(MOST_CALLS, max(1, math.ceil(SAMPLE / min(warm)))) if warm else 1
        records[name] = {
            "contender": name, "nbytes": nbytes, "first": first, "calls": calls,
            "seconds": [], "wrong": wrong,
        }  # fmt: skip
    for number in range(plan["rounds"]):
        late = group.largest(time.perf_counter() - began) > plan["seconds_per_size"]
        if late and number >= LEAST_ROUNDS:
            break
        for name in draw.sample(list(ready), len(ready)):
            alive()
            record = records[name]
            record["seconds"].append(_timed(ready[name], record["calls"], group))
    for name, one in ready.items():
        records[name]["wrong"] += _checked(plan, one, count, group)[1]
    return list(records.values())


def _timed(one: Contender, calls: int, group: Group) -> float:
    """Seconds of one call, on the slowest rank."""
    group.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        one.call()
    return group.largest((time.perf_counter() - began) / calls)


def _checked(
    plan: Mapping[str, Any], one: Contender, count: int, group: Group
) -> tuple[float, int]:
    """A call on numbers whose result is known: its seconds, and how many elements are wrong."""
    one.fill(lambda rank: inputs_of(rank, count, plan["dtype"]))
    seconds = _timed(one, 1, group)
    wrong = sum(
        wrong_elements(buffer, plan["collective"], rank, group.ranks) for rank, buffer in one.held()
    )
    return seconds, round(group.largest(wrong))
