"""The settings of a training run, checked: how many workers, how fast each is, who waits."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

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
    """What `simulate` and `train` have in common, checked; 100 updates if no end is given."""

    workers: int
    compute: float  # mean seconds of a gradient
    mode: str = "async"
    updates: int | None = None
    seconds: float | None = None
    slow: Mapping[int, float] | None = None  # by worker, a factor of `compute`
    jitter: float = 0.0
    bound: int | None = None
    backups: int = 0
    learning_rate: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        mode, bound, backups = self.mode, self.bound, self.backups
        one_of("mode", mode, MODES)
        whole("workers", self.workers, at_least=1, at_most=1000)
        if (mode == "ssp") != (bound is not None):
            text = f"got mode={mode!r}, bound={bound}."
            raise LabError(f"mode='ssp' and bound= belong together, {text}")
        whole("bound", bound or 0)
        if whole("backups", backups, at_most=self.workers - 1) and mode != "sync":
            raise LabError(f"backups= needs mode='sync', got mode={mode!r}, backups={backups}.")
        if self.updates is not None and self.seconds is not None:
            text = f"Give updates={self.updates!r} or seconds={self.seconds!r}, not both."
            raise LabError(text)
        if self.seconds is not None:
            number("seconds", self.seconds, above=0)
        else:
            updates = whole("updates", 100 if self.updates is None else self.updates, at_least=1)
            object.__setattr__(self, "updates", updates)
        slow: object = self.slow or {}
        if not isinstance(slow, Mapping):
            like = "slow must map workers to factors, such as slow={0: 4.0}"
            raise LabError(f"{like}, got {self.slow!r}.")
        number("compute", self.compute, above=0)
        for worker, factor in slow.items():
            whole("a worker in slow", worker, at_most=self.workers - 1)
            number(f"slow[{worker}]", factor, above=0)
        number("jitter", self.jitter, at_least=0, at_most=MOST_JITTER)
        number("learning_rate", self.learning_rate, above=0)
        whole("seed", self.seed)

    @cached_property
    def means(self) -> tuple[float, ...]:
        """Mean seconds of a gradient, by worker."""
        slow = self.slow or {}
        return tuple(self.compute * slow.get(worker, 1) for worker in range(self.workers))

    def compute_seconds(self, worker: int, step: int) -> float:
        """Returns the seconds of this gradient, gamma distributed around the worker's mean."""
        mean = self.means[worker]
        if not self.jitter:
            return mean
        draw = np.random.default_rng((self.seed, worker, step))
        return float(mean * draw.gamma(1 / self.jitter**2, self.jitter**2))

    def is_over(self, updates: int, seconds: float) -> bool:
        """Returns whether training ends; a gradient that arrives just in time still counts."""
        if self.seconds is None:
            return updates >= (self.updates or 0)
        return seconds > self.seconds * (1 + ROUNDING)

    def compute_text(self) -> str:
        """Returns how long a gradient takes, such as "30.0 ms (worker 2: 90.0 ms)", and how it
        varies.
        """
        median = sorted(self.means)[(self.workers - 1) // 2]
        others = [
            f"worker {worker}: {seconds_text(mean)}"
            for worker, mean in enumerate(self.means)
            if mean != median
        ]
        words = seconds_text(median) + (f" ({', '.join(others)})" if others else "")
        if len(others) > MOST_NAMED:
            words = f"{seconds_text(min(self.means))} to {seconds_text(max(self.means))}"
        return words + (
            f", coefficient of variation {100 * self.jitter:.0f} %" if self.jitter else ""
        )
