"""The recording of a study: read, checked, and turned into numbers with intervals.

>>> study = labkit.study.load("study.jsonl")                         # doctest: +SKIP
>>> study.speedup("transformer", "strong", 2)                        # doctest: +SKIP
>>> study.beside(labkit.study.load("another.jsonl"))                 # doctest: +SKIP
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labkit.collectives.bench import bus_factor
from labkit.kinds import Kind, LabError, ratio_text, recorded, seconds_text
from labkit.limits import fit
from labkit.plain import typed, write_text
from labkit.shown import ShownAsTable
from labkit.study.measuring import FLOPS
from labkit.telemetry.format import Damage, Header, read_line
from labkit.telemetry.recording import Recorder, Recording
from labkit.timing import Verdict, judge
from labkit.timing.intervals import Interval, shift
from labkit.timing.verdict import CONFIDENCE

if TYPE_CHECKING:
    from labkit.limits.serial_share import AmdahlFit
    from labkit.views.table import Table

WINDOWS = 6  # of a part: the best of each is an estimate of a rate
NOISY = 0.10  # of the cores' time taken by other programs: then it cannot tell
NAMES = {"all-reduce": "an all-reduce", "gemm": "a product", "copy": "a copy", "step": "a step"}


@dataclass(frozen=True)
class StudyPart:
    """A part of a study, and how it ended. Times are seconds since the recording began."""

    part: Literal["gemm", "copy", "all-reduce", "step", "loss"]
    key: str
    framework: str
    devices: int
    outcome: Literal["done", "skipped", "cut off"]
    says: str = ""
    on: str = ""
    start: float = 0.0
    stop: float = 0.0
    threads: int = 1
    others: float = 0.0
    """The share of the cores' time that other programs took meanwhile."""

    @property
    def name(self) -> str:
        """What it measured, under which framework, on how many devices."""
        return f"{self.part}/{self.key}, {self.framework}, {self.devices}"


@dataclass(frozen=True)
class Sample:
    """One timed call: `count` repetitions in `wall` seconds, that did `work` altogether."""

    sample: Literal["gemm", "copy", "all-reduce", "step", "loss"]
    key: str
    framework: str
    devices: int
    contender: str
    round: int
    start: float
    wall: float
    cpu: float
    work: float
    count: int

    @property
    def name(self) -> str:
        """The name of its part."""
        return f"{self.sample}/{self.key}, {self.framework}, {self.devices}"


