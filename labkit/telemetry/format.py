"""The format of a recording: one JSON text a line, so that a crash costs at most the last one.

The same lines go through the pipe from the sampler's process, to a file, and to the browser:

    {"labkit": "recording", "format": 1, "where": …, "when": …, "every": 0.1, "clock": …}
    {"source": "gpus", "metrics": ["utilisation", …], "devices": [{"key": "gpu0", …}, …]}
    [0, 12.3456, [95, 41000000000, …], [null, …]]             source 0 at 12.3456 s: a list a device
    {"state": "lost", "time": 13.1, "device": "gpu1", "metric": "", "says": "GPU 1 is lost …"}
    {"span": "epoch 3", "start": 10.2, "end": 14.9, "images": 60000, "by": "training"}
    {"cost": 0.12, "time": 14.0}                              CPU seconds of the sampler so far
    {"end": 60.0}

Sources are numbered in the order of their lines; naming a source again replaces its devices. Times
are seconds since the recording began; "clock" is time.monotonic() at that moment, so that another
process of the same machine can add spans. `null` is a missing number. A reader skips lines that it
does not know.

>>> span_of(parse('{"span":"epoch 3","start":10.2,"end":14.9,"images":60000,"by":"training"}'))
Span(name='epoch 3', start=10.2, end=14.9, images=60000, by='training')
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from labkit.telemetry.metrics import Device, Row, State, Why

__all__ = [
    "FORMAT",
    "Damage",
    "Header",
    "Span",
    "cost_line",
    "end_line",
    "header_line",
    "header_of",
    "number_of",
    "parse",
    "row_line",
    "source_line",
    "source_of",
    "span_line",
    "span_of",
    "state_line",
    "state_of",
]

FORMAT = 1
By = Literal["you", "cell", "training", "keras"]


class Damage(ValueError):
    """A line is not what it should be; the message goes on from "line 7 …"."""


@dataclass(frozen=True)
class Header:
    """The first line of a recording."""

    where: str  # what it was recorded on, for people: "NVIDIA H200, driver 580.65.06"
    when: str  # local time with its offset, ISO 8601, whole seconds
    every: float  # seconds between two samples
    clock: float  # time.monotonic() when time was 0


@dataclass(frozen=True)
class Span:
    """A named stretch of time: an epoch, a cell, or a block of yours. No end: still going on."""

    name: str
    start: float
    end: float | None = None
    images: float | None = None
    by: By = "you"


# --- writing


def header_line(header: Header) -> str:
    """The first line."""
    return _json({"labkit": "recording", "format": FORMAT, **asdict(header)})


def source_line(name: str, metrics: Iterable[str], devices: Iterable[Device]) -> str:
    """A source, its metrics and its devices."""
    described = [
        {key: value for key, value in asdict(device).items() if value is not None}
        for device in devices
    ]
    return _json({"source": name, "metrics": list(metrics), "devices": described})


def row_line(source: int, row: Row, began: float) -> str:
    """One row; `began` is the recording's clock."""
    return _encode([source, round(row.time - began, 4), *row.values])


def state_line(state: State, began: float) -> str:
    """What became of a device or a metric."""
    line = asdict(state)
    return _json({"state": line.pop("why"), **line, "time": round(state.time - began, 4)})


def span_line(span: Span) -> str:
    """A span; written when it begins and when it ends."""
    line = asdict(span)
    return _json({"span": line.pop("name"), **line})


def cost_line(time: float, cpu_seconds: float) -> str:
    """What the sampler itself has used."""
    return _json({"cost": round(cpu_seconds, 4), "time": round(time, 4)})


def end_line(time: float) -> str:
    """The last line of a recording that was ended, not cut off."""
    return _json({"end": round(time, 4)})


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


# --- reading


def parse(line: str | bytes) -> Any:
    """The list (a row) or the dict (anything else) of one line."""
    try:
        parsed = json.loads(line)
    except ValueError as fault:
        raise Damage("is cut short or garbled") from fault
    if not isinstance(parsed, (list, dict)):
        raise Damage("is not a line of a recording")
    return parsed


def header_of(line: Any) -> Header:
    """The first line."""
    if not isinstance(line, dict) or line.get("labkit") != "recording":
        raise Damage("does not say that this is a recording of labkit")
    if line.get("format") != FORMAT:
        raise Damage(f"says format {line.get('format')!r}; this labkit reads format {FORMAT}")
    times = number_of(line, "every"), number_of(line, "clock")
    return Header(_text(line, "where"), _text(line, "when"), *times)


def source_of(line: dict[str, Any]) -> tuple[str, tuple[str, ...], tuple[Device, ...]]:
    """A source's name, its metrics, its devices."""
    try:
        devices = tuple(Device(**described) for described in line["devices"])
        return _text(line, "source"), tuple(line["metrics"]), devices
    except (KeyError, TypeError) as fault:
        raise Damage("describes a source in a way that this labkit does not know") from fault


def state_of(line: dict[str, Any]) -> State:
    """What became of a device or a metric; a state that is not known here is read as a note."""
    why: Why = line["state"] if line["state"] in get_args(Why) else "note"
    device, metric, says = (_text(line, name) for name in ("device", "metric", "says"))
    return State(number_of(line, "time"), device, metric, why, says)


def span_of(line: dict[str, Any]) -> Span:
    """A span; one without an end was still going on."""
    end, images = (
        None if line.get(name) is None else number_of(line, name) for name in ("end", "images")
    )
    by: By = line["by"] if line.get("by") in get_args(By) else "you"
    return Span(_text(line, "span"), number_of(line, "start"), end, images, by)


def number_of(line: dict[str, Any], name: str) -> Any:
    """A finite number that must be there, as it was written."""
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Damage(f"gives {value!r} for {name!r}, which must be a number")
    return value


def _text(line: dict[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise Damage(f"gives {value!r} for {name!r}, which must be a text")
    return value
