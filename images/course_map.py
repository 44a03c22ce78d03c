"""The map of the course."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.sketch import Box, Sketch

PARTS = {
    "1 · Basics": {
        "00": "Start here",
        "01": "Why distribute",
        "02": "One device",
        "03": "MirroredStrategy",
        "04": "Scaling",
        "05": "What went wrong",
        "06": "Utilisation",
        "07": "Custom loops",
        "07b": "Precision, XLA",
    },
    "2 · Collectives": {
        "08": "Collectives",
        "09": "All-reduce",
        "10": "Ring all-reduce",
        "11": "In practice",
    },
    "3 · Workers": {
        "12": "Sync and async",
        "13": "Stale gradients",
        "14": "Several workers",
        "14b": "Checkpoints",
        "15": "Server, failures",
        "16": "On a cluster",
        "17": "In the queue",
    },
    "4 · Large models": {
        "18": "Pipelines",
        "18b": "The transformer",
        "19": "Tensor parallel",
        "20": "Spatial, hybrid",
        "21": "Memory",
        "22": "Large systems",
    },
    "5 · Frameworks": {
        "23": "Horovod",
        "23b": "On clusters",
        "24": "PyTorch",
        "24b": "PyTorch, sharded",
        "25": "Federated",
        "25b": "With Flower",
        "26": "Today",
        "27": "Choosing",
    },
}
ALT = "Map of the course in five parts. " + " ".join(
    f"Part {part}: {', '.join(f'{number} {title}' for number, title in titles.items())}."
    for part, titles in PARTS.items()
)
PITCH, WIDE = 152.0, 143.0


def draw() -> Sketch:
    board = Sketch(
        "The course",
        540,
        "Follow the first column to lecture 03. Parts 2 and 3 begin after it, part 4 after 11, "
        "part 5 after 16.",
    )
    columns = []
    for column, (part, titles) in enumerate(PARTS.items()):
        x = 24 + PITCH * column
        board.text(x, 92, part, size=9, bold=True)
        boxes = [
            _lecture(board, number, title, x, 108 + 46 * row)
            for row, (number, title) in enumerate(titles.items())
        ]
        for above, below in pairwise(boxes):
            board.arrow(above.bottom, below.top)
        columns.append(boxes)
    mirrored, collectives, updates = columns[0][3], columns[1][0], columns[2][0]
    left, right, below = collectives.x - 6, updates.x - 6, columns[1][3].y + 60
    begin = (mirrored.right, (left, mirrored.right[1]))
    board.arrow(*begin, (left, collectives.left[1]), collectives.left)
    board.arrow(*begin, (left, below), (right, below), (right, updates.left[1]), updates.left)
    return board


def _lecture(board: Sketch, number: str, title: str, x: float, y: float) -> Box:
    made = board.box(x, y, WIDE, 32, series=0)
    board.text(x + 5, made.middle[1], number, size=8.5, bold=True, inside=made)
    board.text(x + 36, made.middle[1], title, size=8.5, inside=made)
    return made
