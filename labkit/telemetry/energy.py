"""Joules between two moments: by the hardware's counter, or by the sum of its power readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from labkit.telemetry.recording import Recording

    Numbers = NDArray[np.float64]

__all__ = ["NOT_SEEN", "TOO_SHORT", "Energy", "energy", "grown"]

TOO_SHORT, NOT_SEEN, STILL = "too short to measure", "not seen", "its counter stands still"
# Why joules are summed from power.
_NO_COUNTER, _NOT_READ = "there is no counter to read it from", "its counter was not read then"
_INSTEAD = {
    "implausible": "its counter began anew meanwhile",
    STILL: "its counter stood still",
    TOO_SHORT: "its counter was refreshed too seldom",
    "not seen to its end": "its counter was not read to the end",
}
# With ten updates of a counter in a span, one that falls just outside is a tenth of it.
_UPDATES = 10
_SEEN = 0.9  # of a span, at least
_LONG = 10.0  # seconds in which every counter that is refreshed at all has moved
_RECENT = 1000  # rows from which the period of the counter is told


@dataclass(frozen=True)
class Energy:
    """Joules, or why there are none."""

    joules: float | None
    why: str = ""
    from_power: str = ""
    """Why they are summed from power, if they are."""


def energy(recording: Recording, device: str, start: float, end: float) -> Energy:
    """What a device used from `start` to `end`; `why` is empty where nothing is known at all."""
    times, _ = recording.column(device, "energy")
    if len(times) > 1:
        found = _by_counter(recording, device, start, end)
        if found.joules is None and _in_a_gap(recording, device, start, end):
            return Energy(None, NOT_SEEN)
        # A span that is too short for a counter that moves is too short for power, too.
        short = found.why == TOO_SHORT and end - start < _LONG
        if found.joules is not None or short:
            return found
    else:
        found = Energy(None)
    by_power = _by_power(recording, device, start, end)
    if by_power.joules is not None:
        without = _NOT_READ if len(times) else _NO_COUNTER
        return replace(by_power, from_power=_INSTEAD.get(found.why, without))
    return found if found.why else by_power


def _in_a_gap(recording: Recording, device: str, start: float, end: float) -> bool:
    """Whether next to nothing was read of a device between two moments."""
    times, _ = recording.column(device, "energy")
    if ((times >= start) & (times <= end)).any():
        return False
    unseen = []
    for name in ("watched", "powered"):
        times, known = recording.column(device, name)
        if len(times) > 1 and start < times[-1] and end > times[0]:
            unseen.append(grown(times, known, start, end) * _UPDATES < end - start)
    return bool(unseen) and all(unseen)


def grown(times: Numbers, counter: Numbers, start: float, end: float) -> float:
    """By how much a counter grew, read between its readings on a straight line."""
    import numpy as np

    low, high = np.interp([start, end], times, counter)
    return float(high - low)


def _by_counter(recording: Recording, device: str, start: float, end: float) -> Energy:
    import numpy as np

    times, counter = recording.column(device, "energy")
    seen = min(end, float(times[-1])) - max(start, float(times[0]))
    if seen <= 0:
        return Energy(None)
    first = max(0, int(np.searchsorted(times, start, "right")) - 1)
    last = min(len(times) - 1, int(np.searchsorted(times, end)))
    if (np.diff(counter[first : last + 1]) < 0).any():
        return Energy(None, "implausible")  # the driver began to count anew
    period = _period(recording, device)
    enough = end - start >= (_LONG if period is None else _UPDATES * period)
    never = period is None and times[-1] - times[0] >= _LONG
    if counter[first] == counter[last] and (enough or never):
        return Energy(None, STILL)
    if period is None or end - start < _UPDATES * period:
        return Energy(None, TOO_SHORT)
    # Between two distant readings, as in an old and thinned part, it may have grown at any pace.
    unsure = sum(
        float(times[at + 1] - times[at])
        for at, edge in ((first, start), (max(0, last - 1), end))
        if times[at] < edge < times[at + 1]
    )
    if unsure > (end - start) / 2:
        return Energy(None, TOO_SHORT)
    if seen < _SEEN * (end - start):
        return Energy(None, "not seen to its end")
    # What lies outside of the first and the last reading is taken to be like the rest.
    return Energy(grown(times, counter, start, end) * (end - start) / seen)


# It is asked for every span, and is always the same.
_periods: WeakKeyDictionary[Recording, dict[str, float | None]] = WeakKeyDictionary()


def _period(recording: Recording, device: str) -> float | None:
    """Seconds between two updates of the counter, as far as the samples can tell."""
    import numpy as np

    known = _periods.setdefault(recording, {})
    if device not in known:
        times, counter = (one[-_RECENT:] for one in recording.column(device, "energy"))
        moved = times[1:][np.diff(counter) > 0]
        known[device] = float(np.median(np.diff(moved))) if len(moved) > 1 else None
    return known[device]


def _by_power(recording: Recording, device: str, start: float, end: float) -> Energy:
    times, joules = recording.column(device, "joules")
    _, powered = recording.column(device, "powered")
    if len(times) < 2 or len(powered) != len(times):
        return Energy(None)
    known = grown(times, powered, start, end)
    if known <= 0 or end - start < _UPDATES * recording.header.every:
        return Energy(None, TOO_SHORT if times[0] <= end and times[-1] >= start else "")
    if known < _SEEN * (end - start):
        return Energy(None)
    return Energy(grown(times, joules, start, end) * (end - start) / known)
