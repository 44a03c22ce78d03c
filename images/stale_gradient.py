"""A stale gradient."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "The life of a stale gradient. The worker reads version 3 of the weights and computes. "
    "Meanwhile gradients of others make the versions 4 and 5. Its own gradient, computed from "
    "version 3, is applied to version 5 and makes version 6: its staleness is 2."
)


def draw() -> Sketch:
    board = Sketch(
        "A stale gradient",
        328,
        "The weights change while a worker computes: its gradient belongs to an older version.",
    )
    board.text(24, 122, "the weights,\non the server")
    xs = {3: 150.0, 4: 310.0, 5: 470.0, 6: 630.0}
    boxes = {
        version: board.box(x, 100, 110, 44, f"version {version}", bold=version in (3, 6),
                           heavy=version in (3, 6))
        for version, x in xs.items()
    }  # fmt: skip
    for version in (3, 4, 5):
        board.arrow(boxes[version].right, boxes[version + 1].left)
    board.text(24, 257, "one worker")
    work = board.box(205, 236, 480, 42, "computes a gradient from version 3", series=0)
    board.arrow(boxes[3].bottom, (205, 236), "reads", beside=True)
    board.arrow((685, 236), boxes[6].bottom, "makes", beside=True)
    for version in (4, 5):
        x = xs[version] + 55
        board.arrow((x, 182), boxes[version].bottom)
        board.text(x, 202, "a gradient of\nanother worker", size=9, align="center")
    board.text(
        work.middle[0], 302, "two updates between reading and writing: staleness 2",
        bold=True, align="center",
    )  # fmt: skip
    return board
