"""The map of the course."""

from __future__ import annotations

from itertools import pairwise

from labkit.views.sketch import Box, Sketch

ALT = (
    "Map of the course in five parts. Part 1, basics: 00 start here, 01 why distribute, 02 one "
    "device, 03 MirroredStrategy, 04 scaling, 05 what went wrong, 06 utilisation and energy, 07 "
    "custom training loops. Part 2, collectives, after 03: 08 collectives, 09 all-reduce, 10 ring "
    "all-reduce, 11 all-reduce in practice. Part 3, several workers, after 03: 12 sync and async, "
    "13 stale gradients, 14 several workers, 15 parameter servers, 16 on a cluster, 17 waiting in "
    "the queue. Part 4, large models, after 11: 18 pipelines, 19 tensor parallelism, 20 spatial "
    "and hybrid, 21 memory, 22 very large systems. Part 5, other frameworks, after 16: 23 Horovod, "
    "24 PyTorch, 25 federated learning, 26 frameworks today, 27 choosing."
)

PARTS = {
    "Part 1 · Basics": (
        "Start here",
        "Why distribute",
        "One device",
        "MirroredStrategy",
        "Scaling",
        "What went wrong",
        "Utilisation, energy",
        "Custom loops",
    ),
    "Part 2 · Collectives": (
        "Collectives",
        "All-reduce",
        "Ring all-reduce",
        "All-reduce in practice",
    ),
    "Part 3 · Several workers": (
        "Sync and async",
        "Stale gradients",
        "Several workers",
        "Parameter servers",
        "On a cluster",
        "Waiting in the queue",
    ),
    "Part 4 · Large models": (
        "Pipelines",
        "Tensor parallelism",
        "Spatial and hybrid",
        "Memory",
        "Very large systems",
    ),
    "Part 5 · Frameworks": (
        "Horovod",
        "PyTorch",
        "Federated learning",
        "Frameworks today",
        "Choosing",
    ),
}
BELOW = {4: (3, 264)}  # part 5 stands below part 4


def draw() -> Sketch:
    board = Sketch(
        "The course",
        615,
        "Follow the first column to lecture 03. Parts 2 and 3 begin after it, part 4 after 11, "
        "part 5 after 16.",
    )
    number, columns = 0, []
    for place, (part, titles) in enumerate(PARTS.items()):
        column, down = BELOW.get(place, (place, 0))
        x = 24 + 192 * column
        board.text(x, 92 + down, part, size=9.5, bold=True)
        boxes = []
        for row, title in enumerate(titles):
            boxes.append(_lecture(board, f"{number:02d}", title, x, 108 + down + 46 * row))
            number += 1
        for above, below in pairwise(boxes):
            board.arrow(above.bottom, below.top)
        columns.append(boxes)
    mirrored, collectives, updates = columns[0][3], columns[1][0], columns[2][0]
    left, right, below = collectives.x - 10, updates.x - 10, columns[1][3].y + 60
    begin = (mirrored.right, (left, mirrored.right[1]))
    board.arrow(*begin, (left, collectives.left[1]), collectives.left)
    board.arrow(*begin, (left, below), (right, below), (right, updates.left[1]), updates.left)
    return board


def _lecture(board: Sketch, number: str, title: str, x: float, y: float) -> Box:
    made = board.box(x, y, 172, 32, series=0)
    board.text(x + 10, made.middle[1], number, size=9.5, bold=True, inside=made)
    board.text(x + 32, made.middle[1], title, size=9, inside=made)
    return made
