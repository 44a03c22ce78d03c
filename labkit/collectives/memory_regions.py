"""Where the data of a call lie: the flat view of what a program handed over, and its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.collectives import faults

if TYPE_CHECKING:
    from labkit.collectives.posts import Entered

__all__ = ["address", "flat_view", "overlap", "region"]

FORBIDDEN = "OSUV"  # objects and texts; bfloat16 and its kind are V too, and allowed by name


def flat_view(buf: Any, call: Entered, *, writable: bool = False) -> np.ndarray:
    """The elements of a buffer in their order in memory: no copy, so that a receive fills them."""
    array, count, first = _parts(buf, call)
    array = array if isinstance(array, np.ndarray) else _as_array(array, call)
    if array.dtype.kind in FORBIDDEN and (array.dtype.kind != "V" or array.dtype.names):
        raise faults.no_numbers(call, array.dtype)
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        raise faults.not_contiguous(call, array)
    if writable and not flags.writeable:
        raise faults.read_only(call)
    flat: np.ndarray = array.reshape(-1) if flags.c_contiguous else array.reshape(-1, order="F")
    if count is not None:
        if first < 0 or count < 0 or first + count > flat.size:
            raise faults.count_too_large(call, first + count, flat.size)
        flat = flat[first : first + count]
    return flat


def _parts(buf: Any, call: Entered) -> tuple[Any, int | None, int]:
    """Array, count and first element of `array`, `[array, count]`, `[array, (count, first), type]`.

    The type itself is not looked at: a numpy array knows its own.
    """
    if not isinstance(buf, (list, tuple)):
        return buf, None, 0
    if not buf or isinstance(buf[0], (bool, int, float, complex)):
        raise faults.no_array(call, buf)
    count, first = None, 0
    for extra in buf[1:]:
        if isinstance(extra, (int, np.integer)):
            count = int(extra)
        elif isinstance(extra, (tuple, list)) and len(extra) == 2:
            count, first = int(extra[0]), int(extra[1])
    return buf[0], count, first


def _as_array(thing: Any, call: Entered) -> np.ndarray:
    if isinstance(thing, np.generic):
        scalar = np.asarray(thing)
        scalar.flags.writeable = False  # a receive into it would be lost
        return scalar
    try:
        array: np.ndarray = np.asarray(memoryview(thing))
    except (TypeError, ValueError):
        raise faults.no_array(call, thing) from None
    return array


def region(flat: np.ndarray, buffer: np.ndarray, start: int) -> tuple[int, int] | None:
    """The elements (first, last + 1) of a rank's buffer that `flat` is; None when it is elsewhere.

    `start` is the address of the buffer, which does not change.
    """
    if flat.base is not buffer and flat is not buffer:
        return None
    first = (address(flat) - start) // buffer.itemsize
    count = -(-flat.nbytes // buffer.itemsize)
    return (first, first + count) if 0 <= first <= buffer.size else None


def overlap(one: np.ndarray | None, other: np.ndarray) -> bool:
    """Whether two stretches of memory have a byte in common."""
    return one is not None and bool(np.may_share_memory(one, other)) and one.size * other.size > 0


def address(array: np.ndarray) -> int:
    """Where the array's first element lies."""
    return int(array.__array_interface__["data"][0])
