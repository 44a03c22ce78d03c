"""What can be read of a picture: words stay apart, and have contrast on light and dark pages."""

from __future__ import annotations

import io
import itertools
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image

from labkit.views import sketch
from labkit.views.figure import PAGE_DPI, SCALE

LIGHT = ("#ffffff", "#f6f8fa")
DARK = "#111111", "#212121", "#131416", "#111418", "#1e1e1e"  # JupyterLab, site, slides, VS Code
ENOUGH = 4.5  # WCAG 2, AA, for text
# CSS: hue-rotate(180deg), in sRGB.
HUE = np.array(((-0.574, 1.43, 0.144), (0.426, 0.43, 0.144), (0.426, 1.43, -0.856)))


class Line(NamedTuple):
    """A line of words: where it is, in pixels of the page, and its colour."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    color: tuple[float, float, float]


def seen(color, page):
    """A colour of a picture on a page, by the rules of custom.css."""
    color, page = np.asarray(color), np.asarray(to_rgb(page))
    if page.mean() > 0.5:  # multiply
        return color * page
    shown = np.clip(HUE @ (1 - color), 0, 1)
    return 1 - (1 - shown) * (1 - page)  # screen


def contrast(one, other):
    """WCAG's ratio of two colours."""

    def luminance(color):
        linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    low, high = sorted((luminance(np.asarray(one)), luminance(np.asarray(other))))
    return (high + 0.05) / (low + 0.05)


@cache
def least_contrast(ink, ground):
    """The lowest ratio of all pages, and where it is."""
    behind = np.array(ground) / 255
    return min((contrast(seen(ink, page), seen(behind, page)), page) for page in (*LIGHT, *DARK))


def check_apart(lines, width, height):
    """No line of words lies upon another or outside of the picture."""
    for one in lines:
        assert 0 <= one.left <= one.right <= width, one
        assert 0 <= one.top <= one.bottom <= height, one
    for one, two in itertools.combinations(lines, 2):
        beside = one.right <= two.left + 1 or two.right <= one.left + 1
        assert beside or min(one.bottom - two.top, two.bottom - one.top) <= 2, (one, two)


def check_contrast(lines, png):
    """Each line of words differs enough from what is behind it, on every page."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    for one in lines:
        left, top, right, bottom = (round(SCALE * edge) for edge in one[1:5])
        behind = image.crop((left - 8, top - 8, right + 8, bottom + 8))
        ink = tuple(round(255 * part) for part in one.color)
        grounds = [(n, color) for n, color in behind.getcolors(1 << 12) if color != ink]
        found, page = least_contrast(one.color, max(grounds)[1])
        assert found >= ENOUGH, (one.text, page, round(found, 2))


def lines_of(board):
    """The words of a sketch."""
    found = []
    for word, (said, *_) in zip(board.words, board._texts, strict=True):
        if word.text.strip():
            x, y, wide, high = word.area.x, word.area.y, word.area.width, word.area.height
            found.append(Line(word.text, x, y, x + wide, y + high, to_rgb(said["fill"])))
    return found


@contextmanager
def drawn(monkeypatch):
    """The words that any picture draws inside this, be it a sketch or a figure of matplotlib."""
    found: dict[object, Line] = {}  # matplotlib draws twice
    draw, plot, make = Text.draw, Axes.draw, sketch.Sketch.picture

    def axes(self, *args, **options):
        assert self.get_xlabel() or self.get_ylabel()  # what it shows
        return plot(self, *args, **options)

    def text(self, renderer, *args, **options):
        if self.get_visible() and self.get_text().strip():
            box, high = self.get_window_extent(renderer), renderer.height
            edges = (box.x0, high - box.y1, box.x1, high - box.y0)
            scale = renderer.dpi / PAGE_DPI
            places = (float(edge / scale) for edge in edges)
            found[self] = Line(self.get_text(), *places, to_rgb(self.get_color()))
        return draw(self, renderer, *args, **options)

    def board(self, *args, **options):
        found.update(enumerate(lines_of(self)))
        return make(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Axes, "draw", axes)
        patch.setattr(Text, "draw", text)
        patch.setattr(sketch.Sketch, "picture", board)
        yield found.values()
