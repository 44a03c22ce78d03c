"""What every communicator must do: programs for four ranks, and what each must leave.

Each program is given 10r, 10r + 1, … 10r + 3 on rank r, and names mpi4py's constants. Simulated
ranks, the ranks of labkit.cluster and MPI's run all of them, and each program of the library.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from labkit.collectives import programs, run

RANKS = 4
CASES = {}  # by name: the program, and what each rank must be left with


def inputs():
    """A buffer for each rank."""
    return [10.0 * rank + np.arange(4) for rank in range(RANKS)]


def leaves(**changes):
    """The program leaves these ranks' buffers changed: r1=[...] is that of rank 1."""
    left = [changes.get(f"r{rank}", one.tolist()) for rank, one in enumerate(inputs())]

    def add(program):
        CASES[program.__name__] = program, [list(map(float, one)) for one in left]
        return program

    return add


def all_cases(comm, buffer):
    """What this rank is left with, by case."""
    arrays = {}
    for name, (program, _) in CASES.items():
        arrays[name] = inputs()[comm.Get_rank()]
        program(comm, arrays[name])
        comm.Barrier()
    return arrays


def save_all_cases(comm, buffer, folder):
    """The same, in folder/RANK.npz."""
    np.savez(f"{folder}/{comm.Get_rank()}.npz", **all_cases(comm, buffer))


# Messages.


@leaves(r1=[0, 1, 2, 13])
def messages_of_one_pair_do_not_overtake_one_another(comm, buffer):
    if comm.Get_rank() == 0:
        MPI.Request.Waitall([comm.Isend(buffer[i : i + 1], 1) for i in range(3)])
    elif comm.Get_rank() == 1:
        for i in range(3):
            comm.Recv(buffer[i : i + 1], source=0)


@leaves(r1=[1, 0, 12, 13])
def a_tag_picks_a_message_out_of_its_order(comm, buffer):
    if comm.Get_rank() == 0:
        first, second = comm.Isend(buffer[:1], 1, tag=5), comm.Isend(buffer[1:2], 1, tag=6)
        second.Wait()
        first.Wait()
    elif comm.Get_rank() == 1:
        comm.Recv(buffer[:1], source=0, tag=6)
        comm.Recv(buffer[1:], source=0, tag=MPI.ANY_TAG)


@leaves(r0=[0, 10, 20, 30])
def a_receive_from_anyone_says_who_it_was(comm, buffer):
    if comm.Get_rank():
        comm.Send(buffer[:1], 0, tag=10 + comm.Get_rank())
        return
    for _ in range(3):
        status, piece = MPI.Status(), np.empty(1)
        comm.Recv(piece, source=MPI.ANY_SOURCE, status=status)
        assert status.Get_tag() == 10 + status.Get_source()
        assert (status.Get_count(), status.count, status.Get_count(MPI.DOUBLE)) == (8, 8, 1)
        buffer[status.Get_source()] = piece[0]


@leaves(r1=[0, 1, 0, 13])
def a_shorter_message_fills_the_beginning_of_its_buffer(comm, buffer):
    if comm.Get_rank() == 0:
        comm.Send(buffer[:2], 1)
        comm.Send(buffer[:1], 1)
        comm.Send(np.empty(0), 1)
    elif comm.Get_rank() == 1:
        comm.Recv(buffer[:3], source=0)
        comm.Irecv(buffer[2:], source=0).Wait()
        comm.Recv(buffer, source=0)


