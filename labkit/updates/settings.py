"""The settings of a training run, checked: how many workers, how fast each is, who waits."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labkit.arguments import number, one_of, whole
from labkit.kinds import LabError, seconds_text

MODES = {
    "sync": "synchronous",
    "async": "asynchronous",
    "ssp": "stale synchronous parallel",
}
MOST_JITTER = 3.0  # beyond, nearly all gradients take no time at all and a few take forever
MOST_NAMED = 4  # workers that differ and are named one by one
ROUNDING = 1e-9  # relative: eighteen times 0.03 s is a little more than 0.54 s in floating point


@dataclass(frozen=True)
class Settings:
    """What `simulate` and `train` have in common."""

    mode: str
    workers: int
    updates: int | None
    seconds: float | None
    compute: tuple[float, ...]
    """Mean seconds of a gradient, by worker."""
    jitter: float
    bound: int | None
    backups: int
    learning_rate: float
    seed: int

    def compute_seconds(self, worker: int, step: int) -> float:
        """Seconds of this gradient: gamma distributed around the worker's mean."""
        mean = self.compute[worker]
        if not self.jitter:
            return mean
        draw = np.random.default_rng((self.seed, worker, step))
        return float(mean * draw.gamma(1 / self.jitter**2, self.jitter**2))

    def is_over(self, updates: int, seconds: float) -> bool:
        """Whether training ends; a gradient that arrives at the last moment still counts."""
        if self.seconds is None:
            return updates >= (self.updates or 0)
        return seconds > self.seconds * (1 + ROUNDING)

    def compute_text(self) -> str:
        """How long a gradient takes, such as "30.0 ms (worker 2: 90.0 ms)", and how it varies."""
        median = sorted(self.compute)[(self.workers - 1) // 2]
        others = [
            f"worker {worker}: {seconds_text(mean)}"
            for worker, mean in enumerate(self.compute)
            if mean != median
        ]
        words = seconds_text(median) + (f" ({', '.join(others)})" if others else "")
        if len(others) > MOST_NAMED:
            words = f"{seconds_text(min(self.compute))} to {seconds_text(max(self.compute))}"
        return words + (
            f", coefficient of variation {100 * self.jitter:.0f} %" if self.jitter else ""
        )


def checked_settings(
    *,
    workers: int,
    compute: float,
    mode: str = "async",
    updates: int | None = None,
    seconds: float | None = None,
    slow: Mapping[int, float] | None = None,
    jitter: float = 0.0,
    bound: int | None = None,
    backups: int = 0,
    learning_rate: float = 0.1,
    seed: int = 0,
) -> Settings:
    """The keywords of `simulate` and `train`, checked; 100 updates if neither limit is given."""
    one_of("mode", mode, MODES)
    workers = whole("workers", workers, at_least=1, at_most=1000)
    if (mode == "ssp") != (bound is not None):
        raise LabError(f"mode='ssp' and bound= belong together, got mode={mode!r}, bound={bound}.")
    backups = whole("backups", backups, at_most=workers - 1)
    if backups and mode != "sync":
        raise LabError(f"backups= needs mode='sync', got mode={mode!r}, backups={backups}.")
    if updates is not None and seconds is not None:
        raise LabError(f"Give updates={updates!r} or seconds={seconds!r}, not both.")
    if seconds is not None:
        seconds = number("seconds", seconds, above=0)
    else:
        updates = whole("updates", 100 if updates is None else updates, at_least=1)
    if not isinstance(slow or {}, Mapping):
        raise LabError(f"slow must map workers to factors, such as slow={{0: 4.0}}, got {slow!r}.")
    means = [number("compute", compute, above=0)] * workers
    for worker, factor in (slow or {}).items():
        whole("a worker in slow", worker, at_most=workers - 1)
        means[worker] *= number(f"slow[{worker}]", factor, above=0)
    return Settings(
        mode=mode,
        workers=workers,
        updates=updates,
        seconds=seconds,
        compute=tuple(means),
        jitter=number("jitter", jitter, at_least=0, at_most=MOST_JITTER),
        bound=None if bound is None else whole("bound", bound),
        backups=backups,
        learning_rate=number("learning_rate", learning_rate, above=0),
        seed=whole("seed", seed),
    )
