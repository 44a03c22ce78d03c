"""Timed samples as strips of dots: every sample, the median, its interval, the verdict in words."""

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.kinds import Kind
from labkit.views.figure import INK, Picture, figure, look, picture, style

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


class Strip(NamedTuple):
    """One candidate: its samples, an estimate (value, low, high) in seconds, and its words."""

    name: str
    samples: Sequence[float]
    estimate: Any
    words: str


def samples(strips: Sequence[Strip], title: str, notes: Sequence[str], kind: Kind) -> Picture:
    """A row for each candidate, in the order given; time runs to the right."""
    said = "; ".join(f"{strip.name}: {strip.words}".replace("\n", ", ") for strip in strips)
    alt = " ".join((f"Timings, {title}. {said}.", *notes))
    slowest = max(strip.estimate.value for strip in strips)
    scale, unit = next((one for one in UNITS if slowest >= one[0]), UNITS[-1])
    # One call that the machine interrupted must not squeeze all others into a line.
    limit = 2 * max(strip.estimate.high for strip in strips)
    with style():
        chart = figure(8, 1.25 + 0.85 * len(strips))
        axes = chart.add_subplot(xlabel=f"{unit} per call")
        axes.set_title("\n".join(textwrap.wrap(title, 70)))
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        for row, strip in enumerate(strips):
            _draw(axes, row, strip, scale, limit)
        axes.set_ylim(len(strips) - 0.4, -0.65)
        axes.set_yticks(range(len(strips)), [textwrap.fill(strip.name, 18) for strip in strips])
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.06)
        return picture(chart, alt, kind)


def _draw(axes: Any, row: int, strip: Strip, scale: float, limit: float) -> None:
    like, last = look(row), max(1, len(strip.samples) - 1)
    # Spread by order in time, top to bottom: a drift is seen as a slope.
    dots = [
        (seconds / scale, row + 0.1 + 0.26 * i / last) for i, seconds in enumerate(strip.samples)
    ]
    beyond = [height for value, height in dots if value > limit / scale]
    dots = [dot for dot in dots if dot[0] <= limit / scale]
    axes.plot(
        [value for value, _ in dots], [height for _, height in dots], like.marker,
        color=like.color, markersize=4, alpha=0.6, markeredgewidth=0,
    )  # fmt: skip
    axes.plot([limit / scale] * len(beyond), beyond, ">", color="none", markeredgecolor=INK)
    found = strip.estimate
    axes.plot([found.low / scale, found.high / scale], [row - 0.05] * 2, "-", color=INK, lw=2.5)
    axes.plot([found.value / scale], [row - 0.05], "|", color=INK, markersize=13, mew=2.5)
    more = f" · {len(beyond)} slower than shown (▹)" if beyond else ""
    axes.annotate(
        strip.words.replace("\n", " · ") + more, (0.995, row - 0.2), ha="right", va="bottom",
        size=9, color=INK, xycoords=("axes fraction", "data"),
    )  # fmt: skip
