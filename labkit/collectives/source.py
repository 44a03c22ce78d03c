"""Which line of the program a call comes from, and the text of the functions that made calls."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple

from labkit.collectives.records import Place, Source

__all__ = ["Lines", "SourceLine", "inside_tensors", "mentions"]

_HERE = Path(__file__).parent
# The machinery of a run; what calls into it is the program.
_MACHINERY = {
    str(_HERE / name)
    for name in (
        "communicator.py", "errors.py", "programs/group.py", "simulator.py", "source.py",
    )
}  # fmt: skip
# Libraries whose C++ calls Python back: a rank must not give way to another inside of them.
_TENSORS = {"jax", "keras", "tensorflow", "torch"}


class SourceLine(NamedTuple):
    """Where a program is; its `place` in the record is None when its source cannot be read."""

    place: Place | None
    file: str
    line: int  # 0: not even that is known
    function: str


class Lines:
    """The program's functions, each written down when it first makes a call."""

    def __init__(self, program: Callable[..., Any]) -> None:
        self.sources: list[Source] = []
        code = _code_of(program)
        self._file = code.co_filename if code else ""
        # By identity: equal functions of two cells are equal codes.
        self._known: dict[int, tuple[CodeType, int | None]] = {}

    def here(self) -> SourceLine:
        """The innermost line of the program that is running now."""
        frame: FrameType | None = sys._getframe(1)
        near = "", 0, ""
        while frame is not None:
            code = frame.f_code
            if code.co_filename not in _MACHINERY:
                known = self._known.get(id(code))
                index = known[1] if known else self._learn(frame)
                if not near[1] and _is_function(code):
                    near = code.co_filename, frame.f_lineno, code.co_name
                if index is not None:
                    line = frame.f_lineno - self.sources[index].first + 1
                    return SourceLine(Place(index, line), *near)
            frame = frame.f_back
        return SourceLine(None, *near)

    def words(self, at: SourceLine) -> str:
        """`line 7`, as the file or the cell counts its lines; with its file, if that is another.

        A function from another cell of a notebook is named, as cells have no names.
        """
        if not at.line:
            return "a line that cannot be read"
        return self._line(at.line, at.file, at.function)

    def of_exception(self, traceback: TracebackType | None) -> str:
        """The innermost line of the program in a traceback, with its text."""
        steps = [step for step in _steps(traceback) if _file(step) not in _MACHINERY]
        if not steps:
            return "a line that cannot be read"
        step = ([step for step in steps if _file(step) == self._file] or steps)[-1]
        file, line = _file(step), step.tb_lineno
        text = linecache.getline(file, line).strip()
        where = self._line(line, file, step.tb_frame.f_code.co_name)
        return f"{where}: {text}" if text else where

    def _line(self, line: int, file: str, function: str) -> str:
        if file == self._file:
            return f"line {line}"
        return f"line {line} of {Path(file).name if Path(file).exists() else function}"

    def _learn(self, frame: FrameType) -> int | None:
        code = frame.f_code
        index = None
        if _is_function(code):
            try:
                lines, first = inspect.getsourcelines(code)
            except (OSError, TypeError, IndexError, SyntaxError):
                pass
            else:
                index = len(self.sources)
                name = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
                self.sources.append(Source(name, first, dedent("".join(lines))))
        self._known[id(code)] = code, index
        return index


def inside_tensors() -> bool:
    """Whether TensorFlow, or a library like it, is below the program's innermost function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _TENSORS:
            return True
        frame = frame.f_back
    return False


def mentions(program: Callable[..., Any], name: str) -> bool:
    """Whether the program, or a function that it uses by name, says this name."""
    seen: set[int] = set()
    waiting: list[Any] = [_code_of(program), getattr(program, "func", program)]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or len(seen) > 1000:
            continue
        seen.add(id(part))
        if isinstance(part, CodeType):
            if name in (*part.co_names, *part.co_freevars):
                return True
            waiting += part.co_consts
        elif isinstance(part, FunctionType) and not _is_library(part.__module__):
            waiting.append(part.__code__)
            waiting += (cell.cell_contents for cell in part.__closure__ or () if _is_set(cell))
            for code in _codes(part.__code__):
                waiting += _named(part.__globals__, code.co_names)
    return False


def _named(space: dict[str, Any], names: tuple[str, ...]) -> Iterator[Any]:
    """What the names stand for, in a function's globals or in a module that it names there."""
    modules = [space[name] for name in names if isinstance(space.get(name), ModuleType)]
    for scope in (space, *(vars(one) for one in modules if not _is_library(one.__name__))):
        yield from (scope[name] for name in names if name in scope)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in {"labkit", "mpi4py", "numpy", *_TENSORS}


def _code_of(program: Any) -> CodeType | None:
    """The code of a function, of a functools.partial, or of an object that can be called."""
    inner = inspect.unwrap(getattr(program, "func", program))
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _is_function(code: CodeType) -> bool:
    """A comprehension has a frame of its own in Python 3.11, but is no function of the program."""
    return not code.co_name.startswith("<") or code.co_name == "<lambda>"


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _file(step: TracebackType) -> str:
    return step.tb_frame.f_code.co_filename
