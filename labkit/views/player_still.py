"""The still picture inside the player: who held what before, on the way, and after.

Drawn with Pillow alone, in a few milliseconds: a notebook shows it before anything else has loaded,
and it is what remains where scripts may not run.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from labkit.kinds import Kind
from labkit.views.figure import FRAME, INK, OKABE_ITO, Picture, tint

__all__ = ["still"]

SCALE = 2  # as `Picture` expects
WIDTH = 800
MARGIN, HEAD, LABEL, BETWEEN = 16, 46, 48, 22
_NAMES = ("blue", "orange", "green", "vermillion", "purple", "sky", "yellow", "black")
# Sixteen colours, half a byte a pixel: white, those of eight ranks, and seven more. Words take the
# last three and white, so they stand on white only.
PALETTE = (
    "#FFFFFF", *(OKABE_ITO[name] for name in _NAMES),
    "#EEF0F3", "#00734F", tint(OKABE_ITO["blue"], 0.75), FRAME, "#B4B4B4", "#6E6E6E", INK,
)  # fmt: skip
FEW = len(_NAMES)
LANE, WHOLE, SOME, EDGE, DARK = 9, 10, 11, 12, 15


def still(trace: Any, story: Any, alt: str, kind: Kind | None = None) -> Picture:
    """The grid of ranks and pieces at three moments; each contribution at its rank's place."""
    from PIL import Image, ImageDraw

    ranks = trace.ranks
    row = max(5, min(34, 300 // ranks))
    tall = HEAD + 20 + row * ranks + 46
    size = WIDTH * SCALE, tall * SCALE
    sheet, words = Image.new("P", size, 0), Image.new("L", size, 0)
    sheet.putpalette([int(one[i : i + 2], 16) for one in PALETTE for i in (1, 3, 5)])
    pen, pencil = ImageDraw.Draw(sheet), ImageDraw.Draw(words)
    steps = sorted({0, (trace.steps + 1) // 2, trace.steps})
    _words(pencil, MARGIN, 24, f"{trace.program}, {_counted(ranks, 'rank')}", 13, bold=True)
    wide = (WIDTH - 2 * MARGIN - LABEL - BETWEEN * (len(steps) - 1)) / len(steps)
    top = HEAD + 20
    for rank in range(0, ranks, max(1, -(-12 // row))):
        name = f"rank {rank}" if row >= 10 else f"{rank}"
        _words(pencil, MARGIN, top + row * (rank + 0.46), name, 9.5)
    for number, step in enumerate(steps):
        left = MARGIN + LABEL + number * (wide + BETWEEN)
        name = "before" if step == 0 else f"after step {step}" + " (the last)" * (step == steps[-1])
        _words(pencil, left, HEAD + 4, name, 10.5)
        _grid(pen, pencil, story.at(step), ranks, (left, top, wide, row))
    _words(pencil, MARGIN, tall - 18, _legend(ranks), 9.5)
    pen.rectangle((0, 0, size[0] - 1, size[1] - 1), outline=EDGE, width=SCALE)
    greys = words.point([0] * 40 + [13] * 70 + [14] * 70 + [DARK] * 76)
    sheet.paste(greys, mask=words.point([0] * 40 + [255] * 216))
    out = io.BytesIO()
    sheet.save(out, format="PNG", bits=4, compress_level=7)
    return Picture(out.getvalue(), alt, kind)


def _grid(
    pen: Any,
    pencil: Any,
    held: list[list[Any]],
    ranks: int,
    area: tuple[float, float, float, int],
) -> None:
    left, top, wide, row = area
    columns = max((len(cells) for cells in held), default=0)
    if not columns:
        return
    pitch = min(wide / columns, 90.0)
    gap = 3 if pitch >= 12 else 1 if pitch >= 4 else 0
    values = ranks <= 4 and pitch >= 24  # of more ranks the numbers would weigh more than all else
    for rank, cells in enumerate(held):
        for cell, change in enumerate(cells):
            x, y = left + pitch * cell, top + row * rank
            w, h = pitch - gap, row - (3 if row >= 12 else 1)
            _cell(pen, (x, y, w, h - 12 if values else h), change.counts, ranks)
            if values:
                _words(pencil, x + w / 2, y + h - 4.5, change.text, 8.5, anchor="mm", most=w + 2)


def _cell(
    pen: Any, box: tuple[float, float, float, float], counts: tuple[int, ...] | None, ranks: int
) -> None:
    x, y, w, h = box
    _box(pen, x, y, w, h, LANE)
    if counts is None:
        return
    whole = ranks > 1 and all(count == 1 for count in counts)
    if whole and ranks > FEW:
        _box(pen, x, y, w, h, WHOLE)
        return
    for first, last, colour in _stripes(counts, ranks):
        _box(pen, x + w * first / ranks, y, max(w * (last - first) / ranks, 0.8), h, colour)
    for rank, count in enumerate(counts):
        if count > 1:  # a bar across what is counted twice
            _box(pen, x + w * rank / ranks, y + h / 2 - 1.5, max(w / ranks, 3), 3, DARK)
    if whole:
        corners = [round(SCALE * v) for v in (x, y, x + w, y + h)]
        pen.rectangle((*corners[:2], corners[2] - 1, corners[3] - 1), outline=DARK, width=SCALE)


def _stripes(counts: tuple[int, ...], ranks: int) -> Iterator[tuple[int, int, int]]:
    """Each contribution in its rank's colour; of many ranks, each unbroken run of them."""
    if ranks <= FEW:
        yield from ((rank, rank + 1, rank + 1) for rank, count in enumerate(counts) if count)
        return
    start = None
    for rank, count in enumerate((*counts, 0)):
        if count and start is None:
            start = rank
        if not count and start is not None:
            yield start, rank, SOME
            start = None


def _box(pen: Any, x: float, y: float, w: float, h: float, colour: int) -> None:
    left, top = round(SCALE * x), round(SCALE * y)
    right = max(left, round(SCALE * (x + w)) - 1)
    pen.rectangle((left, top, right, max(top, round(SCALE * (y + h)) - 1)), fill=colour)


def _words(
    pen: Any,
    x: float,
    y: float,
    words: str,
    size: float,
    *,
    bold: bool = False,
    anchor: str = "lm",
    most: float = 0.0,
) -> None:
    font = _font(size, bold)
    if most and pen.textlength(words, font=font) > SCALE * most:
        return
    pen.text((SCALE * x, SCALE * y), words, fill=255, font=font, anchor=anchor)


@cache
def _font(size: float, bold: bool) -> Any:
    """The typeface of all figures, which ships inside matplotlib; it need not be imported."""
    from PIL import ImageFont

    found = importlib.util.find_spec("matplotlib")
    if found is not None and found.origin is not None:
        fonts = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
        name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
        if (fonts / name).exists():
            return ImageFont.truetype(str(fonts / name), SCALE * size)
    return ImageFont.load_default(SCALE * size)


def _legend(ranks: int) -> str:
    where = "In each piece a contribution is at its rank's place, rank 0 at the left"
    whole = "framed" if ranks <= FEW else "green"
    return f"{where}; {whole}: every rank's, once. Where scripts may run, this plays."


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
