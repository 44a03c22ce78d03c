"""What each span used of each device: seconds, utilisation, memory, joules, images per joule.

A number that is not known is None, and `missing` gives the reason in a few words: never a silent 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from labkit.kinds import Kind, bytes_text, rate_text, seconds_text
from labkit.telemetry.format import Span
from labkit.telemetry.metrics import Device

if TYPE_CHECKING:
    from labkit.telemetry.recording import Numbers, Recording

TOO_SHORT, NOT_SEEN = "too short to measure", "not seen"
# Of ten updates of a counter in a span, one that falls just outside is a tenth of the result.
_UPDATES = 10
_COVERED = 0.9  # of a span, at least, for a mean or a sum over it


@dataclass(frozen=True)
class SpanUse:
    """One span on one device, or on all of them together."""

    span: Span
    device: str
    """Its key, or "all"."""
    label: str
    """How a table calls it: "GPU 0"."""
    seconds: float
    utilisation: float | None = None
    """Mean over time, in per cent."""
    peak_utilisation: float | None = None
    peak_memory: float | None = None
    """Bytes."""
    joules: float | None = None
    images_per_second: float | None = None
    images_per_joule: float | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """Which of these is None, and why."""

    def text(self, name: str) -> str:
        """A number as the table writes it, or why there is none: `row.text("utilisation")`."""
        value = getattr(self, name)
        return self.missing.get(name, NOT_SEEN) if value is None else _COLUMNS[name][1](value)


def use(recording: Recording, span: Span) -> tuple[SpanUse, ...]:
    """One for each GPU (or for the processor), and one for all where there are several.

    A span that has not ended is measured up to now; its images are not all seen yet.
    """
    end = max(recording.seconds, span.start) if span.end is None else span.end
    rows = [_of_device(recording, span, end, device) for device in recording.counted]
    if len(rows) > 1:
        rows.append(_of_all(recording, span, end, rows))
    if rows and span.images is not None and span.end is not None:
        seconds, joules = rows[-1].seconds, rows[-1].joules
        rows[-1] = replace(
            rows[-1],
            images_per_second=span.images / seconds if seconds else None,
            images_per_joule=span.images / joules if joules else None,
        )
    return tuple(rows)


def _of_device(recording: Recording, span: Span, end: float, device: Device) -> SpanUse:
    key, start = device.key, span.start
    mean = peak = None
    times, busy, covered = recording.busy(key)
    known = _grown(times, covered, start, end)
    # A utilisation counter describes the time before it: one sample would be of another span.
    inside = (times >= start) & (times <= _last(recording, end))
    if inside.sum() > 1 and known >= _COVERED * (end - start):
        mean = min(100 * _grown(times, busy, start, end) / known, 100.0)
        peak = max(_peak(recording, [key], "utilisation", start, end) or 0.0, mean)
    memory = _peak(recording, [key], "memory", start, end)
    joules = _joules(recording, key, start, end)
    row = SpanUse(span, key, device.label, end - start, mean, peak, memory, joules)
    missing = {
        name: _reason(recording, device, metric, start, end)
        for name, (metric, _) in _COLUMNS.items()
        if getattr(row, name) is None
    }
    return replace(row, missing=missing)


def _of_all(recording: Recording, span: Span, end: float, rows: list[SpanUse]) -> SpanUse:
    """Mean utilisation, the peak of the total memory, the sum of the joules."""
    keys, count = [row.device for row in rows], len(rows)
    row = SpanUse(
        span, "all", "all", rows[0].seconds,
        sum(row.utilisation or 0.0 for row in rows) / count,
        (_peak(recording, keys, "utilisation", span.start, end) or 0.0) / count,
        _peak(recording, keys, "memory", span.start, end),
        sum(row.joules or 0.0 for row in rows),
    )  # fmt: skip
    # What is missing of one device is missing of all together.
    missing = {name: why for one in rows for name, why in one.missing.items()}
    unknown: dict[str, Any] = dict.fromkeys(missing)
    return replace(row, missing=missing, **unknown)


def _last(recording: Recording, end: float) -> float:
    """The sample that the end of a span has asked for comes a moment after it."""
    return end + recording.header.every / 2


def _grown(times: Numbers, counter: Numbers, start: float, end: float) -> float:
    """By how much a counter grew; between its samples on a straight line."""
    import numpy as np

    if not len(times):
        return 0.0
    low, high = np.interp([start, end], times, counter)
    return float(high - low)


def _peak(
    recording: Recording, devices: list[str], metric: str, start: float, end: float
) -> float | None:
    """The highest sum over the devices at one moment."""
    import numpy as np

    (one,) = [one for one in recording.series if devices[0] in [each.key for each in one.devices]]
    if metric not in one.metrics:
        return None
    first = np.searchsorted(one.times, start)
    last = np.searchsorted(one.times, _last(recording, end), "right")
    keys = [each.key for each in one.devices]
    places = [keys.index(key) for key in devices]
    total = one.values[first:last, places, one.metrics.index(metric)].sum(axis=1)
    return float(np.nanmax(total)) if not np.isnan(total).all() else None


def _joules(recording: Recording, device: str, start: float, end: float) -> float | None:
    """By the hardware's own counter, where it was updated often enough."""
    import numpy as np

    times, counter = recording.column(device, "energy")
    if len(times) < 2:
        return None
    first = max(0, int(np.searchsorted(times, start, "right")) - 1)
    last = int(np.searchsorted(times, end))
    growth = np.diff(counter[first : last + 1])
    seen = min(end, times[-1]) - max(start, times[0])
    # A counter that begins anew is not the sum of what was used.
    if (growth > 0).sum() < _UPDATES or (growth < 0).any() or seen < _COVERED * (end - start):
        return None
    # What lies outside of the first and the last sample is taken to be like the rest.
    return _grown(times, counter, start, end) * float((end - start) / seen)


