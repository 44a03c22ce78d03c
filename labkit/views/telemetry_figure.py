"""A recording as one still picture: a lane for each device, and the spans as bands with names.

In a lane everything is a share of what the device has: utilisation as an area, memory as a share
of its memory, power as a share of its limit. What the shares stand for is written beside them.
"""

from __future__ import annotations

import warnings
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from labkit.kinds import bytes_text, seconds_text
from labkit.views.figure import FAINT, INK, OKABE_ITO, Picture, picture, style, tint
from labkit.views.figure import figure as sheet
from labkit.views.words import one_line

__all__ = ["figure"]

BLUE, ORANGE, RED = OKABE_ITO["blue"], OKABE_ITO["orange"], OKABE_ITO["vermillion"]
_BINS = 600  # about as many as there are pixels in a lane
_LANE, _CORES = 0.85, 1.5  # inches
_MOST_LANES, _MOST_CORES = 16, 32
# Names come from outside: a "$" in them begins no formula.
_AS_IT_IS: dict[str, Any] = {"parse_math": False}
_NESTED, _MOST_EDGES = 3, 100  # rows of spans that are drawn; more edges would be a grey field


class Line(NamedTuple):
    """One reading in pixel columns: lowest, highest and mean of each, NaN where nothing is."""

    low: Any
    high: Any
    mean: Any


class Band(NamedTuple):
    """A span in the picture."""

    start: float
    end: float
    name: str


def figure(recording: Any) -> Picture:
    """Lanes over time for the devices that are counted; the cores too, where there is no GPU."""
    lanes = recording.counted[:_MOST_LANES]
    whole = {one.key for one in lanes}
    cores = [one for one in recording.devices if one.sort == "core" and one.part_of in whole]
    heights = [_LANE if len(lanes) <= 8 else 0.6] * len(lanes) or [_LANE]
    heights += [min(_CORES, 0.25 + 0.17 * len(cores))] if cores else []
    rows = _rows_of_spans(recording)
    with style(), _without_missing_glyphs():
        chart = sheet(8, 1.3 + 0.22 * len(rows) + sum(heights))
        axes = chart.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
        axes = axes[:, 0]
        edges = _edges(recording)
        for at, device in zip(axes, lanes, strict=False):
            _lane(at, recording, device, edges)
        if not lanes:
            axes[0].text(0.5, 0.5, "no device was seen", transform=axes[0].transAxes, ha="center")
            axes[0].set_yticks([])
        if cores:
            _core_lanes(axes[len(lanes)], recording, cores, edges)
        for at in axes:
            _bands(at, rows)
        _names(axes[0], recording, rows)
        _key(chart, recording, lanes)
        axes[0].set_xlim(0, max(recording.seconds, 1e-3))
        _time(axes)
        chart.get_layout_engine().set(hspace=0.0, h_pad=0.05)  # type: ignore[union-attr,call-arg]
        return picture(chart, _alt(recording, lanes, cores), recording.kind)


@contextmanager
def _without_missing_glyphs() -> Iterator[None]:
    """A letter that the typeface lacks is drawn as a box; the words below it say it anyway."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support", UserWarning)
        yield


def _time(axes: Any) -> None:
    """Seconds or minutes, below the last lane only."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    long = axes[-1].get_xlim()[1] > 300
    if long:
        axes[-1].xaxis.set_major_locator(MaxNLocator(8, steps=[1, 1.2, 3, 6, 10]))
        axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at / 60:g}"))
    axes[-1].set_xlabel("minutes" if long else "seconds", size=9.5)
    for at in axes:
        at.tick_params(axis="x", length=3 if at is axes[-1] else 0, labelsize=9)


def _edges(recording: Any) -> Any:
    import numpy as np

    return np.linspace(0, max(recording.seconds, 1e-3), _BINS + 1)


def _binned(recording: Any, device: Any, metric: str, edges: Any) -> Line | None:
    """Extremes and means in pixel columns; a gap between samples stays a gap."""
    import numpy as np

    times, values = recording.column(device.key, metric)
    if not len(times):
        return None
    middles = (edges[1:] + edges[:-1]) / 2
    cuts = np.searchsorted(times, edges)
    cuts[-1] = len(times)
    count = np.diff(cuts)
    full = count > 0
    low, high, mean = (np.full(len(middles), np.nan) for _ in range(3))
    starts = cuts[:-1][full]
    low[full] = np.minimum.reduceat(values, starts)
    high[full] = np.maximum.reduceat(values, starts)
    mean[full] = np.add.reduceat(values, starts) / count[full]
    # Between two samples that follow each other, columns without any are on the line.
    near = np.interp(middles, times, np.arange(len(times)))
    before, after = np.floor(near).astype(int), np.ceil(near).astype(int)
    step = times[after] - times[before]
    usual = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    longest = max(3 * recording.header.every, 1.0, 5 * usual)
    empty = ~full & (step <= longest) & (middles >= times[0]) & (middles <= times[-1])
    for column in (low, high, mean):
        column[empty] = np.interp(middles[empty], times, values)
    return Line(low, high, mean)


