"""All-reduce for nodes with fast links inside and slow links between them."""

from __future__ import annotations

from labkit.collectives.programs.buffers import Array, Comm, split
from labkit.collectives.programs.data_movement import all_gather
from labkit.collectives.programs.group import Group
from labkit.collectives.programs.recursive_doubling import fold_in, fold_out
from labkit.collectives.programs.reduction import finish, undivided
from labkit.collectives.programs.reductions import reduce_scatter, ring_all_reduce


def hierarchical_all_reduce(comm: Comm, buffer: Array, op: str = "sum", per_node: int = 2) -> None:
    """Add up inside each node, then between the nodes, one chunk per rank; then copy inside."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    per_node = min(per_node, ranks)
    core = ranks - ranks % per_node  # an incomplete last node hands its data in first
    fold_in(comm, buffer, op, core)
    if rank < core:
        place, first = rank % per_node, rank - rank % per_node
        node = Group(comm, range(first, first + per_node))
        peers = Group(comm, range(place, core, per_node))
        mine = split(buffer, per_node)[place]
        reduce_scatter(node, buffer, undivided(op))
        ring_all_reduce(peers, mine, undivided(op))
        finish(op, mine, ranks)
        all_gather(node, buffer)
    fold_out(comm, buffer, core)
