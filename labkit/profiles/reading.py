"""The files that profilers write: torch's Chrome traces, and the XPlanes of TensorFlow."""

import json
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from labkit.kinds import LabError, bytes_text
from labkit.profiles.trace_spans import TraceSpan, kind_of, nested

LIMIT = 64_000_000  # bytes, unpacked: reading takes five times as much memory
MOST_SPANS = 500_000
DAY = 86_400 * 10**9
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
          MemoryError, EOFError, zlib.error)  # fmt: skip


class TraceFile(NamedTuple):
    """A file: its spans, in nanoseconds since 1970, and how many bytes were allocated when."""

    rank: int | None
    tool: str
    spans: list[TraceSpan]
    memory: list[tuple[int, int]]


def load(path: Path) -> TraceFile:
    """Returns what a file holds; a LabError, if it cannot be read."""
    try:
        data = unpacked(path)
    except OSError as fault:
        raise LabError(f"{path} cannot be read: {fault.strerror or fault}.") from None
    except zlib.error as fault:
        raise LabError(f"{path.name} cannot be unpacked ({fault}). {AGAIN}") from None
    if not data:
        raise LabError(f"{path.name} is empty. {AGAIN}")
    try:
        trace = chrome(data) if data[:64].lstrip()[:1] in (b"{", b"[") else xplane(data)
        within_a_day(trace.spans)
    except DAMAGE as fault:
        raise LabError(
            f"{path.name} is not a trace of torch.profiler or tf.profiler, or it is damaged "
            f"({type(fault).__name__}: {fault!s:.80}). {AGAIN}"
        ) from None
    if not trace.spans:
        raise LabError(
            f"{path.name} holds no operation. Let the profiler record a few steps after its "
            "warm-up, and save the trace after the last of them."
        )
    return trace


AGAIN = "Trace 10 steps and save them again."


def unpacked(path: Path) -> bytes:
    """Returns the bytes of a file; one that is too large is refused before it is read."""
    size = path.stat().st_size
    too_large = LabError(
        f"{path.name} has {bytes_text(size)}{{}}: labkit reads at most {bytes_text(LIMIT)}. Trace "
        "10 steps instead of the whole training: they show the same pattern."
    )
    if size > LIMIT:
        raise LabError(str(too_large).format(""))
    data = path.read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    reader = zlib.decompressobj(wbits=31)
    data = reader.decompress(data, LIMIT + 1)
    if len(data) > LIMIT:
        raise LabError(str(too_large).format(", and unpacked more than that"))
    if not reader.eof:
        raise zlib.error("it is cut short")
    return data


def within_a_day(spans: list[TraceSpan]) -> None:
    """Damaged numbers are refused before anything computes with them."""
    if any(span.end < span.start for span in spans):
        raise ValueError("a span ends before it starts")
    if spans and max(span.end for span in spans) - spans[0].start > DAY:
        raise ValueError("its spans lie more than a day apart")


def chrome(data: bytes) -> TraceFile:
    """torch.profiler: ts, in microseconds, is added to baseTimeNanoseconds."""
    if data.count(b",") > LIMIT // 16:  # of lists that would take gigabytes
        raise ValueError("too many values")
    content = json.loads(data)
    base = int(content["baseTimeNanoseconds"])
    host, device, memory = [], [], []
    for event in content["traceEvents"]:
        category = event.get("cat")
        if event.get("ph") == "X" and category != "Trace":
            start = base + round(event["ts"] * 1000)
            end = start + round(event.get("dur", 0) * 1000)
            name, track = event["name"], str(event["tid"])
            if category in ON_DEVICE:
                device.append(TraceSpan(start, end, name, f"stream {track}", on_device(name)))
            elif kind := kind_of(name):
                host.append(TraceSpan(start, end, name, track, kind))
        elif event.get("name") == "[memory]" and event["args"]["Device Type"] == 0:
            at = base + round(event["ts"] * 1000)
            memory.append((at, int(event["args"]["Total Allocated"])))
    rank = content.get("distributedInfo", {}).get("rank")
    return TraceFile(rank, "torch.profiler", beside(host, device), sorted(memory))


def on_device(name: str) -> str:
    """Returns what a GPU does; which part of a step launched it does not stand in its name."""
    kind = kind_of(name)
    return kind if kind in ("communication", "copy") else "kernel"


