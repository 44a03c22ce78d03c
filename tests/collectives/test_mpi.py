"""The same function under a real MPI: a process per rank, stopped when it has to be."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from labkit.collectives import ANY_SOURCE, PROC_NULL, Request, run, run_mpi
from labkit.collectives.mpi import launch
from labkit.collectives.mpi.gforker import command_for, memory_of
from labkit.kinds import LabError

MEMORY = Path("/dev/shm")
GFORKER = Path(sys.executable).with_name("mpiexec.gforker")
real = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not GFORKER.exists(),
    reason="there is no MPI in this environment",
)
shared = pytest.mark.skipif(not MEMORY.is_dir(), reason="shared memory is no folder here")
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


@real
@pytest.mark.parametrize("from_a_cell", [False, True])
def test_a_program_leaves_what_it_leaves_in_the_simulation(from_a_cell):
    program = everything
    if from_a_cell:  # nothing can import it, and it waits as every tutorial does
        from mpi4py import MPI

        def program(comm, buffer, times):
            everything(comm, buffer, times)
            comm.Barrier()  # rank 0 has received from any source
            into = np.empty_like(buffer)
            other = right_of(comm)
            requests = [comm.Irecv(into, MPI.ANY_SOURCE), comm.Isend(buffer, other)]
            MPI.Request.Waitall(requests)
            comm.Send(buffer, PROC_NULL)
            buffer[:] = into

    inputs = [np.arange(6, dtype="i4").reshape(2, 3) + 10 * rank for rank in range(3)]
    simulated = run(program, inputs, times=2).outputs
    for there, here in zip(run_mpi(program, inputs, times=2), simulated, strict=True):
        assert np.array_equal(there, here)
        assert there.dtype == here.dtype


def waits_for_ever(comm, buffer):
    comm.Recv(buffer, 1 - comm.Get_rank())


def fails_on_one(comm, buffer):
    if comm.Get_rank() == 1:
        buffer[99] = 0
    comm.Barrier()


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


LOCK = threading.Lock()


def test_mistakes_are_explained_before_anything_is_started(monkeypatch):
    def uses_a_lock(comm, buffer):
        LOCK.acquire()

    for arguments, words in (
        ({"ranks": 0}, "ranks must be"),
        ({"ranks": 1000}, "At most 64 ranks"),
        ({"ranks": 2, "way": "up"}, "got an unexpected"),
        ({"ranks": 2, "deadline": "x"}, "deadline must be"),
        ({"ranks": 2, "times": threading.Lock()}, "times=.*cannot be sent"),
    ):
        with pytest.raises(LabError, match=words):
            run_mpi(everything, **arguments)
    with pytest.raises(LabError, match=r"uses_a_lock uses .LOCK.*cannot be sent"):
        run_mpi(uses_a_lock, ranks=2)


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="mpi4py is not installed here"):
        launch.mpiexec()
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="There is no mpiexec on this machine"):
        launch.mpiexec()


# What is left behind.


def dies(comm, buffer):
    comm.Barrier()
    os._exit(5)


@real
@shared
def test_ranks_that_die_leave_no_memory_and_too_little_of_it_is_named(monkeypatch):
    assert launch.memory_advice(2) == ""
    before = set(MEMORY.iterdir())
    usage = shutil.disk_usage(MEMORY)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=65_536))
    with pytest.raises(LabError, match=r"without a result.*/dev/shm has 65.5 kB left.*--shm-size"):
        run_mpi(dies, ranks=2)
    mine = [one for one in set(MEMORY.iterdir()) - before if one.name.startswith("mpich_shm")]
    assert [one for one in mine if one.stat().st_uid == os.getuid()] == []


@real
@shared
def test_a_session_that_is_killed_leaves_no_ranks_no_memory_and_no_folder(tmp_path):
    script = tmp_path / "stuck.py"
    script.write_text(
        "from labkit.collectives import run_mpi\n"
        "def stuck(comm, buffer):\n"
        f"    open({str(tmp_path / 'met')!r} + str(comm.Get_rank()), 'w').close()\n"
        "    comm.Recv(buffer, source=1 - comm.Get_rank())\n"
        "run_mpi(stuck, ranks=2, deadline=300)\n"
    )
    session = psutil.Popen(
        [sys.executable, script],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    started = []
    try:
        wait_until(lambda: len(list(tmp_path.glob("met*"))) == 2)
        started = session.children(recursive=True)
        memory = [MEMORY / memory_of(one.pid)[1:] for one in started]
        assert any(one.exists() for one in memory)
    finally:
        session.kill()
        session.wait()
    _, alive = psutil.wait_procs(started, 30)
    for one in alive:
        one.kill()
    assert alive == []
    assert [one for one in memory if one.exists()] == []
    assert list(tmp_path.glob("labkit-mpi-*")) == []


def wait_until(condition, timeout=60):
    late = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < late
        time.sleep(0.02)


# gforker under a process id whose earlier owner has left its ranks' memory behind.

# MPI first: the ranks of a left run have met, and sent each other something.
MEETS = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank)
if sys.argv[1:]:
    open(sys.argv[1] + str(comm.rank), "w").close()
    comm.recv(source=comm.rank)
if comm.rank == 0:
    print("sum", total, flush=True)
"""


class Later:
    """A process that is there, and becomes the command when told to: its id is known before."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", 'read go; exec "$@"', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=launch.environment(),
            start_new_session=True,
        )
        self.memory = MEMORY / memory_of(self.process.pid)[1:]

    def go(self):
        try:
            return self.process.communicate("go\n", timeout=60)[0]
        finally:
            launch.stop(self.process)


@real
@shared
def test_ranks_start_where_killed_ranks_have_left_their_memory(tmp_path):
    killed = Later([GFORKER, "-n", "4", sys.executable, "-c", MEETS, str(tmp_path / "met")])
    killed.process.stdin.write("go\n")
    killed.process.stdin.flush()
    wait_until(lambda: len(list(tmp_path.glob("met*"))) == 4)
    again = Later([*command_for([str(GFORKER)]), "-n", "4", sys.executable, "-c", MEETS])
    try:
        shutil.copyfile(killed.memory, again.memory)
        assert again.go().endswith("sum 6\n")  # libraries may warn
        assert again.process.returncode == 0
    finally:
        launch.stop(killed.process)
        killed.process.communicate()
        for one in (killed, again):
            one.memory.unlink(missing_ok=True)


@shared
def test_memory_that_belongs_to_another_is_left_and_another_process_is_taken(tmp_path):
    script = tmp_path / "mpiexec.gforker"
    script.write_text("#!/bin/sh\necho $$\nexit 3\n")
    script.chmod(0o700)
    ours, theirs = Later(command_for([str(script)])), Later(command_for([str(script)]))
    ours.memory.write_bytes(b"old")
    theirs.memory.mkdir()  # cannot be removed as memory, whoever we are
    try:
        assert ours.go() == f"{ours.process.pid}\n"
        assert not ours.memory.exists()
        assert int(theirs.go()) != theirs.process.pid
    finally:
        theirs.memory.rmdir()
    assert (ours.process.returncode, theirs.process.returncode) == (3, 3)


def test_another_mpiexec_is_started_as_it_is(tmp_path):
    other = tmp_path / "mpiexec.openmpi"
    other.touch(0o700)
    assert command_for([str(other), "--quiet"]) == [str(other), "--quiet"]
