"""One short program for each collective: read it, run it, animate it, start it under mpiexec.

Every program works in place on one array per rank and calls nothing but `comm` and numpy:

>>> from labkit import collectives
>>> trace = collectives.run(collectives.programs.ring_all_reduce, ranks=4)
>>> trace.outputs[0]
array([28., 32., 36., 40.])
"""

import numpy as np

from labkit.collectives.buffers import Array, Comm, Group, combine, powers_of_two, split

ALL_REDUCES = (
    "naive_all_reduce",
    "parameter_server_all_reduce",
    "tree_all_reduce",
    "recursive_doubling_all_reduce",
    "rabenseifner_all_reduce",
    "ring_all_reduce",
    "hierarchical_all_reduce",
    "double_binary_tree_all_reduce",
)
# Which collective each program is.
MEANING = {
    **{name: name for name in ("broadcast", "reduce", "scatter", "gather", "all_gather")},
    **{name: name for name in ("reduce_scatter", "all_to_all", "barrier")},
    "naive_broadcast": "broadcast",
    **dict.fromkeys(ALL_REDUCES, "all_reduce"),
}

# Collectives that only copy.


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


# Collectives that add up; "add" stands for any reduction: a sum, a maximum.


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
    for step in range(ranks - 1):  # all-gather
        out, into = chunks[right - step], chunks[rank - step]
        comm.Sendrecv(out, dest=right, recvbuf=into, source=left)


# Recursive doubling and halving are made for powers of two. With any other number of ranks, those
# beyond the core hand their data in first and get the total back at the end.


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
        for partner, kept, given in reversed(swaps):
            comm.Sendrecv(kept, dest=partner, recvbuf=given, source=partner)
    fold_out(comm, buffer, core)


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
        reduce_scatter(node, buffer, op)
        ring_all_reduce(peers, mine, op)
        all_gather(node, buffer)
    fold_out(comm, buffer, core)


# Two binary trees at once: a leaf of one is an inner rank of the other.


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
            if parent is not None:
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
