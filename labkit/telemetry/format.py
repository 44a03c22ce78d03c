"""The format of a recording: a JSON text in each line, so that a crash costs at most the last line.

The same lines go through the pipe from the sampler's process, to a file, and to the browser:

    {"labkit": "recording", "format": 1, "where": …, "when": …, "every": 0.1, "clock": …}
    {"source": "gpus", "metrics": ["utilisation", …], "devices": [{"key": "gpu0", …}, …]}
    [0, 12.3456, [95, 41000000000, …], [null, …]]         source 0 at 12.3456 s: a list per device
    {"state": "lost", "time": 13.1, "device": "gpu1", "metric": "", "says": "GPU 1 is lost …"}
    {"span": "epoch 3", "start": 10.2, "end": 14.9, "images": 60000, "loss": 0.31}
    {"processes": "gpu1", "time": 12.5, "found": [{"pid": 4242, "user": "ann", "memory": 8e9}]}
    {"end": 60.0}

Sources are numbered in the order of their lines. Times are seconds since the recording began;
"clock" is time.monotonic() at that moment, so that another process of the same machine can add
spans. `null` is a missing number. A reader skips lines that it does not know.

>>> read_line('{"span":"epoch 3","start":10.2,"end":14.9,"images":60000}')
Span(name='epoch 3', start=10.2, end=14.9, images=60000, loss=None, of='')
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from labkit.plain import typed
from labkit.telemetry.metrics import Device, DeviceState, Processes, Why

FORMAT = 1


class Damage(ValueError):
    """A line is not what it should be. The message continues "line 7 …"."""


@dataclass(frozen=True)
class Header:
    """The first line of a recording."""

    where: str  # what it was recorded on, for people: "NVIDIA H200, driver 580.65.06"
    when: str  # local time with its offset, ISO 8601, whole seconds
    every: float  # seconds between two samples
    clock: float  # time.monotonic() when time was 0
    title: str = ""  # what it shows, in the words of who recorded it
    modelled: str = ""  # by which formula, where no machine was recorded


@dataclass(frozen=True)
class Source:
    """What the rows of a source hold: the metrics of each device."""

    name: str
    metrics: tuple[str, ...]
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Span:
    """A named stretch of time: an epoch, a cell, or a block of yours. An open span has no end."""

    name: str
    start: float
    end: float | None = None
    images: float | None = None
    loss: float | None = None
    of: str = ""  # its recording, where several are shown together


@dataclass(frozen=True)
class Cost:
    """CPU seconds that the sampler has used until `time`."""

    seconds: float
    time: float


@dataclass(frozen=True)
class RecordingEnd:
    """The last line of a recording that was ended, not cut off."""

    time: float


Line = Header | Source | DeviceState | Span | Processes | Cost | RecordingEnd

# For each kind of object: its first key, and the field that stands there.
_KINDS: dict[type[Any], tuple[str, str]] = {
    Source: ("source", "name"),
    DeviceState: ("state", "why"),
    Span: ("span", "name"),
    Processes: ("processes", "device"),
    Cost: ("cost", "seconds"),
    RecordingEnd: ("end", "time"),
}


def line(value: Line) -> str:
    """Returns the line of anything but a row."""
    content = asdict(value)
    if isinstance(value, Header):
        content = {"labkit": "recording", "format": FORMAT, **content}
    else:
        key, field = _KINDS[type(value)]
        content = {key: content.pop(field), **content}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:9]} is not finite")
    return int(digits) if digits.isdecimal() else number


# Rows, of which there are most, are checked in `Columns.add`. "NaN" is a constant of Python's JSON.
_strict = json.JSONDecoder(parse_int=_finite, parse_float=_finite, parse_constant=_finite).decode
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def values_text(values: Sequence[Sequence[float | None]]) -> str:
    """Returns the numbers of each device as in a row: "[95,41000000000],[null,3]"."""
    return _encode(values)[1:-1]


def row_line(source: int, time: float, values: str) -> str:
    """Returns the line of a row, from the seconds since the recording began and `values_text`."""
    return f"[{source},{time:.4f}{values and ','}{values}]"  # a source may have no device


def read_line(text: str) -> Line | list[Any] | None:
    """Returns what a line says: a list for a row, None for a line of a newer labkit."""
    try:
        content = json.loads(text) if text[:1] == "[" else _strict(text)
    except (ValueError, RecursionError) as fault:  # brackets in brackets in brackets
        raise Damage("is cut short or garbled") from fault
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        raise Damage("is not a line of a recording")
    if content.get("state") not in (None, *get_args(Why)):
        content["state"] = "note"  # a newer labkit may know more
    try:
        if content.get("labkit") == "recording":
            if content.get("format") != FORMAT:
                raise Damage(f"says format {content.get('format')!r}; this labkit reads {FORMAT}")
            return typed(Header, content)  # type: ignore[no-any-return]
        for kind, (key, field) in _KINDS.items():
            if key in content:
                found: Line = typed(kind, {**content, field: content[key]})
                return found
    except (TypeError, KeyError) as fault:
        raise Damage(f"is not what it should be ({fault})") from fault
    return None
