"""Lanes over time, one for each rank or worker: bars of what it does, in words where they fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.views.figure import FAINT, INK, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WAITS", "Bar", "State", "inches_per", "lanes", "unit_of"]

WAITS: dict[str, Any] = {"facecolor": "#ECEEF0", "edgecolor": FAINT}
HATCHED = 200  # bars of one state; of more, hatching would be a grey field
LETTER = 0.0095  # inches, for each point of its size


class State(NamedTuple):
    """What a bar can be: its name in the key, how it is drawn, and where in its lane."""

    name: str
    looks: Mapping[str, Any]
    top: float = 0.08
    high: float = 0.72


class Bar(NamedTuple):
    """A state of one lane, with words for it: the first that fit are written."""

    lane: int
    state: str
    start: float
    end: float
    words: Sequence[str] = ()


def unit_of(seconds: float) -> tuple[float, str]:
    """The unit of an axis that ends here."""
    units = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
    return next((one for one in units if seconds >= one[0]), (1e-9, "nanoseconds"))


def inches_per(end: float) -> float:
    """Of the axis; known only roughly before the layout."""
    return 6.6 / (end or 1)


def lanes(
    title: str, bars: Sequence[Bar], states: Mapping[str, State], names: Sequence[str],
    end: float, unit: str,
) -> tuple[Figure, Any]:  # fmt: skip
    """A chart with all bars, and its axes, to draw more."""
    from matplotlib.ticker import MaxNLocator

    high = 0.5 if len(names) <= 9 else 0.3 if len(names) <= 20 else 0.13
    chart = figure(8, 1.35 + high * len(names))
    axes = chart.add_subplot(xlabel=unit)
    axes.set_title(title, pad=30)
    for state, how in states.items():
        _draw(axes, [bar for bar in bars if bar.state == state], how)
    size = 8.0 if high > 0.4 else 6.5
    for bar in bars if high > 0.2 else ():
        _write(axes, bar, states[bar.state], size, inches_per(end))
    shown = range(0, len(names), 1 if high > 0.2 else 4)
    axes.set_yticks([lane + 0.44 for lane in shown], [names[lane] for lane in shown])
    axes.tick_params(axis="y", length=0)
    axes.set(xlim=(0, 1.01 * (end or 1)), ylim=(len(names), -0.05))
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=unit == "steps"))
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    present = {bar.state for bar in bars if bar.end - bar.start > 1e-3 * end}
    _draw_key(axes, [how for state, how in states.items() if state in present])
    return chart, axes


def _draw(axes: Any, bars: Sequence[Bar], how: State) -> None:
    """All of one state as one collection: single patches would take seconds."""
    from matplotlib.collections import PolyCollection

    corners = []
    for bar in bars:
        top, bottom = bar.lane + how.top, bar.lane + how.top + how.high
        corners.append([(bar.start, top), (bar.end, top), (bar.end, bottom), (bar.start, bottom)])
    looks = {"hatch": "", **how.looks} if len(bars) < HATCHED else {**how.looks, "hatch": ""}
    axes.add_collection(PolyCollection(corners, linewidth=0.7, zorder=2, **looks))


def _write(axes: Any, bar: Bar, how: State, size: float, inches: float) -> None:
    room = (bar.end - bar.start) * inches
    words = next((one for one in bar.words if LETTER * size * (len(one) + 1) < room), "")
    if words:
        ground = {"facecolor": how.looks["facecolor"], "edgecolor": "none", "pad": 0.6}
        axes.text(
            (bar.start + bar.end) / 2, bar.lane + how.top + how.high / 2, words, size=size,
            ha="center", va="center_baseline", color=INK, zorder=6, bbox=ground,
        )  # fmt: skip


def _draw_key(axes: Any, states: Sequence[State]) -> None:
    """What the bars are, in one line under the title."""
    from matplotlib.patches import Patch

    axes.legend(
        handles=[Patch(label=one.name, linewidth=0.8, **one.looks) for one in states],
        loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(states), fontsize=8.5,
        borderaxespad=0.2, handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip
