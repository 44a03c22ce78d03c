"""One question to NVML at a time, with its return code, as cheaply as it can be asked.

nvidia-ml-py loads the library and finds its functions, and does so here too. But its own wrappers
make new structures for every call and raise where NVML only returns a number, which costs several
times the call itself. So each question keeps the function and its buffers for as long as it is
asked. The layouts are those of NVML's header, which does not change them.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

__all__ = [
    "NARROW",
    "Ask",
    "Call",
    "Energies",
    "Layout",
    "Memory",
    "Number",
    "Rates",
    "Temperature",
    "Traffic",
    "bound",
    "whole",
]

UNSUPPORTED = 3
NARROW = -2  # the counter starts over before it is looked at again
_ROUND = 1 << 32
_ALL_LINKS = 0xFFFFFFFF
_NUMBER = {
    0: "<d",  # double
    1: "<I4x",  # unsigned int
    2: "<Q",  # unsigned long
    3: "<Q",  # unsigned long long
    4: "<q",  # long long
    5: "<i4x",  # int
    6: "<H6x",  # unsigned short
}


def bound(nvml: Any, name: str) -> Callable[..., int]:
    """NVML's function itself; where this driver has none, one that says so."""
    try:
        function: Callable[..., int] = nvml._nvmlGetFunctionPointer(name)
    except nvml.NVMLError as fault:
        code = int(fault.value)
        return lambda *_: code
    return function


