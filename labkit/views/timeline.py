"""Lanes over time, a bar for what each rank or worker does; the timeline of a collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.kinds import modelled, seconds_text
from labkit.views.figure import FAINT, INK, Picture, figure, look, picture, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["WAITS", "Bar", "State", "bars", "inches_per", "lanes", "timeline", "unit_of"]

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


STEPS = modelled(
    "one step for each message, whatever its size; a rank sends one and receives one at a time"
)
# A rank sends and receives at once. Waiting is what is left when all else lies over it.
STATES = {
    "waits": State("waits", WAITS),
    "sends": State("sends to", look(0).bar, 0.08, 0.36),
    "receives": State("receives from", look(1).bar, 0.44, 0.36),
    "works": State("works", look(2).bar),
}
MOST_NAMED = 8  # ranks whose shares of time the alt text spells out


def timeline(trace: Any, *arguments: Any, **keywords: Any) -> Picture:
    """Lanes over time. With latency=, bandwidth= and so on in seconds, without them in steps.

    >>> timeline(trace, latency=5e-6, bandwidth=10e9)       # doctest: +SKIP
    """
    timed = trace.timed(*arguments, **keywords) if arguments or keywords else None
    drawn, finished = bars(trace, timed)
    end = float(max([*finished, *(bar.end for bar in drawn)], default=0.0))
    scale, unit = (1.0, "steps") if timed is None else unit_of(end)
    waits = [Bar(rank, "waits", 0.0, until) for rank, until in enumerate(finished)]
    shown = [one._replace(start=one.start / scale, end=one.end / scale) for one in waits + drawn]
    with style():
        names = [f"rank {rank}" for rank in range(trace.ranks)]
        title = f"{trace.program}: what each rank does"
        chart, _ = lanes(title, shown, STATES, names, end / scale, unit)
        kind = STEPS if timed is None else timed.kind
        return picture(chart, _alt(trace, drawn, finished, end, timed is not None), kind)


def bars(trace: Any, timed: Any = None) -> tuple[list[Bar], list[float]]:
    """Every message and all work, and when each rank is finished; in steps without times."""
    out = []
    for number, one in enumerate(trace.messages):
        start, end = one.step - 1.0, float(one.step)
        if timed is not None:
            start, end = timed.starts[number], timed.ends[number]
        out.append(Bar(one.source, "sends", start, end, (f"to {one.dest}", f"{one.dest}")))
        out.append(Bar(one.dest, "receives", start, end, (f"from {one.source}", f"{one.source}")))
    if timed is not None:
        out.extend(Bar(one.rank, "works", one.start, one.end) for one in timed.work)
        return out, [float(end) for end in timed.finished]
    last = [0.0] * trace.ranks
    for call in trace.calls:
        last[call.rank] = max(last[call.rank], float(call.step))
    return out, last


def _covered(drawn: Sequence[Bar]) -> float:
    """The time in which at least one of these bars is drawn."""
    total, reached = 0.0, 0.0
    for bar in sorted(drawn, key=lambda one: one.start):
        total += max(0.0, bar.end - max(bar.start, reached))
        reached = max(reached, bar.end)
    return total


def _alt(
    trace: Any, drawn: Sequence[Bar], finished: Sequence[float], end: float, timed: bool
) -> str:
    def amount(time: float) -> str:
        return seconds_text(time) if timed else f"{time:g}"

    parts = []
    for rank in range(min(trace.ranks, MOST_NAMED)):
        mine = [bar for bar in drawn if bar.lane == rank]
        times = {what: _covered([bar for bar in mine if bar.state == what]) for what in STATES}
        wait = finished[rank] - _covered(mine)
        words = [f"{what} {amount(time)}" for what, time in times.items() if time]
        words.append(f"waits {amount(wait)}" if wait > 1e-9 * end else "never waits")
        parts.append(f"rank {rank} {', '.join(words)}")
    if trace.ranks > MOST_NAMED:
        parts.append(f"and {trace.ranks - MOST_NAMED} more")
    count = f"{trace.ranks} rank{'s' * (trace.ranks != 1)}"
    whole = amount(end) + ("" if timed else f" step{'s' * (end != 1)}")
    return f"Timeline of {trace.program}, {count}, {whole}: {'; '.join(parts)}."
