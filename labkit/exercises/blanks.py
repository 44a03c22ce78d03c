"""What a student has not written yet, the `...` of a cell, and what an answer raised.

>>> is_untouched({...}, ""), is_untouched({1, ...}, ""), is_untouched([], "")
(True, False, False)
"""

import ast
import inspect
import re
import textwrap
import traceback


def source(answer: object) -> str:
    """The source of a function, and a text itself."""
    try:
        return textwrap.dedent(answer if isinstance(answer, str) else inspect.getsource(answer))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


# What a cell may come with beside its `...`, and what is no answer yet.
FRAME = re.compile(r"return [a-z_]+$|import |from |rank\b.* = .*[Gg]et_rank\(")


def is_untouched(answer: object, solution: str, kept: int = 0) -> bool:
    """Whether nothing was written: `...` alone, or as many lines of the solution as the cell had.

    Lines that only frame an answer, such as imports, are not counted.
    """
    if isinstance(answer, str):
        return answer.strip() in ("", "...")
    if isinstance(answer, (dict, set, list, tuple)):
        values = list(answer.values() if isinstance(answer, dict) else answer)
        return values != [] and all(one is ... for one in values)
    code = source(answer)
    if not _blanks(code):
        return answer is ...
    mine = ast.parse(code).body
    written = _lines(getattr(mine[0], "body", mine))
    return len(written) <= kept and written <= _lines(ast.parse(solution).body)


def where_left(answer: object) -> str:
    """A sentence that names the first line in which a `...` still is, as its cell counts."""
    if isinstance(answer, str) or not (lines := _blanks(source(answer))):
        return ""
    return f"\nThere is still a `...` in line {inspect.getsourcelines(answer)[1] + lines[0] - 1}."  # type: ignore[arg-type]


def raised(fault: BaseException, answer: object) -> str:
    """What an answer raised, and at which line, as its cell or file counts."""
    frames = traceback.extract_tb(fault.__traceback__)
    file = getattr(getattr(answer, "__code__", None), "co_filename", None)
    lines = [frame for frame in frames if frame.filename == file]
    lines = lines or frames[-1:] * isinstance(fault, AssertionError)
    said = f": {text}" if (text := _last_line(fault)) else ""
    where = f" at line {lines[-1].lineno}: {lines[-1].line}" if lines else ""
    return f"It raised {type(fault).__name__}{said}{where}"


def _last_line(fault: BaseException) -> str:
    """TensorFlow and Keras write a page: what went wrong is its last line but for a list."""
    text = re.sub(r"\x1b\[\d*m", "", str(fault).partition("\nArguments received")[0])
    last = text.strip().rpartition("\n")[2].strip()
    return last.removeprefix(f"{type(fault).__name__}: ")[:300]  # AutoGraph writes it once more


def _blanks(code: str) -> list[int]:
    """The lines with a `...` for a value or a statement; `x[..., 0]` is none."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # of a lambda, whose line begins before it
        return []
    slices = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    inside = {id(node) for each in slices for node in ast.walk(each)}
    dots = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and n.value is ...]
    return sorted(node.lineno for node in dots if id(node) not in inside)


def _lines(statements: list[ast.stmt]) -> set[str]:
    """The lines of these statements, without those that have a blank or only frame the others."""
    code = ast.unparse(ast.Module(statements, []))
    left = set(_blanks(code))
    lines = {line.strip() for n, line in enumerate(code.splitlines(), 1) if n not in left}
    return {line for line in lines if line and not FRAME.match(line)}
