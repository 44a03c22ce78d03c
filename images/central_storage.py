"""Central storage."""

from __future__ import annotations

from labkit.views.sketch import Sketch

ALT = (
    "One machine. Its main memory holds all weights, adds up and updates. Device 0 and device "
    "1 have no weights of their own: they get the weights and send back gradients."
)

SHARED = 2  # the colour of what all have in common


def draw() -> Sketch:
    board = Sketch(
        "Central storage",
        294,
        "Main memory holds the only copy of the weights; the devices fetch it for each step.",
    )
    board.frame(24, 80, 752, 190, "one machine")
    memory = board.box(
        304, 122, 192, 124, "main memory\nall weights\nadds up, updates", series=SHARED, hatch=True,
        bold=True,
    )  # fmt: skip
    for number, x in enumerate((44.0, 588.0)):
        device = board.box(
            x, 142, 168, 84, f"device {number}\nno weights\nof its own", series=number, hatch=True
        )
        inner, outer = (device.right, memory.left) if number == 0 else (device.left, memory.right)
        board.arrow((outer[0], 164), (inner[0], 164), "weights")
        board.arrow((inner[0], 206), (outer[0], 206), "gradients")
    return board
