"""Calls into NVML, each with its buffer, as cheap as they can be.

nvidia-ml-py loads the library and finds its functions, here too. But its wrappers make new
structures for every call, and raise where NVML returns a number, which costs several times the
call itself. The layouts are those of NVML's header, which does not change them.

Each class reads one or more metrics: `read()` gives for each a number, None (nothing yet) or a
`Fault`. No call is used that makes the driver wait (nvmlDeviceGetPcieThroughput takes 20 ms).
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

__all__ = [
    "UNSUPPORTED",
    "Call",
    "Fault",
    "Found",
    "Gpm",
    "Processes",
    "asked",
    "every_sample",
    "once_a_second",
]

UNSUPPORTED = 3  # NVML's return code


@dataclass(frozen=True)
class Fault:
    """Why a call gave no number: NVML's code, or a sentence of ours."""

    code: int
    says: str = ""


Found = dict[str, "float | Fault | None"]  # by metric


def asked(nvml: Any, ask: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of one of nvidia-ml-py's functions, or a Fault."""
    try:
        return ask(*arguments)
    except nvml.NVMLError as fault:
        return Fault(int(fault.value))


def bound(nvml: Any, name: str) -> Callable[..., int]:
    """NVML's function itself; where this driver has none, one that returns the error's code."""
    function = asked(nvml, nvml._nvmlGetFunctionPointer, name)
    if isinstance(function, Fault):
        return lambda *_: function.code
    return partial(function)


class Value(NamedTuple):
    """Where a struct has a metric."""

    item: int
    divisor: float = 0  # 0: the number as it is
    code: int | None = None  # the item with an error code of its own


class Call:
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
        content = content or bytes(struct.calcsize(f"<{form}"))
        self.buffer = (ctypes.c_char * len(content)).from_buffer_copy(content)
        self._call = self.into(self.buffer, 0)

    def into(self, memory: Any, start: int) -> Callable[[], int]:
        """The call, with its answer at this place of a memory."""
        buffer = (ctypes.c_char * len(self.buffer)).from_buffer(memory, start)
        return partial(self._function, *self._arguments, ctypes.byref(buffer))

    def read(self) -> Found:
        """Call now."""
        if code := self._call():
            return dict.fromkeys(self.values, Fault(code))
        return self.found(struct.unpack(f"<{self.form}", self.buffer))

    def found(self, items: tuple[Any, ...]) -> Found:
        """The numbers of an answer."""
        found: Found = {}
        for metric, (item, divisor, code) in self.values.items():
            if code is not None and items[code]:
                found[metric] = Fault(items[code])
            else:
                found[metric] = items[item] / divisor if divisor else items[item]
        return found


class Fields(Call):
    """Energy (field 83, mJ) and power at this instant (field 186, mW) in one call.

    Field 185, power averaged by the driver, takes milliseconds on some drivers; this one does not.
    The driver tells the type of each field, which stays the same.
    """

    _TYPES = {1: "I4x", 2: "Q", 3: "Q"}  # noqa: RUF012 (unsigned int, long, long long)

    def __init__(self, nvml: Any, handle: Any) -> None:
        fields = b"".join(struct.pack("<I36x", field) for field in (83, 186))
        super().__init__(
            nvml, "nvmlDeviceGetFieldValues", (handle, ctypes.c_int(2)), "24x4xIQ24x4xIQ",
            {"energy": Value(1, 1e3, code=0), "power": Value(3, 1e3, code=2)}, fields,
        )  # fmt: skip
        self._call()
        types = struct.unpack("<24xI12x24xI12x", self.buffer)
        self.form = "".join(f"24x4xI{self._TYPES.get(one, 'Q')}" for one in types)


def every_sample(nvml: Any, handle: Any) -> list[Call]:
    """The calls that are made at every sample; for one metric the better one comes first."""
    return [
        Fields(nvml, handle),
        Call(nvml, "nvmlDeviceGetMemoryInfo", (handle,), "8x8xQ", {"memory": Value(0)}),
        Call(nvml, "nvmlDeviceGetUtilizationRates", (handle,), "II",
             {"utilisation": Value(0), "memory_activity": Value(1)}),
        Call(nvml, "nvmlDeviceGetPowerUsage", (handle,), "I4x", {"power": Value(0, 1e3)}),
        Call(nvml, "nvmlDeviceGetTotalEnergyConsumption", (handle,), "Q",
             {"energy": Value(0, 1e3)}),
    ]  # fmt: skip


class Gpm:
    """NVML's GPM (Hopper on): the share of busy SMs and the traffic between two reads.

    NVML's counters behind it are good for intervals of 100 ms and more.
    """

    values = ("sm_activity", "pcie", "nvlink")
    # SM utilisation (%), then PCIe and NVLink sent and received (MiB/s).
    _ASKED = (2, 20, 21, 61, 60)

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._sample = bound(nvml, "nvmlGpmSampleGet")
        self._compare = bound(nvml, "nvmlGpmMetricsGet")
        self._free = bound(nvml, "nvmlGpmSampleFree")
        allocate = bound(nvml, "nvmlGpmSampleAlloc")
        self._handle, self._compared = handle, False
        self._samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        self._unready = max(allocate(ctypes.byref(sample)) for sample in self._samples)
        self._buffer = ctypes.create_string_buffer(ctypes.sizeof(nvml.c_nvmlGpmMetricsGet_t))
        struct.pack_into("<II", self._buffer, 0, 1, len(self._ASKED))  # version, count
        for place, metric in enumerate(self._ASKED):
            struct.pack_into("<I", self._buffer, 24 + 40 * place, metric)
        self._layout = struct.Struct("<24x" + "4xId24x" * len(self._ASKED))

    def read(self) -> Found:
        """Between the last read and now; the first read gives no number yet."""
        older, newer = self._samples
        code = self._unready or self._sample(self._handle, newer)
        if code:
            return dict.fromkeys(self.values, Fault(code))
        self._samples.reverse()
        if not self._compared:
            self._compared = True
            return dict.fromkeys(self.values)
        struct.pack_into("<QQ", self._buffer, 8, older.value or 0, newer.value or 0)
        if code := self._compare(ctypes.byref(self._buffer)):
            return dict.fromkeys(self.values, Fault(code))
        answers = self._layout.unpack_from(self._buffer)
        codes, numbers = answers[::2], answers[1::2]
        found: Found = {}
        # Whole bytes: long fractions make the lines of a recording dear.
        for metric, first, last, unit, digits in (
            ("sm_activity", 0, 1, 1, 2), ("pcie", 1, 3, 2**20, None), ("nvlink", 3, 5, 2**20, None),
        ):  # fmt: skip
            total = sum(numbers[first:last]) * unit
            if fault := max(codes[first:last]):
                found[metric] = Fault(fault)
            else:
                found[metric] = round(total, digits) if math.isfinite(total) else None
        return found

    def close(self) -> None:
        """Give the two samples back."""
        for sample in self._samples:
            if sample.value:
                self._free(sample)
                sample.value = None


class Processes:
    """Bytes that one process holds on the GPU, where the driver lists that process."""

    values = ("process_memory",)
    _ROOM = 256
    _UNKNOWN = (1 << 64) - 1
    _NOT_LISTED = (
        "The driver does not list this process on {label}: it has taken no memory there yet, or "
        "it runs in a container, outside of which processes have other numbers."
    )

    def __init__(self, nvml: Any, handle: Any, pid: int) -> None:
        self._function = bound(nvml, "nvmlDeviceGetComputeRunningProcesses_v3")
        self._handle, self.pid = handle, pid
        self._count = ctypes.c_uint()
        self._buffer = ctypes.create_string_buffer(24 * self._ROOM)

    def read(self) -> Found:
        """Ask for the list of processes."""
        self._count.value = self._ROOM
        code = self._function(self._handle, ctypes.byref(self._count), ctypes.byref(self._buffer))
        if code:
            return {"process_memory": Fault(code)}
        listed = self._buffer.raw[: 24 * self._count.value]
        held = [used for pid, used in struct.iter_unpack("<I4xQ8x", listed) if pid == self.pid]
        if not held:
            return {"process_memory": Fault(0, self._NOT_LISTED)}
        return {"process_memory": Fault(UNSUPPORTED) if self._UNKNOWN in held else sum(held)}


def once_a_second(nvml: Any, handle: Any) -> list[Call | Gpm]:
    """The calls for what changes slowly."""
    return [
        Call(nvml, "nvmlDeviceGetTemperature", (handle, ctypes.c_int(0)), "I",
             {"temperature": Value(0)}),
        Call(nvml, "nvmlDeviceGetClockInfo", (handle, ctypes.c_int(1)), "I", {"clock": Value(0)}),
        Gpm(nvml, handle),
    ]  # fmt: skip
