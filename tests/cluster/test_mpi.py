"""engine="mpi": ranks started by a real mpiexec, whose programs may use mpi4py's COMM_WORLD."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import labkit
from labkit import LabError
from labkit.collectives.mpi.gforker import memory_of
from tests.cluster.private_slurm import wait_for

ROOT = Path(labkit.__file__).parent.parent
OPEN_MPI = Path("/usr/bin/mpiexec.openmpi")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None
    or not Path(sys.executable).with_name("mpiexec").exists(),
    reason="there is no MPI in this environment",
)


def adds_up(rank, factor):
    from mpi4py import MPI

    from labkit import cluster

    me, comm = cluster.this_rank(), MPI.COMM_WORLD
    print(f"{me.rank} of {comm.Get_size()}", flush=True)
    return comm.Get_rank(), me.address, comm.allreduce(factor * rank)


def dies_on_one(rank):
    from mpi4py import MPI

    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    MPI.COMM_WORLD.Barrier()


def raises_on_one(rank):
    from mpi4py import MPI

    if rank == 1:
        print("about to divide")
        rank / 0
    MPI.COMM_WORLD.Barrier()


def shared_memory():
    return {path.name for path in Path("/dev/shm").glob("mpich_shm_*")}


def ours():
    """Processes that run labkit's ranks for this one."""
    return [
        process.pid
        for process in psutil.Process().children(recursive=True)
        if process.status() != psutil.STATUS_ZOMBIE
    ]


@pytest.fixture(scope="module")
def two():
    with labkit.cluster(ranks=2, engine="mpi") as c:
        yield c


def test_a_rank_is_the_rank_of_comm_world(two, capfd):
    results = two.run(adds_up, 10)
    assert [rank for rank, _, _ in results] == [0, 1]
    assert [total for _, _, total in results] == [10, 10]
    assert tuple(address for _, address, _ in results) == two.addresses
    assert sorted(capfd.readouterr().out.splitlines()) == ["rank 0: 0 of 2", "rank 1: 1 of 2"]


def test_a_rank_that_dies_is_named_and_the_others_say_where_they_were(two):
    before = shared_memory()
    with pytest.raises(LabError, match=r"Rank 1 was killed by signal 9 \(SIGKILL\)") as caught:
        two.run(dies_on_one)
    assert caught.value.errors[1].what == "died"
    line = dies_on_one.__code__.co_firstlineno + 5
    assert f"line {line} of dies_on_one" in caught.value.errors[0].text
    assert shared_memory() <= before  # what killed ranks shared is given back
    assert [total for _, _, total in two.run(adds_up, 1)] == [1, 1]


def test_a_rank_that_raises_is_named_with_its_output(two, capfd):
    with pytest.raises(LabError, match="Rank 1 raised ZeroDivisionError") as caught:
        two.run(raises_on_one)
    assert "rank / 0" in caught.value.errors[1].traceback
    assert "rank 1: about to divide" in capfd.readouterr().out


def test_a_hang_ends_at_the_deadline(two):
    with pytest.raises(LabError, match=r"had not ended after 0\.5 s"):
        two.run(lambda rank: time.sleep(60), deadline=0.5)


def test_a_paused_rank_can_go_on(two):
    def counts(rank):
        for number in range(1000):
            print(number, flush=True)
            time.sleep(0.01)
            if number > 20 and Path(told).exists():
                return number
        return None

    folder = Path(two.engine._folder)
    told = str(folder / "enough")
    going = two.start(counts, show=False)
    going.wait_for("3", rank=0)
    going.pause(0)
    going.resume(0)
    Path(told).touch()
    assert all(number > 20 for number in going.finish(30).results.values())


def test_a_killed_notebook_leaves_no_rank(tmp_path):
    program = (
        "import labkit, os, time\n"
        "def sleeps(rank):\n"
        "    print(os.getpid(), flush=True)\n"
        "    time.sleep(600)\n"
        "with labkit.cluster(ranks=2, engine='mpi') as c:\n"
        "    c.run(sleeps)\n"
    )
    asker = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    ranks = [int(asker.stdout.readline().split()[-1]) for _ in range(2)]
    assert all(psutil.pid_exists(pid) for pid in ranks)
    asker.kill()
    asker.wait()
    asker.stdout.close()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in ranks), "the end of the ranks")


def test_ranks_go_with_a_launcher_that_is_killed():
    with labkit.cluster(ranks=2, engine="mpi") as c:
        going = c.start(lambda rank: [print(os.getpid(), flush=True), time.sleep(600)], show=False)
        ranks = [int(going.wait_for("", rank=rank).text) for rank in range(2)]
        os.kill(c.engine._starter._launcher.pid, signal.SIGKILL)
        with pytest.raises(LabError, match="mpiexec ended with code -9"):
            going.finish(20).raise_errors()
        wait_for(lambda: not any(psutil.pid_exists(pid) for pid in ranks), "the end of the ranks")


def test_nothing_is_left_after_the_block(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(ours())
    with labkit.cluster(ranks=2, engine="mpi") as c:
        assert set(ours()) > before
        c.run(adds_up, 1)
    assert set(ours()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not OPEN_MPI.exists(), reason="Debian's Open MPI is not installed")
def test_another_mpi_is_used_with_its_own_library():
    with labkit.cluster(ranks=4, engine="mpi", mpiexec=OPEN_MPI) as c:
        assert [total for _, _, total in c.run(adds_up, 1)] == [6] * 4


def test_an_mpiexec_that_is_not_there_is_named():
    with (
        pytest.raises(LabError, match=r"There is no mpiexec at /nowhere/mpiexec"),
        labkit.cluster(ranks=2, engine="mpi", mpiexec="/nowhere/mpiexec"),
    ):
        pass


def test_ranks_that_all_die_by_themselves_leave_no_shared_memory(two):
    def dies(rank):
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()
        os._exit(5)

    going = two.start(dies, show=False)
    mpiexec = two.engine._run._command
    assert set(going.finish(30).errors) == {0, 1}
    assert mpiexec.pid is not None
    assert memory_of(mpiexec.pid)[1:] not in shared_memory()
