"""The calls of a simulated rank mean what mpi4py's mean."""

import numpy as np
import pytest

from labkit.collectives import ANY_SOURCE, ANY_TAG, PROC_NULL, Request, Status, run
from labkit.kinds import LabError


def outputs(program, inputs, **options):
    return [output.tolist() for output in run(program, inputs, **options).outputs]


def test_a_rank_knows_itself_and_the_others():
    def program(comm, buffer):
        buffer[:] = comm.Get_rank(), comm.Get_size(), comm.rank, comm.size

    assert outputs(program, np.zeros((2, 4))) == [[0, 2, 0, 2], [1, 2, 1, 2]]


def test_messages_of_one_pair_do_not_overtake_one_another():
    def program(comm, buffer):
        if comm.rank == 0:
            requests = [comm.Isend(buffer[i : i + 1], 1) for i in range(3)]
            Request.Waitall(requests)
        else:
            for i in range(3):
                comm.Recv(buffer[i : i + 1], source=0)

    assert outputs(program, [[1, 2, 3], [0, 0, 0]])[1] == [1, 2, 3]


def test_a_tag_picks_a_message_out_of_its_order():
    def program(comm, buffer):
        if comm.rank == 0:
            first, second = comm.Isend(buffer[:1], 1, tag=5), comm.Isend(buffer[1:], 1, tag=6)
            second.Wait()
            first.Wait()
        else:
            comm.Recv(buffer[:1], source=0, tag=6)
            comm.Recv(buffer[1:], source=0, tag=ANY_TAG)

    assert outputs(program, [[1, 2], [0, 0]])[1] == [2, 1]


def test_a_receive_from_anyone_says_who_it_was():
    def program(comm, buffer):
        if comm.rank:
            comm.Send(buffer[:1], 0, tag=10 + comm.rank)
            return
        for _ in range(2):
            status, piece = Status(), np.empty(1)
            comm.Recv(piece, source=ANY_SOURCE, status=status)
            assert status.Get_tag() == 10 + status.Get_source()
            assert (status.Get_count(), status.Get_count(np.dtype("f8"))) == (8, 1)
            buffer[status.Get_source()] = piece[0]

    assert outputs(program, [[0.0, 0, 0], [4.0, 0, 0], [5.0, 0, 0]])[0] == [0, 4, 5]


def test_a_shorter_message_fills_the_beginning_of_its_buffer():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer[:2], 1)
        else:
            comm.Recv(buffer, source=0)

    assert outputs(program, [[1, 2, 3], [7, 8, 9]])[1] == [1, 2, 9]


def test_nobody_is_a_partner_too():
    def program(comm, buffer):
        right = comm.rank + 1 if comm.rank + 1 < comm.size else PROC_NULL
        left = comm.rank - 1 if comm.rank else PROC_NULL
        comm.Sendrecv(buffer[:1].copy(), right, recvbuf=buffer[1:], source=left)
        comm.Isend(buffer, PROC_NULL).Wait()
        comm.Recv(buffer, source=PROC_NULL)

    trace = run(program, [[1, 0], [2, 0], [3, 0]])
    assert [output.tolist() for output in trace.outputs] == [[1, 0], [2, 1], [3, 2]]
    assert len(trace.messages) == 2


def test_part_of_an_array_can_be_given_by_its_count():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send([buffer, 2], 1)
            comm.Send([buffer, (1, 2), "a type"], 1)
        else:
            comm.Recv([buffer, 2, "a type"], source=0)
            comm.Recv([buffer, (1, 3)], source=0)

    assert outputs(program, [[1, 2, 3, 0], [0, 0, 0, 0]])[1] == [1, 2, 0, 3]


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
def test_an_array_of_any_shape_is_sent_as_it_lies(shape):
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer, 1)
        else:
            comm.Recv(buffer, 0)

    given = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    trace = run(program, [given, np.zeros_like(given)])
    assert np.array_equal(trace.outputs[1], given)


def test_columns_first_is_one_stretch_of_memory_as_well():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(np.asfortranarray(buffer), 1)
        else:
            comm.Recv(buffer.T, 0)

    given = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(
        run(program, [given, np.zeros((2, 3))]).outputs[1].reshape(-1), given.T.reshape(-1)
    )


def test_what_was_received_is_there_after_wait_and_not_before():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer[:1], 1)
            return
        request = comm.Irecv(buffer[:1], 0)
        comm.Sendrecv(buffer[1:2], 1, recvbuf=np.empty(1), source=1)
        buffer[2] = buffer[0]
        assert request.Wait() is True
        assert request.Wait() is True  # a second time is over at once

    assert outputs(program, [[7.0, 0, 0], [1.0, 0, 0]])[1] == [7, 0, 1]


def test_a_test_lets_the_others_go_on():
    def program(comm, buffer):
        if comm.rank == 0:
            request, asked = comm.Irecv(buffer, 1), 1
            while not request.Test():
                asked += 1
            buffer[1] = asked
        else:
            comm.Send(buffer, 0)

    assert outputs(program, [[0, 0], [5, 6]])[0] == [5, 1]


def test_one_of_several_messages_can_be_waited_for():
    def program(comm, buffer):
        if comm.rank == 0:
            requests = [comm.Irecv(buffer[i : i + 1], i) for i in (1, 2)]
            order = [Request.Waitany(requests), Request.Waitany(requests)]
            buffer[0] = 10 * order[0] + order[1]
        elif comm.rank == 2:
            comm.Send(buffer[:1], 0)
            comm.Send(buffer[:1], 1)
        else:
            comm.Recv(buffer[1:2], 2)  # so that its message comes later
            comm.Send(buffer[:1], 0)

    assert outputs(program, [[0, 0, 0], [4, 0, 0], [5, 0, 0]])[0] == [10, 4, 5]


def test_a_rank_can_exchange_with_itself():
    def program(comm, buffer):
        comm.Sendrecv(buffer[:1], comm.rank, recvbuf=buffer[1:], source=comm.rank)

    assert outputs(program, [[3, 0]]) == [[3, 3]]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("send", "Use comm.Send"),
        ("Allreduce", "Here you write it yourself"),
        ("bcast", "Here you write it yourself"),
        ("Dup", "There are Send, Recv"),
    ],
)
def test_other_calls_of_mpi4py_say_what_to_use(name, advice):
    def program(comm, buffer):
        getattr(comm, name)(buffer)

    with pytest.raises(LabError, match=f"comm.{name} is no call of this communicator. {advice}"):
        run(program, ranks=1)


def test_the_constants_of_an_mpi_that_is_loaded_are_understood(monkeypatch):
    import sys
    import types

    mpi = types.SimpleNamespace(ANY_SOURCE=-1, ANY_TAG=-1, PROC_NULL=-2)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)

    def program(comm, buffer):
        comm.Send(buffer, -2)
        if comm.rank == 0:
            comm.Send(buffer, 1)
        else:
            comm.Recv(buffer, -1, -1)

    assert outputs(program, [[1.0], [2.0]]) == [[1.0], [1.0]]


def test_a_communicator_is_of_no_use_after_its_run():
    kept = []
    run(lambda comm, buffer: kept.append(comm), ranks=2)
    with pytest.raises(LabError, match="Barrier was called when the run had ended"):
        kept[0].Barrier()
