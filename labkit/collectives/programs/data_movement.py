"""The collectives that only copy: broadcast, scatter, gather, all-gather, all-to-all, barrier."""

from __future__ import annotations

import numpy as np

from labkit.collectives.programs.buffers import Array, Comm, powers_of_two, split


def naive_broadcast(comm: Comm, buffer: Array, root: int = 0) -> None:
    """The root sends its buffer to every other rank, one after the other."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    if rank == root:
        for other in range(ranks):
            if other != root:
                comm.Send(buffer, dest=other)
    else:
        comm.Recv(buffer, source=root)


def broadcast(comm: Comm, buffer: Array, root: int = 0) -> None:
    """Each rank that has the data passes it on: with each step, twice as many ranks have it."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    place = (rank - root) % ranks  # the root is at place 0
    for have in powers_of_two(ranks):
        if place < have and place + have < ranks:
            comm.Send(buffer, dest=(rank + have) % ranks)
        elif have <= place < 2 * have:
            comm.Recv(buffer, source=(rank - have) % ranks)


def scatter(comm: Comm, buffer: Array, root: int = 0) -> None:
    """The root sends every rank its own chunk."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = split(buffer, ranks)
    if rank == root:
        for other in range(ranks):
            if other != root:
                comm.Send(chunks[other], dest=other)
    else:
        comm.Recv(chunks[rank], source=root)


def gather(comm: Comm, buffer: Array, root: int = 0) -> None:
    """Every rank sends its own chunk to the root."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = split(buffer, ranks)
    if rank == root:
        for other in range(ranks):
            if other != root:
                comm.Recv(chunks[other], source=other)
    else:
        comm.Send(chunks[rank], dest=root)


def all_gather(comm: Comm, buffer: Array) -> None:
    """Every chunk travels once round the ring, and every rank keeps a copy."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = split(buffer, ranks)  # chunks[-1] is the last one: the numbers go round, too
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):
        out, into = chunks[rank - step], chunks[left - step]
        comm.Sendrecv(out, dest=right, recvbuf=into, source=left)


def all_to_all(comm: Comm, buffer: Array) -> None:
    """Every rank sends chunk j to rank j, and keeps what rank j sends as its own chunk j."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    outgoing, incoming = split(buffer.copy(), ranks), split(buffer, ranks)
    for distance in range(1, ranks):
        dest, source = (rank + distance) % ranks, (rank - distance) % ranks
        comm.Sendrecv(outgoing[dest], dest=dest, recvbuf=incoming[source], source=source)


def barrier(comm: Comm, buffer: Array | None = None) -> None:
    """Empty messages over distances 1, 2, 4, …: after the last one every rank has heard of all."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    nothing = np.empty(0)
    for distance in powers_of_two(ranks):
        dest, source = (rank + distance) % ranks, (rank - distance) % ranks
        comm.Sendrecv(nothing, dest=dest, recvbuf=np.empty(0), source=source)
