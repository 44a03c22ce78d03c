"""What `measure` and `compare` return: raw samples, and every number computed from them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Literal

from labkit import plain
from labkit.kinds import Kind, LabError, measured, recorded, seconds_text
from labkit.timing.estimate import Estimate, percent, quantity_text, span_text
from labkit.timing.intervals import quartiles
from labkit.timing.judge import CONFIDENCE, Verdict, judge

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Comparison", "Log", "Machine", "Run", "Scaling", "Timed"]

Scaling = Literal["strong", "weak"]


@dataclass(frozen=True)
class Machine:
    """Where and when something was timed, and how busy the machine was when it began."""

    text: str
    when: str
    load: float
    cores: int


@dataclass(frozen=True)
class Timed:
    """The seconds of one candidate's calls. The first call traces, compiles and starts things."""

    name: str
    first: float
    warmup: tuple[float, ...]
    samples: tuple[float, ...]


@dataclass(frozen=True)
class Log:
    """All calls of all candidates. Row r of `order` says who came when in round r."""

    timed: tuple[Timed, ...]
    order: tuple[tuple[int, ...], ...]
    asked: int
    stopped: Literal["", "by Ctrl-C", "by time_limit"]
    machine: Machine
    on: str
    seed: int
    # The process that timed it; 0 after loading, for private fields are not stored.
    _process: int = field(default=0, compare=False, repr=False)

    @property
    def rounds(self) -> int:
        """Rounds in which every candidate was timed."""
        return min(len(one.samples) for one in self.timed)

    @property
    def kind(self) -> Kind:
        """Measured, if this process has timed it; otherwise recorded, with where and when."""
        if self._process == os.getpid():
            return measured(self.on or self.machine.text)
        where = f"{self.on} of {self.machine.text}" if self.on else self.machine.text
        return recorded(where, self.machine.when[:10])

    def of(self, name: str) -> Timed:
        """The calls of one candidate."""
        return next(one for one in self.timed if one.name == name)

    def samples(self, name: str) -> tuple[float, ...]:
        """The samples of the complete rounds."""
        return self.of(name).samples[: self.rounds]

    def notes(self) -> tuple[str, ...]:
        """What a reader of the result must know about how it came about."""
        notes = []
        if self.stopped:
            notes.append(f"Stopped {self.stopped} after {self.rounds} of {self.asked} rounds.")
        short = [one.name for one in self.timed if median(one.samples) < 20e-6]
        if short:
            notes.append(
                f"A call of {_listed(short)} costs little more than the clock itself: put a loop "
                "into it."
            )
        if self.machine.load > 0.5 * self.machine.cores:
            notes.append(
                f"The machine was busy at the start (load {self.machine.load:.1f} on "
                f"{self.machine.cores} cores). Stop other programs for narrower intervals."
            )
        return tuple(notes)


