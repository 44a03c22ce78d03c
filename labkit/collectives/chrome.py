"""A trace in the JSON that chrome://tracing and ui.perfetto.dev open: lanes, bars and arrows.

>>> trace.to_chrome("ring.json", latency=5e-6, bandwidth=10e9)      # doctest: +SKIP
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.collectives.clock import Timed
    from labkit.collectives.records import Message, Record

__all__ = ["chrome_events", "chrome_text"]

LANES = ("sends", "receives", "works")
_STEPS = "modelled: no links were given, so each step is drawn as 1 µs"


def chrome_text(record: Record, timed: Timed | None = None) -> str:
    """The content of the file, with the times of a clock; without, in steps of 1 µs."""
    content = {
        "traceEvents": chrome_events(record, timed),
        "displayTimeUnit": "ns",
        "otherData": {
            "program": record.program,
            "ranks": str(record.ranks),
            **record.options,
            "times": _STEPS if timed is None else str(timed.kind),
            "written by": "labkit",
        },
    }
    return json.dumps(content, ensure_ascii=False)


def chrome_events(record: Record, timed: Timed | None = None) -> list[dict[str, Any]]:
    """Names of lanes, a bar at both ends of each message, an arrow between them, and the work."""
    events = [event for rank in range(record.ranks) for event in _names(rank)]
    for place, message in enumerate(record.messages):
        start, end = float(message.step - 1), float(message.step)
        if timed is not None:
            start, end = timed.starts[place] * 1e6, timed.ends[place] * 1e6
        events.extend(_message(record, message, start, end))
    for work in () if timed is None else timed.work:
        events += [_bar("reduce", work.rank, "works", work.start * 1e6, work.end * 1e6, {})]
    return events


def _names(rank: int) -> list[dict[str, Any]]:
    """A process is a rank, its threads are what it can do at once."""
    process = rank + 1  # 0 is the operating system's own in both viewers
    named = [
        {"ph": "M", "pid": process, "name": "process_name", "args": {"name": f"rank {rank}"}},
        {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": rank}},
    ]
    for place, lane in enumerate(LANES):
        thread = {"ph": "M", "pid": process, "tid": _thread(rank, lane)}
        named.append({**thread, "name": "thread_name", "args": {"name": lane}})
        named.append({**thread, "name": "thread_sort_index", "args": {"sort_index": place}})
    return named


def _thread(rank: int, lane: str) -> int:
    return len(LANES) * rank + LANES.index(lane) + 1


def _message(record: Record, message: Message, start: float, end: float) -> list[dict[str, Any]]:
    about = {
        "bytes": message.nbytes,
        "elements": message.count,
        "tag": message.tag,
        "step": message.step,
        "sent from": _elements(message.sent_from),
        "into": _elements(message.into),
    }
    flow = {"cat": "message", "name": "message", "id": message.number}
    leaves = _bar(f"to {message.dest}", message.source, "sends", start, end,
                  {**about, **_line(record, message.sent_by)})  # fmt: skip
    enters = _bar(f"from {message.source}", message.dest, "receives", start, end,
                  {**about, **_line(record, message.received_by)})  # fmt: skip
    # Well inside its bar: at its very end an arrow would hang on the next one.
    ends = [
        {
            "ph": phase,
            **flow,
            "pid": bar["pid"],
            "tid": bar["tid"],
            "ts": start + share * (end - start),
            **more,
        }
        for phase, bar, share, more in (("s", leaves, 0.25, {}), ("f", enters, 0.75, {"bp": "e"}))
    ]
    return [leaves, enters, *ends]


def _bar(
    name: str, rank: int, lane: str, start: float, end: float, about: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": lane, "name": name, "pid": rank + 1, "tid": _thread(rank, lane),
        "ts": start, "dur": max(0.0, end - start), "args": about,
    }  # fmt: skip


def _elements(region: tuple[int, int] | None) -> str:
    return "other memory" if region is None else f"elements {region[0]} to {region[1]}"


def _line(record: Record, number: int) -> dict[str, str]:
    """The call and the line of the program that posted this end."""
    call = record.calls[number]
    if call.place is None:
        return {"call": call.name}
    source = record.sources[call.place.source]
    line = source.text.splitlines()[call.place.line - 1].strip()
    return {
        "call": call.name,
        "line": f"{source.name}:{source.first + call.place.line - 1}: {line}",
    }
