"""What may be asked of a training with many writers, checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from labkit.kinds import LabError
from labkit.updates.record import MODES

__all__ = ["UPDATES", "Plan", "number", "plan", "whole"]

UPDATES = 100  # if nobody says how long


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
        if not self.jitter:
            return usual
        import numpy as np

        draw = np.random.default_rng((self.seed, worker, step))
        return usual * float(draw.gamma(1 / self.jitter**2, self.jitter**2))

    def over(self, updates: int, seconds: float) -> bool:
        """Whether all is done; what comes in at the last moment still counts."""
        done = self.updates is not None and updates >= self.updates
        return done or (self.seconds is not None and seconds > self.seconds)


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
    if mode not in MODES:
        raise LabError(f"There is no mode {mode!r}. Take 'sync', 'async' or 'bounded'.")
    workers = whole("workers", workers, 1, 4)
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
            f"for an update. Take backups={workers - 1} or fewer."
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
        number("jitter", jitter, 0.2),
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
    factors = {who: number(f"slow[{who}]", factor, 4.0) for who, factor in slow.items()}
    return tuple(usual * factors.get(worker, 1.0) for worker in range(workers))


def whole(what: str, value: Any, least: int, example: int) -> int:
    """A whole number from `least` on; NumPy's count too.

    >>> whole("workers", 4, 1, 4)
    4
    """
    found = None if isinstance(value, bool) else getattr(value, "__index__", None)
    if found is None or found() < least:
        raise LabError(
            f"{what}={value!r} is not a whole number from {least} on. Try {what}={example}."
        )
    return int(found())


def number(what: str, value: Any, example: float, *, above: bool = False) -> float:
    """A finite number from 0 on, or above it."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1e12:
        good = False
    else:
        good = float(value) > 0 or not above
    if not good:
        least = "above 0" if above else "from 0 on"
        raise LabError(f"{what}={value!r} is not a number {least}. Try {what}={example}.")
    return float(value)
