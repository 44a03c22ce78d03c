"""Which statement of the user's a sample belongs to, and a copy of the file that can leave it out.

A statement that no line of a step lies in may be left out: a save, a log, an evaluation, a batch
made by hand. The copy asks the agent each time, so that one run does it in turns.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

Line = tuple[str, int]  # a file and a line in it


@dataclass
class Statement:
    """A statement or function of the user's, and the samples that fell into it."""

    file: str
    first: int
    last: int
    name: str = ""  # of the function, if it is a whole one
    samples: int = 0
    parts: Counter[str] = field(default_factory=Counter)
    callees: Counter[str] = field(default_factory=Counter)
    lines: Counter[Line] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """Its source, on one line."""
        lines = Path(self.file).read_text("utf-8").splitlines()
        return " ".join(one.strip() for one in lines[self.first - 1 : self.last])

    @property
    def hottest(self) -> Line:
        """The user's line that most samples of it end in."""
        return max(self.lines, key=lambda at: self.lines[at])


@cache
def tree(file: str) -> ast.Module | None:
    """The syntax of a file, if it can be read."""
    try:
        return ast.parse(Path(file).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None


@cache
def statements(file: str) -> list[ast.stmt]:
    """All statements of a file; of those that a line lies in, the outer ones stand first."""
    found = [
        node for node in ast.walk(tree(file) or ast.Module([], [])) if isinstance(node, ast.stmt)
    ]
    return sorted(found, key=lambda one: (start(one), -(one.end_lineno or 0)))


@cache
def around(file: str, line: int) -> list[ast.stmt]:
    """The statements that a line lies in, outermost first."""
    return [one for one in statements(file) if start(one) <= line <= (one.end_lineno or 0)]


def start(node: ast.stmt) -> int:
    """The first line, with the decorators of a function."""
    marks: list[int] = [one.lineno for one in getattr(node, "decorator_list", [])]
    return min([node.lineno, *marks])


def removable(chain: list[str], essential: set[Line]) -> Statement | None:
    """The outermost statement or function of this stack that a step can do without."""
    by_file: dict[str, list[int]] = {}
    for file, line in essential:
        by_file.setdefault(file, []).append(line)
    called = False  # by a line of a step: the whole function can go
    for entry in chain:
        file, number, _ = entry.rsplit(":", 2)
        line, inside = int(number), around(file, int(number))
        if (file, line) in essential or _statement_of_step(inside, by_file.get(file, [])):
            called = True
            continue
        if any("GradientTape(" in _header(one) for one in inside):
            return None
        functions = [one for one in inside if isinstance(one, ast.FunctionDef)]
        within = functions[-1] if functions else None
        whole = within is not None and called and not fixed(within)
        if within is not None and whole and not _holds(within, by_file.get(file, [])):
            return Statement(file, start(within), within.end_lineno or 0, within.name)
        after = inside[inside.index(within) + 1 :] if within is not None else inside
        for one in after:
            if _holds(one, by_file.get(file, [])) or isinstance(one, ast.ClassDef) or fixed(one):
                continue
            return Statement(file, start(one), one.end_lineno or 0)
        called = True
    return None


def _header(node: ast.stmt) -> str:
    """What a `with` statement enters."""
    items = node.items if isinstance(node, ast.With) else []
    return " ".join(ast.unparse(one.context_expr) for one in items)


def fixed(node: ast.AST, loop: bool = False) -> bool:
    """Does it leave its surroundings: a return, a yield, the break of a loop around it?"""
    if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.NamedExpr):
        return True
    loop = loop or isinstance(node, ast.For | ast.While)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return) and not isinstance(node, ast.FunctionDef):
            return True
        if isinstance(child, ast.Break | ast.Continue) and not loop:
            return True
        inner = not isinstance(child, ast.FunctionDef | ast.Lambda) and fixed(child, loop)
        if inner and (not isinstance(node, ast.FunctionDef) or _yields(node)):
            return True
    return False


