"""Lanes over time with a bar for what each rank or device does; of a collective, and of a queue."""

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any, NamedTuple

from labkit.kinds import Kind, seconds_text
from labkit.views.figure import FAINT, FRAME, SCALE, Picture, look, tint, typeface
from labkit.views.sketch import WIDTH, Box, Sketch

MOST_NAMED = 8  # lanes that the alt text spells out
HATCHED = 500  # bars; of more, edges and hatching would be a grey field
RIGHT = 24.0


class State(NamedTuple):
    """What a bar can be: its name in the key, its series, and where in its lane."""

    name: str
    series: int | None  # grey without
    top: float = 0.08
    high: float = 0.72
    dashed: bool = False
    margin: float = 6.0  # pixels beside its words


class Bar(NamedTuple):
    """A state of one lane, or of several, with words for it: the first that fit are written."""

    lane: int
    state: str
    start: float
    end: float
    words: Sequence[str] = ()
    lanes: int = 1


def unit_of(seconds: float) -> tuple[float, str]:
    """The unit of an axis that ends here."""
    units = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
    return next((one for one in units if seconds >= one[0]), (1e-9, "nanoseconds"))


def width_of(words: str, size: float) -> float:
    """Pixels of the page that words take."""
    return float(typeface(size).getlength(words)) / SCALE


class Lanes:
    """A board with all bars on it, and where lanes and times are, to draw more."""

    def __init__(
        self, title: str, subtitle: str, bars: Sequence[Bar], states: Mapping[str, State],
        names: Sequence[str], kind: Kind, *, unit: str = "", high: float = 0, below: float = 0,
    ) -> None:  # fmt: skip
        """Times are seconds, or counts of a `unit`."""
        count = len(names)
        self.bars, self.states, self.names = bars, states, names
        self.high = high or (42.0 if count <= 9 else 28.0 if count <= 20 else 12.0)
        self.top = 104.0 if any(how.name for how in states.values()) else 82.0
        self.end = max((bar.end for bar in bars), default=1.0) or 1.0
        self.scale, self.unit = (1.0, unit) if unit else unit_of(self.end)
        self.left = 40 + max(width_of(name, 9.5) for name in names)
        self.bottom = self.top + self.high * count + below
        self.board = Sketch(title, self.bottom + 46, subtitle, kind=kind)
        few = len(bars) < HATCHED
        for bar in bars:
            self._draw(bar, states[bar.state], few)
        filled = {bar.lane + more for bar in bars for more in range(bar.lanes)}
        for lane in range(0, count, 1 if self.high > 12 else 4):
            bold = bool(bars) and lane not in filled  # a heading
            self.board.text(24, self.y(lane + 0.44), names[lane], size=9.5, bold=bold)
        self._draw_axis()
        present = {bar.state for bar in bars if bar.end - bar.start > 1e-3 * self.end}
        self._draw_key([how for state, how in states.items() if how.name and state in present])

    def x(self, time: float) -> float:
        """Where a time is on the board."""
        return self.left + time * (WIDTH - RIGHT - self.left) / self.end

    def y(self, lane: float) -> float:
        """Where a lane begins."""
        return self.top + self.high * lane

    def words(self) -> str:
        """How long each of the first lanes is in which state: what is grey is the rest."""
        lanes = []
        for lane, name in enumerate(self.names[:MOST_NAMED]):
            if not (mine := [bar for bar in self.bars if bar.lane == lane]):
                continue  # a heading
            full = [bar for bar in mine if self.states[bar.state].series is not None]
            times = {state: _covered([bar for bar in full if bar.state == state])
                     for state in self.states}  # fmt: skip
            times["waits"] = _covered(mine) - _covered(full)
            known = {state: time / self.scale for state, time in times.items()}
            said = (f"{state} {time:.3g}" for state, time in known.items() if time > 1e-9)
            lanes.append(f"{name} {', '.join(said) or 'does nothing'}")
        more = len(self.names) - MOST_NAMED
        lanes += [f"and {more} more"] if more > 0 else []
        return f"{self.end / self.scale:.3g} {self.unit}: {'; '.join(lanes)}."

    def _draw(self, bar: Bar, how: State, few: bool) -> None:
        left, right = self.x(bar.start), self.x(bar.end)
        high = (how.high + bar.lanes - 1) * self.high
        box = Box(left, self.y(bar.lane + how.top), right - left, high)
        self._fill(box, how, few)
        size = 8.5 if high >= 13 else 7.5
        room = box.width - how.margin if high >= 10 else 0
        words = next((one for one in bar.words if width_of(one.split("\n")[0], size) < room), "")
        if words:
            fill = self._color(how) if how.series else ""
            self.board.text(*box.middle, words, size=size, align="center", inside=box, backed=fill)

    def _color(self, how: State) -> str:
        grey = "white" if how.dashed else "#ECEEF0"
        return grey if how.series is None else tint(look(how.series).color, 0.3)

    def _fill(self, box: Box, how: State, few: bool) -> None:
        edge = FAINT if how.series is None else look(how.series).color
        self.board.rectangle(box, self._color(how), level=1 if how.series is None else 3)
        if few:
            if how.series is not None:
                self.board.hatch(box, how.series)
            self.board.rectangle(box, edge=edge, dashed=how.dashed, level=3.4)

    def _draw_axis(self) -> None:
        unit, end = self.unit, self.end / self.scale
        power = 10.0 ** floor(log10(end / 11))
        step = next(f * power for f in (1, 2, 5, 10) if f * power >= end / 11)
        step = max(step, 1.0) if unit == "hours" else step
        self.board.line((self.left, self.bottom), (WIDTH - RIGHT, self.bottom), color=FAINT)
        last = WIDTH - RIGHT - width_of(unit, 9) - 14
        for number in range(int(end / step + 1e-9) + 1):
            x = self.x(number * step * self.scale)
            self.board.line((x, self.top), (x, self.bottom), color=FRAME)
            if x < last:
                text = f"{number * step:.6g}"
                self.board.text(x, self.bottom + 16, text, size=9, align="center")
        self.board.text(WIDTH - RIGHT, self.bottom + 16, unit, size=9, align="right")

    def _draw_key(self, states: Sequence[State]) -> None:
        x = 24.0
        for how in states:
            self._fill(Box(x, 76, 20, 12), how, few=True)
            self.board.text(x + 27, 82, how.name, size=9)
            x += 52 + width_of(how.name, 9)