@leaves(r1=[10, 0, 12, 13], r2=[20, 10, 22, 23], r3=[30, 20, 32, 33])
def a_message_to_proc_null_is_done_at_once(comm, buffer):
    rank = comm.Get_rank()
    right = rank + 1 if rank + 1 < comm.Get_size() else MPI.PROC_NULL
    left = rank - 1 if rank else MPI.PROC_NULL
    comm.Sendrecv(buffer[:1].copy(), right, recvbuf=buffer[1:2], source=left)
    statuses = [MPI.Status() for _ in range(3)]
    comm.Sendrecv(buffer[:1], MPI.PROC_NULL, 0, buffer[1:], MPI.PROC_NULL, 0, statuses[0])
    comm.Send(None, MPI.PROC_NULL)
    comm.Isend(buffer, MPI.PROC_NULL).Wait()
    comm.Recv(buffer, MPI.PROC_NULL, 5, statuses[1])
    comm.Irecv(buffer, MPI.PROC_NULL).Wait(statuses[2])
    assert {s.Get_source() for s in statuses} == {MPI.PROC_NULL}
    assert {(s.Get_tag(), s.count) for s in statuses} == {(MPI.ANY_TAG, 0)}


@leaves(r1=[0, 1, 1, 2])
def an_array_may_have_a_count_and_its_own_datatype(comm, buffer):
    if comm.Get_rank() == 0:
        comm.Send([buffer, 2], 1)
        comm.Send([buffer, (2, 1), MPI.DOUBLE], 1)
        comm.Send([buffer, "d"], 1)
    elif comm.Get_rank() == 1:
        comm.Recv([buffer, 2, MPI.DOUBLE], source=0)
        comm.Recv([buffer[1:], (2, 1)], source=0)
        other = np.empty(4)
        comm.Recv([other, MPI.DOUBLE], source=0)
        assert other.tolist() == [0, 1, 2, 3]


@leaves(r0=[0, 10, 20, 30], r1=[0, 10, 20, 30], r2=[0, 10, 20, 30], r3=[0, 10, 20, 30])
def other_datatypes_and_bytes_arrive(comm, buffer):
    rank, other = comm.Get_rank(), comm.Get_rank() ^ 1
    sent, into = np.full(2, rank + 1j), np.empty(2, complex)
    comm.Sendrecv([sent, MPI.DOUBLE_COMPLEX], other, 0, [into, MPI.DOUBLE_COMPLEX], other)
    text = bytearray(3)
    request = comm.Isend([b"abc", MPI.BYTE], other)
    comm.Recv([text, MPI.BYTE], source=other)
    request.Wait()
    assert into.tolist() == [other + 1j] * 2
    assert text == b"abc"
    buffer[:] = 0, 10, 20, 30


@leaves(r0=[10, 11, 12, 13], r1=[0, 1, 2, 3], r2=[30, 31, 32, 33], r3=[20, 21, 22, 23])
def requests_are_waited_for_in_any_way(comm, buffer):
    into, status, other = np.empty(5), MPI.Status(), comm.Get_rank() ^ 1
    requests = [MPI.REQUEST_NULL, comm.Irecv(into, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)]
    done = [comm.Irecv(buffer, MPI.PROC_NULL), comm.Isend(buffer, other, tag=4)]
    assert MPI.Request.Waitany(done[:1]) == 0
    assert done[1].Wait() is True
    assert MPI.Request.Waitany(done) == MPI.UNDEFINED
    MPI.Request.Waitall(requests, [MPI.Status(), status])
    MPI.Request.Waitall(requests)  # a second time is over at once
    assert MPI.Request.Waitany(requests) == MPI.UNDEFINED
    assert [status.source, status.tag, status.Get_count(MPI.DOUBLE)] == [other, 4, 4]
    buffer[:] = into[:4]


@leaves(r0=[0, 0, 1, 3])
def waitany_takes_what_is_complete_first(comm, buffer):
    if comm.Get_rank() == 0:
        requests = [comm.Irecv(buffer[i : i + 1], source=i) for i in (1, 2)]
        comm.Send(buffer[:1], 2)  # only then does rank 2 send, and then rank 1
        assert MPI.Request.Waitany(requests) == 1
        comm.Send(buffer[:1], 1)
        assert MPI.Request.Waitany(requests) == 0
    elif comm.Get_rank() < 3:
        go = np.empty(1)
        comm.Recv(go, source=0)
        comm.Send(go + comm.Get_rank() - 1, 0)


