"""What `labkit explain` has found: a table, a page, JSON, and the comparison with another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import plain
from labkit.kinds import Kind, modelled, seconds_text, wrapped

if TYPE_CHECKING:
    from labkit.views.table import Table


MEASURED_FIX = "the change itself, measured"
MEASURED_REMOVAL = "left out, measured: the change keeps a fifth of it or nothing"
ATTRIBUTED = "attributed by samples, not measured"
PREDICTED = modelled(
    "communication takes 2(n−1)/n of a ring's time, everything else stays; every device has the "
    "batch that it has now"
)


@dataclass(frozen=True)
class Expected:
    """How many times as fast the program would be, between two ends."""

    low: float
    value: float
    high: float
    pairs: int = 0

    def __str__(self) -> str:
        return f"{self.low:.2f} to {self.high:.2f} times as fast"


@dataclass(frozen=True)
class Reason:
    """A cause, or something that is computed wrongly (`correctness`, without a gain)."""

    key: str
    kind: str
    cause: str
    gain: Expected | None
    evidence: str
    line: str
    change: str
    lecture: str


@dataclass(frozen=True)
class Looked:
    """What was measured, and was too little to be a finding, or could not be measured."""

    cause: str
    gain: Expected | None
    failed: str = ""


@dataclass(frozen=True)
class RankParts:
    """Seconds of a step by part, and some steps to draw: part, start, seconds."""

    parts: dict[str, float]
    marks: list[float] = field(default_factory=list)
    spans: list[tuple[str, float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Predicted:
    """Modelled: seconds of a step on so many devices, each with the same batch."""

    devices: int
    low: float
    high: float


@dataclass(frozen=True)
class Explanation:
    """Why a training program takes the time that it takes."""

    kind: Kind
    command: list[str]
    exit_code: int
    seconds: float  # of the watched run
    step: float
    steps: int
    ranks: list[RankParts]
    verdict: str
    findings: list[Reason]
    looked_for: list[Looked]
    not_seen: list[str]  # causes that the watched run gave no reason to measure
    limit: str
    overhead: float  # of watching, as a share of the steps
    prediction: list[Predicted] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    measured_for: float = 0.0

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        lines = [self.verdict[:1].upper() + self.verdict[1:] + "."]
        for number, one in enumerate(self.findings, 1):
            lines.append(f"{number}. {one.cause[:1].upper()}{one.cause[1:]}.")
            if one.gain:
                lines.append(f"   Gain: {one.gain} ({one.kind}).")
            lines.append(f"   Seen: {one.evidence}." + (f" Line: {one.line}" if one.line else ""))
            lines.append(f"   Change: {one.change} (lecture {one.lecture})")
        if self.step:
            lines.append(f"A step takes {seconds_text(self.step)}. {self.limit}")
        if self.looked_for:
            lines += ["", repr(self.other())]
        if self.not_seen:
            lines += ["", wrapped(f"Looked for and not seen: {', '.join(self.not_seen)}.")]
        if (predicted := self.predicted()) is not None:
            lines += ["", repr(predicted)]
        lines += [f"Note: {one}" for one in self.notes]
        lines.append(f"Watching cost {100 * self.overhead:.1f} % of a step; {self.kind}.")
        return lines

    def other(self) -> Table:
        """What else was looked for, and how much it would bring."""
        from labkit.views.table import Table

        rows = [(one.cause, str(one.gain) if one.gain else one.failed) for one in self.looked_for]
        return Table(("also measured", "without it, or changed"), rows, prose=True)

    def predicted(self) -> Table | None:
        """The modelled step on 1, 2, 4 and 8 devices, if communication could be measured."""
        from labkit.views.table import Table

        if not self.prediction:
            return None
        alone, rows = self.prediction[0], []
        for one in self.prediction:
            times = [one.devices * alone.low / one.high, one.devices * alone.high / one.low]
            times = [1.0] if one is alone else times
            rows.append((str(one.devices), _ends(map(seconds_text, (one.low, one.high))),
                         _ends(f"{each:.2f}" for each in times)))  # fmt: skip
        head = ("devices", "a step", "throughput, times one device")
        return Table(head, rows, "On more devices, modelled", str(PREDICTED))

    def save(self, path: str | Path) -> Path:
        """Write it: a name in .html as a page that needs no network, any other for `read`."""
        from labkit.explain.page import page

        return (
            plain.write_text(path, page(self))
            if Path(path).suffix == ".html"
            else plain.write(path, self)
        )

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.explain.page import fragment

        return {"text/plain": repr(self), "text/html": fragment(self)}


def _ends(texts: Iterable[str]) -> str:
    return " to ".join(dict.fromkeys(texts))


def read(path: str | Path) -> Explanation:
    """The explanation that `save`, or `labkit explain --json`, has written."""
    return plain.read(path, Explanation, "an explanation")
