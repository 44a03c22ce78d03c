"""Samples of devices over time, with spans: what a panel has collected, or what a file holds.

>>> recording = labkit.replay("two_replicas.jsonl")              # doctest: +SKIP
>>> times, watts = recording.column("gpu0", "power")             # doctest: +SKIP
>>> recording.table()                                            # doctest: +SKIP
"""

from __future__ import annotations

import base64
import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.kinds import Kind, LabError, modelled, recorded, seconds_text
from labkit.plain import write_text
from labkit.telemetry.columns import Columns, Series
from labkit.telemetry.format import (
    Cost,
    Damage,
    End,
    Header,
    Source,
    Span,
    line,
    read_line,
    row_line,
    values_text,
)
from labkit.telemetry.metrics import METRICS, OWN, Device, Processes, State
from labkit.telemetry.usage import SpanTable, SpanUse, notes, use

if TYPE_CHECKING:
    from labkit.telemetry.columns import Numbers
    from labkit.views.figure import Picture

_TOGETHER = 1000  # lines that are parsed at a time


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """Name it in a cell to see its panel; `table()` gives what each span used."""

    kind: Kind
    header: Header
    series: tuple[Series, ...]
    spans: tuple[Span, ...] = ()
    states: tuple[State, ...] = ()
    seconds: float = 0.0
    cost: float | None = None
    """CPU seconds of the sampler, once it has ended."""
    damage: str | None = None
    """What is wrong with the file that it was read from, in a sentence."""
    processes: tuple[Processes, ...] = ()
    """Who used each GPU, from when on."""

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """Everything that was sampled, cores included."""
        return tuple(device for one in self.series for device in one.devices)

    @cached_property
    def counted(self) -> tuple[Device, ...]:
        """The devices that a table has a row for: all GPUs; without any, the processor."""
        gpus = tuple(one for one in self.devices if one.sort == "gpu")
        return gpus or tuple(one for one in self.devices if one.sort == "cpu")

    @property
    def title(self) -> str:
        """What was given, or the name of the span around all others, or the devices."""
        start = min((one.start for one in self.spans), default=0.0)
        end = max((one.end or self.seconds for one in self.spans), default=0.0)
        around = [one for one in self.spans if (one.start, one.end or self.seconds) == (start, end)]
        if self.header.title or around:
            return self.header.title or around[0].name
        names = [one.name for one in self.counted]
        return ", ".join(
            f"{names.count(name)} × {name}" if names.count(name) > 1 else name
            for name in dict.fromkeys(names)
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What holds for a whole source at the end, such as a driver that is missing; notes."""
        keys = {one.key for one in self.devices}
        newest = {one.device: one for one in self.states if one.why != "note" and not one.metric}
        faults = [one for key, one in newest.items() if key not in keys and one.why != "fine"]
        notes = [one for one in self.states if one.why == "note"]
        return tuple(dict.fromkeys(one.says for one in [*faults, *notes]))

    def column(self, device: str, metric: str) -> tuple[Numbers, Numbers]:
        """Times and values of one metric of one device, without what is missing."""
        for one in self.series:
            if device in [each.key for each in one.devices]:
                if metric not in one.metrics and metric not in METRICS:
                    known = ", ".join(one.metrics)
                    raise LabError(f"{device!r} has no metric {metric!r}. It has {known}.")
                return one.column(device, metric)
        known = ", ".join(one.key for one in self.devices) or "no device"
        raise LabError(f"There is no device {device!r} in this recording. It has {known}.")

    def busy(self, device: Device) -> tuple[Numbers, Numbers, Numbers]:
        """`Series.busy` of a device."""
        source = next(one for one in self.series if device in one.devices)
        return source.busy(device.key, self.header.every)

    def table(self) -> SpanTable:
        """What each span used: time, utilisation, memory, energy. Without spans, all of it."""
        first = min((float(one.times[0]) for one in self.series if len(one.times)), default=0.0)
        spans = self.spans or (Span("everything", first, self.seconds),)
        rows: list[SpanUse] = []
        for of in dict.fromkeys(one.of for one in spans):
            mine = [one for one in spans if one.of == of]
            devices = [one for one in self.counted if one.of == of or not of]
            args = mine, devices, self.series, self.states, self.header.every, self.seconds
            rows += use(*args)
        said = [*notes(rows, self.states), *self.remarks, self.damage or ""]
        return SpanTable(tuple(rows), self.kind, tuple(dict.fromkeys(filter(None, said))))

    def save(self, path: str | Path) -> None:
        """Write it to a file that `labkit.replay` reads. All of it, or nothing."""
        write_text(path, "".join(f"{text}\n" for text in self.lines()))

    def lines(self, *, users: bool = False) -> Iterator[str]:
        """The lines of a file of it. Login names of other users stay out of files."""
        import numpy as np

        yield line(self.header)
        for number, one in enumerate(self.series):
            yield line(Source(one.source, one.metrics, one.devices))
            values = np.round(one.values, 4).astype(object)
            values[np.isnan(one.values)] = None
            for time, row in zip(one.times.tolist(), values.tolist(), strict=True):
                yield row_line(number, time, values_text(row))
        yield from map(line, self.states)
        yield from map(line, self.spans)
        for used in self.processes:
            known = (
                one if users or one.user == OWN else replace(one, user="") for one in used.found
            )
            yield line(replace(used, found=tuple(known)))
        if self.cost is not None:
            yield line(Cost(self.cost, self.seconds))
        if self.damage is None:
            yield line(End(self.seconds))

    def __repr__(self) -> str:
        devices, spans = len(self.devices), len(self.spans)
        return (
            f"Recording({devices} device{'s' * (devices != 1)}, {seconds_text(self.seconds)}, "
            f"{spans} span{'s' * (spans != 1)}, {self.kind})"
        )

    def __str__(self) -> str:
        return str(self.table())

    def _repr_mimebundle_(
        self,
        key: str | None = None,
        ended: str | None = None,
        metrics: Sequence[str] | None = None,
        **_: object,
    ) -> tuple[dict[str, str], dict[str, dict[str, object]]]:
        from labkit.views.embed import with_state
        from labkit.views.telemetry_figure import figure

        picture = figure(self)
        data = {
            "text/plain": str(self),
            "image/png": base64.b64encode(picture.png).decode("ascii"),
        }
        shown = {"image/png": {"width": picture.width, "alt": picture.alt}}
        html = self.html(picture, key, ended, metrics)
        if os.environ.get("LABKIT_PICTURES") == "still":
            return with_state((data, shown), html)
        return data | {"text/html": html}, shown

    def html(
        self,
        picture: Picture | None = None,
        key: str | None = None,
        ended: str | None = None,
        metrics: Sequence[str] | None = None,
    ) -> str:
        """The live panel of it, as a piece of a page that needs nothing else.

        `key`, `ended` and `metrics` are those of the panel that was live: its name, why it has
        ended, and what it showed.
        """
        from labkit.views.panel_page import page
        from labkit.views.telemetry_figure import figure

        picture = picture or figure(self)
        # Two outputs of one page must not share a panel.
        key = key or f"replay-{secrets.token_hex(6)}"
        return page(
            self, key=key, live=False, metrics=METRICS, alt=picture.alt, png=picture.png,
            stamp=str(self.kind), title=self.title, ended=ended, shown=metrics,
        )  # fmt: skip


class Recorder:
    """Collects the lines of a recording from any thread; with a capacity, in bounded memory."""

    def __init__(self, header: Header, capacity: int | None = None) -> None:
        self.header = header
        self.ended = False
        self._capacity = capacity
        self._lock = threading.RLock()
        self._waiting: list[str] = []  # lines that were not parsed yet
        self._columns: list[Columns] = []
        self._spans: dict[tuple[str, float], Span] = {}
        self._states: list[State] = []
        self._processes: list[Processes] = []
        self._seconds = 0.0
        self._cost: float | None = None

    def take(self, text: str) -> None:
        """Remember these lines. One that cannot be read is left out."""
        with self._lock:
            self._waiting += text.split("\n")
            if len(self._waiting) >= _TOGETHER:
                self._parse_waiting()

    def add(self, text: str) -> None:
        """Remember one line; Damage if it cannot be read."""
        if not text.strip():
            return
        match read_line(text):
            case [int(number), *_] as row if 0 <= number < len(self._columns):
                self._columns[number].add(row)
            case list():
                raise Damage("belongs to a source that no line before it names")
            case Source() as source:
                self._columns.append(Columns(source, self._capacity))
            case Span() as span:
                self.add_span(span)
            case State() as state:
                self._states.append(state)
            case Processes() as found:
                self._processes.append(found)
            case Cost(seconds, time):
                self._cost, self._seconds = seconds, max(self._seconds, time)
            case End(time):
                self.ended, self._seconds = True, max(self._seconds, time)

    def add_span(self, span: Span) -> None:
        """A span comes twice: when it begins, and with its end."""
        key = (span.name, round(span.start, 6))
        with self._lock:
            known = self._spans.get(key)
            if known is None or known.end is None:
                self._spans[key] = span

    def recording(self, kind: Kind, damage: str | None = None) -> Recording:
        """All of it as it is now."""
        with self._lock:
            self._parse_waiting()
            series = tuple(one.series() for one in self._columns)
            spans = tuple(sorted(self._spans.values(), key=lambda span: span.start))
            ends = [float(one.times[-1]) for one in series if len(one.times)]
            ends += [span.end for span in spans if span.end is not None]
            seconds = max([self._seconds, *ends])
            return Recording(
                kind, self.header, series, spans, tuple(self._states), seconds, self._cost, damage,
                tuple(self._processes),
            )  # fmt: skip

    def _parse_waiting(self) -> None:
        lines, self._waiting = self._waiting, []
        for text in lines:
            with suppress(Damage):
                self.add(text)


def read(path: str | Path) -> Recording:
    """The recording in a file, up to its first damaged line; `damage` says what is wrong with it.

    A file that is not a recording at all raises a LabError.
    """
    help_text = "Give the name of a file that panel.save(path) or `labkit record` has written."
    try:
        # A damaged byte is one damaged line.
        first, *lines = Path(path).read_bytes().decode("utf-8", "replace").split("\n")
        header = read_line(first)
        if not isinstance(header, Header):
            raise Damage("does not say that this is a recording of labkit")
    except Damage as damage:
        raise LabError(
            f"{str(path)!r} is not a recording that can be read: its first line {damage}. "
            f"{help_text}"
        ) from damage
    except OSError as fault:
        raise LabError(f"{str(path)!r} cannot be read: {fault.strerror}. {help_text}") from fault
    recorder = Recorder(header)
    damage_text = None
    for number, text in enumerate(lines, 2):
        try:
            recorder.add(text)
        except Damage as damage:
            damage_text = f"Line {number} {damage}; this is what comes before it."
            break
    if damage_text is None and not recorder.ended:
        damage_text = "It has no end: it was cut off there, or is still being written."
    kind = recorded(header.where, header.when[:16].replace("T", " "))
    if header.modelled:
        kind = modelled(header.modelled)
    return recorder.recording(kind, damage_text)


def replay(path: str | Path, *others: str | Path) -> Recording:
    """The recording in a file; of several, all on one time axis, each from its own start.

    >>> labkit.replay("before.jsonl", "after.jsonl")                 # doctest: +SKIP
    """
    if not others:
        return read(path)
    names = [Path(one).stem for one in (path, *others)]
    if len(set(names)) < len(names):  # files of one name in several folders
        names = [str(one) for one in (path, *others)]
    parts = [(name, read(one)) for name, one in zip(names, (path, *others), strict=True)]

    def named(device: Device, of: str) -> Device:
        whole = device.part_of and f"{of}/{device.part_of}"
        return replace(device, key=f"{of}/{device.key}", part_of=whole, of=of)

    series: list[Series] = []
    spans, states, processes = list[Span](), list[State](), list[Processes]()
    for name, one in parts:
        for each in one.series:
            devices = tuple(named(device, name) for device in each.devices)
            series.append(replace(each, source=f"{name}/{each.source}", devices=devices))
        spans += [replace(span, name=f"{span.name} · {name}", of=name) for span in one.spans]
        states += [replace(state, device=f"{name}/{state.device}") for state in one.states]
        processes += [replace(used, device=f"{name}/{used.device}") for used in one.processes]
    from_formula = any(one.kind.name == "modelled" for _, one in parts)
    source = "; ".join(f"{name}: {one.kind.source}" for name, one in parts)
    return Recording(
        Kind("modelled" if from_formula else "recorded", source),
        replace(parts[0][1].header, title=" and ".join(names)),
        tuple(series), tuple(spans), tuple(states), max(one.seconds for _, one in parts),
        damage=" ".join(f"{name}: {one.damage}" for name, one in parts if one.damage) or None,
        processes=tuple(processes),
    )  # fmt: skip
