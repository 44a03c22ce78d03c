"""Time one program, or several in interleaved rounds.

First calls and warm-up calls come before the rounds and are kept apart. Then every candidate
runs once in each round, in an order drawn anew: when the machine slows down, speeds up or is
interrupted, that hits all candidates alike.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from statistics import median
from typing import Any, Literal

from labkit.arguments import number, one_of, whole
from labkit.kinds import LabError, seconds_text
from labkit.progress import Line
from labkit.timing import clock
from labkit.timing.judge import SAME_WITHIN
from labkit.timing.results import Comparison, Log, Machine, Run, Scaling, Timed

__all__ = ["compare", "measure"]

Work = Callable[[], object]


def measure(
    work: Work,
    *,
    rounds: int = 20,
    items: float | None = None,
    name: str | None = None,
    unit: str = "images",
    label: str = "",
    on: str = "",
    warmup: int = 2,
    time_limit: float = 60.0,
) -> Run:
    """How long a call takes: its median and quartiles, and how much is done per second.

    >>> run = measure(train_one_epoch, items=60_000)      # doctest: +SKIP
    >>> run.throughput()                                  # doctest: +SKIP

    The first call is kept apart, for it also traces, compiles and starts things; so are `warmup`
    more calls. Then come `rounds` calls that count. After `time_limit` seconds in all, the round
    in progress is the last. Ctrl-C keeps what was timed. The clock is the wall clock, and waits
    for GPUs. The environment variable LABKIT_ROUNDS sets a maximum for `rounds`.

    `items` is how many images (or other `unit`) one call processes; `label` names the data and
    `on` the devices in every table.
    """
    called = name or str(getattr(work, "__name__", "work"))
    called = "work" if called == "<lambda>" else called
    _check_callable(called, work)
    count = None if items is None else number("items", items, above=0)
    return Run(_time({called: work}, rounds, warmup, time_limit, None, on), count, unit, label)


def compare(
    works: Mapping[str, Work],
    *,
    rounds: int = 20,
    items: float | Mapping[str, float] | None = None,
    devices: Mapping[str, int] | None = None,
    scaling: Scaling | None = None,
    same_within: float = SAME_WITHIN,
    baseline: str | None = None,
    unit: str = "images",
    label: str = "",
    on: str = "",
    warmup: int = 2,
    time_limit: float = 60.0,
    seed: int | None = None,
) -> Comparison:
    """Which is faster, by how much, and how sure one can be.

    >>> result = compare({"one device": f, "two replicas": g}, items=64)   # doctest: +SKIP
    >>> print(result.verdict())                                            # doctest: +SKIP
    two replicas is slower than one device: 0.84× (95 % interval: 0.80–0.88×)

    First calls, warm-up, time limit and Ctrl-C are as in `measure`. Then in each of the `rounds`
    every candidate runs once, in an order drawn anew (`seed` repeats it), and speeds are compared
    within the round: a machine that drifts cannot fake a difference.

    The verdict on each candidate compares it with the `baseline`, by default the first one. It is
    *same* when the interval of the speed-up lies within ± `same_within` (0.01 is 1 %), *faster*
    or *slower* when the whole interval lies beyond, and otherwise *cannot tell*. Where programs
    are equal, at most 5 % of all calls of `compare` say that one differs (for all candidates
    together).

    With `devices` and `scaling` the table has an efficiency: "strong" when every candidate does
    the same work, "weak" when the work of a call grows with its devices.
    """
    if not isinstance(works, Mapping) or len(works) < 2:
        raise LabError(
            'works must be two or more functions with their names: {"one device": f, "two": g}, '
            f"got {works!r}. labkit.measure times a single one."
        )
    for name, work in works.items():
        _check_callable(name, work)
    names = list(works)
    first = names[0] if baseline is None else one_of("baseline", baseline, names)
    counts = None if items is None else _items(items, names)
    used = _devices(devices, scaling, names, counts)
    band = number("same_within", same_within, at_least=0, below=1)
    log = _time(works, rounds, warmup, time_limit, seed, on)
    return Comparison(log, first, counts, used, scaling, band, unit, label)


# --- arguments


def _check_callable(name: str, work: object) -> None:
    if not callable(work):
        raise LabError(f"{name!r} must be a function, got {work!r}. Write f, not f().")


def _items(items: Any, names: list[str]) -> dict[str, float]:
    given = items if isinstance(items, Mapping) else dict.fromkeys(names, items)
    _check_names("items", given, names)
    return {name: number(f"items of {name!r}", given[name], above=0) for name in names}


def _devices(
    devices: Any, scaling: Any, names: list[str], items: dict[str, float] | None
) -> dict[str, int] | None:
    if devices is None and scaling is None:
        return None
    one_of("scaling", scaling, ("strong", "weak"))
    _check_names("devices", devices, names)
    used = {name: whole(f"devices of {name!r}", devices[name], at_least=1) for name in names}
    if scaling == "weak" and items is None:
        raise LabError("Weak scaling needs items={...}: the images of each candidate's call.")
    work = items or {}
    share = {name: work[name] / (used[name] if scaling == "weak" else 1) for name in work}
    if share and max(share.values()) > 1.001 * min(share.values()):
        per = " per device" if scaling == "weak" else ""
        raise LabError(f"{scaling} scaling means the same work{per}, got {items} on {used}.")
    return used


def _check_names(what: str, given: Any, names: list[str]) -> None:
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise LabError(f"{what} must have a number for each of {names}, got {given!r}.")


# --- timing


def _time(
    works: Mapping[str, Work],
    rounds: int,
    warmup: int,
    time_limit: float,
    seed: int | None,
    on: str,
) -> Log:
    """Call everything as planned. Ctrl-C ends it with the complete rounds, if there is one."""
    rounds = whole("rounds", rounds, at_least=1)
    most = whole("LABKIT_ROUNDS", int(os.environ.get("LABKIT_ROUNDS") or rounds), at_least=1)
    rounds, warmup = min(rounds, most), whole("warmup", warmup)
    end = clock.now() + number("time_limit", time_limit, above=0)
    seed = random.SystemRandom().randrange(2**32) if seed is None else whole("seed", seed)
    machine, draw, names = _machine(), random.Random(seed), list(works)
    before: dict[str, list[float]] = {name: [] for name in names}  # first call and warm-up
    samples: dict[str, list[float]] = {name: [] for name in names}
    order: list[list[int]] = []
    stopped: Literal["", "by Ctrl-C", "by time_limit"] = ""
    progress = Line()
    name, where = names[0], "warm-up"
    gc.collect()
    try:
        for name in names:
            for call in range(1 + warmup):
                if call == 0 or clock.now() < end:
                    progress.show(f"{name}: {where if call else 'first call'}")
                    before[name].append(clock.seconds_of(works[name]))
        for done in range(rounds):
            if done and clock.now() >= end:
                stopped = "by time_limit"
                break
            where = f"round {done + 1} of {rounds}"
            left = sum(median(samples[name] or before[name]) for name in names)
            progress.show(f"{where}, about {seconds_text(left * (rounds - done))} left")
            order.append(draw.sample(range(len(names)), len(names)))
            for index in order[-1]:
                name = names[index]
                samples[name].append(clock.seconds_of(works[name]))
    except KeyboardInterrupt:
        if not all(samples.values()):
            raise
        stopped = "by Ctrl-C"
    except Exception as fault:
        fault.add_note(f"labkit: raised by {name!r} in {where}.")
        raise
    finally:
        progress.erase()
    timed = tuple(
        Timed(name, before[name][0], tuple(before[name][1:]), tuple(samples[name]))
        for name in names
    )
    rows = tuple(tuple(row) for row in order)
    return Log(timed, rows, rounds, stopped, machine, on, seed, os.getpid())


def _machine() -> Machine:
    from labkit.hardware.survey import machine_text

    when = datetime.now().astimezone().isoformat(" ", "seconds")
    return Machine(machine_text(), when, os.getloadavg()[0], os.cpu_count() or 1)
