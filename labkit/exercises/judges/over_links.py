"""Judges of what was measured on hosts with links: the seconds of programs, and bytes per link.

Bytes are counted by the kernel. Seconds are compared in rounds, in which each program runs once:
what else the machine does meets all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.cluster import Cluster, communicator
from labkit.cluster.links import Traffic
from labkit.exercises.task import NotJudged
from labkit.kinds import measured
from labkit.timing.estimate import Estimate
from labkit.timing.intervals import shift

ROUNDS = 5
TIME_LIMIT = 30.0  # seconds for one run of a program
NO_LINKS = (
    "It is judged by what is measured over links, which cannot be had here: labkit doctor says "
    "why. The lecture shows what was recorded."
)


@dataclass
class Measured:
    """What a program left on each rank, its seconds by round, and the traffic of its first run."""

    results: list[Any]
    traffic: Traffic
    seconds: list[float] = field(default_factory=list)
    """Of the slowest rank."""


def over_links(
    programs: Mapping[str, Callable[..., Any]],
    arguments: Sequence[Any],
    *,
    rounds: int = ROUNDS,
    **cluster: Any,
) -> dict[str, Measured]:
    """Run program(comm, argument) of each name on hosts with links: an argument for each rank."""
    found: dict[str, Measured] = {}
    with Cluster(len(arguments), **cluster) as c:
        if not c.has_links:
            raise NotJudged(NO_LINKS)
        for _ in range(rounds):
            for name, program in programs.items():
                ends = c.run(_timed, program, list(arguments), timeout=TIME_LIMIT, show=False)
                if name not in found:
                    found[name] = Measured([result for result, _ in ends], c.traffic())
                found[name].seconds.append(max(seconds for _, seconds in ends))
    return found


def ratio(slower: Measured, faster: Measured) -> Estimate:
    """How many times as long one takes as the other, with an interval over the rounds."""
    quotients = [one / other for one, other in zip(slower.seconds, faster.seconds, strict=True)]
    found = shift(quotients, 0.9)
    kind = measured(f"this machine, {faster.traffic.network}")
    return Estimate(found.value, found.low, found.high, "×", found.confidence, kind)


def _timed(rank: int, program: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, float]:
    """On a rank: what the program returns, or leaves in its argument, and its seconds."""
    comm, argument = communicator(), arguments[rank]
    comm.Barrier()
    began = time.perf_counter()
    result = program(comm, argument)
    return argument if result is None else result, time.perf_counter() - began
