"""gforker under a process id whose earlier owner has left its ranks' memory behind."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit.collectives import mpi, run_mpi
from labkit.collectives.mpi_start import memory_of, starting
from labkit.kinds import LabError

MEMORY = Path("/dev/shm")
GFORKER = Path(sys.executable).with_name("mpiexec.gforker")
# MPI first: the ranks of a left run have met, and sent each other something.
MEETS = """
import os, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank)
if sys.argv[1:]:
    open(sys.argv[1] + str(comm.rank), "w").close()
    comm.recv(source=comm.rank)
if comm.rank == 0:
    print("sum", total, flush=True)
"""
pytestmark = pytest.mark.skipif(not MEMORY.is_dir(), reason="shared memory is no folder here")
real = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not GFORKER.exists(),
    reason="there is no gforker in this environment",
)


class Later:
    """A process that is there, and becomes the command when told to: its id is known before."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", 'read go; exec "$@"', "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=mpi.mpi_environment(),
            start_new_session=True,
        )
        self.memory = MEMORY / memory_of(self.process.pid)[1:]

    def go(self):
        try:
            return self.process.communicate("go\n", timeout=60)[0]
        finally:
            mpi.stop(self.process)


@pytest.fixture
def stand_in(tmp_path):
    """An mpiexec that says whether memory of its own name is there, and which process it is."""
    script = tmp_path / "mpiexec.gforker"
    program = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(Path(mpi.__file__).parents[2])!r})\n"
        "from labkit.collectives.mpi_start import memory_of\n"
        f"left = os.path.exists({str(MEMORY)!r} + memory_of(os.getpid()))\n"
        "print('left' if left else 'clear', os.getpid(), *sys.argv[1:])\n"
        "sys.exit(3)\n"
    )
    # Not as its #! line, in which a path cannot have a space.
    command = shlex.join([sys.executable, "-c", program])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o700)
    return [str(script), "-n", "2"]


@real
def test_ranks_start_where_killed_ranks_have_left_their_memory(tmp_path):
    killed = Later([GFORKER, "-n", "4", sys.executable, "-c", MEETS, str(tmp_path / "met")])
    killed.process.stdin.write("go\n")
    killed.process.stdin.flush()
    late = time.monotonic() + 60
    while len(list(tmp_path.glob("met*"))) < 4:
        assert killed.process.poll() is None
        assert time.monotonic() < late
        time.sleep(0.02)
    again = Later([*starting([str(GFORKER)]), "-n", "4", sys.executable, "-c", MEETS])
    try:
        shutil.copyfile(killed.memory, again.memory)
        assert again.go().endswith("sum 6\n")  # libraries may warn
        assert again.process.returncode == 0
    finally:
        mpi.stop(killed.process)
        killed.process.communicate()
        for one in (killed, again):
            one.memory.unlink(missing_ok=True)


def test_what_was_left_is_removed_and_mpiexec_takes_over_the_process(stand_in):
    later = Later(starting(stand_in))
    later.memory.write_bytes(b"old")
    assert later.go() == f"clear {later.process.pid} -n 2\n"
    assert later.process.returncode == 3


def test_what_belongs_to_another_is_left_and_another_process_is_taken(stand_in):
    later = Later(starting(stand_in))
    later.memory.mkdir()  # cannot be removed as memory, whoever we are
    try:
        said, pid, *_ = later.go().split()
    finally:
        later.memory.rmdir()
    assert said == "clear"
    assert int(pid) != later.process.pid
    assert later.process.returncode == 3


def test_another_mpiexec_is_started_as_it_is(tmp_path):
    other = tmp_path / "mpiexec.openmpi"
    other.touch(0o700)
    assert starting([str(other), "--quiet"]) == [str(other), "--quiet"]
    named = tmp_path / "mpiexec"
    named.symlink_to(tmp_path / "mpiexec.gforker")
    assert starting([str(named)])[-2:] == [
        str(Path(mpi.__file__).with_name("mpi_start.py")),
        str(named),
    ]


def dies(comm, buffer):
    comm.Barrier()
    os._exit(5)


@real
def test_ranks_that_die_leave_no_memory(monkeypatch):
    started, clear = [], mpi.clear

    def look_and_clear(pid):
        started.append((MEMORY / memory_of(pid)[1:]).exists())
        clear(pid)
        started.append((MEMORY / memory_of(pid)[1:]).exists())

    monkeypatch.setattr(mpi, "clear", look_and_clear)
    with pytest.raises(LabError, match="mpiexec ended without a result"):
        run_mpi(dies, ranks=2)
    assert started == [True, False]
