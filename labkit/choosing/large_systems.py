"""Costs that grow with the number of devices: waiting for the slowest, and failures.

>>> str(expected_slowest([1.0] * 99 + [2.0], ranks=100))  # each rank is slow once in 100 steps
'1.63 s'
>>> str(checkpoint_interval(mtbf=5 * 3600, write=60))
'24 min 30 s'
>>> goodput(1470, mtbf=5 * 3600, write=60, restart=300)
90.5 % training, 3.7 % writing checkpoints, 5.8 % lost to failures
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.arguments import number, numbers, whole
from labkit.kinds import Kind, Seconds, modelled, percent_text, seconds_text


def expected_slowest(seconds: Sequence[float], ranks: int) -> Seconds:
    """Returns the mean time of a step in which `ranks` ranks wait for the slowest of them.

    Each rank's time is one of these, drawn independently. Of n sorted times the k-th is the
    slowest with probability (k/n)^ranks - ((k-1)/n)^ranks, so the mean is exact.
    """
    whole("ranks", ranks, at_least=1)
    seconds = numbers("seconds", seconds, at_least=0)
    share = (np.arange(len(seconds) + 1) / len(seconds)) ** ranks  # (n + 1,), from 0 to 1
    text = f"the slowest of {ranks:,} ranks, each with one of {len(seconds):,} step times"
    return Seconds(float(np.diff(share) @ np.sort(seconds)), modelled(text))  # (n,) @ (n,)


def checkpoint_interval(mtbf: float, write: float) -> Seconds:
    """Returns the seconds between two checkpoints (Young 1974), for `write` far below `mtbf`."""
    number("mtbf", mtbf, above=0)
    best = math.sqrt(2 * mtbf * number("write", write, at_least=0))
    return Seconds(best, modelled("√(2 · MTBF · write), Young 1974"))


@dataclass(frozen=True, repr=False)
class Goodput:
    """Shares of the time of a long job; `failures`: repeated work, lost writing, and restarts."""

    training: float
    writing: float
    failures: float
    kind: Kind

    def __repr__(self) -> str:
        return (
            f"{percent_text(self.training)} training, {percent_text(self.writing)} writing "
            f"checkpoints, {percent_text(self.failures)} lost to failures"
        )


def goodput(interval: float, *, mtbf: float, write: float, restart: float = 0.0) -> Goodput:
    """Returns the shares in the long run, with a checkpoint after each `interval` of training.

    Failures come at random (a Poisson process), also while a checkpoint is written or the job
    restarts. A failure costs `restart` and all work since the last finished checkpoint. An interval
    with its checkpoint then takes mtbf · exp(restart/mtbf) · (exp((interval+write)/mtbf) - 1) on
    average (Daly 2006).
    """
    costs = _costs(interval, write, restart)
    failed = (interval + write) / number("mtbf", mtbf, above=0)
    # 1 / (exp(x) - 1), where exp(x) may be too large for a float.
    each = math.exp(-restart / mtbf - failed) / mtbf / -math.expm1(-failed)
    text = f"MTBF {seconds_text(mtbf)}, {costs}; Daly's closed form"
    training, writing = interval * each, write * each
    return Goodput(training, writing, 1 - training - writing, modelled(text))


def simulate_failures(
    interval: float, gaps: Sequence[float], *, write: float, restart: float = 0.0
) -> Goodput:
    """Returns the shares of a job with these seconds from each failure to the next."""
    costs = _costs(interval, write, restart)
    gaps = numbers("gaps", gaps, above=0)
    # The restart, then whole intervals with their checkpoints, then work that is lost.
    finished = sum(max(gap - restart, 0.0) // (interval + write) for gap in gaps)
    training, writing = finished * interval / sum(gaps), finished * write / sum(gaps)
    text = f"{len(gaps):,} failures at given times, {costs}"
    return Goodput(training, writing, 1 - training - writing, modelled(text))


def _costs(interval: float, write: float, restart: float) -> str:
    """Returns the costs in words, and refuses impossible numbers."""
    number("interval", interval, above=0)
    times = [seconds_text(number("write and restart", one, at_least=0)) for one in (write, restart)]
    return f"{times[0]} for a checkpoint, {times[1]} for a restart"
