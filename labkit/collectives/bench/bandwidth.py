"""Sizes and bandwidths as nccl-tests counts them, so that numbers can be compared.

>>> sizes_of("1k:8k")
(1024, 2048, 4096, 8192)
>>> round(bus_bandwidth("all_reduce", 4, 16e6, 0.012) / 1e9, 3)
2.0

The algorithm's bandwidth is S/t: how much of your data is done in a second. The bus bandwidth is
that times a factor, the share of S that the busiest link must carry: 2(n-1)/n for an all-reduce.
It can be compared with the link's own speed, whatever the number of ranks
(nccl-tests, doc/PERFORMANCE.md, read in 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from labkit.arguments import one_of, whole
from labkit.kinds import LabError

__all__ = ["COLLECTIVES", "algorithm_bandwidth", "bus_bandwidth", "bus_factor", "sizes_of"]

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all")

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}  # as in nccl-tests, 1k is 1024
_LARGEST = 4 << 30


def bus_factor(collective: str, ranks: int) -> float:
    """How many times S the busiest link carries.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    one_of("collective", collective, COLLECTIVES)
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0}.get(collective, share)


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """Bytes of the user's data per second."""
    return nbytes / seconds


def bus_bandwidth(collective: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bytes per second on the busiest link. For all-gather and the like S is the whole buffer."""
    return algorithm_bandwidth(nbytes, seconds) * bus_factor(collective, ranks)


def sizes_of(sizes: str | int | Sequence[int]) -> tuple[int, ...]:
    """Bytes: one number, several, or a range as text that doubles from its start to its end."""
    found = _doubling(sizes) if isinstance(sizes, str) else sizes
    several = found if isinstance(found, (list, tuple, range)) else [found]
    checked = {whole("sizes", size, at_least=1, at_most=_LARGEST) for size in several}
    if not checked:
        raise LabError('sizes must name at least one, such as sizes="1k:16M", got none.')
    return tuple(sorted(checked))


def _doubling(text: str) -> list[int]:
    size = r"(\d+)([kmg]?)(?:i?b)?"
    found = re.fullmatch(f"{size}(?::{size})?", text.lower().replace(" ", ""))
    if not found:
        raise LabError(
            "sizes must be a size or a range with k, M or G (1k is 1024 bytes), such as "
            f"'1k:16M', got {text!r}."
        )
    first = int(found[1]) * _UNITS[found[2]]
    last = int(found[3]) * _UNITS[found[4]] if found[3] else first
    if not 0 < first <= last:
        raise LabError(f"sizes must start above 0 and end no lower, got {text!r}.")
    return [first << power for power in range((last // first).bit_length())]
