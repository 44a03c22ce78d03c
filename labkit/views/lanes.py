"""Lanes over time, with a bar for what each rank, worker or device does."""

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import NamedTuple

from labkit.kinds import Kind
from labkit.views.figure import FAINT, FRAME, SCALE, look, tint, typeface
from labkit.views.sketch import WIDTH, Box, Sketch

MOST_NAMED = 8  # lanes that the alt text spells out
HATCHED = 500  # bars; of more, edges and hatching would be a grey field
RIGHT = 24.0


class BarStyle(NamedTuple):
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
    """Returns the unit of an axis that ends here."""
    units = ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds"))
    return next((one for one in units if seconds >= one[0]), (1e-9, "nanoseconds"))


def width_of(words: str, size: float) -> float:
    """Pixels of the page that words take."""
    return float(typeface(size).getlength(words)) / SCALE


class Lanes:
    """A board with all bars on it, and where lanes and times are, to draw more."""

    def __init__(
        self, title: str, subtitle: str, bars: Sequence[Bar], states: Mapping[str, BarStyle],
        names: Sequence[str], kind: Kind, *, unit: str = "", high: float = 0, below: float = 0,
    ) -> None:  # fmt: skip
        """Times are seconds, or counts of a `unit`."""
        count = len(names)
        self.bars, self.states, self.names = bars, states, names
        self.high = high or (42.0 if count <= 9 else 28.0 if count <= 20 else 12.0)
        self.end = max((bar.end for bar in bars), default=1.0) or 1.0
        present = {bar.state for bar in bars if bar.end - bar.start > 1e-3 * self.end}
        key = _key([how for state, how in states.items() if how.name and state in present])
        self.top = 104.0 if any(how.name for how in states.values()) else 82.0
        self.top += max((y for _, _, y in key), default=76.0) - 76
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
        for how, x, y in key:
            self._fill(Box(x, y, 20, 12), how, few=True)
            self.board.text(x + 27, y + 6, how.name, size=9)

    def x(self, time: float) -> float:
        """Returns the x of a time on the board."""
        return self.left + time * (WIDTH - RIGHT - self.left) / self.end

    def y(self, lane: float) -> float:
        """Returns the y at which a lane begins."""
        return self.top + self.high * lane

    def words(self) -> str:
        """Returns in words how long each of the first lanes is in each state."""
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

    def _draw(self, bar: Bar, how: BarStyle, few: bool) -> None:
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

    def _color(self, how: BarStyle) -> str:
        grey = "white" if how.dashed else "#ECEEF0"
        return grey if how.series is None else tint(look(how.series).color, 0.3)

    def _fill(self, box: Box, how: BarStyle, few: bool) -> None:
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


def _key(states: Sequence[BarStyle]) -> list[tuple[BarStyle, float, float]]:
    """Returns where the key names each state: in as many lines as the page needs."""
    x, y, places = 24.0, 76.0, []
    for how in states:
        wide = 52 + width_of(how.name, 9)
        if x > 24 and x + wide - 25 > WIDTH:
            x, y = 24.0, y + 20
        places.append((how, x, y))
        x += wide
    return places


def _covered(bars: Sequence[Bar]) -> float:
    """Returns the time in which at least one of these bars is drawn."""
    total, reached = 0.0, 0.0
    for bar in sorted(bars, key=lambda one: one.start):
        total += max(0.0, bar.end - max(bar.start, reached))
        reached = max(reached, bar.end)
    return total
