"""labkit doctor: a line for every check, whatever the check does."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from labkit import doctor, doctor_checks
from labkit.datasets.cache import remember_failure
from labkit.doctor import Check, Line
from labkit.hardware import Memory, gpus, machine

ROOT = Path(doctor.__file__).parent.parent


@pytest.fixture
def checks(tmp_path, monkeypatch):
    """Make checks of one's own: a module that the checks' processes can load."""

    def checks(**programs):
        lines = ["import os, subprocess, sys, time", "from labkit.doctor import Line"]
        for name, program in programs.items():
            lines.append(f"def {name}():\n{textwrap.indent(textwrap.dedent(program), '    ')}")
        (tmp_path / "own_checks.py").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(str(tmp_path))
        return [Check(name, f"own_checks:{name}", seconds=20) for name in programs]

    return checks


GOOD = "return Line('', 'pass', 'all is well')"
WARN = "return Line('', 'warn', 'nearly', 'look at it')"
FAIL = "return Line('', 'fail', 'broken', 'mend it')"


def until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def gone(number):
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_lines_come_in_order_with_their_checks_name(checks):
    lines = list(doctor.examine(checks(one=GOOD, two=WARN, three=FAIL)))
    assert lines == [
        Line("one", "pass", "all is well"),
        Line("two", "warn", "nearly", "look at it"),
        Line("three", "fail", "broken", "mend it"),
    ]


@pytest.mark.parametrize(
    ("programs", "code"),
    [({"a": GOOD}, 0), ({"a": GOOD, "b": WARN}, 0), ({"a": GOOD, "b": WARN, "c": FAIL}, 1)],
)
def test_the_exit_code_is_for_scripts(checks, monkeypatch, programs, code):
    monkeypatch.setattr(doctor, "CHECKS", tuple(checks(**programs)))
    out = io.StringIO()
    assert doctor.main(out=out) == code
    assert (
        len(out.getvalue().splitlines()) == len(programs) + 1 + (WARN in programs.values()) + code
    )
    assert ("Not ready" in out.getvalue()) == bool(code)

    out = io.StringIO()
    assert doctor.main(as_json=True, out=out) == code
    listed = json.loads(out.getvalue())
    assert [line["check"] for line in listed] == list(programs)
    assert all(set(line) == {"check", "status", "found", "do"} for line in listed)
    assert all(line["do"] for line in listed if line["status"] != "pass")


def test_a_check_that_raises_crashes_or_chatters_costs_one_line(checks):
    own = checks(
        raises="raise ValueError('odd\\nmachine')",
        asks="from labkit import LabError; raise LabError('TensorFlow is missing.')",
        leaves="sys.exit('I leave')",
        crashes="os.write(2, b'bad luck\\n'); os.abort()",
        chatters=f"print('noise', flush=True); os.write(2, b'x' * 300_000); {GOOD}",
    )
    lines = list(doctor.examine([*own, Check("nowhere", "no_such_module:check")]))
    found = {line.check: line for line in lines}
    assert "ValueError: odd machine" in found["raises"].found
    assert found["asks"].found == "TensorFlow is missing."
    assert "I leave" in found["leaves"].found
    assert found["crashes"].found == f"ended by signal {int(signal.SIGABRT)}: bad luck"
    assert "no_such_module" in found["nowhere"].found
    assert found["chatters"].status == "pass"
    assert all(line.status == "fail" for line in lines if line.check != "chatters")
    assert all(line.do for line in lines if line.check != "chatters")
    assert "make clean" in found["crashes"].do


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
    lines = list(doctor.examine([Check("hangs", hangs.function, seconds=5), good]))
    assert lines[0].found == "gave no answer within 5 s"
    assert (lines[0].status, lines[1].status) == ("fail", "pass")
    for number in (tmp_path / "numbers").read_text().split():
        until(lambda number=number: gone(int(number)))


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running_when_doctor_is_stopped(checks, tmp_path, ending):
    def running():
        """Each check names a file of its own after its process."""
        return [int(file.name.partition("-")[2]) for file in tmp_path.glob("running-*")]

    checks(
        hangs=f"""
        open({str(tmp_path)!r} + f"/running-{{os.getpid()}}", "w").close()
        time.sleep(600)
        """
    )
    program = (
        "from labkit import cli, doctor\n"
        "doctor.CHECKS = (doctor.Check('hangs', 'own_checks:hangs', 600),) * 3\n"
        "raise SystemExit(cli.main(['doctor']))"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    stopped = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(running)
        stopped.send_signal(ending)
        _, complaint = stopped.communicate(timeout=30)
        assert stopped.returncode == (130 if ending == signal.SIGINT else -ending)
        assert "Traceback" not in complaint
        until(lambda: all(gone(number) for number in running()))
    finally:
        stopped.kill()
        stopped.wait()


def test_quick_starts_no_tensorflow():
    slow = {check.name for check in doctor.CHECKS if check.slow}
    assert slow == {"TensorFlow", "All-reduce"}
    out = io.StringIO()
    doctor.main(quick=True, as_json=True, out=out)
    names = [line["check"] for line in json.loads(out.getvalue())]
    assert names == [check.name for check in doctor.CHECKS if not check.slow]


def test_two_replicas_add_up_here():
    (line,) = doctor.examine([check for check in doctor.CHECKS if check.name == "All-reduce"])
    assert line.status == "pass", line
    assert "1 + 2 = 3" in line.found


def test_a_driver_is_judged(monkeypatch):
    def line(state, notes=()):
        driver = gpus.Driver("580", state, notes=notes)
        monkeypatch.setattr(gpus, "read_gpus", lambda: driver)
        return doctor_checks.driver()

    assert line("none", ("No NVIDIA driver.",)).status == "pass"
    assert line("broken", ("Different versions.",)).status == "fail"
    assert line("working").status == "warn"  # a driver, but no GPU
    assert line("working", ("GPU 1 is lost: ...",)).status == "fail"


def test_memory_is_judged_by_what_is_left(monkeypatch):
    for available, status in ((500 * 10**6, "fail"), (2 * 10**9, "warn"), (8 * 10**9, "pass")):
        monkeypatch.setattr(
            machine, "read_memory", lambda free=available: Memory(10**10, free, None)
        )
        assert doctor_checks.memory().status == status


def test_data_is_looked_up_and_not_downloaded(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    line = doctor_checks.data()
    assert line.status == "warn"
    assert "MNIST not there yet" in line.found
    assert "labkit.datasets.mnist()" in line.do
    assert list(tmp_path.iterdir()) == []
    # A file where the folder should be: the nearest folder above is asked.
    assert doctor_checks.disk().status in ("pass", "warn", "fail")


def test_a_file_in_the_place_of_the_cache_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/deeper"):
        monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / place))
        line = doctor_checks.data()
        assert line.status == "warn"
        assert f"{tmp_path / 'file'} is a file" in line.found
        assert "Set LABKIT_CACHE to a folder" in line.do


def test_what_forbids_a_download_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.delenv("LABKIT_OFFLINE", raising=False)
    remember_failure(tmp_path, "mnist")
    line = doctor_checks.data()
    assert "a download of MNIST failed less than an hour ago" in line.found
    assert line.do.startswith(f"Delete {tmp_path / 'mnist.no-download'}, or wait an hour. Call ")
    monkeypatch.setenv("LABKIT_OFFLINE", "1")
    line = doctor_checks.data()
    assert "LABKIT_OFFLINE=1 forbids downloads" in line.found
    assert line.do.startswith("Unset LABKIT_OFFLINE. Delete ")


@pytest.mark.parametrize(
    ("cuda_build", "system", "do"),
    [
        (False, "Linux", "Run `make lab TENSORFLOW=cuda`"),
        (True, "Linux", "Update the NVIDIA driver"),
        (False, "Darwin", "Use CPUs"),
    ],
)
def test_gpus_that_tensorflow_does_not_see_have_a_remedy(monkeypatch, cuda_build, system, do):
    gpu = SimpleNamespace(visible=True)
    build = SimpleNamespace(
        __version__="2", test=SimpleNamespace(is_built_with_cuda=lambda: cuda_build)
    )
    monkeypatch.setattr(gpus, "read_gpus", lambda: gpus.Driver("580", "working", (gpu,)))
    monkeypatch.setattr("labkit.hardware.devices.import_tensorflow", lambda: build)
    monkeypatch.setattr("labkit.hardware.devices.logical_gpus", list)
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    line = doctor_checks.tensorflow()
    assert line.status == "warn"
    assert line.do.startswith(do)


def test_a_taken_port_is_only_a_warning(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(doctor_checks, "_JUPYTER_PORT", taken.getsockname()[1])
        assert doctor_checks.ports().status == "warn"
