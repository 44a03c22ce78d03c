"""How quickly a program is traced, and how quickly its cost is found for very many ranks.

Promises: a ring of 8 ranks is traced in under 20 ms (8 elements each; what changes in a buffer is
kept, so that time grows with its size); the cost of a ring of 16,384 ranks with one slow link is
found in under a second, in bounded memory, and is that of the event-by-event simulation wherever
both can run. Each is a row: allowed over ours.

The peers: one thread per rank, as one would write it with `threading`, on the same program, which
keeps no lines, steps or states and cannot tell a deadlock; and our own event-by-event clock on the
trace of the same ring, which is what a network simulator does. The threads take 0.4 of our time at
best, and more than ours where other programs take the cores, because they wait for each other. Our
10 ms for a ring of 8 ranks are spread over 112 messages: the line in the program, the check, the
trace and the clock, none of which takes a tenth by itself.
"""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from harness import Row, main
from simulator_parts.tracing import tracing

from labkit.collectives import Trace, cost, programs, run
from labkit.collectives.clock import play
from labkit.collectives.topology import Topology, ring, slow_link
from labkit.kinds import modelled

ALLOWED_COST, ALLOWED_MEMORY = 1.0, 64e6
RANKS, BYTES = 16_384, 1e9


def seconds(call: Callable[[], Any], times: int) -> list[float]:
    """Wall clock of calls in a row, after one that does not count."""
    call()
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
    return found


def row(what: str, against: str, theirs: list[float], ours: list[float]) -> Row:
    """Median over median; the interval is that of the quartiles of both."""
    (a, b, c), (x, y, z) = (statistics.quantiles(one, n=4) for one in (theirs, ours))
    return Row(what, against, b / y, a / z, c / x)


def promise(what: str, allowed: float, unit: str, ours: list[float]) -> Row:
    low, middle, high = statistics.quantiles(ours, n=4)
    word = "reached" if middle < allowed else "MISSED"
    print(f"{what}: {middle:.4g} {unit} of {allowed:g} {unit} allowed: {word}", flush=True)
    return Row(what, f"{allowed:g} {unit} allowed", allowed / middle, allowed / high, allowed / low)


def broken_ring(ranks: int) -> Topology:
    return slow_link(ring(ranks, 1e-6, 100e9), 5, 6, 10)


def by_rounds(ranks: int) -> float:
    return cost("ring_all_reduce", ranks, BYTES, topology=broken_ring(ranks))


def event_by_event(ring_of: Trace) -> float:
    scale = BYTES / ring_of.inputs[0].nbytes
    return play(ring_of, broken_ring(ring_of.ranks), modelled("events"), scale).seconds


def memory_of(call: Callable[[], Any]) -> float:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def priced(quick: bool) -> list[Row]:
    small = 64 if quick else 256
    trace = run(programs.ring_all_reduce, [[0.0] * small] * small)
    a, b = float(by_rounds(small)), float(event_by_event(trace))
    if abs(a - b) > 1e-9 * b:
        raise SystemExit(f"{small} ranks: {a!r} by rounds and {b!r} s event by event differ.")
    print(f"ring of {small} ranks with a slow link: {a!r}, the same event by event")
    what = f"cost of a ring of {RANKS:,} ranks with a slow link"
    times = 5 if quick else 20
    ours = seconds(lambda: by_rounds(RANKS), times)
    peak = memory_of(lambda: by_rounds(RANKS))
    events = seconds(lambda: event_by_event(trace), 3)
    few = seconds(lambda: by_rounds(small), times)
    return [
        promise(what, ALLOWED_COST, "s", ours),
        promise(f"memory of the {what}", ALLOWED_MEMORY, "B", [peak, peak, peak]),
        row(f"cost of a ring of {small} ranks with a slow link", "event by event", events, few),
    ]


def results(quick: bool) -> list[Row]:
    return [*tracing(quick), *priced(quick)]


if __name__ == "__main__":
    sys.exit(main(results, __doc__))