def beside(host: list[TraceSpan], device: list[TraceSpan]) -> list[TraceSpan]:
    """Of a GPU's trace the host's operations only launch what the device computes."""
    spans = nested(host)
    if device:
        launches = ("forward", "backward", "optimizer", "copy", "communication")
        spans = [one._replace(kind="launch") if one.kind in launches else one for one in spans]
    return sorted(spans + device, key=lambda one: one.start)


def varint(data: Any, at: int) -> tuple[int, int]:
    """Returns a number of variable length, and where the next field begins."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number has more than 10 bytes")


def fields(data: Any) -> Iterator[tuple[int, Any]]:
    """Yields (number, value) of each field of a protobuf message: an int, or bytes."""
    at, size = 0, len(data)
    while at < size:
        key, at = varint(data, at)
        value: Any = 0
        if key & 7 in (0, 2):
            value, at = varint(data, at)
        if key & 7:
            length = value if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            value, at = data[at : at + length], at + length
            if at > size:
                raise ValueError("a field ends beyond the file")
        yield key >> 3, value


def grouped(data: Any) -> dict[int, list[Any]]:
    """Returns all values of each field."""
    parts: dict[int, list[Any]] = {}
    for count, (number, value) in enumerate(fields(data)):
        if count > MOST_SPANS:  # of fields so small that a list of them takes gigabytes
            raise ValueError("too many values")
        parts.setdefault(number, []).append(value)
    return parts


def names(entries: Iterable[Any]) -> dict[int, str]:
    """Returns the metadata of a plane, a map<int64, {1: id, 2: name}>, as {id: name}."""
    found = {}
    for entry in entries:
        parts = dict(fields(entry))
        name = dict(fields(parts[2])).get(2, b"") if 2 in parts else b""
        found[parts.get(1, 0)] = bytes(name).decode("utf-8", "replace")
    return found


def xplane(data: bytes) -> TraceFile:
    """tf.profiler: profile_start_time + line.timestamp_ns + offset_ps / 1000."""
    planes = grouped(memoryview(data))[1]  # XSpace.planes
    stats: dict[str | None, int] = {}  # of the plane "Task Environment"
    for plane in map(grouped, planes):  # one at a time
        known = names(plane.get(5, ()))  # XPlane.stat_metadata
        for stat in (dict(fields(one)) for one in plane.get(6, ())):  # XPlane.stats
            stats[known.get(stat.get(1, 0))] = stat.get(3, stat.get(4, 0))
    host: list[TraceSpan] = []
    device: list[TraceSpan] = []
    for plane in map(grouped, planes):
        gpu = b"GPU" in bytes(plane.get(2, [b""])[0])
        spans = of_plane(plane, int(stats["profile_start_time"]), gpu)
        (device if gpu else host).extend(islice(spans, MOST_SPANS + 1))
        if len(host) + len(device) > MOST_SPANS:
            raise ValueError("too many spans")
    return TraceFile(None, "tf.profiler", beside(host, device), [])


def of_plane(plane: dict[int, list[Any]], began: int, gpu: bool) -> Iterator[TraceSpan]:
    """Yields the spans of a plane: lines (threads or streams) of events with metadata."""
    titles = names(plane.get(4, ()))  # XPlane.event_metadata
    marks = {at for at, name in names(plane.get(5, ())).items() if name == "step_num"}
    kinds = {at: on_device(name) if gpu else kind_of(name) for at, name in titles.items()}
    for raw in plane.get(3, ()):  # XPlane.lines
        line = grouped(raw)
        track = bytes(line.get(2, [b""])[0]).decode("utf-8", "replace")
        at = began + line.get(3, [0])[0]
        for body in line.get(4, ()):  # XLine.events
            event = dict(fields(body))
            which = event.get(1, 0)
            kind, name = kinds.get(which, "other"), titles.get(which, "?")
            if kind == "other" and 4 in event and marks and is_step(body, marks):
                kind = "step"
            start = at + event.get(2, 0) // 1000
            if kind:
                yield TraceSpan(start, start + event.get(3, 0) // 1000, name, track, kind)


def is_step(body: Any, marks: set[int]) -> bool:
    """Whether an event is a mark of tf.profiler.experimental.Trace(..., step_num=...)."""
    return any(number == 4 and dict(fields(stat)).get(1) in marks for number, stat in fields(body))
