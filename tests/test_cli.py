"""The command labkit: what it passes on, and how it says that something is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import labkit
from labkit import LabError, cli, doctor

ROOT = Path(labkit.__file__).parent.parent


@pytest.fixture
def course(tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "00_start_here.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path


def test_help_and_version_load_nothing_heavy():
    program = (
        "import sys\n"
        "from labkit import cli\n"
        "for asked in (['--version'], ['--help'], ['doctor', '--help']):\n"
        "    try: cli.main(asked)\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = {'numpy', 'tensorflow', 'matplotlib', 'jupyterlab', 'psutil'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"labkit {labkit.__version__}" in done.stdout


def test_a_users_mistake_is_a_sentence_and_exit_code_2(monkeypatch, capsys):
    def refuse():
        raise LabError("This machine is a toaster. Use a computer.")

    monkeypatch.setattr(doctor, "main", refuse)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == (
        "labkit doctor: This machine is a toaster. Use a computer.\n"
    )


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_lab_opens_the_course(course, monkeypatch, user, allowed):
    seen = []
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(course / "runtime"))
    monkeypatch.setattr(cli.os, "execv", lambda program, command: seen.append((program, command)))
    monkeypatch.setattr(cli.os, "geteuid", lambda: user)
    cli.main(["lab", "--port", "9000", "--no-browser"])
    ((program, command),) = seen
    assert program == command[0] == sys.executable
    assert command[1:3] == ["-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={course}" in command
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in command
    assert ("--allow-root" in command) is allowed
    assert command[-3:] == ["--port", "9000", "--no-browser"]


def test_lab_without_notebooks_or_jupyterlab_says_what_to_do(course, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda _: None)
    assert cli.main(["lab"]) == 2
    assert "make lab" in capsys.readouterr().err
    monkeypatch.setattr(cli, "course_folder", lambda: None)
    assert cli.main(["lab"]) == 2
    assert str(course) in capsys.readouterr().err


def test_lab_needs_a_folder_that_it_can_write_in(course, monkeypatch, capsys):
    home = course / "home"
    home.write_text("a file, in which even root can make no folder")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home / "runtime"))
    assert cli.main(["lab"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert str(home / "runtime") in sentence
    assert "make lab HOME=" in sentence


def test_notebooks_are_published_by_name(monkeypatch):
    seen = []
    publish = SimpleNamespace(main=lambda names: seen.append(names) or 3)
    monkeypatch.setitem(sys.modules, "labkit.publish", publish)
    assert cli.main(["notebooks", "01", "02"]) == 3
    assert cli.main(["notebooks"]) == 3
    assert seen == [["01", "02"], []]


def test_record_gives_the_program_what_follows_the_dashes(monkeypatch):
    seen = []
    command = SimpleNamespace(record=lambda program, **more: seen.append((program, more)) or 7)
    monkeypatch.setitem(sys.modules, "labkit.telemetry.cli", command)
    assert cli.main(["record", "--to", "r.jsonl", "--", "run", "--to", "x", "--", "-h"]) == 7
    assert cli.main(["record", "run", "-h"]) == 7
    assert seen == [
        (["run", "--to", "x", "--", "-h"], {"to": Path("r.jsonl"), "every": 0.1}),
        (["run", "-h"], {"to": None, "every": 0.1}),
    ]


@pytest.fixture
def recording(tmp_path):
    lines = (
        {"labkit": "recording", "format": 1, "where": "a “machine”", "when": "2026-11-21T10:00:00",
         "every": 0.1, "clock": 100.0},
        {"source": "host", "metrics": ["utilisation"],
         "devices": [{"key": "cpu", "name": "a processor ½", "sort": "cpu"}]},
        *([0, round(0.1 * step, 1), [50.0]] for step in range(20)),
        {"span": "épreuve", "start": 0.1, "end": 1.5, "images": None, "by": "you"},
        {"end": 2.0},
    )  # fmt: skip
    file = tmp_path / "r.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_replay_writes_its_page_for_any_terminal_and_for_one_who_stops_reading(recording):
    page = recording.with_suffix(".html")
    command = [sys.executable, "-m", "labkit.cli", "replay", str(recording), "--html", str(page)]

    def replayed(stdout, **environment):
        page.unlink(missing_ok=True)
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=stdout,
            stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert page.is_file()
        return done

    done = replayed(subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "?preuve" in done.stdout
    read, write = os.pipe()
    os.close(read)
    # An empty PYTHONUNBUFFERED is none: what is printed waits until the end.
    done = replayed(write, PYTHONUNBUFFERED="")
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
