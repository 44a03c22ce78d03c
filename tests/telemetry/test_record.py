"""`labkit record` samples beside a real program; `labkit replay` shows the file."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labkit.kinds import LabError
from labkit.telemetry.commands import record, replay
from labkit.telemetry.recording import read

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from labkit.telemetry.spans import span
memory = bytearray(b"x") * 200_000_000
for epoch in (1, 2):
    with span(f"epoch {epoch}", 1000):
        time.sleep(0.4)
print("trained")
sys.exit(3)
"""


def recording_of(folder, *program, **more):
    """The command in a process of its own, as a shell starts it."""
    file = folder / "r.jsonl"
    code = "import sys\nfrom pathlib import Path\nfrom labkit.telemetry.commands import record\n"
    code += f"sys.exit(record({list(program)!r}, Path({str(file)!r})))"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    return file, subprocess.Popen(command, cwd=ROOT, text=True, env=environment, **pipes)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    file, running = recording_of(folder, sys.executable, "-c", PROGRAM)
    out, said = running.communicate(timeout=300)
    return file, running.returncode, out, said


def test_the_program_runs_as_it_would_alone_and_the_file_has_its_spans(recorded):
    file, code, out, said = recorded
    assert (code, out) == (3, "trained\n")
    assert f"in {file}" in said
    assert "epoch 2" in said
    found = read(file)
    assert found.damage is None
    program, first, second = found.spans
    assert program.name.startswith("python")
    assert found.title == program.name
    assert (first.name, second.name, second.images) == ("epoch 1", "epoch 2", 1000)
    assert program.start <= first.start < first.end <= second.start < second.end <= program.end
    times, _ = found.column("cpu", "utilisation")
    assert times[0] <= program.start
    assert times[-1] >= program.end - 0.1
    assert found.column("cpu", "process_memory")[1].max() > 200e6  # the program's, not ours


@pytest.mark.parametrize(
    ("program", "says"), [([], "no program"), (["no-such-program"], "no-such-program")]
)
def test_what_cannot_be_run_is_named_and_leaves_no_file_and_no_file_is_replaced(
    tmp_path, program, says
):
    with pytest.raises(LabError, match=says):
        record(program, tmp_path / "r.jsonl")
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "mine.jsonl"
    file.write_text("precious")
    with pytest.raises(LabError, match="never replaces"):
        record(["true"], file)
    assert file.read_text() == "precious"


def test_ctrl_c_is_the_programs_matter_and_the_recording_is_finished(tmp_path):
    handles = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    file, running = recording_of(tmp_path, sys.executable, "-c", handles, start_new_session=True)
    assert running.stdout.readline() == "ready\n"
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, said = running.communicate(timeout=300)
    assert running.returncode == 7, said
    assert read(file).damage is None


def test_a_request_to_end_reaches_the_program_and_no_process_is_left(tmp_path):
    file, running = recording_of(tmp_path, "/bin/sh", "-c", "echo ready; exec sleep 60")
    assert running.stdout.readline() == "ready\n"
    children = psutil.Process(running.pid).children()
    running.terminate()
    running.communicate(timeout=300)
    assert running.returncode == 128 + signal.SIGTERM
    assert psutil.wait_procs(children, 20)[1] == []
    assert read(file).damage is None


@pytest.mark.parametrize("fault", ["no sampler", "disk full", "file removed"])
def test_whatever_fails_in_the_watching_the_program_runs_as_it_would_alone(
    tmp_path, monkeypatch, capfd, fault
):
    def start(command, **options):
        # A sampler that is late has written nothing when the first span begins.
        silent = fault == "no sampler" and "labkit.telemetry.sampler" in command
        return popen(["true"] if silent else command, **options)

    def write(file, content):
        if fault == "disk full" and b'{"span":"python' in content:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os_write(file, content)

    popen, os_write, file = subprocess.Popen, os.write, tmp_path / "r.jsonl"
    removes = f"import os\nos.remove({str(file)!r})" if fault == "file removed" else ""
    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(os, "write", write)
    assert record([sys.executable, "-c", removes + PROGRAM.replace("0.4", "0.1")], file) == 3
    out, said = capfd.readouterr()
    assert out == "trained\n"
    assert "Traceback" not in said
    assert removes or "epoch 2" in [span.name for span in read(file).spans]
    told = {"no sampler": "ended by itself", "disk full": "is not whole"}
    assert told.get(fault, "cannot be read") in said


def test_replay_prints_the_table_and_writes_a_page_that_needs_nothing_else(
    recorded, tmp_path, capsys
):
    page = tmp_path / "page.html"
    assert replay(recorded[0], page, show=False) == 0
    out = capsys.readouterr().out
    assert "epoch 2" in out
    assert str(page) in out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "recorded on" in text
    assert 'src="http' not in text