class Call:
    """A call to NVML with its buffer."""

    def __init__(
        self, function: Callable[..., int], arguments: tuple[Any, ...], buffer: Any
    ) -> None:
        self._function, self._arguments = function, arguments
        self.buffer = buffer  # the last argument
        self._ask = self.into(buffer)
        self.kept: tuple[int, bytes] | None = None  # an answer of earlier, for the next `code`

    def into(self, buffer: Any) -> Callable[[], int]:
        """The same call, but the answer goes into another buffer of this size."""
        return partial(self._function, *self._arguments, ctypes.byref(buffer))

    def code(self) -> int:
        """Fill the buffer with the answer that was kept, or else with a new one."""
        if self.kept is None:
            return self._ask()
        (code, content), self.kept = self.kept, None
        ctypes.memmove(self.buffer, content, ctypes.sizeof(self.buffer))
        return code


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a usual answer are, so that many answers can be taken apart at once."""

    form: str  # for `struct`, without alignment; a multiple of 8 bytes
    same: tuple[int, ...]  # which of its items are as ever, as long as nothing is odd
    numbers: tuple[tuple[int, float | None], ...]  # of each metric, its item and the divisor


class Ask:
    """One call about one device. A look fills in a code and a number for each of its metrics."""

    metrics: tuple[str, ...] = ()
    every = 0.0  # seconds that must lie between two calls
    due = float("-inf")
    call: Call | None = None  # where its answer can be put by, to be worked out later

    def __init__(self) -> None:
        self.codes: list[int] = [0] * len(self.metrics)
        self.answers: list[float | None] = [None] * len(self.metrics)

    def look(self, now: float) -> None:
        """Ask. Where a code is not 0, the number beside it means nothing."""
        raise NotImplementedError

    def layout(self) -> Layout | None:
        """How to take apart answers like the last one, which was without a fault."""
        return None

    def close(self) -> None:
        """Give back what NVML has lent."""


class Number(Ask):
    """A call that fills in one whole number."""

    call: Call

    def __init__(
        self,
        nvml: Any,
        handle: Any,
        metric: str,
        name: str,
        *,
        choice: int | None = None,
        wide: bool = False,
        parts: int | None = None,
        every: float = 0.0,
    ) -> None:
        self.metrics = (metric,)
        self.every = every
        super().__init__()
        self._number = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        chosen = () if choice is None else (ctypes.c_int(choice),)
        self.call = Call(bound(nvml, name), (handle, *chosen), self._number)
        self._parts = parts  # in one of the metric's unit; to multiply would make odd digits

    def look(self, now: float) -> None:
        """Ask."""
        self.codes[0] = self.call.code()
        value = self._number.value
        self.answers[0] = value / self._parts if self._parts else value

    def layout(self) -> Layout:
        """One number."""
        wide = ctypes.sizeof(self._number) == 8
        return Layout("Q" if wide else "I4x", (), ((0, self._parts),))


class Temperature(Ask):
    """The newer way to ask for a temperature, for when drivers drop the older (CUDA 14)."""

    metrics = ("temperature",)
    every = 0.5

    def __init__(self, nvml: Any, handle: Any) -> None:
        super().__init__()
        self._function = bound(nvml, "nvmlDeviceGetTemperatureV")
        self._asked = (ctypes.c_int * 3)(0x100000C, 0, 0)  # version 1, the GPU's own sensor
        self._arguments = (handle, ctypes.byref(self._asked))

    def look(self, now: float) -> None:
        """Ask."""
        self.codes[0] = self._function(*self._arguments)
        self.answers[0] = self._asked[2]


class Memory(Ask):
    """Bytes in use."""

    metrics = ("memory",)
    call: Call

    def __init__(self, nvml: Any, handle: Any) -> None:
        super().__init__()
        self._bytes = (ctypes.c_ulonglong * 3)()  # total, free, used
        self.call = Call(bound(nvml, "nvmlDeviceGetMemoryInfo"), (handle,), self._bytes)

    def look(self, now: float) -> None:
        """Ask."""
        code = self.call.code()
        # No bytes at all: the GPU shares the machine's, and this driver says so with a zero.
        self.codes[0] = code or (0 if self._bytes[0] else UNSUPPORTED)
        self.answers[0] = self._bytes[2]

    def layout(self) -> Layout:
        """The total stays the same."""
        return Layout("Q8xQ", (0,), ((1, None),))


class Rates(Ask):
    """Utilisation and memory traffic over the driver's last period (a sixth of a second to one)."""

    metrics = ("utilisation", "memory_activity")
    call: Call

    def __init__(self, nvml: Any, handle: Any) -> None:
        super().__init__()
        self._shares = (ctypes.c_uint * 2)()
        self.call = Call(bound(nvml, "nvmlDeviceGetUtilizationRates"), (handle,), self._shares)

    def look(self, now: float) -> None:
        """Ask."""
        self.codes[0] = self.codes[1] = self.call.code()
        self.answers[:] = self._shares

    def layout(self) -> Layout:
        """Two numbers."""
        return Layout("II", (), ((0, None), (1, None)))


class Fields:
    """Several of NVML's numbered fields in one call, each with a code of its own."""

    SIZE = 40  # id, scope, time, latency, type, code, value

    def __init__(self, nvml: Any, handle: Any, asked: tuple[tuple[int, int], ...]) -> None:
        self._buffer = ctypes.create_string_buffer(self.SIZE * len(asked))
        for place, (field, scope) in enumerate(asked):
            struct.pack_into("<II", self._buffer, self.SIZE * place, field, scope)
        arguments = (handle, ctypes.c_int(len(asked)))
        self.call = Call(bound(nvml, "nvmlDeviceGetFieldValues"), arguments, self._buffer)
        self._layout = struct.Struct("<" + "24xII8s" * len(asked))

    def look(self) -> tuple[int, tuple[Any, ...]]:
        """The code of the call; type, code and bytes of each field, one after the other."""
        return self.call.code(), self.last()

    def last(self) -> tuple[Any, ...]:
        """Type, code and bytes of each field in the last answer."""
        return self._layout.unpack(self._buffer)


def whole(value: float) -> float:
    """A rate in whole bytes: to write and read digits that nobody can know is work, ten times a
    second. What is no number at all stays so.
    """
    return round(value) if math.isfinite(value) else value


def number(kind: int, raw: bytes) -> float:
    """A field's value by its type. An unknown type is refused, not guessed."""
    value: float = struct.unpack(_NUMBER[kind], raw)[0]
    return value