def _lane(axes: Any, recording: Any, device: Any, edges: Any) -> None:
    middles = (edges[1:] + edges[:-1]) / 2
    said: list[tuple[str, str]] = []
    used = _binned(recording, device, "utilisation", edges)
    if used is not None:
        axes.fill_between(middles, 0, used.mean, color=tint(BLUE, 0.55), lw=0, zorder=2)
        axes.fill_between(middles, used.mean, used.high, color=tint(BLUE, 0.25), lw=0, zorder=2)
        axes.plot(middles, used.mean, "-", color=BLUE, lw=1.0, marker="", zorder=3)
        said.append((f"{_mean(recording, device):.0f} % busy", BLUE))
    memory = _binned(recording, device, "memory", edges)
    if memory is not None:
        whole = device.memory_total or _highest(memory.high)
        axes.plot(middles, 100 * memory.high / whole, "--", color=_dark(ORANGE), lw=1.6, marker="")
        of = f" of {bytes_text(device.memory_total)}" if device.memory_total else ""
        said.append((f"up to {bytes_text(_highest(memory.high))}{of}", _dark(ORANGE)))
    power = _binned(recording, device, "power", edges)
    if power is not None:
        whole = device.power_limit or _highest(power.high)
        axes.plot(middles, 100 * power.mean / whole, ":", color=RED, lw=1.6, marker="")
        of = f" of {device.power_limit:.0f} W" if device.power_limit else ""
        said.append((f"up to {_highest(power.high):.0f} W{of}", RED))
    if not said:
        axes.text(0.5, 0.5, "no reading", transform=axes.transAxes, ha="center", va="center")
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100], ["0", "", "100 %"], size=8)
    axes.set_ylabel(
        one_line(device.label), rotation=0, ha="right", va="center", weight="bold", **_AS_IT_IS
    )
    for row, (words, colour) in enumerate(said):
        axes.annotate(
            words, (1.01, 0.98 - 0.32 * row), xycoords="axes fraction",
            ha="left", va="top", size=8.5, color=colour,
        )  # fmt: skip


def _core_lanes(axes: Any, recording: Any, cores: Sequence[Any], edges: Any) -> None:
    middles = (edges[1:] + edges[:-1]) / 2
    whole, cores = len(cores), cores[:_MOST_CORES]
    for row, core in enumerate(cores):
        used = _binned(recording, core, "utilisation", edges)
        if used is not None:
            axes.fill_between(middles, row + 0.9, row + 0.9 - 0.8 * used.mean / 100,
                              color=tint(BLUE, 0.7), lw=0, zorder=2)  # fmt: skip
        axes.axhline(row + 0.9, color=FAINT, lw=0.5)
    axes.set_ylim(len(cores), 0)
    axes.grid(visible=False)
    few = len(cores) <= 8
    axes.set_yticks([i + 0.5 for i in range(len(cores))] if few else [],
                    [one_line(one.label) for one in cores] if few else [], size=8,
                    **_AS_IT_IS)  # fmt: skip
    axes.tick_params(axis="y", length=0)
    if not few:
        shown = f"{whole} cores" if whole == len(cores) else f"{len(cores)} of\n{whole} cores"
        axes.set_ylabel(shown, rotation=0, ha="right", va="center")


def _rows_of_spans(recording: Any) -> list[list[Band]]:
    """Spans that overlap lie in different rows: the longest on top, what is inside below."""
    bands = [
        Band(span.start, recording.seconds if span.end is None else span.end, one_line(span.name))
        for span in recording.spans
    ]
    rows: list[list[Band]] = []
    for band in sorted(bands, key=lambda one: one.start - one.end):
        for row in rows:
            at = bisect(row, band)
            if (at == 0 or row[at - 1].end <= band.start) and (
                at == len(row) or band.end <= row[at].start
            ):
                row.insert(at, band)
                break
        else:
            if len(rows) < _NESTED:
                rows.append([band])
    return rows


