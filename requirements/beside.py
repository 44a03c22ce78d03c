"""Environments beside the course, each from its own lock: `python requirements/beside.py hub`.

They lie in .venv/NAME. What they hold would change the packages of the course, or is of use to few.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COURSE = ROOT / ".venv" / "bin" / "python"
SEES_THE_COURSE = {"hub", "nbgrader"}  # they also import what the course has installed


def python_of(name: str) -> Path:
    """The interpreter of an environment."""
    return ROOT / ".venv" / name / "bin" / "python"


def is_there(name: str) -> bool:
    """Whether it is installed, from the lock as it is now."""
    stamp = python_of(name).parents[1] / "labkit.lock"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == _wanted(name)


def install(name: str) -> str:
    """Install it, unless it is there; why that was not possible, or ""."""
    if is_there(name):
        return ""
    venv, python = python_of(name).parents[1], python_of(name)
    wanted = _wanted(name)  # before anything goes: of a name without a lock nothing is removed
    print(f"Installing requirements/{name}.txt into .venv/{name}.", flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    quiet = ["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"]
    lock = ["--no-deps", "--require-hashes", "-r", ROOT / "requirements" / f"{name}.txt"]
    for step in ([COURSE, "-m", "venv", venv], [python, *quiet, *lock]):
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(venv, ignore_errors=True)
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            return f"{lines[-1] if lines else 'no reason given'} (the first time needs the network)"
    if name in SEES_THE_COURSE:
        packages = sysconfig.get_path("purelib", vars={"base": str(venv)})
        course = sysconfig.get_path("purelib", vars={"base": str(ROOT / ".venv")})
        Path(packages, "course.pth").write_text(f"{course}\n{ROOT}\n", encoding="utf-8")
    (venv / "labkit.lock").write_text(wanted, encoding="utf-8")
    return ""


def _wanted(name: str) -> str:
    lock = ROOT / "requirements" / f"{name}.txt"
    return hashlib.sha256(lock.read_bytes()).hexdigest()


if __name__ == "__main__":
    failed = [
        f"{name} cannot be installed: {why}" for name in sys.argv[1:] if (why := install(name))
    ]
    sys.exit("\n".join(failed) or None)
