"""One rank, in its own process: load the program, run it, report. The same under every engine.

>>> from labkit.cluster import this_rank          # doctest: +SKIP
>>> this_rank().rank, this_rank().role            # doctest: +SKIP
(2, 'worker')
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType, MethodType, ModuleType, TracebackType
from typing import Any, Literal, Protocol

from labkit import shipping
from labkit.cluster.environment import set_threads
from labkit.kinds import LabError

__all__ = [
    "Link",
    "Report",
    "ThisRank",
    "modules_of",
    "preload",
    "report_of",
    "result_of",
    "run",
]

VARIABLE = "LABKIT_RANK"  # all of ThisRank, in the environment of each rank
# What takes seconds to import and starts no threads when imported.
HEAVY = ("numpy", "tensorflow", "keras", "torch")
How = Literal["returned", "raised"]
Loaded = tuple[Callable[..., Any] | None, tuple[Any, ...], bytes]


@dataclass(frozen=True)
class ThisRank:
    """Who this process is among the ranks."""

    rank: int
    ranks: int
    role: str
    """Its role in TF_CONFIG: "worker", unless the cluster was given roles."""
    index: int
    """Its number within its role."""
    addresses: tuple[str, ...]
    """The addresses of all ranks."""
    engine: str

    @property
    def address(self) -> str:
        """Where this rank may listen."""
        return self.addresses[self.rank]

    @staticmethod
    def here() -> ThisRank:
        """The rank that this process is."""
        text = os.environ.get(VARIABLE)
        if text is None:
            raise LabError(
                "This process is no rank of a cluster. Call this_rank() in a program that "
                "c.run(program) runs."
            )
        found = json.loads(text)
        return ThisRank(**{**found, "addresses": tuple(found["addresses"])})

    def variable(self) -> dict[str, str]:
        """The variable that `here` reads."""
        return {VARIABLE: json.dumps(asdict(self))}


class Link(Protocol):
    """A rank's connection to the client: pipes here, srun and files under Slurm."""

    def started(self) -> bool:
        """Say that the program is loaded; wait until all ranks have said so. False: run is over."""

    def finished(self, how: How, payload: bytes) -> None:
        """Hand over the result or the report; after a result, wait until the run is over."""


def run(
    rank: int,
    program: bytes,
    environment: Mapping[str, str | None],
    modules: Iterable[str],
    stacks: int,
    link: Link,
) -> int:
    """Be this rank until the end; the exit code. faulthandler writes stacks to the file `stacks`.

    SIGUSR1 asks for a stack; faulthandler answers also where Python is stuck in a library.
    """
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    sys.modules["__main__"] = ModuleType("__main__")  # programs of a notebook live there
    sys.argv[:] = [""]
    _show_where_it_ends(stacks)
    preload(modules)
    set_threads()
    loaded = load_program(program)
    if not link.started():
        return 0
    how, payload = call_program(loaded, rank)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    link.finished(how, payload)
    return 0 if how == "returned" else 1


def load_program(program: bytes) -> Loaded:
    """The function and its arguments, or why they cannot be loaded."""
    try:
        return (*shipping.unpack_program(program), b"")
    except BaseException as fault:  # noqa: BLE001 (whatever it is, the client must hear of it)
        return None, (), pickle.dumps(_report(fault))


def call_program(loaded: Loaded, rank: int) -> tuple[How, bytes]:
    """Call the function; the payload is for Returned or Raised."""
    function, args, fault_of_loading = loaded
    if function is None:
        return "raised", fault_of_loading
    try:
        try:
            value = function(rank, *args)
        except SystemExit as ending:
            if ending.code not in (None, 0):
                raise
            value = None
        what = f"what it returned (type {type(value).__name__})"
        then = "Return plain values or NumPy arrays, such as tensor.numpy()."
        return "returned", shipping.pack(value, what, then)
    except BaseException as fault:  # noqa: BLE001
        return "raised", pickle.dumps(_report(fault))


def result_of(payload: bytes) -> Any:
    """The value that a rank returned."""
    return shipping.unpack(payload)


@dataclass(frozen=True)
class Report:
    """What a rank reports of the exception that ended its program."""

    sentence: str
    """Type and message."""
    traceback: str
    frames: tuple[tuple[str, int, str], ...]
    """File, line and function, the innermost last; without labkit's own machinery."""
    packed: bytes = b""
    """The exception; empty when it cannot be sent."""
    library: str = ""
    """Where the class of the exception comes from."""
    is_lab_error: bool = False

    def exception(self) -> BaseException | None:
        """The exception itself, unless a library would have to be loaded here for it."""
        if not self.packed or self.library not in sys.modules:
            return None
        try:
            found = shipping.unpack(self.packed)
        except Exception:  # noqa: BLE001 (the user's own class may raise anything)
            return None
        return found if isinstance(found, BaseException) else None


