"""A drawing board for diagrams: boxes, arrows and words placed in pixels of an 800 pixel page.

>>> board = Sketch("Two devices", height=120)
>>> left = board.box(40, 50, 150, 40, "device 0")
>>> right = board.box(240, 50, 150, 40, "device 1")
>>> board.arrow(left.right, right.left, "gradients")

x runs to the right and y runs down. Pillow draws it, in milliseconds: the player's still picture
must be there before matplotlib would be imported. What is drawn is also remembered, so that a test
can ask whether all words lie inside their boxes and none lies upon another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import atan2, cos, hypot, pi, sin
from typing import Any, NamedTuple

from labkit.kinds import Kind
from labkit.views.figure import (
    FAINT,
    INK,
    PAGE_DPI,
    SCALE,
    Picture,
    finished,
    look,
    tint,
    typeface,
)  # fmt: skip

WIDTH = 800
FINE = 2  # shapes are drawn so many times finer, then reduced, for smooth edges
THIN, HEAVY = 1.8, 3.6  # pixels of the page
DASH = (7.0, 5.5)  # a dash and the space after it
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle on the board and the middles of its sides, for arrows to start from."""

    x: float
    y: float
    width: float
    height: float

    def at(self, across: float, down: float) -> Point:
        """Returns a point given as shares of width and height."""
        return self.x + across * self.width, self.y + down * self.height

    def grown(self, by: float) -> Box:
        """Returns the same box with so many pixels more on each side."""
        return Box(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)

    @property
    def left(self) -> Point:
        """The middle of the left side."""
        return self.at(0, 0.5)

    @property
    def right(self) -> Point:
        """The middle of the right side."""
        return self.at(1, 0.5)

    @property
    def top(self) -> Point:
        """The middle of the upper side."""
        return self.at(0.5, 0)

    @property
    def bottom(self) -> Point:
        """The middle of the lower side."""
        return self.at(0.5, 1)

    @property
    def middle(self) -> Point:
        """The middle of the box."""
        return self.at(0.5, 0.5)


class Word(NamedTuple):
    """A line of words on the board: its size in points, the area it takes, the box it is in."""

    text: str
    size: float
    area: Box
    inside: Box | None