def _bands(axes: Any, rows: list[list[Band]]) -> None:
    """Every second span is shaded lightly, and every one has its edges."""
    if not rows:
        return
    drawn = rows[-1]
    over = axes.get_xaxis_transform()  # from the bottom of the lane to its top
    axes.broken_barh(
        [(start, end - start) for start, end, _ in drawn[::2]], (0, 1), transform=over,
        color="#000000", alpha=0.045, lw=0, zorder=0,
    )  # fmt: skip
    if len(drawn) <= _MOST_EDGES:
        at = [edge for band in drawn for edge in (band.start, band.end)]
        axes.vlines(at, 0, 1, transform=over, color=FAINT, lw=0.6, alpha=0.7, zorder=1)


def _names(axes: Any, recording: Any, rows: list[list[Band]]) -> None:
    """A bar with a name for each span, above the first lane; where it fits, the name."""
    from matplotlib.transforms import blended_transform_factory

    where = blended_transform_factory(axes.transData, axes.transAxes)
    inches = axes.get_position().height * axes.figure.get_figheight()
    high = 0.22 / max(inches, 0.3)
    letters = 78 / max(recording.seconds, 1e-3)  # of a small typeface, in a second
    for level, row in enumerate(reversed(rows)):
        low = 1.04 + level * high
        axes.broken_barh(
            [(start, end - start) for start, end, _ in row], (low, 0.85 * high), transform=where,
            clip_on=False, facecolor="#E3E6E8", edgecolor="white", lw=0.8,
        )  # fmt: skip
        shorter = [name if len(name) < 12 else (name.split() or [""])[-1] for *_, name in row]
        widest = max(map(len, shorter))
        typical = sorted(end - start for start, end, _ in row)[len(row) // 2] * letters
        # Where names do not fit, those of every second, fifth, tenth … span do.
        step = next((n for n in (1, 2, 5, 10, 20, 50, 100) if n * typical >= widest), 10**9)
        for number, (start, end, name) in enumerate(row, 1):
            fits = name if len(name) <= (end - start) * letters * step else shorter[number - 1]
            if number % step == 0 and len(fits) <= (end - start) * letters * step:
                axes.text((start + end) / 2, low + 0.4 * high, fits, transform=where, size=7.5,
                          ha="center", va="center", color=INK, clip_on=False,
                          **_AS_IT_IS)  # fmt: skip


def _key(chart: Any, recording: Any, lanes: Sequence[Any]) -> None:
    """What area, dashes and dots are, once for all lanes, in the title's line."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def there(metric: str) -> bool:
        return any(len(recording.column(one.key, metric)[0]) for one in lanes)

    handles: list[Any] = []
    if there("utilisation"):
        handles.append(Patch(facecolor=tint(BLUE, 0.55), edgecolor=BLUE, label="utilisation"))
    if there("memory"):
        handles.append(Line2D([], [], color=_dark(ORANGE), ls="--", lw=1.6, label="memory"))
    if there("power"):
        handles.append(Line2D([], [], color=RED, ls=":", lw=1.6, label="power"))
    if handles:
        chart.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=9,
                     handlelength=1.8, columnspacing=1.4, borderaxespad=0.2)  # fmt: skip


def _alt(recording: Any, lanes: Sequence[Any], cores: Sequence[Any]) -> str:
    said = "".join(f" {one_line(sentence)}" for sentence in recording.remarks)
    if not lanes:
        return f"An empty recording: no device was seen.{said}"
    each = []
    for one in lanes:
        mean = _mean(recording, one)
        known = "utilisation unknown" if mean != mean else f"{mean:.0f} % busy on average"
        each.append(f"{one_line(one.label)} ({one_line(one.name)}) {known}")
    spans = [one_line(span.name) for span in recording.spans]
    named = ", ".join(spans[:6]) + (", …" if len(spans) > 6 else "")
    marked = f" Spans: {named}." if spans else ""
    small = f" Below, {min(len(cores), _MOST_CORES)} of its {len(cores)} cores." if cores else ""
    return (
        f"Readings of {len(lanes)} device{'s' * (len(lanes) != 1)} over "
        f"{seconds_text(recording.seconds)}: {'; '.join(each)}.{small}{marked}{said}"
    )


def _mean(recording: Any, device: Any) -> float:
    """Over the time for which it was known."""
    _, busy = recording.column(device.key, "busy_seconds")
    _, watched = recording.column(device.key, "covered_seconds")
    known = watched[-1] - watched[0] if len(watched) else 0.0
    return float(100 * (busy[-1] - busy[0]) / known) if known > 0 else float("nan")


def _highest(column: Any) -> float:
    import numpy as np

    return float(np.nanmax(column)) or 1.0


def _dark(colour: str) -> str:
    """The same hue, dark enough for words on white."""
    return "#" + "".join(f"{int(int(colour[i : i + 2], 16) * 0.72):02x}" for i in (1, 3, 5))
