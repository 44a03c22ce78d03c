"""What each span used of each device: seconds, utilisation, memory, joules, images per joule.

A number that is not known is None, and `missing` gives the reason in a few words: never a silent 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from labkit.kinds import Kind, bytes_text, rate_text, seconds_text
from labkit.telemetry.format import Span
from labkit.telemetry.metrics import Device, State

if TYPE_CHECKING:
    from labkit.telemetry.recording import Recording

__all__ = ["SpanTable", "SpanUse", "joules_text", "table", "use"]

TOO_SHORT, NOT_SEEN = "too short to measure", "not seen"
_FAULTS = ("not supported", "refused", "lost", "implausible", "silent")
# Of ten updates of a counter in a span, one that falls just outside is a tenth of the result.
_UPDATES = 10
_COVERED = 0.9  # of a span, at least, for its energy
_RECENT = 200  # updates that tell how often a counter is updated
_MOST_NOTES = 6


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
    missing: tuple[tuple[str, str], ...] = ()
    """(which of these, why it is None)."""
    notes: tuple[str, ...] = ()
    """Sentences for the reader."""

    def why(self, field: str) -> str:
        """Why a number is None."""
        return dict(self.missing).get(field, "")

    def text(self, field: str) -> str:
        """A number as the table writes it, or why there is none: `row.text("utilisation")`."""
        value = getattr(self, field)
        return self.why(field) if value is None else _FORMS[field](value)


def use(recording: Recording, span: Span) -> tuple[SpanUse, ...]:
    """One for each GPU (or for the processor), and one for all where there are several.

    A span that has not ended is measured up to now; its images are not all seen yet.
    """
    images = span.images if span.end is not None else None
    end = max(recording.seconds, span.start) if span.end is None else span.end
    whole = [device.key for device in recording.counted if device.part_of is None]
    found = []
    for device in recording.counted:
        row = _of_device(recording, span, end, device)
        found.append(_with_images(row, images) if [device.key] == whole else row)
    if len(whole) > 1:
        rows = [row for row in found if row.device in whole]
        found.append(_with_images(_of_all(recording, span, end, rows), images))
    return tuple(found)


def _of_device(recording: Recording, span: Span, end: float, device: Device) -> SpanUse:
    key, start = device.key, span.start
    seconds, every = end - start, recording.header.every
    missing, notes = {}, []

    covered = _grown(recording, key, "covered_seconds", start, end)
    mean = peak = None
    # A utilisation counter tells of the time before it: one sample would describe another span.
    if seconds >= 2 * every and covered > 0 and covered >= seconds / 2:
        mean = min(100 * _grown(recording, key, "busy_seconds", start, end) / covered, 100.0)
        peak = max(_peak(recording, [key], "utilisation", start, end) or 0.0, mean)
        if covered < 0.95 * seconds and seconds - covered > every:
            share = f"{100 * covered / seconds:.0f} % of {span.name!r}"
            notes.append(f"The utilisation of {device.name} was known for {share}.")
    else:
        why = _reason(recording, device, "utilisation", start, end)
        missing["utilisation"] = missing["peak_utilisation"] = why
    memory = _peak(recording, [key], "memory", start, end)
    if memory is None:
        missing["peak_memory"] = _reason(recording, device, "memory", start, end)
    joules, from_power = _joules(recording, key, start, end)
    if joules is None:
        metric = "energy" if len(recording.column(key, "energy")[0]) else "power"
        missing["joules"] = _reason(recording, device, metric, start, end)
    elif from_power:
        notes.append(f"The energy of {device.name} is summed from its power samples.")
    return SpanUse(
        span, key, device.label, seconds, mean, peak, memory, joules,
        missing=tuple(missing.items()), notes=tuple(notes),
    )  # fmt: skip


def _of_all(recording: Recording, span: Span, end: float, rows: list[SpanUse]) -> SpanUse:
    """Mean utilisation, the peak of the total memory, the sum of the joules."""
    keys, count = [row.device for row in rows], len(rows)
    busiest = _peak(recording, keys, "utilisation", span.start, end)
    values: dict[str, float | None] = {
        "utilisation": sum(row.utilisation or 0.0 for row in rows) / count,
        "peak_utilisation": None if busiest is None else busiest / count,
        "peak_memory": _peak(recording, keys, "memory", span.start, end),
        "joules": sum(row.joules or 0.0 for row in rows),
    }
    missing = {}
    for name, value in values.items():
        without = next((row for row in rows if getattr(row, name) is None), None)
        if without is not None or value is None:
            values[name] = None
            missing[name] = without.why(name) if without else NOT_SEEN
    total = SpanUse(span, "all", "all", rows[0].seconds, missing=tuple(missing.items()))
    return replace(total, **values)  # type: ignore[arg-type]


def _with_images(row: SpanUse, images: float | None) -> SpanUse:
    def per(amount: float | None) -> float | None:
        return images / amount if images is not None and amount else None

    return replace(row, images_per_second=per(row.seconds), images_per_joule=per(row.joules))


def _grown(recording: Recording, device: str, counter: str, start: float, end: float) -> float:
    """By how much a counter grew; between its samples on a straight line."""
    import numpy as np

    times, values = recording.column(device, counter)
    if len(times) < 2:
        return 0.0
    low, high = np.interp([start, end], times, values)
    return float(high - low)


def _peak(
    recording: Recording, devices: list[str], metric: str, start: float, end: float
) -> float | None:
    """The highest sum over the devices at one moment."""
    import numpy as np

    (one,) = [one for one in recording.series if devices[0] in [each.key for each in one.devices]]
    if metric not in one.metrics:
        return None
    # The sample that the end of a span has asked for comes a moment after it.
    first = np.searchsorted(one.times, start)
    last = np.searchsorted(one.times, end + recording.header.every / 2, "right")
    keys = [each.key for each in one.devices]
    places = [keys.index(key) for key in devices]
    total = one.values[first:last, places, one.metrics.index(metric)].sum(axis=1)
    total = total[~np.isnan(total)]
    return float(total.max()) if len(total) else None


def _joules(
    recording: Recording, device: str, start: float, end: float
) -> tuple[float | None, bool]:
    """The energy by the hardware's counter, else from power samples; whether by these."""
    joules = _by_counter(recording, device, start, end)
    if joules is not None:
        return joules, False
    powered = _grown(recording, device, "powered_seconds", start, end)
    seconds = end - start
    if powered < _COVERED * seconds or seconds < _UPDATES * recording.header.every:
        return None, False
    return _grown(recording, device, "joules", start, end) * seconds / powered, True


