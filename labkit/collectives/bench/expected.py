"""What the ranks start with, and what each must hold at the end: exact in every dtype.

Whole numbers, random and with the rank in them: a chunk in the wrong position, a contribution that
is missing or counted twice gives another number, and no rounding hides it.
"""

from __future__ import annotations

import numpy as np

from labkit.collectives.records import Array

__all__ = ["MOST_RANKS", "inputs_of", "wrong_elements"]

MOST_RANKS = 64  # the sum of so many inputs is exact in float32
_PERIOD = 97  # a prime: no chunk of a usual size looks like the next one


def inputs_of(rank: int, count: int, dtype: str) -> Array:
    """The buffer of one rank before the call; no two ranks share an element."""
    return np.resize(_pattern(rank).astype(dtype), count)


def _pattern(rank: int) -> Array:
    return np.random.default_rng(rank).integers(0, 100, _PERIOD) * MOST_RANKS + rank + 1


def wrong_elements(buffer: Array, collective: str, rank: int, ranks: int) -> int:
    """How many elements of the rank's buffer are not what the collective must leave there."""
    if collective == "reduce" and rank != 0:
        return 0  # only the root has a result
    part = buffer.size // ranks
    own = slice(rank * part, (rank + 1) * part)
    held = buffer[own] if collective == "reduce_scatter" else buffer
    if collective in ("all_reduce", "reduce", "reduce_scatter"):
        total = np.sum([_pattern(other) for other in range(ranks)], axis=0)
        expected = np.resize(total.astype(buffer.dtype), buffer.size)
        expected = expected[own] if collective == "reduce_scatter" else expected
    elif collective == "broadcast":
        expected = inputs_of(0, buffer.size, buffer.dtype.str)
    else:
        expected = np.empty_like(buffer)
        for other in range(ranks):
            given = inputs_of(other, buffer.size, buffer.dtype.str)
            chunk = slice(other * part, (other + 1) * part)
            expected[chunk] = given[own if collective == "all_to_all" else chunk]
    return int(np.count_nonzero(held != expected))
