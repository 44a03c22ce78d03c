"""What changes in each rank's buffer, seen whenever the rank enters a call and when it ends."""

from __future__ import annotations

import numpy as np

from labkit.collectives.trace import State

__all__ = ["KEEP", "Changes"]

KEEP = 16_000_000  # bytes; a run that changes more keeps no states
GAP = 8  # runs of changed elements that are closer than this are one


class Changes:
    """Each rank's buffer as it was last seen, and the runs of elements that have changed since."""

    def __init__(self, buffers: list[np.ndarray]) -> None:
        self.states: list[State] = []
        self.complete = True
        self._bytes = 0
        self._live = [_words(buffer) for buffer in buffers]
        self._seen = [words.copy() for words in self._live]
        self._flat = [buffer.reshape(-1) for buffer in buffers]

    def look(self, rank: int, clock: int) -> None:
        """Keep what has changed since the last look, with the clock of the rank."""
        if not self.complete:
            return
        live, seen = self._live[rank], self._seen[rank]
        differs = live != seen
        if differs.ndim > 1:
            differs = differs.any(axis=1)
        changed = differs.nonzero()[0]
        if not changed.size:
            return
        for start, stop in _runs(changed):
            data = self._flat[rank][start:stop].tobytes()
            self.states.append(State(clock, rank, start, data))
            seen[start:stop] = live[start:stop]
            self._bytes += len(data)
        if self._bytes > KEEP:
            self.complete, self.states, self._seen = False, [], []


def _runs(changed: np.ndarray) -> list[tuple[int, int]]:
    first, last = int(changed[0]), int(changed[-1])
    if last - first < changed.size + GAP:
        return [(first, last + 1)]
    cuts = np.flatnonzero(np.diff(changed) > GAP) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(changed, cuts)]


def _words(buffer: np.ndarray) -> np.ndarray:
    """The buffer's bits as whole numbers, one or more to an element: NaN is not equal to itself."""
    size = buffer.itemsize
    word = next(width for width in (8, 4, 2, 1) if size % width == 0)
    words = buffer.reshape(-1).view(f"u{word}")
    return words if size == word else words.reshape(-1, size // word)
