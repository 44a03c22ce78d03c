"""The calls of a simulated rank mean what mpi4py's mean."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labkit.collectives import ANY_SOURCE, ANY_TAG, PROC_NULL, Request, Status, run
from labkit.kinds import LabError

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def outputs(program, inputs=PAIR, **options):
    return [output.tolist() for output in run(program, inputs, **options).outputs]


def written(text):
    """The program of a cell."""
    there = {}
    exec(text, there)
    return there["program"]


def test_a_rank_knows_itself_and_the_others():
    def program(comm, buffer):
        buffer[:] = comm.Get_rank(), comm.Get_size(), comm.rank, comm.size

    assert outputs(program, np.zeros((2, 4))) == [[0, 2, 0, 2], [1, 2, 1, 2]]


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


@pytest.mark.parametrize("count", [np.float64, "f8", np.dtype("f8")])
def test_a_receive_from_anyone_says_who_it_was(count):
    def program(comm, buffer):
        if comm.rank:
            comm.Send(buffer[:1], 0, tag=10 + comm.rank)
            return
        for _ in range(2):
            status, piece = Status(), np.empty(1)
            comm.Recv(piece, source=ANY_SOURCE, status=status)
            assert status.Get_tag() == 10 + status.Get_source()
            assert (status.Get_count(), status.Get_count(count), status.Get_error()) == (8, 1, 0)
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
    statuses = [Status() for _ in range(4)]

    def program(comm, buffer):
        right = comm.rank + 1 if comm.rank + 1 < comm.size else PROC_NULL
        left = comm.rank - 1 if comm.rank else PROC_NULL
        comm.Sendrecv(buffer[:1].copy(), right, recvbuf=buffer[1:], source=left)
        comm.Sendrecv(buffer, PROC_NULL, 0, buffer, PROC_NULL, 0, statuses[0])
        comm.Send(None, PROC_NULL)
        comm.Isend(buffer, PROC_NULL).Wait()
        comm.Recv(buffer, PROC_NULL, 5, statuses[1])
        comm.Irecv(buffer, PROC_NULL).Wait(statuses[2])
        assert comm.Irecv(buffer, PROC_NULL).Test(statuses[3])

    assert outputs(program, [[1, 0], [2, 0], [3, 0]]) == [[1, 0], [2, 1], [3, 2]]
    assert {(s.source, s.tag, s.count) for s in statuses} == {(PROC_NULL, ANY_TAG, 0)}


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
def test_an_array_of_any_shape_is_sent_as_it_lies(shape):
    def program(comm, buffer):
        if comm.rank == 0:
            comm.Send(np.asfortranarray(buffer), 1)
        else:
            comm.Recv(buffer.T, 0)

    given = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    received = run(program, [given, np.zeros_like(given)]).outputs[1]
    assert np.array_equal(received.reshape(-1), given.T.reshape(-1))


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
        with pytest.raises(LabError, match=r"array of float64 with the datatype.*own datatype"):
            run(lambda comm, b, spec=spec: comm.Send(spec(b), 1 - comm.rank), PAIR)
    vector.Free()


def test_what_was_received_is_there_after_wait():
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


def test_a_test_lets_the_others_go_on():
    def program(comm, buffer):
        if comm.rank == 0:
            request, asked = comm.Irecv(buffer[:1], 1), 1
            while not request.Test():
                asked += 1
            buffer[1] = asked
        else:
            comm.Send(buffer[:1], 0)

    assert outputs(program, [[0, 0], [5, 6]])[0] == [5, 1]


WAIT_FOR_ANY = """
{0}
import numpy as np
def program(comm, buffer):
    if comm.rank == 0:
        requests = [comm.Irecv(buffer[i : i + 1], i) for i in (1, 2)]
        order = [{1}.Waitany(requests), {1}.Waitany(requests), {1}.Waitany(requests)]
        buffer[0] = 10 * order[0] + order[1]
        assert order[2] == -32766  # MPI.UNDEFINED: nothing is left to wait for
    elif comm.rank == 2:
        comm.Send(buffer[:1], 0)
        comm.Send(buffer[:1], 1)
    else:
        comm.Recv(buffer[1:2], 2)  # so that its message comes later
        comm.Send(buffer[:1], 0)
"""
WAIT_FOR_ALL = """
{0}
import numpy as np
def program(comm, buffer):
    into = np.empty_like(buffer)
    requests = [comm.Irecv(into, 1 - comm.rank), comm.Isend(buffer, 1 - comm.rank)]
    {1}.Waitall(requests)
    {1}.Waitall(requests)  # a second time is over at once
    buffer[:] = into
