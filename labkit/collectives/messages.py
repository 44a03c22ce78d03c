"""Calls and messages under way: who made them at which line, and which ends belong together."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from textwrap import dedent
from traceback import extract_tb
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from labkit.collectives.records import Array, Place, ProgramFunction, listed

# Calls come from the program by way of these.
_MACHINERY = {
    str(Path(__file__).parent / f"{name}.py")
    for name in ("messages", "communicator", "scheduler", "trace", "buffers", "library")
}
_PROGRAMS = str(Path(__file__).parent / "programs.py")
# Their C++ calls Python, and two ranks must not take turns inside of it.
_TENSOR_LIBRARIES = {"jax", "keras", "tensorflow", "torch"}


class SourceLine(NamedTuple):
    """A line of the program; its place in the record is None when the source cannot be read."""

    text: str  # `line 7`
    place: Place | None = None
    in_tensors: bool = False  # whether TensorFlow, or a library like it, called the function
    # The program of labkit that makes the call, and on how many ranks.
    library: tuple[str, int] | None = None


class Lines:
    """The program's functions, each kept when it first makes a call."""

    def __init__(self, program: Callable[..., Any]) -> None:
        self.sources: list[ProgramFunction] = []
        code = getattr(function_of(program), "__code__", None)
        self._file = code.co_filename if code else ""
        # By identity: equal functions of two cells are equal codes.
        self._known: dict[int, tuple[CodeType, int | None]] = {}

    def here(self) -> SourceLine:
        """Returns the line of the program's innermost function that is running now."""
        found, in_tensors, library = None, False, None
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if found is None and _is_of_program(frame.f_code):
                found = frame
            in_tensors |= frame.f_globals.get("__name__", "").split(".")[0] in _TENSOR_LIBRARIES
            if frame.f_code.co_filename == _PROGRAMS and frame.f_code.co_name[0] != "<":
                library = f"programs.{frame.f_code.co_name}", frame.f_locals["comm"].Get_size()
            frame = frame.f_back
        if found is None:
            return SourceLine("a line that cannot be read")
        code, line = found.f_code, found.f_lineno
        index, place = self._index(code), None
        if index is not None:
            place = Place(index, line - self.sources[index].first + 1)
        text = self._words(code.co_filename, line, code.co_name)
        return SourceLine(text, place, in_tensors, library)

    def of_exception(self, traceback: TracebackType | None) -> str | None:
        """Returns the program's innermost line in a traceback, with its text."""
        steps = [step for step in extract_tb(traceback) if step.filename not in _MACHINERY]
        own = [step for step in steps if step.filename == self._file]
        for step in (own or steps)[-1:]:
            where = self._words(step.filename, step.lineno or 0, step.name)
            return f"{where}: {step.line}" if step.line else where
        return None

    def _words(self, file: str, line: int, function: str) -> str:
        """Returns `line 7`, with its file, or its function, as cells of a notebook have no name."""
        if file == self._file:
            return f"line {line}"
        return f"line {line} of {_name(file) or function}"

    def _index(self, code: CodeType) -> int | None:
        if id(code) not in self._known:
            # inspect.getsourcelines would look through all modules, each time.
            index, first = None, code.co_firstlineno
            linecache.checkcache(code.co_filename)
            if text := _block(tuple(linecache.getlines(code.co_filename)[first - 1 :])):
                index = len(self.sources)
                name = code.co_qualname.rpartition("<locals>.")[2]
                self.sources.append(ProgramFunction(name, first, text))
            self._known[id(code)] = code, index
        return self._known[id(code)][1]


@cache
def _name(file: str) -> str:
    """Of a file; a cell has none."""
    return Path(file).name if Path(file).exists() else ""


@lru_cache
def _block(lines: Sequence[str]) -> str:
    """Returns the function that begins in the first of these lines."""
    return dedent("".join(inspect.getblock(lines)))


def function_of(program: Any) -> Any:
    """Returns the function behind a decorator, a functools.partial, or a callable object."""
    inner = inspect.unwrap(getattr(program, "func", program))
    return inner if hasattr(inner, "__code__") else type(inner).__call__


def _is_of_program(code: CodeType) -> bool:
    """In Python 3.11 a comprehension has a frame of its own, and is no function of the program."""
    is_function = not code.co_name.startswith("<") or code.co_name == "<lambda>"
    return is_function and code.co_filename not in _MACHINERY


# No MPI library has these numbers: in MPICH PROC_NULL is -1, as is rank - 1 of rank 0.
ANY_SOURCE, PROC_NULL, ANY_TAG = -9001, -9002, -9003
LIBRARY_TAG = -1  # of the messages inside the library's collectives: no program receives them


