"""Calls into NVML, each with its buffer, as cheap as they can be.

nvidia-ml-py loads the library and finds its functions, here too. But its wrappers make new
structures for every call, and raise where NVML returns a number, which costs several times the
call itself. The layouts are those of NVML's header, which does not change them.

Each class reads one or more metrics: `read(now)` gives for each a number, None (nothing new) or a
`Fault`. No call is used that makes the driver wait (nvmlDeviceGetPcieThroughput takes 20 ms).
"""

from __future__ import annotations

import ctypes
import math
import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

__all__ = [
    "GPU_LOST",
    "NOT_FOUND",
    "REFUSED",
    "UNSUPPORTED",
    "Buffered",
    "Call",
    "Fault",
    "Found",
    "Processes",
    "asked",
    "ways_to_read",
]

# NVML's return codes.
UNSUPPORTED, REFUSED, NOT_FOUND, TOO_SMALL, GPU_LOST = 3, 4, 6, 7, 15


@dataclass(frozen=True)
class Fault:
    """Why a call gave no number: NVML's code, or a sentence of ours."""

    code: int
    says: str = ""


Found = dict[str, "float | Fault | None"]  # by metric; None: nothing new, and no fault


def bound(nvml: Any, name: str) -> Callable[..., int]:
    """NVML's function itself, without nvidia-ml-py's wrapper, which costs several times the call.

    Where this driver has none: one that says so.
    """
    try:
        function: Callable[..., int] = nvml._nvmlGetFunctionPointer(name)
    except nvml.NVMLError as fault:
        code = int(fault.value)
        return lambda *_: code
    return function


