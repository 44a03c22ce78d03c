"""All-reduce with partners at distance 1, 2, 4, …: few steps, made for powers of two.

With any other number of ranks, the ranks beyond the largest power of two hand their data in first
and get the total back at the end.
"""

from __future__ import annotations

import numpy as np

from labkit.collectives.programs.buffers import Array, Comm, powers_of_two, split
from labkit.collectives.programs.reduction import combine, finish


def fold_in(comm: Comm, buffer: Array, op: str, core: int) -> None:
    """Each rank from `core` on hands its data to the rank `core` below, which adds it."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    if rank >= core:
        comm.Send(buffer, dest=rank - core)
    elif rank + core < ranks:
        received = np.empty_like(buffer)
        comm.Recv(received, source=rank + core)
        combine(op, buffer, received)


def fold_out(comm: Comm, buffer: Array, core: int) -> None:
    """Each rank from `core` on gets the total from the rank `core` below."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    if rank >= core:
        comm.Recv(buffer, source=rank - core)
    elif rank + core < ranks:
        comm.Send(buffer, dest=rank + core)


def recursive_doubling_all_reduce(comm: Comm, buffer: Array, op: str = "sum") -> None:
    """Swap everything with a partner and add it: a sum covers 2, 4, 8, … ranks."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    core = powers_of_two(ranks + 1)[-1]  # the largest power of two
    fold_in(comm, buffer, op, core)
    if rank < core:
        received = np.empty_like(buffer)
        for distance in powers_of_two(core):
            partner = rank ^ distance
            comm.Sendrecv(buffer, dest=partner, recvbuf=received, source=partner)
            combine(op, buffer, received)
        finish(op, buffer, ranks)
    fold_out(comm, buffer, core)


def rabenseifner_all_reduce(comm: Comm, buffer: Array, op: str = "sum") -> None:
    """Give a partner half of what is left and add up the other half; then take the halves back."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    core = powers_of_two(ranks + 1)[-1]  # the largest power of two
    fold_in(comm, buffer, op, core)
    if rank < core:
        (kept,) = split(buffer, 1)
        received, swaps = np.empty_like(kept), []
        for distance in reversed(powers_of_two(core)):
            partner = rank ^ distance
            lower, upper = split(kept, 2)
            kept, given = (lower, upper) if rank < partner else (upper, lower)
            comm.Sendrecv(given, dest=partner, recvbuf=received[: kept.size], source=partner)
            combine(op, kept, received[: kept.size])
            swaps.append((partner, kept, given))
        finish(op, kept, ranks)
        for partner, kept, given in reversed(swaps):
            comm.Sendrecv(kept, dest=partner, recvbuf=given, source=partner)
    fold_out(comm, buffer, core)
