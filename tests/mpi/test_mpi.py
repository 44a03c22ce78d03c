"""The same function under a real MPI: a process per rank, stopped when it has to be."""

import importlib.util
import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import psutil
import pytest

from labkit.collectives import run, run_mpi
from labkit.kinds import LabError
from labkit.mpi.gforker import command_for, memory_of
from labkit.mpi.run import mpiexec
from tests.cluster.private_slurm import wait_for

MEMORY = Path("/dev/shm")
GFORKER = Path(sys.executable).with_name("mpiexec.gforker")
real = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not GFORKER.exists() or not MEMORY.is_dir(),
    reason="there is no MPICH in this environment",
)
SHIFT = 1


def right_of(comm):
    return (comm.Get_rank() + SHIFT) % comm.Get_size()


@real
def test_a_program_of_a_cell_leaves_what_it_leaves_in_the_simulation():
    from mpi4py import MPI

    def program(comm, buffer, times):  # nothing can import it, and it waits as every tutorial does
        for _ in range(times):
            into = np.empty_like(buffer)
            requests = [comm.Irecv(into, MPI.ANY_SOURCE), comm.Isend(buffer, right_of(comm))]
            MPI.Request.Waitall(requests)
            buffer += into
            comm.Barrier()

            here, there = comm.Split(0), buffer.astype(bfloat16)  # a type that MPI lacks
            here.Bcast(there, root=1)
            buffer -= there.astype(buffer.dtype)

    bfloat16 = ml_dtypes.bfloat16
    inputs = [np.arange(6, dtype="i4").reshape(2, 3) + 10 * rank for rank in range(3)]
    simulated = run(program, inputs, times=2).outputs
    for there, here in zip(run_mpi(program, inputs, times=2), simulated, strict=True):
        assert np.array_equal(there, here)
        assert there.dtype == here.dtype


def waits_for_ever(comm, buffer):
    if comm.Get_rank() < 2:  # the last rank returns
        comm.Recv(buffer, 1 - comm.Get_rank())


def fails_on_one(comm, buffer):
    if comm.Get_rank() == 1:
        buffer[99] = 0
    comm.Barrier()


@real
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (waits_for_ever, "after 0.1 s.*rank 0 was in line {1} of wai.*rank 1 was in line {1} of w"),
        (fails_on_one, "Rank 1 raised IndexError.*line {1}: buffer.99. = 0"),
    ],
)
def test_a_deadlock_and_an_error_end_all_ranks_and_name_their_lines(program, words):
    line = program.__code__.co_firstlineno
    with pytest.raises(LabError, match=words.format(line + 1, line + 2)):
        run_mpi(program, ranks=3, timeout=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ranks": 2, "way": "up"}, "way"),
        ({"ranks": 2, "times": threading.Lock()}, "cannot be sent"),
    ],
)
def test_mistakes_are_explained_before_anything_is_started(arguments, words):
    def program(comm, buffer, times=1):
        """Do nothing."""

    with pytest.raises(LabError, match=words):
        run_mpi(program, **arguments)


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LabError, match="mpi4py is not installed here"):
        mpiexec()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="There is no mpiexec on this machine"):
        mpiexec()


# --- what is left behind


def dies(comm, buffer, note):
    Path(note).write_text(str(os.getppid()))
    comm.Barrier()
    os._exit(5)


@real
def test_ranks_that_die_leave_no_memory(tmp_path):
    with pytest.raises(LabError, match="without a result"):
        run_mpi(dies, ranks=2, note=str(tmp_path / "launcher"))
    launcher = int((tmp_path / "launcher").read_text())
    assert not (MEMORY / memory_of(launcher)[1:]).exists()


STUCK = """
from labkit.collectives import run_mpi

def stuck(comm, buffer):
    open(MET + str(comm.Get_rank()), "w").close()
    comm.Recv(buffer, source=1 - comm.Get_rank())

run_mpi(stuck, ranks=2, timeout=300)
"""


@real
def test_a_session_that_is_killed_leaves_no_ranks_no_memory_and_no_folder(tmp_path):
    (tmp_path / "stuck.py").write_text(STUCK.replace("MET", repr(str(tmp_path / "met"))))
    paths = {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)}
    session = psutil.Popen([sys.executable, tmp_path / "stuck.py"], env={**os.environ, **paths})
    started = []
    try:
        wait_for(lambda: len(list(tmp_path.glob("met*"))) == 2, "two ranks", 300)
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
    assert list(tmp_path.glob("labkit-*")) == []


@real
def test_what_a_killed_run_has_left_is_removed_before_the_next_one_with_its_process_id(tmp_path):
    """gforker names its ranks' memory after its process id, and finds the messages of the other."""
    script = tmp_path / "mpiexec.gforker"
    script.write_text("#!/bin/sh\necho $$\n")
    script.chmod(0o700)
    shell = ["/bin/sh", "-c", 'read go; exec "$@"', "sh"]  # its id is known before it starts
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*shell, *command_for(str(script))], **pipes) as process:
        memory = MEMORY / memory_of(process.pid)[1:]
        memory.write_bytes(b"old")
        assert process.communicate("go\n", timeout=300)[0] == f"{process.pid}\n"
    assert not memory.exists()
    other = tmp_path / "mpiexec.openmpi"
    other.touch(0o700)
    assert command_for(str(other)) == [str(other)]
