"""What each span used of each device: seconds, utilisation, memory, joules, images per joule.

A number that is not known is None, never 0, and `missing` gives the reason in a few words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from labkit.kinds import Kind, bytes_text, rate_text, seconds_text
from labkit.shown import ShownAsTable
from labkit.telemetry.columns import Series
from labkit.telemetry.format import Span
from labkit.telemetry.metrics import Device, DeviceState

if TYPE_CHECKING:
    from labkit.telemetry.columns import Numbers
    from labkit.views.table import Table

    Edges = tuple[Numbers, Numbers, Numbers]  # start and end of each span, and its last sample

TOO_SHORT, NOT_SEEN = "too short to measure", "not seen"
# A counter of energy is updated at least every 0.1 s. Of ten updates in a span, one that falls just
# outside is a tenth of the result.
_UPDATES, _UPDATE = 10, 0.1
_COVERED = 0.9  # of a span, at least, for a mean or a sum over it


@dataclass(frozen=True)
class SpanUse:
    """A span on a device, or on all devices together."""

    span: Span
    device: str
    """Its key, or "all"."""
    label: str
    """Its name in a table, such as "GPU 0"."""
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
    """Why a number is None, by the name of the number."""

    def text(self, name: str) -> str:
        """Returns a number as the table writes it, or why it is missing: `text("utilisation")`."""
        value = getattr(self, name)
        return self.missing.get(name, NOT_SEEN) if value is None else _COLUMNS[name][1](value)


def use(
    spans: Sequence[Span], devices: Sequence[Device], series: Sequence[Series],
    states: Sequence[DeviceState], now: float,
) -> tuple[SpanUse, ...]:  # fmt: skip
    """Returns a row for each span and device, and a further row for all devices together.

    A span that has not ended is measured up to `now`, and has no rates yet. All spans are computed
    together, as arrays: an hour of eight GPUs has thousands of rows.
    """
    import numpy as np

    starts = np.array([span.start for span in spans])
    ends = np.array([max(now, span.start) if span.end is None else span.end for span in spans])
    means, joules, found = [], [], []  # for each device an array or list over spans
    for device in devices:
        source = next(rows for rows in series if device in rows.devices)
        # The sample that the end of a span has asked for comes a moment after it.
        edges = (starts, ends, ends + source.every / 2)
        means.append(_means(*source.busy(device.key), edges))
        counter, power = (source.column(device.key, name) for name in ("energy", "power"))
        joules.append(_joules(*counter, *power, edges))
        about = [state for state in states if state.device in (device.key, source.source)]
        rows = _rows(spans, device.label, source, [device.key], edges, means[-1], joules[-1])
        metrics = {metric for metric, _ in _COLUMNS.values()} if len(source.times) > 1 else set()
        never = {name for name in metrics if not len(source.column(device.key, name)[0])}
        whys = [_missing(row, source, about, never) for row in rows]
        found.append([replace(row, missing=why) for row, why in zip(rows, whys, strict=True)])
    if len(devices) > 1:
        # A number that a device lacks is missing for all together: NaN makes a sum NaN.
        keys, mean, total = [known.key for known in devices], np.mean(means, 0), np.sum(joules, 0)
        of = devices[0].of
        rows = _rows(spans, f"{of} · all" if of else "all", source, keys, edges, mean, total)
        whys = [
            {k: v for row in same for k, v in row.missing.items()}
            for same in zip(*found, strict=True)
        ]
        found.append([replace(row, missing=why) for row, why in zip(rows, whys, strict=True)])
    found[-1:] = [[_with_rates(row) for row in rows] for rows in found[-1:]]
    return tuple(row for same in zip(*found, strict=True) for row in same)


def _rows(
    spans: Sequence[Span], label: str, source: Series, keys: list[str], edges: Edges,
    mean: Numbers, joules: Numbers,
) -> list[SpanUse]:  # fmt: skip
    """Returns a row for each span."""
    import numpy as np

    peak = np.fmax(_peaks(source, keys, "utilisation", edges) / len(keys), 0.0)
    memory = _peaks(source, keys, "memory", edges)
    table = np.stack([mean, np.maximum(peak, mean), memory, joules], 1).astype(object)
    table[np.isnan(table.astype(float))] = None
    key, seconds = keys[0] if len(keys) == 1 else label, (edges[1] - edges[0]).tolist()
    rows = zip(spans, seconds, table.tolist(), strict=True)
    return [SpanUse(span, key, label, length, *numbers) for span, length, numbers in rows]


def _with_rates(row: SpanUse) -> SpanUse:
    """Returns the last row of a span with rates: images belong to the span, not to a device.

    GPUs that did nothing, as beside TensorFlow's build for CPUs, have no images per joule.
    """
    images, seconds = row.span.images, row.seconds
    if images is None or row.span.end is None:
        return row
    joules = None if row.peak_utilisation == 0 else row.joules
    per_second, per_joule = (images / per if per else None for per in (seconds, joules))
    return replace(row, images_per_second=per_second, images_per_joule=per_joule)


def _grown(times: Numbers, counter: Numbers, edges: Edges) -> Numbers:
    """Returns by how much a counter grew in each span, interpolating between its samples."""
    import numpy as np

    low, high = (np.interp(edge, times, counter) for edge in edges[:2])
    return high - low


def _means(times: Numbers, busy: Numbers, covered: Numbers, edges: Edges) -> Numbers:
    """Returns the mean utilisation of each span, or NaN if it is unknown for too much of it."""
    import numpy as np

    starts, ends, last = edges
    nothing = np.full(len(starts), np.nan)
    if not len(times):
        return nothing
    known = _grown(times, covered, edges)
    # A utilisation counter describes the time before it: a single sample would be of another span.
    inside = np.searchsorted(times, last, "right") - np.searchsorted(times, starts)
    enough = (inside > 1) & (known > 0) & (known >= _COVERED * (ends - starts))
    share: Numbers = np.divide(_grown(times, busy, edges), known, nothing, where=enough)
    return 100 * share


def _peaks(source: Series, keys: list[str], metric: str, edges: Edges) -> Numbers:
    """Returns for each span the highest sum over the devices at a moment."""
    import numpy as np

    if metric not in source.metrics:
        return np.full(len(edges[0]), np.nan)
    places = [[known.key for known in source.devices].index(key) for key in keys]
    total = source.values[:, places, source.metrics.index(metric)].sum(axis=1)  # (rows,)
    first = np.searchsorted(source.times, edges[0])
    last = np.searchsorted(source.times, edges[2], "right")
    # The maximum of each stretch from first to last; [::2] leaves out those between two spans.
    highest = np.fmax.reduceat(np.append(total, np.nan), np.stack([first, last], 1).ravel())[::2]
    return np.where(first < last, highest, np.nan)


def _joules(
    times: Numbers, counter: Numbers, sampled: Numbers, watts: Numbers, edges: Edges
) -> Numbers:
    """Returns the joules of each span by the hardware's energy counter, or NaN if it is too short.

    The counter is read rarely and gives the sum. The power, sampled often, says when the energy was
    used. So all moments are moved to an axis on which the power is constant. Without power samples
    the axis is time itself.
    """
    import numpy as np

    starts, ends, _ = edges
    if len(times) < 2:
        return np.full(len(starts), np.nan)
    enough = ends - starts >= _UPDATES * _UPDATE
    steps = np.diff(sampled) * (watts[1:] + watts[:-1]) / 2
    if steps.sum() > 0:
        mean = steps.sum() / (sampled[-1] - sampled[0])
        axis = np.append(0, np.cumsum(steps)) / mean

        def moved(at: Numbers) -> Numbers:
            beyond = np.minimum(at - sampled[0], 0) + np.maximum(at - sampled[-1], 0)
            on_axis: Numbers = np.interp(at, sampled, axis) + beyond
            return on_axis

        times, starts, ends = moved(times), moved(starts), moved(ends)
    first = np.maximum(np.searchsorted(times, starts, "right") - 1, 0)
    last = np.clip(np.searchsorted(times, ends), first, len(times) - 1)
    updates, restarts = (
        np.cumsum(np.append(0, changed)) for changed in (np.diff(counter) > 0, np.diff(counter) < 0)
    )
    seen = np.minimum(ends, times[-1]) - np.maximum(starts, times[0])
    enough &= (updates[last] > updates[first]) & (seen >= _COVERED * (ends - starts))
    # A counter that was reset is not the sum of what was used.
    enough &= restarts[last] == restarts[first]
    # Time before the first and after the last sample counts like the rest.
    longer: Numbers = np.divide(ends - starts, seen, np.full(len(ends), np.nan), where=enough)
    return _grown(times, counter, (starts, ends, ends)) * longer


def _missing(
    row: SpanUse, source: Series, states: Sequence[DeviceState], never: set[str]
) -> dict[str, str]:
    """Returns why each missing number is missing, from its newest state or its samples.

    `never` are the metrics of which the device has no sample.
    """
    end, reasons = row.span.start + row.seconds, {}
    for name in (name for name in _COLUMNS if getattr(row, name) is None):
        metric = _COLUMNS[name][0]
        newest = {
            (state.device, state.metric): state.why
            for state in states
            if state.time <= end and state.why != "note"
        }
        # The state of a metric comes before that of its device, and that before its source's.
        abouts = ((row.device, metric), (row.device, ""), (source.source, ""))
        faults = [why for about in abouts if (why := newest.get(about, "fine")) != "fine"]
        if not faults and metric in never:
            faults = ["not supported"]
        shortest = _UPDATES * (_UPDATE if name == "joules" else source.every)
        seen = NOT_SEEN if row.seconds >= shortest else TOO_SHORT
        reasons[name] = (*faults, seen)[0]
    return reasons


def notes(rows: Sequence[SpanUse], states: Sequence[DeviceState]) -> list[str]:
    """Returns what the reader should know of the missing numbers."""
    reasons = {why for row in rows for why in row.missing.values()}
    keys = {row.device for row in rows}
    metrics = {"", *(metric for metric, _ in _COLUMNS.values())}
    short = "Too short to measure: fewer updates than make a mean."
    return [short] * (TOO_SHORT in reasons) + [
        state.says
        for state in states
        if state.why in reasons and state.device in keys and state.metric in metrics
    ]


@dataclass(frozen=True, repr=False)
class SpanTable(ShownAsTable):
    """What every span of a recording used. A cell that ends with it shows the table."""

    rows: tuple[SpanUse, ...]
    kind: Kind
    notes: tuple[str, ...] = ()

    def table(self) -> Table:
        """Returns a table with a row for each span and device."""
        from labkit.views.table import Table

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
        kind = str(self.kind)
        notes = [*self.notes, f"{kind[:1].upper()}{kind[1:]}."]
        if not rows:
            notes.insert(0, "No device was seen.")
        return Table(head, rows, "What each span used", "\n".join(notes))


def joules_text(joules: float) -> str:
    """Returns joules with three digits, in the unit that keeps them readable.

    >>> joules_text(12.345), joules_text(45_678), joules_text(3.6e6), joules_text(0.00333)
    ('12.3 J', '45.7 kJ', '3.60 MJ', '0.00333 J')
    """
    for factor, unit in ((1e6, "MJ"), (1e3, "kJ")):
        if joules >= 0.9995 * factor:
            return f"{_three_digits(joules / factor)} {unit}"
    return f"{_three_digits(joules)} J"


def _three_digits(value: float) -> str:
    """Returns three digits, also of small numbers such as a large model's images per joule."""
    return (
        f"{value:#.3g}".rstrip(".") if value < 99.95 else rate_text(value, "").removesuffix(" /s")
    )


# The columns of a table: from which metric it is computed, and how it is written.
_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "utilisation": ("utilisation", "{:.0f} %".format),
    "peak_utilisation": ("utilisation", "{:.0f} %".format),
    "peak_memory": ("memory", bytes_text),
    "joules": ("energy", joules_text),
}
