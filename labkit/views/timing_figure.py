"""Timed samples as strips of dots: every sample, the median, its interval, the verdict in words."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.kinds import Kind
from labkit.views.figure import INK, Picture, figure, look, picture, style

__all__ = ["Strip", "samples"]


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
    scale, unit = _unit(strips)
    with style():
        chart = figure(8, 1.25 + 0.85 * len(strips))
        axes = chart.add_subplot(xlabel=f"{unit} per call")
        axes.set_title("\n".join(textwrap.wrap(title, 70)))
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", visible=True)
        # One call that the machine interrupted must not squeeze all others into a line.
        limit = 2 * max(strip.estimate.high for strip in strips)
        for row, strip in enumerate(strips):
            _draw(axes, row, strip, scale, limit)
        axes.set_ylim(len(strips) - 0.4, -0.65)
        names = [textwrap.fill(strip.name, 18) for strip in strips]
        axes.set_yticks(range(len(strips)), names)
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.06)
        return picture(chart, alt, kind)


def _draw(axes: Any, row: int, strip: Strip, scale: float, limit: float) -> None:
    like, count = look(row), len(strip.samples)
    # Spread by order in time, top to bottom: a drift is seen as a slope.
    heights = [row + 0.1 + 0.26 * (i / max(1, count - 1)) for i in range(count)]
    shown = [(s / scale, h) for s, h in zip(strip.samples, heights, strict=True) if s <= limit]
    axes.plot(
        [s for s, _ in shown], [h for _, h in shown], like.marker,
        color=like.color, markersize=4, alpha=0.6, markeredgewidth=0,
    )  # fmt: skip
    beyond = [h for s, h in zip(strip.samples, heights, strict=True) if s > limit]
    axes.plot([limit / scale] * len(beyond), beyond, ">", color="none", markeredgecolor=INK)
    more = f" · {len(beyond)} slower than shown (▹)" if beyond else ""
    found = strip.estimate
    axes.plot([found.low / scale, found.high / scale], [row - 0.05] * 2, "-", color=INK, lw=2.5)
    axes.plot([found.value / scale], [row - 0.05], "|", color=INK, markersize=13, mew=2.5)
    words = strip.words.replace("\n", " · ") + more
    axes.annotate(
        words, (0.995, row - 0.2), xycoords=("axes fraction", "data"),
        ha="right", va="bottom", size=9, color=INK,
    )  # fmt: skip


def _unit(strips: Sequence[Strip]) -> tuple[float, str]:
    typical = max((strip.estimate.value for strip in strips), default=1.0)
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if typical >= factor:
            return factor, unit
    return 1e-9, "ns"
