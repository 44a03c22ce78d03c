"""All-reduce by two binary trees at once: a leaf of one is an inner rank of the other."""

from __future__ import annotations

import numpy as np

from labkit.collectives.programs.buffers import Array, Comm, split
from labkit.collectives.programs.reduction import combine, finish


def parent_of(place: int, ranks: int) -> int | None:
    """The parent of a place 1, 2, … in a tree in which the odd places are the leaves.

    Places with one more trailing zero in binary are one level higher: of 1 to 7, the root is 4,
    its children are 2 and 6, and theirs are 1, 3, 5 and 7. Parents that are missing are skipped.
    """
    level = place & -place
    while level <= ranks:
        place = (place - level) | (2 * level)
        level *= 2
        if place <= ranks:
            return place
    return None


def family(rank: int, ranks: int, shift: int) -> tuple[int | None, list[int]]:
    """Parent and children of a rank in the tree that is turned by `shift` ranks."""
    parents = {}
    for other in range(ranks):
        parent = parent_of((other + shift) % ranks + 1, ranks)
        parents[other] = None if parent is None else (parent - 1 - shift) % ranks
    return parents[rank], [other for other, parent in parents.items() if parent == rank]


def double_binary_tree_all_reduce(
    comm: Comm, buffer: Array, op: str = "sum", pieces: int = 4
) -> None:
    """Each tree adds up one half of the data, piece by piece, and hands the total down again."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    halves = [split(half, pieces) for half in split(buffer, 2)]
    received = np.empty_like(halves[0][0])  # no piece is longer than the first
    trees = [(tree, *family(rank, ranks, shift=tree)) for tree in (0, 1)]
    trees.sort(key=lambda family: len(family[2]))  # a leaf need not wait, so that tree is first
    sends = []
    for tree, parent, children in trees:  # reduce
        for piece in halves[tree]:
            for child in children:
                comm.Recv(received[: piece.size], source=child, tag=tree)
                combine(op, piece, received[: piece.size])
            if parent is None:
                finish(op, piece, ranks)
            else:
                sends.append(comm.Isend(piece, dest=parent, tag=tree))
    for send in sends:
        send.Wait()
    trees.reverse()  # now a leaf has nothing to pass on, so that tree is last
    arrivals = [
        comm.Irecv(piece, source=parent, tag=tree)
        for tree, parent, _ in trees
        if parent is not None
        for piece in halves[tree]
    ]
    for tree, parent, children in trees:  # broadcast
        for piece in halves[tree]:
            if parent is not None:
                arrivals.pop(0).Wait()
            for child in children:
                comm.Send(piece, dest=child, tag=tree)
