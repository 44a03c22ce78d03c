"""Sizes and bandwidths as nccl-tests counts them, so that numbers can be laid side by side.

>>> sizes_of("1k:8k")
(1024, 2048, 4096, 8192)
>>> round(bus_bandwidth("all_reduce", 4, 16e6, 0.012) / 1e9, 3)
2.0

The algorithm's bandwidth is S/t: how much of your data is done in a second. The bus bandwidth is
that times a factor, the share of S that the busiest link must carry: 2(n-1)/n for an all-reduce.
It can be held against the link's own speed, whatever the number of ranks
(nccl-tests, doc/PERFORMANCE.md, read in 2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from labkit.kinds import LabError

__all__ = ["COLLECTIVES", "algorithm_bandwidth", "bus_bandwidth", "bus_factor", "sizes_of"]

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all")

# As in nccl-tests, 1k is 1024.
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_MOST = 4 << 30


def bus_factor(collective: str, ranks: int) -> float:
    """How many times S the busiest link carries.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    share = (ranks - 1) / ranks
    if collective == "all_reduce":
        return 2 * share
    return 1.0 if collective in ("broadcast", "reduce") else share


def algorithm_bandwidth(nbytes: float, seconds: float) -> float:
    """Bytes of the user's data per second."""
    return nbytes / seconds


def bus_bandwidth(collective: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bytes per second on the busiest link. For all-gather and the like S is the whole buffer."""
    return algorithm_bandwidth(nbytes, seconds) * bus_factor(collective, ranks)


def sizes_of(asked: str | int | Sequence[int]) -> tuple[int, ...]:
    """Bytes: one number, several, or a range as text that doubles from its start to its end."""
    if isinstance(asked, str):
        found = _doubling(asked)
    else:
        found = (asked,) if isinstance(asked, int) else tuple(asked)
    for size in found:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= _MOST:
            raise LabError(
                f"{size!r} is no size of a buffer here. Give whole bytes from 1 up to 4 GiB."
            )
    if not found:
        raise LabError('There are no sizes. Give some, such as sizes="1k:16M".')
    return tuple(sorted(set(found)))


def _doubling(text: str) -> tuple[int, ...]:
    ends = [_bytes(part, text) for part in text.split(":")]
    if len(ends) == 1:
        return (ends[0],)
    if len(ends) != 2 or not 0 < ends[0] <= ends[1]:
        raise LabError(
            f"{text!r} is no range of sizes. Give the smallest and the largest, such as 1k:16M."
        )
    sizes = [ends[0]]
    while sizes[-1] * 2 <= ends[1]:
        sizes.append(sizes[-1] * 2)
    return tuple(sizes)


def _bytes(part: str, whole: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([kmg]?)(i?b)?\s*", part.lower())
    if not found:
        raise LabError(
            f"{part!r} in {whole!r} is no size. Write a number and k, M or G (1k is 1024 bytes), "
            "such as 1k:16M."
        )
    return int(found[1]) * _UNITS[found[2]]
