"""`make lab`, with nothing installed yet: which Python, which TensorFlow, when to start anew."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def install(tmp_path, monkeypatch):
    """requirements/install.py, looking at an empty checkout."""
    spec = importlib.util.spec_from_file_location("install", ROOT / "requirements" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    venv = tmp_path / ".venv"
    monkeypatch.setattr(module, "VENV", venv)
    monkeypatch.setattr(module, "STAMP", venv / module.STAMP.name)
    monkeypatch.setattr(module, "UNFINISHED", venv / module.UNFINISHED.name)
    return module


@pytest.fixture
def installed(install):
    """The same, after a finished `make lab`, with an environment that runs."""
    (install.VENV / "bin").mkdir(parents=True)
    (install.VENV / "bin" / "python").symlink_to(sys.executable)
    install._write_stamp(install.wanted("cpu", ["lab"]))
    return install


def test_the_python_that_runs_these_tests_fits(install):
    assert install.misfit() is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"system": "Darwin", "machine": "x86_64"}, "runs on Intel"),
        ({"system": "Linux", "machine": "riscv64"}, "runs on Linux riscv64"),
        ({"system": "FreeBSD", "machine": "x86_64"}, "runs on FreeBSD"),
        ({"python_implementation": "PyPy"}, "not the usual CPython"),
    ],
)
def test_a_machine_without_tensorflow_is_told_so(install, monkeypatch, change, said):
    for name, value in change.items():
        monkeypatch.setattr(platform, name, lambda value=value: value)
    assert said in install.misfit()


def test_a_system_with_musl_is_told_so(install, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "confstr", lambda name: None)
    assert "musl" in install.misfit()


def test_a_debian_without_its_venv_package_is_told_which_one(install, monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    major, minor = sys.version_info[:2]
    assert f"sudo apt install python{major}.{minor}-venv" in install.misfit()


@pytest.mark.parametrize(
    ("answer", "gpu"),
    [
        ("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'", True),
        ("echo 'No devices were found'; exit 6", False),
        ("echo 'NVIDIA-SMI has failed: no driver'; exit 9", False),
        ("exit 0", False),
    ],
)
def test_only_a_gpu_that_the_driver_lists_counts(install, tmp_path, monkeypatch, answer, gpu):
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f"#!/bin/sh\n{answer}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.has_nvidia_gpu() is gpu


@pytest.mark.parametrize(
    ("asked", "present", "gpu", "build"),
    [
        ("", None, False, "cpu"),
        ("", None, True, "cuda"),
        ("cpu", None, True, "cpu"),
        ("cuda", None, False, "cuda"),
        ("", "cpu", True, "cpu"),
        ("", "cuda", False, "cuda"),
    ],
)
def test_cuda_is_for_gpus_and_what_is_there_stays(install, monkeypatch, asked, present, gpu, build):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(install, "has_nvidia_gpu", lambda: gpu)
    assert install.tensorflow_build(asked, present) == build


def test_there_is_no_cuda_on_a_mac_and_no_third_build(install, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(install.CannotInstall, match="Linux x86_64 only"):
        install.tensorflow_build("cuda", None)
    with pytest.raises(install.CannotInstall, match="rocm is neither"):
        install.tensorflow_build("rocm", None)


def test_what_is_finished_is_not_done_again(installed):
    assert installed.enough(installed.found(), installed.wanted("cpu", ["lab"]))


def test_the_tests_need_more_than_the_lab(installed):
    both = installed.wanted("cpu", ["lab", "test"])
    assert not installed.enough(installed.found(), both)
    assert installed.must_start_afresh(installed.found(), both) is None
    installed._write_stamp(both)
    assert installed.enough(installed.found(), installed.wanted("cpu", ["lab"]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"venv": "/elsewhere/.venv"}, "the checkout has moved"),
        ({"python": "cpython-399 x86_64"}, "another Python was chosen"),
        ({"tensorflow": "cuda"}, "own the same files"),
    ],
)
def test_an_environment_of_another_kind_is_built_from_scratch(installed, change, reason):
    need = installed.wanted("cpu", ["lab"])
    installed._write_stamp({**need, **change})
    assert not installed.enough(installed.found(), need)
    assert reason in installed.must_start_afresh(installed.found(), need)


def test_a_new_lock_is_added_to_the_environment_that_is_there(installed):
    need = installed.wanted("cpu", ["lab"])
    installed._write_stamp({**need, "locks": {"lab": "older"}})
    assert not installed.enough(installed.found(), need)
    assert installed.must_start_afresh(installed.found(), need) is None


def test_a_package_that_has_gone_or_changed_is_put_back(installed, monkeypatch, capsys):
    site = installed._site()
    for name in ("keras-3.15.1.dist-info", "numpy-2.4.6.dist-info"):
        (site / name).mkdir(parents=True)
    need = installed.wanted("cpu", ["lab"])
    installed._write_stamp(need)
    assert installed.enough(installed.found(), need)
    (site / "a_students_own-1.0.dist-info").mkdir()
    assert installed.enough(installed.found(), need)
    (site / "numpy-2.4.6.dist-info").rename(site / "numpy-1.0.dist-info")
    assert not installed.enough(installed.found(), need)
    assert installed.must_start_afresh(installed.found(), need) is None
    monkeypatch.setattr(installed, "_run", lambda *command, **options: None)
    installed.install(need, ["lab"])
    assert "missing or have changed: numpy-2.4.6.dist-info" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["a package has gone", "the checkout has moved"])
def test_mending_the_lab_does_not_pass_for_mending_the_tests(installed, monkeypatch, change):
    pytest_here = installed._site() / "pytest-9.2.0.dist-info"
    pytest_here.mkdir(parents=True)
    both = installed.wanted("cpu", ["lab", "test"])
    installed._write_stamp(both if "gone" in change else {**both, "venv": "/elsewhere"})
    pytest_here.rmdir()

    def run(command, purpose, **options):
        (installed.VENV / "bin").mkdir(exist_ok=True)
        if "venv" in command:
            (installed.VENV / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(installed, "_run", run)
    need = installed.wanted("cpu", ["lab"])
    installed.install(need, ["lab"])
    assert installed.enough(installed.found(), need)
    assert not installed.enough(installed.found(), both)


def test_packages_are_looked_for_where_a_real_environment_has_them(install, monkeypatch):
    monkeypatch.setattr(install, "VENV", Path(sys.prefix))
    assert any(name.startswith("pytest-") for name in install.packages())


def test_a_stamp_that_names_no_packages_is_not_enough(installed):
    need = installed.wanted("cpu", ["lab"])
    installed.STAMP.write_text(json.dumps(need))
    assert not installed.enough(installed.found(), need)


def test_a_file_in_the_place_of_the_environment_is_named_and_left_alone(install, monkeypatch):
    install.VENV.write_text("mine")
    monkeypatch.setattr(install, "_run", lambda *command, **options: None)
    with pytest.raises(install.CannotInstall, match=r"\.venv is a file.*move it away"):
        install.install(install.wanted("cpu", ["lab"]), ["lab"])
    assert install.VENV.read_text() == "mine"


def test_an_interrupted_installation_is_begun_afresh(installed):
    installed.UNFINISHED.touch()
    installed.STAMP.unlink()
    need = installed.wanted("cpu", ["lab"])
    assert not installed.enough(installed.found(), need)
    assert "interrupted" in installed.must_start_afresh(installed.found(), need)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"locks": 3}'])
def test_a_damaged_stamp_counts_for_nothing(installed, content):
    installed.STAMP.write_text(content)
    assert not installed.enough(installed.found(), installed.wanted("cpu", ["lab"]))


def test_an_environment_whose_python_has_gone_is_built_from_scratch(installed):
    (installed.VENV / "bin" / "python").unlink()
    need = installed.wanted("cpu", ["lab"])
    assert not installed.enough(installed.found(), need)
    assert "does not run" in installed.must_start_afresh(installed.found(), need)


def test_a_failed_installation_leaves_no_stamp(installed, monkeypatch):
    def fail(*command, **options):
        raise installed.CannotInstall("no network")

    monkeypatch.setattr(installed, "_run", fail)
    with pytest.raises(installed.CannotInstall):
        installed.install(installed.wanted("cpu", ["lab", "test"]), ["lab", "test"])
    assert installed.found() == {}
    assert "interrupted" in installed.must_start_afresh({}, installed.wanted("cpu", ["lab"]))


# The Makefile's choice of an interpreter, with commands that stand for Pythons.


@pytest.fixture
def clone(tmp_path):
    folder = tmp_path / "a clone with spaces"
    (folder / "requirements").mkdir(parents=True)
    (folder / "bin").mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "requirements" / "install.py", folder / "requirements")
    return folder


def pretend(clone, name, script):
    command = clone / "bin" / name
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return command


def make_setup(clone, *arguments):
    tools = clone / "tools"  # no Python among them
    tools.mkdir(exist_ok=True)
    for tool in ("sh", "make", "echo"):
        if not (tools / tool).exists():
            (tools / tool).symlink_to(shutil.which(tool))
    path = f"{clone / 'bin'}{os.pathsep}{tools}"
    return subprocess.run(
        ["make", "setup", *arguments],
        cwd=clone,
        env={"PATH": path, "HOME": str(clone)},
        capture_output=True,
        text=True,
        timeout=60,
    )


FAILS = "echo 'pyenv: python: command not found' >&2; exit 127"
SAYS_WHY = "echo 'This Python cannot make virtual environments.'; exit 1"


def test_the_first_python_that_runs_and_fits_is_taken(clone):
    pretend(clone, "python3", FAILS)
    pretend(clone, "python3.13", FAILS)
    pretend(clone, "python3.12", 'case "$*" in *--fits) ;; *) echo "with 3.12" ;; esac')
    pretend(clone, "python3.11", FAILS)
    done = make_setup(clone)
    assert (done.returncode, done.stdout) == (0, "with 3.12\n")


def test_one_sentence_says_that_no_python_fits(clone):
    pretend(clone, "python3", FAILS)
    done = make_setup(clone)
    assert done.returncode != 0
    sentence, *rest = done.stderr.splitlines()
    assert "needs Python 3.11, 3.12 or 3.13" in sentence
    assert "make lab PYTHON=" in sentence
    assert all(line.startswith("make: ***") for line in rest)


def test_a_python_that_says_why_not_is_heard(clone):
    pretend(clone, "python3", SAYS_WHY)
    done = make_setup(clone)
    assert done.stderr.splitlines()[0] == "labkit: This Python cannot make virtual environments."


def test_a_python_by_name_is_taken_or_refused_and_no_other_tried(clone):
    pretend(clone, "python3", 'case "$*" in *--fits) ;; *) echo "with python3" ;; esac')
    mine = pretend(clone, "mine", 'case "$*" in *--fits) ;; *) echo "with mine" ;; esac')
    assert make_setup(clone, f"PYTHON={mine}").stdout == "with mine\n"
    refused = make_setup(clone, "PYTHON=/no/such/python")
    assert "PYTHON=/no/such/python is not a Python 3.11, 3.12 or 3.13" in refused.stderr
    assert refused.stdout == ""