@dataclass(frozen=True, repr=False)
class Study(ShownAsTable):
    """What one machine has measured. A cell shows its table; `save` writes its page."""

    kind: Kind
    wall: float
    """time.time() when time was 0: the clock of other recordings."""
    plan: dict[str, Any]
    machine: dict[str, Any]
    software: tuple[dict[str, Any], ...]
    parts: tuple[StudyPart, ...]
    samples: tuple[Sample, ...]
    recording: Recording = field(compare=False)
    lines: tuple[str, ...] = field(compare=False)

    @property
    def sources(self) -> int:
        """Sources of telemetry so far: the numbers of further ones begin here."""
        return sum(text.startswith('{"source"') for text in self.lines)

    def kept_lines(self) -> Iterator[str]:
        """Yields the lines without parts that are not done, their samples, and an end."""
        done = {part.name for part in self.parts if part.outcome == "done"}
        for text in self.lines:
            content = {} if text.startswith("[") else json.loads(text)
            if "part" in content and content["outcome"] != "done":
                continue
            if "sample" in content and typed(Sample, content).name not in done:
                continue
            if "end" not in content:
                yield text

    @cached_property
    def _rounds(self) -> dict[tuple[str, str], list[Sample]]:
        found: dict[tuple[str, str], list[Sample]] = {}
        for one in sorted(self.samples, key=lambda sample: sample.round):
            found.setdefault((one.name, one.contender), []).append(one)
        return found

    def of(self, part: StudyPart, contender: str) -> list[Sample]:
        """Returns the samples of a contender, by round."""
        return self._rounds.get((part.name, contender), [])

    def contenders(self, part: StudyPart) -> list[str]:
        """Returns what a part has timed in turn."""
        found = [contender for name, contender in self._rounds if name == part.name]
        return sorted(found, key=lambda name: (len(name), name))

    def done(self, part: str, devices: int | None = None) -> list[StudyPart]:
        """Returns the parts of this sort that were done."""
        return [
            one for one in self.parts
            if one.part == part and one.outcome == "done" and devices in (None, one.devices)
        ]  # fmt: skip

    def rate(self, part: StudyPart, contender: str) -> Interval:
        """Returns the rate of a product or a copy: the best of windows, on a CPU by CPU time."""
        rates = [
            s.work / (s.cpu if s.cpu > 0.5 * s.wall else s.wall) for s in self.of(part, contender)
        ]
        cuts = [len(rates) * n // WINDOWS for n in range(WINDOWS + 1)]
        best = [max(rates[a:b]) for a, b in pairwise(cuts) if b > a]
        return Interval(max(best), min(best), max(best), 1 - 2.0 ** (1 - len(best)))

    def seconds(self, part: StudyPart, contender: str, *, whole: bool = False) -> Interval:
        """Returns the typical seconds of one repetition, or of a whole call."""
        logs = [math.log(s.wall / (1 if whole else s.count)) for s in self.of(part, contender)]
        return _exponent(shift(logs, 0.95))

    def verdict(self, part: StudyPart, contender: str) -> Verdict:
        """Returns how the throughput on all devices compares with one, from paired rounds."""
        pairs = zip(self.of(part, "alone"), self.of(part, contender), strict=True)
        logs = [math.log(a.wall / a.work / b.wall * b.work) for a, b in pairs]
        name = f"{part.devices} devices, {contender} scaling"
        return judge(name, "one device", logs, kind=self.kind)

    def amdahl(self, framework: str, model: str) -> AmdahlFit | None:
        """Returns Amdahl's fit to strong scaling, from ratios of times within rounds."""
        ratios = {}
        for part in self.done("step"):
            alone, strong = self.of(part, "alone"), self.of(part, "strong")
            if (part.framework, part.key) == (framework, model) and alone and strong:
                pairs = zip(alone, strong, strict=True)
                ratios[part.devices] = [b.wall / b.work * a.work / a.wall for a, b in pairs]
        rounds = min(map(len, ratios.values()), default=0)
        if not rounds:
            return None
        found = fit({1: [1.0] * rounds, **{n: one[:rounds] for n, one in ratios.items()}})
        return replace(found, kind=self.kind)

    def busbw(self, part: StudyPart, contender: str) -> Interval:
        """Returns the bus bandwidth of an all-reduce, as nccl-tests define it."""
        work = int(contender) * bus_factor(part.devices)
        found = self.seconds(part, contender)
        return Interval(work / found.value, work / found.high, work / found.low, found.confidence)

    def breakdown(self, part: StudyPart) -> dict[str, Interval]:
        """Returns the parts of a strong step, each as a difference within rounds, in seconds."""
        order = ("strong", "no reduction", "same images")
        have = [name for name in order if self.of(part, name)]
        found = {}
        for longer, shorter in pairwise(have):
            pairs = zip(self.of(part, longer), self.of(part, shorter), strict=True)
            name = "gradient reduction" if shorter == "no reduction" else "input"
            found[name] = shift([a.wall / a.count - b.wall / b.count for a, b in pairs], 0.95)
        # The rest, so that the parts add up to the step: what is not measurable is in it.
        whole = self.seconds(part, "strong")
        known = sum(piece.value for piece in found.values() if piece.low > 0)
        value, low, high = (max(0.0, end - known) for end in (whole.value, whole.low, whole.high))
        return {"compute, overhead": Interval(value, low, high, whole.confidence), **found}

    def joules(self, part: StudyPart, contender: str) -> float | None:
        """Returns joules of all devices for each unit of work; None where no energy was sampled."""
        import numpy as np

        samples = self.of(part, contender)
        total = 0.0
        for device in self.recording.counted:
            times, energy = self.recording.column(device.key, "energy")
            if len(times) < 2 or sum(s.wall for s in samples) < 1:
                return None
            starts = np.array([s.start for s in samples])
            ends = starts + [s.wall for s in samples]
            total += float(
                np.sum(np.interp(ends, times, energy) - np.interp(starts, times, energy))
            )
        return total / sum(s.work for s in samples) if self.recording.counted and total else None

    def cannot_tell(self, part: StudyPart) -> str:
        """Returns why a part says little, or ""."""
        if part.others > NOISY:
            return f"other programs took {100 * part.others:.0f} % of the cores"
        return ""

    def quantities(self) -> dict[str, Interval]:
        """Returns all that two studies can compare, each with its interval.

        Where other programs took the cores, the confidence is 0.
        """
        found: dict[str, Interval] = {}
        known: set[str] = set()
        for part in self.parts:
            label = f"{part.key}, {part.framework}, {part.devices} × "
            if part.outcome != "done":
                continue
            for name in self.contenders(part):
                where = f"{part.part}, {label}{name}"
                if part.part in ("gemm", "copy"):
                    found[where] = self.rate(part, name)
                elif part.part == "all-reduce":
                    found[f"bus bandwidth, {label}{name} bytes"] = self.busbw(part, name)
                elif part.part == "loss":
                    found[f"seconds to the loss, {label}batch {name}"] = self.seconds(
                        part, name, whole=True
                    )
                elif name in ("strong", "weak") and self.of(part, "alone"):
                    ratio = self.verdict(part, name).estimate
                    found[f"speed-up, {label}{name}"] = Interval(
                        ratio.value, ratio.low, ratio.high, ratio.confidence or 0.0
                    )
            if self.cannot_tell(part):
                ours = [name for name in found if f", {label}" in name and name not in known]
                found |= {name: replace(found[name], confidence=0.0) for name in ours}
            known = set(found)
        return found

    def beside(self, other: Study) -> Table:
        """Returns each quantity of both studies, and whether their intervals overlap."""
        from labkit.views.table import Table

        mine, theirs = self.quantities(), other.quantities()
        rows = []
        for name in (name for name in mine if name in theirs):
            a, b = mine[name], theirs[name]
            word = "agree" if a.low <= b.high and b.low <= a.high else ratio_text(b.value / a.value)
            if min(a.confidence, b.confidence) < CONFIDENCE:
                word = "cannot tell"
            rows.append((name, *map(_text, (a, b)), word))
        words = [row[-1] for row in rows]
        unsure = words.count("cannot tell")
        footer = (
            f"{words.count('agree')} of {len(rows) - unsure} intervals overlap. "
            f"It cannot tell of {unsure}: too few rounds, or other programs took the cores. "
            f"First: {self.kind}. Second: {other.kind}."
        )
        return Table(("quantity", "first", "second", ""), rows, "Two studies", footer)

    def table(self) -> Table:
        """Returns what was found in a line for each part."""
        from labkit.study.study_page import summary

        return summary(self)

    def save(self, path: str | Path) -> Path:
        """Write the page: it needs no network and no kernel."""
        from labkit.study.study_page import page

        return write_text(path, page(self))


def _exponent(found: Interval) -> Interval:
    value, low, high = (math.exp(end) for end in (found.value, found.low, found.high))
    return Interval(value, low, high, found.confidence)


def _text(found: Interval) -> str:
    return f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"


def load(path: str | Path) -> Study:
    """Returns the study in a file, after checking it. A cut-off last line is left out."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise LabError(
            f"{str(path)!r} cannot be read: {fault}. Give a file of `labkit study`."
        ) from fault
    lines, _, _ = text.rpartition("\n")
    number = 0
    try:
        found = lines.split("\n")
        first = json.loads(found[0])
        header = read_line(found[0])
        if not isinstance(header, Header) or first.get("study") != 1:
            raise Damage("does not say that this is a study")
        recorder = Recorder(header)
        parts, samples, software = [], [], []
        machine: dict[str, Any] = {}
        for number, text in enumerate(found):  # noqa: B007 (the message needs the last)
            recorder.add(text)
            content = {} if text.startswith("[") else json.loads(text)
            if "sample" in content:
                samples.append(typed(Sample, content))
            elif "part" in content:
                parts.append(typed(StudyPart, content))
            machine = content.get("machine", machine)
            software += [content["software"]] if "software" in content else []
        kind = recorded(header.where, header.when[:16].replace("T", " "))
        made = Study(
            kind, float(first["wall"]), dict(first["plan"]), machine, tuple(software), tuple(parts),
            tuple(samples), recorder.recording(kind), tuple(found),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise LabError(
            f"{str(path)!r} is not a study that can be read: line {number + 1}: {fault}. "
            "Use another copy, or measure again with `labkit study`."
        ) from fault
    if why := implausible(made):
        raise LabError(f"{str(path)!r} cannot be what a machine has measured: {why}.")
    return made


def implausible(study: Study) -> str:
    """Returns what no measurement can hold, in words, or ""."""
    best = max(
        (s.work / s.wall for s in study.samples if s.sample == "gemm" and s.wall > 0),
        default=math.inf,
    )
    named = {part.name: part for part in study.parts}
    for part in study.parts:
        if not -1 <= part.start <= part.stop or part.devices < 1 or not 0 <= part.others <= 1:
            return f"{part.name} begins at {part.start:g} s and ends at {part.stop:g} s"
        rounds = {c: [s.round for s in study.of(part, c)] for c in study.contenders(part)}
        if part.outcome == "done" and (not rounds or any(
            found != list(range(len(found))) or len(found) != len(next(iter(rounds.values())))
            for found in rounds.values()
        )):  # fmt: skip
            return f"rounds of {part.name} are missing or there twice"
    for one in study.samples:
        what = f"round {one.round} of {one.name}, {one.contender}"
        numbers = (one.start, one.wall, one.cpu, one.work)
        if (
            not all(map(math.isfinite, numbers))
            or min(one.wall, one.work, one.count) <= 0
            or one.cpu < 0
        ):
            return f"{what} has a time or an amount of work that is none"
        if one.name not in named or named[one.name].outcome != "done":
            continue  # was cut off
        part = named[one.name]
        allowed = 1.05 * part.threads * one.wall + 0.02
        if one.cpu > allowed and not study.machine.get("gpus"):
            return (
                f"{what} used {seconds_text(one.cpu)} of CPU time in {seconds_text(one.wall)} on "
                f"{part.threads} threads"
            )
        if one.start < part.start - 0.1 or one.start + one.wall > part.stop + 0.1:
            return f"{what} lies outside the {seconds_text(part.stop - part.start)} of its part"
        flops = one.work * FLOPS.get(one.key, 0) if one.sample == "step" else 0.0
        if flops / one.wall > 2 * best * max(one.devices, part.threads):
            return f"{what} computes faster than twice the best product of matrices"
    return ""


def here() -> Study | None:
    """Returns the study of this class: the file that LABKIT_STUDY names, or study.jsonl here.

    >>> labkit.study.here()                                          # doctest: +SKIP
    """
    named = os.environ.get("LABKIT_STUDY")
    file = Path(named or "study.jsonl")
    if not named and not file.is_file():
        return None
    return load(file)
