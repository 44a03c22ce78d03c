"""What each span used of each device: time, utilisation, memory, energy.

A number that is not known is None, and `missing` says in a few words why: never a silent 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from labkit.kinds import Kind
from labkit.telemetry.energy import NOT_SEEN, energy, grown
from labkit.telemetry.lines import Span
from labkit.telemetry.metrics import Device
from labkit.telemetry.reasons import FAULTS, once, short_or, told, without_numbers

if TYPE_CHECKING:
    from labkit.telemetry.recording import Recording

__all__ = ["EVERYTHING", "SpanTable", "SpanUse", "table", "use"]

EVERYTHING = "everything"  # the name of the one row of a recording without spans
ALL = "all"
_SEEN = 0.95
_STARTS = 1.0  # seconds that a panel may take to begin; a later first number is a gap
_EDGE = 0.12  # seconds: one look at each edge is no gap
_MOST_NOTES = 6


@dataclass(frozen=True)
class SpanUse:
    """One span on one device, or on all of them together."""

    span: Span
    device: str
    """Its key, or "all"."""
    name: str
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
    label: str = ""
    """How a table calls the device: "GPU 0"."""
    going_on: bool = False
    """It has not ended: its images are not all seen yet, and are set against nothing."""

    def why(self, field: str) -> str:
        """Why a number is None."""
        return dict(self.missing).get(field, "")

    def text(self, field: str) -> str:
        """A number as the table writes it, or why there is none: `row.text("utilisation")`."""
        from labkit.telemetry.use_table import FORMS

        value = getattr(self, field)
        return self.why(field) if value is None else FORMS[field](value)


def use(recording: Recording, span: Span) -> tuple[SpanUse, ...]:
    """One for each GPU (or for the processor), and one for all where there are several."""
    going_on = span.end is None
    if going_on:
        span = replace(span, end=max(recording.seconds, span.start))
    alone = len([one for one in recording.counted if one.part_of is None]) < 2
    images = None if going_on else span.images
    found = tuple(
        replace(
            _of(recording, span, device, images if alone and device.part_of is None else None),
            going_on=going_on,
        )
        for device in recording.counted
    )
    if alone:
        return found
    return (*found, replace(_together(recording, span, found, images), going_on=going_on))


@dataclass(frozen=True, repr=False)
class SpanTable:
    """What every span of a recording used. Name it in a cell to see it."""

    rows: tuple[SpanUse, ...]
    kind: Kind
    seconds: float
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"SpanTable({len({row.span for row in self.rows})} spans, {self.kind})"

    def __str__(self) -> str:
        from labkit.telemetry.use_table import text

        return text(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.telemetry.use_table import html

        return {"text/plain": str(self), "text/html": html(self)}


def _first_seen(recording: Recording) -> float:
    """When the first utilisation was known: a panel needs a moment to begin."""
    seen = (recording.column(device.key, "utilisation")[0] for device in recording.counted)
    found = min((float(times[0]) for times in seen if len(times)), default=0.0)
    return found if found <= _STARTS else 0.0


def table(recording: Recording) -> SpanTable:
    """All spans in order; a recording without any is one span."""
    spans = recording.spans or (Span(EVERYTHING, _first_seen(recording), recording.seconds),)
    rows = tuple(row for span in spans for row in use(recording, span))
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    if len(notes) > _MOST_NOTES:
        rest = len(notes) - _MOST_NOTES
        notes[_MOST_NOTES:] = [f"{rest} more sentences of this sort are left out."]
    # The newest sentence of each, for whatever is missing somewhere.
    missing = {why for row in rows for _, why in row.missing}
    counted = {one.key for one in recording.counted}
    said = {
        (one.device, one.metric): one.says
        for one in recording.states
        if one.why in missing and one.why in FAULTS
        if one.device in counted or one.device in {each.source for each in recording.series}
        if one.metric in ("", *_ASKED)
    }
    notes += said.values()
    notes += recording.remarks
    notes += [one.says for one in recording.states if one.why == "note" and one.says]
    notes += [recording.damage] if recording.damage else []
    return SpanTable(rows, recording.kind, recording.seconds, tuple(dict.fromkeys(notes)))


_ASKED = ("utilisation", "memory", "power", "energy")


def _of(recording: Recording, span: Span, device: Device, images: float | None) -> SpanUse:
    assert span.end is not None
    start, end = span.start, span.end
    missing: dict[str, str] = {}
    notes: list[str] = []

    def reason(metric: str, otherwise: str) -> str:
        return told(recording, device, metric, start, end) or otherwise

    mean, peak, share = _utilisation(recording, device.key, start, end)
    if mean is None:
        why = short_or(recording, device.key, "utilisation", start, end)
        missing["utilisation"] = missing["peak_utilisation"] = reason("utilisation", why)
    elif share < _SEEN and (1 - share) * (end - start) > _EDGE:
        notes.append(
            f"The utilisation of {device.name} was known for {100 * share:.0f} % of {span.name!r}."
        )
    memory = _peak(recording, device.key, "memory", start, end)
    if memory is None:
        why = short_or(recording, device.key, "memory", start, end)
        missing["peak_memory"] = reason("memory", why)
    spent = energy(recording, device.key, start, end)
    if spent.joules is None:
        said = reason("power", "") or reason("energy", "")
        if spent.why in ("", NOT_SEEN):
            known = any(len(recording.column(device.key, one)[0]) for one in ("energy", "power"))
            otherwise = NOT_SEEN if known else without_numbers(recording, device.key)
            missing["joules"] = said or once(recording, device.key) or spent.why or otherwise
        else:
            missing["joules"] = spent.why
    elif spent.from_power:
        notes.append(
            f"The energy of {device.name} is summed from its power readings: {spent.from_power}."
        )
    return SpanUse(
        span=span,
        device=device.key,
        name=device.name,
        seconds=end - start,
        utilisation=mean,
        peak_utilisation=peak,
        peak_memory=memory,
        joules=spent.joules,
        images_per_second=_rate(images, end - start),
        images_per_joule=_rate(images, spent.joules),
        missing=tuple(missing.items()),
        notes=tuple(notes),
        label=device.label,
    )


def _together(
    recording: Recording, span: Span, found: tuple[SpanUse, ...], images: float | None
) -> SpanUse:
    """Sums of joules, means of utilisation, the peak of the total; parts are left out."""
    whole = {one.key for one in recording.counted if one.part_of is None}
    each = [one for one in found if one.device in whole]
    missing: dict[str, str] = {}
    values: dict[str, float | None] = {}
    for name in ("utilisation", "peak_utilisation", "peak_memory", "joules"):
        values[name] = None
        without = next((one for one in each if getattr(one, name) is None), None)
        if without is not None:
            missing[name] = without.why(name)
    keys = [one.device for one in each]
    seconds = each[0].seconds
    if "utilisation" not in missing:
        values["utilisation"] = sum(one.utilisation or 0.0 for one in each) / len(each)
        values["peak_utilisation"] = _peak_of(recording, keys, "utilisation", span, mean=True)
    if "peak_memory" not in missing:
        values["peak_memory"] = _peak_of(recording, keys, "memory", span)
    if "joules" not in missing:
        values["joules"] = sum(one.joules or 0.0 for one in each)
    for name in ("peak_utilisation", "peak_memory"):
        if values[name] is None and name not in missing:
            missing[name] = "never known of all at once"
    return SpanUse(
        span=span,
        device=ALL,
        name=ALL,
        seconds=seconds,
        images_per_second=_rate(images, seconds),
        images_per_joule=_rate(images, values["joules"]),
        missing=tuple(missing.items()),
        utilisation=values["utilisation"],
        peak_utilisation=values["peak_utilisation"],
        peak_memory=values["peak_memory"],
        joules=values["joules"],
    )


def _utilisation(
    recording: Recording, device: str, start: float, end: float
) -> tuple[float | None, float | None, float]:
    """Mean, peak, and the share of the time for which it was known."""
    times, busy = recording.column(device, "busy")
    _, watched = recording.column(device, "watched")
    # A gauge tells of the time before it: a span of one look says more about what came before.
    if end - start < 2 * recording.header.every or len(times) != len(watched) or len(times) < 2:
        return None, None, 0.0
    known = grown(times, watched, start, end)
    peak = _peak(recording, device, "utilisation", start, end)
    if known <= 0 or known < (end - start) / 2 or peak is None:
        return None, None, 0.0
    mean = min(100 * grown(times, busy, start, end) / known, 100.0)
    return mean, max(peak, mean), known / (end - start)


def _peak(recording: Recording, device: str, metric: str, start: float, end: float) -> float | None:
    times, values = recording.column(device, metric)
    inside = values[_within(times, recording, start, end)]
    return float(inside.max()) if len(inside) else None


def _peak_of(
    recording: Recording, keys: list[str], metric: str, span: Span, *, mean: bool = False
) -> float | None:
    """The highest total (or mean) of several devices at one moment."""
    assert span.end is not None
    for one in recording.series:
        columns = [one.column(key, metric) for key in keys]
        there = [column for column in columns if column is not None]
        if len(there) == len(keys):
            rows = _within(one.times, recording, span.start, span.end)
            total: Any = sum(column[rows] for column in there if column is not None)
            total = total[total == total]  # NaN: not known of all of them
            return float(total.max()) / (len(keys) if mean else 1) if len(total) else None
    return None


def _within(times: Any, recording: Recording, start: float, end: float) -> slice:
    """Rows of a span; the look that its edge has asked for comes a moment after the edge."""
    import numpy as np

    late = recording.header.every / 2
    return slice(
        int(np.searchsorted(times, start)), int(np.searchsorted(times, end + late, "right"))
    )


def _rate(count: float | None, over: float | None) -> float | None:
    return count / over if count is not None and over else None