def _by_counter(recording: Recording, device: str, start: float, end: float) -> float | None:
    import numpy as np

    times, counter = recording.column(device, "energy")
    updates = times[1:][np.diff(counter) > 0][-_RECENT:]
    if len(updates) < 2 or end - start < _UPDATES * np.median(np.diff(updates)):
        return None
    first = max(0, int(np.searchsorted(times, start, "right")) - 1)
    last = min(len(times) - 1, int(np.searchsorted(times, end)))
    inside = counter[first : last + 1]
    if (np.diff(inside) < 0).any() or inside[0] == inside[-1]:
        return None  # it began anew, or it stands still
    # Between two distant samples, as in an old and thinned part, it may have grown at any pace.
    unsure = sum(
        times[at + 1] - times[at]
        for at, edge in ((first, start), (max(0, last - 1), end))
        if times[at] < edge < times[at + 1]
    )
    seen = min(end, times[-1]) - max(start, times[0])
    if unsure > (end - start) / 2 or seen < _COVERED * (end - start):
        return None
    # What lies outside of the first and the last sample is taken to be like the rest.
    return _grown(recording, device, "energy", start, end) * float((end - start) / seen)


def _reason(recording: Recording, device: Device, metric: str, start: float, end: float) -> str:
    """Why a metric has no number in a span: the last state that tells, or what the samples show."""
    source = next(one for one in recording.series if device in one.devices)
    faults: dict[tuple[str, str], State] = {}
    for state in sorted(recording.states, key=lambda state: state.time):
        about = (state.device, state.metric)
        if about[0] not in (device.key, source.source) or about[1] not in ("", metric):
            continue
        if state.why in _FAULTS and state.time <= end:
            faults.pop(about, None)
            faults[about] = state
        elif state.why == "fine" and state.time <= start:
            faults.pop(about, None)
    if faults:
        return [*faults.values()][-1].why
    times, _ = recording.column(device.key, metric)
    if not len(times) and len(source.times) > 1:
        return "not supported"
    few = _UPDATES * recording.header.every
    return TOO_SHORT if end - start < few or len(source.times) < 2 else NOT_SEEN


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

        head, rows = self._cells()
        if not rows:
            return "\n".join(["No device was seen.", *self._under()])
        return text_table(head, rows, "\n".join(self._under()))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table as drawn

        head, rows = self._cells()
        footer = "\n".join(self._under())
        html = drawn(head, rows, caption="What each span used", footer=footer)
        return {"text/plain": str(self), "text/html": html}

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        several = len({row.device for row in self.rows}) > 1
        images = any(row.span.images is not None for row in self.rows)
        head = ["span", *["device"] * several, "time", "utilisation", "peak", "peak memory"]
        head += ["energy", *["images/s", "images/J"] * images]
        rows = []
        last = None
        for row in self.rows:
            # A span's name stands once, at the first of its devices.
            name = row.span.name + " (going on)" * (row.span.end is None)
            cells = ["" if several and row.span == last else _printable(name)]
            cells += [_printable(row.label)] * several + [seconds_text(row.seconds)]
            cells += [row.text(field) for field in _FORMS]
            cells += [_rate(row.images_per_second), _rate(row.images_per_joule)] * images
            rows.append(cells)
            last = row.span
        return head, rows

    def _under(self) -> list[str]:
        source = str(self.kind)
        return [*map(_printable, self.notes), f"{source[:1].upper()}{source[1:]}."]