def _yields(node: ast.AST) -> bool:
    kinds = ast.Yield | ast.YieldFrom | ast.Await
    return any(isinstance(one, kinds) for one in ast.walk(node))


def _statement_of_step(inside: list[ast.stmt], lines: list[int]) -> bool:
    """Is the simple statement itself one of a step, over several lines?"""
    return bool(inside) and not hasattr(inside[-1], "body") and _holds(inside[-1], lines)


def _holds(node: ast.stmt, lines: list[int]) -> bool:
    return any(start(node) <= line <= (node.end_lineno or 0) for line in lines)


def gather(
    reports: list[dict[str, Any]], essential: set[Line], skip: tuple[str, ...]
) -> list[Statement]:
    """The statements that samples fell into, those with most samples of one rank first."""
    found: dict[tuple[str, int, int], Statement] = {}
    for report in reports:
        mine: Counter[tuple[str, int, int]] = Counter()
        for lines, callee, part, inside, times in [*report["chains"], *report["threads"]]:
            if inside in skip or part in ("trace", "forward", "backward", "optimizer"):
                continue
            one = removable(lines, essential)
            if one is None:
                continue
            key = (one.file, one.first, one.last)
            kept = found.setdefault(key, one)
            kept.parts[part or "thread"] += times
            kept.callees[callee] += times
            file, line, _ = lines[-1].rsplit(":", 2)
            kept.lines[(file, int(line))] += times
            mine[key] += times
        for key, times in mine.items():
            found[key].samples = max(found[key].samples, times)
    return sorted(found.values(), key=lambda one: -one.samples)


def _node(one: Statement) -> ast.stmt | None:
    same = (one.first, one.last)
    found = (n for n in around(one.file, one.first) if (start(n), n.end_lineno) == same)
    return next(found, None)


def asked_how(one: Statement) -> tuple[str, ast.expr | None] | None:
    """How the copy asks: `if` before the statement, or the value of its right-hand side again.

    Nothing, where it cannot: the value is the loss, or the statement is an `elif`.
    """
    node = _node(one)
    if node is None:
        return None
    if one.name:
        return "function", None
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names = {n.id for t in targets if t for n in ast.walk(t) if isinstance(n, ast.Name)}
        if node.value is None or names & _losses(one.file):
            return None
        return "again", node.value
    kinds = ast.Expr | ast.If | ast.For | ast.With | ast.While | ast.Try | ast.Delete
    written = Path(one.file).read_text("utf-8").splitlines()[one.first - 1].lstrip()
    return ("keep", None) if isinstance(node, kinds) and written[:4] != "elif" else None


def calls(one: Statement) -> list[str]:
    """The names of what a statement calls."""
    found = [n.func for n in ast.walk(_node(one) or ast.Pass()) if isinstance(n, ast.Call)]
    return [getattr(one, "attr", "") or getattr(one, "id", "") for one in found]


@cache
def _losses(file: str) -> frozenset[str]:
    """Names whose gradient is taken: `loss.backward()`, `tape.gradient(loss, …)`."""
    found = set()
    for node in ast.walk(tree(file) or ast.Module([], [])):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            values: list[ast.AST] = [node.func.value] if node.func.attr == "backward" else []
            values += node.args[:1] if node.func.attr == "gradient" else []
            found |= {n.id for v in values for n in ast.walk(v) if isinstance(n, ast.Name)}
    return frozenset(found)


AGENT = "__import__('labkit_agent.{0}').{0}."


