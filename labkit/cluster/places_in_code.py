"""Where in a program a rank was: from a stack that faulthandler wrote, or from a traceback."""

from __future__ import annotations

import linecache
import re
import site
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Place", "place_in_frames", "place_in_stack"]

Frames = Sequence[tuple[str, int, str]]  # file, line, function; the innermost last
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
HOUSE = str(Path(__file__).parents[1])
ROOM = str(Path(__file__).parent)
LIBRARIES = tuple(
    {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    }
)


@dataclass(frozen=True)
class Place:
    """A line of the program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        source = linecache.getline(self.file, self.line).strip()
        if len(source) > 70:
            source = f"{source[:67]}..."
        where = f"line {self.line} of {self.function}"
        return f"{where} (`{source}`)" if source else where


def place_in_frames(frames: Frames) -> Place | None:
    """The innermost line that is of the program, and not of a library that it called."""
    for theirs in (_is_the_users, _is_typed_in, _is_labkits):
        for file, line, function in reversed(frames):
            if theirs(file):
                return Place(file, line, function)
    return None


def place_in_stack(text: str) -> Place | None:
    """The same, from the threads that faulthandler lists."""
    latest: Place | None = None
    for thread in re.split(r"\n\s*\n|(?=^(?:Current thread|Thread) 0x)", text, flags=re.MULTILINE):
        frames = [(file, int(line), name) for file, line, name in FRAME.findall(thread)]
        # The thread in which the rank runs the program; the program's others come and go.
        if any(name in ("run_prepared", "prepare") for _, _, name in frames):
            latest = place_in_frames(frames[::-1]) or latest
    return latest


def _is_the_users(file: str) -> bool:
    made = file.startswith("<frozen") or "__autograph_generated" in file
    return not made and not file.startswith(("<string>", HOUSE, *LIBRARIES))


def _is_typed_in(file: str) -> bool:
    """`python -c`, which looks like code that a library makes up."""
    return file == "<string>"


def _is_labkits(file: str) -> bool:
    shipping = str(Path(HOUSE) / "shipping.py")
    return file.startswith(HOUSE) and not file.startswith(ROOM) and file != shipping
