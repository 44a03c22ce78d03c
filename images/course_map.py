"""The map of the course."""

from __future__ import annotations

from labkit.views.sketch import Box, Sketch

ALT = (
    "Map of the course. Lectures 00 start here, 01 why distribute, 02 one device, 03 "
    "MirroredStrategy and 04 what went wrong follow each other. After 03 four branches "
    "begin: 05 utilisation and energy; 06 collectives and 07 ring all-reduce; 08 sync and async, "
    "09 many workers and 10 on a cluster; 11 custom training loops."
)

# Number: title on the map, and the lecture that it builds on.
LECTURES = {
    "00": ("Start here", ""),
    "01": ("Why distribute", "00"),
    "02": ("One device", "01"),
    "03": ("MirroredStrategy", "02"),
    "04": ("What went wrong", "03"),
    "05": ("Utilisation\nand energy", "03"),
    "06": ("Collectives", "03"),
    "07": ("Ring\nall-reduce", "06"),
    "08": ("Sync\nand async", "03"),
    "09": ("Many\nworkers", "08"),
    "10": ("On a\ncluster", "09"),
    "11": ("Custom\nloops", "03"),
}

BRANCHES = (("05",), ("06", "07"), ("08", "09", "10"), ("11",))


def draw() -> Sketch:
    board = Sketch(
        "The course",
        420,
        "Follow the left column first. After lecture 03 you can take any branch.",
    )
    boxes: dict[str, Box] = {}
    spine = [number for number in LECTURES if all(number not in branch for branch in BRANCHES)]
    for row, number in enumerate(spine):
        boxes[number] = _lecture(board, number, 24, 86 + 66 * row, 244, 46)
    for row, branch in enumerate(BRANCHES):
        for column, number in enumerate(branch):
            boxes[number] = _lecture(board, number, 356 + 148 * column, 86 + 82 * row, 124, 66)
    trunk = 312.0
    for number, (_, before) in LECTURES.items():
        if not before:
            continue
        start, end = boxes[before], boxes[number]
        if end.x == start.x:
            board.arrow(start.bottom, end.top)
        elif end.y == start.y:
            board.arrow(start.right, end.left)
        else:
            board.arrow(start.right, (trunk, start.right[1]), (trunk, end.left[1]), end.left)
    return board


def _lecture(board: Sketch, number: str, x: float, y: float, width: float, height: float) -> Box:
    title, _ = LECTURES[number]
    made = board.box(x, y, width, height, series=0)
    board.text(x + 14, made.middle[1], number, size=10, bold=True, inside=made)
    board.text(x + 44, made.middle[1], title, size=9.5, inside=made)
    return made
