"""A machine as a picture: processors above, devices below them, and the links between them."""

from __future__ import annotations

from typing import Any

from labkit.views.figure import Picture
from labkit.views.sketch import WIDTH, Box, Sketch
from labkit.views.table import wrapped

LEFT, GAP, TOP, BETWEEN, BOW = 24.0, 12.0, 84.0, 40.0, 11.0
# The rows, by the beginning of a part's name: height of a box, series of its colour.
ROWS = (("CPU", 74.0, 0), ("PCIe switch", 44.0, 5), ("GPU", 46.0, 2), ("TPU", 46.0, 2),
        ("NVSwitch", 34.0, 1))  # fmt: skip


def machine(shown: Any) -> Picture:
    """The picture of a `MachineTopology`."""
    about = (
        f"{part}: {', '.join(filter(None, [' '.join(what.split()), *shown.links(part)]))}"
        for part, what in shown.parts.items()
    )
    return machine_board(shown).picture(f"{shown.name}. {'; '.join(about)}.")


def machine_board(shown: Any) -> Sketch:
    """The drawing of `machine`."""
    devices = [part for part in shown.parts if part[:3] in ("GPU", "TPU")]
    place = {part: number for number, part in enumerate(devices)}
    bows = [one for one in shown.edges if one.a in place and one.b in place]
    bows.sort(key=lambda one: (abs(place[one.a] - place[one.b]), place[one.a]))
    rows = {row: [part for part in shown.parts if part.startswith(row[0])] for row in ROWS}
    height = TOP + sum(row[1] + BETWEEN for row, mine in rows.items() if mine) + BOW * len(bows)
    legend = "Lines: links, heavy where there are several. PCIe goes up, NVLink and the like down."
    notes = [line for note in shown.notes for line in wrapped(note).splitlines()]
    board = Sketch(shown.name, height + 18 * len(notes), legend if devices else "", kind=shown.kind)
    for number, line in enumerate(notes):
        board.text(LEFT, height - 12 + 18 * number, line, size=9, faint=True)
    boxes: dict[str, Box] = {}
    y = TOP
    for (_, high, series), mine in rows.items():
        wide = (WIDTH - 2 * LEFT + GAP) / max(len(devices), len(mine), 1)
        share = max(len(devices), len(mine)) // max(len(mine), 1)
        for number, part in enumerate(mine):
            below = sorted(_below(part, shown, place)) or [share * number, share * (number + 1) - 1]
            x, columns = LEFT + below[0] * wide, below[-1] + 1 - below[0]
            words = part if part in place else _words(part, shown)
            boxes[part] = board.box(x, y, columns * wide - GAP, high, words, series=series, size=9)
        y += (high + BETWEEN) * bool(mine)
    for one in shown.edges:
        if one in bows or not {one.a, one.b} <= boxes.keys():
            continue
        a, b = sorted((boxes[one.a], boxes[one.b]), key=lambda box: (box.y, box.x))
        x = min((a, b), key=lambda box: box.width).middle[0]
        ends = (a.right, b.left) if a.y == b.y else ((x, a.y + a.height), (x, b.y))
        board.line(*ends, heavy=one.count > 1)
    for number, one in enumerate(bows):
        deep = y - BETWEEN + 10 + BOW * number
        points = []
        for part in sorted((one.a, one.b), key=place.__getitem__):
            mine = [bow for bow in bows if part in (bow.a, bow.b)]
            points.append(boxes[part].at((mine.index(one) + 1) / (len(mine) + 1), 1))
        (x, top), (end, _) = points
        board.line((x, top), (x, deep), (end, deep), (end, top), heavy=one.count > 1)
    return board


def _below(part: str, shown: Any, place: dict[str, int]) -> set[int]:
    """The columns of the devices that a part is linked to, also through PCIe switches."""
    if part in place:
        return {place[part]}
    ends = [one.a if one.b == part else one.b for one in shown.edges if part in (one.a, one.b)]
    found = {place[end] for end in ends if end in place}
    if part.startswith("CPU"):
        switches = [end for end in ends if end.startswith("PCIe switch")]
        found = found.union(*(_below(switch, shown, place) for switch in switches))
    return found


def _words(part: str, shown: Any) -> str:
    """The name, what it is, and the network cards on it."""
    ends = [end for one in shown.edges if part in (one.a, one.b) for end in (one.a, one.b)]
    cards = len([end for end in ends if end.startswith("network card")])
    more = [f"{cards} network card{'s' * (cards > 1)}"] if cards else []
    return "\n".join([part, *shown.parts[part].splitlines(), *more][:4])