class Sketch:
    """One diagram in the making."""

    def __init__(
        self, title: str, height: float, subtitle: str = "", kind: Kind | None = None
    ) -> None:
        self.height = height
        self.kind = kind
        self.boxes: list[Box] = []
        self.arrows: list[tuple[Point, ...]] = []
        # What is drawn, from the ground up: shapes by their level, then all words.
        self._shapes: list[tuple[float, Callable[[Any, int], None]]] = []
        self._texts: list[tuple[dict[str, Any], float, Box | None]] = []
        self.text(24, 30, title, size=12.5, bold=True)
        if subtitle:
            self.text(24, 55, subtitle, faint=True)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 10,
        bold: bool = False,
        faint: bool = False,
        align: str = "left",
        mono: bool = False,
        color: str | None = None,
        inside: Box | None = None,
        backed: str = "",
    ) -> None:
        """Lines of words around a vertical middle. `backed` is the colour put under them."""
        lines = words.split("\n")
        em = size * PAGE_DPI / 72
        font = typeface(size, f"{'Mono' * mono}{'-Bold' * bold}")
        ink = color or (FAINT if faint else INK)
        anchor = {"left": "ls", "center": "ms", "right": "rs"}[align]
        for number, line in enumerate(lines):
            base = y + 0.35 * em + 1.32 * em * (number - (len(lines) - 1) / 2)
            at = (SCALE * x, SCALE * base)
            said = {"xy": at, "text": line, "font": font, "fill": ink, "anchor": anchor}
            if backed:
                self.rectangle(_area(said).grown(3), backed, level=5.5)
            self._texts.append((said, size, inside))

    @property
    def words(self) -> list[Word]:
        """All lines of words, measured now, which takes half as long as drawing them."""
        return [Word(said["text"], size, _area(said), box) for said, size, box in self._texts]

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        words: str = "",
        *,
        series: int | None = None,
        hatch: bool = False,
        dashed: bool = False,
        bold: bool = False,
        heavy: bool = False,
        size: float = 10,
        fill: str | None = None,
        mono: bool = False,
        corner: float = 6,
    ) -> Box:
        """Draw a box with words in its middle. `series` gives it a colour of the palette."""
        one = None if series is None else look(series)
        color = fill or ("white" if one is None else tint(one.color, 0.22))
        made = Box(x, y, width, height)
        self.boxes.append(made)
        self.shape(_rounded(made, corner), color, level=3)
        if hatch and series is not None:
            self.hatch(made, series)
        edge = INK if one is None else one.color
        self._outline(_rounded(made, corner), edge, HEAVY if heavy else THIN, dashed, 3.6)
        if words:
            self.text(
                *made.middle, words, size=size, bold=bold, align="center", inside=made, mono=mono,
                backed=color if hatch else "",
            )  # fmt: skip
        return made

    def hatch(self, box: Box, series: int) -> None:
        """The pattern of a series over a box."""
        one = look(series)
        if one.hatch:
            over = partial(_hatch, box=box, mark=one.hatch[0], color=tint(one.color, 0.55))
            self._add(3.3, over)

    def frame(
        self, x: float, y: float, width: float, height: float, words: str, *, dashed: bool = False
    ) -> Box:
        """Draw a quiet area around things that belong together, its name at the upper left."""
        made = Box(x, y, width, height)
        self.boxes.append(made)
        self.shape(_rounded(made, 8), "#F6F7F8", level=1)
        self._outline(_rounded(made, 8), "#B8BDC2", 1.4, dashed, 1)
        if words:
            self.text(x + 12, y + 16, words, size=9.5, bold=True, color=FAINT, inside=made)
        return made

    def rectangle(
        self, box: Box, fill: str = "", edge: str = "", *, line: float = 1.2, dashed: bool = False,
        level: float = 3,
    ) -> None:  # fmt: skip
        """A rectangle with sharp corners, as tables and bars are made of."""
        if fill:
            self.shape(_corners(box), fill, level=level)
        if edge:
            self._outline(_corners(box), edge, line, dashed, level + 0.2)

    def shape(self, points: Sequence[Point], fill: str, level: float = 1) -> None:
        """A filled area with these corners."""
        self._add(level, lambda pen, scale: pen.polygon(_scaled(points, scale), fill=fill))

    def line(
        self,
        *points: Point,
        dashed: bool = False,
        heavy: bool = False,
        above: bool = False,
        color: str = INK,
    ) -> None:
        """A line through the points."""
        width = HEAVY if heavy else THIN
        self._add(5 if above else 2, partial(_stroke, points=points, color=color, width=width,
                                             dashed=dashed))  # fmt: skip

    def arrow(
        self,
        start: Point,
        *rest: Point | str,
        both: bool = False,
        dashed: bool = False,
        heavy: bool = False,
        color: str = INK,
        beside: bool = False,
    ) -> None:
        """An arrow through the points; a word at the end of them is written on its last part."""
        points = [start, *(point for point in rest if not isinstance(point, str))]
        self.arrows.append(tuple(points))
        label = next((word for word in rest if isinstance(word, str)), "")
        (x0, y0), (x1, y1) = points[-2:]
        size = 12.0 if heavy else 9.0
        for end, before in ((-1, -2), (0, 1)) if both else ((-1, -2),):
            left, right, neck = _head(points[before], points[end], size)
            self.shape((points[end], left, right), color, level=4)
            points[end] = neck
        width = HEAVY if heavy else THIN
        self._add(4, partial(_stroke, points=points, color=color, width=width, dashed=dashed))
        across, down = (x0 + x1) / 2, (y0 + y1) / 2
        if beside:
            self.text(across + 8, down, label, size=9)
        elif label:
            self.text(across, down - 10, label, size=9, align="center")

    def picture(self, alt: str, *, small: bool = False) -> Picture:
        """Returns the finished picture."""
        from PIL import Image, ImageDraw

        fine = 1 if small else FINE
        scale = SCALE * fine
        size = (WIDTH * scale, round(self.height) * scale)
        image = Image.new("RGB", size, "white")
        pen = ImageDraw.Draw(image)
        for _, draw in sorted(self._shapes, key=lambda one: one[0]):
            draw(pen, scale)
        image = image if small else image.reduce(fine)  # by 1 it would be a copy
        pen = ImageDraw.Draw(image)
        for words, *_ in self._texts:
            pen.text(**words)
        return finished(image, alt, self.kind, small=small)

    def _add(self, level: float, draw: Callable[[Any, int], None]) -> None:
        self._shapes.append((level, draw))

    def _outline(
        self, points: Sequence[Point], color: str, width: float, dashed: bool, level: float
    ) -> None:
        around = (*points, *points[:2])  # past the beginning, for the corner there
        self._add(level, partial(_stroke, points=around, color=color, width=width, dashed=dashed))


