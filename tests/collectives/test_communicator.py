"""The calls of a simulated rank mean what mpi4py's mean."""

import numpy as np
import pytest

from labkit.collectives import run
from labkit.collectives.communicator import Request, Status
from labkit.collectives.messages import ANY_SOURCE, ANY_TAG, PROC_NULL
from labkit.kinds import LabError

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def outputs(program, inputs=PAIR, **options):
    return [output.tolist() for output in run(program, inputs, **options).outputs]


def test_messages_of_one_pair_do_not_overtake_one_another():
    def program(comm, buffer):
        if comm.rank == 0:
            Request.Waitall([comm.Isend(buffer[i : i + 1], 1) for i in range(3)])
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
            assert (status.Get_count(), status.count, status.Get_count(np.float64)) == (8, 8, 1)
            buffer[status.Get_source()] = piece[0]

    assert outputs(program, [[0.0, 0, 0], [4.0, 0, 0], [5.0, 0, 0]])[0] == [0, 4, 5]


def test_a_shorter_message_fills_the_beginning_of_its_buffer():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer[:2], 1)
            comm.Send(buffer[:1], 1)
            comm.Send(np.empty(0, "i4"), 1)  # an empty message has any datatype
        else:
            comm.Recv(buffer[:3], source=0)
            comm.Irecv(buffer[3:], source=0).Wait()
            comm.Recv(buffer, source=0)

    assert outputs(program, [[1.0, 2, 3, 4, 5], [6.0, 7, 8, 9, 10]])[1] == [1, 2, 8, 1, 10]


def test_a_message_to_proc_null_is_done_at_once_and_needs_no_buffer():
    statuses = [Status() for _ in range(3)]

    def program(comm, buffer):
        right = comm.rank + 1 if comm.rank + 1 < comm.size else PROC_NULL
        left = comm.rank - 1 if comm.rank else PROC_NULL
        comm.Sendrecv(buffer[:1].copy(), right, recvbuf=buffer[1:], source=left)
        comm.Sendrecv(buffer, PROC_NULL, 0, buffer, PROC_NULL, 0, statuses[0])
        comm.Send(None, PROC_NULL)
        comm.Isend(buffer, PROC_NULL).Wait()
        comm.Recv(buffer, PROC_NULL, 5, statuses[1])
        comm.Irecv(buffer, PROC_NULL).Wait(statuses[2])

    assert outputs(program, [[1, 0], [2, 0], [3, 0]]) == [[1, 0], [2, 1], [3, 2]]
    assert {(s.source, s.tag, s.count) for s in statuses} == {(PROC_NULL, ANY_TAG, 0)}


def test_an_array_may_have_a_count_and_its_own_datatype():
    MPI = pytest.importorskip("mpi4py.MPI")

    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send([buffer, 2], 1)
            comm.Send([buffer, (1, 2), MPI.DOUBLE], 1)
            comm.Send([buffer, "d"], 1)
        else:
            comm.Recv([buffer, 2, MPI.DOUBLE], source=0)
            comm.Recv([buffer, (1, 3)], source=0)
            comm.Recv([np.empty(4), MPI.DOUBLE], source=0)

    assert outputs(program, [[1.0, 2, 3, 0], [0.0, 0, 0, 0]])[1] == [1, 2, 0, 3]


def test_any_other_datatype_is_refused():
    MPI = pytest.importorskip("mpi4py.MPI")
    vector = MPI.DOUBLE.Create_vector(2, 1, 2).Commit()
    for spec in (
        lambda a: [a, 1, vector],
        lambda a: [a, 2, MPI.INT],
        lambda a: [a, MPI.BYTE],
        lambda a: [a, 1, "i"],
        lambda a: [a, 1, "no type"],
    ):
        with pytest.raises(LabError, match=r"float64 with the datatype.*own datatype"):
            run(lambda comm, b, spec=spec: comm.Send(spec(b), 1 - comm.rank), PAIR)
    vector.Free()


