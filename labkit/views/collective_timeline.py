"""When each rank sends, receives, works and waits: a lane for each rank, time to the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labkit.kinds import modelled, seconds_text
from labkit.views.figure import Picture, look, picture, style
from labkit.views.lanes import WAITS, Bar, State, lanes, unit_of

__all__ = ["bars", "timeline"]

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
