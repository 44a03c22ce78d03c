"""Nothing stays: whoever is interrupted, killed or stopped, all that was started is ended."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

import labkit
from labkit.cluster import resting
from labkit.cluster.launching import Launcher
from labkit.cluster.resting import key_of
from tests.cluster.leftovers import children_of, gone, marked, new_mark

# A session that runs ranks which have started processes of their own, also in other sessions.
SESSION = """
import os, subprocess, sys, time
import labkit

def program(rank):
    subprocess.Popen(["sleep", "1000"])
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print("here", flush=True)
    while True:
        time.sleep(1)

with labkit.cluster(ranks=2) as c:
    going = c.start(program, show=False)
    for rank in range(2):
        going.wait_for("here", rank=rank)
    print(c.engine.launcher_pid, going.pids[0], going.pids[1], flush=True)
    going.finish(deadline=1000).raise_errors()
"""


@contextlib.contextmanager
def session(text=SESSION):
    """A Python of its own with a mark; the launcher's pid and those of the ranks."""
    mark = new_mark()
    with subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "LABKIT_TEST_MARK": mark},
    ) as process:
        try:
            assert select.select([process.stdout], [], [], 60)[0], "the session did not begin"
            launcher, *ranks = map(int, process.stdout.readline().split())
            assert {process.pid, launcher, *ranks} <= marked(mark).keys()
            yield process, mark, launcher, ranks
        finally:
            process.kill()


def test_ctrl_c_ends_everything():
    with session() as (process, mark, _, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
        assert gone(mark) == {}
        assert b"KeyboardInterrupt" in process.stderr.read()


def test_a_killed_session_leaves_nothing():
    with session() as (process, mark, _, _):
        process.kill()
        process.wait(30)
        assert gone(mark) == {}


def test_a_killed_launcher_takes_the_ranks_along_and_is_told():
    with session() as (process, mark, launcher, _):
        os.kill(launcher, signal.SIGKILL)
        assert process.wait(30) != 0
        said = process.stderr.read()
        assert b"The launcher of the ranks has ended (exit status -9)" in said
        # What the ranks had started in sessions of their own has no parent any more: it stays.
        until = time.monotonic() + 20
        while not all(b"sleep" in command for command in marked(mark).values()):
            assert time.monotonic() < until
            time.sleep(0.02)
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)


def test_a_launcher_asked_to_end_ends_everything():
    with session() as (process, mark, launcher, _):
        os.kill(launcher, signal.SIGTERM)
        assert process.wait(30) != 0
        assert gone(mark) == {}


def test_a_stopped_session_is_no_reason_to_lose_ranks():
    with session() as (process, mark, _, ranks):
        process.send_signal(signal.SIGSTOP)
        os.kill(ranks[0], signal.SIGKILL)
        process.send_signal(signal.SIGCONT)
        assert process.wait(30) != 0
        assert gone(mark) == {}
        assert b"Rank 0 was killed by signal 9" in process.stderr.read()


@pytest.mark.parametrize("moment", [0.0, 0.02, 0.06, 0.15, 0.4])
def test_an_interrupt_at_any_moment_leaves_a_cluster_that_works(moment):
    def program(rank):
        print("x" * 1000)
        time.sleep(60)

    with labkit.cluster(ranks=2) as c:
        later = f"import os, time; time.sleep({moment}); os.kill({os.getpid()}, 2)"
        with pytest.raises(KeyboardInterrupt), subprocess.Popen([sys.executable, "-c", later]):
            c.run(program, show=False)
        assert c.run(lambda rank: rank) == [0, 1]
        assert children_of(c.engine.launcher_pid) == []


def test_grandchildren_end_with_the_run():
    mark = new_mark()

    def program(rank):
        away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        daemon = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(1000)"
        subprocess.run([sys.executable, "-c", daemon])
        return away.pid

    with labkit.cluster(ranks=2, environment={"LABKIT_TEST_MARK": mark}) as c:
        pids = c.run(program)
        assert all(pid > 0 for pid in pids)
        left = [pid for pid in marked(mark) if pid != c.engine.launcher_pid]
        assert left == []
    assert gone(mark) == {}


def test_ranks_are_reached_by_nobody_outside_their_network():
    def listens(rank):
        with socket.create_server(("0.0.0.0", 20001)):
            print("listening", flush=True)
            time.sleep(60)

    with labkit.cluster(ranks=1) as c:
        if "network of their own" not in repr(c):
            pytest.skip("this system gives no private networks")
        going = c.start(listens, show=False)
        going.wait_for("listening")
        with socket.socket() as asked:
            assert asked.connect_ex(("127.0.0.1", 20001)) != 0
        going.stop()


