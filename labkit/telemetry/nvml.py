"""Calls into NVML, each with its buffer, as cheap as they can be.

nvidia-ml-py loads the library and finds its functions, here too. But its wrappers make new
structures for every call, and raise where NVML returns a number, which costs several times the
call itself. The layouts are those of NVML's header, which does not change them.

Each class reads some metrics: `read()` returns for each metric a number, None (nothing yet) or an
`ErrorCode`. On an H100 (driver 580, recorded 2026-11-26) the numbers of a sample took 0.2 ms of
CPU, and the energy counter alone 3 to 6 ms. So the energy counter is read at the edges of spans,
and otherwise rarely. Nothing else is read that makes the driver wait, such as the PCIe throughput,
which takes 20 ms.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

UNSUPPORTED = 3  # NVML's return code


class ErrorCode(int):
    """In place of a number: NVML's return code."""


Found = dict[str, "float | ErrorCode | None"]  # by metric


def asked(nvml: Any, ask: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the answer of a function of nvidia-ml-py, or an ErrorCode."""
    try:
        return ask(*arguments)
    except nvml.NVMLError as fault:
        return ErrorCode(fault.value)


def bound(nvml: Any, name: str) -> Callable[..., int]:
    """Returns NVML's own function. Without it in this driver: a function that returns the code."""
    function = asked(nvml, nvml._nvmlGetFunctionPointer, name)
    return (lambda *_: function) if isinstance(function, ErrorCode) else partial(function)


class Value(NamedTuple):
    """Where a struct holds a metric."""

    item: int
    milli: bool = False  # thousandths of the metric's unit
    code: int | None = None  # the item with an error code of its own


class NvmlCall:
    """A call whose answer is a struct of fixed layout."""

    def __init__(
        self,
        nvml: Any,
        name: str,
        arguments: tuple[Any, ...],
        form: str,
        values: dict[str, Value],
        content: bytes = b"",
    ) -> None:
        self._function, self._arguments = bound(nvml, name), arguments
        self.form, self.values = form, values
        self.content = content or bytes(struct.calcsize(f"<{form}"))
        self._memory = bytearray(self.content)
        self._call = self.into(self._memory, 0)

    def into(self, memory: bytearray, start: int) -> Callable[[], int]:
        """Returns the call, which writes its answer to this place of a memory."""
        buffer = (ctypes.c_char * len(self.content)).from_buffer(memory, start)
        return partial(self._function, *self._arguments, ctypes.byref(buffer))

    def read(self) -> Found:
        """Call, and return the number of each metric or its ErrorCode."""
        if code := self._call():
            return dict.fromkeys(self.values, ErrorCode(code))
        items = struct.unpack(f"<{self.form}", self._memory)
        return {
            metric: ErrorCode(items[code])
            if code is not None and items[code]
            else (items[item] / 1e3 if milli else items[item])
            for metric, (item, milli, code) in self.values.items()
        }


def every_sample(nvml: Any, handle: Any) -> list[NvmlCall]:
    """Returns the calls for every sample. If two give a metric, the better call comes first."""
    # Field 186 is the power at this instant, in mW. Field 185, averaged by the driver, takes
    # milliseconds on some drivers.
    field = struct.pack("<I36x", 186)
    return [
        NvmlCall(nvml, "nvmlDeviceGetFieldValues", (handle, ctypes.c_int(1)), "28xIQ",
                 {"power": Value(1, True, code=0)}, field),
        NvmlCall(nvml, "nvmlDeviceGetMemoryInfo", (handle,), "8x8xQ", {"memory": Value(0)}),
        NvmlCall(nvml, "nvmlDeviceGetUtilizationRates", (handle,), "II",
                 {"utilisation": Value(0), "memory_activity": Value(1)}),
        NvmlCall(nvml, "nvmlDeviceGetPowerUsage", (handle,), "I4x", {"power": Value(0, True)}),
    ]  # fmt: skip


def once_a_second(nvml: Any, handle: Any) -> list[NvmlCall | Gpm]:
    """Returns what reads the metrics that change slowly."""
    return [
        NvmlCall(nvml, "nvmlDeviceGetTemperature", (handle, ctypes.c_int(0)), "I",
                 {"temperature": Value(0)}),
        NvmlCall(nvml, "nvmlDeviceGetClockInfo", (handle, ctypes.c_int(1)), "I",
                 {"clock": Value(0)}),
        Gpm(nvml, handle),
    ]  # fmt: skip


def at_edges(nvml: Any, handle: Any) -> list[NvmlCall]:
    """Returns what reads the energy counter."""
    values = {"energy": Value(0, True)}
    return [NvmlCall(nvml, "nvmlDeviceGetTotalEnergyConsumption", (handle,), "Q", values)]


class Gpm:
    """NVML's GPM (Hopper on): the share of busy SMs between two reads.

    NVML's counters behind it are good for intervals of 100 ms and more.
    """

    _SM_UTIL = 2  # NVML's number of the metric

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._sample = bound(nvml, "nvmlGpmSampleGet")
        self._compare = bound(nvml, "nvmlGpmMetricsGet")
        allocate = bound(nvml, "nvmlGpmSampleAlloc")
        self._handle, self._compared = handle, False
        self._samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        for sample in self._samples:
            allocate(ctypes.byref(sample))  # where it fails, a read does, too
        self._buffer = ctypes.create_string_buffer(ctypes.sizeof(nvml.c_nvmlGpmMetricsGet_t))
        struct.pack_into("<II", self._buffer, 0, 1, 1)  # version, count
        struct.pack_into("<I", self._buffer, 24, self._SM_UTIL)

    def read(self) -> Found:
        """Returns the share since the last read. The first read gives no number yet."""
        older, newer = self._samples
        code = self._sample(self._handle, newer)
        if not code:
            self._samples.reverse()
            if not self._compared:
                self._compared = True
                return {"sm_activity": None}
            struct.pack_into("<QQ", self._buffer, 8, older.value or 0, newer.value or 0)
            code = self._compare(ctypes.byref(self._buffer))
        if code:
            return {"sm_activity": ErrorCode(code)}
        code, number = struct.unpack_from("<4xId", self._buffer, 24)
        known = round(number, 2) if math.isfinite(number) else None
        return {"sm_activity": ErrorCode(code) if code else known}
