"""What the lines of a recording say: the counterpart of lines.py.

>>> span_of(parse('{"span":"epoch 3","start":10.2,"end":14.9,"images":60000,"by":"training"}'))
Span(name='epoch 3', start=10.2, end=14.9, images=60000, by='training')

A line is parsed with JSON once: a list is a row, a dict is anything else. `Damage` says in one
sentence what is wrong with a line that is none of ours.
"""

from __future__ import annotations

import json
import math
from typing import Any, get_args

from labkit.telemetry.lines import FORMAT, Header, Span
from labkit.telemetry.metrics import Device, State, Why

__all__ = [
    "WHYS",
    "Damage",
    "device_of",
    "header_of",
    "number_of",
    "parse",
    "source_of",
    "span_of",
    "state_of",
]

WHYS: tuple[Why, ...] = get_args(Why)


class Damage(ValueError):
    """A line is not what it should be; the message goes on from "line 7 …"."""


def parse(line: str | bytes) -> Any:
    """The list or the dict of one line."""
    try:
        parsed = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as fault:
        raise Damage("is cut short or garbled") from fault
    if not isinstance(parsed, (list, dict)):
        raise Damage("is not a line of a recording")
    return parsed


def header_of(line: Any) -> Header:
    """The first line. One of a newer format is told from one of another program."""
    if not isinstance(line, dict) or line.get("labkit") != "recording":
        raise Damage("does not say that this is a recording of labkit")
    version = line.get("format")
    if version != FORMAT or type(version) is not int:
        raise Damage(f"says format {version!r}; this labkit reads format {FORMAT}")
    every = number_of(line, "every")
    if every <= 0:
        raise Damage(f"says that {every:g} s lie between two looks")
    return Header(_text(line, "where"), _text(line, "when"), every, number_of(line, "clock"))


def source_of(line: dict[str, Any]) -> tuple[str, tuple[str, ...], tuple[Device, ...]]:
    """A source's name, its metrics, its devices."""
    metrics, devices = line.get("metrics"), line.get("devices")
    if not isinstance(metrics, list) or not isinstance(devices, list):
        raise Damage("names a source without its metrics and devices")
    if not all(isinstance(metric, str) for metric in metrics):
        raise Damage("names a metric that is no name")
    return _text(line, "source"), tuple(map(_whole, metrics)), tuple(map(device_of, devices))


def device_of(described: Any) -> Device:
    """One device of a source."""
    if not isinstance(described, dict):
        raise Damage("describes a device in a way that this labkit does not know")
    part_of = described.get("part_of")
    # A sort that a newer labkit knows stays as it is: such a device is shown, and not counted.
    sort: Any = _text(described, "sort")
    return Device(
        _text(described, "key"),
        _text(described, "name"),
        sort,
        _maybe(described, "memory_total"),
        _maybe(described, "power_limit"),
        None if part_of is None else _text(described, "part_of"),
    )


def state_of(line: dict[str, Any]) -> State:
    """What became of a device or a metric; `time` is seconds since the recording began."""
    why = line["state"]
    if why not in WHYS:
        raise Damage(f"tells of a state {why!r} that this labkit does not know")
    return State(
        number_of(line, "time"),
        _text(line, "device"),
        _text(line, "metric"),
        why,
        _text(line, "says"),
    )


def span_of(line: dict[str, Any]) -> Span:
    """A span; one without an end was still going on. No images, or fewer, are no number of them."""
    by = line.get("by", "you")
    images = _maybe(line, "images")
    return Span(
        _text(line, "span"),
        number_of(line, "start"),
        _maybe(line, "end"),
        images if images is not None and images > 0 else None,
        by if by in _BY else "you",
    )


def number_of(line: dict[str, Any], name: str) -> Any:
    """A finite number that must be there, as it was written."""
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Damage(f"gives {value!r} for {name!r}, which must be a number")
    return value


_BY = ("you", "cell", "training", "keras")


def _maybe(line: dict[str, Any], name: str) -> Any:
    return None if line.get(name) is None else number_of(line, name)


def _text(line: dict[str, Any], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise Damage(f"gives {value!r} for {name!r}, which must be words")
    return _whole(value)


def _whole(words: str) -> str:
    """JSON can name half of a character; nothing else can show or write it."""
    return words.encode("utf-8", "replace").decode("utf-8")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
