"""From what a student has at hand (text, a function, cells) to syntax trees with places."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.kinds import LabError

__all__ = ["Program", "programs"]

_MAGIC = re.compile(r"^\s*(?:[%!?]|[\w.\[\]'\"]+\?{1,2}\s*$|[\w, ]+=\s*[%!])")
# Cell magics whose cell is still Python. The rest of `%%bash` is not ours to read.
_PYTHON_CELLS = {"time", "timeit", "capture", "prun", "memit", "mprun"}


@dataclass(frozen=True)
class Program:
    """One piece of Python: its tree, its lines, and what to call its places."""

    tree: ast.Module
    lines: tuple[str, ...]
    cell: int | None = None
    first_line: int = 1
    timed_by_magic: bool = False
    known: Mapping[str, Any] = field(default_factory=dict)

    def place(self, line: int) -> str:
        """Where a student finds this line."""
        number = line + self.first_line - 1
        return f"line {number}" if self.cell is None else f"cell {self.cell}, line {number}"

    def text(self, line: int) -> str:
        """The line as it was written."""
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""


def programs(code: Any) -> list[Program]:
    """The pieces of a program in their order."""
    if isinstance(code, str):
        return [_parsed(code)]
    if isinstance(code, Sequence) and not isinstance(code, (bytes, bytearray)):
        strange = next((cell for cell in code if not isinstance(cell, str)), None)
        if strange is not None:
            raise LabError(
                f"A cell must be text, and one of these is {_short(strange)}. "
                "Pass the sources of cells, such as In[3:6]."
            )
        return [_parsed(cell, cell=number) for number, cell in enumerate(code, 1)]
    if callable(code):
        return [_function(code)]
    raise LabError(
        f"{_short(code)} is no program. Pass Python text, a function of yours (without the "
        "parentheses), or a list of cells such as In[3:6]."
    )


def _function(code: Any) -> Program:
    function = inspect.unwrap(code)
    name = getattr(code, "__name__", type(code).__name__)
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError) as fault:
        raise LabError(
            f"The source of {name!r} is not there to read. Pass its text instead, "
            "or the cell that defines it: labkit.training.diagnose(In[3])."
        ) from fault
    outside = getattr(function, "__globals__", {})
    return _parsed(textwrap.dedent("".join(lines)), first_line=max(first, 1), known=outside)


def _parsed(
    text: str,
    *,
    cell: int | None = None,
    first_line: int = 1,
    known: Mapping[str, Any] | None = None,
) -> Program:
    if cell is None and re.fullmatch(r"\s*[^\s()]+\.(py|ipynb)\s*", text):
        raise LabError(
            f"{text.strip()!r} looks like the name of a file. Pass its text: "
            f'pathlib.Path("{text.strip()}").read_text().'
        )
    lines = text.splitlines()
    magic = re.match(r"\s*%%(\w+)", text)
    code = lines.copy()
    if magic and magic[1] not in _PYTHON_CELLS:
        code = []
    # A line that begins with % may also go on with a formatted string. So only those that Python
    # itself stumbles over are taken for magics.
    for _ in range(len(lines) + 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as a "\d" in the student's own strings
                tree = ast.parse("\n".join(code))
        except SyntaxError as fault:
            line = _magic_line(code, fault)
            if line is None:
                raise _unreadable(fault, lines, cell, first_line) from None
            code[line] = _hidden(code[line])
            while lines[line].rstrip().endswith("\\") and line + 1 < len(lines):
                line += 1
                code[line] = ""
        except (ValueError, RecursionError, MemoryError) as fault:
            raise LabError(
                f"This text cannot be read as Python: {fault}. Pass the program's source."
            ) from None
        else:
            timed = bool(magic and magic[1] == "time")
            return Program(tree, tuple(lines), cell, first_line, timed, known or {})
    raise AssertionError("unreachable")


def _magic_line(code: list[str], fault: SyntaxError) -> int | None:
    """The line to hide, if the fault lies at a magic: there, or just before an empty block."""
    at = (fault.lineno or 1) - 1
    for line in (at, at - 1):
        if 0 <= line < len(code) and _MAGIC.match(code[line]):
            return line
    return None


def _hidden(line: str) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    target = re.match(r"\s*([\w, ]+?)\s*=\s*[%!]", line)
    return f"{indent}{target[1]} = None" if target and "," not in target[1] else f"{indent}pass"


def _unreadable(
    fault: SyntaxError, lines: list[str], cell: int | None, first_line: int
) -> LabError:
    line = fault.lineno or 1
    where = f"line {line + first_line - 1}"
    if cell is not None:
        where = f"cell {cell}, {where}"
    wrote = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return LabError(
        f"Python cannot read {where}: {fault.msg}. There stands: {wrote!r}. "
        "Mend that line first; labkit reads a program the way Python does."
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
