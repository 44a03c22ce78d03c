"""One careful hand for every figure: typeface, palette, frame, kind in the corner, alt text.

>>> from labkit.kinds import modelled
>>> with style():
...     chart = figure(6, 3)
...     axes = chart.add_subplot(xlabel="replicas", ylabel="speed-up")
...     _ = axes.plot([1, 2, 4], [1, 1.9, 3.5], **look(0).line)
>>> picture(chart, alt="Speed-up of 1, 2 and 4 replicas: 1, 1.9 and 3.5.", kind=modelled("a guess"))
Speed-up of 1, 2 and 4 replicas: 1, 1.9 and 3.5.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import struct
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.kinds import Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

# Okabe and Ito (2008): eight colours that stay apart for every common kind of colour vision.
OKABE_ITO = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "yellow": "#F0E442",
    "black": "#000000",
}
INK = "#222222"
FAINT = "#5F6368"
FRAME = "#D5D8DC"
# One inch is 100 pixels of a page; the file holds twice as many, for sharp screens.
PAGE_DPI, SCALE = 100, 2


@dataclass(frozen=True)
class Look:
    """The look of a series: its colour, and a hatch, marker and dash to tell it in grey, too."""

    color: str
    hatch: str
    marker: str
    dash: str

    @property
    def line(self) -> dict[str, Any]:
        """Keywords for `axes.plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dash}

    @property
    def bar(self) -> dict[str, Any]:
        """Keywords for `axes.bar` and patches: a tint, the colour on the edge and in the hatch."""
        return {"facecolor": tint(self.color), "edgecolor": self.color, "hatch": self.hatch}


_LOOKS = (
    Look(OKABE_ITO["blue"], "", "o", "-"),
    Look(OKABE_ITO["orange"], "///", "s", "--"),
    Look(OKABE_ITO["green"], "...", "^", "-."),
    Look(OKABE_ITO["vermillion"], "xxx", "D", ":"),
    Look(OKABE_ITO["purple"], "\\\\\\", "v", "-"),
    Look(OKABE_ITO["sky"], "---", "P", "--"),
    Look(OKABE_ITO["black"], "+++", "X", "-."),
)


def look(index: int) -> Look:
    """The look of series number `index`; after seven they begin again."""
    return _LOOKS[index % len(_LOOKS)]


@cache
def tint(color: str, share: float = 0.35) -> str:
    """Returns a colour thinned with white, for areas that carry text.

    >>> tint("#0072B2", 0.5)
    '#80b9d9'
    """
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{int(255 - share * (255 - part) + 0.5):02x}" for part in parts)


@contextmanager
def style() -> Iterator[None]:
    """Inside this block figures have the course's style; Matplotlib's settings stay."""
    import matplotlib as mpl
    from cycler import cycler

    series = cycler(
        color=[one.color for one in _LOOKS],
        marker=[one.marker for one in _LOOKS],
        linestyle=[one.dash for one in _LOOKS],
    )
    with mpl.rc_context():
        # The reader's own matplotlibrc, or Jupyter's tight bounding box, must not change a figure.
        mpl.rcdefaults()
        # Ships inside matplotlib, so a figure is the same on every machine.
        mpl.rc("font", family=["DejaVu Sans"], size=10.5)
        mpl.rc("mathtext", fontset="dejavusans")
        mpl.rc("text", color=INK)
        mpl.rc("axes", titlesize=12.5, titleweight="bold", titlelocation="left", titlepad=12.0)
        mpl.rc("axes", titlecolor=INK, labelcolor=INK, edgecolor=FAINT, linewidth=0.8, grid=True)
        mpl.rc("axes", axisbelow=True, facecolor="white", prop_cycle=series)
        mpl.rc("axes.spines", top=False, right=False)
        mpl.rc("axes.grid", axis="y")
        mpl.rc("grid", color="#E3E6E8", linewidth=0.8)
        mpl.rc("xtick", color=FAINT, labelcolor=INK)
        mpl.rc("ytick", color=FAINT, labelcolor=INK)
        mpl.rc("lines", linewidth=2.0, markersize=6.0)
        mpl.rc("hatch", linewidth=1.0)
        mpl.rc("legend", frameon=False)
        mpl.rc("figure", facecolor="white", dpi=PAGE_DPI)
        mpl.rc("savefig", facecolor="white")
        yield


def figure(width: float = 8.0, height: float = 4.5) -> Figure:
    """An empty figure, `width` × `height` inches; 8 inches fill the width of a notebook.

    pyplot does not know it: no window, no list of open figures, no warning at the 21st.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), dpi=PAGE_DPI, layout="constrained")
    made.get_layout_engine().set(w_pad=0.16, h_pad=0.14)  # type: ignore[union-attr,call-arg]
    FigureCanvasAgg(made)
    return made


def legend_below(chart: Figure, axes: Any) -> None:
    """Put the names of the curves below the axes, since curves may be in any corner."""
    handles, names = axes.get_legend_handles_labels()
    inches = 0.075 * max(map(len, names)) + 0.6
    columns = max(1, min(len(names), int(7.4 / inches)))
    chart.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=9)


def time_axis(axes: Any) -> None:
    """Make the time axis logarithmic, so that twice as fast is the same distance everywhere."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    subs = (1, 2, 3, 5) if high < 10 * low else (1, 2, 5) if high < 300 * low else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def mark_target(axes: Any, value: float, words: str) -> None:
    """Draw a line at a height that curves are to reach, with its name beside the axes."""
    axes.axhline(value, color=FAINT, linewidth=1, linestyle=":", marker="")
    axes.annotate(words, (1.01, value), xycoords=("axes fraction", "data"), va="center", size=8.5,
                  color=FAINT)  # fmt: skip


# Each lecture begins with a picture, which brings these rules for the whole page: dark pages show
# light drawings in dark, and long printed lines break between words.
SHEET = Path(__file__).parent / "static" / "custom.css"


@dataclass(frozen=True)
class Picture:
    """A drawn PNG and what it says in words. Name it in a cell and it is shown."""

    png: bytes = field(repr=False)
    alt: str
    kind: Kind | None = None
    photograph: bool = False
    """Whether its colours are to be the same on a dark page."""

    def __post_init__(self) -> None:
        if not self.alt.strip():
            raise ValueError("A picture needs alt text: say in words what it shows.")

    def __repr__(self) -> str:
        return self.alt

    @property
    def width(self) -> int:
        """Pixels of a page that the picture takes."""
        return int(struct.unpack(">I", self.png[16:20])[0]) // SCALE

    def save(self, path: str | Path) -> Path:
        """Write the PNG to a file. Returns its path."""
        Path(path).write_bytes(self.png)
        return Path(path)

    @property
    def html(self) -> str:
        """An <img> of a page whose rules are in SHEET."""
        coded = base64.b64encode(self.png).decode("ascii")
        return (
            f'<img{picture_class(self._metadata)} width="{self.width}" style="max-width:100%" '
            f'alt="{escape(self.alt)}" src="data:image/png;base64,{coded}">'
        )

    @property
    def _metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"image/png": {"width": self.width, "alt": self.alt}}
        if not self.photograph:  # the class that JupyterLab gives to a saved picture
            metadata["needs_background"] = "light"
        return metadata

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, Any]]:
        data = {"text/plain": self.alt, "image/png": base64.b64encode(self.png).decode("ascii")}
        # JupyterLab 4.6 gives a PNG no alt attribute, so a live session is sent an <img> as well.
        # A saved notebook keeps the PNG alone: web pages such as GitHub's drop images inside HTML.
        if os.environ.get("LABKIT_PICTURES") != "still":
            data["text/html"] = f"<style>{SHEET.read_text(encoding='utf-8')}</style>{self.html}"
        return data, self._metadata


def picture_class(metadata: Mapping[str, Any]) -> str:
    """Returns the class of an output's <img>: dark pages show it in dark."""
    return ' class="labkit-picture"' if "needs_background" in metadata else ""


def picture(drawn: Figure, alt: str, kind: Kind | None = None) -> Picture:
    """Returns the figure as a `Picture`."""
    from PIL import Image

    dpi = PAGE_DPI * SCALE
    size = (int(drawn.get_figwidth() * dpi), int(drawn.get_figheight() * dpi))
    out = io.BytesIO()
    with style():
        # On white: on a dark page the words of a transparent figure would vanish.
        drawn.savefig(out, format="raw", dpi=dpi, facecolor="white")
    return finished(Image.frombytes("RGBA", size, out.getvalue()).convert("RGB"), alt, kind)


def finished(drawn: Image, alt: str, kind: Kind | None = None, *, small: bool = False) -> Picture:
    """Returns the image as a `Picture`: framed, with its kind printed under the lower right corner.

    A `small` one has a pixel for each of the page, where bytes count for more than sharpness.
    """
    from PIL import Image, ImageDraw, PngImagePlugin

    lines = [] if kind is None else textwrap.wrap(str(kind), width=int(drawn.width / SCALE / 7))
    strip = (16 + 17 * len(lines)) * SCALE if lines else 0
    whole = Image.new("RGB", (drawn.width, drawn.height + strip), "white")
    whole.paste(drawn)
    pen = ImageDraw.Draw(whole)
    for number, line in enumerate(reversed(lines)):
        at = (whole.width - 12 * SCALE, whole.height - (16 + 17 * number) * SCALE)
        pen.text(at, line, fill=FAINT, font=typeface(8, "-Oblique"), anchor="rm")
    pen.rectangle((0, 0, whole.width - 1, whole.height - 1), outline=FRAME, width=SCALE)
    whole = whole.reduce(SCALE) if small else whole
    words = PngImagePlugin.PngInfo()
    words.add_itxt("Description", alt)
    out = io.BytesIO()
    level = 6 if small else 8  # half the time for 7 % more bytes
    _with_few_colors(whole, 64 if small else 256).save(
        out, format="PNG", compress_level=level, pnginfo=words
    )
    return Picture(out.getvalue(), alt, kind)


def _with_few_colors(image: Image, most: int = 256) -> Image:
    """Returns the image with a palette: flat areas take a third to a fifth of the bytes."""
    from PIL import Image

    # Counting is slow where there is room for a colour in each pixel.
    counts: Any = image.getcolors(1 << 16) or ()
    found = sorted(counts, reverse=True)
    if sum(count for count, _ in found[:256]) < 0.8 * image.width * image.height:  # photographs
        return image.quantize(256, dither=Image.Dither.NONE)
    # The most frequent ones, exactly; the smooth edges of letters take the nearest. Pillow mixes up
    # colours that are close to each other: of those the most frequent one alone.
    apart: dict[tuple[int, ...], tuple[int, ...]] = {}
    for _, (r, g, b) in found:
        apart.setdefault(((r + 8) >> 4, (g + 8) >> 4, (b + 8) >> 4), (r, g, b))
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for color in [*apart.values()][:most] for value in color])
    return image.quantize(palette=palette, dither=Image.Dither.NONE)


@cache
def typeface(size: float, variant: str = "") -> Any:
    """The typeface of all figures in points. It ships inside matplotlib, which is not imported."""
    from PIL import ImageFont

    found = importlib.util.find_spec("matplotlib")
    folder = Path(found.origin).parent if found and found.origin else Path()
    file = folder / "mpl-data/fonts/ttf" / f"DejaVuSans{variant}.ttf"
    return ImageFont.truetype(str(file), SCALE * size * PAGE_DPI / 72)
