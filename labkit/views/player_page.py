"""The player as a piece of HTML: a run of N ranks that plays in the browser, without a kernel.

The run is inside as JSON, gzipped, in base64, in columns: 64 ranks have thousands of changes. The
still picture is what remains where scripts may not run, such as on a web page of notebooks. It is
drawn with Pillow alone, in milliseconds, in few colours, so that it stays small.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import io
import json
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from labkit.kinds import Kind
from labkit.views.embed import embedded
from labkit.views.figure import INK, OKABE_ITO, Picture

__all__ = ["MODULES", "content", "packed", "page", "still"]

# Each before those that use it: joined in this order they are one program.
MODULES = ("page", "player_data", "player_draw", "player")
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
ENDED, UNKNOWN = -1, -2  # in place of the index of a place
# Of the still picture.
SCALE = 2  # as `Picture` expects
WIDTH, MARGIN, LABEL, BETWEEN, TOP = 800, 16, 48, 22, 66
RANKS = [
    OKABE_ITO[name]
    for name in ("blue", "orange", "green", "vermillion", "purple", "sky", "yellow", "black")
]
LANE, WHOLE, SOME, EDGE = "#EEF0F3", "#00734F", OKABE_ITO["blue"], "#8A8D91"
Box = tuple[float, float, float, float]


def page(trace: Any, contributions: Any, timed: Any, *, alt: str, png: bytes | None = None) -> str:
    """A piece of HTML that plays the run; `alt` says in words what there is to see."""
    data = packed(trace, contributions, timed)
    key = hashlib.sha256(data.encode()).hexdigest()[:12]
    options = {"key": key, "alt": alt, "data": data}
    return embedded("player", MODULES, options, key=key, alt=alt, png=png)


def packed(trace: Any, contributions: Any, timed: Any) -> str:
    """What the page unpacks. The same run gives the same text."""
    text = json.dumps(
        content(trace, contributions, timed), separators=(",", ":"), ensure_ascii=False
    )
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def content(trace: Any, contributions: Any, timed: Any) -> dict[str, Any]:
    """Everything that the player shows, as plain values; changes are in order of their steps."""
    lines = sorted({(call.place.source, call.place.line) for call in trace.calls if call.place})
    index = {line: number for number, line in enumerate(lines)}
    places = {
        call.number: index[call.place.source, call.place.line] if call.place else UNKNOWN
        for call in trace.calls
    }
    messages = sorted(trace.messages, key=lambda one: (one.step, one.number))
    changes = sorted(contributions.changes, key=lambda one: one.step)
    holdings: dict[str | None, int] = {}
    return {
        "program": trace.program,
        "ranks": trace.ranks,
        "steps": trace.steps,
        "options": trace.options,
        "op": contributions.op,
        "sources": [[one.name, one.first, one.text] for one in trace.sources],
        "places": lines,
        "where": _places_by_step(trace, places),
        "messages": {
            "source": [one.source for one in messages],
            "dest": [one.dest for one in messages],
            "step": [one.step for one in messages],
            "nbytes": [one.nbytes for one in messages],
            "from": [one.sent_from for one in messages],
            "into": [one.into for one in messages],
            "sentAt": [places.get(one.sent_by, UNKNOWN) for one in messages],
            "receivedAt": [places.get(one.received_by, UNKNOWN) for one in messages],
        },
        "cells": contributions.cells,
        "changes": {
            "step": [one.step for one in changes],
            "rank": [one.rank for one in changes],
            "cell": [one.cell for one in changes],
            "holding": [holdings.setdefault(_digits(one.counts), len(holdings)) for one in changes],
            "text": [one.text for one in changes],
        },
        "holdings": list(holdings),
        "clock": _arrivals(trace, timed),
        "link": str(timed.kind),
    }


def _arrivals(trace: Any, timed: Any) -> list[float]:
    """The modelled time at which all messages up to each step have arrived."""
    ends = [0.0] * (trace.steps + 1)
    for message, end in zip(trace.messages, timed.ends, strict=True):
        ends[message.step] = max(ends[message.step], end)
    for step in range(1, trace.steps + 1):
        ends[step] = max(ends[step], ends[step - 1])
    ends[-1] = max(ends[-1], float(timed.seconds))  # ranks may compute after the last message
    return [float(f"{end:.6g}") for end in ends]


def _places_by_step(trace: Any, places: dict[int, int]) -> list[list[int]]:
    """For each step, in which place each rank is: sending, receiving or waiting."""
    rows = [[ENDED] * trace.ranks for _ in range(trace.steps)]
    reached = [0] * trace.ranks  # the last step that the rank has waited for
    for call in sorted(trace.calls, key=lambda one: one.number):
        for step in range(reached[call.rank], call.step):
            rows[step][call.rank] = places[call.number]
        reached[call.rank] = max(reached[call.rank], call.step)
    return rows


def _digits(counts: tuple[int, ...] | None) -> str | None:
    """How often each rank is in there, a digit each; z stands for more than 34 times."""
    return None if counts is None else "".join(DIGITS[min(one, 35)] for one in counts)


def still(trace: Any, contributions: Any, alt: str, kind: Kind | None = None) -> Picture:
    """The grid of ranks and cells at three moments; each contribution at its rank's place."""
    from PIL import Image, ImageDraw

    ranks, steps = trace.ranks, sorted({0, (trace.steps + 1) // 2, trace.steps})
    row = max(5, min(34, 300 // ranks))
    height = TOP + row * ranks + 46
    image = Image.new("P", (WIDTH * SCALE, height * SCALE), "#FFFFFF")
    pen = ImageDraw.Draw(image)
    count = "1 rank" if ranks == 1 else f"{ranks} ranks"
    _text(pen, MARGIN, 24, f"{trace.program}, {count}", 13, bold=True)
    for rank in range(0, ranks, -(-12 // row)):
        _text(pen, MARGIN, TOP + row * (rank + 0.46), f"rank {rank}", 9.5)
    wide = (WIDTH - 2 * MARGIN - LABEL - BETWEEN * (len(steps) - 1)) / len(steps)
    for number, step in enumerate(steps):
        left = MARGIN + LABEL + number * (wide + BETWEEN)
        name = f"after step {step}{' (the last)' * (step == trace.steps)}" if step else "before"
        _text(pen, left, TOP - 16, name, 10.5)
        for rank, cells in enumerate(contributions.at(step)):
            pitch = min(wide / max(len(cells), 1), 90.0)
            w, h = pitch - min(3, pitch // 4), row - (3 if row >= 12 else 1)
            values = ranks <= 4 and pitch >= 24
            for cell, change in enumerate(cells):
                x, y = left + pitch * cell, TOP + row * rank
                _cell(pen, (x, y, w, h - 12 if values else h), change.counts)
                if values:
                    _text(pen, x + w / 2, y + h - 4.5, change.text, 8.5, anchor="mm", most=w + 2)
    _text(pen, MARGIN, height - 18, _legend(ranks), 9.5)
    pen.rectangle((0, 0, image.width - 1, image.height - 1), outline=EDGE)
    out = io.BytesIO()
    image.save(out, format="PNG", compress_level=7)
    return Picture(out.getvalue(), alt, kind)


def _legend(ranks: int) -> str:
    where = "In each cell a contribution is at its rank's place, rank 0 at the left"
    whole = "framed" if ranks <= len(RANKS) else "green"
    return f"{where}; {whole}: every rank's, once. Run this cell to play it."


def _cell(pen: Any, box: Box, counts: tuple[int, ...] | None) -> None:
    """The contributions that a cell holds, with a bar across those that are counted twice."""
    x, y, w, h = box
    ranks = len(counts or ())
    few, whole = ranks <= len(RANKS), ranks > 1 and set(counts or ()) == {1}
    _box(pen, box, LANE)
    # Few ranks have a colour each; of many, those side by side are one rectangle.
    for _, group in groupby(enumerate(counts or ()), lambda one: one if few else one[1]):
        (rank, count), *more = group
        left, wide = x + w * rank / ranks, max(w * (1 + len(more)) / ranks, 0.8)
        if count:
            color = RANKS[rank] if few else WHOLE if whole else SOME
            _box(pen, (left, y, wide, h), color, INK if few and wide > 2 else None)
        if count > 1:
            _box(pen, (left, y + h / 2 - 1.5, max(wide, 3), 3), INK)
    if whole and few:
        _box(pen, box, None, INK, SCALE)


def _box(pen: Any, box: Box, fill: str | None, outline: str | None = None, width: int = 1) -> None:
    x, y, w, h = (SCALE * value for value in box)
    left, top = round(x), round(y)
    corners = (left, top, max(left, round(x + w) - 1), max(top, round(y + h) - 1))
    pen.rectangle(corners, fill, outline, width)


def _text(
    pen: Any, x: float, y: float, text: str, size: float, *,
    bold: bool = False, anchor: str = "lm", most: float = WIDTH,
) -> None:  # fmt: skip
    font = _font(size, bold)
    if pen.textlength(text, font=font) <= SCALE * most:
        pen.text((SCALE * x, SCALE * y), text, fill=INK, font=font, anchor=anchor)


@cache
def _font(size: float, bold: bool) -> Any:
    """The typeface of all figures, which ships inside matplotlib; it need not be imported."""
    from PIL import ImageFont

    found = importlib.util.find_spec("matplotlib")
    folder = Path(found.origin).parent if found and found.origin else Path()
    file = folder / "mpl-data/fonts/ttf" / f"DejaVuSans{'-Bold' * bold}.ttf"
    return ImageFont.truetype(str(file), SCALE * size)
