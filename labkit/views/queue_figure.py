"""A cluster's queue as a chart of devices over hours."""

from __future__ import annotations

from typing import Any

from labkit.views.figure import FRAME, Picture
from labkit.views.sketch import WIDTH, Sketch

__all__ = ["figure", "queue_board"]

_LEFT, _TOP, _RIGHT = 104.0, 84.0, 24.0


def figure(schedule: Any) -> Picture:
    """Who ran when, and on which devices."""
    board = queue_board(schedule)
    text = "; ".join(
        f"{one.request.name} on {one.request.devices}, submitted at {one.request.submitted:g} h, "
        f"ran from {one.start:g} h to {one.end:g} h"
        for one in schedule.started
    )
    return board.picture(f"A queue for {schedule.devices} devices over hours. {text}.")


def queue_board(
    schedule: Any,
    title: str = "Who runs when, and where",
    subtitle: str = "A row is a device. Each job has as many rows as it asked for devices.",
) -> Sketch:
    """The drawing of `figure`."""
    lane = 30.0 if schedule.devices <= 8 else 240.0 / schedule.devices
    bottom = _TOP + lane * schedule.devices
    longest = max(one.end for one in schedule.started)
    scale = (WIDTH - _LEFT - _RIGHT) / longest
    board = Sketch(title, bottom + 46, subtitle, kind=schedule.kind)
    for device in range(schedule.devices):
        y = _TOP + lane * device
        board.line((_LEFT, y), (WIDTH - _RIGHT, y), color=FRAME)
        if schedule.devices <= 8:
            board.text(24, y + lane / 2, f"device {device}", size=9)
    board.line((_LEFT, bottom), (WIDTH - _RIGHT, bottom))
    step = next(s for s in (1, 2, 4, 6, 12, 24, 48, 96, 10**6) if longest / s <= 14)
    for tick in range(0, int(longest) + 1, step):
        x = _LEFT + tick * scale
        board.line((x, bottom), (x, bottom + 5))
        if x < WIDTH - 60:
            board.text(x, bottom + 16, f"{tick}", size=9, align="center")
    board.text(WIDTH - _RIGHT, bottom + 16, "hours", size=9, align="right")
    ordered = sorted(schedule.started, key=lambda one: one.request.submitted)
    for number, one in enumerate(ordered):
        x, wide = _LEFT + one.start * scale, one.request.hours * scale
        for first, count in _neighbours(one.on_devices):
            words = one.request.name
            fits = wide > 9 + 7.2 * max(map(len, words.split("\n"))) and lane * count > 15
            board.box(
                x + 1, _TOP + lane * first + 1, wide - 2, lane * count - 2, words if fits else "",
                series=number % 6, hatch=True, size=9, corner=min(3.0, wide / 5), bold=True,
            )  # fmt: skip
    return board


def _neighbours(devices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbouring devices together: (first, how many)."""
    found: list[tuple[int, int]] = []
    for device in devices:
        if found and sum(found[-1]) == device:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((device, 1))
    return found
