"""A machine as a picture: processors above, devices below them, and the links between them."""

from __future__ import annotations

from typing import Any

from labkit.views.figure import Picture
from labkit.views.sketch import WIDTH, Box, Sketch

LEFT, GAP, TOP = 24.0, 12.0, 84.0
# The rows, by the beginning of a part's name: height of a box, series of its colour.
ROWS = (("CPU", 74.0, 0), ("PCIe switch", 44.0, 5), ("GPU", 46.0, 2), ("NVSwitch", 34.0, 1))
DEVICES = ("GPU", "TPU")


def machine(shown: Any) -> Picture:
    """The picture of a `MachineTopology`."""
    words = "; ".join(
        f"{part}: {', '.join(found)}" for part in shown.parts if (found := shown.links(part))
    )
    about = "; ".join(f"{part}: {what}" for part, what in shown.parts.items() if what)
    alt = f"{shown.name}. {' '.join(about.split())}. {words}".strip()
    return machine_board(shown).picture(f"{alt}.")


def machine_board(shown: Any) -> Sketch:
    """The drawing of `machine`."""
    devices = [part for part in shown.parts if part.startswith(DEVICES)]
    place = {part: float(number) for number, part in enumerate(devices)}
    bows = [one for one in shown.edges if one.a in place and one.b in place]
    bows.sort(key=lambda one: (abs(place[one.a] - place[one.b]), place[one.a]))
    rows = [(prefix, high, series) for prefix, high, series in ROWS
            if any(_is(part, prefix) for part in shown.parts)]  # fmt: skip
    height = TOP + sum(high + 40 for _, high, _ in rows) + 11 * len(bows)
    legend = "Lines: links, heavy where there are several. PCIe goes up, NVLink and the like down."
    board = Sketch(shown.name, height, legend if devices else "", kind=shown.kind)
    boxes: dict[str, Box] = {}
    y = TOP
    for prefix, high, series in rows:
        mine = [part for part in shown.parts if _is(part, prefix)]
        for number, part in enumerate(mine):
            first, last = _columns(part, shown, place, number, len(mine))
            wide = (WIDTH - 2 * LEFT + GAP) / max(len(devices), len(mine))
            x = LEFT + first * wide
            words = part if prefix == "GPU" else _words(part, shown)
            boxes[part] = board.box(x, y, (last - first) * wide - GAP, high, words, series=series,
                                    size=9)  # fmt: skip
        y += high + 40
    for one in shown.edges:
        if one in bows or not {one.a, one.b} <= boxes.keys():
            continue
        a, b = sorted((boxes[one.a], boxes[one.b]), key=lambda box: (box.y, box.x))
        if a.y == b.y:
            board.line(a.right, b.left)
        else:
            x = min((a, b), key=lambda box: box.width).middle[0]
            board.line((x, a.y + a.height), (x, b.y), heavy=one.count > 1)
    low = max((box.y + box.height for box in boxes.values()), default=TOP)
    ends = {part: [one for one in bows if part in (one.a, one.b)] for part in devices}
    for number, one in enumerate(bows):
        deep = low + 10 + 11 * number
        xs = [
            boxes[part].at((ends[part].index(one) + 1) / (len(ends[part]) + 1), 1)
            for part in sorted((one.a, one.b), key=place.__getitem__)
        ]
        path = (xs[0], (xs[0][0], deep), (xs[1][0], deep), xs[1])
        board.line(*path, heavy=one.count > 1)
    return board


def _is(part: str, prefix: str) -> bool:
    return part.startswith(DEVICES if prefix == "GPU" else prefix)


def _columns(
    part: str, shown: Any, place: dict[str, float], number: int, count: int
) -> tuple[float, float]:
    """The columns of devices that a part spans: its own, those linked below it, or its share."""
    if part in place:
        return place[part], place[part] + 1
    below, seen = [part], set()
    while below:
        at = below.pop()
        seen.add(at)
        below += [end for one in shown.edges if at in (one.a, one.b) for end in (one.a, one.b)
                  if end not in seen and (end in place or end.startswith("PCIe switch"))
                  and at not in place]  # fmt: skip
    mine = [place[one] for one in seen if one in place]
    if mine:
        return min(mine), max(mine) + 1
    wide = max(len(place), count) / count
    return number * wide, (number + 1) * wide


def _words(part: str, shown: Any) -> str:
    """The name, what it is, and the network cards on it."""
    ends = [end for one in shown.edges if part in (one.a, one.b) for end in (one.a, one.b)]
    cards = len([end for end in ends if end.startswith("network card")])
    more = [f"{cards} network card{'s' * (cards > 1)}"] if cards else []
    return "\n".join([part, *shown.parts[part].splitlines(), *more][:4])
