"""What the ranks' buffers held and when, and memory that a receive is still filling."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from labkit.collectives.messages import End, OpenCall
from labkit.collectives.records import Array, State

__all__ = ["BufferLog", "poison", "poisoned_by"]

KEEP = 16_000_000  # bytes; a run that changes more keeps no states


class BufferLog:
    """What changes in each rank's buffer, seen whenever the rank makes a call and when it ends."""

    def __init__(self, buffers: list[Array]) -> None:
        self.complete = True
        self._buffers = buffers
        self._addresses = [_address(buffer) for buffer in buffers]
        self._live = [_words(buffer) for buffer in buffers]
        self._seen = [words.copy() for words in self._live]
        self._found: list[tuple[OpenCall | None, int, int, bytes]] = []
        self._bytes = 0

    def region(self, rank: int, memory: Array) -> tuple[int, int] | None:
        """The elements (start, stop) of the rank's buffer that some memory is, if it is any."""
        buffer = self._buffers[rank]
        offset = _address(memory) - self._addresses[rank]
        if not 0 <= offset <= buffer.nbytes - memory.nbytes:
            return None
        start = offset // buffer.itemsize
        return start, start - -memory.nbytes // buffer.itemsize

    def observe(self, rank: int, last: OpenCall | None, receiving: Iterable[End]) -> None:
        """Keep what has changed since the last time, after the last call that returned."""
        live, seen = self._live[rank], self._seen[rank]
        if not self.complete:
            return
        differs = live != seen
        for end in receiving:
            if end.region is not None:
                differs[slice(*end.region)] = False
        changed = differs.nonzero()[0]
        if changed.size:
            start, stop = int(changed[0]), int(changed[-1]) + 1
            np.copyto(seen, live, where=differs)
            data = seen[start:stop].tobytes()
            self._found.append((last, rank, start, data))
            self._bytes += len(data)
        if self._bytes > KEEP:
            self.complete, self._found = False, []

    def states(self) -> tuple[State, ...]:
        """The changes as plain data, when the calls have their steps."""
        return tuple(
            State(last.step if last else 0, rank, start, data)
            for last, rank, start, data in self._found
        )


def _words(buffer: Array) -> Array:
    """The buffer's bits as whole numbers, a row for each element: NaN is not equal to itself."""
    width = min(8, buffer.itemsize)
    return buffer.reshape(-1).view(f"u{width}").reshape(buffer.size, -1 if buffer.size else 1)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


# Memory that is receiving is filled with a signalling NaN that has a number. Arithmetic makes it
# quiet, so that a write is seen, and passes the number on, which says what receive it comes from.
_SIGNALLING = {4: 0x7F800000, 8: 0x7FF0000000000000}
_NUMBERS = 1 << 22


def poison(memory: Array, number: int) -> None:
    """Fill memory with what no program can take for a result; numbers count from 1."""
    words, kind = _float_words(memory), memory.dtype.kind
    if words is not None:
        words[...] = _SIGNALLING[words.itemsize] + number % _NUMBERS
    elif kind in "fcV":
        memory.view("u1")[...] = 0x7D  # in a float16 a signalling NaN too
    elif kind == "b":
        memory[...] = ~memory
    else:
        memory[...] = np.iinfo(memory.dtype).max - 1


def poisoned_by(memory: Array) -> int:
    """The number of the first such NaN in memory, or 0; other dtypes have no room for one."""
    words = _float_words(memory)
    if words is None:
        return 0
    numbers = words[np.isnan(words.view(f"f{words.itemsize}"))] % _NUMBERS
    return int(next(iter(numbers[numbers > 0]), 0))


def _float_words(memory: Array) -> Array | None:
    """The bits of floats of 4 and 8 bytes, and of the two halves of complex numbers."""
    width = memory.itemsize // (2 if memory.dtype.kind == "c" else 1)
    if memory.dtype.kind not in "fc" or width not in _SIGNALLING or not memory.dtype.isnative:
        return None
    return memory.view(f"u{width}")
