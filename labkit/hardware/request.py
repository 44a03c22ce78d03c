"""What a student asked `labkit.replicas` for, checked before TensorFlow is touched."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labkit.kinds import LabError

__all__ = ["Request", "UnknownDeviceError", "understand"]

_NAME = re.compile(
    r"(?:/job:localhost/replica:0/task:0)?/?(?:device:)?(?P<kind>cpu|gpu):(?P<number>\d{1,6})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Request:
    """`numbers` are the devices wanted; `named` says that the student chose each of them."""

    kind: Literal["cpu", "gpu"] | None
    count: int
    highest: int  # apart from `numbers`: somebody will ask for 10**30 of them
    numbers: Sequence[int]
    named: bool
    asked: str


class UnknownDeviceError(Exception):
    """A device name that labkit does not know; the caller adds which devices there are."""


def understand(n: object, devices: object) -> Request:
    """The request in plain values, or a LabError with what was written."""
    chosen = _kind(devices)
    if devices is None or chosen:
        count = 2 if n is None else _count(n)
        where = f" on {chosen.upper()}s" if chosen else ""
        asked = f"{count:,} replica{'s' if count > 1 else ''}{where}"
        return Request(chosen, count, count - 1, range(count), False, asked)
    names = [devices] if isinstance(devices, str) else _listed(devices)
    found = [_device(name) for name in names]
    asked = f"the devices {names!r}"
    if not found:
        raise LabError(
            "You asked for an empty list of devices. Name at least one, such as "
            '["cpu:0", "cpu:1"], or leave devices out.'
        )
    if n is not None and _count(n) != len(found):
        raise LabError(
            f"You asked for {n} replicas but named {len(found)} devices: {names!r}. "
            "Leave n out, or name as many devices as replicas."
        )
    kinds = {kind for kind, _ in found}
    if len(kinds) > 1:
        raise LabError(
            f"You asked for {asked}, which mixes CPUs and GPUs. Every step would wait for the CPU: "
            "name only GPUs or only CPUs."
        )
    if len(set(found)) < len(found):
        raise LabError(
            f"You asked for {asked}, where one device stands twice. Each replica needs a device of "
            "its own: name each once."
        )
    numbers = tuple(number for _, number in found)
    return Request(kinds.pop(), len(numbers), max(numbers), numbers, True, asked)


def _kind(devices: object) -> Literal["cpu", "gpu"] | None:
    written = devices.strip().lower() if isinstance(devices, str) else ""
    return "cpu" if written == "cpu" else "gpu" if written == "gpu" else None


def _count(n: object) -> int:
    try:
        if isinstance(n, bool):
            raise TypeError
        count = operator.index(n)  # type: ignore[arg-type]
    except TypeError:
        raise LabError(
            f"You asked for {n!r} replicas. Give a whole number, such as labkit.replicas(2)."
        ) from None
    if count < 1:
        raise LabError(
            f"You asked for {count} replicas. A lesson needs at least one: labkit.replicas(1) "
            "trains on one device, labkit.replicas(2) on two."
        )
    return count


def _listed(devices: object) -> list[object]:
    try:
        listed = list(devices)  # type: ignore[call-overload]
    except TypeError:
        raise UnknownDeviceError(repr(devices)) from None
    # NumPy's strings are strings that print otherwise.
    return [str(name) if isinstance(name, str) else name for name in listed]


def _device(name: object) -> tuple[Literal["cpu", "gpu"], int]:
    match = _NAME.fullmatch(name.strip()) if isinstance(name, str) else None
    if match is None:
        raise UnknownDeviceError(repr(name))
    return ("gpu" if match["kind"].lower() == "gpu" else "cpu"), int(match["number"])
