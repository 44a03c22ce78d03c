"""The command labkit: what it passes on, and how it says that something is wrong."""

import json
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
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"labkit {labkit.__version__}" in done.stdout


def test_a_users_mistake_is_a_sentence_and_exit_code_2(monkeypatch, capsys):
    def refuse(_):
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
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(course / "workspaces"))
    monkeypatch.setattr(cli.os, "execv", lambda program, command: seen.append((program, command)))
    monkeypatch.setattr(cli.os, "geteuid", lambda: user)
    cli.main(["lab", "--port", "9000", "--no-browser"])
    ((program, command),) = seen
    assert program == command[0] == sys.executable
    assert command[1:3] == ["-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={course}" in command
    assert (
        "--LabApp.default_url=/lab/workspaces/course/tree/notebooks/00_start_here.ipynb" in command
    )
    assert ("--allow-root" in command) is allowed
    assert command[-3:] == ["--port", "9000", "--no-browser"]


def test_the_workspace_of_the_course_opens_with_the_contents_and_is_then_left_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(tmp_path))
    cli._make_workspace()
    (file,) = tmp_path.iterdir()
    layout = json.loads(file.read_text())["data"]["layout-restorer:data"]
    assert layout["left"]["current"] == "@jupyterlab/toc:plugin"
    file.write_text(json.dumps({"data": {}, "metadata": {"id": "course"}}))
    cli._make_workspace()
    assert json.loads(file.read_text())["data"] == {}


def test_jupyterlab_knows_the_settings_that_the_course_changes():
    settings = json.loads((ROOT / "labkit" / "lab_settings" / "overrides.json").read_text())
    schemas = Path(sys.prefix, "share", "jupyter", "lab", "schemas")
    for plugin, values in settings.items():
        schema = json.loads((schemas / f"{plugin.replace(':', '/')}.json").read_text())
        assert set(values) <= set(schema["properties"])


def test_lab_needs_a_folder_that_it_can_write_in(course, monkeypatch, capsys):
    home = course / "home"
    home.write_text("a file: not even root can make a folder in it")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home / "runtime"))
    assert cli.main(["lab"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert str(home / "runtime") in sentence
    assert "make lab HOME=" in sentence


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


def test_a_reader_that_stops_early_is_no_fault():
    program = "from labkit import cli; cli.main(['progress'])"
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | true; exit ${PIPESTATUS[0]}', sys.executable, program],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
