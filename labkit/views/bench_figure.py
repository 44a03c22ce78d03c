"""Measured all-reduces by size: times with the model's lines, and residuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.kinds import bytes_text, percent_text, seconds_text
from labkit.views.figure import FAINT, Picture, figure, look, picture, style

__all__ = ["times"]

_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def times(bench: Any, fits: Mapping[str, Any]) -> Picture:
    """Above, dots measured and lines modelled; below, how many times the measured is modelled."""
    title = f"all-reduce by {bench.ranks} ranks"
    each = "; ".join(
        f"{name}: {fit.numbers[0]} latency, {fit.numbers[1]}, half of the "
        f"medians within {percent_text(fit.typical)} of the line"
        for name, fit in fits.items()
    )
    alt = f"Time of {title} by size, measured, with fitted lines. {each}."
    with style():
        chart = figure(8, 6.6)
        above, below = chart.subplots(2, 1, sharex=True, height_ratios=(3, 1.2))
        for index, (name, fit) in enumerate(fits.items()):
            like = look(index)
            sizes, measured, modelled = zip(*fit.times, strict=True)
            above.plot(
                sizes, modelled, color=like.color, linestyle=like.dash, linewidth=1.3, marker="none"
            )
            above.plot(
                sizes, measured, like.marker, color=like.color, markersize=5, linestyle="none",
                label=name,
            )  # fmt: skip
            ratios = [model / time for _, time, model in fit.times]
            below.plot(sizes, ratios, like.marker, color=like.color, markersize=4, linestyle="none")
        above.set(xscale="log", yscale="log", ylabel="time of a call")
        above.set_title(f"{title}: dots measured, lines fitted")
        above.legend(loc="upper left", fontsize=9)
        above.yaxis.set_major_formatter(lambda value, _: seconds_text(value))
        below.set(xlabel="bytes in each rank's buffer", ylabel="model / measured", yscale="log")
        below.axhline(1, color=FAINT, linewidth=0.8, marker="none")
        # A model that is right must look right: the axis never zooms in on a few per cent.
        low, high = below.get_ylim()
        low, high = min(low, 0.4), max(high, 2.5)
        below.set_ylim(low, high)
        below.set_yticks([tick for tick in _RATIOS if low < tick < high])
        below.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        below.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
        above.minorticks_off()
        below.minorticks_off()
        return picture(chart, alt, bench.kind)
