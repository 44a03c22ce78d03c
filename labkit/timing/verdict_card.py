"""Verdicts in a notebook, each with its interval on a line."""

import math
from collections.abc import Sequence
from html import escape

from labkit.timing.verdict import Verdict
from labkit.views.figure import OKABE_ITO

# A sign and a colour for each verdict.
SIGNS = {
    "faster": ("▲", OKABE_ITO["blue"]), "slower": ("▼", OKABE_ITO["vermillion"]),
    "same": ("=", "#808080"), "cannot tell": ("?", "#808080"),
}  # fmt: skip
ROW = "border-left: 6px solid {}; padding-left: 0.8em; margin: 0.7em 0"
BESIDE = "display: flex; flex-wrap: wrap; column-gap: 1.5em"
LARGE = "font-size: 1.5em; font-weight: 600; min-width: 8em"
SCALE = "position: relative; flex: 1; min-width: 14em; max-width: 30em; height: 2.4em"


def card(
    verdicts: Sequence[Verdict],
    medians: Sequence[str],
    caption: str,
    notes: Sequence[str],
    table: str,
) -> str:
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
    line += mark("top: 0.5em; height: 1em; border-left: 2px solid #808080", 1, 1)
    line += mark("top: 1.5em; margin-left: -0.2em; line-height: 1", 1, 1, "1")  # below every bar
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
    html += "".join(f'<p style="margin: 0.5em 0">{escape(note)}</p>' for note in notes)
    return (
        f'<div class="labkit">{html}<details><summary style="cursor: pointer">All numbers</summary>'
        f"{table}</details></div>"
    )