"""
IMPORTS = {
    "Request": "from labkit.collectives import Request",
    "MPI.Request": "from mpi4py import MPI",
}


@pytest.mark.parametrize("name", IMPORTS)
def test_the_idioms_of_waiting_run_with_our_requests_and_with_those_of_mpi(name):
    mpi = pytest.importorskip("mpi4py.MPI")
    theirs = mpi.Request
    some = written(WAIT_FOR_ANY.format(IMPORTS[name], name))
    assert outputs(some, [[0, 0, 0], [4, 0, 0], [5, 0, 0]])[0] == [10, 4, 5]
    both = written(WAIT_FOR_ALL.format(IMPORTS[name], name))
    assert outputs(both) == [[3, 4], [1, 2]]
    assert mpi.Request is theirs
    assert mpi.Request.Waitall([mpi.REQUEST_NULL])


def test_a_request_of_proc_null_among_others_is_complete():
    def program(comm, buffer):
        null = comm.Irecv(buffer, PROC_NULL)
        into = np.empty_like(buffer)
        requests = [comm.Irecv(into, 1 - comm.rank), null]
        assert Request.Waitany(requests) == 1
        comm.Isend(buffer, 1 - comm.rank).Wait() if comm.rank else requests[0].Wait()
        comm.Isend(buffer, 1 - comm.rank).Wait() if not comm.rank else requests[0].Wait()
        buffer[:] = into

    assert outputs(program) == [[3, 4], [1, 2]]


def test_halo_exchanges_start_with_null_requests_of_mpi():
    MPI = pytest.importorskip("mpi4py.MPI")

    def program(comm, buffer):
        requests = [MPI.REQUEST_NULL] * 2
        requests[comm.rank] = comm.Isend(buffer[:1], 1) if comm.rank == 0 else (
            comm.Irecv(buffer[:1], 0)
        )  # fmt: skip
        MPI.Request.Waitall(requests)

    assert outputs(program)[1] == [1, 4]


def test_a_status_of_mpi4py_is_filled_too():
    MPI = pytest.importorskip("mpi4py.MPI")
    found = []

    def program(comm, buffer):
        status = MPI.Status()
        if comm.rank:
            comm.Send(buffer, 0, tag=4)
        else:
            comm.Recv(np.empty(5), status=status)
            found.extend([status.source, status.tag, status.count, status.Get_count(MPI.DOUBLE)])

    run(program, PAIR)
    assert found == [1, 4, 16, 2]


NULLS = {
    "MPI.PROC_NULL": "from mpi4py import MPI",
    "PROC_NULL": "from mpi4py.MPI import PROC_NULL",
    "left()": "from mpi4py import MPI\ndef left():\n    return MPI.PROC_NULL",
}


@pytest.mark.parametrize("null", NULLS)
def test_the_constants_of_mpi_are_understood_where_the_program_says_them(null):
    pytest.importorskip("mpi4py.MPI")
    text = f"{NULLS[null]}\ndef program(comm, buffer):\n    comm.Send(buffer, {null})"
    assert run(written(text), PAIR).messages == ()


def test_rank_minus_one_is_no_rank_also_in_a_program_that_has_loaded_mpi():
    pytest.importorskip("mpi4py.MPI")
    text = (
        "from mpi4py import MPI\ndef program(comm, buffer):\n    comm.Send(buffer, comm.rank - 1)"
    )
    with pytest.raises(LabError, match=r"Rank 0's Send \(line 3\) names rank -1.*MPI.PROC_NULL"):
        run(written(text), PAIR)


def test_under_mpiexec_the_constants_are_those_of_mpi_in_any_order_of_imports():
    pytest.importorskip("mpi4py.MPI")
    start = Path(sys.executable).with_name("mpiexec")
    if not start.exists():
        pytest.skip("no mpiexec beside this Python")
    text = "from labkit.collectives import PROC_NULL; from mpi4py import MPI; "
    text += "print(PROC_NULL == MPI.PROC_NULL)"
    done = subprocess.run(
        [str(start), "-n", "1", sys.executable, "-c", text],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "True", done.stderr


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
    with pytest.raises(LabError, match=f"has no comm.{name}. {advice}"):
        run(lambda comm, buffer: getattr(comm, name)(buffer), ranks=1)


def test_a_communicator_is_of_no_use_after_its_run():
    kept = []
    run(lambda comm, buffer: kept.append(comm), ranks=2)
    with pytest.raises(LabError, match="Barrier was called when the run had ended"):
        kept[0].Barrier()
