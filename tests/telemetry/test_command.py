"""`labkit record` watches a real program with the real sampler; `labkit replay` shows it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit.kinds import LabError
from labkit.telemetry.command import record, replay
from labkit.telemetry.reading_files import read

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys, time
from labkit.telemetry.spans import mark
for epoch in (1, 2):
    with mark(f"epoch {epoch}", 1000, by="training"):
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            sum(range(1000))
print("trained")
sys.exit(int(sys.argv[1]))
"""


def recording_of(folder, *program, every=0.1, first="", environment=(), **more):
    """The command in a process of its own, as a shell starts it; what it said, and its file.

    `first` is what that shell does before.
    """
    file = folder / "r.jsonl"
    asked = f"record({list(program)!r}, Path({str(file)!r}), {every})"
    code = "import sys\nfrom pathlib import Path\nfrom labkit.telemetry.command import record\n"
    command = [sys.executable, "-c", f"{code}sys.exit({asked})"]
    if first:
        command = ["/bin/sh", "-c", f'{first}; exec "$@"', "sh", *command]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return file, subprocess.Popen(
        command, cwd=ROOT, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **dict(environment)}, **pipes,
    )  # fmt: skip


def waited(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    file, running = recording_of(folder, sys.executable, "-c", PROGRAM, "3")
    out, said = running.communicate(timeout=60)
    return file, running.returncode, out, said


def test_the_program_runs_as_it_would_alone(recorded):
    _, code, out, _ = recorded
    assert code == 3
    assert out == "trained\n"


def test_the_recording_is_whole_and_has_the_programs_spans_and_the_program(recorded):
    file, *_ = recorded
    recording = read(file)
    assert recording.damage is None
    names = [span.name for span in recording.spans]
    assert names[0].startswith("python")
    assert names[1:] == ["epoch 1", "epoch 2"]
    program, first, second = recording.spans
    assert program.start <= first.start < first.end <= second.start < second.end <= program.end
    assert len(recording.column("cpu", "utilisation")[0]) >= 4
    assert recording.cost > 0


def test_it_says_where_the_recording_lies_and_what_the_spans_used(recorded):
    file, _, _, said = recorded
    assert f"in {file}" in said
    assert "labkit replay" in said
    assert "epoch 2" in said


def test_a_recording_is_never_written_over(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text("precious")
    with pytest.raises(LabError, match="there already"):
        record(["true"], file)
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("program", "every", "says"),
    [
        ([], 0.1, "nothing to run"),
        (["no-such-program"], 0.1, "no-such-program"),
        (["true"], 0, "0 s"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_started(tmp_path, program, every, says):
    with pytest.raises(LabError, match=says):
        record(program, tmp_path / "r.jsonl", every)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(LabError, match="cannot be written"):
        record(["true"], tmp_path / "no" / "r.jsonl")


@pytest.mark.parametrize("key", [signal.SIGINT, signal.SIGQUIT])
def test_ctrl_c_is_the_programs_matter_and_the_recording_is_ended_properly(tmp_path, key):
    patient = (
        "import signal, sys, time\n"
        f"signal.signal({int(key)}, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    file, running = recording_of(tmp_path, sys.executable, "-c", patient, start_new_session=True)
    assert running.stdout.readline() == "ready\n"
    os.killpg(running.pid, key)  # as a terminal does
    _, said = running.communicate(timeout=30)
    assert running.returncode == 7, said
    assert read(file).damage is None


def test_signals_that_are_ignored_stay_so_as_under_nohup(tmp_path):
    patient = (
        "import signal, sys\n"
        "print(*(signal.getsignal(one) is signal.SIG_IGN for one in (1, 2, 13, 15)), flush=True)\n"
        "sys.stdin.readline()\nsys.exit(5)\n"
    )
    file, running = recording_of(
        tmp_path, sys.executable, "-c", patient, first="trap '' HUP INT", stdin=subprocess.PIPE
    )
    # Python itself ignores SIGPIPE, 13.
    assert running.stdout.readline() == "True True True False\n"
    for number in (signal.SIGHUP, signal.SIGINT):
        running.send_signal(number)
    running.communicate("go on\n", timeout=30)
    assert running.returncode == 5
    assert read(file).damage is None


def test_the_program_has_its_input_and_the_signals_that_a_program_expects(tmp_path):
    # With SIGPIPE ignored, as Python has it, `yes` would complain.
    shell = 'read -r line; echo "$line"; yes | head -n 1'
    _, running = recording_of(tmp_path, "/bin/sh", "-c", shell, stdin=subprocess.PIPE)
    out, said = running.communicate("a line\n", timeout=30)
    assert out == "a line\ny\n"
    assert "yes:" not in said


def test_files_that_the_caller_has_open_are_the_programs(tmp_path):
    taken = "exec " + " ".join(f"{number}<&0" for number in range(3, 10))
    shell = "cat <&9; exit 6"
    file, running = recording_of(
        tmp_path, "/bin/sh", "-c", shell, first=taken, stdin=subprocess.PIPE
    )
    out, said = running.communicate("from nine\n", timeout=30)
    assert (running.returncode, out) == (6, "from nine\n"), said
    assert read(file).damage is None


def test_the_devices_are_seen_from_the_programs_beginning(tmp_path):
    file, running = recording_of(tmp_path, "/bin/sleep", "0.5", every=30)
    running.communicate(timeout=30)
    recording = read(file)
    (program,) = recording.spans
    times, _ = recording.column("cpu", "utilisation")
    assert times[0] <= program.start
    assert times[-1] >= program.end


def test_a_name_that_is_no_text_is_passed_on_as_it_is(tmp_path):
    program = "import os, sys; print(os.fsencode(sys.argv[1]).hex()); sys.exit(5)"
    file, running = recording_of(tmp_path, sys.executable, "-c", program, "caf\udce9")
    out, said = running.communicate(timeout=30)
    assert (running.returncode, out) == (5, "636166e9\n"), said
    (span,) = read(file).spans
    assert span.name.encode()


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("rm r.jsonl", "removed or replaced"),
        ("echo mine > new; mv new r.jsonl", "removed or replaced"),
        ("echo mine > r.jsonl", "no recording that can be read"),
    ],
)
def test_a_program_that_takes_its_recording_away_keeps_its_exit_code(tmp_path, does, says):
    file, running = recording_of(tmp_path, "/bin/sh", "-c", f"cd {tmp_path}; {does}; exit 4")
    _, said = running.communicate(timeout=30)
    assert running.returncode == 4
    assert says in said
    assert "Traceback" not in said
    if "new" in does:
        assert file.read_text() == "mine\n"


def test_the_exit_code_is_kept_when_nobody_reads_what_is_said(tmp_path):
    read_end, write_end = os.pipe()
    os.close(read_end)
    file, running = recording_of(tmp_path, "/bin/sh", "-c", "exit 4", stderr=write_end)
    os.close(write_end)
    running.communicate(timeout=30)
    assert running.returncode == 4
    assert read(file).damage is None


def test_a_script_that_names_no_interpreter_is_the_shells(tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "$1"; exit 6\n')
    script.chmod(0o755)
    _, running = recording_of(tmp_path, str(script), "given")
    out, said = running.communicate(timeout=30)
    assert (running.returncode, out) == (6, "given\n"), said


def test_what_cannot_be_run_is_named(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    _, running = recording_of(tmp_path, str(script))
    _, said = running.communicate(timeout=30)
    assert running.returncode == 126
    assert f"{script} cannot be run: No such file" in said


def test_the_sampler_is_of_this_labkit_whatever_others_there_are(tmp_path):
    other = tmp_path / "labkit"
    other.mkdir()
    (other / "__init__.py").write_text("raise SystemExit('another labkit')")
    file, running = recording_of(tmp_path, "/bin/true", environment={"PYTHONPATH": str(tmp_path)})
    _, said = running.communicate(timeout=30)
    assert running.returncode == 0, said
    assert read(file).damage is None


def test_a_program_that_is_killed_gives_a_shells_code(tmp_path):
    file, running = recording_of(tmp_path, "/bin/sh", "-c", "kill -9 $$")
    running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGKILL
    assert read(file).damage is None


def test_a_request_to_end_reaches_the_program_and_no_process_is_left(tmp_path):
    file, running = recording_of(tmp_path, "/bin/sh", "-c", "echo ready; exec sleep 60")
    assert running.stdout.readline() == "ready\n"
    children = _children(running.pid)
    assert len(children) == 2  # the program and the sampler
    running.terminate()
    running.communicate(timeout=30)
    assert running.returncode == 128 + signal.SIGTERM
    waited(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    assert read(file).damage is None


def _children(pid):
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(one) for one in listed.split()]


def test_replay_prints_the_table_and_writes_a_page_that_needs_nothing_else(
    recorded, tmp_path, capsys
):
    file, *_ = recorded
    page = tmp_path / "page.html"
    assert replay(file, page, show=False) == 0
    out = capsys.readouterr().out
    assert "epoch 2" in out
    assert str(page) in out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "recorded on" in text
    assert 'src="http' not in text


@pytest.mark.parametrize("link", [None, Path.symlink_to, Path.hardlink_to])
def test_the_page_never_takes_the_place_of_the_recording(recorded, tmp_path, link):
    file, *_ = recorded
    before, page = file.read_bytes(), file
    if link is not None:
        page = tmp_path / "page.html"
        link(page, file)
    with pytest.raises(LabError, match=r"--html r\.html"):
        replay(file, page)
    assert file.read_bytes() == before


def test_replay_without_a_display_says_where_the_page_is(recorded, monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert replay(recorded[0]) == 0
    page = Path(capsys.readouterr().out.splitlines()[-1].removeprefix("Open it in a browser: "))
    assert page.is_file()


def test_the_lines_of_a_recorded_file_are_json_one_by_one(recorded):
    lines = recorded[0].read_text().splitlines()
    assert json.loads(lines[0])["labkit"] == "recording"
    assert "end" in json.loads(lines[-1])
    assert [type(json.loads(line)) for line in lines if line[0] == "["].count(list) > 4
