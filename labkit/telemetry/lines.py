"""How a recording is written: one JSON text a line, so that a crash costs at most the last one.

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
process of the same machine can add spans. `null` is a missing number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from labkit.telemetry.metrics import Device, Row, State

__all__ = [
    "FORMAT",
    "Header",
    "Span",
    "cost_line",
    "end_line",
    "header_line",
    "row_line",
    "source_line",
    "span_line",
    "state_line",
]

FORMAT = 1


@dataclass(frozen=True)
class Header:
    """The first line of a recording."""

    where: str  # what it was recorded on, for people: "NVIDIA H200, driver 580.65.06"
    when: str  # local time with its offset, ISO 8601, whole seconds
    every: float  # seconds between two looks
    clock: float  # time.monotonic() when time was 0


@dataclass(frozen=True)
class Span:
    """A named stretch of time: an epoch, a cell, or whatever you marked. No end: still going on."""

    name: str
    start: float
    end: float | None = None
    images: float | None = None
    by: Literal["you", "cell", "training", "keras"] = "you"


def header_line(header: Header) -> str:
    """The first line."""
    return _json({"labkit": "recording", "format": FORMAT, **asdict(header)})


def source_line(name: str, metrics: Iterable[str], devices: Iterable[Device]) -> str:
    """A source and what it looks at."""
    described = [
        {key: value for key, value in asdict(device).items() if value is not None}
        for device in devices
    ]
    return _json({"source": name, "metrics": list(metrics), "devices": described})


def row_line(source: int, row: Row, began: float) -> str:
    """One row; `began` is the recording's clock.

    Sources give tidy numbers, so that the encoder, which is quick, need not round them. A number
    that JSON has no word for is missing.
    """
    try:
        return _encode([source, round(row.time - began, 4), *row.values])
    except ValueError:
        return _careful_row_line(source, row, began)


def _careful_row_line(source: int, row: Row, began: float) -> str:
    values = ",".join("[" + ",".join(map(_number, device)) + "]" for device in row.values)
    return (
        f"[{source},{row.time - began:.4f},{values}]"
        if values
        else f"[{source},{row.time - began:.4f}]"
    )


def state_line(state: State, began: float) -> str:
    """What became of a device or a metric."""
    return _json(
        {
            "state": state.why,
            "time": round(state.time - began, 4),
            "device": state.device,
            "metric": state.metric,
            "says": state.says,
        }
    )


def span_line(span: Span) -> str:
    """A span; written when it has ended, or at the end of the recording."""
    return _json(
        {
            # Half of a character, as in the name of a file, cannot be written.
            "span": span.name.encode("utf-8", "replace").decode("utf-8"),
            "start": round(span.start, 6),
            "end": None if span.end is None else round(span.end, 6),
            "images": _images(span.images),
            "by": span.by,
        }
    )


def _images(count: Any) -> float | None:
    """A number of NumPy is no number for JSON, and NaN is none for anybody.

    >>> _images(60_000), _images(0.5), _images(float("nan"))
    (60000, 0.5, None)
    """
    if count is None or type(count) is int:
        return count
    known = float(count)
    if not math.isfinite(known):
        return None
    return int(known) if known.is_integer() else known


def cost_line(time: float, cpu_seconds: float) -> str:
    """What the sampler itself has used."""
    return _json({"cost": round(cpu_seconds, 4), "time": round(time, 4)})


def end_line(time: float) -> str:
    """The last line of a recording that was ended, not cut off."""
    return _json({"end": round(time, 4)})


def _number(value: float | None) -> str:
    """Four digits after the point at most, none for large numbers, and no NaN, which is no JSON.

    A counter of joules has passed a million after hours, and a second of idling is 10 J: its
    digits are needed longer than those of bytes.

    >>> _number(41e9), _number(12.30), _number(95.0), _number(None), _number(float("nan"))
    ('41000000000', '12.3', '95', 'null', 'null')
    """
    if value is None or value != value or value in (_INFINITE, -_INFINITE):
        return "null"
    if isinstance(value, int) or abs(value) >= 1e9:
        return str(round(value))
    return f"{value:.4f}".rstrip("0").rstrip(".")


_INFINITE = float("inf")
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
