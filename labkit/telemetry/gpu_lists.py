"""The questions to NVML whose answers are lists: SM counters, kept samples, processes."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from labkit.telemetry.gpu_calls import Ask, Memory, bound, whole

__all__ = ["FOREIGN", "HIDDEN", "UNCOUNTED", "Activity", "Processes", "Samples"]

INVALID, NOT_FOUND, TOO_SMALL, NO_DATA = 2, 6, 7, 21
# Codes of our own, below all of NVML's.
FOREIGN = -3  # the driver counts processes outside of our container
HIDDEN = -4  # memory is in use, and no process is named
UNCOUNTED = -5  # our process is there, its memory is not told
_MIB = 1 << 20
_NOT_TOLD = (1 << 64) - 1


class Activity(Ask):
    """From NVML's GPM (Hopper on): share of busy SMs, and the traffic, between two samples.

    NVML's counters behind it are good for intervals of 100 ms and more, and this is the dearest of
    the quick questions: it is asked at every second look of the usual ten at most. As long as looks
    are glances, it waits for the next that is read: a second, or two while nobody watches.
    """

    metrics = ("sm_activity", "pcie", "nvlink")
    every = 0.2
    # SM utilisation (%), then PCIe and NVLink sent and received (MiB/s).
    _ASKED = (2, 20, 21, 61, 60)

    def __init__(self, nvml: Any, handle: Any, instance: int | None) -> None:
        """`instance`: the GPU instance of MIG to be looked at; `handle` is then that of its GPU."""
        super().__init__()
        self._sampled = bound(
            nvml, "nvmlGpmSampleGet" if instance is None else "nvmlGpmMigSampleGet"
        )
        self._device = (handle,) if instance is None else (handle, ctypes.c_uint(instance))
        self._counted = bound(nvml, "nvmlGpmMetricsGet")
        self._free = bound(nvml, "nvmlGpmSampleFree")
        allocate = bound(nvml, "nvmlGpmSampleAlloc")
        self._samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        self._unready = 0
        for sample in self._samples:
            self._unready = self._unready or allocate(ctypes.byref(sample))
        self._buffer = ctypes.create_string_buffer(ctypes.sizeof(nvml.c_nvmlGpmMetricsGet_t))
        struct.pack_into("<II", self._buffer, 0, 1, len(self._ASKED))  # version, count
        for place, metric in enumerate(self._ASKED):
            struct.pack_into("<I", self._buffer, 24 + 40 * place, metric)
        self._layout = struct.Struct("<24x" + "4xId24x" * len(self._ASKED))
        self._before: float | None = None

    def look(self, now: float) -> None:
        """Ask."""
        before, self._before = self._before, None
        self.answers[:] = (None, None, None)
        older, newer = self._samples
        code = self._unready or self._sampled(*self._device, newer)
        if not code and before is not None and now > before:
            struct.pack_into("<QQ", self._buffer, 8, older.value or 0, newer.value or 0)
            code = self._counted(ctypes.byref(self._buffer))
            if not code:
                self._take()
        if code:
            self.codes[:] = (code, code, code)
            return
        if before is None:
            self.codes[:] = (0, 0, 0)
        self._samples.reverse()
        self._before = now

    def _take(self) -> None:
        found = self._layout.unpack_from(self._buffer)
        sm_code, sm, sent_code, sent, got_code, got, out_code, out, in_code, into = found
        self.codes[:] = (sm_code, sent_code or got_code, out_code or in_code)
        # A NaN stays one, and is told apart where it is judged.
        self.answers[:] = (round(sm, 2), whole((sent + got) * _MIB), whole((out + into) * _MIB))

    def close(self) -> None:
        """Give the two samples back."""
        for sample in self._samples:
            if sample.value:
                self._free(sample)
                sample.value = None


class Samples(Ask):
    """Utilisation that the driver has kept at a finer step than we look: the newest number, and all
    since the last look in `points`, with their times on our clock.
    """

    metrics = ("utilisation",)
    FINER = 0.05  # seconds from one kept number to the next; the driver's period is 1/6 s at least
    CHEAP = 0.001  # seconds that a call may take
    _ROOM = 1024
    _KIND = 1  # NVML_GPU_UTILIZATION_SAMPLES

    def __init__(self, nvml: Any, handle: Any, wall: Callable[[], float]) -> None:
        super().__init__()
        self._function = bound(nvml, "nvmlDeviceGetSamples")
        self._handle = handle
        self._wall = wall
        self._type, self._count = ctypes.c_int(), ctypes.c_uint()
        self._buffer = ctypes.create_string_buffer(16 * self._ROOM)
        self._seen = 0
        self._fresh = float("-inf")
        self.points: list[tuple[float, float]] = []

    def worth_it(self) -> bool:
        """Whether the driver keeps numbers finely, and hands them over quickly."""
        self._kept()
        self._seen, began = 0, time.perf_counter()
        code, kept = self._kept()
        took = time.perf_counter() - began
        if code or len(kept) < 3 or took > self.CHEAP:
            return False
        steps = sorted((after - before) / 1e6 for (before, _), (after, _) in pairwise(kept))
        return 0 < steps[len(steps) // 2] <= self.FINER

    def look(self, now: float) -> None:
        """Ask."""
        self.points = []
        code, kept = self._kept()
        if code in (NOT_FOUND, NO_DATA) or not (code or kept):
            # Nothing new yet. What was true a moment ago may stand for a moment.
            self.codes[0] = 0
            if now - self._fresh > 1:
                self.answers[0] = None
            return
        self.codes[0] = code
        if code:
            return
        apart = now - self._wall()
        if abs(kept[-1][0] / 1e6 + apart - now) > 30:  # not the wall's clock: its newest is now
            apart = now - kept[-1][0] / 1e6
        self.points = [(stamp / 1e6 + apart, value) for stamp, value in kept]
        self.answers[0] = kept[-1][1]
        self._fresh = now

    def _kept(self) -> tuple[int, list[tuple[int, float]]]:
        self._count.value = self._ROOM
        code = self._function(
            self._handle,
            ctypes.c_int(self._KIND),
            ctypes.c_ulonglong(self._seen),
            ctypes.byref(self._type),
            ctypes.byref(self._count),
            ctypes.byref(self._buffer),
        )
        if code:
            return code, []
        used = 16 * min(self._count.value, self._ROOM)
        # NVML tells percentages as unsigned int, in the lower half of the value.
        kept = [
            (stamp, float(value))
            for stamp, value in struct.iter_unpack("<QI4x", self._buffer.raw[:used])
            if stamp > self._seen
        ]
        kept.sort()
        if kept:
            self._seen = kept[-1][0]
        return 0, kept


class Processes(Ask):
    """Bytes that one process holds on the device, where that can be told truthfully.

    The driver counts processes as the host does. In a container the same number is another process
    or none, so a list with processes that do not exist here is not believed.
    """

    metrics = ("process_memory",)
    every = 0.5

    def __init__(self, nvml: Any, handle: Any, version: int, pid: int, memory: Memory) -> None:
        super().__init__()
        self._function = bound(nvml, f"nvmlDeviceGetComputeRunningProcesses_v{version}")
        self._handle = handle
        self._pid = pid
        self._memory = memory
        self._count = ctypes.c_uint()
        self._buffer = ctypes.create_string_buffer(24 * 64)
        self._unknown: set[int] = set()

    def look(self, now: float) -> None:
        """Ask."""
        self.answers[0] = None
        code, found = self._listed()
        self.codes[0] = code
        if code:
            return
        unknown = {pid for pid, _ in found if pid != self._pid and not _exists(pid)}
        # A process that has just ended is soon gone from the list; a stranger stays.
        strangers, self._unknown = unknown & self._unknown, unknown
        if strangers:
            self.codes[0] = FOREIGN
        elif unknown:
            return
        elif not found and self._much_in_use():
            self.codes[0] = HIDDEN
        else:
            held = [used for pid, used in found if pid == self._pid]
            if _NOT_TOLD in held:
                self.codes[0] = UNCOUNTED
            else:
                self.answers[0] = sum(held)

    def _listed(self) -> tuple[int, list[tuple[int, int]]]:
        for _ in range(3):
            room = len(self._buffer) // 24
            self._count.value = room
            code = self._function(
                self._handle, ctypes.byref(self._count), ctypes.byref(self._buffer)
            )
            if code != TOO_SMALL:
                break
            self._buffer = ctypes.create_string_buffer(24 * (2 * max(room, self._count.value)))
        if code:
            return code, []
        used = 24 * min(self._count.value, len(self._buffer) // 24)
        return 0, list(struct.iter_unpack("<I4xQ8x", self._buffer.raw[:used]))

    def _much_in_use(self) -> bool:
        """More than what the driver keeps for itself."""
        used = None if self._memory.codes[0] else self._memory.answers[0]
        return used is not None and used > 1.5e9


def _exists(pid: int) -> bool:
    if os.name != "posix" or pid <= 0:
        return pid > 0  # elsewhere there are no containers of this kind, and no such question
    try:
        os.kill(pid, 0)  # signal 0 is none: it only asks
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