@plain.stored
@dataclass(frozen=True, repr=False)
class Run:
    """Timed calls of one program. Name it in a cell to see its table."""

    log: Log
    items: float | None
    unit: str
    label: str

    @property
    def name(self) -> str:
        """What was timed."""
        return self.log.timed[0].name

    @property
    def kind(self) -> Kind:
        """Measured by this process, or recorded elsewhere or earlier."""
        return self.log.kind

    @property
    def samples(self) -> tuple[float, ...]:
        """Seconds of every call after the warm-up."""
        return self.log.timed[0].samples

    @property
    def first(self) -> float:
        """Seconds of the first call, which traces, compiles and starts what it needs."""
        return self.log.timed[0].first

    def seconds(self) -> Estimate:
        """The median of a call, between the quartiles."""
        return _seconds(self.samples, self.kind)

    def throughput(self) -> Estimate:
        """Images (or what `items` counts) per second."""
        return _throughput(self.seconds(), self.items, self.unit)

    def __repr__(self) -> str:
        return f"Run({self.name}, {len(self.samples)} rounds)"

    def __str__(self) -> str:
        return _text(self._caption(), *self._cells(), self._under())

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        html = table(*self._cells(), self._caption(), "\n".join(self._under()))
        return {"text/plain": str(self), "text/html": html}

    def plot(self) -> Picture:
        """Every sample as a dot, the median and the quartiles."""
        from labkit.views import timing_figure

        strip = timing_figure.Strip(self.name, self.samples, self.seconds(), str(self.seconds()))
        return timing_figure.samples([strip], self._caption(), self.log.notes(), self.kind)

    def _caption(self) -> str:
        return _caption(f"{self.name}: {_counted(len(self.samples), 'call')}", self.label)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rate = None if self.items is None else self.throughput()
        rates = [] if rate is None else [f"{self.unit}/s"]
        head = ["", "median", "middle half", *rates, "first call"]
        row = [self.name, *_seconds_cells(self.seconds(), rate), seconds_text(self.first)]
        return head, [row]

    def _under(self) -> tuple[str, ...]:
        return (*self.log.notes(), _kind_text(self.kind))


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
        """Measured by this process, or recorded elsewhere or earlier."""
        return self.log.kind

    def samples(self, name: str | None = None) -> tuple[float, ...]:
        """Seconds of the calls in the complete rounds; with two candidates the name is optional."""
        return self.log.samples(self._named(name))

    def seconds(self, name: str | None = None) -> Estimate:
        """The median of a call, between the quartiles."""
        return _seconds(self.samples(name), self.kind)

    def throughput(self, name: str | None = None) -> Estimate:
        """Images (or what `items` counts) per second."""
        items = None if self.items is None else self.items[self._named(name)]
        return _throughput(self.seconds(name), items, self.unit)

    def first(self, name: str | None = None) -> float:
        """Seconds of the first call, which traces, compiles and starts what it needs."""
        return self.log.of(self._named(name)).first

    def verdict(self, name: str | None = None) -> Verdict:
        """Whether `name` is faster than the baseline.

        The confidence of 95 % holds for all candidates together: of k comparisons with the
        baseline each gets 1 - 0.05 / k (Bonferroni).
        """
        name = self._named(name)
        if name == self.baseline:
            raise LabError(f"{name!r} is the baseline. Choose another name.")
        ours, theirs = self.samples(name), self.samples(self.baseline)
        work = math.log(self._work(name) / self._work(self.baseline))
        ratios = [
            math.log(other / mine) + work if mine > 0 and other > 0 else math.nan
            for mine, other in zip(ours, theirs, strict=True)
        ]
        within, sure, kind = self.same_within, self._each, self.kind
        return judge(name, self.baseline, ratios, same_within=within, confidence=sure, kind=kind)

    def speedup(self, name: str | None = None) -> Estimate:
        """How many times as much work per second as the baseline, paired by round.

        Above 1 is faster. With weak scaling the work per call differs, and is counted.
        """
        return self.verdict(name).estimate

    def efficiency(self, name: str | None = None) -> Estimate:
        """The speed-up as a share of the ideal one: 1 when twice the devices do twice the work."""
        if self.devices is None:
            raise LabError(
                'Efficiency needs compare(…, devices={…}, scaling="strong") or scaling="weak".'
            )
        name = self._named(name)
        if name == self.baseline:
            return Estimate(1.0, 1.0, 1.0, "share", 0.0, self.kind)
        found = self.speedup(name)
        ideal = self.devices[name] / self.devices[self.baseline]
        value, low, high = found.value / ideal, found.low / ideal, found.high / ideal
        return replace(found, value=value, low=low, high=high, unit="share")

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.names)}; {self.rounds} rounds)"

    def __str__(self) -> str:
        head, rows = self._cells()
        return _text(self._caption(), head[:-1], [row[:-1] for row in rows], self._under())

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        html = table(*self._cells(), self._caption(), "\n".join(self._under()))
        return {"text/plain": str(self), "text/html": html}

    def plot(self) -> Picture:
        """Every sample as a dot, medians and quartiles, and the verdicts in words."""
        from labkit.views import timing_figure

        strips = []
        for name in self.names:
            words = str(self.seconds(name))
            if name != self.baseline:
                words += f"\n{self._word(name)}, {self.speedup(name)}"
            strips.append(timing_figure.Strip(name, self.samples(name), self.seconds(name), words))
        return timing_figure.samples(strips, self._caption(), self._under()[:-1], self.kind)

    def _named(self, name: str | None) -> str:
        others = [one for one in self.names if one != self.baseline]
        if name is None and len(others) == 1:
            return others[0]
        if name not in self.names:
            raise LabError(f"name must be one of {_listed(self.names)}, got {name!r}.")
        return name

    @property
    def _each(self) -> float:
        """The confidence of each comparison with the baseline (Bonferroni)."""
        return 1 - (1 - CONFIDENCE) / (len(self.names) - 1)

    def _work(self, name: str) -> float:
        return 1.0 if self.items is None else self.items[name]

    def _word(self, name: str) -> str:
        if name == self.baseline:
            return "baseline"
        word = self.verdict(name).word
        return f"same within {percent(self.same_within)}" if word == "same" else word

    def _caption(self) -> str:
        return _caption(f"{_counted(self.rounds, 'round')}, each in random order", self.label)

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows of the table; the last column is the verdict."""
        rates = [] if self.items is None else [f"{self.unit}/s"]
        head = ["", "median", "middle half", *rates, f"speed-up over {self.baseline}"]
        if self.devices is not None:
            head += ["devices", f"efficiency ({self.scaling} scaling)"]
        rows = []
        for name in self.names:
            rate = None if self.items is None else self.throughput(name)
            row = [name, *_seconds_cells(self.seconds(name), rate)]
            row.append("1" if name == self.baseline else _with_span(self.speedup(name)))
            if self.devices is not None:
                row += [str(self.devices[name]), _with_span(self.efficiency(name))]
            rows.append([*row, seconds_text(self.first(name)), self._word(name)])
        return [*head, "first call", "verdict"], rows

    def _under(self) -> tuple[str, ...]:
        verdicts = [self.verdict(name) for name in self.names if name != self.baseline]
        lines = [f"{verdict}." for verdict in verdicts]
        if len(verdicts) > 1 and verdicts[0].estimate.confidence == self._each:
            each, sure = percent(self._each), percent(CONFIDENCE)
            lines.append(
                f"Each interval has {each}, so that all {len(verdicts)} together have {sure}."
            )
        return (*lines, *self.log.notes(), _kind_text(self.kind))


def _seconds(samples: Sequence[float], kind: Kind) -> Estimate:
    found = quartiles(samples)
    return Estimate(found.value, found.low, found.high, "s", None, kind)


def _throughput(seconds: Estimate, items: float | None, unit: str) -> Estimate:
    if items is None:
        raise LabError(
            "Throughput needs the amount of work in a call. "
            "Time it again with items=…, the number of images per call."
        )
    value, low, high = (
        items / end if end > 0 else math.nan for end in (seconds.value, seconds.high, seconds.low)
    )
    return replace(seconds, value=value, low=low, high=high, unit=f"{unit}/s")


# --- tables


def _seconds_cells(seconds: Estimate, rate: Estimate | None) -> list[str]:
    cells = [seconds_text(seconds.value), span_text(seconds.low, seconds.high, "s")]
    # The unit stands in the column's head.
    return cells if rate is None else [*cells, quantity_text(rate.value, rate.unit).split(" ")[0]]


def _with_span(estimate: Estimate) -> str:
    value = quantity_text(estimate.value, estimate.unit, estimate.high - estimate.low)
    if not estimate.confidence:
        return value
    return f"{value} ({span_text(estimate.low, estimate.high, estimate.unit)})"


def _caption(text: str, label: str) -> str:
    return f"{text}; {label}" if label else text


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _kind_text(kind: Kind) -> str:
    text = str(kind)
    return f"{text[:1].upper()}{text[1:]}."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _text(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], under: Sequence[str]
) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    shown = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([caption, *shown, *under])