def report_of(payload: bytes) -> Report:
    """What a rank reports of its exception."""
    report = pickle.loads(payload)  # noqa: S301 (from a process that we have started)
    assert isinstance(report, Report)
    return report


def modules_of(program: Callable[..., Any]) -> tuple[str, ...]:
    """What is worth importing before the program runs: what its code names.

    >>> def program(rank):
    ...     import numpy as np
    ...     return np.zeros(rank)
    >>> modules_of(program)
    ('numpy',)
    """
    named: set[str] = set()
    for function in _functions_of(program):
        named |= _names(function.__code__) | set((function.__module__ or "").split(".")[:2])
        for _, value in shipping.names_used(function):
            if isinstance(value, ModuleType):
                named.update(value.__name__.split(".")[:2])
    rooms: list[str] = []
    if "labkit" in named:
        house = Path(shipping.__file__).parent
        rooms = [f"labkit.{name}" for name in sorted(named) if (house / name).is_dir()]
    return (*(name for name in HEAVY if name in named), *rooms)


def preload(modules: Iterable[str]) -> None:
    """Import modules, and those that a room of labkit names in its PRELOAD.

    What cannot be imported here fails in the program, with its own sentence.
    """
    for name in modules:
        with suppress(BaseException):
            module = importlib.import_module(name)
            preload(vars(module).get("PRELOAD", ()))


def _functions_of(program: Callable[..., Any]) -> Iterator[FunctionType]:
    """The function, and those that it uses and that come from the same notebook or package."""
    home = str(getattr(program, "__module__", None) or "").partition(".")[0]
    seen: set[int] = set()
    waiting: list[Any] = [program]
    while waiting:
        part = waiting.pop()
        part = part.__func__ if isinstance(part, MethodType) else getattr(part, "func", part)
        if id(part) in seen or not isinstance(part, (FunctionType, type)):
            continue
        seen.add(id(part))
        # A function made by hand may have no module at all.
        if (part.__module__ or "").partition(".")[0] != home and shipping.is_importable(part):
            continue
        if isinstance(part, FunctionType):
            yield part
            waiting.extend(value for _, value in shipping.names_used(part) if callable(value))
        else:
            waiting.extend(value for value in vars(part).values() if callable(value))


def _names(code: Any) -> set[str]:
    found = {part for name in code.co_names for part in name.split(".")}
    return found.union(*(_names(part) for part in code.co_consts if hasattr(part, "co_names")))


def _report(fault: BaseException) -> Report:
    lines = traceback.TracebackException.from_exception(fault)
    lines.stack[:] = [frame for frame in lines.stack if not _is_ours(frame.filename)] or lines.stack
    packed = b""
    with suppress(Exception):
        # Some exceptions can be packed and not unpacked: their __init__ takes more arguments.
        packed = shipping.pack(fault, "The exception")
        shipping.unpack(packed)
    try:
        message = str(fault)
    except Exception:  # noqa: BLE001 (a __str__ of the user's own)
        message = "(its message cannot be written)"
    is_lab_error = isinstance(fault, LabError)
    kind = "" if is_lab_error else type(fault).__name__
    return Report(
        sentence=f"{kind}: {message}" if kind and message else kind or message,
        traceback="".join(lines.format()).rstrip(),
        frames=_frames(fault.__traceback__),
        packed=packed,
        library=type(fault).__module__.partition(".")[0],
        is_lab_error=is_lab_error,
    )


def _frames(trace: TracebackType | None) -> tuple[tuple[str, int, str], ...]:
    frames = [
        (f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(trace)
    ]
    return tuple(frame for frame in frames if not _is_ours(frame[0]))


def _is_ours(file: str) -> bool:
    return file in (__file__, shipping.__file__)


def _show_where_it_ends(stacks: int) -> None:
    """A program that ends its own process without an exception leaves its stack."""
    mine = os.getpid()

    def shown(call: Callable[..., Any], ends_me: Callable[..., bool]) -> Callable[..., Any]:
        def showing(*args: Any, **keywords: Any) -> Any:
            if os.getpid() == mine and ends_me(*args, **keywords):  # not a fork of it
                faulthandler.dump_traceback(stacks, all_threads=False)
            return call(*args, **keywords)

        return showing

    os._exit = shown(os._exit, lambda *_, **__: True)
    os.kill = shown(os.kill, lambda pid, number: pid in (0, mine) and number != 0)
