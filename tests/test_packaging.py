"""What a clone promises: locks that fit everywhere, the same by every way, nothing private."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLATFORMS = {
    "Linux x86_64": ("linux", "Linux", "x86_64"),
    "Linux aarch64": ("linux", "Linux", "aarch64"),
    "macOS arm64": ("darwin", "Darwin", "arm64"),
}
PYTHONS = ("3.11", "3.12", "3.13")
LOCKS = {file.stem: file for file in sorted((ROOT / "requirements").glob("*.txt"))}
everywhere = pytest.mark.parametrize(("python", "platform"), list(product(PYTHONS, PLATFORMS)))


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "requirements" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marker_environment(python, platform):
    sys_platform, system, machine = PLATFORMS[platform]
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


def applying(requirements, python, platform):
    here = marker_environment(python, platform)
    return [one for one in requirements if one.marker is None or one.marker.evaluate(here)]


@cache
def pins_of(lock):
    return load("environment").locked(LOCKS[lock])


@cache
def versions(lock, python, platform):
    """name -> version, as pip would install the lock there."""
    pins = applying(pins_of(lock), python, platform)
    found = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(found) == len(pins), "a package is there twice"
    return found


def groups(*names):
    return [Requirement(line) for name in names for line in PROJECT["dependency-groups"][name]]


@everywhere
@pytest.mark.parametrize(
    ("lock", "parts"),
    [
        ("lab", ["build", "mpi"]),
        ("lab-cuda", ["build", "mpi", "cuda"]),
        *((name, [name]) for name in LOCKS if not name.startswith("lab")),
    ],
)
def test_a_lock_has_what_the_project_needs_and_agrees_with_the_others(
    lock, parts, python, platform
):
    there, lab = versions(lock, python, platform), versions("lab", python, platform)
    needed = groups(*parts)
    if lock.startswith("lab"):
        needed += map(Requirement, PROJECT["project"]["dependencies"])
    for one in applying(needed, python, platform):
        if (lock, one.name) != ("lab-cuda", "tensorflow-cpu"):
            assert one.specifier.contains(there[canonicalize_name(one.name)]), one
    assert {name: lab[name] for name in there if name in lab} == {
        name: there[name] for name in there if name in lab
    }


@pytest.mark.parametrize(("lock", "platform"), list(product(LOCKS, PLATFORMS)))
def test_every_python_has_the_same_versions(lock, platform):
    first, *others = (versions(lock, python, platform) for python in PYTHONS)
    for other in others:
        assert other == {name: first[name] for name in other}


@everywhere
def test_there_is_one_tensorflow_and_cuda_only_in_its_own_lock(python, platform):
    lab, cuda = versions("lab", python, platform), versions("lab-cuda", python, platform)
    assert len({"tensorflow", "tensorflow-cpu"} & set(lab)) == 1
    assert {"tensorflow", "tensorflow-cpu"} & set(cuda) == {"tensorflow"}
    assert [name for name in lab if name.startswith("nvidia-")] == ["nvidia-ml-py"]
    assert ("nvidia-cudnn-cu12" in cuda) == (platform == "Linux x86_64")


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_in_a_lock_has_a_hash_and_nothing_has_an_address(lock):
    text = LOCKS[lock].read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert re.search(r"^    --hash=sha256:[0-9a-f]{64}", block, re.MULTILINE), block[:80]
    assert re.search(r"://|--index|--extra-index|--find-links|--trusted|@ |^-e|^/", text) is None
    assert "\npynvml==" not in text, "abandoned; NVIDIA's own is nvidia-ml-py"


def test_environment_yml_is_what_the_project_and_the_lock_say():
    text = load("environment").text()
    assert (ROOT / "environment.yml").read_text(encoding="utf-8") == text, "make lock"
    listed = re.findall(r"^      - [\"']?([A-Za-z0-9._-]+)==", text, re.MULTILINE)
    needed = [Requirement(line).name for line in PROJECT["project"]["dependencies"]]
    assert sorted(listed) == sorted([*needed, *(one.name for one in groups("mpi")), "nbval"])


def test_the_wheel_holds_every_file_of_the_library_and_the_command(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (points,) = [name for name in inside if name.endswith("entry_points.txt")]
        assert "labkit = labkit.cli:main" in archive.read(points).decode()
    assert {name for name in tracked() if name.startswith("labkit/")} - inside == set()
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


def test_no_file_of_the_repository_holds_anything_private():
    found = []
    for name in tracked():
        if name.endswith((".png", ".npz", ".gz", ".ico")):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            text = re.sub(r'"[A-Za-z0-9+/=\\n]{200,}"', '""', text)
        for what, pattern in PRIVATE.items():
            found += [f"{name}: {what}: {match[0]}" for match in re.finditer(pattern, text)]
    assert found == []