def ask(text: str, asked: list[tuple[str, Statement]], compiled: Iterable[Statement] = ()) -> str:
    """The source in which each of these statements asks the agent.

    `compiled` are functions that can be compiled in turns, or parts of loops that become some.
    """
    lines = text.splitlines(keepends=True)  # each stays one entry, so that the numbers hold
    marks = AGENT.format("marks")
    jobs = [(one, name) for name, one in asked]
    jobs += [(one, "compile") for one in compiled]
    for one, name in sorted(jobs, key=lambda job: (-job[0].first, job[0].last)):
        first, indent = one.first, _indent(lines[one.first - 1])
        if name == "compile":
            call = AGENT.format("tensorflow_marks") + f"compiled({name!r})"
            lines[first - 1] = f"{indent}@{call}\n{_as_function(one, lines)}"
            continue
        how = asked_how(one)
        if how is None:
            continue
        if how[0] == "function":
            lines[first - 1] = f"{indent}@{marks}remembered({name!r})\n{lines[first - 1]}"
        elif how[0] == "keep":
            lines[first - 1] = f"{indent}if {marks}keep({name!r}):\n{_deeper(one, lines)}"
        elif (value := how[1]) is not None:
            _insert(lines, value.end_lineno or 0, value.end_col_offset or 0, "))")
            call = f"{marks}again({name!r}, lambda: ("
            _insert(lines, value.lineno, value.col_offset, call)
    return "".join(lines)


def _deeper(one: Statement, lines: list[str]) -> str:
    """Move these lines to the right by one, all but the first in place."""
    for at in range(one.first - 1, one.last):
        lines[at] = "".join(" " + x if x.strip() else x for x in lines[at].splitlines(True))
    return lines[one.first - 1]


def eager_step(file: str, line: int, essential: set[Line]) -> Statement | None:
    """What can be compiled around this gradient: what a loop does from its tape to the optimizer,
    or the function, if it is in no loop there.
    """
    inside = around(file, line)
    functions = [one for one in inside if isinstance(one, ast.FunctionDef)]
    within = inside[inside.index(functions[-1]) + 1 :] if functions else inside
    loops = [one for one in within if isinstance(one, ast.For | ast.While)]
    if not loops and functions:
        own = functions[-1]
        return Statement(file, start(own), own.end_lineno or 0, own.name)
    if not loops:
        return None
    lines = [number for name, number in essential if name == file]
    texts = [(one, ast.unparse(one)) for one in loops[-1].body]
    begins = [one for one, text in texts if "GradientTape(" in text and start(one) <= line]
    ends = [
        one for one, text in texts
        if (start(one) >= line and (_holds(one, lines) or any(word in text for word in UPDATES)))
        or _holds(one, [line])
    ]  # fmt: skip
    if not begins or not ends:
        return None
    return Statement(file, start(begins[0]), ends[-1].end_lineno or 0)


UPDATES = (".apply_gradients(", ".apply(", ".minimize(", ".assign")


def _as_function(one: Statement, lines: list[str]) -> str:
    """The function that starts here; or the same lines as a function, and the call of it."""
    if one.name:
        return lines[one.first - 1]  # its decorators, or its first line
    loop = [n for n in around(one.file, one.first) if isinstance(n, ast.For | ast.While)][-1]
    inner = {id(n) for child in loop.body for n in ast.walk(child)
             if one.first <= getattr(child, "lineno", 0) <= one.last}  # fmt: skip
    mine = [n for n in ast.walk(loop) if id(n) in inner]
    added = {n.target.id for n in mine
             if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}  # fmt: skip
    others = [n for n in ast.walk(tree(one.file) or loop) if id(n) not in inner]
    loop_stores = _names([n for n in ast.walk(loop) if id(n) not in inner], ast.Store)
    takes = ", ".join(sorted(added | _names(mine, ast.Load) & loop_stores))
    gives = "".join(f"{n}, " for n in sorted(_names(mine, ast.Store) & _names(others, ast.Load)))
    indent = _indent(lines[one.first - 1])
    call = f"{indent}{f'({gives}) = ' if gives else ''}labkit_step({takes})\n"
    first = _deeper(one, lines)
    end = f"{indent} return ({gives})\n{call}"
    if one.last == one.first:
        first += end
    else:
        lines[one.last - 1] += end
    return f"{indent}def labkit_step({takes}):\n{first}"


def _names(nodes: list[ast.AST], kind: type) -> set[str]:
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _insert(lines: list[str], row: int, column: int, text: str) -> None:
    """Put text into a line, at a column in bytes, as `ast` counts."""
    data = lines[row - 1].encode()
    lines[row - 1] = (data[:column] + text.encode() + data[column:]).decode()
