"""Time one program, or several in interleaved rounds.

First calls and warm-up calls come before the rounds and are kept apart. Then every program
runs once in each round, in an order drawn anew: when the machine slows down, speeds up or is
interrupted, that hits all programs alike.
"""

import gc
import os
import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from labkit.arguments import number, one_of, whole
from labkit.hardware import machine, machine_text
from labkit.kinds import LabError, measured, seconds_text
from labkit.progress import ProgressLine
from labkit.timing import wall_clock
from labkit.timing.results import Scaling, Timed, Timings

LOOK, BUSY = 0.05, 0.25  # seconds before the first call; the share of all cores

Work = Callable[[], object]


def measure(
    work: Work, *, rounds: int = 20, items: float | None = None, name: str | None = None,
    unit: str = "images", label: str = "", on: str = "", warmup: int = 2, time_limit: float = 60.0,
) -> Timings:  # fmt: skip
    """Time a call. Returns its median and quartiles, and its throughput.

    >>> run = measure(train_one_epoch, items=60_000)      # doctest: +SKIP
    >>> run.throughput()                                  # doctest: +SKIP

    The first call is kept apart, for it also traces, compiles and starts things; `warmup` more
    calls are not kept. Then come `rounds` calls that count. After `time_limit` seconds in all, the
    round in progress is the last. Ctrl-C keeps what was timed. The clock is the wall clock, and
    waits for GPUs. The variable LABKIT_ROUNDS sets a maximum for `rounds` and `warmup`.

    `items` is how many images (or other `unit`) one call processes; `label` names the data and
    `on` the devices in every table.
    """
    called = str(name or getattr(work, "__name__", "work")).replace("<lambda>", "work")
    amount = None if items is None else number("items", items, above=0)
    samples, notes = _time({called: work}, rounds, warmup, time_limit, None)
    timed = (Timed(called, *samples[called], amount, 1),)
    return Timings(timed, called, None, unit, label, measured(on or machine_text()), notes)


def compare(
    works: Mapping[str, Work], *, rounds: int = 20,
    items: float | Mapping[str, float] | None = None, devices: Mapping[str, int] | None = None,
    scaling: Scaling | None = None, baseline: str | None = None, unit: str = "images",
    label: str = "", on: str = "", warmup: int = 2, time_limit: float = 60.0,
    seed: int | None = None,
) -> Timings:  # fmt: skip
    """Time programs in turns. Returns which is faster, by how much, and how certain that is.

    >>> result = compare({"one device": f, "two replicas": g}, items=64)   # doctest: +SKIP
    >>> print(result.verdict())                                            # doctest: +SKIP
    two replicas is slower than one device: 0.84× (95 % interval: 0.80–0.88×)

    First calls, warm-up, time limit and Ctrl-C are as in `measure`. Then in each of the `rounds`
    every program runs once, in an order drawn anew (`seed` repeats it), and speeds are compared
    within the round: a machine that drifts cannot fake a difference.

    The verdict on each program compares it with the `baseline`, by default the first one. It is
    *same* when the interval of the speed-up lies within ± 0.5 %, *faster* or *slower* when the
    whole interval lies beyond, and otherwise *cannot tell*. Where programs are equal, at most 5 %
    of all calls of `compare` say that one differs (for all programs together).

    With `devices` and `scaling` the table has an efficiency: "strong" when every program does
    the same work, "weak" when the work of a call grows with its devices.
    """
    if isinstance(works, Mapping):
        works = {str(name): work for name, work in works.items()}
    if not isinstance(works, Mapping) or len(works) < 2:
        raise LabError(
            'works must be two or more functions with their names: {"one device": f, "two": g}, '
            f"got {works!r}. labkit.measure times a single one."
        )
    names = list(works)
    first = names[0] if baseline is None else one_of("baseline", str(baseline), names)
    counts = _numbers("items", 1 if items is None else items, names)
    used = dict.fromkeys(names, 1.0)
    if devices is not None or scaling is not None:
        one_of("scaling", scaling, ("strong", "weak"))
        used = _numbers("devices", devices, names)
        share = [counts[name] / (used[name] if scaling == "weak" else 1) for name in names]
        if max(share) > 1.001 * min(share):
            work = "work per device" if scaling == "weak" else "work"
            raise LabError(
                f"{scaling} scaling means the same {work}, got items={items}, devices={devices}."
            )
    samples, notes = _time(works, rounds, warmup, time_limit, seed)
    timed = tuple(
        Timed(name, *samples[name], None if items is None else counts[name], used[name])
        for name in names
    )
    return Timings(timed, first, scaling, unit, label, measured(on or machine_text()), notes)


