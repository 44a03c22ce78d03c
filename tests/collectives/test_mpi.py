"""The same function under a real MPI: a process per rank, stopped when it has to be."""

import importlib.util
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from labkit.collectives import ANY_SOURCE, PROC_NULL, Request, mpi, programs, run, run_mpi
from labkit.collectives.shipping import pack, pack_options, unpack
from labkit.kinds import LabError

real = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None
    or not Path(sys.executable).with_name("mpiexec").exists(),
    reason="there is no MPI in this environment",
)
SHIFT = 1


def right_of(comm):
    return (comm.Get_rank() + SHIFT) % comm.Get_size()


def everything(comm, buffer, times=1):
    """Each call of the communicator, in a form that both worlds understand."""
    rank, size = comm.Get_rank(), comm.Get_size()
    scratch = np.empty_like(buffer)
    for _ in range(times):
        comm.Sendrecv(buffer, right_of(comm), recvbuf=scratch, source=(rank - 1) % size)
        buffer += scratch
    requests = [comm.Irecv(scratch[:1], (rank - 1) % size, tag=7)]
    requests += [comm.Isend(buffer[-1:], right_of(comm), tag=7)]
    Request.Waitall(requests)
    buffer[:1] += scratch[:1]
    comm.Barrier()
    if rank == 0:
        for _ in range(size - 1):
            comm.Recv(scratch, ANY_SOURCE)
            buffer += scratch
    else:
        comm.Send(buffer, 0)
    comm.Send(buffer, PROC_NULL)


def waits_for_ever(comm, buffer):
    comm.Recv(buffer, 1 - comm.Get_rank())


def fails_on_one(comm, buffer):
    if comm.Get_rank() == 1:
        buffer[99] = 0
    comm.Barrier()


@real
def test_a_program_leaves_what_it_leaves_in_the_simulation():
    inputs = [np.arange(6, dtype="i4").reshape(2, 3) + 10 * rank for rank in range(3)]
    simulated = run(everything, inputs, times=2).outputs
    for there, here in zip(run_mpi(everything, inputs, times=2), simulated, strict=True):
        assert np.array_equal(there, here)
        assert there.dtype == here.dtype


@real
def test_a_deadlock_ends_at_the_deadline_and_says_where_the_ranks_were():
    line = waits_for_ever.__code__.co_firstlineno + 1
    with pytest.raises(LabError) as caught:
        run_mpi(waits_for_ever, ranks=2, deadline=0.5)
    assert str(caught.value).startswith(
        f"The program had not ended after 0.5 s under MPI: rank 0 was in line {line} of "
        f"waits_for_ever, rank 1 was in line {line} of waits_for_ever."
    )


@real
def test_a_rank_that_raises_ends_all_and_is_named():
    line = fails_on_one.__code__.co_firstlineno + 2
    with pytest.raises(LabError) as caught:
        run_mpi(fails_on_one, ranks=2)
    assert str(caught.value) == (
        "Rank 1 raised IndexError: index 99 is out of bounds for axis 0 with size 2 "
        f"(line {line}: buffer[99] = 0)."
    )


def test_mistakes_are_explained_before_anything_is_started():
    with pytest.raises(LabError, match="ranks=0 is no number"):
        run_mpi(everything, ranks=0)
    with pytest.raises(LabError, match="got an unexpected"):
        run_mpi(everything, ranks=2, way="up")
    with pytest.raises(LabError, match="deadline='x' is no time to wait"):
        run_mpi(programs.broadcast, ranks=2, deadline="x")
    with pytest.raises(LabError, match=r"op=<function .* cannot be sent to other processes"):
        run_mpi(programs.reduce, ranks=2, op=lambda a, b: a)


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="mpi4py is not installed here"):
        mpi.mpiexec()
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="There is no mpiexec on this machine"):
        mpi.mpiexec()


def test_a_function_takes_along_what_it_uses():
    offset = np.array([2.0])

    def inner(comm, buffer):
        return right_of(comm) + offset

    class Comm:
        Get_rank, Get_size = staticmethod(lambda: 4), staticmethod(lambda: 5)

    again = unpack(pack(inner))
    assert again is not inner
    assert again(Comm, None).tolist() == [2.0]
    assert again.__code__.co_firstlineno == inner.__code__.co_firstlineno


def test_a_function_that_can_be_imported_goes_by_its_name():
    assert unpack(pack(run)) is run


def test_what_cannot_be_sent_is_named():
    import threading

    door = threading.Lock()

    def uses_a_lock(comm, buffer):
        door.acquire()

    with pytest.raises(LabError, match="The program uses door, and door cannot be sent"):
        pack(uses_a_lock)
    with pytest.raises(LabError, match="A lambda cannot be sent"):
        pack(lambda comm, buffer: None)


class OfAScript:
    def __call__(self, comm, buffer):
        buffer += 1


def test_classes_and_functions_of_a_script_are_named_before_anything_is_started(monkeypatch):
    monkeypatch.setattr(OfAScript, "__module__", "__main__")
    monkeypatch.setattr(right_of, "__module__", "__main__")
    thing = OfAScript()

    def uses_it(comm, buffer):
        thing(comm, buffer)

    with pytest.raises(LabError, match=r"The program cannot be sent .* OfAScript is of this"):
        pack(thing)
    with pytest.raises(LabError, match=r"The program uses thing, .* OfAScript is of this"):
        pack(uses_it)
    with pytest.raises(LabError, match="right_of is of this notebook or script"):
        pack_options({"neighbour": right_of}, 1.0)


def test_whoever_is_killed_leaves_no_ranks(tmp_path):
    script = tmp_path / "stuck.py"
    script.write_text(
        "from labkit.collectives import run_mpi\n"
        "def stuck(comm, buffer):\n"
        "    comm.Recv(buffer, source=1 - comm.Get_rank())\n"
        "run_mpi(stuck, ranks=2, deadline=300)\n"
    )
    asker = psutil.Popen([sys.executable, script], cwd=Path(__file__).parents[2])
    ranks = []
    try:
        late = time.monotonic() + 60
        while len(ranks) < 2:
            assert asker.poll() is None
            assert time.monotonic() < late
            started = asker.children(recursive=True)
            ranks = [one for one in started if "labkit.collectives.mpi_rank" in one.cmdline()[:4]]
            time.sleep(0.05)
        psutil.wait_procs(ranks, 3)  # they are past their imports, and wait for each other
    finally:
        started = asker.children(recursive=True)
        asker.kill()
        asker.wait()
    _, alive = psutil.wait_procs(started, 30)
    for one in alive:
        one.kill()
    assert alive == []
