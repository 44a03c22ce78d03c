"""The two questions one can ask: how long does this take, and which of these is faster.

Here the question is checked, in the asker's words; `rounds` does the timing.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from labkit.kinds import LabError
from labkit.timing.clock import Clock
from labkit.timing.judge import CONFIDENCE, SAME_WITHIN
from labkit.timing.log import Log
from labkit.timing.results import Comparison, Run, Scaling
from labkit.timing.rounds import Plan, record

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
    confidence: float = CONFIDENCE,
    warmup: int = 20,
    warmup_seconds: float = 30.0,
    deadline: float | None = None,
    _clock: Clock = time.perf_counter_ns,
) -> Run:
    """How long a call takes: its median, with an interval, and how much gets done per second.

    >>> run = measure(train_one_epoch, items=60_000)      # doctest: +SKIP
    >>> run.throughput()                                  # doctest: +SKIP

    The first call is kept apart, for it also traces, compiles and starts things. Then come
    warm-up calls, until two in a row are not 5 % faster than the best before them (at most
    `warmup` calls and `warmup_seconds`; warmup=0 for none), then `rounds` calls that count.
    The clock is the wall clock, and waits for GPUs. After `deadline` seconds the round in
    progress is the last. Ctrl-C keeps what was timed.

    `items` is how many images (or other `unit`) one call processes; `label` names the data and
    `on` the devices in every table.
    """
    _check_callable("work", work, "measure")
    _check_texts(unit=unit, label=label, on=on, name="" if name is None else name)
    called = name or str(getattr(work, "__name__", "work"))
    if called == "<lambda>":
        called = "work"
    count = None if items is None else _count("items", items)
    sure = _confidence(confidence)
    plan = _plan(rounds, warmup, warmup_seconds, deadline, 0, on)

    def made(log: Log) -> Run:
        return Run(log, count, unit, label, sure)

    return made(record({called: work}, plan, clock=_clock, keep=made))


def compare(
    works: Mapping[str, Work],
    *,
    rounds: int = 20,
    items: float | Mapping[str, float] | None = None,
    devices: Mapping[str, int] | None = None,
    scaling: Scaling | None = None,
    same_within: float = SAME_WITHIN,
    confidence: float = CONFIDENCE,
    baseline: str | None = None,
    unit: str = "images",
    label: str = "",
    on: str = "",
    warmup: int = 20,
    warmup_seconds: float = 30.0,
    deadline: float | None = None,
    seed: int | None = None,
    _clock: Clock = time.perf_counter_ns,
) -> Comparison:
    """Which is faster, by how much, and how sure one can be.

    >>> result = compare({"one device": f, "two replicas": g}, items=64)   # doctest: +SKIP
    >>> print(result.verdict())                                            # doctest: +SKIP
    two replicas is slower than one device: 0.84× (0.80–0.88×, 98 %)

    First calls and warm-up are as in `measure`. Then in each of the `rounds` every candidate
    runs once, in an order drawn anew, and speeds are compared within the round: a machine that
    drifts cannot fake a difference.

    The verdict says *same* when the interval of the speed-up lies within ± `same_within` (0.01
    is 1 %), *faster* or *slower* when it lies beyond 1, and otherwise *cannot tell*, with the
    rounds that would. The first candidate is the `baseline` unless you name another.

    With `devices` and `scaling` the table has an efficiency: "strong" when every candidate does
    the same work, "weak" when the work of a call grows with its devices.
    """
    names = _names(works)
    _check_texts(unit=unit, label=label, on=on)
    first = names[0] if baseline is None else baseline
    if first not in names:
        raise LabError(
            f"The baseline {baseline!r} is no candidate. Choose one of: {_listed(names)}."
        )
    counts, used = _items(items, names), _devices(devices, scaling, names)
    _check_scaling(scaling, counts, used)
    band, sure = _band(same_within), _confidence(confidence)
    plan = _plan(rounds, warmup, warmup_seconds, deadline, seed, on)

    def made(log: Log) -> Comparison:
        return Comparison(log, first, counts, used, scaling, band, sure, unit, label)

    return made(record(works, plan, clock=_clock, keep=made))


def _names(works: Any) -> list[str]:
    if not isinstance(works, Mapping):
        raise LabError(
            f"compare wants names and functions, and got {type(works).__name__}. "
            'Write compare({"one device": f, "two replicas": g}).'
        )
    if len(works) < 2:
        some = "nothing" if not works else f"only {_listed(works)}"
        raise LabError(
            f"compare got {some}. Give two candidates or more, or use labkit.measure for one."
        )
    for name, work in works.items():
        if not isinstance(name, str) or not name.strip():
            raise LabError(f"{name!r} is no name for a candidate. Use a short text.")
        _check_callable(repr(name), work, "compare")
    return list(works)


def _check_callable(name: str, work: object, question: str) -> None:
    if not callable(work):
        raise LabError(
            f"{name} is {_shown(work)}, not a function. Did you write f() where f is meant? "
            f"labkit.{question} calls it itself, again and again."
        )
    inner = getattr(work, "func", work)  # functools.partial
    for one in (inner, getattr(inner, "__call__", None)):  # noqa: B004 - an object's own code
        if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one):
            found = "an async function"
        elif inspect.isgeneratorfunction(one):
            found = "a generator function"
        else:
            continue
        raise LabError(
            f"{name} is {found}: calling it starts nothing, so there is nothing to time. "
            "Give a function that does the work and returns when it is done."
        )
    try:
        inspect.signature(work).bind()
    except TypeError as fault:
        raise LabError(
            f"{name} cannot be called without arguments ({fault}). Wrap it: lambda: f(x)."
        ) from None
    except ValueError:
        return  # Some built-in functions do not tell what they take.


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _plan(
    rounds: object,
    warmup: object,
    warmup_seconds: object,
    deadline: object,
    seed: Any,
    on: str,
) -> Plan:
    rounds, warmup = _whole(rounds), _whole(warmup)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise LabError(f"rounds={rounds!r} is not a whole number of at least 1. 20 is a good one.")
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise LabError(f"warmup={warmup!r} is not a whole number of calls. Use 0 for none.")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise LabError(f"seed={seed!r} is not a whole number. Give one, or leave it out.")
    most = _count("warmup_seconds", warmup_seconds)
    end = None if deadline is None else _count("deadline", deadline)
    return Plan(rounds, warmup, most, end, seed, on)


def _whole(value: Any) -> Any:
    """NumPy's whole numbers are whole numbers too; all else stays as it is."""
    return value if isinstance(value, bool) or not hasattr(value, "__index__") else int(value)


