"""Writes environment.yml, for conda, mamba and Binder, from pyproject.toml and the lock.

Conda's pip section is one call of pip, and pip accepts no `-e .` beside a lock with hashes. So the
packages that labkit names stand there in the versions of the lock, and what those need follows.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "3.12"
# Who teaches from this environment can check the notebooks too: `pytest notebooks`.
CHECKING = ("nbval",)
HEAD = f"""\
# The course through conda, mamba or Binder: `conda env create -f environment.yml`, then
# `conda activate labkit` and `labkit lab`. For an NVIDIA GPU use `make lab`: it has a lock for it.
# Written by `make lock`; tests/test_packaging.py compares it with pyproject.toml and the lock.
name: labkit
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python={PYTHON}
  - pip
  - pip:
"""


def locked(lock: Path) -> list[Requirement]:
    """The requirements of a lock, without their hashes."""
    lines = lock.read_text(encoding="utf-8").splitlines()
    pins = (
        line.rstrip(" \\") for line in lines if not line.startswith((" ", "#")) and line.strip()
    )
    return [Requirement(pin) for pin in pins]


def text() -> str:
    """What environment.yml must say."""
    everything = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, mpi = everything["project"], everything["dependency-groups"]["mpi"]
    here = {"python_version": PYTHON, "python_full_version": f"{PYTHON}.0"}
    # The marker of a pin may also speak of the platform; of that pyproject.toml has the last word.
    versions = {
        pin.name: pin.specifier
        for lock in ("test", "lab")
        for pin in locked(ROOT / "requirements" / f"{lock}.txt")
        if "python" not in str(pin.marker) or pin.marker is None or pin.marker.evaluate(here)
    }
    lines = []
    for dependency in map(Requirement, sorted([*project["dependencies"], *CHECKING, *mpi])):
        marker = f"; {dependency.marker}".replace('"', "'") if dependency.marker else ""
        lines.append(f"{dependency.name}{versions[dependency.name]}{marker}")
    quoted = ["      - " + (f'"{line}"' if ";" in line else line) for line in lines]
    return HEAD + "\n".join([*quoted, "      - -e ."]) + "\n"


if __name__ == "__main__":
    (ROOT / "environment.yml").write_text(text(), encoding="utf-8")
