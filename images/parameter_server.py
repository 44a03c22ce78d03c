"""A parameter server."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "The chief hands out steps to workers 0, 1 and 2. Each of them fetches weights from the "
    "parameter server, which holds the only copy, and sends gradients back to it."
)

SHARED = 2  # the colour of what all have in common


def draw() -> Sketch:
    board = Sketch(
        "A parameter server",
        408,
        "No worker waits for another: each fetches, computes and sends at its own pace.",
    )
    chief = board.box(
        300, 80, 200, 52, "chief\nhands out steps", series=SHARED, bold=True, size=9.5
    )
    server = board.box(
        250, 322, 300, 62, "parameter server\nthe only copy of the weights", series=3, hatch=True,
        bold=True,
    )  # fmt: skip
    for number, x in enumerate((24.0, 312.0, 600.0)):
        worker = board.box(
            x, 194, 176, 62, f"worker {number}\nforward, backward", series=(0, 1, 4)[number],
            hatch=True, size=9.5,
        )  # fmt: skip
        board.arrow(chief.at((1 + 2 * number) / 6, 1), worker.at(0.5, 0), dashed=True)
        up, down = (worker.at(0.36, 1), worker.at(0.64, 1))
        low, high = (
            server.at((0.09, 0.44, 0.79)[number], 0),
            server.at((0.21, 0.56, 0.91)[number], 0),
        )
        board.arrow(low, up)
        board.arrow(down, high)
    board.text(330, 289, "weights", size=9, align="right")
    board.text(470, 289, "gradients", size=9)
    return board