def table(recording: Recording) -> SpanTable:
    """All spans in order; a recording without any is one span."""
    first = min((float(one.times[0]) for one in recording.series if len(one.times)), default=0.0)
    spans = recording.spans or (Span("everything", first, recording.seconds),)
    rows = tuple(row for span in spans for row in use(recording, span))
    reasons = {why for row in rows for _, why in row.missing}
    notes = [*dict.fromkeys(note for row in rows for note in row.notes)]
    if len(notes) > _MOST_NOTES:
        notes[_MOST_NOTES:] = [f"{len(notes) - _MOST_NOTES} more such sentences are left out."]
    if TOO_SHORT in reasons:
        notes.append("Too short to measure: fewer updates of the counter than make a mean.")
    return SpanTable(
        rows, recording.kind, tuple(dict.fromkeys([*notes, *_footnotes(recording, reasons)]))
    )


def _footnotes(recording: Recording, reasons: set[str]) -> Sequence[str]:
    """The newest sentence of every fault that is a reason in the table; remarks; the damage."""
    about = {one.key for one in recording.counted} | {one.source for one in recording.series}
    newest = {
        (one.device, one.metric): one.says
        for one in recording.states
        if one.why in reasons and one.device in about
        if one.metric in ("", "utilisation", "memory", "power", "energy")
    }
    notes = [one.says for one in recording.states if one.why == "note" and one.says]
    damage = [recording.damage] if recording.damage else []
    return [*newest.values(), *recording.remarks, *notes, *damage]


def joules_text(joules: float) -> str:
    """Three digits, with the unit that keeps them readable.

    >>> joules_text(12.345), joules_text(45_678), joules_text(3.6e6), joules_text(0.00333)
    ('12.3 J', '45.7 kJ', '3.60 MJ', '0.00333 J')
    """
    for factor, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if joules >= 0.9995 * factor:
            return f"{_three_digits(joules / factor)} {unit}"
    return f"{_three_digits(joules)} J"


def _three_digits(value: float) -> str:
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, 2 - int(f'{value:.2e}'.partition('e')[2]))}f}"


def _rate(value: float | None) -> str:
    if value is None:
        return "–"
    return _three_digits(value) if value < 99.95 else rate_text(value, "").removesuffix(" /s")


def _printable(text: str) -> str:
    """A terminal would obey control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _percent(value: float) -> str:
    return f"{value:.0f} %"


# How each number of a row is written, in the order of the columns.
_FORMS: dict[str, Any] = {
    "utilisation": _percent,
    "peak_utilisation": _percent,
    "peak_memory": bytes_text,
    "joules": joules_text,
}