def _numbers(what: str, given: Any, names: list[str]) -> dict[str, float]:
    """Returns a positive number for each program: one for all of them, or each its own."""
    each = dict.fromkeys(names, given)
    if isinstance(given, Mapping):
        each = {str(name): value for name, value in given.items()}
    if set(each) != set(names):
        raise LabError(f"{what} must have a number for each of {names}, got {given!r}.")
    return {name: number(f"{what} of {name!r}", each[name], above=0) for name in names}


def _most_rounds() -> int:
    """Returns LABKIT_ROUNDS, or 0 if it is not set."""
    given = os.environ.get("LABKIT_ROUNDS") or "0"
    return whole("LABKIT_ROUNDS", int(given) if given.isdecimal() else given)


def _time(
    works: Mapping[str, Work], rounds: int, warmup: int, time_limit: float, seed: int | None
) -> tuple[dict[str, tuple[float, tuple[float, ...]]], tuple[str, ...]]:
    """Returns first calls, rounds and notes of all programs. Ctrl-C keeps complete rounds."""
    for name, work in works.items():
        if not callable(work):
            raise LabError(f"{name!r} must be a function, got {work!r}. Write f, not f().")
    rounds, warmup = whole("rounds", rounds, at_least=1), whole("warmup", warmup)
    most = _most_rounds() or max(rounds, warmup)
    rounds, warmup = min(rounds, most), min(warmup, most)
    end = wall_clock.now() + number("time_limit", time_limit, above=0)
    draw = random.Random(None if seed is None else whole("seed", seed))
    load, names = machine.busy(LOOK), list(works)
    before: dict[str, list[float]] = {name: [] for name in names}  # first call and warm-up
    samples: dict[str, list[float]] = {name: [] for name in names}
    stopped, progress = "", ProgressLine()
    name, where = names[0], "warm-up"
    gc.collect()
    try:
        for name in names:
            for call in range(1 + warmup):
                if call == 0 or wall_clock.now() < end:
                    progress.show(f"{name}: {where if call else 'first call'}")
                    before[name].append(wall_clock.seconds_of(works[name]))
        for done in range(rounds):
            if done and wall_clock.now() >= end:
                stopped = "at the time limit"
                break
            where = f"round {done + 1} of {rounds}"
            left = sum(median(samples[name] or before[name]) for name in names)
            progress.show(f"{where}, about {seconds_text(left * (rounds - done))} left")
            for name in draw.sample(names, len(names)):
                samples[name].append(wall_clock.seconds_of(works[name]))
    except KeyboardInterrupt:
        if not all(samples.values()):
            raise
        stopped = "by Ctrl-C"
    except Exception as fault:
        fault.add_note(f"labkit: raised by {name!r} in {where}.")
        raise
    finally:
        progress.erase()
    complete = min(map(len, samples.values()))
    timed = {name: (before[name][0], tuple(samples[name][:complete])) for name in names}
    notes = [f"Stopped {stopped} after {complete} of {rounds} rounds."] if stopped else []
    return timed, (*notes, *_notes(samples, load))


def _notes(samples: Mapping[str, Sequence[float]], load: float) -> list[str]:
    """Returns what spoils a measurement."""
    notes = []
    if short := [name for name, seconds in samples.items() if median(seconds) < 20e-6]:
        called = ", ".join(map(repr, short))
        notes.append(
            f"A call of {called} costs little more than the clock itself: put a loop into it."
        )
    if load > BUSY:
        notes.append(
            f"The machine was busy before the start ({100 * load:.0f} % of its cores). "
            "Stop other programs for narrower intervals."
        )
    return notes
