"""labkit doctor: a line for every check, whatever the check does."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from labkit import doctor
from labkit.cluster import network
from labkit.doctor import Check
from labkit.hardware import gpus, machine
from labkit.hardware.machine import Memory

ROOT = Path(doctor.__file__).parent.parent
GOOD = "return Line('pass', 'all is well')"
WARN = "return Line('warn', 'nearly', 'read it')"
FAIL = "return Line('fail', 'broken', 'fix it')"


@pytest.fixture
def checks(tmp_path, monkeypatch):
    """Checks of the test's own: a module that the checks' processes can load."""

    def checks(**programs):
        lines = ["import os, subprocess, sys, time", "from labkit.doctor import Line"]
        for name, program in programs.items():
            lines.append(f"def {name}():\n{textwrap.indent(textwrap.dedent(program), '    ')}")
        (tmp_path / "own_checks.py").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(tmp_path))
        return tuple(Check(name, f"own_checks:{name}", seconds=20) for name in programs)

    return checks


@pytest.mark.parametrize(("programs", "code"), [((GOOD, WARN), 0), ((GOOD, WARN, FAIL), 1)])
def test_the_report_and_the_exit_code(checks, monkeypatch, capsys, programs, code):
    own = checks(**dict(zip("abc", programs, strict=False)))
    monkeypatch.setattr(doctor, "CHECKS", own)
    assert doctor.main() == code
    shown = capsys.readouterr().out
    assert ("Not ready" in shown) == bool(code)
    assert shown.count("do: ") == len(programs) - 1
    assert shown.startswith("pass  a")
    assert "all is well" in shown


def test_a_check_that_raises_crashes_or_prints_costs_one_line(checks):
    own = checks(
        raises="raise ValueError('odd\\nmachine')",
        refuses="from labkit import LabError; raise LabError('TensorFlow is missing.')",
        leaves="sys.exit('I leave')",
        crashes="os.write(2, b'bad luck\\n'); os.abort()",
        prints=f"print('noise', flush=True); os.write(2, b'x' * 300_000); {GOOD}",
    )
    found = {line.check: line for line in doctor.examine([*own, Check("nowhere", "no_module:x")])}
    assert "ValueError: odd machine" in found["raises"].found
    assert found["refuses"].found == "TensorFlow is missing."
    assert "I leave" in found["leaves"].found
    assert found["crashes"].found == f"ended by signal {int(signal.SIGABRT)}: bad luck"
    assert "no_module" in found["nowhere"].found
    assert found.pop("prints").status == "pass"
    assert all(line.status == "fail" and line.do for line in found.values())


def test_a_check_that_hangs_is_ended_with_all_that_it_started(checks, tmp_path):
    hangs, good = checks(
        hangs=f"""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open({str(tmp_path / "numbers")!r}, "w") as file:
            file.write(f"{{os.getpid()}} {{child.pid}}")
        time.sleep(600)
        """,
        good=GOOD,
    )
    lines = list(doctor.examine([Check("hangs", hangs.function, seconds=3), good]))
    assert "no answer" in lines[0].found
    assert [line.status for line in lines] == ["fail", "pass"]
    for number in (tmp_path / "numbers").read_text().split():
        wait_for_end(int(number))


def wait_for_end(number):
    try:
        process = psutil.Process(number)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(timeout=30)
    except psutil.NoSuchProcess:
        pass


def test_ctrl_c_leaves_nothing_running(checks, tmp_path):
    started = tmp_path / "started"
    os.mkfifo(started)
    checks(
        hangs=f"""
        with open({str(started)!r}, "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
        """
    )
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from labkit import cli, doctor\n"
        "doctor.CHECKS = (doctor.Check('hangs', 'own_checks:hangs', 600),)\n"
        "raise SystemExit(cli.main(['doctor']))"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    stopped = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        number = int(started.read_text())  # waits until the check runs
        stopped.send_signal(signal.SIGINT)
        _, message = stopped.communicate(timeout=30)
        assert stopped.returncode == 130
        assert "Traceback" not in message
        wait_for_end(number)
    finally:
        stopped.kill()
        stopped.wait()


def test_every_check_answers_here():
    """On this machine, whatever it has: no check fails by itself."""
    lines = list(doctor.examine(doctor.CHECKS))
    assert [line.check for line in lines] == [check.name for check in doctor.CHECKS]
    assert all(line.do for line in lines if line.status != "pass")
    (tensorflow,) = (line for line in lines if line.check == "TensorFlow")
    assert tensorflow.status != "fail", tensorflow
    assert "Error" not in "".join(line.found for line in lines if line.status == "fail")
    (ranks,) = (line for line in lines if line.check == "Ranks")
    assert ranks.status == ("warn" if network.private_network_refused() else "pass")


@pytest.mark.parametrize(
    ("state", "notes", "names", "status"),
    [
        ("none", ("No NVIDIA driver.",), "", "pass"),
        ("broken", ("Different versions.",), "", "fail"),
        ("working", (), "", "warn"),
        ("working", (), "T", "pass"),
        ("working", ("GPU 1 is lost: ...",), "TT", "fail"),
    ],
)
def test_the_driver(monkeypatch, state, notes, names, status):
    found = tuple(SimpleNamespace(name=name) for name in names)
    monkeypatch.setattr(gpus, "read_gpus", lambda: gpus.Driver("580", state, found, notes))
    line = doctor.check_driver()
    assert line.status == status
    assert all(note in line.found for note in notes)


def test_a_missing_private_network_is_a_warning_with_its_reason(monkeypatch):
    monkeypatch.setattr(network, "private_network_refused", lambda: "this container forbids it")
    line = doctor.check_ranks()
    assert line.status == "warn"
    assert "this container forbids it" in line.found
    assert "network='shared'" in line.do


@pytest.mark.parametrize(("gigabytes", "status"), [(0.5, "fail"), (2, "warn"), (8, "pass")])
def test_memory(monkeypatch, gigabytes, status):
    free = Memory(10**10, int(gigabytes * 1e9), None)
    monkeypatch.setattr(machine, "read_memory", lambda: free)
    assert doctor.check_memory().status == status


def test_data_is_not_downloaded_and_a_useless_cache_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    (tmp_path / "file").write_text("mine")
    for folder, words in (("cache", "labkit.datasets.mnist()"), ("file/x", "Set LABKIT_CACHE")):
        monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / folder))
        line = doctor.check_data()
        assert line.status == "warn"
        assert words in line.do
        assert doctor.check_disk().status in ("pass", "warn", "fail")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("cuda_build", "system", "hidden", "do"),
    [
        (False, "Linux", False, "Run `make lab TENSORFLOW=cuda`"),
        (True, "Linux", False, "Update the NVIDIA driver"),
        (False, "Darwin", False, "Use CPUs"),
        (True, "Linux", True, "Unset CUDA_VISIBLE_DEVICES"),
    ],
)
def test_gpus_that_tensorflow_does_not_see(monkeypatch, cuda_build, system, hidden, do):
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert doctor.cuda_advice(hidden=hidden, cuda_build=cuda_build).startswith(do)
