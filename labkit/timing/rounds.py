"""The order of events: first calls, warm-up, then rounds in which every candidate runs once.

In each round the order is drawn anew. A machine that slows down, speeds up or stumbles does
that to all candidates alike, and by the coin's verdict, not by their place in a list.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from labkit.kinds import seconds_text
from labkit.progress import Line
from labkit.timing.clock import Clock, seconds_of
from labkit.timing.log import Ending, Log, Machine, Timed

__all__ = ["IMPROVES", "Plan", "record"]

# A call that beats all before it by more than this is a sign that warming up goes on.
IMPROVES = 0.05
# So many calls in a row must not.
_CALM = 2


@dataclass(frozen=True)
class Plan:
    """How much to time, and when to stop. `warmup` bounds the calls after the first one."""

    rounds: int = 20
    warmup: int = 20
    warmup_seconds: float = 30.0
    deadline: float | None = None
    seed: int | None = None
    on: str = ""


@dataclass
class _Seen:
    """What one candidate has shown so far."""

    first: list[float] = field(default_factory=list)
    warmup: list[float] = field(default_factory=list)
    ending: Ending = "unfinished"
    samples: list[float] = field(default_factory=list)


def record(
    works: Mapping[str, Callable[[], object]],
    plan: Plan,
    *,
    clock: Clock = time.perf_counter_ns,
    keep: Callable[[Log], object] = lambda log: log,
) -> Log:
    """Time the `works` as planned.

    Ctrl-C ends it with the rounds that are complete; before the first one is, it is raised on.
    So is what a candidate raises, with a note that says where, and with what `keep` made of the
    complete rounds as its attribute `labkit_measured`.
    """
    seed = random.SystemRandom().randrange(2**32) if plan.seed is None else plan.seed
    machine = _machine()
    seen = {name: _Seen() for name in works}
    order: list[list[str]] = []
    progress = Line()
    where = "its first call"

    def log(stopped: Literal["", "interrupted", "deadline", "error"]) -> Log:
        names = list(works)
        return Log(
            tuple(
                Timed(name, tuple(s.first), tuple(s.warmup), s.ending, tuple(s.samples))
                for name, s in seen.items()
            ),
            tuple(tuple(names.index(name) for name in row) for row in order),
            plan.rounds,
            stopped,
            machine,
            plan.on,
            seed,
        )

    name = next(iter(works))
    begun = clock()

    def late() -> bool:
        return plan.deadline is not None and (clock() - begun) / 1e9 >= plan.deadline

    try:
        tidying = _tidy()
        for name, work in works.items():
            where = "its first call"
            progress.show(f"{name}: first call")
            seen[name].first.append(seconds_of(name, work, clock))
            where = "warm-up"
            _warm_up(name, work, seen[name], plan, clock, progress, late)
        draw = random.Random(seed)
        for number in range(1, plan.rounds + 1):
            if number > 1 and late():
                return log("deadline")
            row = list(works)
            draw.shuffle(row)
            order.append([])
            # Between rounds too, where that is cheap, so that memory cannot pile up.
            if number > 1 and tidying < 0.05 * _round_seconds(seen):
                tidying = _tidy()
            for name in row:
                where = f"round {number} of {plan.rounds}"
                progress.show(f"{where}, {_left_text(seen, number, plan.rounds)}")
                order[-1].append(name)
                seen[name].samples.append(seconds_of(name, works[name], clock))
        return log("")
    except KeyboardInterrupt:
        partial = log("interrupted")
        progress.erase()
        if not partial.rounds:
            # Too little for a result, but minutes may have gone into it: say what was seen.
            print(f"Interrupted in {where}. {_seen_text(seen)}", file=sys.stderr)
            raise
        print(
            f"Interrupted in {where}: {partial.rounds} complete rounds are kept.", file=sys.stderr
        )
        return partial
    except Exception as fault:
        partial = log("error")
        fault.add_note(f"labkit: raised by {name!r} in {where}.")
        if partial.rounds:
            fault.add_note(
                f"The {partial.rounds} complete rounds before it are kept: "
                "import sys; sys.last_value.labkit_measured"
            )
            fault.labkit_measured = keep(partial)  # type: ignore[attr-defined]
        raise
    finally:
        progress.erase()


def _seen_text(seen: Mapping[str, _Seen]) -> str:
    found = [
        f"{name}: first call {seconds_text(one.first[0])}"
        + (f", last warm-up call {seconds_text(one.warmup[-1])}" if one.warmup else "")
        for name, one in seen.items()
        if one.first
    ]
    return f"Timed until then: {'; '.join(found)}." if found else "Nothing was timed yet."


def _warm_up(
    name: str,
    work: Callable[[], object],
    seen: _Seen,
    plan: Plan,
    clock: Clock,
    progress: Line,
    late: Callable[[], bool],
) -> None:
    """Call until two calls in a row are no longer 5 % faster than the best before them."""
    if plan.warmup == 0:
        seen.ending = "skipped"
        return
    best, calm, begun = seen.first[0], 0, clock()
    while calm < _CALM:
        too_long = (clock() - begun) / 1e9 >= plan.warmup_seconds
        if len(seen.warmup) >= plan.warmup or too_long or late():
            seen.ending = "unstable"
            return
        progress.show(f"{name}: warm-up, call {len(seen.warmup) + 1}")
        spent = seconds_of(name, work, clock)
        seen.warmup.append(spent)
        calm = calm + 1 if spent >= (1 - IMPROVES) * best else 0
        best = min(best, spent)
    seen.ending = "stable"


def _tidy() -> float:
    """Collect all garbage, and say how many seconds that took."""
    begun = time.perf_counter()
    gc.collect()
    return time.perf_counter() - begun


def _round_seconds(seen: Mapping[str, _Seen]) -> float:
    return sum(s.samples[-1] for s in seen.values() if s.samples)


def _left_text(seen: Mapping[str, _Seen], number: int, rounds: int) -> str:
    per_round = 0.0
    for one in seen.values():
        times = sorted(one.samples or one.warmup or one.first)
        per_round += times[len(times) // 2]
    return f"about {seconds_text(per_round * (rounds - number + 1))} left"


def _machine() -> Machine:
    from labkit.hardware.survey import machine_text

    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("labkit", "numpy", "tensorflow", "keras", "torch"):
        version = getattr(sys.modules.get(package), "__version__", None)
        if isinstance(version, str):
            versions[package] = version
    # Windows has no load average.
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    when = datetime.now().astimezone().isoformat(" ", "seconds")
    return Machine(machine_text(), versions, when, load, os.cpu_count() or 1)
