"""What the ranks begin with, and what each must hold at the end: exact in every dtype.

>>> inputs_of(rank=0, count=5, dtype="float32")
array([1., 4., 7., 3., 6.], dtype=float32)

Small whole numbers that differ by rank and by element: a chunk in the wrong place, a contribution
that is missing or counted twice gives another number, and no rounding hides it.
"""

from __future__ import annotations

import numpy as np

from labkit.collectives.operations import Array

__all__ = ["inputs_of", "outputs_of", "wrong_elements"]

_PERIOD = 31  # a prime: no chunk of a usual size looks like the next one


def inputs_of(rank: int, count: int, dtype: str) -> Array:
    """The buffer of one rank before the call."""
    pattern = (np.arange(_PERIOD) * 3 + rank * 5) % 7 + 1
    return np.resize(pattern.astype(dtype), count)


def outputs_of(collective: str, rank: int, ranks: int, count: int, dtype: str) -> list[Array]:
    """What the rank's chunks must hold after the call; for the whole buffer it is one chunk."""
    if collective == "broadcast":
        return [inputs_of(0, count, dtype)]
    if collective in ("all_reduce", "reduce"):
        total = np.zeros(count, dtype)
        for other in range(ranks):
            total += inputs_of(other, count, dtype)
        return [total]
    parts = count // ranks
    where = [slice(part * parts, (part + 1) * parts) for part in range(ranks)]
    if collective == "all_gather":
        return [inputs_of(other, count, dtype)[where[other]] for other in range(ranks)]
    if collective == "all_to_all":
        return [inputs_of(other, count, dtype)[where[rank]] for other in range(ranks)]
    total = np.zeros(parts, dtype)  # reduce_scatter: the rank's own chunk only
    for other in range(ranks):
        total += inputs_of(other, count, dtype)[where[rank]]
    return [total]


def wrong_elements(buffer: Array, collective: str, rank: int, ranks: int) -> int:
    """How many elements of the rank's buffer are not what they must be."""
    must = outputs_of(collective, rank, ranks, buffer.size, buffer.dtype.str)
    held = buffer
    if collective == "reduce" and rank != 0:
        return 0  # nobody promises what the others hold
    if collective == "reduce_scatter":
        part = buffer.size // ranks
        held = buffer[rank * part : (rank + 1) * part]
    start, wrong = 0, 0
    for chunk in must:
        wrong += int(np.count_nonzero(held[start : start + chunk.size] != chunk))
        start += chunk.size
    return wrong