def test_the_shared_network_is_this_machines():
    def listens(rank):
        from labkit.cluster import this_rank

        host, _, port = this_rank().address.rpartition(":")
        with socket.create_server((host, int(port))):
            print("listening", flush=True)
            time.sleep(60)

    with labkit.cluster(ranks=2, network="shared") as c:
        assert "this machine's loopback" in repr(c)
        going = c.start(listens, show=False)
        for rank in range(2):
            going.wait_for("listening", rank=rank)
            host, _, port = c.addresses[rank].rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        going.stop()


def test_where_the_system_refuses_a_network_the_machines_is_taken():
    program = "import labkit\nwith labkit.cluster(ranks=2) as c: print(repr(c), c.run(abs))"
    forbid = (
        "echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces"
    )
    within = ["unshare", "--user", "--map-root-user", "sh", "-c"]
    if subprocess.run([*within, forbid], capture_output=True, timeout=30).returncode:
        pytest.skip("this system lets nobody forbid private networks")
    command = [*within, f'{forbid}; exec "$0" -c "$1"', sys.executable, program]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "2 ranks on this machine's loopback (the system refuses a private" in answer.stdout
    assert "[0, 1]" in answer.stdout


def test_a_network_of_their_own_needs_no_rights():
    program = "import labkit\nwith labkit.cluster(ranks=2) as c: print(repr(c), c.run(abs))"
    command = [sys.executable, "-c", program]
    if os.getuid() == 0:
        rights = "-sys_admin,-net_admin"
        command = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *command]
        if shutil.which("setpriv") is None:
            pytest.skip("there is no setpriv, which gives rights away")
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "[0, 1]" in answer.stdout, answer.stderr


def test_a_launcher_that_rests_is_taken_again_if_nothing_has_changed(monkeypatch):
    with labkit.cluster(ranks=1, keep_warm=True) as c:
        first = c.engine.launcher_pid
    with labkit.cluster(ranks=2, keep_warm=True) as c:
        assert c.engine.launcher_pid == first
        assert c.run(lambda rank: rank) == [0, 1]
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")  # read when TensorFlow is loaded
    with labkit.cluster(ranks=1, keep_warm=True) as c:
        second = c.engine.launcher_pid
        assert second != first
    labkit.cluster.cool()
    assert not any(pid in (first, second) for pid, _ in children_of(os.getpid()))


def test_a_launcher_that_has_died_in_its_rest_is_replaced():
    with labkit.cluster(ranks=1, keep_warm=True) as c:
        first = c.engine.launcher_pid
    os.kill(first, signal.SIGKILL)
    with labkit.cluster(ranks=1) as c:
        assert c.run(lambda rank: rank) == [0]
        assert c.engine.launcher_pid != first


def test_a_launcher_rests_for_a_time_only(monkeypatch):
    monkeypatch.setattr(resting, "SECONDS", 0.1)
    mark = new_mark()
    monkeypatch.setenv("LABKIT_TEST_MARK", mark)
    launcher = Launcher(network="shared")
    resting.put(key_of("shared", {}), launcher)
    alive = [pid for pid in gone(mark) if pid == launcher.pid]
    assert alive == [] or dict(children_of(os.getpid()))[launcher.pid] == "Z"
    labkit.cluster.cool()


def test_commands_are_started_ended_and_told():
    launcher = Launcher()
    out, into = os.pipe()
    environment = dict(os.environ)
    launcher.spawn(1, ["echo", "hello"], environment, "/", into, into)
    assert launcher.wait(10, "spawned", 1)
    assert launcher.wait(10, "gone", 1) == ("gone", 1, 0)
    launcher.spawn(2, ["sleep", "1000"], environment, "/", into, into)
    launcher.signal_command(2, signal.SIGTERM)
    assert launcher.wait(10, "gone", 2) == ("gone", 2, -15)
    launcher.spawn(3, ["/no/such/command"], environment, "/", into, into)
    assert "No such file" in launcher.wait(10, "refused", 3)[2]
    os.close(into)
    assert os.read(out, 100) == b"hello\n"
    os.close(out)
    launcher.close()


def test_what_must_be_done_at_the_end_is_done_when_the_session_is_killed(tmp_path):
    text = f"""
import time
from labkit.cluster.launching import Launcher
launcher = Launcher()
launcher.at_end(["touch", {str(tmp_path / "cancelled")!r}])
if {{closed}}:
    launcher.close()
    raise SystemExit
print(launcher.pid, flush=True)
time.sleep(1000)
"""
    with subprocess.Popen(
        [sys.executable, "-c", text.replace("{closed}", "False")], stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.kill()
    until = time.monotonic() + 20
    while not (tmp_path / "cancelled").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    (tmp_path / "cancelled").unlink()
    closing = [sys.executable, "-c", text.replace("{closed}", "True")]
    subprocess.run(closing, timeout=60, check=True)
    assert not (tmp_path / "cancelled").exists()
