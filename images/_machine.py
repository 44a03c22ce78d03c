"""A machine: processors above, GPUs below them, and the links between them."""

from __future__ import annotations

from collections import Counter

from labkit.kinds import recorded
from labkit.known_hardware import READ
from labkit.views.sketch import WIDTH, Box, Sketch

LEFT, GAP, TOP, BETWEEN, BOW = 24.0, 12.0, 84.0, 40.0, 11.0
# The rows, by the beginning of a part's name: height of a box, series of its colour.
ROWS = {"CPU": (40.0, 0), "PCIe switch": (36.0, 5), "GPU": (46.0, 2), "NVSwitch": (34.0, 1)}
Links = Counter[tuple[str, str]]  # how many there are between two parts


def board(title: str, links: Links, source: str) -> Sketch:
    """Links between GPUs are bows below them."""
    parts = sorted({part for ends in links for part in ends})
    bows = [ends for ends in links if all(part.startswith("GPU") for part in ends)]
    bows.sort(key=lambda ends: abs(int(ends[0][4:]) - int(ends[1][4:])))
    rows = {name: [part for part in parts if part.startswith(name)] for name in ROWS}
    height = (
        TOP - 20 + sum(ROWS[name][0] + BETWEEN for name in rows if rows[name]) + BOW * len(bows)
    )
    drawn = Sketch(
        title, height, "Lines: links, heavy where there are several. PCIe goes up, NVLink down.",
        kind=recorded(source, READ),
    )  # fmt: skip
    boxes: dict[str, Box] = {}
    y = TOP
    for name, mine in rows.items():
        high, series = ROWS[name]
        wide = (WIDTH - 2 * LEFT + GAP) / max(len(mine), 1)
        for number, part in enumerate(mine):
            x = LEFT + number * wide
            boxes[part] = drawn.box(x, y, wide - GAP, high, part, series=series, size=9)
        y += (high + BETWEEN) * bool(mine)
    for ends, count in links.items():
        a, b = sorted((boxes[part] for part in ends), key=lambda box: (box.y, box.x))
        if a.y == b.y and ends not in bows:
            drawn.line(a.right, b.left, heavy=count > 1)
        elif ends not in bows:
            x = min((a, b), key=lambda box: box.width).middle[0]
            drawn.line((x, a.bottom[1]), (x, b.y), heavy=count > 1)
    for number, ends in enumerate(bows):
        deep = y - BETWEEN + 10 + BOW * number
        (left, top), (right, _) = (
            boxes[part].at((mine.index(ends) + 1) / (len(mine) + 1), 1)
            for part in ends
            for mine in [[bow for bow in bows if part in bow]]
        )
        drawn.line((left, top), (left, deep), (right, deep), (right, top), heavy=links[ends] > 1)
    return drawn
