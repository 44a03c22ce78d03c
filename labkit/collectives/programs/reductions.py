"""The collectives that add up: reduce, reduce-scatter, and all-reduce in four ways.

"Add" stands for any reduction: a sum, a maximum, a product.
"""

from __future__ import annotations

import numpy as np

from labkit.collectives.programs.buffers import Array, Comm, powers_of_two, split
from labkit.collectives.programs.data_movement import broadcast
from labkit.collectives.programs.reduction import combine, finish


def reduce(comm: Comm, buffer: Array, op: str = "sum", root: int = 0) -> None:
    """A broadcast backwards: with each step, half of the ranks add theirs to the other half's."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    received = np.empty_like(buffer)
    place = (rank - root) % ranks  # the root is at place 0
    for left in reversed(powers_of_two(ranks)):
        if left <= place < 2 * left:
            comm.Send(buffer, dest=(rank - left) % ranks)
        elif place < left and place + left < ranks:
            comm.Recv(received, source=(rank + left) % ranks)
            combine(op, buffer, received)
    if rank == root:
        finish(op, buffer, ranks)


def reduce_scatter(comm: Comm, buffer: Array, op: str = "sum") -> None:
    """Every chunk travels round the ring to its own rank, and all on the way add theirs."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = split(buffer, ranks)  # chunks[-1] is the last one: the numbers go round, too
    received = np.empty_like(chunks[0])  # no chunk is longer than the first
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(1, ranks):
        out, into = chunks[rank - step], chunks[left - step]
        comm.Sendrecv(out, dest=right, recvbuf=received[: into.size], source=left)
        combine(op, into, received[: into.size])
    finish(op, chunks[rank], ranks)


def naive_all_reduce(comm: Comm, buffer: Array, op: str = "sum") -> None:
    """Rank 0 adds up what all others send, and sends the total to each of them."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    if rank > 0:
        comm.Send(buffer, dest=0)
        comm.Recv(buffer, source=0)
        return
    received = np.empty_like(buffer)
    for other in range(1, ranks):
        comm.Recv(received, source=other)
        combine(op, buffer, received)
    finish(op, buffer, ranks)
    for other in range(1, ranks):
        comm.Send(buffer, dest=other)


def parameter_server_all_reduce(comm: Comm, buffer: Array, op: str = "sum") -> None:
    """Every rank is the server of one chunk: all push theirs to it, and pull the total."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = split(buffer, ranks)
    served = chunks[rank]
    received = np.empty_like(served)
    for distance in range(1, ranks):
        server, worker = (rank + distance) % ranks, (rank - distance) % ranks
        comm.Sendrecv(chunks[server], dest=server, recvbuf=received, source=worker)
        combine(op, served, received)
    finish(op, served, ranks)
    for distance in range(1, ranks):
        server, worker = (rank - distance) % ranks, (rank + distance) % ranks
        comm.Sendrecv(served, dest=worker, recvbuf=chunks[server], source=server)


def tree_all_reduce(comm: Comm, buffer: Array, op: str = "sum") -> None:
    """Reduce to rank 0 by a tree, and broadcast the total back by the same tree."""
    reduce(comm, buffer, op)
    broadcast(comm, buffer)


def ring_all_reduce(comm: Comm, buffer: Array, op: str = "sum") -> None:
    """Every chunk travels round the ring twice: once to be added up, once to be copied."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = split(buffer, ranks)  # chunks[-1] is the last one: the numbers go round, too
    received = np.empty_like(chunks[0])  # no chunk is longer than the first
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):  # reduce-scatter
        out, into = chunks[rank - step], chunks[left - step]
        comm.Sendrecv(out, dest=right, recvbuf=received[: into.size], source=left)
        combine(op, into, received[: into.size])
    finish(op, chunks[right], ranks)  # the chunk that is complete here
    for step in range(ranks - 1):  # all-gather
        out, into = chunks[right - step], chunks[rank - step]
        comm.Sendrecv(out, dest=right, recvbuf=into, source=left)
