"""When each rank sends, receives, works and waits: a lane for each rank, time to the right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from labkit.kinds import modelled, seconds_text
from labkit.views.figure import FAINT, INK, Look, Picture, look, picture, style, tint
from labkit.views.figure import figure as sheet

__all__ = ["Bar", "bars", "timeline"]

STEPS = modelled(
    "one step for each message, whatever its size; a rank sends one and receives one at a time"
)
_SEND, _RECEIVE, _WORK = look(0), look(1), look(2)
_WAIT = "#ECEEF0"
_SAID = 8  # ranks whose shares of time the alt text spells out


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
    priced = trace.timed(*arguments, **keywords) if arguments or keywords else None
    drawn, finished = bars(trace, priced)
    kind = STEPS if priced is None else priced.kind
    end = float(max([*finished, *(bar.end for bar in drawn)], default=0.0))
    scale, unit = (1.0, "steps") if priced is None else _unit(end)
    shown = end or scale  # one rank alone sends nothing
    with style():
        high = 0.5 if trace.ranks <= 8 else 0.3 if trace.ranks <= 20 else 0.13
        chart = sheet(8, 1.35 + high * trace.ranks)
        axes = chart.add_subplot(xlabel=unit)
        _lanes(axes, drawn, finished, scale)
        axes.set_title(f"{trace.program}: who is busy when", pad=30)
        _key(axes, any(bar.what == "works" for bar in drawn))
        _ranks(axes, trace.ranks, high)
        axes.set_xlim(0, 1.01 * shown / scale)
        _words(axes, drawn, scale, high)
        return picture(chart, _alt(trace, drawn, finished, end, priced is not None), kind)


def bars(trace: Any, priced: Any = None) -> tuple[list[Bar], list[float]]:
    """Every bar of the lanes, and when each rank is finished; in steps without prices."""
    out = []
    for place, message in enumerate(trace.messages):
        start, end = float(message.step - 1), float(message.step)
        if priced is not None:
            start, end = priced.starts[place], priced.ends[place]
        out.append(Bar(message.source, "sends", start, end, message.dest))
        out.append(Bar(message.dest, "receives", start, end, message.source))
    if priced is not None:
        out.extend(Bar(one.rank, "works", one.start, one.end, None) for one in priced.work)
        return out, [float(end) for end in priced.finished]
    last = [0.0] * trace.ranks
    for call in trace.calls:
        last[call.rank] = max(last[call.rank], float(call.step))
    return out, last


def _unit(seconds: float) -> tuple[float, str]:
    for factor, unit in ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds")):
        if seconds >= factor:
            return factor, unit
    return 1e-9, "nanoseconds"


# Where in its lane, from the top, each thing is drawn: a rank sends and receives at once.
_PLACE = {"sends": (0.08, 0.36), "receives": (0.44, 0.36), "works": (0.08, 0.72)}
_LOOKS = {"sends": _SEND, "receives": _RECEIVE, "works": _WORK}


def _lanes(axes: Any, drawn: Sequence[Bar], finished: Sequence[float], scale: float) -> None:
    from matplotlib.collections import PolyCollection

    for rank, end in enumerate(finished):
        # Waiting is the ground of a lane: what is left when everything else is laid over it.
        axes.broken_barh(
            [(0, end / scale)], (rank + 0.08, 0.72), facecolor=_WAIT, linewidth=0, zorder=1
        )
    for what, (top, high) in _PLACE.items():
        chosen = [bar for bar in drawn if bar.what == what]
        corners = [
            [
                (bar.start / scale, bar.rank + top),
                (bar.end / scale, bar.rank + top),
                (bar.end / scale, bar.rank + top + high),
                (bar.start / scale, bar.rank + top + high),
            ]
            for bar in chosen
        ]
        one = _LOOKS[what]
        axes.add_collection(
            PolyCollection(
                corners, facecolor=tint(one.color, 0.3), edgecolor=one.color, linewidth=0.7,
                hatch=one.hatch if len(chosen) < 200 else "", zorder=3 if what == "works" else 2,
            )
        )  # fmt: skip


def _words(axes: Any, drawn: Sequence[Bar], scale: float, high: float) -> None:
    """The other rank of a message, where its bar has room for the number."""
    if high < 0.25:
        return
    # Inches of the axes are known only roughly before the layout; be modest.
    inches = 6.6 / max(axes.get_xlim()[1], 1e-12)
    size = 8.0 if high > 0.4 else 6.5
    for bar in drawn:
        if bar.other is None:
            continue
        word, short = f"from {bar.other}", str(bar.other)
        room = (bar.end - bar.start) / scale * inches
        said = next((w for w in (word, short) if 0.009 * size * (len(w) + 1.5) < room), "")
        if bar.what == "sends":
            said = said.replace("from", "to")
        if said:
            top, tall = _PLACE[bar.what]
            axes.text(
                (bar.start + bar.end) / 2 / scale, bar.rank + top + tall / 2, said, size=size,
                ha="center", va="center_baseline", color=INK, zorder=6,
                bbox={"facecolor": tint(_LOOKS[bar.what].color, 0.3), "edgecolor": "none",
                      "pad": 0.6} if bar.what == "receives" else None,
            )  # fmt: skip


def _ranks(axes: Any, ranks: int, high: float) -> None:
    from matplotlib.ticker import MaxNLocator

    every = 1 if high > 0.2 else 4
    named = list(range(0, ranks, every))
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

    shown: list[tuple[str, Look]] = [("sends to", _SEND), ("receives from", _RECEIVE)]
    if working:
        shown.append(("works", _WORK))
    handles = [Patch(label=name, **one.bar) for name, one in shown]
    handles.append(Patch(label="waits", facecolor=_WAIT, edgecolor=FAINT, linewidth=0.4))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(handles),
        fontsize=9, borderaxespad=0.2, handlelength=1.6, columnspacing=1.6,
    )  # fmt: skip


def _covered(bars: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(bars):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _alt(
    trace: Any, drawn: Sequence[Bar], finished: Sequence[float], end: float, priced: bool
) -> str:
    def said(amount: float) -> str:
        return seconds_text(amount) if priced else f"{amount:g}"

    whole = seconds_text(end) if priced else f"{end:g} step{'s' * (end != 1)}"
    parts = []
    for rank in range(min(trace.ranks, _SAID)):
        mine = [bar for bar in drawn if bar.rank == rank]
        times = {
            what: _covered((bar.start, bar.end) for bar in mine if bar.what == what)
            for what in _PLACE
        }
        busy = _covered((bar.start, bar.end) for bar in mine)
        words = [f"{what} {said(amount)}" for what, amount in times.items() if amount]
        wait = finished[rank] - busy
        words.append(f"waits {said(wait)}" if wait > 1e-9 * end else "never waits")
        parts.append(f"rank {rank} {', '.join(words)}")
    extra = trace.ranks - _SAID
    more = f"; and {extra} more rank{'s' * (extra != 1)}" if extra > 0 else ""
    count = f"{trace.ranks} rank{'s' * (trace.ranks != 1)}"
    return f"Timeline of {trace.program}, {count}, {whole}: {'; '.join(parts)}{more}."
