"""Which line of the program a call comes from, and the text of the functions that made calls."""

from __future__ import annotations

import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from labkit.collectives.trace import Place, Source

__all__ = ["Lines", "Spot"]

_HERE = Path(__file__).parent
# The machinery of a run; what calls into it is the program.
_MACHINERY = {
    str(_HERE / name)
    for name in (
        "communicator.py",
        "faults.py",
        "programs/group.py",
        "lines.py",
        "memory_regions.py",
        "posts.py",
        "simulator.py",
    )
}


class Spot(NamedTuple):
    """Where a program is; its `place` in the trace is None when its source cannot be read."""

    place: Place | None
    file: str
    line: int  # 0: not even that is known
    function: str


class Lines:
    """The program's functions, each written down when it first makes a call."""

    def __init__(self, program: Callable[..., Any]) -> None:
        self.sources: list[Source] = []
        inner = inspect.unwrap(getattr(program, "func", program))
        code = getattr(inner, "__code__", None)
        if code is None:  # an object that can be called
            code = getattr(type(inner).__call__, "__code__", None)
        self._file = code.co_filename if code else ""
        # By identity: equal functions of two cells are equal codes.
        self._known: dict[int, tuple[CodeType, int | None]] = {}

    def here(self) -> Spot:
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
                    return Spot(Place(index, line), *near)
            frame = frame.f_back
        return Spot(None, *near)

    def words(self, spot: Spot) -> str:
        """`line 7`, as the file or the cell counts its lines; with its file, if that is another.

        A function from another cell of a notebook is named, as cells have no names.
        """
        if not spot.line:
            return "a line that cannot be read"
        return self._line(spot.line, spot.file, spot.function)

    def of_fault(self, traceback: TracebackType | None) -> str:
        """The innermost line of the program in a traceback, with its text."""
        frames = [step for step in _steps(traceback) if _file(step) not in _MACHINERY]
        ours = [step for step in frames if _file(step) == self._file]
        if not frames:
            return "a line that cannot be read"
        step = (ours or frames)[-1]
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
                self.sources.append(Source(name, first, textwrap.dedent("".join(lines))))
        self._known[id(code)] = code, index
        return index


def _is_function(code: CodeType) -> bool:
    """A comprehension has a frame of its own in Python 3.11, but is no function of the program."""
    return not code.co_name.startswith("<") or code.co_name == "<lambda>"


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _file(step: TracebackType) -> str:
    return step.tb_frame.f_code.co_filename
