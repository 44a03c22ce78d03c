"""Timings in a notebook: verdicts as a card, and every sample as a dot in a strip."""

import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from labkit.kinds import Kind
from labkit.views.figure import INK, OKABE_ITO, Picture, figure, look, picture, style

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
# A sign and a colour for each verdict.
SIGNS = {
    "faster": ("▲", OKABE_ITO["blue"]), "slower": ("▼", OKABE_ITO["vermillion"]),
    "same": ("=", "#808080"), "cannot tell": ("?", "#808080"),
}  # fmt: skip
ROW = "border-left: 6px solid {}; padding-left: 0.8em; margin: 0.7em 0"
BESIDE = "display: flex; flex-wrap: wrap; column-gap: 1.5em"
LARGE = "font-size: 1.5em; font-weight: 600; min-width: 8em"
SCALE = "position: relative; flex: 1; min-width: 14em; max-width: 30em; height: 2em"


def card(verdicts: Sequence[Any], medians: Sequence[str], caption: str, table: str) -> str:
    """Each verdict large, its interval on a line with the baseline's 1, the table folded below.

    It has only what JupyterLab leaves in the HTML of a notebook that is not trusted.
    """
    found = [one.estimate for one in verdicts]
    drawn = [one for one in found if 0 < one.low <= one.high < math.inf]
    low = math.log(0.95 * min([one.low for one in drawn] + [0.8]))
    high = math.log(1.05 * max([one.high for one in drawn] + [1.25]))

    def mark(css: str, start: float, end: float, text: str = "") -> str:
        left, right = (100 * (math.log(x) - low) / (high - low) for x in (start, end))
        where = f"position: absolute; left: {left:.1f}%; width: {right - left:.1f}%"
        return f'<div style="{where}; {css}">{text}</div>'

    line = mark("top: 1em; border-top: 1px solid #808080", math.exp(low), math.exp(high))
    line += mark("top: 0.5em; height: 1em; border-left: 2px solid #808080", 1, 1, "&nbsp;1")
    html = f"<div>{escape(caption)}</div>"
    for verdict, median in zip(verdicts, medians, strict=True):
        one, (sign, color) = verdict.estimate, SIGNS[verdict.word]
        bar = ""
        if one in drawn:
            thick, value = f"5px solid {color}", one.value
            bar = mark(f"top: 0.85em; border-top: {thick}", one.low, one.high)
            bar += mark(f"top: 0.5em; height: 1em; border-left: {thick}", value, value)
        html += (
            f'<div style="{ROW.format(color)}"><div style="{BESIDE}">'
            f'<div style="{LARGE}">{sign} {verdict.word}: {f"{one}".partition(" (")[0]}</div>'
            f'<div style="{SCALE}">{line}{bar}</div></div>'
            f'<p style="margin: 0">{escape(f"{verdict}. Medians: {median}.")}</p></div>'
        )
    return (
        f'<div class="labkit">{html}<details><summary style="cursor: pointer">All numbers</summary>'
        f"{table}</details></div>"
    )


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
