"""Pipelines: the clock of very long schedules, a measured step beside the model, ranks that start.

Promises, each a row (allowed over ours): the schedule 1F1B of 64 stages and 1,024 micro-batches is
made, checked and timed in under a second; four ranks whose computation is a sleep need at most 5 %
longer than the model. The peers: the longest path over graphlib.TopologicalSorter of the standard
library, on the same pieces; and mpiexec, which starts ranks that exchange 1 MB.
"""

from __future__ import annotations

import sys
from graphlib import TopologicalSorter
from typing import Any

from harness import Row, main
from pipelines_parts import exchange
from simulator import promise, row, seconds

import labkit
from labkit import pipelines

STAGES, MICRO_BATCHES = 64, 1024
NAMES = ("gpipe", "1f1b", "zb-h1")


def ours() -> float:
    s = pipelines.schedule("1f1b", stages=STAGES, micro_batches=MICRO_BATCHES)
    return s.timeline(forward=1.0, backward=2.0).total


def by_graphlib() -> float:
    """The same with a general sorter; its rows are given, and nothing is checked."""
    needs: dict[Any, list[Any]] = {}
    for rank, row_ in enumerate(ROWS):
        before = None
        for kind, m in row_:
            other = rank - 1 if kind == "F" else rank + 1
            inputs = [(kind, m, other)] if 0 <= other < STAGES else []
            inputs += [("F", m, rank)] * (kind == "B" and other == STAGES)
            needs[kind, m, rank] = inputs + [before] * (before is not None)
            before = kind, m, rank
    ends: dict[Any, float] = {}
    for piece in TopologicalSorter(needs).static_order():
        start = max((ends[one] for one in needs[piece]), default=0.0)
        ends[piece] = start + (1.0 if piece[0] == "F" else 2.0)
    return max(ends.values())


ROWS = pipelines.schedule("1f1b", stages=STAGES, micro_batches=MICRO_BATCHES).rows


def simulated(quick: bool) -> list[Row]:
    if ours() != by_graphlib():
        raise SystemExit(f"{ours()!r} by the clock and {by_graphlib()!r} by graphlib differ.")
    times = 5 if quick else 20
    mine, theirs = seconds(ours, times), seconds(by_graphlib, max(times // 4, 3))
    what = f"1F1B, {STAGES} stages × {MICRO_BATCHES:,} micro-batches"
    return [promise(what, 1.0, "s", mine), row(what, "graphlib, longest path", theirs, mine)]


def measured(quick: bool) -> list[Row]:
    """Seconds of a step in which each piece sleeps, over the model's, beyond 1."""
    found = []
    with labkit.cluster(ranks=4) as c:
        for name in NAMES:
            s = pipelines.schedule(name, stages=4, micro_batches=8)
            model = s.timeline(forward=0.1, backward=0.2)

            def rehearse(rank: int, s: Any = s) -> Any:
                return pipelines.rehearse(labkit.cluster.communicator(), s).spans

            longer = []
            for _ in range(3 if quick else 5):
                real = pipelines.measured_timeline(s, c.run(rehearse), "sleeping ranks")
                longer.append(real.total / model.total - 1)
            found.append(promise(f"{name}, 4 sleeping ranks over the model", 0.05, "more", longer))
    return found


def results(quick: bool) -> list[Row]:
    return [*simulated(quick), *measured(quick), *exchange.results(quick)]


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
