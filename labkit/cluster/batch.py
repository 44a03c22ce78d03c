"""What a job asks of Slurm, and batch scripts for programs of files: `labkit slurm script`.

>>> print(Resources(ranks=2, nodes=2, partition="alpha", time="1:00:00").header())
#!/bin/bash
#SBATCH --job-name=labkit
#SBATCH --ntasks=2
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=alpha
#SBATCH --time=1:00:00
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.arguments import whole
from labkit.cluster import slurm_rank
from labkit.kinds import LabError

if TYPE_CHECKING:
    import argparse

__all__ = ["BatchScript", "Resources", "batch_script", "main"]

FORMS = {
    "partition": (r"[\w.+-]+(,[\w.+-]+)*", 'a name that `sinfo` lists: "alpha"'),
    "account": (r"[\w.+-]+", "the name of your project"),
    "name": (r"[\w.+-]+", 'a word: "train"'),
    "time": (
        r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}",
        '"30" (minutes), "1:30:00" or "2-00:00:00"',
    ),
    "memory": (r"\d+[KMGTkmgt]?", '"16G" for each node'),
}


@dataclass(frozen=True)
class Resources:
    """What a job asks for: `cpus` for each rank, `gpus` and `memory` for each node.

    `time` is what Slurm takes ("30" minutes, "1:30:00", "2-00:00:00"), `memory` too ("16G").
    """

    ranks: int
    nodes: int | None = None
    partition: str | None = None
    time: str | int | None = None
    account: str | None = None
    memory: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    extra: Sequence[str] = ()
    name: str = "labkit"

    def __post_init__(self) -> None:
        for name in ("ranks", "nodes", "cpus", "gpus"):
            if name == "ranks" or getattr(self, name) is not None:
                whole(name, getattr(self, name), at_least=1)
        if self.nodes is not None and self.nodes > self.ranks:
            raise LabError(f"nodes must be ≤ ranks={self.ranks}, got {self.nodes}.")
        for name, (form, example) in FORMS.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(form, str(value)):
                raise LabError(f"Slurm does not take {name}={value!r}. Write {example}.")
        for option in [self.extra] if isinstance(self.extra, str) else self.extra:
            if isinstance(self.extra, str) or not re.fullmatch(r"--[a-z][^\n\r]*", option):
                raise LabError(
                    "extra must be options of sbatch, such as "
                    f'extra=["--reservation=class"], got {option!r}.'
                )

    def options(self) -> list[str]:
        """The options as sbatch takes them."""
        even = self.nodes is not None and self.ranks % self.nodes == 0
        values = {
            "job-name": self.name,
            "ntasks": self.ranks,
            "nodes": self.nodes,
            "ntasks-per-node": self.ranks // self.nodes if self.nodes and even else None,
            "cpus-per-task": self.cpus,
            "gres": None if self.gpus is None else f"gpu:{self.gpus}",
            "mem": self.memory,
            "partition": self.partition,
            "account": self.account,
            "time": self.time,
        }
        given = [f"--{option}={value}" for option, value in values.items() if value is not None]
        return [*given, *self.extra]

    def header(self, output: str = "") -> str:
        """The first lines of the script; `output` is the file for what the job prints."""
        options = [*self.options(), *([f"--output={output}"] if output else [])]
        return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options)])


@dataclass(frozen=True)
class BatchScript:
    """A script for sbatch. Name it in a cell to read it; `save` writes it."""

    text: str
    name: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"

    def save(self, path: str | Path | None = None) -> Path:
        """Write the script to a new file; a file that is there stays as it is.

        >>> batch_script("train.py", ranks=2).save("job.sh")      # doctest: +SKIP
        """
        path = Path(path or self.name)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(self.text)
            path.chmod(0o755)
        except FileExistsError:
            if path.is_file() and path.read_text(errors="replace") == self.text:
                return path
            raise LabError(
                f"{path} is there already, and you may have edited it: it was not changed. Delete "
                "it, or choose another name."
            ) from None
        except OSError as fault:
            raise LabError(
                f"{path} cannot be written: {fault.strerror}. Name a file in a folder of yours."
            ) from fault
        return path


def batch_script(
    file: str | Path, program: str | None = None, *, ranks: int = 2, **resources: Any
) -> BatchScript:
    """The batch script that runs `program(rank)` of a .py file on every rank.

    >>> labkit.cluster.batch_script("train.py", ranks=4, nodes=2)      # doctest: +SKIP

    The only function of a file needs no name. The other keywords are those of
    `labkit.cluster(engine="slurm")`: nodes, partition, time, account, memory, cpus, gpus, extra.
    """
    if not isinstance(file, (str, Path)):
        raise LabError(
            f"file must be the path of a .py file, got {file!r}. A job runs without this "
            "notebook: write the program to a file with %%writefile train.py."
        )
    path = Path(file).resolve()
    if path.suffix != ".py":
        raise LabError(
            f"{path.name} is no .py file. A job runs a file: in a notebook, write the program with "
            "%%writefile train.py."
        )
    functions = _functions_in(path)
    if program is None and len(functions) == 1:
        program = functions[0]
    if program not in functions:
        raise LabError(
            f"program must name a function of {path.name} ({', '.join(functions) or 'it has none'})"
            f", got {program!r}."
        )
    wanted = Resources(ranks, **{"name": program, **resources})
    srun = ["srun", "--kill-on-bad-exit=1", "--label"]
    if wanted.cpus:
        srun.append(f"--cpus-per-task={wanted.cpus}")  # since Slurm 22.05 steps do not inherit it
    run = [sys.executable, "-m", "labkit.cli", "slurm", "run", f"{path}:{program}"]
    lines = [
        wanted.header(f"{program}-%j.log"),
        "",
        "# Write each line when it is printed, not when a buffer is full.",
        "export PYTHONUNBUFFERED=1",
        f"{shlex.join(srun)} \\",
        f"  {shlex.join(run)}",
    ]
    return BatchScript("\n".join(lines) + "\n", f"{program}.sh")


def main(chosen: argparse.Namespace) -> int:
    """`labkit slurm script`: print or write a script. `labkit slurm run`: be a rank of its job."""
    if chosen.slurm == "run":
        return slurm_rank.run_target(chosen.target)
    names = ("ranks", "nodes", "partition", "time", "account", "gpus", "memory", "cpus")
    resources = {name: getattr(chosen, name) for name in names}
    script = batch_script(chosen.file, chosen.program, **resources)
    if chosen.output is None:
        print(script.text, end="")
    else:
        path = script.save(chosen.output)
        print(f"Wrote {path}. Send it with: sbatch {path}")
    return 0


def _functions_in(path: Path) -> list[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as fault:
        raise LabError(f"{path} cannot be read as Python: {fault}.") from fault
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