@leaves(r0=[0, 1, 2, 0], r1=[10, 11, 12, 10], r2=[20, 21, 22, 20], r3=[30, 31, 32, 30])
def a_message_to_oneself_arrives(comm, buffer):
    request = comm.Irecv(buffer[3:], source=comm.Get_rank())
    comm.Send(buffer[:1], comm.Get_rank())
    request.Wait()


@leaves(r0=[1, 1, 1, 1], r1=[2, 2, 2, 2], r2=[3, 3, 3, 3], r3=[4, 4, 4, 4])
def megabytes_go_both_ways_at_once(comm, buffer):
    rank, size = comm.Get_rank(), comm.Get_size()
    sent, into = np.full(500_000, float(rank)), np.empty((size, 500_000))
    requests = [comm.Irecv(into[other], source=other) for other in range(size) if other != rank]
    requests += [comm.Isend(sent, dest=other) for other in range(size) if other != rank]
    MPI.Request.Waitall(requests)
    for other in range(size):
        assert other == rank or (into[other] == other).all()
    buffer[:] = rank + 1


# Split.


@leaves(r0=[3, 20, 0, 0], r1=[1, 30, 0, 0], r2=[2, 10, 0, 0], r3=[0, 0, 0, 0])
def keys_order_the_ranks_and_equal_keys_keep_their_order(comm, buffer):
    rank = comm.Get_rank()
    sub = comm.Split(7, key=[9, 4, 4, -1][rank])
    right, left = (sub.Get_rank() + 1) % 4, (sub.Get_rank() - 1) % 4
    got, status = np.empty(4), MPI.Status()
    sub.Sendrecv(buffer, right, recvbuf=got, source=left, status=status)
    assert status.Get_source() == left
    buffer[:] = sub.Get_rank(), got[0], 0, 0


@leaves(r0=[2, 1, 2, 3], r1=[2, 11, 12, 13])
def undefined_is_in_no_communicator(comm, buffer):
    rank = comm.Get_rank()
    pair = comm.Split(MPI.UNDEFINED if rank > 1 else 0, rank)
    assert (pair == MPI.COMM_NULL) == (rank > 1)
    assert bool(pair) == (rank < 2)
    if pair != MPI.COMM_NULL:
        buffer[0] = pair.Get_size()
        pair.Barrier()  # of two ranks


