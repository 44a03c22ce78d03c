"""Statuses, nobody and empty messages: as mpi4py has them, with its own constants and ours."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labkit import collectives
from labkit.collectives import PROC_NULL, Request, Status, run
from labkit.kinds import LabError

PAIR = [[1.0, 2.0], [3.0, 4.0]]


def ends(program, inputs=PAIR):
    """What the program gave back on each rank."""
    given = {}

    def kept(comm, buffer):
        given[comm.rank] = program(comm, buffer)

    run(kept, inputs)
    return [given[rank] for rank in sorted(given)]


def test_a_status_of_mpi4py_knows_how_long_the_message_was():
    mpi = pytest.importorskip("mpi4py.MPI")

    def program(comm, buffer):
        status = mpi.Status()
        if comm.rank:
            comm.Send(buffer, 0, tag=4)
        else:
            comm.Recv(np.empty(5), status=status)
        return status.source, status.tag, status.count, status.Get_count(mpi.DOUBLE)

    assert ends(program)[0] == (1, 4, 16, 2)


@pytest.mark.parametrize("kind", [np.float64, "f8", np.dtype("f8")])
def test_a_length_is_counted_in_any_kind_of_number(kind):
    def program(comm, buffer):
        status = Status()
        if comm.rank:
            comm.Send(buffer, 0)
        else:
            comm.Recv(buffer, status=status)
        return status.Get_count(kind), status.Get_elements(kind), status.Get_error()

    assert ends(program)[0] == (2, 2, 0)


def test_nobody_is_the_source_of_what_nobody_sends():
    def program(comm, buffer):
        statuses = [Status() for _ in range(4)]
        comm.Recv(buffer, PROC_NULL, 5, statuses[0])
        comm.Sendrecv(buffer, PROC_NULL, 0, buffer, PROC_NULL, 0, statuses[1])
        comm.Irecv(buffer, PROC_NULL).Wait(statuses[2])
        comm.Irecv(buffer, PROC_NULL).Test(statuses[3])
        return [(s.source, s.tag, s.count) for s in statuses]

    nobody = ends(program)[0]
    assert set(nobody) == {nobody[0]}
    assert nobody[0][0] == collectives.PROC_NULL  # that of MPI, once it is loaded
    assert nobody[0][2] == 0


def test_the_status_of_a_request_that_was_waited_for_stays_empty():
    def program(comm, buffer):
        late, null, other = Status(), comm.Irecv(buffer, PROC_NULL), 1 - comm.rank
        request = comm.Isend(buffer, other)
        comm.Recv(np.empty(2), other)
        Request.Waitall([request, null])
        Request.Waitall([request, null], [late, late])
        return late.source == Status().source

    assert ends(program) == [True, True]


def test_a_message_to_nobody_needs_no_buffer():
    def program(comm, buffer):
        right = comm.rank + 1 if comm.rank + 1 < comm.size else PROC_NULL
        left = comm.rank - 1 if comm.rank else PROC_NULL
        into = buffer if comm.rank else None
        comm.Sendrecv(buffer.copy(), right, recvbuf=into, source=left)
        comm.Send(None, PROC_NULL)

    assert [b.tolist() for b in run(program, PAIR).outputs] == [[1.0, 2.0], [1.0, 2.0]]


def test_an_empty_message_is_of_every_kind():
    def program(comm, buffer):
        if comm.rank:
            comm.Send(np.empty(0, dtype="i4"), 0)
        else:
            comm.Recv(buffer)

    assert run(program, PAIR).outputs[0].tolist() == [1.0, 2.0]


def test_rank_minus_one_is_no_rank_also_when_somebody_has_loaded_mpi():
    pytest.importorskip("mpi4py.MPI")
    there = {}
    exec("def program(comm, buffer):\n    comm.Send(buffer, comm.rank - 1)", there)
    with pytest.raises(LabError, match=r"Rank 0's Send \(line 2\) names rank -1"):
        run(there["program"], PAIR)


@pytest.mark.parametrize("begin", ["from mpi4py import MPI", "from mpi4py.MPI import PROC_NULL"])
def test_the_constants_of_mpi_are_understood_where_they_are_used(begin):
    pytest.importorskip("mpi4py.MPI")
    nobody = "PROC_NULL" if "PROC_NULL" in begin else "MPI.PROC_NULL"
    there = {}
    exec(f"{begin}\ndef program(comm, buffer):\n    comm.Send(buffer, {nobody})", there)
    assert run(there["program"], PAIR).messages == ()


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


def test_the_constants_are_understood_when_a_helper_of_another_file_gives_them():
    pytest.importorskip("mpi4py.MPI")
    halo = {"__name__": "halo"}
    exec("from mpi4py import MPI\ndef left():\n    return MPI.PROC_NULL", halo)
    there = {"left": halo["left"]}
    exec("def program(comm, buffer):\n    comm.Send(buffer, left())", there)
    assert run(there["program"], PAIR).messages == ()
