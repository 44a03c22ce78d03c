"""What a clone promises: locks that fit everywhere, the same by every way, nothing private."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLACES = {
    "Linux x86_64": ("linux", "Linux", "x86_64"),
    "Linux aarch64": ("linux", "Linux", "aarch64"),
    "macOS arm64": ("darwin", "Darwin", "arm64"),
}
PYTHONS = ("3.11", "3.12", "3.13")
LOCKS = ("lab", "lab-cuda", "peers", "test")


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "requirements" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lock_text(lock):
    return (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")


def marker_environment(python, place):
    sys_platform, system, machine = PLACES[place]
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": system,
        "python_full_version": f"{python}.6",
        "python_version": python,
        "sys_platform": sys_platform,
    }


def applies(requirement, environment):
    return requirement.marker is None or requirement.marker.evaluate(environment)


def versions(lock, python, place):
    """name -> version, as pip would install the lock there."""
    found = {}
    for pin in load("environment").locked(ROOT / "requirements" / f"{lock}.txt"):
        if applies(pin, marker_environment(python, place)):
            name = canonicalize_name(pin.name)
            assert name not in found, f"{name} twice on {place}"
            (only,) = pin.specifier
            assert only.operator == "=="
            found[name] = only.version
    return found


def groups(*names):
    return [Requirement(line) for name in names for line in PROJECT["dependency-groups"][name]]


everywhere = pytest.mark.parametrize(
    ("python", "place"), [(python, place) for python in PYTHONS for place in PLACES]
)


@everywhere
@pytest.mark.parametrize("lock", ["lab", "lab-cuda", "test"])
def test_a_lock_satisfies_what_the_project_asks_for(lock, python, place):
    there = versions(lock, python, place)
    asked = {
        "lab": [*map(Requirement, PROJECT["project"]["dependencies"]), *groups("build", "mpi")],
        "lab-cuda": [
            *map(Requirement, PROJECT["project"]["dependencies"]),
            *groups("build", "mpi", "cuda"),
        ],
        "test": groups("test"),
    }[lock]
    for requirement in asked:
        replaced = lock == "lab-cuda" and requirement.name == "tensorflow-cpu"
        if replaced or not applies(requirement, marker_environment(python, place)):
            continue
        assert canonicalize_name(requirement.name) in there, requirement
        assert requirement.specifier.contains(there[canonicalize_name(requirement.name)]), (
            requirement
        )


@everywhere
def test_there_is_one_tensorflow_and_cuda_only_in_its_own_lock(python, place):
    lab, cuda = versions("lab", python, place), versions("lab-cuda", python, place)
    assert len({"tensorflow", "tensorflow-cpu"} & set(lab)) == 1
    assert {"tensorflow", "tensorflow-cpu"} & set(cuda) == {"tensorflow"}
    assert [name for name in lab if name.startswith("nvidia-")] == ["nvidia-ml-py"]
    assert ("nvidia-cudnn-cu12" in cuda) == (place == "Linux x86_64")


@everywhere
def test_the_locks_agree_with_each_other(python, place):
    lab = versions("lab", python, place)
    for lock in ("lab-cuda", "test"):
        other = versions(lock, python, place)
        assert {name: other[name] for name in other if name in lab} == {
            name: lab[name] for name in other if name in lab
        }


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_in_a_lock_has_a_hash_and_nothing_has_an_address(lock):
    text = lock_text(lock)
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert re.search(r"^    --hash=sha256:[0-9a-f]{64}", block, re.MULTILINE), block[:80]
    assert re.search(r"://|--index|--extra-index|--find-links|--trusted|@ |^-e|^/", text) is None


@pytest.mark.parametrize("lock", LOCKS)
def test_nvml_comes_from_nvidia_and_not_from_the_abandoned_pynvml(lock):
    assert re.search(r"^pynvml==", lock_text(lock), re.MULTILINE) is None


def test_environment_yml_is_in_step_with_the_project_and_the_lock():
    environment = load("environment")
    assert (ROOT / "environment.yml").read_text(encoding="utf-8") == environment.text(), (
        "run `python requirements/environment.py`"
    )
    assert SpecifierSet(PROJECT["project"]["requires-python"]).contains(f"{environment.PYTHON}.0")
    listed = re.findall(r"^      - [\"']?([A-Za-z0-9._-]+)==", environment.text(), re.MULTILINE)
    asked = [Requirement(line).name for line in PROJECT["project"]["dependencies"]]
    asked += [requirement.name for requirement in groups("mpi")]
    assert sorted(listed) == sorted([*asked, "nbval"])


def test_the_wheel_holds_every_file_of_the_library_and_the_command(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (points,) = [name for name in inside if name.endswith("entry_points.txt")]
        assert "labkit = labkit.cli:main" in archive.read(points).decode()
    ours = {name for name in tracked() if name.startswith("labkit/")}
    assert ours - inside == set()
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert not [name for name in inside if name.startswith(("tests/", "notebooks/"))]


def tracked():
    """Files that are, or are about to be, in git."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so what belongs to it is unknown")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listing.split("\0") if name and (ROOT / name).is_file())


# Written with brackets around one letter, so that this file does not contain what it looks for.
PRIVATE = {
    "the address of a package index": r"pyp[i]\.org|pythonhoste[d]\.org",
    "a path of one machine": r"(?<![\w.(|])/(?:hom[e]|User[s])/\w+|(?<![\w(|])/roo[t]/\w",
    "a secret": r"gh[pousr]_[A-Za-z0-9]{36}|AKIA[0-9A-Z]{16}|-----BEGIN [A-Z ]*PRIVATE KE[Y]",
}


@pytest.mark.parametrize("what", PRIVATE)
def test_no_file_of_the_repository_holds(what):
    found = []
    for name in tracked():
        if name.endswith((".png", ".npz", ".gz", ".ico")):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            text = re.sub(r'"[A-Za-z0-9+/=\\n]{200,}"', '""', text)
        found += [f"{name}: {match[0]}" for match in re.finditer(PRIVATE[what], text)]
    assert found == []


def test_the_licence_is_apache_2_and_whole():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text.splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"


def test_ci_runs_make_test_and_stops_at_the_first_fault():
    script = ROOT / ".ci" / "run"
    lines = script.read_text(encoding="utf-8").splitlines()
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in lines
    assert lines[-1] == "make test"
    assert subprocess.run(["bash", "-n", script]).returncode == 0
