"""Batch scripts for programs of files and notebooks: what `labkit slurm script` writes.

>>> batch_script(train, ranks=2, nodes=2, partition="alpha").save("job.sh")     # doctest: +SKIP
"""

from __future__ import annotations

import ast
import inspect
import linecache
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.cluster.batch import MADE, Ask, BatchScript
from labkit.cluster.cells import cells_of, program_of
from labkit.kinds import LabError

__all__ = ["batch_script", "script_of_file"]


def batch_script(program: Callable[..., Any], *, ranks: int = 2, **asked: Any) -> BatchScript:
    """The batch script that runs `program(rank)` on every rank, without this notebook.

    What it asks for is as in `labkit.cluster(engine="slurm")`: nodes, partition, time, account,
    memory, cpus, gpus, extra. Name it in a cell to read it; `.save("job.sh")` writes it.
    """
    name = getattr(program, "__name__", "")
    if not name.isidentifier():
        raise LabError(
            f"{program!r} has no name to call it by. Write it as a function: def train(rank): ..."
        )
    ask = Ask(ranks=ranks, name=name, **asked)
    file = inspect.getsourcefile(inspect.unwrap(program)) or ""
    if program.__module__ != "__main__" and Path(file).is_file():
        return _script(ask, Path(file).resolve(), name)
    if program.__module__ == "__main__" and Path(file).suffix == ".py" and Path(file).is_file():
        return _script(ask, Path(file).resolve(), name)
    # Whoever runs cells without keeping them, as nbval does, has left the source of each at least.
    cells = _history() or ["".join(linecache.getlines(file))]
    text = program_of(cells, name, "this notebook")
    return _script(ask, Path.cwd() / f"{name}_program.py", name, f"{MADE} from a notebook.\n{text}")


def script_of_file(path: Path, name: str | None, ask: Ask) -> BatchScript:
    """The batch script for a program in a .py or .ipynb file; the only function needs no name."""
    path = path.resolve()
    if path.suffix == ".ipynb":
        cells = cells_of(path)
        name = name or _only_function("\n".join(cells), path)
        program = f"{MADE} from {path.name}.\n{program_of(cells, name, str(path))}"
        return _script(ask, path.with_name(f"{path.stem}_{name}.py"), name, program)
    if path.suffix != ".py":
        raise LabError(f"{path} is neither a .py nor an .ipynb file: give the file of a program.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", "") or fault
        raise LabError(f"{path} cannot be read: {why}.") from fault
    functions = _functions(text)
    if name is not None and name not in functions:
        raise LabError(
            f"There is no program {name!r} in {path}. It has: {', '.join(functions) or 'none'}."
        )
    return _script(ask, path, name or _only_function(text, path))


def _script(ask: Ask, path: Path, name: str, program: str = "") -> BatchScript:
    srun = ["srun", "--kill-on-bad-exit=1", "--label"]
    if ask.cpus:
        srun.append(f"--cpus-per-task={ask.cpus}")  # since Slurm 22.05 steps do not inherit it
    run = [sys.executable, "-m", "labkit.cli", "slurm", "run", f"{path}:{name}"]
    text = "\n".join(
        [
            ask.header(f"{name}-%j.log"),
            "",
            f"{MADE}, which may write over it.",
            "# Lines come as they are printed, and not when a buffer is full.",
            "export PYTHONUNBUFFERED=1",
            f"{shlex.join(srun)} \\",
            f"  {shlex.join(run)}",
            "",
        ]
    )
    return BatchScript(text, f"{name}.sh", program, str(path) if program else "")


def _functions(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def _only_function(text: str, path: Path) -> str:
    # A program's first parameter is its rank; helpers have others.
    functions = _functions(text)
    if len(functions) != 1:
        known = f" It has: {', '.join(functions)}." if functions else ""
        raise LabError(f"Say with --program which function of {path.name} is meant.{known}")
    return functions[0]


def _history() -> list[str]:
    """The cells that were run, in their order."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        raise LabError(
            "The source of the program cannot be found: write it in a cell of a notebook, or in a "
            "file of its own."
        )
    return [str(cell) for cell in shell.user_ns.get("In", []) if cell]
