"""Samples of devices over time, with spans: what a panel has collected, or what a file holds.

>>> recording = labkit.replay("two_replicas.jsonl")              # doctest: +SKIP
>>> times, watts = recording.column("gpu0", "power")             # doctest: +SKIP
>>> recording.table()                                            # doctest: +SKIP
"""

from __future__ import annotations

import base64
import os
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
    Header,
    RecordingEnd,
    Source,
    Span,
    line,
    read_line,
    row_line,
    values_text,
)
from labkit.telemetry.metrics import METRICS, OWN, Device, DeviceState, Processes
from labkit.telemetry.usage import SpanTable, SpanUse, notes, use

if TYPE_CHECKING:
    from labkit.telemetry.columns import Numbers

_TOGETHER = 1000  # lines that are parsed at a time


@dataclass(frozen=True, eq=False, repr=False)
class Recording:
    """A recording. A cell that ends with it shows its panel, and `table()` is what spans used."""

    kind: Kind
    header: Header
    series: tuple[Series, ...]
    spans: tuple[Span, ...] = ()
    states: tuple[DeviceState, ...] = ()
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
        return tuple(device for rows in self.series for device in rows.devices)

    @cached_property
    def counted(self) -> tuple[Device, ...]:
        """The devices in a table: all GPUs, or the processor if there are no GPUs."""
        gpus = tuple(device for device in self.devices if device.sort == "gpu")
        return gpus or tuple(device for device in self.devices if device.sort == "cpu")

    @property
    def title(self) -> str:
        """The given title, or the name of the span around all others, or the devices."""
        ends = {span: span.end or self.seconds for span in self.spans}
        start = min((span.start for span in self.spans), default=0.0)
        end = max(ends.values(), default=0.0)
        around = [span for span in self.spans if (span.start, ends[span]) == (start, end)]
        if self.header.title or around:
            return self.header.title or around[0].name
        names = [device.name for device in self.counted]
        return ", ".join(
            f"{names.count(name)} × {name}" if names.count(name) > 1 else name
            for name in dict.fromkeys(names)
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """What holds for a whole source at the end, such as a missing driver, and all notes."""
        keys = {device.key for device in self.devices}
        newest = {s.device: s for s in self.states if s.why != "note" and not s.metric}
        faults = [s for key, s in newest.items() if key not in keys and s.why != "fine"]
        notes = [state for state in self.states if state.why == "note"]
        return tuple(dict.fromkeys(state.says for state in [*faults, *notes]))

    def column(self, device: str, metric: str) -> tuple[Numbers, Numbers]:
        """Returns times and values of a metric of a device, without missing numbers."""
        for rows in self.series:
            if device in [sampled.key for sampled in rows.devices]:
                if metric not in rows.metrics and metric not in METRICS:
                    known = ", ".join(rows.metrics)
                    raise LabError(f"{device!r} has no metric {metric!r}. It has {known}.")
                return rows.column(device, metric)
        known = ", ".join(sampled.key for sampled in self.devices) or "no device"
        raise LabError(f"There is no device {device!r} in this recording. It has {known}.")

    def busy(self, device: Device) -> tuple[Numbers, Numbers, Numbers]:
        """Returns `Series.busy` of a device."""
        source = next(rows for rows in self.series if device in rows.devices)
        return source.busy(device.key)

    def table(self) -> SpanTable:
        """Returns what each span used: time, utilisation, memory, energy.

        Without spans it has a single row for the whole recording.
        """
        first = min((float(rows.times[0]) for rows in self.series if len(rows.times)), default=0.0)
        spans = self.spans or (Span("everything", first, self.seconds),)
        rows: list[SpanUse] = []
        for of in dict.fromkeys(span.of for span in spans):
            mine = [span for span in spans if span.of == of]
            devices = [device for device in self.counted if device.of == of or not of]
            rows += use(mine, devices, self.series, self.states, self.seconds)
        said = [*notes(rows, self.states), *self.remarks, self.damage or ""]
        return SpanTable(tuple(rows), self.kind, tuple(dict.fromkeys(filter(None, said))))

    def save(self, path: str | Path) -> Path:
        """Write it to a file that `labkit.replay` reads, all of it or nothing. Returns the path."""
        return write_text(path, "".join(f"{text}\n" for text in self.lines()))

    def lines(self, *, users: bool = False) -> Iterator[str]:
        """Yields the lines of its file. Login names of other users stay out of files."""
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
            known = (p if users or p.user == OWN else replace(p, user="") for p in used.found)
            yield line(replace(used, found=tuple(known)))
        if self.cost is not None:
            yield line(Cost(self.cost, self.seconds))
        if self.damage is None:
            yield line(RecordingEnd(self.seconds))

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
        from labkit.telemetry.page.panel_page import drawn
        from labkit.views.embed import with_state

        picture, html = drawn(self, key, ended, metrics)
        data = {
            "text/plain": str(self),
            "image/png": base64.b64encode(picture.png).decode("ascii"),
        }
        shown = {"image/png": {"width": picture.width, "alt": picture.alt}}
        if os.environ.get("LABKIT_PICTURES") == "still":
            return with_state((data, shown), html)
        return data | {"text/html": html}, shown

    def html(self) -> str:
        """Returns its panel as HTML that needs nothing else."""
        from labkit.telemetry.page.panel_page import drawn

        return drawn(self)[1]


class Recorder:
    """Collects the lines of a recording from any thread, in bounded memory if it has a capacity."""

    def __init__(self, header: Header, capacity: int | None = None) -> None:
        self.header = header
        self.ended = False
        self._capacity = capacity
        self._lock = threading.RLock()
        self._waiting: list[str] = []  # lines that were not parsed yet
        self._columns: list[Columns] = []
        self._spans: dict[tuple[str, float], Span] = {}
        self._states: list[DeviceState] = []
        self._processes: list[Processes] = []
        self._seconds = 0.0
        self._cost: float | None = None

    def take(self, text: str) -> None:
        """Take these lines. A line that cannot be read is left out."""
        with self._lock:
            self._waiting += text.split("\n")
            if len(self._waiting) >= _TOGETHER:
                self._parse_waiting()

    def add(self, text: str) -> None:
        """Take a line. Raises Damage if it cannot be read."""
        if not text.strip():
            return
        match read_line(text):
            case [int(number), *_] as row if 0 <= number < len(self._columns):
                self._columns[number].add(row)
            case list():
                raise Damage("belongs to a source that no line before it names")
            case Source() as source:
                self._columns.append(Columns(source, self.header.every, self._capacity))
            case Span() as span:
                self.add_span(span)
            case DeviceState() as state:
                self._states.append(state)
            case Processes() as found:
                self._processes.append(found)
            case Cost(seconds, time):
                self._cost, self._seconds = seconds, max(self._seconds, time)
            case RecordingEnd(time):
                self.ended, self._seconds = True, max(self._seconds, time)

    def add_span(self, span: Span) -> None:
        """Take a span, which comes twice: when it begins, and with its end."""
        key = (span.name, round(span.start, 6))
        with self._lock:
            known = self._spans.get(key)
            if known is None or known.end is None:
                self._spans[key] = span

    def recording(self, kind: Kind, damage: str | None = None) -> Recording:
        """Returns the recording so far."""
        with self._lock:
            self._parse_waiting()
            series = tuple(columns.series() for columns in self._columns)
            spans = tuple(sorted(self._spans.values(), key=lambda span: span.start))
            ends = [float(rows.times[-1]) for rows in series if len(rows.times)]
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
    """Returns the recording in a file up to its first damaged line, which its `damage` describes.

    Raises LabError if the file is not a recording at all.
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
    """Returns the recording in a file, or several recordings side by side, each from its start.

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
    spans, states, processes = list[Span](), list[DeviceState](), list[Processes]()
    for name, one in parts:
        for each in one.series:
            devices = tuple(named(device, name) for device in each.devices)
            series.append(replace(each, source=f"{name}/{each.source}", devices=devices))
        spans += [replace(span, name=f"{span.name} · {name}", of=name) for span in one.spans]
        states += [replace(state, device=f"{name}/{state.device}") for state in one.states]
        processes += [replace(used, device=f"{name}/{used.device}") for used in one.processes]
    every = max(one.header.every for _, one in parts)
    from_formula = any(one.kind.name == "modelled" for _, one in parts)
    source = "; ".join(f"{name}: {one.kind.source}" for name, one in parts)
    return Recording(
        Kind("modelled" if from_formula else "recorded", source),
        replace(parts[0][1].header, title=" and ".join(names), every=every),
        tuple(series), tuple(spans), tuple(states), max(one.seconds for _, one in parts),
        damage=" ".join(f"{name}: {one.damage}" for name, one in parts if one.damage) or None,
        processes=tuple(processes),
    )  # fmt: skip
