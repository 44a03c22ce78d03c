"""Energy is the area under the power."""

from __future__ import annotations

from labkit.kinds import modelled
from labkit.views.figure import INK, look, tint
from labkit.views.sketch import Box, Sketch

ALT = (
    "Power over time, with a span named epoch 1: the area under the power is the energy, "
    "average watts times seconds. Below, the updates of the device's energy counter. 15 of "
    "them fall into the epoch; none falls into a short span, which is too short to measure."
)


def draw() -> Sketch:
    board = Sketch(
        "Energy is the area under the power",
        392,
        "The counter in the device adds it up, and shows its sum a few times a second.",
        kind=modelled("schematic"),
    )
    left, right, floor, top = 96.0, 752.0, 262.0, 92.0
    begins, ends, short, shorter = 236.0, 534.0, 649.0, 659.0
    idle, busy = 226.0, 126.0
    rise, fall = begins + 14, ends + 14
    curve = [(left, idle), (begins, idle), (rise, busy), (ends, busy), (fall, idle)]
    curve += [(short, idle), (short + 4, 170.0), (shorter, 170.0), (shorter + 4, idle)]
    curve += [(right, idle)]
    blue, orange = look(0), look(1)
    under = [point for point in curve if begins <= point[0] <= ends]
    board.shape((*under, (ends, floor), (begins, floor)), tint(blue.color, 0.22))
    board.rectangle(
        Box(short, 112, shorter - short, floor - 112), tint(orange.color, 0.35), level=1
    )
    board.line(*curve, heavy=True, above=True, color=blue.color)
    board.arrow((left, floor), (right + 16, floor))
    board.arrow((left, floor), (left, top))
    board.text(left - 10, 108, "power\nin W", size=9, align="right")
    board.text(right, floor + 16, "time", size=9, faint=True, align="right")
    board.text((begins + ends) / 2, 178, "joules = average watts × seconds", bold=True,
               align="center")  # fmt: skip
    board.text((begins + ends) / 2, 108, "span “epoch 1”", size=9.5, align="center")
    board.text((short + shorter) / 2, 98, "a short span", size=9.5, align="center")
    # The counter's updates: evenly spaced, and known only at these moments.
    for number in range(33):
        x = left + 8 + 20 * number
        board.line((x, 296), (x, 312), heavy=True, color=INK)
    board.line((left, 312), (right, 312))
    board.text(24, 304, "counter", size=9.5)
    for edge in (begins, ends, short, shorter):
        board.line((edge, floor), (edge, 312), dashed=True)
    board.text((begins + ends) / 2, 346, "15 updates:\none more or less changes little",
               size=9.5, align="center")  # fmt: skip
    board.text((short + shorter) / 2, 346, "no update:\ntoo short to measure", size=9.5,
               align="center")  # fmt: skip
    return board
