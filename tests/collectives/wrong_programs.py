"""A ring all-reduce as students write it, with one mistake or none."""

from __future__ import annotations

import numpy as np


def split(buffer, parts):
    return np.array_split(buffer.reshape(-1), parts)


def ring(comm, buffer, ufunc=np.add, at=None, mistake=None, wire=None):
    """`at=(rank, step)` says where the mistake is made."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = split(buffer, ranks)
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):
        mine, theirs = chunks[rank - step], chunks[left - step]
        received = np.empty(theirs.shape, wire or theirs.dtype)
        comm.Sendrecv(mine.astype(received.dtype), dest=right, recvbuf=received, source=left)
        here = mistake if at in (None, (rank, step)) else None
        if here == "replace":
            theirs[:] = received
        elif here != "forget":
            ufunc(theirs, received, out=theirs)
        if here == "twice":
            ufunc(theirs, received, out=theirs)
        if here == "swap":
            theirs[[0, 1]] = theirs[[1, 0]]
    for step in range(ranks - 1):
        comm.Sendrecv(chunks[right - step], dest=right, recvbuf=chunks[rank - step], source=left)


def weighted(comm, buffer, weights):
    """Everybody gets everything, and adds it up as often as `weights[rank][chunk][owner]` says."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    held = [np.empty_like(buffer) for _ in range(ranks)]
    held[rank][:] = buffer
    for distance in range(1, ranks):
        dest, source = (rank + distance) % ranks, (rank - distance) % ranks
        comm.Sendrecv(buffer, dest=dest, recvbuf=held[source], source=source)
    parts = [split(array, ranks) for array in held]
    for chunk, target in enumerate(split(buffer, ranks)):
        times = weights[rank][chunk]
        target[:] = sum(part[chunk] * count for part, count in zip(parts, times, strict=True))


def numbers(ranks, per_chunk=2, dtype=float):
    size = ranks * per_chunk
    return [(np.arange(size) + 1 + rank * size).astype(dtype) for rank in range(ranks)]
