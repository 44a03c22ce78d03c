"""A machine as a picture: processors above, devices below them, and the links between them."""

from typing import Any

from labkit.kinds import wrapped
from labkit.views.figure import Picture
from labkit.views.sketch import WIDTH, Box, Sketch

LEFT, GAP, TOP, BETWEEN, BOW = 24.0, 12.0, 84.0, 40.0, 11.0
# The rows, by the beginning of a part's name: height of a box, series of its colour.
ROWS = (("CPU", 66.0, 0), ("PCIe switch", 36.0, 5), ("GPU", 46.0, 2), ("TPU", 46.0, 2),
        ("NVSwitch", 34.0, 1))  # fmt: skip
LEGEND = "Lines: links, heavy where there are several. PCIe goes up, NVLink and the like down."


def machine(shown: Any) -> Picture:
    """The picture of a `MachineTopology`."""
    return machine_board(shown).picture(repr(shown))


def machine_board(shown: Any) -> Sketch:
    """The drawing of `machine`."""
    rows = {row: [part for part in shown.parts if part.startswith(row[0])] for row in ROWS}
    devices = [part for part in shown.parts if part[:3] in ("GPU", "TPU")]
    near = {one.b: devices.index(one.a) for one in reversed(shown.edges) if one.a in devices}
    rows[ROWS[0]].sort(key=lambda part: near.get(part, 0))  # processors above their devices
    bows = [one for one in shown.edges if {one.a, one.b} <= set(devices)]
    bows.sort(key=lambda one: abs(devices.index(one.a) - devices.index(one.b)))
    height = TOP + sum(row[1] + BETWEEN for row, mine in rows.items() if mine) + BOW * len(bows)
    notes = wrapped("\n".join(shown.notes)).splitlines()
    legend = LEGEND if devices else ""
    board = Sketch(shown.name, height + 18 * len(notes), legend, kind=shown.kind)
    for number, line in enumerate(notes):
        board.text(LEFT, height - 12 + 18 * number, line, size=9, faint=True)
    boxes: dict[str, Box] = {}
    y = TOP
    for (_, high, series), mine in rows.items():
        wide = (WIDTH - 2 * LEFT + GAP) / max(len(mine), 1)
        for number, part in enumerate(mine):
            words = part if part in devices else f"{part}\n{shown.parts[part]}".strip()
            x = LEFT + number * wide
            boxes[part] = board.box(x, y, wide - GAP, high, words, series=series, size=9)
        y += (high + BETWEEN) * bool(mine)
    for one in shown.edges:
        if one in bows or not {one.a, one.b} <= boxes.keys():
            continue
        a, b = sorted((boxes[one.a], boxes[one.b]), key=lambda box: (box.y, box.x))
        x = min((a, b), key=lambda box: box.width).middle[0]
        ends = [(min(max(x, box.x + 9), box.x + box.width - 9), y)
                for box, y in ((a, a.y + a.height), (b, b.y))]  # fmt: skip
        board.line(*((a.right, b.left) if a.y == b.y else ends), heavy=one.count > 1)
    for number, one in enumerate(bows):
        points = []
        for part in sorted((one.a, one.b), key=devices.index):
            mine = [bow for bow in bows if part in (bow.a, bow.b)]
            points.append(boxes[part].at((mine.index(one) + 1) / (len(mine) + 1), 1))
        deep = y - BETWEEN + 10 + BOW * number
        (left, top), (right, _) = points
        board.line((left, top), (left, deep), (right, deep), (right, top), heavy=one.count > 1)
    return board
