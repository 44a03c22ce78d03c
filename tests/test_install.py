"""`make lab`, with nothing installed yet: which Python, which TensorFlow, when to start afresh."""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def install(tmp_path, monkeypatch):
    """requirements/install.py on a checkout without .venv, whose commands only make a Python."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "requirements" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("VENV", "STAMP", "UNFINISHED", "LOG"):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).relative_to(ROOT))
    commands = []

    def run(purpose, *command, **options):
        commands.append(purpose)
        python = module.VENV / "bin" / "python"
        if "venv" in command:
            python.parent.mkdir(parents=True)
            python.symlink_to(sys.executable)

    monkeypatch.setattr(module, "run", run)
    module.commands = commands
    return module


@pytest.fixture
def main(install, monkeypatch):
    """`install.py` with these words: its exit status and the commands that it has run."""

    def call(*words, tensorflow="cpu"):
        install.commands.clear()
        monkeypatch.setattr(sys, "argv", ["install.py", *words])
        monkeypatch.setenv("TENSORFLOW", tensorflow)
        return install.main(), list(install.commands)

    return call


def package(install, name):
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = install.VENV / "lib" / version / "site-packages" / f"{name}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("present", "gpu", "build"), [(None, False, "cpu"), (None, True, "cuda"), ("cpu", True, "cpu")]
)
def test_cuda_is_for_gpus_and_what_is_there_stays(install, monkeypatch, present, gpu, build):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: gpu)
    assert install.tensorflow_build("", present) == build


LAB = ["install pip", *3 * ["install packages"], "install labkit", "compile"]


def test_what_is_finished_is_not_done_again(main, install):
    assert main("lab") == (0, ["make a virtual environment", *LAB])
    assert main("lab") == (0, [])
    assert main("test") == (0, LAB)
    halves = [(install.VENV / name).read_text("utf-8") for name in ("half.txt", "other-half.txt")]
    one, other = ({*re.findall("^[a-z0-9-]+(?===)", half, re.MULTILINE)} for half in halves)
    assert {"tensorflow-cpu", "jupyterlab", "ruff", "pytest"} < one | other  # of both locks
    assert not one & other  # no two pips install the same
    assert main("test") == main("lab") == (0, [])
    stamp = install.read_stamp()  # of an older checkout, with a part that has another name since
    install.write_stamp({**stamp, "locks": {**stamp["locks"], "gone": "0"}})
    assert main("lab")[0] == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"venv": "/elsewhere/.venv"}, "the checkout has moved"),
        ({"python": "cpython-399 x86_64"}, "another Python was chosen"),
        ({"tensorflow": "cuda"}, "own the same files"),
        ("its Python is gone", "does not run"),
    ],
)
def test_an_environment_of_another_kind_is_built_from_scratch(
    install, main, capsys, change, reason
):
    main("lab")
    if change == "its Python is gone":
        (install.VENV / "bin" / "python").unlink()
    else:
        install.write_stamp({**install.wanted("cpu", ["lab"]), **change})
    assert main("lab") == (0, ["make a virtual environment", *LAB])
    assert reason in capsys.readouterr().out
    assert main("lab") == (0, [])


def test_a_package_that_has_gone_is_put_back_and_a_students_own_stays(install, main, capsys):
    main("lab")
    numpy = package(install, "numpy-2.4.6")
    install.write_stamp(install.wanted("cpu", ["lab"]))
    package(install, "a_students_own-1.0")
    assert main("lab") == (0, [])
    numpy.rename(numpy.with_name("numpy-1.0.dist-info"))
    assert main("lab") == (0, LAB)
    assert "missing or have changed: numpy-2.4.6.dist-info" in capsys.readouterr().out


@pytest.mark.parametrize("fault", [KeyboardInterrupt, "no network"])
def test_an_installation_that_was_not_finished_starts_afresh(install, main, monkeypatch, fault):
    main("lab")
    install.write_stamp({**install.wanted("cpu", ["lab"]), "locks": {"lab": "older"}})
    whole = install.run

    def fail(purpose, *command, **options):
        raise fault if fault is KeyboardInterrupt else install.CannotInstall(fault)

    monkeypatch.setattr(install, "run", fail)
    assert main("lab")[0] == (130 if fault is KeyboardInterrupt else 1)
    monkeypatch.setattr(install, "run", whole)
    assert main("lab") == (0, ["make a virtual environment", *LAB])


def test_what_labkit_has_not_made_stays_and_a_full_disk_is_a_sentence(install, main, capsys):
    install.VENV.mkdir()
    (install.VENV / "by_hand").touch()
    assert main("lab") == (1, [])
    assert "was not made by labkit" in capsys.readouterr().err
    assert [file.name for file in install.VENV.iterdir()] == ["by_hand"]
    install.UNFINISHED.touch()
    (install.VENV / "half").mkdir()
    size = shutil.disk_usage(install.ROOT)
    whole, room = install.run, size._replace(free=2.5e9 - 1)  # a byte less than it takes

    def fails(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: room)
        full.setattr(install, "run", fails)
        (install.VENV / "half" / "file").write_bytes(bytes(9000))  # which goes
        assert main("lab") == (1, [])
        assert "No space left on device" in capsys.readouterr().err
        full.setattr(install, "run", whole)
        assert main("lab")[0] == 1
        assert "make room" in capsys.readouterr().err
    assert main("lab") == (0, ["make a virtual environment", *LAB])


# The Makefile's choice of an interpreter, with commands that stand for Pythons.


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "a clone with spaces"
    (folder / "requirements").mkdir(parents=True)
    (folder / "bin").mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "requirements" / "install.py", folder / "requirements")
    return folder


def pretend(command, script):
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return command


def make_setup(clone, *arguments):
    """`make setup`, where no other Python can be found."""
    tools = clone / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("sh", "make", "echo"):
        (tools / tool).unlink(missing_ok=True)
        (tools / tool).symlink_to(shutil.which(tool))
    environment = {"PATH": f"{clone / 'bin'}{os.pathsep}{tools}", "HOME": str(clone)}
    command = ["make", "setup", *arguments]
    return subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, timeout=300
    )


FAILS = "echo 'pyenv: python: command not found' >&2; exit 127"
FITS = 'case "$*" in *--fits) ;; *) echo "with $0" ;; esac'


def test_the_first_python_that_runs_and_fits_is_taken(clone):
    for name in ("python3", "python3.13", "python3.11"):
        pretend(clone / "bin" / name, FAILS)
    fits = pretend(clone / "bin" / "python3.12", FITS)
    done = make_setup(clone)
    assert (done.returncode, done.stdout) == (0, f"with {fits}\n")
    mine = pretend(clone / "bin" / "mine", FITS)
    assert make_setup(clone, f"PYTHON={mine}").stdout == f"with {mine}\n"
    refused = make_setup(clone, "PYTHON=/no/such/python")
    assert "PYTHON=/no/such/python is not a Python 3.11, 3.12 or 3.13" in refused.stderr
    assert refused.stdout == ""