def _reason(recording: Recording, device: Device, metric: str, start: float, end: float) -> str:
    """Why a metric has no number in a span: what its newest state says, or what is there of it."""
    source = next(one for one in recording.series if device in one.devices)
    newest = {
        (state.device, state.metric): state.why
        for state in recording.states
        if state.time <= end and state.why != "note"
    }
    # A state of the metric tells more than one of the device, and that more than one of its source.
    for about in ((device.key, metric), (device.key, ""), (source.source, "")):
        if newest.get(about, "fine") != "fine":
            return newest[about]
    if len(source.times) > 1 and not len(recording.column(device.key, metric)[0]):
        return "not supported"
    return NOT_SEEN if end - start >= _UPDATES * recording.header.every else TOO_SHORT


@dataclass(frozen=True, repr=False)
class SpanTable:
    """What every span of a recording used. Name it in a cell to see it."""

    rows: tuple[SpanUse, ...]
    kind: Kind
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"SpanTable({len({row.span for row in self.rows})} spans, {self.kind})"

    def __str__(self) -> str:
        from labkit.views.table import text_table

        if not self.rows:
            return f"No device was seen.\n{self._footer()}"
        return text_table(*self._cells(), self._footer())

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table as drawn

        html = drawn(*self._cells(), caption="What each span used", footer=self._footer())
        return {"text/plain": str(self), "text/html": html}

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        several = len({row.device for row in self.rows}) > 1
        images = any(row.span.images is not None for row in self.rows)
        head = ["span", *["device"] * several, "time", "utilisation", "peak", "peak memory"]
        head += ["energy", *["images/s", "images/J"] * images]
        rows = []
        for before, row in zip((None, *self.rows), self.rows, strict=False):
            # A span's name stands once, at the first of its devices.
            repeated = before is not None and several and row.span == before.span
            name = row.span.name + " (going on)" * (row.span.end is None)
            cells = ["" if repeated else name]
            cells += [row.label] * several + [seconds_text(row.seconds)]
            cells += [row.text(name) for name in _COLUMNS]
            rates = (row.images_per_second, row.images_per_joule)
            cells += ["–" if rate is None else _three_digits(rate) for rate in rates] * images
            rows.append(cells)
        return head, rows

    def _footer(self) -> str:
        kind = str(self.kind)
        return "\n".join([*self.notes, f"{kind[:1].upper()}{kind[1:]}."])


def table(recording: Recording) -> SpanTable:
    """All spans in order; a recording without any is one span."""
    first = min((float(one.times[0]) for one in recording.series if len(one.times)), default=0.0)
    spans = recording.spans or (Span("everything", first, recording.seconds),)
    rows = tuple(row for span in spans for row in use(recording, span))
    reasons = {why for row in rows for why in row.missing.values()}
    notes = []
    if TOO_SHORT in reasons:
        notes.append("Too short to measure: fewer updates of the counter than make a mean.")
    keys = [one.key for one in recording.counted]
    metrics = ["", *(metric for metric, _ in _COLUMNS.values())]
    notes += [
        one.says
        for one in recording.states
        if one.why in reasons and one.device in keys and one.metric in metrics
    ]
    notes += [*recording.remarks, recording.damage or ""]
    return SpanTable(rows, recording.kind, tuple(dict.fromkeys(filter(None, notes))))


def joules_text(joules: float) -> str:
    """Three digits, with the unit that keeps them readable.

    >>> joules_text(12.345), joules_text(45_678), joules_text(3.6e6), joules_text(0.00333)
    ('12.3 J', '45.7 kJ', '3.60 MJ', '0.00333 J')
    """
    for factor, unit in ((1e6, "MJ"), (1e3, "kJ")):
        if joules >= 0.9995 * factor:
            return f"{_three_digits(joules / factor)} {unit}"
    return f"{_three_digits(joules)} J"


def _three_digits(value: float) -> str:
    """Small numbers keep their digits, as images per joule of a large model."""
    return (
        f"{value:#.3g}".rstrip(".") if value < 99.95 else rate_text(value, "").removesuffix(" /s")
    )


# The columns of a table: the metric that each is computed from, and how it is written.
_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "utilisation": ("utilisation", "{:.0f} %".format),
    "peak_utilisation": ("utilisation", "{:.0f} %".format),
    "peak_memory": ("memory", bytes_text),
    "joules": ("energy", joules_text),
}
