"""A program taken out of a notebook: the statements that it needs, and no others.

A notebook also trains, draws and tries; a job must not do all that again. So only what the program
uses goes along: functions, classes, imports and values, each with what it uses itself, in the
notebook's order.

>>> print(program_of(["import math", "print('hello')", "def f(rank): return math.pi"], "f"))
import math
<BLANKLINE>
<BLANKLINE>
def f(rank): return math.pi
<BLANKLINE>
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import symtable
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.kinds import LabError

__all__ = ["cells_of", "program_of"]

MAGIC = re.compile(r"^\s*[%!?]|^\s*\w+\s*=\s*[%!]|^\s*[\w.]+\?+\s*$")
# Magic of a whole cell whose rest is Python all the same.
AROUND_PYTHON = re.compile(r"\s*%%(time|timeit|capture|prun|memit|mprun)\b.*")
MODULES_OWN = {"__name__", "__file__", "__doc__", "__builtins__"}
DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Statement:
    """A statement at the top of a cell: its text, the names that it makes and those it uses."""

    text: str
    makes: frozenset[str]
    uses: frozenset[str]
    is_definition: bool
    always: bool  # whose effect has no name: from __future__ import ..., from math import *
    makes_all: bool  # from math import *


def cells_of(path: Path) -> list[str]:
    """The text of every code cell of a notebook."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
        return ["".join(cell["source"]) for cell in cells]
    except FileNotFoundError:
        raise LabError(f"There is no notebook {path}.") from None
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as fault:
        raise LabError(f"{path} is no notebook that can be read: {fault}.") from fault


def program_of(cells: Sequence[str], name: str, where: str = "the notebook") -> str:
    """The text of a module that holds `name` and what it needs; a name made twice counts last."""
    statements = [one for cell in cells for one in _statements(cell)]
    made = {made: number for number, one in enumerate(statements) for made in one.makes}
    if name not in made:
        known = sorted({n for one in statements if one.is_definition for n in one.makes})
        there = f"Its functions are {', '.join(known)}." if known else "It has no function."
        raise LabError(f"There is no program {name!r} in {where}. {there}")
    needed, waiting = {n for n, one in enumerate(statements) if one.always}, [made[name]]
    while waiting:
        number = waiting.pop()
        if number in needed:
            continue
        needed.add(number)
        for used in statements[number].uses:
            # x = x + 1 needs the x before it; a function runs when all cells have.
            before = _makers(statements, used, number)
            waiting.extend(before)
    parts = [statements[number] for number in sorted(needed)]
    lines = [
        ("\n\n" if one.is_definition or (n and parts[n - 1].is_definition) else "") + one.text
        for n, one in enumerate(parts)
    ]
    text = "\n".join(lines).strip("\n") + "\n"
    missing = [] if any(one.makes_all for one in parts) else sorted(_unmade(text))
    if missing:
        raise LabError(
            f"{name} needs {', '.join(missing)}, and no cell of {where} makes that. Define it in a "
            "cell; lines that begin with % or ! are left out."
        )
    return text


def _unmade(text: str) -> set[str]:
    """Names of a module that its functions and lines use, and nobody makes."""
    top = symtable.symtable(text, "program", "exec")
    used, made = set(), set(dir(builtins)) | MODULES_OWN
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is top or symbol.is_declared_global():
                made |= (
                    {symbol.get_name()} if symbol.is_assigned() or symbol.is_imported() else set()
                )
            if symbol.is_referenced() and (table is top or symbol.is_global()):
                used.add(symbol.get_name())
    return used - made


def _makers(statements: Sequence[Statement], name: str, user: int) -> list[int]:
    """The statements that make a name as its user finds it."""
    all_of_them = [n for n, one in enumerate(statements) if name in one.makes and n != user]
    if not statements[user].is_definition:
        before = [n for n in all_of_them if n < user]
        return before[-1:] or all_of_them[-1:]
    return all_of_them[-1:]


def _statements(cell: str) -> Iterator[Statement]:
    if cell.lstrip().startswith("%%"):
        first, _, cell = cell.lstrip().partition("\n")
        if not AROUND_PYTHON.fullmatch(first):
            return
    plain = ["" if MAGIC.search(line) else line for line in cell.splitlines()]
    for lines in (cell.splitlines(), plain):
        try:
            tree = ast.parse("\n".join(lines))
        except SyntaxError:
            continue  # magic, or half a cell, such as an exercise that is not done yet
        yield from (_statement(node, lines) for node in tree.body)
        return


def _statement(node: ast.stmt, lines: Sequence[str]) -> Statement:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    text = "\n".join(lines[first - 1 : node.end_lineno])
    if node.col_offset or not isinstance(node, DEFINITION):
        # Two statements on one line are two: take this one alone.
        text = ast.get_source_segment("\n".join(lines), node) or ast.unparse(node)
    star = isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
    return Statement(
        text,
        frozenset(_made(node)),
        frozenset(_used(node)),
        isinstance(node, DEFINITION),
        future or star,
        star,
    )


def _made(node: ast.AST) -> Iterator[str]:
    """Names that stand in the notebook after this statement. A call that only acts makes none."""
    if isinstance(node, DEFINITION):
        yield node.name
        return  # what is made inside stays inside
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    if isinstance(node, (ast.Name, ast.Subscript, ast.Attribute)):
        # settings["rate"] = 1 and model.rate = 1 make what is there into something else.
        inner: ast.AST = node
        while isinstance(inner, (ast.Subscript, ast.Attribute)):
            inner = inner.value
        if isinstance(node.ctx, ast.Store) and isinstance(inner, ast.Name):
            yield inner.id
    if isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from _made(child)


def _used(node: ast.stmt) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and (
            isinstance(inner.ctx, ast.Load) or isinstance(node, ast.AugAssign)
        ):
            yield inner.id
