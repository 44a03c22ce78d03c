"""A recording as one still picture: a lane for each device, and the spans as bands with names.

In a lane everything is a share of what the device has: utilisation as an area, memory as a share
of its memory, power as a share of its limit. What the shares stand for is written beside them.
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from labkit.kinds import bytes_text, seconds_text
from labkit.views.figure import FAINT, INK, OKABE_ITO, Picture, picture, style, tint
from labkit.views.figure import figure as sheet

if TYPE_CHECKING:
    from labkit.telemetry.metrics import Device
    from labkit.telemetry.recording import Recording

BLUE, ORANGE, RED = OKABE_ITO["blue"], "#966800", "#BF5400"  # dark enough for words
# The fact of a device that is its 100 %, the words for the highest, the dashes (drawn, and in the
# words beside the lane), the colour.
LINES: dict[str, tuple[str, Any, str, str, str]] = {
    "memory": ("memory_total", bytes_text, "--", "– –", ORANGE),
    "power": ("power_limit", "{:.0f} W".format, ":", "· · ·", RED),
    "process_memory": ("", bytes_text, "-.", "– ·", INK),  # its 100 % is the highest
}
USUAL = ("utilisation", "memory", "power")
POINTS = 600  # of a curve, at least: about the pixels of a lane
MOST_LANES = 16  # more devices are a heat map
MOST_ROWS, MOST_EDGES = 3, 100  # rows of spans; more edges would be a grey field
Band = tuple[float, float, str]  # a span in the picture: start, end, name
AS_IT_IS: dict[str, Any] = {"parse_math": False}  # names come from outside: "$" is no formula


def figure(recording: Recording, metrics: Sequence[str] | None = None) -> Picture:
    """Returns a picture with a lane for each counted device, and for cores if there is no GPU."""
    lanes = recording.counted
    shown = [name for name in metrics or () if name in ("utilisation", *LINES)] or USUAL
    wholes = {lane.key for lane in lanes if "utilisation" in shown}
    cores = [core for core in recording.devices if core.sort == "core" and core.part_of in wholes]
    crowd = len(lanes) > MOST_LANES
    heights = [0.85 if len(lanes) <= 8 else 0.6] * len(lanes) or [0.85]
    if crowd:
        heights = [min(5.0, 0.1 * len(lanes))]
    heights += [min(1.5, 0.25 + 0.17 * len(cores))] if cores else []
    rows = _rows_of_spans(recording)
    with style(), warnings.catch_warnings():
        # A letter that the typeface lacks is drawn as a box; the alt text has it anyway.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support", UserWarning)
        chart = sheet(8, 1.4 + 0.22 * len(rows) + sum(heights))
        chart.suptitle(
            recording.title, x=0.02, ha="left", size=12.5, weight="bold", color=INK, **AS_IT_IS
        )
        axes = chart.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
        axes = axes[:, 0]
        axes[0].set_xlim(0, max(recording.seconds, 1e-3))
        if crowd:
            _heat(axes[0], recording, lanes)
        for at, device in zip(axes, [] if crowd else lanes, strict=False):
            _lane(at, recording, device, shown)
        if not lanes:
            axes[0].text(0.5, 0.5, "no device was seen", transform=axes[0].transAxes, ha="center")
            axes[0].set_yticks([])
        if cores:
            _core_lanes(axes[-1], recording, cores)
        for at in axes:
            _shade(at, rows)
            at.tick_params(axis="x", length=3 if at is axes[-1] else 0, labelsize=9)
        _name_spans(axes[0], recording, rows)
        axes[-1].set_xlabel("seconds", size=9.5)
        chart.get_layout_engine().set(hspace=0.0, h_pad=0.1)  # type: ignore[union-attr,call-arg]
        return picture(chart, _alt(recording, lanes, cores), recording.kind)


def _curve(recording: Recording, device: Device, metric: str) -> tuple[Any, Any, Any] | None:
    """Returns times, maxima and means in some hundred points, with NaN in a gap."""
    import numpy as np

    times, values = recording.column(device.key, metric)
    every = next(rows.every for rows in recording.series if device in rows.devices)
    if not len(times):
        return None
    size = max(1, len(times) // POINTS)
    first = np.arange(0, len(times), size)
    count = np.diff(first, append=len(times))
    high = np.maximum.reduceat(values, first)
    mean = np.add.reduceat(values, first) / count
    at = np.add.reduceat(times, first) / count
    gaps = 1 + np.flatnonzero(np.diff(at) > max(3 * size * every, 1.0))
    return np.insert(at, gaps, np.nan), np.insert(high, gaps, np.nan), np.insert(mean, gaps, np.nan)


def _lane(axes: Any, recording: Recording, device: Device, shown: Sequence[str]) -> None:
    """Draw what is known of a device, and write beside its lane what is drawn."""
    import numpy as np

    words: list[tuple[str, str]] = []
    if "utilisation" in shown and (used := _curve(recording, device, "utilisation")):
        at, high, mean = used
        axes.fill_between(at, 0, mean, color=tint(BLUE, 0.55), lw=0, zorder=2)
        axes.fill_between(at, mean, high, color=tint(BLUE, 0.25), lw=0, zorder=2)
        axes.plot(at, mean, "-", color=BLUE, lw=1.0, marker="", zorder=3)
        average = _mean(recording, device)
        words.append(("" if average is None else f"{average:.0f} % busy", BLUE))
    for metric, (limit, text, dash, sign, colour) in LINES.items():
        if metric in shown and (curve := _curve(recording, device, metric)):
            at, high, mean = curve
            most, highest = getattr(device, limit, None), float(np.nanmax(high)) or 1.0
            share = 100 * (mean if metric == "power" else high) / (most or highest)
            axes.plot(at, share, dash, color=colour, lw=1.6, marker="")
            of = f" of {text(most)}" if most else ""
            words.append((f"{sign} {metric.replace('_', ' ')} up to {text(highest)}{of}", colour))
    if not words:
        axes.text(0.5, 0.5, "no sample", transform=axes.transAxes, ha="center", va="center")
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100], ["0", "", "100 %"], size=8)
    label = {"rotation": 0, "ha": "right", "va": "center", **AS_IT_IS}
    axes.set_ylabel(device.label, weight="bold", **label)
    for row, (said, colour) in enumerate(words):
        axes.annotate(said, (1.01, 0.98 - 0.32 * row), xycoords="axes fraction", ha="left",
                      va="top", size=8.5, color=colour)  # fmt: skip


def _heat(axes: Any, recording: Recording, lanes: Sequence[Device]) -> None:
    """Draw a line for each device: the darker, the higher its utilisation."""
    import numpy as np

    curves = [recording.column(lane.key, "utilisation") for lane in lanes]
    bins = np.arange(0, recording.seconds, max(2 * recording.header.every, recording.seconds / 300))
    sums, counts = (
        np.array([np.histogram(at, bins, weights=one)[0] for at, one in pairs])
        for pairs in (curves, [(at, None) for at, _ in curves])
    )
    rows = np.divide(sums, counts, np.full(sums.shape, np.nan), where=counts > 0)
    axes.imshow(rows, "Blues", aspect="auto", vmin=0, vmax=100, interpolation="nearest",
                extent=(0, recording.seconds, len(lanes) - 0.5, -0.5))  # fmt: skip
    axes.grid(visible=False)
    axes.set_yticks(range(0, len(lanes), 8), [lane.label for lane in lanes[::8]])
    axes.annotate("utilisation:\nwhite 0 %\ndark 100 %", (1.01, 0.98), xycoords="axes fraction",
                  va="top", size=8.5, color=BLUE)  # fmt: skip


def _core_lanes(axes: Any, recording: Recording, cores: Sequence[Device]) -> None:
    for row, core in enumerate(cores):
        if used := _curve(recording, core, "utilisation"):
            at, _, mean = used
            axes.fill_between(at, row + 0.9, row + 0.9 - 0.8 * mean / 100, color=tint(BLUE, 0.7),
                              lw=0, zorder=2)  # fmt: skip
        axes.axhline(row + 0.9, color=FAINT, lw=0.5)
    axes.set_ylim(len(cores), 0)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.set_ylabel(f"{len(cores)} cores", rotation=0, ha="right", va="center")


def _rows_of_spans(recording: Recording) -> list[list[Band]]:
    """Returns rows of spans, in which none overlap: the longest on top, nested spans below."""
    bands = [
        (span.start, recording.seconds if span.end is None else span.end, span.name)
        for span in recording.spans
    ]
    rows: list[list[Band]] = [[] for _ in range(MOST_ROWS)]
    for start, end, name in sorted(bands, key=lambda one: one[0] - one[1]):
        for row in rows:
            at = bisect(row, start, key=itemgetter(0))
            before, after = row[max(at - 1, 0) : at], row[at : at + 1]
            if all(e <= start for _, e, _ in before) and all(end <= s for s, _, _ in after):
                row.insert(at, (start, end, name))
                break
    return [row for row in rows if row]


def _shade(axes: Any, rows: list[list[Band]]) -> None:
    """Shade every second span of the last row lightly, and draw the edges of all spans."""
    over = axes.get_xaxis_transform()  # from the bottom of the lane to its top
    drawn = rows[-1] if rows else []
    axes.broken_barh([(start, end - start) for start, end, _ in drawn[::2]], (0, 1),
                     transform=over, color="#000000", alpha=0.045, lw=0, zorder=0)  # fmt: skip
    if len(drawn) <= MOST_EDGES:
        edges = [edge for start, end, _ in drawn for edge in (start, end)]
        axes.vlines(edges, 0, 1, transform=over, color=FAINT, lw=0.6, alpha=0.7, zorder=1)


def _name_spans(axes: Any, recording: Recording, rows: list[list[Band]]) -> None:
    """Draw a bar for each span above the first lane, with its name if that fits."""
    where = axes.get_xaxis_transform()
    high = 0.22 / max(axes.get_position().height * axes.figure.get_figheight(), 0.3)
    letters = 72 / max(recording.seconds, 1e-3)  # of a small typeface, in a second
    for level, row in enumerate(reversed(rows)):
        low = 1.04 + level * high
        axes.broken_barh([(start, end - start) for start, end, _ in row], (low, 0.85 * high),
                         transform=where, clip_on=False, facecolor="#E3E6E8", edgecolor="white",
                         lw=0.8)  # fmt: skip
        for start, end, name in row:
            if text := _fitting(name, int((end - start) * letters)):
                axes.text((start + end) / 2, low + 0.4 * high, text, transform=where, size=7.5,
                          ha="center", va="center", color=INK, clip_on=False,
                          **AS_IT_IS)  # fmt: skip


def _fitting(name: str, room: int) -> str:
    """Returns a name in so many letters: whole, as the number of an epoch or a cell, or cut.

    >>> [_fitting(name, 10) for name in ("epoch 12", "long epoch 12", "[15] fit(x, y)")]
    ['epoch 12', '12', '[15]']
    >>> [_fitting("evaluate the model", room) for room in (12, 3)]
    ['evaluate th…', '']
    """
    number = re.search(r"^\[\d+\]|\d+$", name)
    cut = f"{name[: room - 1].rstrip()}…" if room > 4 else ""
    return next(one for one in (name, number[0] if number else cut, "") if len(one) <= room)


def _alt(recording: Recording, lanes: Sequence[Device], cores: Sequence[Device]) -> str:
    remarks = "".join(f" {sentence}" for sentence in recording.remarks)
    if not lanes:
        return f"An empty recording: no device was seen.{remarks}"
    each = []
    for one in lanes:
        mean = _mean(recording, one)
        known = "utilisation unknown" if mean is None else f"{mean:.0f} % busy on average"
        each.append(f"{one.label} ({one.name}) {known}")
    spans = [span.name for span in recording.spans]
    named = ", ".join(spans[:6]) + (", …" if len(spans) > 6 else "")
    marked = f" Spans: {named}." if spans else ""
    small = f" Below, its {len(cores)} cores." if cores else ""
    return (
        f"{recording.title}: samples of {len(lanes)} device{'s' * (len(lanes) != 1)} over "
        f"{seconds_text(recording.seconds)}: {'; '.join(each)}.{small}{marked}{remarks}"
    )


def _mean(recording: Recording, device: Device) -> float | None:
    """Returns the mean utilisation over the time for which it is known."""
    _, busy, covered = recording.busy(device)
    return float(100 * busy[-1] / covered[-1]) if len(covered) and covered[-1] else None
