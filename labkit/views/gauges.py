"""Diagrams of lecture 05: what utilisation counts, and where joules come from."""

from __future__ import annotations

from collections.abc import Callable

from labkit.kinds import modelled
from labkit.views.figure import INK, look, tint
from labkit.views.sketch import Diagram, Sketch

__all__ = ["diagrams"]

WORKERS, MOMENTS = 8, 10
RESTING = "#E3E6E8"
# Three programs on a device with eight multiprocessors: which of them work at which moment.
PROGRAMS: dict[str, Callable[[int, int], bool]] = {
    "one of eight,\nall the time": lambda worker, moment: worker == 0,
    "all eight,\nall the time": lambda worker, moment: True,
    "all eight,\nhalf of the time": lambda worker, moment: moment % 2 == 0,
}


def utilisation() -> Sketch:
    board = Sketch(
        "100 % busy is not 100 % used",
        412,
        "A filled square: a multiprocessor of the device works at that moment.",
        kind=modelled("schematic; the shares are counted in the drawing"),
    )
    for place, (name, works) in enumerate(PROGRAMS.items()):
        left = 24 + 258 * place
        board.text(left + 118, 98, name, bold=True, align="center")
        pattern = [[works(w, m) for m in range(MOMENTS)] for w in range(WORKERS)]
        for worker, row in enumerate(pattern):
            for moment, at_work in enumerate(row):
                x, y = left + 20 + 20 * moment, 128 + 20 * worker
                if at_work:
                    board.box(x, y, 16, 16, corner=2, series=place, hatch=True)
                else:
                    board.axes.fill((x, x + 16, x + 16, x), (y, y, y + 16, y + 16), RESTING)
        board.arrow((left + 20, 300), (left + 218, 300))
        board.text(left + 118, 315, "time", size=9, faint=True, align="center")
        said = {gauge: f"{100 * share:.3g} %" for gauge, share in shares(pattern).items()}
        said["work done"] = f"{sum(map(sum, pattern))} squares"
        for line, (gauge, value) in enumerate(said.items()):
            y = 340 + 20 * line
            board.text(left + 20, y, gauge, size=9.5)
            board.text(left + 216, y, value, size=9.5, bold=True, align="right")
    return board


def shares(pattern: list[list[bool]]) -> dict[str, float]:
    """What two gauges make of the same work."""
    moments = list(zip(*pattern, strict=True))
    return {
        "utilisation": sum(any(moment) for moment in moments) / len(moments),
        "SM activity": sum(map(sum, pattern)) / (len(pattern) * len(moments)),
    }


def joules() -> Sketch:
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
    board.axes.fill(
        *zip(*under, (ends, floor), (begins, floor), strict=True),
        facecolor=tint(blue.color, 0.22), zorder=1,
    )  # fmt: skip
    board.axes.fill_between(
        (short, shorter), 112, floor, facecolor=tint(orange.color, 0.35), zorder=1
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


def diagrams() -> dict[str, Diagram]:
    """The pictures of this file for the folder of images."""
    return {
        "utilisation": Diagram(
            "05",
            utilisation,
            "Three programs on a device with eight multiprocessors, drawn over ten moments. One of "
            "eight works all the time: utilisation 100 per cent, SM activity 12.5, work done 10 "
            "squares. All eight work all the time: 100, 100, 80 squares. All eight work half of "
            "the time: 50, 50, 40 squares.",
        ),
        "joules": Diagram(
            "05",
            joules,
            "Power over time, with a span named epoch 1: the area under the power is the energy, "
            "average watts times seconds. Below, the updates of the device's energy counter. 15 of "
            "them fall into the epoch; none falls into a short span, which is too short to "
            "measure.",
        ),
    }
