"""Measured collectives by size: times with the model's lines and residuals, and bandwidths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labkit.kinds import bytes_text, percent_text, seconds_text
from labkit.views.figure import FAINT, Picture, figure, look, picture, style

__all__ = ["bandwidths", "times"]

_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def times(bench: Any, fits: Mapping[str, Any], names: Mapping[str, str]) -> Picture:
    """Above, dots measured and lines modelled; below, how many times the measured is modelled."""
    said = "; ".join(
        f"{names[name]}: {seconds_text(fit.latency)} latency, {fit.bandwidth_text}, half of the "
        f"medians within {percent_text(fit.typical)} of the line"
        for name, fit in fits.items()
    )
    alt = f"Time of {_title(bench)} by size, measured, with fitted lines. {said}."
    with style():
        chart = figure(8, 6.6)
        above, below = chart.subplots(2, 1, sharex=True, height_ratios=(3, 1.2))
        for index, fit in enumerate(fits.values()):
            like = look(index)
            sizes = [point.nbytes for point in fit.points]
            above.plot(
                sizes, [point.modelled for point in fit.points],
                color=like.color, linestyle=like.dash, linewidth=1.3, marker="none",
            )  # fmt: skip
            above.plot(
                sizes, [point.measured for point in fit.points], like.marker,
                color=like.color, markersize=5,
            )  # fmt: skip
            below.plot(
                sizes, [point.modelled / point.measured for point in fit.points], like.marker,
                color=like.color, markersize=4,
            )  # fmt: skip
        above.set(xscale="log", yscale="log", ylabel="time of a call")
        above.set_title(f"{_title(bench)}: dots measured, lines fitted")
        below.set(xlabel="bytes in each rank's buffer", ylabel="model / measured", yscale="log")
        below.axhline(1, color=FAINT, linewidth=0.8)
        _units(above, below)
        _names(above, {names[n]: fit.points[-1].measured for n, fit in fits.items()}, bench)
        return picture(chart, alt, bench.kind)


def bandwidths(bench: Any, names: Mapping[str, str]) -> Picture:
    """The bus bandwidth of each contender: the higher, the better the link is used."""
    sizes = bench.sizes
    best = max(names, key=lambda name: bench.busbw(name, sizes[-1]))
    alt = (
        f"Bus bandwidth of {_title(bench)} by size. At {bytes_text(sizes[-1])}: "
        + "; ".join(
            f"{words} {bytes_text(bench.busbw(name, sizes[-1]))}/s" for name, words in names.items()
        )
        + f". The fastest there is {names[best]}."
    )
    with style():
        chart = figure(8, 4.6)
        axes = chart.add_subplot(xlabel="bytes in each rank's buffer", ylabel="bus bandwidth, GB/s")
        axes.set_title(_title(bench))
        last = {}
        for index, (name, words) in enumerate(names.items()):
            like = look(index)
            speeds = [bench.busbw(name, size) / 1e9 for size in sizes]
            axes.plot(sizes, speeds, color=like.color, marker=like.marker, linestyle=like.dash)
            last[words] = speeds[-1]
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        _size_ticks(axes)
        _names(axes, last, bench)
        return picture(chart, alt, bench.kind)


def _title(bench: Any) -> str:
    return f"{bench.collective.replace('_', '-')} by {bench.ranks} ranks"


def _units(above: Any, below: Any) -> None:
    above.yaxis.set_major_formatter(lambda value, _: seconds_text(value))
    lower, upper = below.get_ylim()
    # A model that is right must look right: the axis never zooms in on a few per cent.
    below.set_ylim(min(lower, 0.4), max(upper, 2.5))
    below.set_yticks([tick for tick in _RATIOS if below.get_ylim()[0] < tick < below.get_ylim()[1]])
    below.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    above.minorticks_off()
    _size_ticks(below)


def _size_ticks(axes: Any) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
    axes.minorticks_off()


def _names(axes: Any, last: Mapping[str, float], bench: Any) -> None:
    """The name of each curve at its right end, moved apart where ends are close."""
    axes.get_figure().canvas.draw()
    lower, _ = axes.get_ylim()
    height = axes.get_window_extent().height
    to_pixels = axes.transData.transform
    ends = sorted(last.items(), key=lambda item: item[1])
    marks = [to_pixels((bench.sizes[-1], value))[1] for _, value in ends]
    gap = 13 * axes.get_figure().dpi / 72
    placed = _apart(marks, gap, to_pixels((bench.sizes[-1], lower))[1], height)
    order = list(last)
    for (words, value), mark, at in zip(ends, marks, placed, strict=True):
        axes.annotate(
            words, (bench.sizes[-1], value),
            xytext=(10, (at - mark) * 72 / axes.get_figure().dpi), textcoords="offset points",
            va="center", size=9, color=look(order.index(words)).color, annotation_clip=False,
        )  # fmt: skip


def _apart(marks: Sequence[float], gap: float, bottom: float, height: float) -> list[float]:
    """Positions in the same order, at least a gap apart, inside the height if there is room.

    >>> _apart([10, 12, 50], 8, 0, 100)
    [10, 18, 50]
    """
    placed: list[float] = []
    for mark in marks:
        placed.append(max(mark, placed[-1] + gap) if placed else max(mark, bottom))
    top = bottom + height
    for at in range(len(placed) - 1, -1, -1):
        above = placed[at + 1] - gap if at + 1 < len(placed) else top
        placed[at] = min(placed[at], above)
    return placed
