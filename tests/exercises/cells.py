"""Source of a cell run as in a notebook, and the cells of the notebooks that ask for an answer."""

import ast
import inspect
import itertools
import linecache
import os
import re
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import nbformat
import numpy as np
import pytest

from labkit import LabError, collectives, environments, updates
from labkit.collectives import programs
from labkit.exercises import tasks

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = [*sorted(FOLDER.glob("[0-9]*.ipynb")), FOLDER / "check_yourself.ipynb"]
NUMBERS = itertools.count()
REQUIRED = os.environ.get("LABKIT_REQUIRE_ENVIRONMENTS") == "1"
TORCH = environments.find("torch")
NEEDS_TORCH = pytest.mark.skipif(
    not REQUIRED and (not TORCH.stamp or TORCH.needs_this_python),
    reason="not built with this Python: labkit env build torch",
)


class Asked(NamedTuple):
    """One `check(...)`: the task, and the cell above it."""

    task: str
    source: str


def _asked():
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            call = re.search(r'^check\("([\w.]+)", \w+\)$', cell.source, re.MULTILINE)
            if cell.cell_type == "code" and call:
                yield Asked(call[1], cell.source[: call.start()])


ASKED = list(_asked())


def value(source):
    """What a cell defines last; Python can read its source again, as in a notebook."""
    file = f"<cell {next(NUMBERS)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = {"__name__": "__main__", "np": np, "programs": programs, "updates": updates}
    if re.search(r"\b(keras|tf)\b", source):  # TensorFlow starts late: most tasks need none
        import keras
        import tensorflow as tf

        space |= {"keras": keras, "tf": tf}
    exec(compile(source, file, "exec"), space)
    return next(reversed(space.values()))


# labkit's programs, as if a student had written them.
own = ModuleType("own")
exec(compile(inspect.getsource(programs), "own.py", "exec"), vars(own))


def changed(task, old, new, *, graph=True):
    """What a worked solution defines when there is a mistake in it; or without a `tf.function`."""
    solution = tasks()[task].solution.strip() + "\n"
    assert old in solution
    kept = solution if graph else solution.replace("    @tf.function\n", "")
    return value(kept.replace(old, new))


def under_mpi(program, buffers, **keywords):
    """What its ranks leave in their buffers under a real MPI; skipped where there is none."""
    try:
        return collectives.run_mpi(program, buffers, **keywords)
    except LabError as error:
        if "no mpiexec" in str(error):
            pytest.skip(str(error))
        raise


def refused(task, answer, *words):
    """The verdict on a wrong answer, which has these words; skipped where it cannot be judged."""
    outcome = tasks()[task].check(answer)
    if outcome.state == "elsewhere" and not REQUIRED:
        pytest.skip(str(outcome))
    assert outcome.state == "wrong", outcome
    assert [word for word in words if word not in outcome.text] == [], outcome
    return outcome


def cells_of(lecture, ids, **given):
    """The functions and constants that these cells of a lecture define; `given` is there before."""
    [path] = [path for path in NOTEBOOKS if path.name.startswith(lecture)]
    cells = {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}
    space = {"np": np, "programs": programs, "collectives": collectives, **given}
    for name in ids:
        tree = ast.parse(cells[name])
        kept = [
            one
            for one in tree.body
            if isinstance(one, ast.FunctionDef)
            or isinstance(getattr(one, "value", 0), ast.Constant)
        ]
        exec(compile(ast.Module(kept, []), name, "exec"), space)
    return {name: value for name, value in space.items() if name != "__builtins__"}
