"""Amdahl's and Gustafson's laws, and the serial share that measured times speak for.

With n devices a step of fixed size takes T(n) = S + P/n. The serial share is f = S / (S + P), and
so the speed-up is 1 / (f + (1 - f)/n), below 1/f for any number of devices (Amdahl, 1967). If the
work grows with n, the part of the time on n devices that is serial, g, gives n - g·(n - 1)
(Gustafson, 1988). Both describe the same run, with different shares.

>>> round(amdahl(0.05, 16), 2), round(gustafson(0.05, 16), 2)
(9.14, 15.25)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.kinds import Kind, LabError, measured, percent_text
from labkit.timing.intervals import Interval, least_rounds, shift

if TYPE_CHECKING:
    import numpy as np

    from labkit.views.figure import Picture

CONFIDENCE = 0.95
WIDE = 0.3  # an interval of the serial share that is wider says too little
ZERO = 1e-9


def amdahl(serial: float, devices: float) -> float:
    """Returns the speed-up of work of a fixed size, of which the share `serial` is serial."""
    return 1 / (serial + (1 - serial) / devices)


def gustafson(serial: float, devices: float) -> float:
    """Returns the speed-up of work that grows; `serial` is a share of the time on all devices."""
    return devices - serial * (devices - 1)


@dataclass(frozen=True, repr=False)
class AmdahlFit:
    """The serial share of measured times, with an interval, and whether the law describes them."""

    share: Interval
    misfit: Interval | None
    """Measured over fitted time of the most devices, less 1; None where two counts leave none."""
    times: Mapping[int, float]
    """The middle time of each number of devices, in seconds."""
    rounds: int
    kind: Kind

    @property
    def verdict(self) -> str:
        """What the interval allows to say, in a sentence."""
        low, high = self.share.low, self.share.high
        enough = self.share.confidence >= CONFIDENCE
        if not enough or not math.isfinite(high - low) or high - low > WIDE:
            why = "the interval is wide" if enough else f"{self.rounds} rounds are too few"
            return f"Cannot tell: {why}, from {_percent(low)} to {_percent(high)} serial."
        if low > 1:
            return "More devices are slower: what they add is more than what they save."
        text = f"From {_percent(low)} to {_percent(high)} of a step on one device is serial"
        least = 1 / high if high > 0 else math.inf
        most = f"{1 / low:.1f}" if low > ZERO else "infinity"
        text += f", so that no number of devices is more than {least:.1f} to {most} times as fast."
        if self.misfit and self.misfit.low > 0:
            text += " But the most devices took longer than the law says: what is added grows."
        return text

    def __repr__(self) -> str:
        return f"Serial share {_percent(self.share.value)}. {self.verdict} ({self.kind})"

    def picture(self) -> Picture:
        """The measured speed-ups, the fitted law, and its interval."""
        from labkit.views.figure import figure, legend_below, look, picture, style

        counts = sorted(self.times)
        upto = [1 + step * (2 * counts[-1] - 1) / 60 for step in range(61)]
        with style():
            chart = figure(7, 3.6)
            axes = chart.add_subplot(xlabel="devices", ylabel="speed-up")
            axes.plot(upto, upto, color="black", marker="", linestyle=":", label="without any loss")
            curve = look(0)
            low, high = (max(0.0, min(1.0, end)) for end in (self.share.low, self.share.high))
            axes.fill_between(
                upto, [amdahl(high, n) for n in upto], [amdahl(low, n) for n in upto],
                color=curve.color, alpha=0.2, label="Amdahl, interval",
            )  # fmt: skip
            axes.plot(upto, [amdahl(max(self.share.value, 0.0), n) for n in upto],
                      color=curve.color, marker="", label="Amdahl, fitted")  # fmt: skip
            speedups = [self.times[counts[0]] / self.times[n] for n in counts]
            measured_look = look(1)
            axes.plot(counts, speedups, color=measured_look.color, marker=measured_look.marker,
                      linestyle="", markersize=9, label="measured")  # fmt: skip
            axes.set_ylim(0, min(2 * counts[-1], max(3.0, 2 * max(speedups))))
            legend_below(chart, axes)
        shown = ", ".join(f"{s:.2f} with {n}" for n, s in zip(counts, speedups, strict=True))
        return picture(
            chart, f"Speed-ups against devices, measured: {shown}. {self.verdict}", self.kind
        )


def fit(times: Mapping[int, Sequence[float]], on: str = "") -> AmdahlFit:
    """Fit Amdahl's law to times of rounds: `times[n]` are seconds with n devices, one a round.

    In each round all numbers of devices were timed one after the other, so each round gives a
    serial share of its own, by least squares on relative errors. The interval is of these shares,
    by the same test as of two programs. With six rounds or more it holds the true share in 95 of
    100 cases, if rounds scatter alike to both sides.
    """
    import numpy as np

    counts = sorted(times)
    rounds = {len(times[n]) for n in counts}
    if len(counts) < 2 or counts[0] != 1 or len(rounds) != 1 or 0 in rounds:
        raise LabError(
            "A fit needs the times of one device and of more, as many of each: "
            "limits.fit({1: [0.20, 0.21, …], 2: [0.12, 0.12, …]})."
        )
    seconds = np.array([times[n] for n in counts], dtype=float)
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise LabError("Times are seconds above 0; one of these is not.")
    shares, predicted = _per_round(np.array(counts), seconds)
    last = seconds[-1] / predicted[-1] - 1
    middle = {n: float(np.median(row)) for n, row in zip(counts, seconds, strict=True)}
    count = seconds.shape[1]
    return AmdahlFit(
        shift([*shares], CONFIDENCE),
        shift([*last], CONFIDENCE) if len(counts) > 2 and count >= least_rounds(0.9) else None,
        middle, count, measured(on or f"{counts[-1]} devices of this machine"),
    )  # fmt: skip


def _per_round(counts: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Serial shares and fitted times of each column: S + P/n with the least relative errors."""
    ones, inverse = 1 / seconds, 1 / (counts[:, None] * seconds)  # both sides divided by T(n)
    a, b, c = (ones * ones).sum(0), (ones * inverse).sum(0), (inverse * inverse).sum(0)
    x, y = ones.sum(0), inverse.sum(0)
    scale = a * c - b * b
    serial, divided = (x * c - y * b) / scale, (y * a - x * b) / scale
    return serial / (serial + divided), serial + divided / counts[:, None]


def _percent(share: float) -> str:
    return percent_text(share) if share >= 0 else f"−{percent_text(-share)}"
