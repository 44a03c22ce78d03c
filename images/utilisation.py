"""Utilisation 100 % can be one eighth of a device."""

from __future__ import annotations

from collections.abc import Callable

from labkit.kinds import modelled
from labkit.views.sketch import Box, Sketch

ALT = (
    "Three programs on a device with eight multiprocessors, drawn over ten moments. One of "
    "eight works all the time: utilisation 100 per cent, SM activity 12.5, work done 10 "
    "squares. All eight work all the time: 100, 100, 80 squares. All eight work half of the "
    "time: 50, 50, 40 squares."
)

WORKERS, MOMENTS = 8, 10

RESTING = "#E3E6E8"

# Three programs on a device with eight multiprocessors: which of them work at which moment.
PROGRAMS: dict[str, Callable[[int, int], bool]] = {
    "one of eight,\nall the time": lambda worker, moment: worker == 0,
    "all eight,\nall the time": lambda worker, moment: True,
    "all eight,\nhalf of the time": lambda worker, moment: moment % 2 == 0,
}


def draw() -> Sketch:
    board = Sketch(
        "Utilisation 100 % can be one eighth of a device",
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
                    board.rectangle(Box(x, y, 16, 16), RESTING)
        board.arrow((left + 20, 300), (left + 218, 300))
        board.text(left + 118, 315, "time", size=9, faint=True, align="center")
        said = {metric: f"{100 * share:.3g} %" for metric, share in shares(pattern).items()}
        said["work done"] = f"{sum(map(sum, pattern))} squares"
        for line, (metric, value) in enumerate(said.items()):
            y = 340 + 20 * line
            board.text(left + 20, y, metric, size=9.5)
            board.text(left + 216, y, value, size=9.5, bold=True, align="right")
    return board


def shares(pattern: list[list[bool]]) -> dict[str, float]:
    """Two metrics of the same work."""
    moments = list(zip(*pattern, strict=True))
    return {
        "utilisation": sum(any(moment) for moment in moments) / len(moments),
        "SM activity": sum(map(sum, pattern)) / (len(pattern) * len(moments)),
    }
