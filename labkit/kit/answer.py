"""What runs in the process of an answer: its cells, and then what the judge asks.

It has one student's cells and no truth. The judge does not trust what it sends.
"""

import ast
import asyncio
import inspect
import linecache
import socket
import symtable
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from labkit.collectives.communicator import Communicator, lent_to_mpi4py
from labkit.kit.border import AnswerEnd
from labkit.kit.release import WRITTEN


def serve(pipe: socket.socket) -> None:
    """Do what the judge says until it closes the pipe."""
    answers: list[Answer] = []
    Path(WRITTEN).mkdir(exist_ok=True)  # as beside the notebook

    def observe(cells: Any, module: str, name: str, *args: Any) -> Any:
        answers.append(Answer(*cells))
        return attrgetter(name)(import_module(module))(answers[0], *args)

    load = lambda *cells: Answer(*cells).value  # noqa: E731
    AnswerEnd(pipe, {"load": load, "observe": observe, "answer": Answer}).serve()


Cells = list[tuple[str, str]]  # name in tracebacks, and source, of each cell


class Answer:
    """An answer that is computed in the process that first calls it, such as a rank."""

    def __init__(self, cells: Cells, answer: str) -> None:
        self._cells = cells, answer
        self._computed: list[Any] = []

    @property
    def value(self) -> Any:
        """The answer, or `...` without an answer."""
        if not self._computed:
            cells, answer = self._cells
            self._computed.append(run(cells).get(answer, ...))
        return self._computed[0]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Call the answer, with the constants of mpi4py that its communicator has."""
        world = {"COMM_WORLD": args[0]} if args and isinstance(args[0], Communicator) else {}
        with lent_to_mpi4py(self.value, **world):
            return self.value(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        if (name.startswith("_") and name != "__code__") or not self._computed:
            raise AttributeError(name)
        return getattr(self.value, name)

    def __reduce__(self) -> Any:
        return Answer, self._cells


def run(cells: Cells) -> dict[str, Any]:
    """Run the cells. Returns the names and values that they leave."""
    quiet = lambda *_, **__: None  # noqa: E731
    for room in filter(None, map(sys.modules.get, ("labkit", "labkit.exercises"))):
        for asks in ("check", "hint", "solution"):  # there are no tasks here
            setattr(room, asks, quiet)
    space: dict[str, Any] = {"__name__": "__main__", "display": quiet, "get_ipython": quiet}
    remember(cells)
    for file, source in cells[:-1]:
        with suppress(BaseException):  # what fails above is no fault of the answer yet
            _run(source, file, space)
    _run(cells[-1][1], cells[-1][0], space)
    return space


def remember(cells: Cells) -> None:
    """Let tracebacks show the source, as in a notebook."""
    for file, source in cells:
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)


def _run(source: str, file: str, space: dict[str, Any]) -> None:
    code = compile(source, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, space)  # noqa: S307 (that is what this process is for)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def needed(cells: Sequence[str], name: str) -> Cells:
    """Returns the last cell, an answer, after the cells that bind or change names that it needs.

    Cells are whole. Of a cell that only imports, only needed imports are left: some take seconds.
    """
    modules = set().union(*(_uses(source).imports for source in cells))
    wanted = set(_uses(cells[-1]).reads)
    found = [(f"<answer {name}>", cells[-1])]
    for number in reversed(range(len(cells) - 1)):
        source, uses = cells[number], _uses(cells[number])
        if wanted & (uses.binds | (uses.changes - modules)):
            if uses.only_imports:
                lines = source.splitlines()
                for first, last, names in uses.only_imports:
                    if not wanted & names:
                        lines[first - 1 : last] = [""] * (last - first + 1)
                source = "\n".join(lines)
            wanted |= uses.reads
            found.append((f"<cell {number}>", source))
    return found[::-1]


class _Uses(NamedTuple):
    """The names that a cell reads, binds, imports, and changes in some other way."""

    reads: set[str]
    binds: set[str]
    imports: set[str]
    changes: set[str]
    only_imports: list[tuple[int, int, set[str]]]


@cache
def _uses(source: str) -> _Uses:
    try:
        tree = ast.parse(source)
        table = symtable.symtable(source, "cell", "exec")
    except Exception:  # noqa: BLE001 (also of what is too deep)
        tree, table = ast.Module([], []), symtable.symtable("", "cell", "exec")
    imports = _imported(tree)
    lines = [(one.lineno, one.end_lineno or one.lineno, _imported(one)) for one in tree.body]
    only = all(isinstance(one, ast.Import | ast.ImportFrom) for one in tree.body)
    binds = {one.get_name() for one in table.get_symbols() if one.is_assigned()}
    return _Uses(_reads(table), binds | imports, imports, _changed(tree), lines if only else [])


def _reads(table: symtable.SymbolTable) -> set[str]:
    """Returns the names that a cell takes from outside, also in its functions."""
    own = table.get_type() == "module"
    found = {
        one.get_name() for one in table.get_symbols()
        if one.is_referenced() and (own or one.is_global())
    }  # fmt: skip
    return found.union(*map(_reads, table.get_children()))


def _imported(tree: ast.AST) -> set[str]:
    aliases = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
    return {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


def _changed(tree: ast.AST) -> set[str]:
    """Returns names that a cell may change: it sets a part, calls a method, or passes them on."""
    found: set[str] = set()
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
        parts: list[ast.AST] = []
        if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            parts = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = [node.func.value]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            printed = isinstance(node.value.func, ast.Name) and node.value.func.id in QUIET
            parts = [] if printed else [*node.value.args]
        while parts:
            match parts.pop():
                case ast.Subscript(value=inner) | ast.Attribute(value=inner):
                    parts.append(inner)
                case ast.Name(id=name):
                    found.add(name)
    return found


QUIET = {"print", "display", "check", "hint"}