@leaves(r0=[0, 1, 7, 8], r1=[0, 1, 8, 7])
def communicators_do_not_take_one_anothers_messages(comm, buffer):
    rank = comm.Get_rank()
    pair = comm.Split(rank // 2)
    if rank == 0:
        requests = [comm.Isend(buffer[:1], 1), pair.Isend(buffer[1:2], 1)]
        MPI.Request.Waitall(requests)
        buffer[2:] = 7, 8
    elif rank == 1:
        pair.Recv(buffer[1:2], source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)
        comm.Recv(buffer[:1], source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG)
        buffer[2:] = 8, 7


@leaves(r0=[20, 1, 2, 3], r2=[0, 21, 22, 23], r1=[30, 11, 12, 13], r3=[10, 31, 32, 33])
def a_split_of_a_split(comm, buffer):
    rank = comm.Get_rank()
    turned = comm.Split(0, key=-rank)  # 3, 2, 1, 0
    pair = turned.Split(turned.Get_rank() % 2, key=rank)
    other, got = 1 - pair.Get_rank(), np.empty(1)
    pair.Sendrecv(buffer[:1], other, recvbuf=got, source=other)
    alone = pair.Split(pair.Get_rank())
    assert (alone.Get_rank(), alone.Get_size()) == (0, 1)
    alone.Barrier()
    buffer[0] = got[0]


# The library's collectives; rank r gives 10r, 10r + 1, 10r + 2 and 10r + 3.

SUMS = [60.0, 64, 68, 72]
FIRSTS = [0.0, 10, 20, 30]


def sizes(comm):
    """As many elements as the rank, but for rank 0: 4, 1, 2, 3."""
    return comm.Get_rank() or 4


@leaves(r0=[20, 21, 2, 3], r1=[20, 21, 12, 13], r3=[20, 21, 32, 33])
def bcast_copies_the_roots_elements(comm, buffer):
    comm.Bcast([buffer, 2, MPI.DOUBLE], root=2)
    assert comm.bcast({"from": comm.Get_rank()}, root=3) == {"from": 3}


@leaves(r0=SUMS, r1=[30, 31, 32, 33], r2=[0, 1, 2, 3], r3=[0, 24024, 0, 0])
def reduce_leaves_its_result_on_the_root(comm, buffer):
    into, rank = np.zeros(4), comm.Get_rank()
    small = buffer + 1 - 10 * rank if rank % 2 else buffer
    for root, op in enumerate([MPI.SUM, MPI.MAX, MPI.MIN]):
        comm.Reduce(buffer, into if rank == root else None, op=op, root=root)
    product = comm.reduce(int(buffer[1]) or 1, MPI.PROD, 3)
    assert product == (1 * 11 * 21 * 31 if rank == 3 else None)
    if rank == 3:
        into[1] = product * 24024 / 7161
    assert comm.reduce([rank]) == ([0, 1, 2, 3] if rank == 0 else None)
    comm.Reduce(MPI.IN_PLACE if rank == 2 else small[:1], small[:1], MPI.PROD, 2)
    assert rank != 2 or small[0] == 0
    buffer[:] = into


@leaves(r0=SUMS, r1=SUMS, r2=SUMS, r3=SUMS)
def allreduce_leaves_it_on_all(comm, buffer):
    into, rank = np.empty(4), comm.Get_rank()
    comm.Allreduce(buffer, into)
    comm.Allreduce(MPI.IN_PLACE, buffer, op=MPI.MAX)
    assert buffer.tolist() == [30, 31, 32, 33]
    whole = np.full((2, 1), 1 + rank, "i4")
    comm.Allreduce([whole, MPI.INT], [found := np.empty(2, "i4"), MPI.INT], MPI.PROD)
    assert found.tolist() == [24, 24]
    assert comm.allreduce(rank, op=MPI.MAX) == 3
    assert comm.allreduce((rank,), lambda one, other: one + other) == (0, 1, 2, 3)
    buffer[:] = into


@leaves(r0=FIRSTS, r2=[3, 13, 23, 33])
def gather_takes_as_much_of_each_rank(comm, buffer):
    into, rank = np.full((4, 1), -1.0), comm.Get_rank()
    comm.Gather(buffer[:1], into if rank == 0 else None)
    last = buffer[3:].copy()
    comm.Gather(last, [into, 1, MPI.DOUBLE] if rank == 2 else None, root=2)
    wide = np.empty((4, 4))
    wide[rank] = buffer
    comm.Gather(MPI.IN_PLACE if rank == 3 else buffer, wide, root=3)
    assert rank != 3 or wide.tolist() == [one.tolist() for one in inputs()]
    assert comm.gather(str(rank), root=1) == (["0", "1", "2", "3"] if rank == 1 else None)
    if rank in (0, 2):
        buffer[:] = into[:, 0]


@leaves(r1=[30, 10, 20, 0])
def gatherv_takes_counts_and_displacements(comm, buffer):
    rank, into = comm.Get_rank(), np.full(12, -1.0)
    comm.Gatherv(buffer[: sizes(comm)], [into, [4, 1, 2, 3]], root=1)
    assert rank != 1 or into[:10].tolist() == [0, 1, 2, 3, 10, 20, 21, 30, 31, 32]
    into[:] = -1
    starts = [8, 4, 5, 1]
    comm.Gatherv(buffer[: sizes(comm)], [into, [4, 1, 2, 3], starts, MPI.DOUBLE], root=1)
    assert rank != 1 or into[[0, 7]].tolist() == [-1, -1]
    if rank == 1:
        buffer[:] = into[[1, 4, 5, 8]]


@leaves(r0=[10, 0, 0, 0], r1=[11, 10, 0, 0], r2=[12, 11, 10, 0], r3=[13, 12, 11, 10])
def scatter_gives_each_rank_its_own(comm, buffer):
    rank, given, one = comm.Get_rank(), buffer.copy(), np.empty(1)
    buffer[:] = 0
    comm.Scatter([given, MPI.DOUBLE] if rank == 1 else None, one, root=1)
    comm.Scatterv([given, ([rank + 1 for rank in range(4)], [0] * 4)], buffer[: rank + 1], root=1)
    buffer[: rank + 1] = buffer[: rank + 1][::-1].copy()
    assert buffer[0] == one[0] == 10 + rank
    assert comm.scatter([3, "two", None, {}] if rank == 0 else None) == [3, "two", None, {}][rank]
    comm.Scatter(given, MPI.IN_PLACE if rank == 2 else one, root=2)
    assert (one[0] == 20 + rank) == (rank != 2)


@leaves(r0=FIRSTS, r1=FIRSTS, r2=FIRSTS, r3=FIRSTS)
def allgather_gives_everything_to_all(comm, buffer):
    rank, into = comm.Get_rank(), np.empty(4)
    comm.Allgather(buffer[:1], into)
    into[rank] = buffer[0]
    comm.Allgather(MPI.IN_PLACE, into)
    many = np.full(11, -1.0)
    comm.Allgatherv(buffer[: sizes(comm)], [many, ([4, 1, 2, 3], [0, 4, 5, 8])])
    assert many.tolist() == [0, 1, 2, 3, 10, 20, 21, -1, 30, 31, 32]
    comm.Allgatherv([buffer, sizes(comm)], [many, [4, 1, 2, 3], MPI.DOUBLE])
    assert many[7:10].tolist() == [30, 31, 32]
    whole = np.empty(7)  # shared like np.array_split: 2, 2, 2, 1
    comm.Allgatherv(buffer[: 1 if rank == 3 else 2], whole)
    assert whole.tolist() == [0, 1, 10, 11, 20, 21, 30]
    assert comm.allgather(rank * "a") == ["", "a", "aa", "aaa"]
    buffer[:] = into


@leaves(r0=[0, 1, 2, 3], r1=[10, 11, 12, 13], r2=[20, 21, 22, 23], r3=[30, 31, 32, 33])
def alltoall_exchanges_columns_and_rows(comm, buffer):
    rank, into = comm.Get_rank(), np.empty(4)
    comm.Alltoall(buffer, into)
    assert into.tolist() == [rank, 10 + rank, 20 + rank, 30 + rank]
    comm.Alltoall(MPI.IN_PLACE, into)
    assert comm.alltoall([(rank, other) for other in range(4)]) == [(r, rank) for r in range(4)]
    triangle, counts = np.zeros(4), [1 if other >= rank else 0 for other in range(4)]
    comm.Alltoallv([buffer, counts], [triangle, ([1] * (rank + 1) + [0] * (3 - rank), range(4))])
    assert triangle.tolist() == [10.0 * r + rank - r if r <= rank else 0 for r in range(4)]
    buffer[:] = into


@leaves(r0=[60, 0, 0, 0], r1=[64, 0, 0, 0], r2=[68, 0, 0, 0], r3=[72, 0, 0, 0])
def reduce_scatter_leaves_each_rank_its_own_sum(comm, buffer):
    rank, one, given = comm.Get_rank(), np.empty(1), buffer.copy()
    comm.Reduce_scatter_block(buffer, one)
    some = np.empty([2, 0, 1, 1][rank])
    comm.Reduce_scatter(buffer, some, recvcounts=[2, 0, 1, 1], op=MPI.MAX)
    assert some.tolist() == [[30, 31], [], [32], [33]][rank]
    comm.Reduce_scatter(buffer, some, [2, 0, 1, 1], MPI.MIN)
    assert some.tolist() == [[0, 1], [], [2], [3]][rank]
    comm.Reduce_scatter_block(MPI.IN_PLACE, given)
    assert given[0] == one[0]
    buffer[:] = one[0], 0, 0, 0


@leaves(r0=[10, 11, 12, 13], r1=[0, 1, 2, 3], r2=[30, 31, 32, 33], r3=[20, 21, 22, 23])
def sendrecv_replace_swaps(comm, buffer):
    status, other = MPI.Status(), comm.Get_rank() ^ 1
    comm.Sendrecv_replace(buffer, other, 7, source=other, status=status)
    assert (status.Get_source(), status.Get_tag()) == (other, 7)
    comm.Sendrecv_replace(buffer, MPI.PROC_NULL, source=MPI.PROC_NULL)


@leaves(r0=[1, 12, 23, 0])
def probe_says_what_comes(comm, buffer):
    rank = comm.Get_rank()
    if rank:
        comm.Ssend(buffer[: rank + 1], 0, tag=rank)
        return
    for _ in range(3):
        status = MPI.Status()
        assert comm.Probe(status=status) is True
        piece = np.empty(status.Get_count(MPI.DOUBLE))
        comm.Recv(piece, status.Get_source(), status.Get_tag())
        buffer[status.Get_source() - 1] = piece[-1] - 10
    buffer[3] = 0
    comm.Probe(MPI.PROC_NULL, 3, status)
    assert status.Get_source() == MPI.PROC_NULL


@leaves(r0=[0, 1, 2, 12])
def objects_are_sent_by_small_letters(comm, buffer):
    rank, status = comm.Get_rank(), MPI.Status()
    found = comm.sendrecv({"rank": rank}, rank ^ 1, 1, source=rank ^ 1, recvtag=1, status=status)
    assert found == {"rank": rank ^ 1}
    assert (status.Get_source(), status.Get_tag()) == (rank ^ 1, 1)
    assert comm.recv(source=MPI.PROC_NULL) is None
    if rank:
        request = comm.isend({"rank": rank}, dest=0)
        comm.send([rank, "x" * rank], dest=0, tag=rank)
        request.wait()
        comm.barrier()
        return
    requests = [comm.irecv(source=source, tag=0) for source in (1, 2, 3)]
    for tag in (3, 1, 2):
        found = comm.recv(source=MPI.ANY_SOURCE, tag=tag, status=status)
        assert found == [tag, "x" * tag]
        assert status.Get_source() == status.Get_tag() == tag
    assert [request.wait() for request in requests] == [{"rank": source} for source in (1, 2, 3)]
    comm.barrier()
    buffer[3] = 12


@leaves(r1=[3, 1, 2, 60])
def a_collective_takes_no_message_of_the_program(comm, buffer):
    rank, first, total = comm.Get_rank(), np.empty(1), np.empty(4)
    request = comm.Irecv(first, MPI.ANY_SOURCE, MPI.ANY_TAG) if rank == 1 else None
    comm.Allreduce(buffer, total)
    part = comm.Split(rank // 2)
    part.Bcast(total)
    if rank == 0:
        comm.Send(np.array([3.0]), 1, tag=0)
    if rank == 1:
        request.Wait()
        buffer[:] = first[0], 1, 2, total[0]


for name in programs.MEANING:  # which other ranks must run as simulated ones do
    program = getattr(programs, name)
    CASES[name] = program, [one.tolist() for one in run(program, inputs()).outputs]
