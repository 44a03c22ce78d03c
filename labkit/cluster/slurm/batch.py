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
import os
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.arguments import one_of, whole
from labkit.centre import GPUS, centre
from labkit.cluster.slurm import srun_task
from labkit.environments import Environment, find
from labkit.kinds import LabError

if TYPE_CHECKING:
    import argparse


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
    reservation: str | None = None
    memory: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    extra: tuple[str, ...] = ()
    name: str = "labkit"
    gpus_option: str = GPUS

    def __post_init__(self) -> None:
        whole("ranks", self.ranks, at_least=1)
        if self.nodes is not None:
            whole("nodes", self.nodes, at_least=1)
        for name, value in (*vars(self).items(), *(("extra", option) for option in self.extra)):
            if {"\n", "\r"} & {*str(value)}:
                raise LabError(f"{name} must be one line, got {value!r}.")

    @classmethod
    def here(cls, ranks: int, **given: Any) -> Resources:
        """Returns resources with the requests of the centre's `labkit-centre.toml` as defaults."""
        asks = centre()
        made = cls(ranks, **{**asks.requests(), **given})
        return replace(made, extra=(*asks.options, *made.extra), gpus_option=asks.gpus)

    def header(self, output: str = "") -> str:
        """Returns the first lines of the script. The job prints into the file `output`."""
        even = self.nodes is not None and self.ranks % self.nodes == 0
        values = {
            "job-name": self.name,
            "ntasks": self.ranks,
            "nodes": self.nodes,
            "ntasks-per-node": self.ranks // self.nodes if self.nodes and even else None,
            "cpus-per-task": self.cpus,
            "": None if self.gpus is None else self.gpus_option.format(gpus=self.gpus),
            "mem": self.memory,
            "partition": self.partition,
            "account": self.account,
            "reservation": self.reservation,
            "time": self.time,
        }
        given = [
            f"--{option}={shlex.quote(str(value))}" if option else str(value)
            for option, value in values.items()
            if value is not None
        ]
        options = [*given, *self.extra, *([f"--output={shlex.quote(output)}"] if output else [])]
        return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options)])


@dataclass(frozen=True)
class BatchScript:
    """A script for sbatch. A cell that ends with it shows it, and `save` writes it."""

    text: str
    name: str

    def __repr__(self) -> str:
        return self.text

    def save(self, path: str | Path | None = None) -> Path:
        """Write the script to a new file. An existing file is never changed.

        >>> batch_script("train.py", ranks=2).save("job.sh")      # doctest: +SKIP
        """
        path = Path(path or self.name)
        if path.exists() and path.read_text(errors="replace") != self.text:
            raise LabError(
                f"{path} is there already, and you may have edited it: it was not changed. Delete "
                "it, or choose another name."
            )
        path.write_text(self.text, encoding="utf-8")
        path.chmod(0o755)
        return path


def batch_script(
    file: str | Path,
    program: str | None = None,
    *,
    ranks: int = 2,
    environment: str | None = None,
    nodes: int | None = None,
    partition: str | None = None,
    time: str | int | None = None,
    account: str | None = None,
    reservation: str | None = None,
    memory: str | None = None,
    cpus: int | None = None,
    gpus: int | None = None,
    extra: tuple[str, ...] | None = None,
    name: str | None = None,
) -> BatchScript:
    """Returns the batch script that runs `program(rank)` of a .py file on every rank.

    >>> labkit.cluster.batch_script("train.py", ranks=4, nodes=2)      # doctest: +SKIP

    If the file has a single function, `program` is not needed. With `environment="torch"` the file
    itself is the program, and the script needs no labkit. The keywords from `nodes` on are those of
    `labkit.cluster(engine="slurm")`. Their defaults come from the centre's `labkit-centre.toml`.
    """
    if not isinstance(file, (str, Path)) or Path(file).suffix != ".py":
        raise LabError(
            f"file must be the path of a .py file, got {file!r}. A job runs without this "
            "notebook: write the program to a file with %%writefile train.py."
        )
    asked = {
        "nodes": nodes, "partition": partition, "time": time, "account": account,
        "reservation": reservation, "memory": memory, "cpus": cpus, "gpus": gpus,
        "extra": extra, "name": name,
    }  # fmt: skip
    resources = {key: value for key, value in asked.items() if value is not None}
    if environment is not None:
        return _script_of(find(environment), Path(file), ranks, resources)
    path = Path(file).resolve()
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as fault:
        raise LabError(f"{path} cannot be read as Python: {fault}.") from fault
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if program is None and len(functions) == 1:
        program = functions[0]
    program = str(one_of(f"program, a function of {path.name},", program, functions))
    wanted = Resources.here(ranks, **{"name": program, **resources})
    target = ("-m", "labkit.cli", "slurm", "run", f"{path}:{program}")
    run = centre().command(sys.executable, *target)
    lines = [
        wanted.header(f"{program}-%j.log"),
        "",
        *centre().lines(),
        "# Write each line when it is printed, not when a buffer is full.",
        "export PYTHONUNBUFFERED=1",
        f"{_srun(wanted)} \\",
        f"  {shlex.join(run)}",
    ]
    return BatchScript("\n".join(lines) + "\n", f"{program}.sh")


def _script_of(
    chosen: Environment, file: Path, ranks: int, resources: dict[str, Any]
) -> BatchScript:
    """Returns the script for a program of another framework, with relative paths."""
    asks = centre()
    python = f'{shlex.join(asks.command("python", str(file)))} "$@"'
    if chosen.name == "horovod":
        one_of(
            "nodes for horovodrun, which reaches other nodes by ssh,", resources.get("nodes"), [1]
        )
        start = [f"horovodrun --gloo --network-interface lo -np {ranks} {python}"]
    wanted = Resources.here(ranks, **{"name": file.stem, **resources})
    if chosen.name != "horovod":
        start = [
            "# The address of rank 0. Slurm gives every process its rank.",
            'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            # Below the ports that systems give to outgoing connections.
            "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))",
            "export WORLD_SIZE=$SLURM_NTASKS",
            f"{_srun(wanted)} bash -c \\",
            "  'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec \"$@\"' - \\",
            f"  {python}",
        ]
    activate = f"source {shlex.quote(os.path.relpath(chosen.venv / 'bin' / 'activate'))}"
    lines = [
        wanted.header(f"{wanted.name}-%j.log"),
        "",
        *asks.lines(),
        *([] if asks.container else [activate]),
        "# Write each line when it is printed, not when a buffer is full.",
        "export PYTHONUNBUFFERED=1",
        *start,
    ]
    return BatchScript("\n".join(lines) + "\n", f"{wanted.name}.sh")


def _srun(wanted: Resources) -> str:
    # Since Slurm 22.05 steps do not inherit the cores of a task.
    cores = f" --cpus-per-task={wanted.cpus}" if wanted.cpus else ""
    return f"srun --kill-on-bad-exit=1 --label{cores}"


def main(chosen: argparse.Namespace) -> int:
    """`labkit slurm script`: print or write a script. `labkit slurm run`: be a rank of its job."""
    if chosen.slurm == "run":
        return srun_task.run_target(chosen.target)
    names = ("ranks", "nodes", "partition", "time", "account", "gpus", "memory", "cpus")
    resources = {name: getattr(chosen, name) for name in names}
    script = batch_script(chosen.file, chosen.program, **resources)
    if chosen.output is None:
        print(script.text, end="")
    else:
        path = script.save(chosen.output)
        print(f"Wrote {path}. Send it with: sbatch {path}")
    return 0
