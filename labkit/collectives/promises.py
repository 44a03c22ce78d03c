"""What each collective promises: what every rank must hold, chunk by chunk, when it has ended.

>>> promises("gather", ranks=2, size=4, root=0)
(Piece(rank=0, chunk=0, start=0, stop=2, owner=0, begin=0), \
Piece(rank=0, chunk=1, start=2, stop=4, owner=1, begin=2))
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from labkit.collectives.provenance import chunks
from labkit.kinds import LabError

__all__ = ["COLLECTIVES", "REDUCTIONS", "ROOTED", "Piece", "known", "promises"]

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "gather", "reduce", "scatter")
COLLECTIVES = (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
)


@dataclass(frozen=True)
class Piece:
    """Elements of one rank's buffer, in one chunk, and what must be in them at the end.

    The `owner`'s elements from `begin` on; without an owner, the reduction of all ranks' elements
    at the same place.
    """

    rank: int
    chunk: int
    start: int
    stop: int
    owner: int | None
    begin: int


def known(collective: str) -> str:
    """The collective's name, or a sentence about the names there are."""
    if collective in COLLECTIVES:
        return collective
    close = get_close_matches(str(collective), COLLECTIVES, 1, 0.5)
    meant = f" Did you mean {close[0]!r}?" if close else ""
    raise LabError(
        f"{collective!r} is no collective that labkit can check.{meant} "
        f"There are {', '.join(COLLECTIVES)}."
    )


def promises(collective: str, ranks: int, size: int, root: int) -> tuple[Piece, ...]:
    """The pieces that a collective says something about; what it leaves open is in none."""
    cut = chunks(size, ranks)
    every = range(ranks)
    if collective == "all_to_all":
        if size % ranks:
            raise LabError(
                f"all_to_all swaps chunks of one size, but {size} elements cannot be cut into "
                f"{ranks} equal chunks. Take a multiple of {ranks} elements."
            )
        return tuple(
            Piece(r, j, *cut[j], owner=j, begin=cut[r][0])
            for r in every
            for j in every
            if cut[j][0] < cut[j][1]
        )
    holders: dict[str, list[tuple[int, int, int | None]]] = {
        "all_reduce": [(r, j, None) for r in every for j in every],
        "reduce": [(root, j, None) for j in every],
        "reduce_scatter": [(r, r, None) for r in every],
        "broadcast": [(r, j, root) for r in every for j in every],
        "scatter": [(r, r, root) for r in every],
        "gather": [(root, j, j) for j in every],
        "all_gather": [(r, j, j) for r in every for j in every],
        "barrier": [],
    }
    return tuple(
        Piece(rank, chunk, *cut[chunk], owner=owner, begin=cut[chunk][0])
        for rank, chunk, owner in holders[collective]
        if cut[chunk][0] < cut[chunk][1]
    )
