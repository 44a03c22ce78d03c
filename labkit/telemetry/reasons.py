"""Why a number is missing, in a few words: what was said of a gauge, or what its readings tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.telemetry.energy import NOT_SEEN, TOO_SHORT
from labkit.telemetry.metrics import Device, State

if TYPE_CHECKING:
    from labkit.telemetry.recording import Recording

__all__ = ["FAULTS", "once", "short_or", "told", "without_numbers"]

FAULTS = ("not supported", "refused", "lost", "implausible", "silent")
_FEW_LOOKS = 10


def short_or(recording: Recording, device: str, metric: str, start: float, end: float) -> str:
    """Why a metric that is usually there has no number for a span."""
    times, _ = recording.column(device, metric)
    if not len(times):
        return without_numbers(recording, device)
    return TOO_SHORT if end - start < 5 * recording.header.every else NOT_SEEN


def without_numbers(recording: Recording, device: str) -> str:
    """Why a metric has no number at all: one look tells nothing of what it takes two for."""
    looks = max((len(one.times) for one in recording.of(device)), default=0)
    return "not supported" if looks > 1 else once(recording, device) or NOT_SEEN


def once(recording: Recording, device: str) -> str:
    """What to say where the whole recording is too short for a second look."""
    looks = max((len(one.times) for one in recording.of(device)), default=0)
    short = recording.seconds < _FEW_LOOKS * recording.header.every
    return TOO_SHORT if looks < 2 and short else ""


def told(recording: Recording, device: Device, metric: str, start: float, end: float) -> str | None:
    """What was last said of a metric, its device or its source by the end of a span."""
    sources = {one.source for one in recording.of(device.key)}
    held: list[State] = []
    during: list[State] = []
    for key in (device.key, *sources):
        for about in ("", metric):
            before = None
            for state in recording.said_of(key, about):
                if state.why not in (*FAULTS, "fine") or state.time > end:
                    continue
                if state.time <= start:
                    before = state
                else:
                    during.append(state)
            held += [before] if before else []
    both = [*sorted(held, key=_moment), *sorted(during, key=_moment)]
    faults = [one for one in both if one.why in FAULTS]
    return faults[-1].why if faults else None


def _moment(state: State) -> float:
    return state.time
