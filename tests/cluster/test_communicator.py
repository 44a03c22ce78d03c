"""Ranks of a cluster that exchange messages: what waits for ever, who dies, what is left over.

What the calls mean is the contract in tests/collectives/test_communicator.py.
"""

import linecache
import os
import re
import signal
import socket
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import labkit
from labkit import collectives
from labkit.cluster.ranks import handle
from labkit.cluster.ranks.transport import SocketTransport
from labkit.collectives.communicator import Communicator
from labkit.collectives.messages import ANY_SOURCE
from labkit.kinds import LabError
from tests.cluster.programs import exchange, sums


def runs(c, program, **options):
    """What the program returns on each rank, given a communicator and four numbers."""
    return c.run(lambda r: program(labkit.cluster.communicator(), np.full(4, float(r))), **options)


def fault_of(c, program, **options):
    with pytest.raises(LabError) as caught:
        runs(c, program, **options)
    return caught.value


def test_a_run_is_not_disturbed_by_messages_that_the_one_before_has_left(four):
    def leaves_messages(comm, buffer):
        if comm.Get_rank() == 0:
            for _ in range(3):
                comm.Isend(np.ones(1_000_000), dest=1)
            comm.Irecv(buffer, source=2)
        elif comm.Get_rank() == 1:
            comm.Irecv(np.empty(1_000_000), source=0)  # and never waits for it

    runs(four, leaves_messages)
    assert runs(four, sums) == [[6.0] * 4] * 4


def test_a_send_waits_for_its_receiver_so_that_a_deadlock_ends_with_the_line_of_every_rank(four):
    def send_first(comm, buffer):
        other = comm.Get_rank() ^ 1
        comm.Send(buffer, dest=other)
        comm.Recv(buffer, source=other)

    fault = fault_of(four, send_first, timeout=0.5)
    assert "had not ended after 0.5 s" in str(fault)
    assert all("`comm.Send(buffer, dest=other)`" in one.where for one in fault.errors.values())
    assert set(fault.errors) == {0, 1, 2, 3}
    with pytest.raises(LabError, match="Deadlock"):
        collectives.run(send_first, ranks=4)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (lambda c, b: c.Bcast(b) if c.Get_rank() else c.Reduce(b, b + 1), "the same collective"),
        (lambda c, b: c.Bcast(b, root=c.Get_rank() % 2), "Give all the same root"),
        (lambda c, b: c.Bcast(b[: 1 + c.Get_rank()]), "give all ranks the same counts"),
        (lambda c, b: c.Get_rank() < 2 and c.Bcast(b), "Ranks 2 and 3 returned"),
    ],
)
def test_ranks_that_do_not_make_the_same_collective_call_are_told(four, program, told, monkeypatch):
    monkeypatch.setattr(handle, "ALONE", 0.3)
    assert told in str(fault_of(four, program))


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_ranks_that_wait_for_one_that_has_ended_say_which(four, how):
    def one_ends(comm, buffer):
        rank = comm.Get_rank()
        if rank == 2 and how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 2:
            raise RuntimeError("the cause")
        if rank == 0:
            comm.Barrier()
        comm.Sendrecv(buffer, 2, recvbuf=np.empty(4), source=2)

    fault = fault_of(four, one_ends)
    assert str(fault).startswith("Rank 2 was killed" if how == "killed" else "Rank 2 raised")
    for rank in (1, 3):
        assert "Connection to rank 2 lost" in fault.errors[rank].text
    # At its Barrier, rank 0 may have lost rank 1 as well, which has ended for the same cause.
    assert "Connection to rank" in fault.errors[0].text


