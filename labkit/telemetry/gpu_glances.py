"""Looks at all GPUs that are taken now and worked out later, many at a time.

A process that wakes ten times a second finds nothing in the processor's caches, and runs several
times slower than one that stays awake. So a glance does no more than ask, into one piece of memory
for all devices, and put a copy of that by.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from labkit.telemetry.gpu_calls import Call, Layout
from labkit.telemetry.gpu_device import Gauges, Takes

__all__ = ["Glance", "Glances"]

_WORD = 8  # bytes; every answer begins at a multiple


class Glance(NamedTuple):
    """What was put by: all answers, one after the other."""

    time: float
    codes: list[int] | None  # None: all were 0
    content: bytes


class _Kept(NamedTuple):
    """A call, and where in the memory its answer lies."""

    call: Call
    start: int
    end: int


class Glances:
    """The questions that are asked at every look, to all devices, while nothing is odd about any.

    They hold for one arrangement of the questions: whatever changes it needs new ones.
    """

    def __init__(self, gauges: Sequence[Gauges]) -> None:
        self._gauges = gauges
        self._arrangement = [each.arrangement for each in gauges]
        self._calls: list[_Kept] = []
        self._targets: list[tuple[list[float | None], list[tuple[int, int, float | None]]]] = []
        self._answers: list[tuple[list[float | None], int, list[float | None], int]] = []
        self._form, self._items = "<", 0
        self._same: list[int] = []  # items that are as ever, as long as nothing is odd
        before = bytearray()  # the last answers, which were in order
        for each in gauges:
            numbers: list[tuple[int, int, float | None]] = []
            self._targets.append((each.values, numbers))
            for ask, takes in each.quick() or ():
                layout = ask.layout()
                if ask.call is None or layout is None:
                    raise ValueError(f"{type(ask).__name__} cannot be put by")
                content = bytes(ask.call.buffer)
                self._calls.append(_Kept(ask.call, len(before), len(before) + len(content)))
                before += content + bytes(-len(content) % _WORD)
                numbers += self._place(layout, takes)
                self._answers += [(ask.answers, at, each.values, to) for at, to, _ in takes]
        self._memory = before
        # NVML fills in what the buffers leave open: ids of fields stay as they were.
        self._asks = [
            kept.call.into(
                (ctypes.c_char * (kept.end - kept.start)).from_buffer(before, kept.start)
            )
            for kept in self._calls
        ]
        self._unpack = struct.Struct(self._form).unpack
        self._alike: Callable[[Any], Any] = (
            itemgetter(*self._same) if self._same else lambda _: None
        )
        self._usual = self._alike(self._unpack(before))

    def _place(self, layout: Layout, takes: Takes) -> list[tuple[int, int, float | None]]:
        """Add one answer to what is taken apart; its columns, items and divisors."""
        first = self._items
        self._form += layout.form
        self._items += len(
            struct.unpack("<" + layout.form, bytes(struct.calcsize("<" + layout.form)))
        )
        self._same += [first + item for item in layout.same]
        return [
            (column, first + layout.numbers[place][0], layout.numbers[place][1])
            for place, column, _ in takes
        ]

    @property
    def hold(self) -> bool:
        """Whether the questions are still arranged as they were."""
        return self._arrangement == [each.arrangement for each in self._gauges]

    def take(self, now: float) -> Glance:
        """Ask."""
        codes = [ask() for ask in self._asks]
        return Glance(now, codes if any(codes) else None, bytes(self._memory))

    def tell(self, glance: Glance) -> bool:
        """Put the numbers into the devices' values. False: something is odd; nothing is done."""
        if glance.codes is not None:
            return False
        items = self._unpack(glance.content)
        if self._alike(items) != self._usual:
            return False
        for values, numbers in self._targets:
            for column, item, parts in numbers:
                values[column] = items[item] / parts if parts else items[item]
        return True

    def answer(self) -> None:
        """Let the questions know what was told last, for those that look at each other's."""
        for answers, place, values, column in self._answers:
            answers[place] = values[column]

    def replay(self, glance: Glance) -> None:
        """Have the calls answer as they did at that glance, for whoever asks one by one."""
        codes = glance.codes or [0] * len(self._calls)
        for code, (call, start, end) in zip(codes, self._calls, strict=True):
            call.kept = (code, glance.content[start:end])

    def forget(self) -> None:
        """The calls ask the driver again."""
        for call, _, _ in self._calls:
            call.kept = None
