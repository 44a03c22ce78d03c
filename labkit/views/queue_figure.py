"""A cluster's queue as a chart of devices over hours."""

from __future__ import annotations

from typing import Any

from labkit.views.figure import Picture
from labkit.views.sketch import Sketch
from labkit.views.timeline import Bar, Lanes, State


def figure(schedule: Any) -> Picture:
    """Who ran when, and on which devices."""
    text = "; ".join(
        f"{one.request.name} on {one.request.devices}, submitted at {one.request.submitted:g} h, "
        f"ran from {one.start:g} h to {one.end:g} h"
        for one in schedule.started
    )
    alt = f"A queue for {schedule.devices} devices over hours. {text}."
    return queue_board(schedule).picture(alt)


def queue_board(
    schedule: Any,
    title: str = "Who runs when, and where",
    subtitle: str = "A row is a device. Each job has as many rows as it asked for devices.",
) -> Sketch:
    """The drawing of `figure`."""
    ordered = sorted(schedule.started, key=lambda one: one.request.submitted)
    states = {one.request.name: State("", n % 6, 0.04, 0.92) for n, one in enumerate(ordered)}
    bars = [
        Bar(first, one.request.name, one.start, one.end, (one.request.name,), count)
        for one in ordered
        for first, count in _neighbours(one.on_devices)
    ]
    names = [f"device {device}" for device in range(schedule.devices)]
    return Lanes(title, subtitle, bars, states, names, schedule.kind, unit="hours", high=30).board


def _neighbours(devices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbouring devices together: (first, how many)."""
    found: list[tuple[int, int]] = []
    for device in devices:
        if found and sum(found[-1]) == device:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((device, 1))
    return found