def test_others_go_on_where_they_do_not_need_the_rank_that_has_ended(four):
    def without_rank_3(comm, buffer):
        rank = comm.Get_rank()
        part = comm.Split(rank // 3)
        if rank == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(LabError, match="Connection to rank 3 lost"):
            comm.Recv(buffer, source=3)
        if rank == 0:
            for _ in range(2):
                comm.Recv(buffer, source=ANY_SOURCE)
        else:
            comm.Send(buffer, dest=0)
        part.Barrier()
        return sums(part, np.ones(3))

    assert runs(four, without_rank_3, tolerate=[3]) == [*[[3.0] * 3] * 3, None]


def test_a_message_that_its_receiver_cannot_hold_ends_the_run_with_both_ends(four):
    def too_long(comm, buffer):
        if comm.Get_rank() == 0:
            comm.Send(buffer, dest=1)
        elif comm.Get_rank() == 1:
            comm.Recv(buffer[:2], source=0)

    assert str(fault_of(four, too_long)).startswith("Rank 1 stopped, in line")
    assert "Rank 0's Send to rank 1 holds 4 elements, and rank 1's" in str(fault_of(four, too_long))


@settings(max_examples=15)
@given(
    some.lists(
        some.tuples(*[some.integers(0, 3)] * 2, some.integers(0, 2), some.integers(0, 9)),
        max_size=20,
    )
)
def test_any_messages_arrive_as_in_a_simulated_run(four, messages):
    left = [None] * 4

    def simulated(comm, buffer):
        left[comm.Get_rank()] = exchange(comm, messages)

    # As a message must not be longer than its buffer: those that meet are of one size.
    messages = [(*ends, tag, sum(ends) + tag) for *ends, tag, _ in messages]
    collectives.run(simulated, ranks=4)
    assert runs(four, lambda comm, buffer: exchange(comm, messages)) == left


@pytest.mark.parametrize(
    "text",
    [
        """
def program(rank):
    from mpi4py import MPI
    return MPI.COMM_WORLD.Split(rank // 4).Get_size()
""",
        """
from mpi4py import MPI
comm = MPI.COMM_WORLD
def program(rank):
    into, status, other = bytearray(1), MPI.Status(), comm.Get_rank() ^ 1
    requests = [comm.Isend(b"a", other, 3), comm.Irecv(into, other, MPI.ANY_TAG)]
    MPI.Request.Waitall(requests, [MPI.Status(), status])
    assert (status.Get_source(), status.Get_tag()) == (other, 3)
    return comm.Get_size()
""",
        """
from mpi4py.MPI import COMM_WORLD as comm, Wtime, Get_processor_name
def program(rank):
    began = Wtime()
    assert Wtime() >= began and Get_processor_name()
    return comm.Get_size()
""",
        """
from mpi4py.MPI import PROC_NULL
def program(rank):
    import labkit, numpy
    comm = labkit.cluster.communicator()
    comm.Sendrecv(numpy.zeros(2), PROC_NULL, 0, numpy.zeros(2), PROC_NULL)
    return comm.Get_size()
""",
    ],
    ids=["imported in the function", "comm is a name of the cell", "names", "a constant alone"],
)
def test_what_is_mpi4pys_is_found_however_the_program_names_it(four, text):
    pytest.importorskip("mpi4py.MPI")
    there = {"__name__": "__main__"}
    exec(text, there)
    assert four.run(there["program"]) == [4] * 4


def test_a_comment_in_another_cell_starts_no_thread_for_messages(four, monkeypatch):
    monkeypatch.setitem(linecache.cache, "cell_1.py", (8, None, ["# mpi4py\n"], "cell_1.py"))
    assert four.run(lambda rank: threading.active_count()) == [1] * 4


def test_a_rank_that_mpi_has_ended_says_why(four):
    MPI = pytest.importorskip("mpi4py.MPI")
    fault = fault_of(four, lambda comm, buffer: MPI.DOUBLE.Get_size())
    assert "exit status 1" in str(fault)
    assert re.search("MPI_INIT|MPI routine", str(fault))  # each MPI says in its way: not started


def test_messages_may_gather_before_the_receiver_reads_any():
    ends, count = socket.socketpair(), 1_500
    sender = Communicator(SocketTransport(0, {1: ends[0]}), 0)
    requests = [sender.Isend(np.array([i]), dest=1) for i in range(count)]
    receiver = Communicator(SocketTransport(1, {0: ends[1]}), 1)
    found, one = 0, np.array([0])
    for _ in range(count):
        receiver.Recv(one, source=0)
        found += int(one[0])
    for request in requests:
        request.Wait()
    assert found == sum(range(count))


def test_outside_of_a_rank_there_is_no_communicator():
    with pytest.raises(LabError, match="COMM_WORLD"):
        labkit.cluster.communicator()
