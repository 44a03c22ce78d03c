"""What `measure` and `compare` return: raw samples, and every number computed from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from labkit.arguments import one_of
from labkit.kinds import Kind, LabError, seconds_text
from labkit.timing.estimate import Estimate, percent, quantity_text, span_text
from labkit.timing.verdict import CONFIDENCE, Verdict, judge

Scaling = Literal["strong", "weak"]


@dataclass(frozen=True)
class Timed:
    """One program: the seconds of its call in every round, and what a call does.

    `first` is the first call, which also traces, compiles and starts things.
    """

    name: str
    first: float
    samples: tuple[float, ...]
    items: float | None
    devices: float


@dataclass(frozen=True, repr=False)
class Timings:
    """One timed program, or several in the same rounds. Name it in a cell to see its table.

    Where one program was timed, or one beside the baseline, its name may be left out below.
    """

    timed: tuple[Timed, ...]
    baseline: str
    scaling: Scaling | None
    unit: str
    label: str
    kind: Kind
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What was timed, in the order given."""
        return tuple(one.name for one in self.timed)

    @property
    def rounds(self) -> int:
        """Complete rounds."""
        return len(self.timed[0].samples)

    def samples(self, name: str | None = None) -> tuple[float, ...]:
        """Returns the seconds of the call in each round."""
        return self._of(name).samples

    def seconds(self, name: str | None = None) -> Estimate:
        """Returns the median of a call, between the quartiles, which hold half of the calls.

        They claim nothing beyond these calls. A call resembles the calls before it (other programs,
        a warm processor), so formulas for independent samples would promise too much.
        """
        import numpy as np

        low, value, high = map(float, np.quantile(self._of(name).samples, [0.25, 0.5, 0.75]))
        return Estimate(value, low, high, "s", None, self.kind)

    def throughput(self, name: str | None = None) -> Estimate:
        """Images (or what `items` counts) per second."""
        items, seconds = self._of(name).items, self.seconds(name)
        if items is None:
            raise LabError("Throughput needs items=…, the number of images per call.")
        value, low, high = (
            items / end if end > 0 else math.nan
            for end in (seconds.value, seconds.high, seconds.low)
        )
        return replace(seconds, value=value, low=low, high=high, unit=f"{self.unit}/s")

    def verdict(self, name: str | None = None) -> Verdict:
        """Returns whether `name` is faster than the baseline.

        The confidence of 95 % holds for all programs together: of k comparisons with the
        baseline each gets 1 - 0.05 / k (Bonferroni).
        """
        mine, other = self._of(name), self._of(self.baseline)
        if mine is other:
            raise LabError(f"{mine.name!r} is the baseline. Choose another name.")
        work = math.log((mine.items or 1.0) / (other.items or 1.0))
        ratios = [
            math.log(theirs / ours) + work if ours > 0 and theirs > 0 else math.nan
            for ours, theirs in zip(mine.samples, other.samples, strict=True)
        ]
        return judge(mine.name, other.name, ratios, confidence=self._each, kind=self.kind)

    def speedup(self, name: str | None = None) -> Estimate:
        """Returns the work per second over that of the baseline, paired by round.

        Above 1 is faster. With weak scaling the work per call differs, and is counted.
        """
        return self.verdict(name).estimate

    def efficiency(self, name: str | None = None) -> Estimate:
        """The speed-up as a share of the ideal one: 1 when twice the devices do twice the work."""
        if self.scaling is None:
            raise LabError('Efficiency needs devices={…} and scaling="strong" or scaling="weak".')
        mine, other = self._of(name), self._of(self.baseline)
        if mine is other:
            return Estimate(1.0, 1.0, 1.0, "share", 0.0, self.kind)
        found, ideal = self.speedup(name), mine.devices / other.devices
        value, low, high = found.value / ideal, found.low / ideal, found.high / ideal
        return replace(found, value=value, low=low, high=high, unit="share")

    def __repr__(self) -> str:
        from labkit.views.table import text_table

        return "\n".join([self._caption(), text_table(*self._cells()), *self._sentences()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        several = len(self.timed) > 1
        head, rows = self._cells()
        html = table(head, rows, "" if several else self._caption(), "\n".join(self._sentences()))
        if several:
            from labkit.timing.verdict_card import card

            others = [name for name in self.names if name != self.baseline]
            medians = {one: seconds_text(self.seconds(one).value) for one in self.names}
            words = [f"{one} {medians[one]}, {self.baseline} {medians[self.baseline]}"
                     for one in others]  # fmt: skip
            verdicts = [self.verdict(one) for one in others]
            html = card(verdicts, words, f"{self._caption()}; {self.kind}", self.notes, html)
        return {"text/plain": repr(self), "text/html": html}

    def _of(self, name: str | None) -> Timed:
        others = [one for one in self.names if one != self.baseline] or list(self.names)
        chosen = others[0] if name is None and len(others) == 1 else name
        return self.timed[self.names.index(one_of("name", chosen or "", self.names))]

    @property
    def _each(self) -> float:
        """The confidence of each comparison with the baseline (Bonferroni)."""
        return 1 - (1 - CONFIDENCE) / (len(self.timed) - 1)

    def _caption(self) -> str:
        plural = "" if self.rounds == 1 else "s"
        what = f"{self.rounds} round{plural}, each in random order"
        if len(self.timed) == 1:
            what = f"{self.baseline}: {self.rounds} call{plural}"
        return f"{what}; {self.label}" if self.label else what

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Returns the head and the rows of the table, but for the verdicts."""
        several, rated = len(self.timed) > 1, self.timed[0].items is not None
        head = ["", "median", "middle half", *([f"{self.unit}/s"] if rated else [])]
        if several:
            head.append(f"speed-up over {self.baseline}")
        if self.scaling:
            head += ["devices", f"efficiency ({self.scaling} scaling)"]
        rows = []
        for one in self.timed:
            seconds = self.seconds(one.name)
            row = [one.name, seconds_text(seconds.value), span_text(seconds.low, seconds.high, "s")]
            if rated:  # the unit stands in the column's head
                rate = self.throughput(one.name)
                row.append(quantity_text(rate.value, rate.unit).split(" ")[0])
            if several:
                first = one.name == self.baseline
                row.append("1" if first else _with_span(self.speedup(one.name)))
            if self.scaling:
                row += [f"{one.devices:g}", _with_span(self.efficiency(one.name))]
            rows.append([*row, seconds_text(one.first)])
        return [*head, "first call"], rows

    def _sentences(self) -> list[str]:
        """Returns the verdicts, what to know about them, and last on what they were measured."""
        verdicts = [self.verdict(name) for name in self.names if name != self.baseline]
        lines = [f"{verdict}." for verdict in verdicts]
        if len(verdicts) > 1 and verdicts[0].estimate.confidence == self._each:
            each, sure, count = percent(self._each), percent(CONFIDENCE), len(verdicts)
            lines.append(f"Each interval has {each}, so that all {count} together have {sure}.")
        text = str(self.kind)
        return [*lines, *self.notes, f"{text[:1].upper()}{text[1:]}."]


def _with_span(estimate: Estimate) -> str:
    value = quantity_text(estimate.value, estimate.unit, estimate.high - estimate.low)
    if not estimate.confidence:
        return value
    return f"{value} ({span_text(estimate.low, estimate.high, estimate.unit)})"
