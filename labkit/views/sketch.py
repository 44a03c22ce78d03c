"""A drawing board for diagrams: boxes, arrows and words placed in pixels of an 800 pixel page.

>>> board = Sketch("Two devices", height=120)
>>> left = board.box(40, 50, 150, 40, "device 0")
>>> right = board.box(240, 50, 150, 40, "device 1")
>>> board.arrow(left.right, right.left, "gradients")

x runs to the right and y runs down. What is drawn is also remembered, so that a test can ask
whether all words lie inside their boxes and none lies upon another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.kinds import Kind
from labkit.views.figure import FAINT, INK, Picture, figure, look, picture, tint

if TYPE_CHECKING:
    from matplotlib.text import Text

__all__ = ["WIDTH", "Box", "Sketch"]

WIDTH = 800
DASHES = (0, (4, 3))
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle on the board and the middles of its sides, for arrows to start from."""

    x: float
    y: float
    width: float
    height: float

    def at(self, across: float, down: float) -> Point:
        """A point given as shares of width and height."""
        return self.x + across * self.width, self.y + down * self.height

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


class Sketch:
    """One diagram in the making. Make and fill it inside `style()`."""

    def __init__(
        self, title: str, height: float, subtitle: str = "", kind: Kind | None = None
    ) -> None:
        self.figure = figure(WIDTH / 100, height / 100)
        self.figure.set_layout_engine(None)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(height, 0)
        self.height = height
        self.kind = kind
        self.words: list[tuple[Text, Box | None]] = []
        self.boxes: list[Box] = []
        self.arrows: list[tuple[Point, ...]] = []
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
        # matplotlib spaces lines by the letters in them; fixed steps keep neighbours level.
        em = size * 100 / 72
        for number, line in enumerate(lines):
            base = y + 0.35 * em + 1.32 * em * (number - (len(lines) - 1) / 2)
            drawn = self.axes.text(
                x, base, line, fontsize=size, ha=align, va="baseline", zorder=6,
                fontweight="bold" if bold else "normal",
                color=color or (FAINT if faint else INK),
                family="DejaVu Sans Mono" if mono else "DejaVu Sans",
            )  # fmt: skip
            if backed:
                drawn.set_bbox({"facecolor": backed, "edgecolor": "none", "pad": 2})
            self.words.append((drawn, inside))

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
        """A box with words in its middle. `series` gives it a colour of the palette."""
        one = None if series is None else look(series)
        color = fill or ("white" if one is None else tint(one.color, 0.22))
        made = Box(x, y, width, height)
        self.boxes.append(made)
        self._patch(
            made, corner, facecolor=color, edgecolor=INK if one is None else one.color,
            linewidth=2.6 if heavy else 1.3, linestyle=DASHES if dashed else "-", zorder=3,
        )  # fmt: skip
        if hatch and one is not None:
            self._patch(
                made, corner, facecolor="none", edgecolor=tint(one.color, 0.55), hatch=one.hatch,
                linewidth=0, zorder=3.5,
            )  # fmt: skip
        if words:
            self.text(
                *made.middle, words, size=size, bold=bold, align="center", inside=made, mono=mono,
                backed=color if hatch else "",
            )  # fmt: skip
        return made

    def frame(
        self, x: float, y: float, width: float, height: float, words: str, *, dashed: bool = False
    ) -> Box:
        """A quiet area around things that belong together, its name at the upper left."""
        made = Box(x, y, width, height)
        self.boxes.append(made)
        self._patch(
            made, 8, facecolor="#F6F7F8", edgecolor="#B8BDC2", linewidth=1.0, zorder=1,
            linestyle=DASHES if dashed else "-",
        )  # fmt: skip
        if words:
            self.text(x + 12, y + 16, words, size=9.5, bold=True, color=FAINT, inside=made)
        return made

    def _patch(self, box: Box, corner: float, **looks: Any) -> None:
        from matplotlib.patches import FancyBboxPatch

        self.axes.add_patch(
            FancyBboxPatch(
                (box.x + corner, box.y + corner), box.width - 2 * corner, box.height - 2 * corner,
                boxstyle=f"round,pad={corner},rounding_size={corner}", **looks,
            )
        )  # fmt: skip

    def line(
        self,
        *points: Point,
        dashed: bool = False,
        heavy: bool = False,
        above: bool = False,
        color: str = INK,
    ) -> None:
        """A line through the points."""
        self.axes.plot(
            [x for x, _ in points], [y for _, y in points], color=color, marker="",
            linestyle=DASHES if dashed else "-", linewidth=2.6 if heavy else 1.3,
            zorder=5 if above else 2, solid_joinstyle="round", solid_capstyle="butt",
        )  # fmt: skip

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
        from matplotlib.patches import FancyArrowPatch
        from matplotlib.path import Path

        points = [start, *(point for point in rest if not isinstance(point, str))]
        self.arrows.append(tuple(points))
        label = next((word for word in rest if isinstance(word, str)), "")
        (x0, y0), (x1, y1) = points[-2:]
        if dashed:
            # A dashed patch would break up its own head: dash the line, keep the head whole.
            share = 12 / max(abs(x1 - x0) + abs(y1 - y0), 12)
            neck = (x1 - share * (x1 - x0), y1 - share * (y1 - y0))
            self.line(*points[:-1], neck, dashed=True, heavy=heavy, color=color)
            points = [neck, points[-1]]
        self.axes.add_patch(
            FancyArrowPatch(
                path=Path(points), arrowstyle="<|-|>" if both else "-|>", mutation_scale=13,
                color=color, linewidth=2.6 if heavy else 1.3, zorder=4, shrinkA=0, shrinkB=0,
                joinstyle="miter", capstyle="butt",
            )
        )  # fmt: skip
        across, down = (x0 + x1) / 2, (y0 + y1) / 2
        if beside:
            self.text(across + 8, down, label, size=9)
        elif label:
            self.text(across, down - 10, label, size=9, align="center")

    def picture(self, alt: str) -> Picture:
        """The finished picture."""
        return picture(self.figure, alt, self.kind)
