"""What may be asked of a training with many writers, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from typing import Any

from labkit.kinds import LabError, seconds_text
from labkit.updates.record import MODES

__all__ = ["UPDATES", "Plan", "none_made", "number", "plan", "speeds_text", "whole"]

UPDATES = 100  # if nobody says how long
WORKERS = 1000  # more than a picture can show, or a class can wait for
SPREAD = 3.0  # jitter: beyond it nearly all gradients take no time at all, and a few for ever
SAID = 4  # workers that are named one by one
LONG = 60  # letters of a wrong value that are shown
ROUNDING = 1e-9  # of a moment: sums of 0.03 s do not meet 0.54 s to the last bit


@dataclass(frozen=True)
class Plan:
    """Who takes part, how quick each is, and who waits for whom."""

    mode: str
    workers: int
    updates: int | None
    seconds: float | None
    compute: tuple[float, ...]
    """Seconds for a gradient, worker by worker."""
    bound: int | None
    backups: int
    learning_rate: float
    seed: int
    jitter: float = 0.0

    @property
    def quorum(self) -> int:
        """Gradients that make a synchronous update."""
        return self.workers - self.backups

    def work(self, worker: int, step: int) -> float:
        """Seconds for this gradient: gamma distributed, never negative, with the mean asked for."""
        usual = self.compute[worker]
        if self.jitter < ROUNDING:
            return usual
        return usual * _chance(self.jitter, self.seed, worker, step)

    def over(self, updates: int, seconds: float) -> bool:
        """Whether all is done; what comes in at the last moment still counts."""
        done = self.updates is not None and updates >= self.updates
        return done or (self.seconds is not None and seconds > self.seconds * (1 + ROUNDING))


def plan(
    *,
    mode: Any,
    workers: Any,
    updates: Any,
    seconds: Any,
    compute: Any,
    slow: Any,
    bound: Any,
    backups: Any,
    learning_rate: Any,
    seed: Any,
    jitter: Any,
) -> Plan:
    """The keywords of `simulate` and `train`, checked against one another."""
    if not isinstance(mode, str) or mode not in MODES:
        raise LabError(f"There is no mode {mode!r}. Take 'sync', 'async' or 'bounded'.")
    workers = whole("workers", workers, 1, 4, WORKERS)
    if (mode == "bounded") != (bound is not None):
        raise LabError(
            f"mode={mode!r} with bound={bound!r} is only half a wish: a bound belongs to "
            "mode='bounded', and that needs one, such as bound=2."
        )
    backups = whole("backups", backups, 0, 1)
    if backups and mode != "sync":
        raise LabError(
            f"backups={backups} with mode={mode!r}: only synchronous updates have a round in which "
            "somebody can come too late. Take mode='sync'."
        )
    if backups >= workers:
        raise LabError(
            f"{backups} of {workers} workers cannot be backups: at least one gradient is needed "
            f"for an update. Take backups={workers - 1}, or workers={backups + 1} or more."
        )
    if updates is not None and seconds is not None:
        raise LabError(f"Give updates={updates!r} or seconds={seconds!r}, not both.")
    if seconds is not None:
        seconds = number("seconds", seconds, 30.0, above=True)
    else:
        updates = UPDATES if updates is None else whole("updates", updates, 1, UPDATES)
    return Plan(
        mode,
        workers,
        updates,
        seconds,
        _speeds(workers, compute, slow),
        None if bound is None else whole("bound", bound, 0, 2),
        backups,
        number("learning_rate", learning_rate, 0.1, above=True),
        whole("seed", seed, 0, 0),
        number("jitter", jitter, 0.2, most=SPREAD),
    )


def _speeds(workers: int, compute: Any, slow: Any) -> tuple[float, ...]:
    usual = number("compute", compute, 1.0)
    slow = {} if slow is None else slow
    if not isinstance(slow, Mapping):
        raise LabError(
            f"slow={slow!r} does not say who is slow. Take a worker and a factor, such as "
            f"slow={{{workers - 1}: 4.0}}."
        )
    for worker in slow:
        if isinstance(worker, bool) or worker not in range(workers):
            raise LabError(
                f"There is no worker {worker!r} to be slow: they are 0 to {workers - 1}."
            )
    factors = {who: number(f"slow[{who}]", factor, 4.0, above=True) for who, factor in slow.items()}
    return tuple(usual * factors.get(worker, 1.0) for worker in range(workers))


# Runs that differ in their learning rate only, as in a lecture, have the same times.
@lru_cache(maxsize=50_000)
def _chance(jitter: float, seed: int, worker: int, step: int) -> float:
    import numpy as np

    draw = np.random.default_rng((seed, worker, step))
    return float(draw.gamma(1 / jitter**2, jitter**2))


def none_made(seconds: float | None) -> LabError:
    """What to say of a time in which nothing was done."""
    given = "this time" if seconds is None else f"seconds={seconds:g}"
    return LabError(
        f"Not one update was made within {given}: the first one takes longer. "
        "Give it more seconds, or ask for updates=10."
    )


def speeds_text(compute: tuple[float, ...]) -> str:
    """How long a gradient takes, and who is different.

    >>> speeds_text((0.03, 0.03, 0.09))
    '30.0 ms (worker 2: 90.0 ms)'
    """
    usual = sorted(compute)[(len(compute) - 1) // 2]
    apart = [f"worker {w}: {seconds_text(s)}" for w, s in enumerate(compute) if s != usual]
    if len(apart) > SAID:
        apart = [*apart[:SAID], f"{len(apart) - SAID} more are different"]
    return seconds_text(usual) + (f" ({', '.join(apart)})" if apart else "")


def whole(what: str, value: Any, least: int, example: int, most: int | None = None) -> int:
    """A whole number from `least` on, or to `most`; NumPy's count too.

    >>> whole("workers", 4, 1, 4)
    4
    """
    found = None if isinstance(value, bool) else getattr(value, "__index__", None)
    large = found is not None and most is not None and found() > most
    if found is None or large or found() < least:
        upto = f"to {most:,}" if large else "on"
        raise LabError(
            f"{what}={_cut(value)} is not a whole number from {least} {upto}. Try {what}={example}."
        )
    return int(found())


def number(
    what: str, value: Any, example: float, *, above: bool = False, most: float = 1e12
) -> float:
    """A number from 0 to `most`, or above 0."""
    good = isinstance(value, Real) and not isinstance(value, bool)
    if not good or not 0 <= value <= most or (above and not value):
        least = "above 0" if above else "from 0 on"
        upto = f", up to {most:g}" if good and value > most else ""
        raise LabError(f"{what}={_cut(value)} is not a number {least}{upto}. Try {what}={example}.")
    return float(value)


def _cut(value: Any) -> str:
    """As Python writes it, but not a page of it."""
    try:
        words = repr(value)
    except ValueError:  # a whole number of more digits than Python prints
        return "a number of thousands of digits"
    return words if len(words) <= LONG else f"{words[:LONG]}…"
