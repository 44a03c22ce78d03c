"""What a computing centre asks of its jobs: `labkit-centre.toml`, written once for a whole class.

The file lies in the course's folder, in the folder of a notebook or above it, and belongs to you,
to root or to the owner of labkit; or it lies where LABKIT_CENTRE says.
Everything in it may be left out:

    account = "p_course"
    partition = "gpu"
    reservation = "course"
    gpus = "--gres=gpu:a100:{gpus}"             # how a job asks for GPUs
    options = ["--hint=nomultithread"]          # more lines of #SBATCH
    prologue = ["module load Python/3.12"]      # on each node, before the program
    container = "apptainer exec --nv --bind /data /data/course.sif"
    container_python = "python3"
    scratch = "/scratch/$USER"                  # a folder that all nodes can write
    data = "/data/course"                       # the images
    [variables]
    NCCL_SOCKET_IFNAME = "ib0"
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from labkit.kinds import LabError

FILE = "labkit-centre.toml"
GPUS = "--gres=gpu:{gpus}"
KINDS: dict[type, tuple[type, str]] = {
    str: (str, "a text"),
    tuple: (list, "a list of texts"),
    dict: (dict, "a table of texts"),
}


@dataclass(frozen=True)
class Centre:
    """The keys of the file; without a file, what Slurm itself has."""

    file: str = ""
    account: str = ""
    partition: str = ""
    reservation: str = ""
    gpus: str = GPUS
    options: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()
    container: str = ""
    container_python: str = "python3"
    scratch: str = ""
    data: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    def requests(self) -> dict[str, Any]:
        """What a job asks for here, unless it names another."""
        asked = {"account": self.account, "partition": self.partition}
        return {k: v for k, v in (asked | {"reservation": self.reservation}).items() if v}

    def lines(self) -> list[str]:
        """Of a shell script, before the program: modules, and variables."""
        exports = [f"export {name}={shlex.quote(text)}" for name, text in self.variables.items()]
        return [*self.prologue, *exports]

    def command(self, python: str, *arguments: str) -> list[str]:
        """Python with these arguments, in the container if there is one."""
        inside = [*shlex.split(os.path.expandvars(self.container)), self.container_python]
        return [*(inside if self.container else [python]), *arguments]

    def in_shell(self, command: Sequence[str]) -> list[str]:
        """The command after the prologue; a line that fails ends it, and is named."""
        if not self.lines():
            return list(command)
        checked = [
            f'{line} || {{ echo "{FILE}: this line has failed:" {shlex.quote(line)} >&2; exit 1; }}'
            for line in self.lines()
        ]
        return ["bash", "-c", "\n".join([*checked, 'exec "$@"']), "bash", *command]


def centre() -> Centre:
    """Returns what the centre's file says, or the defaults without such a file."""
    named = os.environ.get("LABKIT_CENTRE")
    folders = [*(Path.cwd() / "x").parents, Path(__file__).resolve().parent.parent]
    places = (folder / FILE for folder in folders)
    found = Path(named) if named else next(filter(_is_trusted, places), None)
    if found is None:
        return Centre()
    try:
        return _read(found, found.stat().st_mtime_ns)
    except (OSError, ValueError) as fault:
        raise LabError(f"{found} cannot be read: {fault}. Correct it, or take it away.") from fault


def _is_trusted(place: Path) -> bool:
    """Its lines run in a shell: as of git's configurations, only those of certain owners count."""
    return place.is_file() and place.stat().st_uid in {0, os.getuid(), Path(__file__).stat().st_uid}


@cache
def _read(file: Path, _changed: int) -> Centre:
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    usual = {one.name: getattr(Centre(), one.name) for one in fields(Centre) if one.name != "file"}
    for name, value in values.items():
        if name not in usual:
            raise LabError(f"{file} has {name!r}. The keys are: {', '.join(usual)}.")
        parts = value if isinstance(value, list) else [value]
        parts = [*value.values()] if isinstance(value, dict) else parts
        wanted, kind = KINDS[type(usual[name])]
        if not isinstance(value, wanted) or not all(isinstance(part, str) for part in parts):
            raise LabError(f"{name} in {file} must be {kind}, got {value!r}.")
        values[name] = tuple(value) if isinstance(value, list) else value
    for name in ("scratch", "data"):
        values[name] = os.path.expandvars(values.get(name, ""))
    return Centre(str(file), **values)