def _area(said: dict[str, Any]) -> Box:
    """Returns the area of the page that a line of words takes."""
    low_x, low_y, high_x, high_y = said["font"].getbbox(said["text"], anchor=said["anchor"])
    x, y = said["xy"]
    return Box(
        (x + low_x) / SCALE, (y + low_y) / SCALE, (high_x - low_x) / SCALE, (high_y - low_y) / SCALE
    )


def _scaled(points: Sequence[Point], scale: int) -> list[Point]:
    """Points of the page in pixels of the image."""
    return [(scale * x, scale * y) for x, y in points]


def _stroke(
    pen: Any, scale: int, points: Sequence[Point], color: str, width: float, dashed: bool = False
) -> None:
    for piece in _dashes(points) if dashed else [points]:
        pen.line(_scaled(piece, scale), fill=color, width=round(scale * width), joint="curve")


def _dashes(points: Sequence[Point]) -> list[list[Point]]:
    """Returns the dashes of a line."""
    found, reached = [], 0.0  # the length so far
    for (x0, y0), (x1, y1) in pairwise(points):
        length = max(hypot(x1 - x0, y1 - y0), 1e-9)
        first = int(reached // sum(DASH))
        for number in range(first, int((reached + length) // sum(DASH)) + 1):
            begin = max(number * sum(DASH) - reached, 0) / length
            end = min(number * sum(DASH) + DASH[0] - reached, length) / length
            if begin < end:
                found.append([(x0 + s * (x1 - x0), y0 + s * (y1 - y0)) for s in (begin, end)])
        reached += length
    return found


def _head(start: Point, tip: Point, size: float) -> list[Point]:
    """Returns the other corners of an arrow's head, and between them the end of its line."""
    angle = atan2(tip[1] - start[1], tip[0] - start[0])
    corners = ((1.1, -0.42), (1.1, 0.42), (0.8, 0.0))
    return [
        (tip[0] - share * size * cos(angle + turn), tip[1] - share * size * sin(angle + turn))
        for share, turn in corners
    ]


def _corners(box: Box) -> tuple[Point, ...]:
    return box.at(0, 0), box.at(1, 0), box.at(1, 1), box.at(0, 1)


def _rounded(box: Box, corner: float) -> list[Point]:
    """Returns the outline of a box with round corners, clockwise from the upper left."""
    radius = min(corner, box.width / 2, box.height / 2)
    left, right = box.x + radius, box.x + box.width - radius
    top, bottom = box.y + radius, box.y + box.height - radius
    centres = ((left, top), (right, top), (right, bottom), (left, bottom))
    return [
        (x - radius * cos(angle), y - radius * sin(angle))
        for quarter, (x, y) in enumerate(centres)
        for angle in (pi / 2 * (quarter + part / 6) for part in range(7))
    ]


def _hatch(pen: Any, scale: int, box: Box, mark: str, color: str) -> None:
    """Lines or dots over a box: the pattern of a `Look`."""
    step, dot = 9.0, 1.3
    x, y = box.x, box.y
    for i in range(int((box.width + box.height) / step) + 1):
        # A slanting line enters at one side of the box and leaves at another.
        a = step * (i + 0.5)
        low, high = max(0.0, a - box.height), min(a, box.width)
        up, down = a - low, a - high
        lines: list[tuple[Point, Point]] = []
        if low < high and mark in "/x":
            lines += [((x + low, y + up), (x + high, y + down))]
        if low < high and mark in "\\x":
            bottom = y + box.height
            lines += [((x + low, bottom - up), (x + high, bottom - down))]
        if mark in "-+" and a < box.height:
            lines += [((x, y + a), (x + box.width, y + a))]
        if mark == "+" and a < box.width:
            lines += [((x + a, y), (x + a, y + box.height))]
        for line in lines:
            _stroke(pen, scale, line, color, 1.2)
        if mark == "." and a < box.width:
            for row in range(int(box.height / step)):
                middle = y + step * (row + 0.5)
                ends = [(x + a - dot, middle - dot), (x + a + dot, middle + dot)]
                pen.ellipse(_scaled(ends, scale), fill=color)
