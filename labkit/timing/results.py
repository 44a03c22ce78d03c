"""What `measure` and `compare` give back: raw samples, and every number computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from labkit import plain
from labkit.kinds import Kind, LabError
from labkit.timing.estimate import Estimate
from labkit.timing.intervals import median
from labkit.timing.judge import Verdict, judge
from labkit.timing.log import Log

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Comparison", "Run", "Scaling", "load"]

Scaling = Literal["strong", "weak"]
T = TypeVar("T")


@plain.stored
@dataclass(frozen=True, repr=False)
class Run:
    """Timed calls of one thing. Name it in a cell to see its table."""

    log: Log
    items: float | None
    unit: str
    label: str
    confidence: float

    @property
    def name(self) -> str:
        """What was timed."""
        return self.log.timed[0].name

    @property
    def kind(self) -> Kind:
        """Measured today on this machine, or recorded elsewhere or earlier."""
        return self.log.kind

    @property
    def samples(self) -> tuple[float, ...]:
        """Seconds of every call after the warm-up."""
        return self.log.timed[0].samples

    @property
    def first(self) -> float:
        """Seconds of the first call, which traces, compiles and starts what it needs."""
        return self.log.timed[0].first[0]

    def seconds(self) -> Estimate:
        """The median of a call."""
        return _seconds(self.samples, self.confidence, self.kind)

    def throughput(self) -> Estimate:
        """Images (or what `items` counts) per second."""
        return _throughput(self.seconds(), self.items, self.unit)

    def __repr__(self) -> str:
        return f"Run({self.name}, {len(self.samples)} rounds)"

    def __str__(self) -> str:
        from labkit.timing import report

        return report.run_text(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.timing import report

        return {"text/plain": str(self), "text/html": report.run_html(self)}

    def plot(self) -> Picture:
        """Every sample as a dot, the median and its interval."""
        from labkit.timing import report

        return report.run_picture(self)

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples included, to a JSON file; `labkit.timing.load` reads it."""
        plain.write(path, self)


@plain.stored
@dataclass(frozen=True, repr=False)
class Comparison:
    """Several programs timed in the same rounds, and what can be said about them.

    Every estimate is computed from the raw samples in `log` when you ask for it.
    """

    log: Log
    baseline: str
    items: dict[str, float] | None
    devices: dict[str, int] | None
    scaling: Scaling | None
    same_within: float
    confidence: float
    unit: str
    label: str

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates, in the order given."""
        return tuple(one.name for one in self.log.timed)

    @property
    def rounds(self) -> int:
        """Complete rounds."""
        return self.log.rounds

    @property
    def kind(self) -> Kind:
        """Measured today on this machine, or recorded elsewhere or earlier."""
        return self.log.kind

    def seconds(self, name: str | None = None) -> Estimate:
        """The median of a call."""
        return _seconds(self.log.samples(self._named(name)), self.confidence, self.kind)

    def throughput(self, name: str | None = None) -> Estimate:
        """Images (or what `items` counts) per second."""
        name = self._named(name)
        return _throughput(
            self.seconds(name), None if self.items is None else self.items[name], self.unit
        )

    def first(self, name: str | None = None) -> float:
        """Seconds of the first call, which traces, compiles and starts what it needs."""
        return self.log.of(self._named(name)).first[0]

    def verdict(self, name: str | None = None, over: str | None = None) -> Verdict:
        """Whether `name` is faster than `over`, by default than the baseline.

        With two candidates you may leave out the name.
        """
        name, over = self._named(name), self._named(over) if over else self.baseline
        if name == over:
            raise LabError(f"{name!r} cannot be compared with itself. Give another name.")
        return judge(
            name,
            over,
            self._log_ratios(name, over),
            same_within=self.same_within,
            confidence=self.confidence,
            kind=self.kind,
            doubt=self.log.doubt(name, over),
        )

    def speedup(self, name: str | None = None, over: str | None = None) -> Estimate:
        """How many times as much work per second as the baseline, paired by round.

        Above 1 is faster. With weak scaling the work per call differs, and is counted.
        """
        return self.verdict(name, over).estimate

    def efficiency(self, name: str | None = None) -> Estimate:
        """The speed-up as a share of the ideal one: 1 when twice the devices do twice the work."""
        if self.devices is None or self.scaling is None:
            raise LabError(
                "Efficiency needs to know how many devices each candidate used and which scaling "
                'is meant. Compare with devices={…} and scaling="strong" (same work in all) or '
                '"weak" (work grows with the devices).'
            )
        name = self._named(name)
        if name == self.baseline:
            return Estimate(1.0, 1.0, 1.0, "", self.confidence, self.kind)
        found = self.speedup(name)
        ideal = self.devices[name] / self.devices[self.baseline]
        value, low, high = found.value / ideal, found.low / ideal, found.high / ideal
        return replace(found, value=value, low=low, high=high, unit="")

    def _named(self, name: str | None) -> str:
        others = [one for one in self.names if one != self.baseline]
        if name is None and len(others) == 1:
            return others[0]
        if name is None or name not in self.names:
            said = "No name was given" if name is None else f"There is no candidate {name!r}"
            raise LabError(f"{said}. Choose one of: {', '.join(map(repr, self.names))}.")
        return name

    def _log_ratios(self, name: str, over: str) -> list[float]:
        """Per round, the logarithm of how many times the throughput of `over` this one has."""
        work = math.log(self._work(name) / self._work(over))
        return [
            math.log(theirs / ours) + work if ours > 0 and theirs > 0 else math.nan
            for ours, theirs in zip(self.log.samples(name), self.log.samples(over), strict=True)
        ]

    def _work(self, name: str) -> float:
        if self.items is not None:
            return self.items[name]
        if self.scaling == "weak" and self.devices is not None:
            return float(self.devices[name])
        return 1.0

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.names)}; {self.rounds} rounds)"

    def __str__(self) -> str:
        from labkit.timing import report

        return report.comparison_text(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.timing import report

        return {"text/plain": str(self), "text/html": report.comparison_html(self)}

    def plot(self) -> Picture:
        """Every sample as a dot, medians and their intervals, and the verdicts in words."""
        from labkit.timing import report

        return report.comparison_picture(self)

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples included, to a JSON file; `labkit.timing.load` reads it."""
        plain.write(path, self)


def load(path: str | Path) -> Run | Comparison:
    """What `save` wrote. On another machine, or another day, its numbers are *recorded*."""
    types = (Run, Comparison)
    found: Run | Comparison = plain.read(path, types, "a timing")
    return found


def _seconds(samples: tuple[float, ...], confidence: float, kind: Kind) -> Estimate:
    found = median(samples, confidence)
    return Estimate(found.value, found.low, found.high, "s", found.confidence, kind)


def _throughput(seconds: Estimate, items: float | None, unit: str) -> Estimate:
    if items is None:
        raise LabError(
            "Throughput needs to know how much one call does. "
            "Time it again with items=…, the number of images per call."
        )
    value, low, high = (
        items / end if end > 0 else math.nan for end in (seconds.value, seconds.high, seconds.low)
    )
    return replace(seconds, value=value, low=low, high=high, unit=f"{unit}/s")
