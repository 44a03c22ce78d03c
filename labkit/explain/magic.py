"""`%%explain`: the code of a cell, run as a program of its own and explained in the notebook."""

from __future__ import annotations

import ast
import builtins
import io
import os
import re
import shutil
import signal
import subprocess
import symtable
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from labkit.arguments import number
from labkit.explain.command import explain
from labkit.explain.explanation import Explanation, read
from labkit.kinds import LabError
from labkit.linux import end_with_parent

SECONDS, LIMIT = 60.0, 900.0  # of the runs with something left out; of the cell's own run
STOPPING = 10.0  # seconds from Ctrl-C to the end by force
KNOWN = {*dir(builtins), "__name__", "__file__", "__doc__"} - {"display", "get_ipython"}
CHANGED = re.compile(r"^(\w+)[.\[]", re.MULTILINE)  # as in model.compile(…)


def explain_cell(line: str, cell: str) -> Explanation:
    """What `%%explain 60` does: the view is the value of the cell."""
    from IPython import get_ipython

    try:
        seconds = number("%%explain", float(line or SECONDS), above=0)
    except ValueError:
        raise LabError(f"%%explain {line}: give the seconds, as in %%explain 60.") from None
    earlier = enumerate(get_ipython().history_manager.input_hist_raw)
    pieces = program(cell, earlier)
    with tempfile.TemporaryDirectory(prefix="labkit-cell-") as folder:
        file, to = Path(folder).resolve() / "program" / "cell.py", Path(folder, "found.json")
        file.parent.mkdir()
        file.write_text("\n".join(text for _, text in pieces), encoding="utf-8")
        _run(file, seconds, to, pieces)
        if not to.exists():
            raise LabError("There is no explanation: what is printed above says why.")
        to.write_text(placed(to.read_text(encoding="utf-8"), str(file), pieces), encoding="utf-8")
        return read(to)


Piece = tuple[str, str]  # how a cell is called, and its source


def program(cell: str, earlier: Iterable[tuple[int, str]]) -> list[Piece]:
    """The cell and, before it, the earlier cells of plain Python that make the names it uses."""
    try:
        needed, made = uses(cell)
    except SyntaxError as fault:
        raise LabError(
            f"The cell is no program of Python: {fault.msg}, line {(fault.lineno or 0) + 1}. Take "
            "out magics, and await outside of functions."
        ) from None
    asked = sorted(needed)
    pieces = [("cell", f"\n{cell}")]  # the magic is line 1
    for count, source in reversed([*earlier]):
        if source.strip() in (cell.strip(), *(text.strip() for _, text in pieces)):
            continue
        try:
            needs, makes = uses(source)
        except SyntaxError:  # it has a magic
            continue
        changed = {*CHANGED.findall(source)} - {"labkit"}
        if needed & (makes | changed):
            pieces.insert(0, (f"cell [{count}]", source))
            needed = (needed - makes) | needs
    if (lacking := sorted(needed - made)) and not any("import *" in text for _, text in pieces):
        raise LabError(
            f"The cell uses {', '.join(lacking)}, which no earlier cell of plain Python makes. "
            "Write what makes it into this cell, which runs as a program of its own."
        )
    if before := [name.removeprefix("cell ") for name, _ in pieces[:-1]]:
        cells = f"cell{'s' * (len(before) > 1)} {', '.join(before)}"
        print(f"Before this cell come {cells}, because it uses {', '.join(asked)}.")
    return pieces


def uses(source: str) -> tuple[set[str], set[str]]:
    r"""The names that a program needs from before it, and those that it makes.

    >>> needed, made = uses("model = wrapped(model)\nfor x in data:\n    print(x)")
    >>> sorted(needed), sorted(made)
    (['data', 'model', 'wrapped'], ['model', 'x'])
    """
    made, needed, known = _names(source)[1], set[str](), set(KNOWN)
    for one in ast.parse(source).body:
        used, own = _names(ast.unparse(one))
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            needed |= used - known - made  # it may use what is made later
        else:
            needed |= used - known - (set() if isinstance(one, ast.Assign) else own)
        known |= own
    return needed, made


def _names(source: str) -> tuple[set[str], set[str]]:
    """The global names that are read, in any scope, and those that are bound."""
    tables = [symtable.symtable(source, "cell", "exec")]
    read, bound = set(), set()
    for table in tables:
        tables += table.get_children()
        for one in table.get_symbols():
            if table.get_type() == "module" or one.is_global():
                read |= {one.get_name()} if one.is_referenced() else set()
                bound |= {one.get_name()} if one.is_assigned() or one.is_imported() else set()
    return read, bound


def placed(text: str, file: str, pieces: list[Piece]) -> str:
    """The text with the cells' own lines in the place of those of the file."""

    def line(found: re.Match[str]) -> str:
        at = int(found[1])
        for name, source in pieces:
            if at <= (count := source.count("\n") + 1):
                return f"{name}, line {at}"
            at -= count
        return found[0]

    name = re.escape(file)
    return re.sub(rf'(?:File \\?")?{name}(?:\\?", line |:)(\d+)', line, text).replace(file, "cell")


def _run(file: Path, seconds: float, to: Path, pieces: list[Piece]) -> None:
    """Run and explain it in a process of its own, whose output is shown as it comes."""
    command = [sys.executable, "-P", "-m", __name__, str(file), str(seconds), str(to)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "MPLBACKEND": "Agg", "PYTHONUNBUFFERED": "1"}, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    end = partial(threading.Thread, target=_stop, daemon=True)
    end(args=(process, LIMIT + 3 * seconds)).start()
    output = io.TextIOWrapper(process.stdout, "utf-8", "replace", newline="")  # \r of progress bars
    try:
        _show(output, str(file), pieces)
    except KeyboardInterrupt:
        end(args=(process, 0)).start()
        _show(output, str(file), pieces)  # what it says when it is interrupted
        raise
    finally:
        process.wait()


def _show(output: Iterable[str], file: str, pieces: list[Piece]) -> None:
    for text in output:
        print(placed(text, file, pieces), end="", flush=True)


def _stop(process: subprocess.Popen[bytes], limit: float) -> None:
    """When it has ended, or after so many seconds: Ctrl-C, then the end of all that is left."""
    for seconds, how in ((limit, signal.SIGINT), (STOPPING, signal.SIGKILL)):
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)


def main(file: str, seconds: str, to: str) -> None:
    """Explain a file, in a process that ends with the kernel."""
    end_with_parent(signal.SIGTERM)
    tempfile.tempdir = str(Path(to).parent)  # which the kernel removes
    # Modules lie beside the notebook; of a copy, beside that.
    os.environ["PYTHONPATH"] = f".{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    kernel = os.getppid()
    try:
        with suppress(KeyboardInterrupt):
            explain([sys.executable, file], float(seconds), print).save(to)
    finally:
        if os.getppid() != kernel:  # it was killed, and cannot remove its folder
            shutil.rmtree(Path(to).parent, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
