"""Which line of the program makes a call, and the text of the functions that make calls."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from traceback import extract_tb
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from labkit.collectives.records import Place, Source

__all__ = ["Lines", "SourceLine", "function_of"]

# Calls come from the program by way of these.
_MACHINERY = {
    str(Path(__file__).with_name(f"{name}.py"))
    for name in ("communicator", "scheduler", "simulator")
} | {str(Path(__file__).parent / "programs" / "group.py"), __file__}
# Their C++ calls Python, and two ranks must not take turns inside of it.
_TENSOR_LIBRARIES = {"jax", "keras", "tensorflow", "torch"}


class SourceLine(NamedTuple):
    """A line of the program; its place in the record is None when the source cannot be read."""

    text: str  # `line 7`
    place: Place | None = None
    in_tensors: bool = False  # whether TensorFlow, or a library like it, called the function


class Lines:
    """The program's functions, each kept when it first makes a call."""

    def __init__(self, program: Callable[..., Any]) -> None:
        self.sources: list[Source] = []
        code = getattr(function_of(program), "__code__", None)
        self._file = code.co_filename if code else ""
        # By identity: equal functions of two cells are equal codes.
        self._known: dict[int, tuple[CodeType, int | None]] = {}

    def here(self) -> SourceLine:
        """The line of the program's innermost function that is running now."""
        found, in_tensors = None, False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if found is None and _is_of_program(frame.f_code):
                found = frame
            in_tensors |= frame.f_globals.get("__name__", "").split(".")[0] in _TENSOR_LIBRARIES
            frame = frame.f_back
        if found is None:
            return SourceLine("a line that cannot be read")
        code, line = found.f_code, found.f_lineno
        index, place = self._index(code), None
        if index is not None:
            place = Place(index, line - self.sources[index].first + 1)
        return SourceLine(self._words(code.co_filename, line, code.co_name), place, in_tensors)

    def of_exception(self, traceback: TracebackType | None) -> str:
        """The program's innermost line in a traceback, with its text."""
        steps = [step for step in extract_tb(traceback) if step.filename not in _MACHINERY]
        own = [step for step in steps if step.filename == self._file]
        for step in (own or steps)[-1:]:
            where = self._words(step.filename, step.lineno or 0, step.name)
            return f"{where}: {step.line}" if step.line else where
        return "a line that cannot be read"

    def _words(self, file: str, line: int, function: str) -> str:
        """`line 7`; with its file, or with its function, as cells of a notebook have no names."""
        if file == self._file:
            return f"line {line}"
        return f"line {line} of {Path(file).name if Path(file).exists() else function}"

    def _index(self, code: CodeType) -> int | None:
        if id(code) not in self._known:
            index = None
            try:
                lines, first = inspect.getsourcelines(code)
            except (OSError, TypeError, IndexError, SyntaxError):
                pass
            else:
                index = len(self.sources)
                name = code.co_qualname.rpartition("<locals>.")[2]
                self.sources.append(Source(name, first, dedent("".join(lines))))
            self._known[id(code)] = code, index
        return self._known[id(code)][1]


def function_of(program: Any) -> Any:
    """The function behind a decorator, a functools.partial, or an object that can be called."""
    inner = inspect.unwrap(getattr(program, "func", program))
    return inner if hasattr(inner, "__code__") else type(inner).__call__


def _is_of_program(code: CodeType) -> bool:
    """In Python 3.11 a comprehension has a frame of its own, and is no function of the program."""
    is_function = not code.co_name.startswith("<") or code.co_name == "<lambda>"
    return is_function and code.co_filename not in _MACHINERY