def asked(nvml: Any, ask: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of one of nvidia-ml-py's functions, or a Fault."""
    try:
        return ask(*arguments)
    except nvml.NVMLError as fault:
        return Fault(int(fault.value))
    except (UnicodeDecodeError, AttributeError):
        return Fault(UNSUPPORTED)


class Call:
    """A call whose answer is a struct of fixed layout."""

    constant: tuple[int, ...] = ()  # items that stay the same as long as nothing is unusual

    def __init__(
        self,
        nvml: Any,
        name: str,
        arguments: tuple[Any, ...],
        form: str,
        values: dict[str, tuple[int, float]],  # metric: its item, and the divisor (0: none)
        content: bytes = b"",
        *,
        every_sample: bool = True,
    ) -> None:
        self._function, self._arguments = bound(nvml, name), arguments
        self.form, self.values, self.every_sample = form, values, every_sample
        self.metrics = tuple(values)
        content = content or bytes(struct.calcsize(f"<{form}"))
        self.buffer = (ctypes.c_char * len(content)).from_buffer_copy(content)
        self._call = self.into(self.buffer, 0)

    @property
    def items(self) -> int:
        """How many items `form` has."""
        return len(struct.unpack(f"<{self.form}", bytes(struct.calcsize(f"<{self.form}"))))

    def into(self, memory: Any, start: int) -> Callable[[], int]:
        """The call, with its answer at this place of a memory."""
        buffer = (ctypes.c_char * len(self.buffer)).from_buffer(memory, start)
        return partial(self._function, *self._arguments, ctypes.byref(buffer))

    def read(self, now: float) -> Found:
        """Call now."""
        code = self._call()
        return dict.fromkeys(self.metrics, Fault(code)) if code else self.unpack(self.buffer)

    def unpack(self, content: Any) -> Found:
        """The numbers of an answer."""
        items = struct.unpack(f"<{self.form}", content)
        return {
            metric: items[item] / divisor if divisor else items[item]
            for metric, (item, divisor) in self.values.items()
        }

    def close(self) -> None:
        """There is nothing to give back."""


class Memory(Call):
    """Bytes in use."""

    constant = (0,)

    def __init__(self, nvml: Any, handle: Any) -> None:
        super().__init__(nvml, "nvmlDeviceGetMemoryInfo", (handle,), "Q8xQ", {"memory": (1, 0)})

    def unpack(self, content: Any) -> Found:
        """A GPU that shares the machine's memory may say that it has 0 bytes."""
        total, used = struct.unpack("<Q8xQ", content)
        return {"memory": used if total else Fault(UNSUPPORTED)}


_TYPES = {1: "I4x", 2: "Q", 3: "Q"}  # of a field: unsigned int, long, long long


class Fields(Call):
    """Energy (field 83, mJ) and power at this instant (field 186, mW) in one call.

    Field 185, power averaged by the driver, takes milliseconds on some drivers; this one does not.
    Each field has a type and a code of its own.
    """

    constant = (0, 1, 3, 4)

    def __init__(self, nvml: Any, handle: Any) -> None:
        asked_for = b"".join(struct.pack("<I36x", field) for field in (83, 186))
        super().__init__(
            nvml, "nvmlDeviceGetFieldValues", (handle, ctypes.c_int(2)),
            "24xIIQ24xIIQ", {"energy": (2, 1e3), "power": (5, 1e3)}, asked_for,
        )  # fmt: skip

    def read(self, now: float) -> Found:
        """Call now, and note the types, which the fast path expects from then on."""
        found = super().read(now)
        kinds = struct.unpack("<24xI12x24xI12x", self.buffer)
        self.form = "".join(f"24xII{_TYPES.get(kind, 'Q')}" for kind in kinds)
        return found

    def unpack(self, content: Any) -> Found:
        """An unknown type is refused, not guessed."""
        found: Found = {}
        items = struct.unpack("<24xII8s24xII8s", content)
        for place, metric in ((0, "energy"), (3, "power")):
            kind, code, raw = items[place : place + 3]
            if code or kind not in _TYPES:
                found[metric] = Fault(code or UNSUPPORTED)
            else:
                found[metric] = struct.unpack(f"<{_TYPES[kind]}", raw)[0] / 1e3
        return found


class Gpm:
    """NVML's GPM (Hopper on): the share of busy SMs and the traffic between two samples.

    NVML's counters behind it are good for intervals of 100 ms and more.
    """

    # SM utilisation (%), then PCIe and NVLink sent and received (MiB/s).
    _ASKED = (2, 20, 21, 61, 60)
    _LEAST = 0.1

    def __init__(self, nvml: Any, handle: Any, nvlink: bool) -> None:
        self.metrics = ("sm_activity", "pcie", "nvlink") if nvlink else ("sm_activity", "pcie")
        self._sample = bound(nvml, "nvmlGpmSampleGet")
        self._compare = bound(nvml, "nvmlGpmMetricsGet")
        self._free = bound(nvml, "nvmlGpmSampleFree")
        allocate = bound(nvml, "nvmlGpmSampleAlloc")
        self._handle = handle
        self._samples = [ctypes.c_void_p(), ctypes.c_void_p()]
        self._unready = max(allocate(ctypes.byref(sample)) for sample in self._samples)
        self._buffer = ctypes.create_string_buffer(ctypes.sizeof(nvml.c_nvmlGpmMetricsGet_t))
        struct.pack_into("<II", self._buffer, 0, 1, len(self._ASKED))  # version, count
        for place, metric in enumerate(self._ASKED):
            struct.pack_into("<I", self._buffer, 24 + 40 * place, metric)
        self._layout = struct.Struct("<24x" + "4xId24x" * len(self._ASKED))
        self._before: float | None = None
        self._found: Found = dict.fromkeys(self.metrics)

    def read(self, now: float) -> Found:
        """Between the last call and now; the first call gives no number yet."""
        if self._before is not None and 0 <= now - self._before < self._LEAST:
            return self._found
        before, self._before = self._before, None
        older, newer = self._samples
        code = self._unready or self._sample(self._handle, newer)
        found: Found = dict.fromkeys(self.metrics)
        if not code and before is not None:
            struct.pack_into("<QQ", self._buffer, 8, older.value or 0, newer.value or 0)
            code = self._compare(ctypes.byref(self._buffer))
            found = self._unpack()
        if code:
            return dict.fromkeys(self.metrics, Fault(code))
        self._samples.reverse()
        self._before, self._found = now, found
        return found

    def _unpack(self) -> Found:
        codes_and_values = self._layout.unpack_from(self._buffer)
        codes, values = codes_and_values[::2], codes_and_values[1::2]
        found: Found = {
            "sm_activity": Fault(codes[0]) if codes[0] else round(values[0], 2),
            "pcie": rate(codes[1:3], values[1:3]),
            "nvlink": rate(codes[3:5], values[3:5]),
        }
        return {metric: found[metric] for metric in self.metrics}

    def close(self) -> None:
        """Give the two samples back."""
        for sample in self._samples:
            if sample.value:
                self._free(sample)
                sample.value = None


_FOREIGN = (
    "The driver numbers the processes on {label} as the host does, outside of this container, so "
    "this process cannot be found among them. Start the container with --pid=host to see it."
)
_HIDDEN = (
    "Memory of {label} is in use, but the driver names no process, as is usual in a container. "
    "Start the container with --pid=host to see it."
)
_UNCOUNTED = "The driver does not tell how much memory of {label} a process has."


def rate(codes: Sequence[int], mebibytes: Sequence[float]) -> float | Fault:
    """Bytes a second, in whole numbers, sent and received."""
    total = sum(mebibytes) * 2**20
    return Fault(max(codes)) if any(codes) else round(total) if math.isfinite(total) else total


class Processes:
    """Bytes that one process holds on the GPU, where that can be told truthfully.

    The driver counts processes as the host does. In a container the same number is another process
    or none, so a list with processes that do not exist here is not believed.
    """

    metrics = ("process_memory",)
    _NOT_TOLD = (1 << 64) - 1

    def __init__(self, nvml: Any, handle: Any, version: int, pid: int, memory: Memory) -> None:
        self._function = bound(nvml, f"nvmlDeviceGetComputeRunningProcesses_v{version}")
        self._handle, self._memory = handle, memory
        self.pid = pid
        self._count = ctypes.c_uint()
        self._buffer = ctypes.create_string_buffer(24 * 64)
        self._unknown: set[int] = set()

    def read(self, now: float) -> Found:
        """Ask for the list."""
        return {"process_memory": self._read(now)}

    def _read(self, now: float) -> float | Fault | None:
        code, listed = self._list()
        if code:
            return Fault(code)
        unknown = {pid for pid, _ in listed if pid != self.pid and not exists(pid)}
        # A process that has just ended is soon gone from the list; one of the host's stays.
        foreign, self._unknown = unknown & self._unknown, unknown
        if foreign:
            return Fault(UNSUPPORTED, _FOREIGN)
        if unknown:
            return None
        held = [used for pid, used in listed if pid == self.pid]
        if self._NOT_TOLD in held:
            return Fault(UNSUPPORTED, _UNCOUNTED)
        if not listed:
            used = self._memory.read(now)["memory"]
            # More than what the driver keeps for itself.
            if isinstance(used, float | int) and used > 1.5e9:
                return Fault(UNSUPPORTED, _HIDDEN)
        return sum(held)

    def _list(self) -> tuple[int, list[tuple[int, int]]]:
        for _ in range(3):
            room = len(self._buffer) // 24
            self._count.value = room
            code = self._function(
                self._handle, ctypes.byref(self._count), ctypes.byref(self._buffer)
            )
            if code != TOO_SMALL:
                break
            self._buffer = ctypes.create_string_buffer(48 * max(room, self._count.value))
        if code:
            return code, []
        used = 24 * min(self._count.value, len(self._buffer) // 24)
        return 0, list(struct.iter_unpack("<I4xQ8x", self._buffer.raw[:used]))

    def close(self) -> None:
        """There is nothing to give back."""


class Buffered:
    """Utilisation that the driver itself samples more finely than we do (nvmlDeviceGetSamples).

    The driver keeps its samples, so they are fetched once a batch; a row gets the mean of those
    since the row before.
    """

    _FINE = 0.05  # seconds between two of the driver's samples; usual is 1/6 s
    _CHEAP = 0.002  # seconds that a call may take
    _ROOM = 1024
    _KIND = 1  # NVML_GPU_UTILIZATION_SAMPLES

    def __init__(self, nvml: Any, handle: Any, wall: Callable[[], float]) -> None:
        self._function, self._handle = bound(nvml, "nvmlDeviceGetSamples"), handle
        self._wall = wall
        self._type, self._count = ctypes.c_int(), ctypes.c_uint()
        self._buffer = ctypes.create_string_buffer(16 * self._ROOM)
        self._seen = 0
        self._left: list[tuple[float, float]] = []  # those later than the last row
        self._latest = -math.inf  # when there was a new one
        self._mean = 0.0

    def is_fine(self) -> bool:
        """Whether the driver samples finely, and hands over quickly."""
        self._fetch()
        self._seen, began = 0, time.perf_counter()
        kept = self._fetch()
        took = time.perf_counter() - began
        steps = sorted((after - before) / 1e6 for (before, _), (after, _) in pairwise(kept))
        return took < self._CHEAP and len(steps) > 1 and 0 < steps[len(steps) // 2] <= self._FINE

    def points(self, now: float) -> list[tuple[float, float]]:
        """The samples that no row has had yet, in order of time, on our clock."""
        new = self._fetch()
        shift = now - self._wall()
        if new and abs(new[-1][0] / 1e6 + shift - now) > 30:  # not the clock of the wall
            shift = now - new[-1][0] / 1e6
        self._left += [(stamp / 1e6 + shift, value) for stamp, value in new]
        return self._left

    def mean_until(
        self, moment: float, points: list[tuple[float, float]], otherwise: float | None
    ) -> float | None:
        """The mean of the samples up to this moment. `otherwise` where there was none for 1 s."""
        values = []
        while points and points[0][0] <= moment:
            values.append(points.pop(0)[1])
        if values:
            self._latest, self._mean = moment, round(sum(values) / len(values), 2)
        return self._mean if moment - self._latest < 1 else otherwise

    def _fetch(self) -> list[tuple[int, float]]:
        self._count.value = self._ROOM
        code = self._function(
            self._handle, ctypes.c_int(self._KIND), ctypes.c_ulonglong(self._seen),
            ctypes.byref(self._type), ctypes.byref(self._count), ctypes.byref(self._buffer),
        )  # fmt: skip
        if code:
            return []
        used = 16 * min(self._count.value, self._ROOM)
        # NVML gives percentages as unsigned int, in the lower half of the value.
        new = sorted(
            (stamp, float(value))
            for stamp, value in struct.iter_unpack("<QI4x", self._buffer.raw[:used])
            if stamp > self._seen
        )
        if new:
            self._seen = new[-1][0]
        return new


def ways_to_read(nvml: Any, handle: Any, pid: int) -> list[Any]:
    """All ways to read the metrics of a GPU; of those for the same metric the best comes first."""
    memory = Memory(nvml, handle)
    # The newer way to read a temperature takes a struct: version, sensor, degrees.
    sensor = struct.pack("<Iii", 0x100000C, 0, 0)
    call = partial(Call, nvml)
    return [
        Fields(nvml, handle),
        memory,
        call("nvmlDeviceGetUtilizationRates", (handle,), "II",
             {"utilisation": (0, 0), "memory_activity": (1, 0)}),
        call("nvmlDeviceGetPowerUsage", (handle,), "I4x", {"power": (0, 1e3)}),
        call("nvmlDeviceGetTotalEnergyConsumption", (handle,), "Q", {"energy": (0, 1e3)}),
        call("nvmlDeviceGetTemperature", (handle, ctypes.c_int(0)), "I4x",
             {"temperature": (0, 0)}, every_sample=False),
        call("nvmlDeviceGetTemperatureV", (handle,), "8xi", {"temperature": (0, 0)}, sensor,
             every_sample=False),
        call("nvmlDeviceGetClockInfo", (handle, ctypes.c_int(1)), "I4x", {"clock": (0, 0)},
             every_sample=False),
        Gpm(nvml, handle, has_nvlink(nvml, handle)),
        Processes(nvml, handle, 3, pid, memory),
        Processes(nvml, handle, 2, pid, memory),
    ]  # fmt: skip


def has_nvlink(nvml: Any, handle: Any) -> bool:
    """Whether any link is up."""
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = asked(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link)
        if isinstance(state, Fault):
            return False
        if state == nvml.NVML_FEATURE_ENABLED:
            return True
    return False


def exists(pid: int) -> bool:
    """Whether there is a process with this number here."""
    if os.name != "posix" or pid <= 0:
        return pid > 0
    try:
        os.kill(pid, 0)  # signal 0 only asks
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
