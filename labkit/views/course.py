"""Diagrams of the course itself: its map, the three kinds of numbers, and what labkit is."""

from __future__ import annotations

from labkit.kinds import modelled
from labkit.views.sketch import Box, Diagram, Sketch

__all__ = ["LECTURES", "diagrams"]

# Number: title on the map, lecture that it builds on, ready in this release.
LECTURES = {
    "00": ("Start here", "", True),
    "01": ("Why distribute", "00", True),
    "02": ("One device", "01", True),
    "03": ("MirroredStrategy", "02", True),
    "04": ("What went wrong", "03", True),
    "05": ("Reading\nthe gauges", "03", True),
    "06": ("Collectives", "03", True),
    "07": ("Ring\nall-reduce", "06", True),
    "08": ("Sync\nand async", "03", True),
    "09": ("Many\nworkers", "08", True),
    "10": ("On a\ncluster", "09", True),
}
BRANCHES = (("05",), ("06", "07"), ("08", "09", "10"))


def course_map() -> Sketch:
    all_ready = all(ready for *_, ready in LECTURES.values())
    board = Sketch(
        "The course",
        420 if all_ready else 456,
        "Follow the left column first. After lecture 03 you can take any branch.",
    )
    boxes: dict[str, Box] = {}
    spine = [number for number in LECTURES if all(number not in branch for branch in BRANCHES)]
    for row, number in enumerate(spine):
        boxes[number] = _lecture(board, number, 24, 86 + 66 * row, 244, 46)
    for row, branch in enumerate(BRANCHES):
        for column, number in enumerate(branch):
            boxes[number] = _lecture(board, number, 356 + 148 * column, 86 + 94 * row, 124, 66)
    trunk = 312.0
    for number, (_, before, _) in LECTURES.items():
        if not before:
            continue
        start, end = boxes[before], boxes[number]
        if end.x == start.x:
            board.arrow(start.bottom, end.top)
        elif end.y == start.y:
            board.arrow(start.right, end.left)
        else:
            board.arrow(start.right, (trunk, start.right[1]), (trunk, end.left[1]), end.left)
    if not all_ready:
        board.box(24, 422, 26, 14, series=0, corner=3)
        board.text(58, 429, "in this release", size=9.5)
        board.box(200, 422, 26, 14, dashed=True, corner=3)
        board.text(234, 429, "to come", size=9.5)
    return board


def _lecture(board: Sketch, number: str, x: float, y: float, width: float, height: float) -> Box:
    title, _, ready = LECTURES[number]
    made = board.box(x, y, width, height, series=0 if ready else None, dashed=not ready)
    board.text(x + 14, made.middle[1], number, size=10, bold=True, inside=made)
    board.text(x + 44, made.middle[1], title, size=9.5, inside=made)
    return made


def kinds() -> Sketch:
    board = Sketch(
        "Every number says where it comes from",
        318,
        "Look for one of these three words under each table and in the corner of each picture.",
    )
    cards = (
        ("measured", 0, "on this machine, just now", "Run it again\nand it will differ a little."),
        ("recorded", 1, "elsewhere or earlier", "It names the machine\nand the day."),
        ("modelled", 2, "by a formula", "Nobody has timed it.\nIt names the formula."),
    )
    examples = (
        "“measured on\n2 logical CPUs”",
        "“recorded on NVIDIA\nH200, 2026-11-21”",
        "“modelled: 4 bytes\nper parameter”",
    )
    for column, ((name, series, source, advice), example) in enumerate(
        zip(cards, examples, strict=True)
    ):
        x = 24 + 258 * column
        card = board.box(x, 80, 236, 208, fill="white", series=series)
        head = board.box(x, 80, 236, 46, name, series=series, hatch=True, bold=True, size=12)
        board.text(head.middle[0], 150, source, align="center", bold=True, size=9.5, inside=card)
        board.text(head.middle[0], 190, advice, align="center", size=9.5, inside=card)
        board.line((x + 24, 222), (x + 212, 222), color="#D5D8DC")
        board.text(head.middle[0], 254, example, align="center", size=9.5, faint=True, inside=card)
    return board


def hero() -> Sketch:
    board = Sketch(
        "One notebook, two replicas, one honest comparison",
        372,
        "The same training step on one device and on several, timed fairly and explained.",
        kind=modelled("schematic; the numbers come from your own machine"),
    )
    board.frame(24, 84, 236, 268, "your notebook")
    cells = ("labkit.hardware()", "pair = labkit.replicas(2)", "labkit.compare({...})")
    for row, code in enumerate(cells):
        board.box(42, 120 + 74 * row, 200, 34, code, size=8.5, mono=True, corner=3, fill="white")
        for line in range(2):
            y = 166 + 74 * row + 10 * line
            board.line((48, y), (48 + (150, 96)[line], y), color="#D5D8DC", heavy=True)
    shared = board.box(308, 190, 204, 56, "all-reduce", series=2, hatch=True, bold=True)
    for number, y in enumerate((84, 280)):
        replica = board.box(
            308, y, 204, 72, f"replica {number}", series=number, hatch=True, bold=True
        )
        ends = (replica.bottom, shared.top) if number == 0 else (replica.top, shared.bottom)
        board.arrow(*ends, both=True)
    board.arrow((260, 218), (308, 218))
    board.arrow((512, 218), (560, 218))
    board.frame(560, 84, 216, 268, "what you learn")
    for row, (name, series) in enumerate((("1 device", None), ("2 replicas", 2))):
        y = 118 + 42 * row
        board.text(578, y + 13, name, size=9)
        # No lengths that could be read as a result: those come from the reader's machine.
        board.box(
            656, y, 102, 26, "?", series=series, hatch=series is not None, bold=True, corner=3,
            fill="#ECEEF0" if series is None else None,
        )  # fmt: skip
    for row, verdict in enumerate(("faster", "slower", "same within 2 %", "cannot tell")):
        y = 216 + 32 * row
        board.box(578, y, 180, 24, verdict, size=9, corner=11)
    return board


def diagrams() -> dict[str, Diagram]:
    """The pictures of this file for the folder of images."""
    return {
        "labkit": Diagram(
            "README",
            hero,
            "A schematic of labkit. Left: a notebook with three cells, labkit.hardware, "
            "labkit.replicas and labkit.compare. Middle: replica 0 and replica 1, joined by an "
            "all-reduce. Right: what you learn, a comparison of 1 device with 2 replicas that "
            "ends in one of four verdicts: faster, slower, same within 2 per cent, or cannot "
            "tell.",
        ),
        "course_map": Diagram(
            "00",
            course_map,
            "Map of the course. Lectures 00 start here, 01 why distribute, 02 one device, 03 "
            "MirroredStrategy and 04 what went wrong follow each other. After 03 three branches "
            "begin: 05 reading the gauges; 06 collectives and 07 ring all-reduce; 08 sync and "
            "async, 09 many workers and 10 on a cluster.",
        ),
        "kinds": Diagram(
            "00",
            kinds,
            "Three cards. Measured: on this machine, just now; it differs a little when run "
            "again. Recorded: elsewhere or earlier; it names the machine and the day. Modelled: "
            "by a formula; nobody has timed it, and it names the formula.",
        ),
    }