@dataclass(slots=True, eq=False)
class Context:
    """The ranks of one communicator, in its order. A message stays in its context."""

    ranks: tuple[int, ...] = ()  # of the run; the place of each is its rank here
    is_world: bool = False
    open: list[Meeting] = field(default_factory=list)

    def arrive(self, call: OpenCall, given: tuple[int, int]) -> Meeting:
        """Note that a rank makes its next collective call on this communicator."""
        there = (one for one in self.open if call.rank not in one.given)
        if (meeting := next(there, None)) is None:
            self.open.append(meeting := Meeting())
        meeting.calls.append(call)
        meeting.given[call.rank] = given
        if len(meeting.given) == len(self.ranks):
            self.open.remove(meeting)
        return meeting

    def part(self, meeting: Meeting, color: int) -> tuple[int, ...]:
        """The ranks that gave a Split this color, ordered by their keys, then as they are here."""
        ranks = [rank for rank in self.ranks if meeting.given[rank][0] == color]
        return tuple(sorted(ranks, key=lambda rank: meeting.given[rank][1]))

    @property
    def words(self) -> str:
        """`the communicator of ranks 0 and 2`."""
        return f"the communicator of {ranks_text(self.ranks)}"


def ranks_text(ranks: Sequence[int]) -> str:
    """`ranks 0, 1, … and 7`."""
    shown = ranks if len(ranks) < 6 else [*ranks[:2], "…", ranks[-1]]
    return f"rank{'s' * (len(ranks) > 1)} {listed(shown)}"


@dataclass(slots=True, eq=False)
class Meeting:
    """A call that every rank of a communicator makes: a Barrier, a Split, a Bcast."""

    calls: list[OpenCall] = field(default_factory=list)
    # By rank: color and key of a Split; the root of a collective, and 0.
    given: dict[int, tuple[int, int]] = field(default_factory=dict)
    number: int = -1  # in the record
    parts: dict[int, Context] = field(default_factory=dict)  # of a Split, by color


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call that a rank has made; `number` is known when it returns."""

    rank: int
    name: str
    at: SourceLine
    context: Context
    posts: list[End] = field(default_factory=list)
    awaits: list[End] = field(default_factory=list)
    pending: list[End] = field(default_factory=list)  # ends that it waits for, all or one
    meeting: Meeting | None = None
    number: int = -1

    @property
    def where(self) -> str:
        """` (line 7)`; on a communicator that Split made, with its ranks."""
        part = "" if self.context.is_world else f"in {self.context.words}"
        known = [text for text in (self.at.text, part) if text]
        return f" ({', '.join(known)})" if known else ""

    @property
    def words(self) -> str:
        """`Rank 0's Send (line 7)`."""
        return f"Rank {self.rank}'s {self.name}{self.where}"


@dataclass(slots=True, eq=False)
class End:
    """One end of a message: a send or a receive that a call has posted."""

    call: OpenCall
    sends: bool
    peer: int  # the other rank, or ANY_SOURCE
    tag: int
    memory: Array | None  # the program's own; None when the call has let go of it
    region: tuple[int, int] | None  # the elements of its rank's buffer that it is
    count: int
    nbytes: int
    held: Array | None = None  # what the memory must hold until the message is waited for
    before: Array | None = None  # what it held when an Irecv was posted
    data: Array | None = None  # what a receive has been sent
    eager: bool = False  # a send that does not wait for its receiver
    late: bool = False  # of Isend or Irecv, to be waited for
    waited: bool = False
    other: End | None = None  # the end that it was matched with
    number: int = -1  # of the message, in its send

    @property
    def rank(self) -> int:
        """Whose end it is."""
        return self.call.rank

    @property
    def is_done(self) -> bool:
        """Whether nothing has to be waited for any more."""
        return self.eager or self.other is not None

    @property
    def message(self) -> End:
        """Returns the message's send, which stands for the message."""
        return self if self.sends or self.other is None else self.other

    @property
    def words(self) -> str:
        """`Send to rank 1 (line 7)`."""
        other = f"rank {self.peer}" if self.peer >= 0 else "any rank"
        return f"{self.call.name} {'to' if self.sends else 'from'} {other}{self.call.where}"

    def matches(self, receive: End) -> bool:
        """Returns whether this send is one that the receive takes."""
        return (
            receive.call.context is self.call.context
            and receive.peer in (self.rank, ANY_SOURCE)
            and (receive.tag == self.tag or (receive.tag == ANY_TAG and self.tag >= 0))
        )


class Mailboxes:
    """The ends that have not found each other yet, by receiving rank, in the order of posting."""

    def __init__(self, ranks: int) -> None:
        self.offered: list[list[End]] = [[] for _ in range(ranks)]
        self.wanted: list[list[End]] = [[] for _ in range(ranks)]

    def post(self, end: End) -> tuple[End, End] | None:
        """Returns the send and the receive that now make a message, if the other end is there."""
        to = end.peer if end.sends else end.rank
        mine, theirs = self.wanted[to], self.offered[to]
        if end.sends:
            mine, theirs = theirs, mine
        for index, other in enumerate(theirs):
            send, receive = (end, other) if end.sends else (other, end)
            if send.matches(receive):
                del theirs[index]
                return send, receive
        mine.append(end)
        return None

    def offer(self, receive: End) -> End | None:
        """Returns the send that such a receive would take now."""
        return next((one for one in self.offered[receive.rank] if one.matches(receive)), None)
