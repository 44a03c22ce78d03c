"""When each rank sends, receives, works and waits: a lane for each rank, time to the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.kinds import modelled, seconds_text
from labkit.views.figure import FAINT, INK, Picture, look, picture, style, tint
from labkit.views.figure import figure as sheet

__all__ = ["Bar", "bars", "timeline"]

STEPS = modelled(
    "one step for each message, whatever its size; a rank sends one and receives one at a time"
)
# How a bar looks, and where in its lane, from the top: a rank sends and receives at once.
_LOOKS = {"sends": look(0), "receives": look(1), "works": look(2)}
_PLACE = {"sends": (0.08, 0.36), "receives": (0.44, 0.36), "works": (0.08, 0.72)}
_WAIT = "#ECEEF0"
_MOST_NAMED = 8  # ranks whose shares of time the alt text spells out


class Bar(NamedTuple):
    """Something that a rank does: "sends", "receives" or "works", with the other rank."""

    rank: int
    what: str
    start: float
    end: float
    other: int | None


def timeline(trace: Any, *arguments: Any, **keywords: Any) -> Picture:
    """Lanes over time. With latency=, bandwidth= and so on in seconds, without them in steps.

    >>> timeline(trace, latency=5e-6, bandwidth=10e9)       # doctest: +SKIP
    """
    timed = trace.timed(*arguments, **keywords) if arguments or keywords else None
    drawn, finished = bars(trace, timed)
    end = float(max([*finished, *(bar.end for bar in drawn)], default=0.0))
    scale, unit = (1.0, "steps") if timed is None else _unit(end)
    with style():
        high = 0.5 if trace.ranks <= 8 else 0.3 if trace.ranks <= 20 else 0.13
        chart = sheet(8, 1.35 + high * trace.ranks)
        axes = chart.add_subplot(xlabel=unit)
        _lanes(axes, drawn, finished, scale)
        axes.set_title(f"{trace.program}: who is busy when", pad=30)
        _key(axes, any(bar.what == "works" for bar in drawn))
        _ranks(axes, trace.ranks, high)
        axes.set_xlim(0, 1.01 * (end or scale) / scale)  # one rank alone sends nothing
        if high > 0.25:
            _partners(axes, drawn, scale, 8.0 if high > 0.4 else 6.5)
        kind = STEPS if timed is None else timed.kind
        return picture(chart, _alt(trace, drawn, finished, end, timed is not None), kind)


def bars(trace: Any, timed: Any = None) -> tuple[list[Bar], list[float]]:
    """Every bar of the lanes, and when each rank is finished; in steps without times."""
    out = []
    for number, message in enumerate(trace.messages):
        start, end = message.step - 1.0, float(message.step)
        if timed is not None:
            start, end = timed.starts[number], timed.ends[number]
        out.append(Bar(message.source, "sends", start, end, message.dest))
        out.append(Bar(message.dest, "receives", start, end, message.source))
    if timed is not None:
        out.extend(Bar(one.rank, "works", one.start, one.end, None) for one in timed.work)
        return out, [float(end) for end in timed.finished]
    last = [0.0] * trace.ranks
    for call in trace.calls:
        last[call.rank] = max(last[call.rank], float(call.step))
    return out, last


def _unit(seconds: float) -> tuple[float, str]:
    for factor, unit in ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds")):
        if seconds >= factor:
            return factor, unit
    return 1e-9, "nanoseconds"


def _lanes(axes: Any, drawn: Sequence[Bar], finished: Sequence[float], scale: float) -> None:
    from matplotlib.collections import PolyCollection

    # Waiting is the ground of a lane: what is left when everything else is laid over it.
    axes.barh([rank + 0.44 for rank in range(len(finished))], [end / scale for end in finished],
              0.72, color=_WAIT, zorder=1)  # fmt: skip
    for what, (top, high) in _PLACE.items():
        chosen = [bar for bar in drawn if bar.what == what]
        corners = [
            [(x / scale, bar.rank + y) for x, y in (
                (bar.start, top), (bar.end, top), (bar.end, top + high), (bar.start, top + high)
            )]
            for bar in chosen
        ]  # fmt: skip
        one = _LOOKS[what]
        axes.add_collection(
            PolyCollection(
                corners, facecolor=tint(one.color, 0.3), edgecolor=one.color, linewidth=0.7,
                hatch=one.hatch if len(chosen) < 200 else "", zorder=3 if what == "works" else 2,
            )
        )  # fmt: skip


def _partners(axes: Any, drawn: Sequence[Bar], scale: float, size: float) -> None:
    """The other rank of a message, where its bar has room for the number."""
    inches = 6.6 / axes.get_xlim()[1]  # known only roughly before the layout: be modest
    for bar in drawn:
        if bar.other is None:
            continue
        room = (bar.end - bar.start) / scale * inches
        words = f"{'to' if bar.what == 'sends' else 'from'} {bar.other}", str(bar.other)
        word = next((one for one in words if 0.009 * size * (len(one) + 1.5) < room), "")
        top, high = _PLACE[bar.what]
        ground = {"facecolor": tint(_LOOKS[bar.what].color, 0.3), "edgecolor": "none", "pad": 0.6}
        axes.text(
            (bar.start + bar.end) / 2 / scale, bar.rank + top + high / 2, word, size=size,
            ha="center", va="center_baseline", color=INK, zorder=6,
            bbox=ground if word and bar.what == "receives" else None,
        )  # fmt: skip


def _ranks(axes: Any, ranks: int, high: float) -> None:
    from matplotlib.ticker import MaxNLocator

    named = range(0, ranks, 1 if high > 0.2 else 4)
    axes.set_yticks([rank + 0.44 for rank in named], [f"rank {rank}" for rank in named])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(ranks, -0.05)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=axes.get_xlabel() == "steps"))
    axes.spines["left"].set_visible(False)


def _key(axes: Any, working: bool) -> None:
    """What the bars are, in one line under the title."""
    from matplotlib.patches import Patch

    names = {"sends": "sends to", "receives": "receives from"}
    names |= {"works": "works"} if working else {}
    handles = [Patch(label=name, **_LOOKS[what].bar) for what, name in names.items()]
    handles.append(Patch(label="waits", facecolor=_WAIT, edgecolor=FAINT, linewidth=0.4))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(handles),
        fontsize=9, borderaxespad=0.2, handlelength=1.6, columnspacing=1.6,
    )  # fmt: skip


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
    for rank in range(min(trace.ranks, _MOST_NAMED)):
        mine = [bar for bar in drawn if bar.rank == rank]
        times = {what: _covered([bar for bar in mine if bar.what == what]) for what in _PLACE}
        wait = finished[rank] - _covered(mine)
        words = [f"{what} {amount(time)}" for what, time in times.items() if time]
        words.append(f"waits {amount(wait)}" if wait > 1e-9 * end else "never waits")
        parts.append(f"rank {rank} {', '.join(words)}")
    if trace.ranks > _MOST_NAMED:
        parts.append(f"and {trace.ranks - _MOST_NAMED} more")
    count = f"{trace.ranks} rank{'s' * (trace.ranks != 1)}"
    whole = amount(end) + ("" if timed else f" step{'s' * (end != 1)}")
    return f"Timeline of {trace.program}, {count}, {whole}: {'; '.join(parts)}."
