"""Nothing stays: whoever is interrupted, killed or stopped, all that was started is ended."""

import contextlib
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import labkit
from labkit.cluster.here import fork_client, local
from labkit.cluster.ranks import in_rank
from tests.cluster.leftovers import MARK, gone, marked, new_mark
from tests.cluster.private_slurm import wait_for

# A session that runs ranks which have started processes of their own, also in other sessions,
# and made a file.
SESSION = """
import os, signal, subprocess, tempfile
import labkit

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests' own is ignored

def program(rank):
    tempfile.mkstemp()
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print("here", os.getppid(), flush=True)
    signal.pause()

with labkit.cluster(ranks=2) as c:
    run = c.start(program, show=False)
    for rank in range(2):
        run.wait_for("here", rank=rank)
    print(*run.wait_for("here", rank=0).text.split()[1:], flush=True)
    run.finish(timeout=1000).raise_errors()
"""


@contextlib.contextmanager
def session(folder):
    """A Python of its own with a mark; the process, and the pid of its fork server.

    Its temporary files are in the folder.
    """
    mark = new_mark()
    with subprocess.Popen(
        [sys.executable, "-c", SESSION],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, MARK: mark, "TMPDIR": str(folder)},
    ) as process:
        try:
            assert select.select([process.stdout], [], [], 60)[0], "the session did not begin"
            yield process, int(process.stdout.readline())
            assert process.wait(60) != 0
            assert gone(mark)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("whom", "number", "last_words"),
    [
        ("session", signal.SIGINT, b"KeyboardInterrupt"),
        ("session", signal.SIGKILL, b""),
        ("server", signal.SIGKILL, b"The fork server of the ranks has ended"),
        ("server", signal.SIGTERM, b"LabError"),
    ],
)
def test_whoever_is_killed_everything_ends(whom, number, last_words, tmp_path):
    """Also what ranks have started in sessions of their own, which may have no parent any more."""
    with session(tmp_path) as (process, server):
        os.kill(process.pid if whom == "session" else server, number)
        assert last_words in process.stderr.read()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("moment", "again"), [(0.01, 0), (0.05, 0), (0.3, 0), (0.3, 1)])
def test_an_interrupt_at_any_moment_leaves_a_cluster_that_works(four, moment, again, monkeypatch):
    def program(rank):
        print("x" * 1000)
        threading.Event().wait()

    def interrupted():
        threading.Timer(moment, os.kill, (os.getpid(), signal.SIGINT)).start()
        with monkeypatch.context() as patch:
            if again:  # while the ranks are being ended
                patch.setattr(fork_client.ForkServer, "stop", signal.default_int_handler)
            four.run(program, show=False)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert four.run(lambda rank: rank) == [0, 1, 2, 3]


def test_an_interrupt_while_modules_are_imported_is_heeded(tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    (tmp_path / "slow_to_load.py").write_text(
        f"import pathlib, signal; pathlib.Path({str(begun)!r}).touch(); signal.pause()"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(in_rank, "HEAVY", ("slow_to_load",))
    monkeypatch.setattr(local, "STOPPING", 0.3)  # it never answers
    mark = new_mark()

    def program(rank):
        import slow_to_load  # noqa: F401

    def interrupt():
        wait_for(begun.exists, "the import")
        os.kill(os.getpid(), signal.SIGINT)

    with labkit.cluster(ranks=2, variables={MARK: mark}) as c:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            c.run(program)
    assert gone(mark)


def test_what_ranks_have_started_ends_with_the_run():
    mark = new_mark()

    def program(rank):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        daemon = "import os, signal; os.fork() and os._exit(0); os.setsid(); signal.pause()"
        subprocess.run([sys.executable, "-c", daemon])
        return os.getppid()

    with labkit.cluster(ranks=2, variables={MARK: mark}) as c:
        servers = {*c.run(program)}
        assert marked(mark) <= servers
    assert gone(mark)


def test_a_warm_server_is_used_again_if_what_libraries_read_is_the_same_and_ends_by_itself(
    monkeypatch,
):
    def server():
        with labkit.cluster(ranks=1, keep_warm=True) as c:
            folder_is_there, pid = c.run(
                lambda rank: (Path(os.environ["TMPDIR"]).is_dir(), os.getppid())
            )[0]
            assert folder_is_there
            return pid

    mark = new_mark()
    monkeypatch.setenv(MARK, mark)
    first = server()
    fork = multiprocessing.get_context("fork").Process(target=labkit.cluster.shutdown)
    fork.start()  # which ends nothing of its parent
    fork.join()
    assert server() == first
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # read when TensorFlow is imported
    second = server()
    assert second != first
    os.kill(second, signal.SIGKILL)
    monkeypatch.setattr(fork_client, "WARM_SECONDS", 0.01)
    assert server() not in (first, second)
    assert gone(mark)
    labkit.cluster.shutdown()


def semaphores():
    """Those of multiprocessing that this process has open."""
    mapped = {int(line.split()[4]) for line in Path("/proc/self/maps").read_text().splitlines()}
    return [file for file in Path("/dev/shm").glob("sem.mp-*") if file.stat().st_ino in mapped]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows semaphores as files")
def test_semaphores_of_killed_ranks_are_removed_and_no_others(four):
    def makes_one(rank):
        lock = multiprocessing.get_context("spawn").Lock()
        print("made", *semaphores(), flush=True)
        lock.acquire()
        lock.acquire()

    handle = four.start(makes_one, show=False)
    files = [Path(handle.wait_for("made", rank).text.split()[1]) for rank in range(4)]
    # In a user namespace of its own a fork server cannot see that another process uses this one.
    other = Path("/dev/shm/sem.mp-of-another-session")
    other.touch()
    assert all(file.exists() for file in files)
    handle.stop()
    assert not any(file.exists() for file in files)
    assert other.exists()
    other.unlink()


def test_a_fork_that_leaves_the_block_ends_nothing(four):
    fork = multiprocessing.get_context("fork").Process(target=four.__exit__)
    fork.start()
    fork.join()
    assert four.run(lambda rank: Path(os.environ["TMPDIR"]).is_dir()) == [True] * 4


def test_a_fork_server_that_cannot_be_started_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = labkit.cluster(ranks=1)
    cluster.engine.python = "/nowhere"
    with pytest.raises(OSError, match="nowhere"), cluster:
        pass
    assert not list(tmp_path.iterdir())
