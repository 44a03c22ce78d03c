"""A trace, its story and its times as one small text for the page: JSON, gzip, base64.

Columns, not objects: the animation of 64 ranks has thousands of messages and changes.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from typing import Any

__all__ = ["clock", "content", "packed", "whereabouts"]

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
ENDED, UNKNOWN = -1, -2  # in place of the number of a place


def packed(trace: Any, story: Any, timed: Any) -> str:
    """What the page unpacks. The same run gives the same text."""
    text = json.dumps(content(trace, story, timed), separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")


def content(trace: Any, story: Any, timed: Any) -> dict[str, Any]:
    """Everything that the player shows, as plain values."""
    places, numbers = _places(trace.calls)
    by_number = {call.number: _number(call.place, numbers) for call in trace.calls}
    messages = sorted(trace.messages, key=lambda one: (one.step, one.number))
    holdings: dict[str | None, int] = {}
    texts: dict[str, int] = {}
    return {
        "program": trace.program,
        "ranks": trace.ranks,
        "steps": trace.steps,
        "options": trace.options,
        "op": story.op,
        "sources": [[one.name, one.first, one.text] for one in trace.sources],
        "places": places,
        "where": whereabouts(trace, numbers),
        "calls": sorted({call.name for call in trace.calls}),
        "messages": {
            "source": [one.source for one in messages],
            "dest": [one.dest for one in messages],
            "step": [one.step for one in messages],
            "nbytes": [one.nbytes for one in messages],
            "from": [one.sent_from for one in messages],
            "into": [one.into for one in messages],
            "sentAt": [by_number.get(one.sent_by, UNKNOWN) for one in messages],
            "receivedAt": [by_number.get(one.received_by, UNKNOWN) for one in messages],
        },
        "cells": [list(cell) for cell in story.cells],
        "changes": {
            "step": [one.step for one in story.changes],
            "rank": [one.rank for one in story.changes],
            "cell": [one.cell for one in story.changes],
            "holding": [
                holdings.setdefault(_digits(one.counts), len(holdings)) for one in story.changes
            ],
            "text": [texts.setdefault(one.text, len(texts)) for one in story.changes],
        },
        "holdings": list(holdings),
        "texts": list(texts),
        "clock": clock(trace, timed),
        "link": str(timed.kind),
    }


def clock(trace: Any, timed: Any) -> list[float]:
    """The modelled time at which the messages of each step, and of all before it, have arrived."""
    ends = [0.0] * (trace.steps + 1)
    for message, end in zip(trace.messages, timed.ends, strict=True):
        ends[message.step] = max(ends[message.step], end)
    for step in range(1, trace.steps + 1):
        ends[step] = max(ends[step], ends[step - 1])
    # After the last message the ranks still work.
    ends[-1] = max(ends[-1], float(timed.seconds))
    return [float(f"{end:.6g}") for end in ends]


def whereabouts(trace: Any, numbers: dict[tuple[int, int], int]) -> list[list[int]]:
    """For each step, in which place each rank is: sending, receiving or waiting."""
    rows = [[ENDED] * trace.ranks for _ in range(trace.steps)]
    reached = [0] * trace.ranks  # the rank's clock when its last call came back
    for call in sorted(trace.calls, key=lambda one: one.number):
        place = _number(call.place, numbers)
        for step in range(reached[call.rank], call.step):
            rows[step][call.rank] = place
        reached[call.rank] = max(reached[call.rank], call.step)
    return rows


def _places(calls: Iterable[Any]) -> tuple[list[list[int]], dict[tuple[int, int], int]]:
    found = sorted({(call.place.source, call.place.line) for call in calls if call.place})
    return [list(one) for one in found], {one: number for number, one in enumerate(found)}


def _number(place: Any, numbers: dict[tuple[int, int], int]) -> int:
    return UNKNOWN if place is None else numbers[place.source, place.line]


def _digits(counts: tuple[int, ...] | None) -> str | None:
    """How often each rank is in there, a digit each; 35 times stands for more, too."""
    return None if counts is None else "".join(DIGITS[min(one, 35)] for one in counts)