class Energies(Ask):
    """Energy (field 83, mJ) and power at this instant (field 186, mW) in one call.

    Field 185, power averaged by the driver, takes milliseconds on some drivers; this one does not.
    """

    metrics = ("energy", "power")

    def __init__(self, nvml: Any, handle: Any) -> None:
        super().__init__()
        self._fields = Fields(nvml, handle, ((83, 0), (186, 0)))
        self.call = self._fields.call

    def look(self, now: float) -> None:
        """Ask."""
        code, (kind, energy_code, energy, power_kind, power_code, power) = self._fields.look()
        self.codes[:] = (code or energy_code, code or power_code)
        if not self.codes[0]:
            self.answers[0] = number(kind, energy) / 1e3
        if not self.codes[1]:
            self.answers[1] = number(power_kind, power) / 1e3

    def layout(self) -> Layout:
        """Types and codes stay the same."""
        energy_kind, energy_code, _, power_kind, power_code, _ = self._fields.last()
        kinds = ((energy_kind, energy_code), (power_kind, power_code))
        # What was refused is nobody's number, and may be of any type.
        values = ["8s" if code else _NUMBER[kind][1:] for kind, code in kinds]
        form = "".join(f"24xII{value}" for value in values)
        return Layout(form, (0, 1, 3, 4), ((2, 1e3), (5, 1e3)))


class Traffic(Ask):
    """Bytes over PCIe (197, 198) and KiB over all NVLinks (138, 139), as rates, in one call.

    The counters are not free to read, so this is asked twice a second at most. The
    call that measures the rate itself (nvmlDeviceGetPcieThroughput) looks on for 20 ms each time,
    and is never used.
    """

    metrics = ("pcie", "nvlink")
    every = 0.5

    def __init__(self, nvml: Any, handle: Any, pcie_limit: float | None) -> None:
        super().__init__()
        self._fields = Fields(
            nvml, handle, ((197, 0), (198, 0), (138, _ALL_LINKS), (139, _ALL_LINKS))
        )
        self._pcie_limit = pcie_limit
        self._last: list[tuple[float, float, float] | None] = [None, None]
        self._unsure = [0, 0]

    def look(self, now: float) -> None:
        """Ask."""
        code, found = self._fields.look()
        for metric, unit in enumerate((1, 1024)):
            sent_kind, sent_code, sent, got_kind, got_code, got = found[6 * metric : 6 * metric + 6]
            self.codes[metric] = code or sent_code or got_code
            self.answers[metric] = None
            before, self._last[metric] = self._last[metric], None
            if self.codes[metric]:
                continue
            counts = (number(sent_kind, sent), number(got_kind, got))
            self._last[metric] = (now, *counts)
            if before is None or now <= before[0]:
                continue
            if sent_kind == 1:  # 32 bits: starts over after 4.3 GB
                self._grown_narrow(metric, before, now, counts, unit)
                continue
            grown = [new - old for new, old in zip(counts, before[1:], strict=True)]
            if min(grown) >= 0:
                self.answers[metric] = whole(sum(grown) * unit / (now - before[0]))

    def _grown_narrow(
        self,
        metric: int,
        before: tuple[float, float, float],
        now: float,
        counts: tuple[float, float],
        unit: int,
    ) -> None:
        """Growth of a counter of 32 bits: told only where it cannot have gone round unseen."""
        self.every = 0.0
        seconds = now - before[0]
        limit = self._pcie_limit if metric == 0 else None
        if limit is None or seconds * limit > _ROUND:
            # The first time lies as far back as a wide counter may, and a look may come late.
            self._unsure[metric] += 1
            self.codes[metric] = NARROW if self._unsure[metric] > 3 else 0
            return
        self._unsure[metric] = 0
        grown = [(new - old) % _ROUND for new, old in zip(counts, before[1:], strict=True)]
        self.answers[metric] = whole(sum(grown) * unit / seconds)
