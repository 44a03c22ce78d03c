"""The command labkit: what it passes on, and how it says that something is wrong."""

import importlib.metadata
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

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


@pytest.mark.parametrize("kind", [LabError, OSError])
def test_a_users_mistake_is_a_sentence_and_exit_code_2(kind, monkeypatch, capsys):
    def refuse(_):
        raise kind("This machine is a toaster. Use a computer.")

    monkeypatch.setattr(doctor, "main", refuse)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == (
        "labkit doctor: This machine is a toaster. Use a computer.\n"
    )


def test_without_the_tools_for_slides_it_is_said_how_to_get_them(monkeypatch, capsys):
    def distribution(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", distribution)
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", SimpleNamespace(convert=None))
    monkeypatch.delitem(sys.modules, "labkit.kit.slides", raising=False)
    assert cli.main(["slides"]) == 2
    assert "sphinx-revealjs is not installed here: make setup-website" in capsys.readouterr().err


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_lab_opens_the_course(course, monkeypatch, user, allowed):
    seen = []
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(course / "runtime"))
    monkeypatch.setenv("JUPYTERLAB_WORKSPACES_DIR", str(course / "workspaces"))
    monkeypatch.setattr(cli.os, "execv", lambda program, command: seen.append((program, command)))
    monkeypatch.setattr(cli.os, "geteuid", lambda: user)
    cli.main(["lab", "--port", "9000", "--no-browser"])
    (workspace,) = (course / "workspaces").iterdir()
    layout = json.loads(workspace.read_text())["data"]["layout-restorer:data"]
    assert layout["left"]["current"] == "@jupyterlab/toc:plugin"  # and then left alone
    workspace.write_text(json.dumps({"data": {}, "metadata": {"id": "course"}}))
    cli.main(["lab", "--port", "9000", "--no-browser"])
    assert json.loads(workspace.read_text())["data"] == {}
    _, (program, command) = seen
    assert program == command[0] == sys.executable
    assert command[1:3] == ["-m", "jupyterlab"]
    assert f"--ServerApp.root_dir={course}" in command
    assert (
        "--LabApp.default_url=/lab/workspaces/course/tree/notebooks/00_start_here.ipynb" in command
    )
    assert ("--allow-root" in command) is allowed
    assert command[-3:] == ["--port", "9000", "--no-browser"]


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


@pytest.mark.parametrize(
    ("line", "room", "called"),
    [
        (
            "record --to r.jsonl -- run --to x -- -h", "telemetry.commands",
            call.record(["run", "--to", "x", "--", "-h"], to=Path("r.jsonl"), every=0.1),
        ),
        ("record run -h", "telemetry.commands", call.record(["run", "-h"], to=None, every=0.1)),
        ("replay r", "telemetry.commands", call.replay(Path("r"), html=None, show=True)),
        (
            "replay r --html p", "telemetry.commands",
            call.replay(Path("r"), html=Path("p"), show=False),
        ),
        ("doctor --job", "doctor", call.main(True)),
        ("release out 22 --personal", "kit.release", call.main(Path("out"), ["22"], personal=True)),
        (
            "grade in 22 --class-list c --unprotected", "kit.grade",
            call.main(Path("in"), ["22"], class_list=Path("c"), personal=False, anonymous=False,
                      protected=False),
        ),
        ("notebooks 12 22", "publish", call.main(["12", "22"])),
        ("slides 22", "kit.slides", call.main(["22"], Path("slides"))),
        ("class --port 80", "kit.classroom", call.main(80)),
    ],
)  # fmt: skip
def test_a_command_gives_its_room_what_was_typed(line, room, called, monkeypatch):
    command = Mock()
    getattr(command, called[0]).return_value = 7
    monkeypatch.setitem(sys.modules, f"labkit.{room}", command)
    assert cli.main(line.split()) == 7
    assert command.mock_calls[:1] == [called]


def test_a_terminal_need_not_have_every_letter(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(doctor, "main", lambda _: print("✓") or 0)
    assert cli.main(["doctor"]) == 0
    assert stream.buffer.getvalue() == b"?\n"


def test_a_reader_that_stops_early_is_no_fault():
    program = "from labkit import cli; cli.main(['progress'])"
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" | true; exit ${PIPESTATUS[0]}', sys.executable, program],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("given", "near"),
    [(["slide"], "slides"), (["env", "biuld"], "build"), (["env", "build", "tourch"], "torch")],
)
def test_a_wrong_name_suggests_the_near_one(given, near, capsys):
    try:
        code = cli.main(given)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert f"Did you mean {near!r}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "call",
    [
        lambda: labkit.cluster(rank=4),
        lambda: labkit.collectives.run(labkit.collectives.programs.ring_all_reduce, rank=4),
    ],
)
def test_a_wrong_keyword_suggests_the_near_one(call):
    with pytest.raises(LabError, match=r"Did you mean 'ranks'\?$"):
        call()


def test_each_command_says_what_it_does_with_an_example_that_can_be_parsed():
    for name, (_, example) in cli.COMMANDS.items():
        chosen, extra = cli._parser().parse_known_args(example.split())
        assert chosen.command == name.split()[0]
        assert not extra or name == "lab"
