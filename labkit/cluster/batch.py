"""What is asked of Slurm, and the batch script that asks for it.

>>> print(Ask(ranks=2, nodes=2, partition="alpha", time="1:00:00").header())
#!/bin/bash
#SBATCH --job-name=labkit
#SBATCH --ntasks=2
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --partition=alpha
#SBATCH --time=1:00:00
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from labkit.kinds import LabError

__all__ = ["MADE", "Ask", "BatchScript"]

MADE = "# Made by labkit"  # how a program begins that labkit has written and may write again

NAME = re.compile(r"[\w.+-]+(,[\w.+-]+)*")
TIME = re.compile(r"\d+|\d+:\d\d(:\d\d)?|\d+-\d+(:\d\d){0,2}")
MEMORY = re.compile(r"\d+[KMGT]?", re.IGNORECASE)


@dataclass(frozen=True)
class Ask:
    """What a job needs: `cpus` are for each rank, `gpus` and `memory` for each node.

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
        for what in ("ranks", "nodes", "cpus", "gpus"):
            _explain_count(what, getattr(self, what))
        if self.nodes is not None and self.nodes > self.ranks:
            raise LabError(
                f"{self.ranks} ranks cannot fill nodes={self.nodes}: ask for at most as many nodes "
                "as ranks."
            )
        _explain_text("partition", self.partition, NAME, 'a name that `sinfo` lists: "alpha"')
        _explain_text("account", self.account, NAME, "the name of your project")
        _explain_text("name", self.name, NAME, 'a word: "train"')
        time = None if self.time is None else str(self.time)
        _explain_text("time", time, TIME, '"30" (minutes), "1:30:00" or "2-00:00:00"')
        _explain_text("memory", self.memory, MEMORY, '"16G" for each node')
        if isinstance(self.extra, str):
            raise LabError(f'extra={self.extra!r} is one text. Write extra=("{self.extra}",).')
        for option in self.extra:
            if not re.fullmatch(r"--[a-z][^\n\r]*", option):
                raise LabError(
                    f"extra has {option!r}, which is no option of sbatch. Write it as "
                    '"--name=value", such as "--reservation=class".'
                )

    def options(self) -> list[str]:
        """The options as sbatch takes them."""
        even = self.nodes is not None and self.ranks % self.nodes == 0
        asked = {
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
        told = [f"--{option}={value}" for option, value in asked.items() if value is not None]
        return [*told, *self.extra]

    def header(self, output: str = "") -> str:
        """The first lines of the script; `output` is the file for what the job says."""
        options = [*self.options(), *([f"--output={output}"] if output else [])]
        return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options)])


@dataclass(frozen=True)
class BatchScript:
    """A script for sbatch, and the program that it starts, if that has to be written too."""

    text: str
    name: str
    program: str = ""
    program_path: str = ""

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"

    def save(self, path: str | Path | None = None) -> Path:
        """Write the script, and the program to where the script looks for it. Then: sbatch job.sh.

        >>> labkit.cluster.batch_script(train, ranks=2).save("job.sh")      # doctest: +SKIP
        """
        path = Path(path or self.name)
        if not path.parent.is_dir():
            raise LabError(f"There is no folder {path.parent}. Make it first, or name another.")
        files = {path: self.text}
        if self.program:
            files[Path(self.program_path)] = self.program
        for file in files:
            _explain_existing(file)
        try:
            for file, text in files.items():
                file.write_text(text, encoding="utf-8")
            path.chmod(0o755)
        except OSError as fault:
            raise LabError(
                f"{fault.filename or path} cannot be written: {fault.strerror or fault}. Name a "
                "file in a folder that is yours."
            ) from fault
        return path


def _explain_existing(path: Path) -> None:
    """What labkit has written it may write again; a file of somebody's own stays as it is."""
    if not path.exists():
        return
    if not path.is_file():
        raise LabError(f"{path} is no file. Name one, such as job.sh.")
    if MADE not in path.read_text(encoding="utf-8", errors="replace"):
        raise LabError(
            f"{path} is there already and was not written by labkit: nothing was changed. "
            "Rename it, or choose another name."
        )


def _explain_count(what: str, value: object) -> None:
    if value is None and what != "ranks":
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LabError(f"{what}={value!r} is not a number of {what}. Write a whole number from 1.")


def _explain_text(what: str, value: object, form: re.Pattern[str], example: str) -> None:
    if value is not None and not (isinstance(value, str) and form.fullmatch(value)):
        raise LabError(f"{what}={value!r} is nothing that Slurm takes. Write {example}.")
