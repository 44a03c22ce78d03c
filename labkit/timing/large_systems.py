"""What grows with the number of devices: the wait for the slowest one, and the failures.

>>> str(expected_slowest([1.0] * 99 + [2.0], ranks=100))  # each rank is slow once in 100 steps
'1.63 s'
>>> job = mtbf(50_000 * 3600, devices=10_000)
>>> str(job), str(checkpoint_interval(job, write=60))
('5 h 0 min', '24 min 30 s')
>>> goodput(1470, mtbf=job, write=60, restart=300)
90.5 % training, 3.7 % writing checkpoints, 5.8 % lost to failures
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.arguments import number, one_of, whole
from labkit.kinds import Kind, LabError, Seconds, modelled, percent_text, seconds_text

__all__ = [
    "Goodput",
    "checkpoint_interval",
    "expected_slowest",
    "goodput",
    "mtbf",
    "simulate_failures",
]


def expected_slowest(seconds: Sequence[float], ranks: int) -> Seconds:
    """The mean time of a step in which `ranks` ranks wait for the slowest of them.

    Each rank's time is one of these, drawn independently. Of n sorted times the k-th is the
    slowest with probability (k/n)^ranks - ((k-1)/n)^ranks, so the mean is exact.
    """
    whole("ranks", ranks, at_least=1)
    times = np.sort(np.asarray(seconds, float))
    if times.ndim != 1 or not times.size or not np.isfinite(times).all():
        raise LabError(f"seconds must be a list of step times, got {seconds!r}.")
    share = (np.arange(len(times) + 1) / len(times)) ** ranks
    text = f"the slowest of {ranks:,} ranks, each with one of {len(times):,} step times"
    return Seconds(float(np.diff(share) @ times), modelled(text))


def mtbf(device: float, devices: int) -> Seconds:
    """Mean time between failures of a job that stops when one of its devices fails, in seconds."""
    number("device", device, above=0)
    text = f"MTBF of a device / {whole('devices', devices, at_least=1):,} devices"
    return Seconds(device / devices, modelled(text))


def checkpoint_interval(mtbf: float, write: float, formula: str = "young") -> Seconds:
    """Seconds of training between two checkpoints with which the least time is lost.

    "young" (1974) is the square root of 2 · mtbf · write, right while `write` is much shorter than
    `mtbf`; "daly" (2006) is the higher-order estimate.
    """
    number("mtbf", mtbf, above=0)
    first = math.sqrt(2 * mtbf * number("write", write, at_least=0))
    if one_of("formula", formula, ["young", "daly"]) == "young":
        return Seconds(first, modelled("√(2 · MTBF · write), Young 1974"))
    ratio = write / (2 * mtbf)
    better = first * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write if ratio < 1 else mtbf
    return Seconds(better, modelled("Daly 2006, higher order"))


@dataclass(frozen=True, repr=False)
class Goodput:
    """Where the time of a long job goes, as shares of 1. `training` is its goodput."""

    training: float
    writing: float
    failures: float
    """Work that is done again, checkpoints that were not finished, and restarts."""
    kind: Kind

    def __repr__(self) -> str:
        return (
            f"{percent_text(self.training)} training, {percent_text(self.writing)} writing "
            f"checkpoints, {percent_text(self.failures)} lost to failures"
        )


def goodput(interval: float, *, mtbf: float, write: float, restart: float = 0.0) -> Goodput:
    """The shares in the long run, with a checkpoint after each `interval` of training.

    Failures come at random (a Poisson process), also while a checkpoint is written or the job
    restarts. A failure costs `restart` and all work since the last finished checkpoint. An interval
    with its checkpoint then takes mtbf · exp(restart/mtbf) · (exp((interval+write)/mtbf) - 1) on
    average (Daly 2006).
    """
    kind = modelled(f"{_costs(interval, mtbf, write, restart)}; Daly's closed form")
    failed = min((interval + write) / mtbf, 700.0)  # beyond it, exp is too large for a float
    each = math.exp(-restart / mtbf) / mtbf / math.expm1(failed)
    training, writing = interval * each, write * each
    return Goodput(training, writing, 1 - training - writing, kind)


def simulate_failures(
    interval: float,
    *,
    mtbf: float,
    write: float,
    restart: float = 0.0,
    failures: int = 10_000,
    seed: int = 0,
) -> Goodput:
    """The shares of one job with so many failures, one after the other, at random times."""
    text = f"{_costs(interval, mtbf, write, restart)}; {failures:,} failures simulated, seed {seed}"
    dice = random.Random(seed)
    count, total = 0, 0.0
    for _ in range(whole("failures", failures, at_least=1)):
        until_failure = dice.expovariate(1 / mtbf)
        # From the failure before: the restart, then whole intervals, then work that is lost.
        count += int(max(until_failure - restart, 0.0) // (interval + write))
        total += until_failure
    training, writing = count * interval / total, count * write / total
    return Goodput(training, writing, 1 - training - writing, modelled(text))


def _costs(interval: float, mtbf: float, write: float, restart: float) -> str:
    """The costs in words, once they are numbers that can be."""
    number("interval", interval, above=0)
    number("mtbf", mtbf, above=0)
    number("write", write, at_least=0)
    number("restart", restart, at_least=0)
    times = [seconds_text(each) for each in (mtbf, write, restart)]
    return f"MTBF {times[0]}, {times[1]} for a checkpoint, {times[2]} for a restart"