def _check_texts(**texts: object) -> None:
    """Before anything is timed: a table cannot be saved with an object for a label."""
    for what, text in texts.items():
        if not isinstance(text, str):
            raise LabError(
                f"{what}= is {_shown(text)}, not a text. "
                "Give one, such as label=data.label or on=replicas.describe()."
            )


def _band(value: object) -> float:
    if isinstance(value, (int, float)) and 0 < value < 0.5:
        return float(value)
    raise LabError(f"same_within={value!r} is not a share between 0 and 0.5. Write 0.02 for 2 %.")


def _confidence(value: object) -> float:
    if isinstance(value, (int, float)) and 0.5 <= value <= 0.9999:
        return float(value)
    raise LabError(f"confidence={value!r} is not between 0.5 and 0.9999. Write 0.95 for 95 %.")


def _count(what: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, (bool, str)) or not (math.isfinite(number) and number > 0):
        raise LabError(f"{what}={value!r} is not a number above 0. Give one, or leave it out.")
    return number


def _items(items: float | Mapping[str, float] | None, names: list[str]) -> dict[str, float] | None:
    if items is None:
        return None
    if not isinstance(items, Mapping):
        count = _count("items", items)
        return dict.fromkeys(names, count)
    _check_names("items", items, names)
    return {name: _count(f"items[{name!r}]", items[name]) for name in names}


def _devices(devices: Any, scaling: object, names: list[str]) -> dict[str, int] | None:
    if scaling not in (None, "strong", "weak"):
        raise LabError(
            f'scaling={scaling!r} is unknown. Use "strong" (every candidate does the same work) '
            'or "weak" (the work grows with the devices).'
        )
    if devices is None and scaling is None:
        return None
    if devices is None:
        raise LabError(
            f"scaling={scaling!r} needs the number of devices of each candidate. "
            f"Add devices={{{', '.join(f'{name!r}: …' for name in names)}}}."
        )
    if scaling is None:
        raise LabError(
            'devices without scaling says too little. Add scaling="strong" if every candidate '
            'does the same work, scaling="weak" if the work grows with the devices.'
        )
    if not isinstance(devices, Mapping):
        raise LabError(f"devices={devices!r} is not a dictionary from names to numbers.")
    _check_names("devices", devices, names)
    for name in names:
        number = devices[name]
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise LabError(f"devices[{name!r}]={number!r} is not a whole number of at least 1.")
    return {name: devices[name] for name in names}


def _check_names(what: str, given: Mapping[str, Any], names: list[str]) -> None:
    missing = [name for name in names if name not in given]
    extra = [name for name in given if name not in names]
    if missing or extra:
        wrong = f"lacks {_listed(missing)}" if missing else f"names {_listed(extra)}"
        raise LabError(f"{what} {wrong}; the candidates are {_listed(names)}. Give one for each.")


def _check_scaling(
    scaling: str | None, items: dict[str, float] | None, devices: dict[str, int] | None
) -> None:
    if scaling is None or items is None or devices is None:
        return
    if scaling == "strong" and len(set(items.values())) > 1:
        raise LabError(
            f"Strong scaling means the same work in every candidate, and items differ: {items}. "
            'Give one number, or scaling="weak".'
        )
    each = {items[name] / devices[name] for name in items}
    if scaling == "weak" and max(each) > 1.001 * min(each):
        raise LabError(
            f"Weak scaling means the same work per device, and items are {items} on {devices}. "
            'Let items grow with the devices, or use scaling="strong".'
        )


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)