# A rank sends and receives at once. Waiting is what is left when all else lies over it.
STATES = {
    "waits": State("waits", None),
    "sends": State("sends to", 0, 0.08, 0.36),
    "receives": State("receives from", 1, 0.44, 0.36),
}


def timeline(traces: Sequence[Any], *arguments: Any, **keywords: Any) -> Picture:
    """Lanes over time, on links that are given as for `trace.timed`; of several runs, one clock.

    >>> timeline([naive, ring], latency=5e-6, bandwidth=10e9)       # doctest: +SKIP
    """
    every, names, about = [], [], []
    for trace in traces:
        timed = trace.timed(*arguments, **keywords)
        about.append(f"{trace.program}, {trace.ranks} rank{'s' * (trace.ranks != 1)}")
        if len(traces) > 1:
            # Bold, so it needs more room than its name in the lanes' own type.
            names.append(f"{trace.program}: {seconds_text(timed.seconds)}\u2003\u2003")
            about[-1] += f", {seconds_text(timed.seconds)}"
        waits = [Bar(rank, "waits", 0.0, until) for rank, until in enumerate(timed.finished)]
        own = waits + bars(trace, timed)
        every += [one._replace(lane=len(names) + one.lane) for one in own]
        names += [f"rank {rank}" for rank in range(trace.ranks)]
    one_clock = f"{len(traces)} programs under one clock"
    title = one_clock if len(traces) > 1 else f"{traces[0].program}: what each rank does"
    lanes = Lanes(title, "", every, STATES, names, timed.kind)
    return lanes.board.picture(f"Timeline of {' and '.join(about)}, {lanes.words()}")


def bars(trace: Any, timed: Any) -> list[Bar]:
    """Every message, at its sender and at its receiver."""
    out = []
    for one, start, end in zip(trace.messages, timed.starts, timed.ends, strict=True):
        out.append(Bar(one.source, "sends", start, end, (f"to {one.dest}", f"{one.dest}")))
        out.append(Bar(one.dest, "receives", start, end, (f"from {one.source}", f"{one.source}")))
    return out


def _covered(bars: Sequence[Bar]) -> float:
    """The time in which at least one of these bars is drawn."""
    total, reached = 0.0, 0.0
    for bar in sorted(bars, key=lambda one: one.start):
        total += max(0.0, bar.end - max(bar.start, reached))
        reached = max(reached, bar.end)
    return total


def queue_figure(schedule: Any) -> Picture:
    """Who ran when, and on which devices."""
    text = "; ".join(
        f"{one.request.name} on {one.request.devices}, submitted at {one.request.submitted:g} h, "
        f"ran from {one.start:g} h to {one.end:g} h"
        for one in schedule.started
    )
    alt = f"A queue for {schedule.devices} devices over hours. {text}."
    return queue_board(schedule).picture(alt)


def queue_board(
    schedule: Any,
    title: str = "Who runs when, and where",
    subtitle: str = "A row is a device. Each job has as many rows as it asked for devices.",
) -> Sketch:
    """The drawing of `queue_figure`."""
    ordered = sorted(schedule.started, key=lambda one: one.request.submitted)
    states = {one.request.name: State("", n % 6, 0.04, 0.92) for n, one in enumerate(ordered)}
    bars = [
        Bar(first, one.request.name, one.start, one.end, (one.request.name,), count)
        for one in ordered
        for first, count in _neighbours(one.on_devices)
    ]
    names = [f"device {device}" for device in range(schedule.devices)]
    return Lanes(title, subtitle, bars, states, names, schedule.kind, unit="hours", high=30).board


def _neighbours(devices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbouring devices together: (first, how many)."""
    found: list[tuple[int, int]] = []
    for device in devices:
        if found and sum(found[-1]) == device:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((device, 1))
    return found