def test_what_was_received_is_there_after_wait_and_not_in_the_states_before():
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(buffer[:1], 1)
            return
        request = comm.Irecv(buffer[:1], 0)
        comm.Sendrecv(buffer[1:2], 1, recvbuf=np.empty(1), source=1)
        assert request.Wait() is True
        assert request.Wait() is True  # a second time is over at once

    trace = run(program, [[7.0, 0], [1.0, 0]])
    assert trace.outputs[1].tolist() == [7, 0]
    assert [np.frombuffer(state.data).tolist() for state in trace.states] == [[7.0]]


def test_a_request_of_proc_null_among_others_is_complete():
    def program(comm, buffer):
        into = np.empty_like(buffer)
        requests = [comm.Irecv(buffer, PROC_NULL), comm.Irecv(into, 1 - comm.rank)]
        assert Request.Waitany(requests) == 0
        requests.append(comm.Isend(buffer, 1 - comm.rank))
        Request.Waitall(requests)
        buffer[:] = into

    assert outputs(program) == [[3, 4], [1, 2]]


def test_another_call_says_what_to_use():
    for name, advice in {"send": "comm.Send", "Allreduce": "Write a collective"}.items():
        with pytest.raises(LabError, match=f"no comm.{name}.*{advice}"):
            run(lambda comm, buffer, name=name: getattr(comm, name)(buffer), ranks=1)


# Programs that say mpi4py's own names.

PROGRAM = """
{top}
import numpy as np
def program(comm, buffer):
    {inside}
    rank = comm.Get_rank()
    comm.Send(buffer, dest={MPI}PROC_NULL)
    into, status = np.empty(5), {MPI}Status()
    requests = [{MPI}REQUEST_NULL, comm.Irecv(into, source={MPI}ANY_SOURCE, tag={MPI}ANY_TAG)]
    assert {MPI}Request.Waitany([comm.Isend(buffer, 1 - rank, tag=4)]) == 0
    {MPI}Request.Waitall(requests, [{MPI}Status(), status])
    {MPI}Request.Waitall(requests)  # a second time is over at once
    assert {MPI}Request.Waitany(requests) == {MPI}UNDEFINED
    assert [status.source, status.tag, status.Get_count({MPI}DOUBLE)] == [1 - rank, 4, 2]
    buffer[:] = into[:2]
"""
NAMES = "ANY_SOURCE, ANY_TAG, DOUBLE, PROC_NULL, REQUEST_NULL, Request, Status, UNDEFINED"
FORMS = {
    "top of the cell": {"top": "from mpi4py import MPI", "inside": "", "MPI": "MPI."},
    "its names": {"top": f"from mpi4py.MPI import {NAMES}", "inside": "", "MPI": ""},
    "in the function": {"top": "", "inside": "from mpi4py import MPI", "MPI": "MPI."},
    "names in it": {"top": "", "inside": f"from mpi4py.MPI import {NAMES}", "MPI": ""},
}


def written(text):
    """The program of a cell."""
    there = {}
    exec(text, there)
    return there["program"]


@pytest.mark.parametrize("form", FORMS)
def test_a_program_may_import_mpi4py_in_any_way(form):
    mpi = pytest.importorskip("mpi4py.MPI")
    before = mpi.Request, mpi.Status, mpi.PROC_NULL
    assert outputs(written(PROGRAM.format(**FORMS[form]))) == [[3, 4], [1, 2]]
    assert (mpi.Request, mpi.Status, mpi.PROC_NULL) == before


def test_rank_minus_one_is_no_rank_also_in_a_program_that_has_loaded_mpi():
    pytest.importorskip("mpi4py.MPI")
    text = (
        "from mpi4py import MPI\ndef program(comm, buffer):\n    comm.Send(buffer, comm.rank - 1)"
    )
    with pytest.raises(LabError, match=r"Rank 0's Send \(line 3\) names rank -1.*MPI.PROC_NULL"):
        run(written(text), PAIR)
