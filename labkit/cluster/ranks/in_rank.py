"""A rank in its own process: load the program, run it, report. The same under every engine."""

from __future__ import annotations

import faulthandler
import importlib
import os
import pickle
import runpy
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from platform import node
from time import perf_counter
from types import ModuleType
from typing import Any, Literal, Protocol

from labkit import shipping
from labkit.cluster.ranks.environment import set_threads
from labkit.cluster.ranks.protocol import RunSpec
from labkit.kinds import LabError

# What takes seconds to import and starts no threads when imported.
HEAVY = ("numpy", "tensorflow", "keras", "torch")
DEEP = ("torch.", "horovod.", "labkit.")  # and these as they are written
How = Literal["returned", "raised"]


# Of a rank on this machine: its number, and a socket to each other rank, from the fork server.
connections: tuple[int, dict[int, socket.socket]] | None = None
_functions: list[Callable[..., Any]] = []  # the program, and functions among its arguments
_until_the_end = ExitStack()


@dataclass(frozen=True)
class Script:
    """A file as the program of a run: what `python FILE ARGUMENTS` would do, on every rank.

    >>> c.start(labkit.cluster.Script("train.py", ("--epochs", "2")))         # doctest: +SKIP
    """

    file: str
    arguments: tuple[str, ...] = ()

    @property
    def __name__(self) -> str:
        return Path(self.file).name

    def __call__(self, _rank: int) -> None:
        """Run it as the main module, with its folder first in sys.path, as Python does.

        Its variables stay until the process ends: torch can hang when the last model of
        DistributedDataParallel is deleted after its process group was destroyed.
        """
        sys.argv[:] = [self.file, *self.arguments]
        sys.path.insert(0, str(Path(self.file).parent))
        sys.modules["__main__"] = main = ModuleType("__main__")
        main.__file__ = self.file
        exec(compile(Path(self.file).read_bytes(), self.file, "exec"), vars(main))  # noqa: S102


class ClientLink(Protocol):
    """A rank's connection to the client: pipes here, srun and files under Slurm."""

    def started(self) -> bool:
        """Report that the program is loaded, and wait for all ranks. False: the run is over."""

    def finished(self, how: How, payload: bytes) -> None:
        """Hand over the result or the report. After a result, wait until the run is over."""


def run(
    rank: int, spec: RunSpec, node: Mapping[str, str | None], stacks: int, link: ClientLink
) -> int:
    """Be this rank until the end. Returns its exit code.

    `node` holds the variables that only its node knows. On SIGUSR1 faulthandler writes a stack to
    the file `stacks`, also while Python is stuck in a library.
    """
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    for name, value in {**node, **spec.environment[rank]}.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    sys.modules["__main__"] = ModuleType("__main__")  # programs of a notebook live there
    sys.argv[:] = [""]
    preload(spec.modules)
    set_threads()
    if before := os.environ.get("LABKIT_BEFORE"):
        runpy.run_path(before)
    loaded = load_program(spec.program)
    if not link.started():
        return 0
    how, payload = loaded if isinstance(loaded, tuple) else call_program(loaded, rank)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    link.finished(how, payload)
    return 0 if how == "returned" else 1


def ask_stack(pid: int) -> bool:
    """Ask a child for its stack. Returns False if it is stopped (SIGSTOP) and cannot answer."""
    stat = Path(f"/proc/{pid}/stat")  # with the letter that `ps` shows; only Linux has it
    if stat.exists() and stat.read_text(errors="replace").rpartition(")")[2].split()[0] == "T":
        return False
    os.kill(pid, signal.SIGUSR1)
    return True


@cache
def communicator() -> Any:
    """Returns, in a rank, the communicator of all ranks of its run: its `MPI.COMM_WORLD`.

    >>> c.run(lambda rank: program(labkit.cluster.communicator(), data[rank]))  # doctest: +SKIP

    It has the calls of the simulated communicator: messages, Split, and the collectives, with
    mpi4py's constants, requests and statuses. A Send of any size returns when its receiver has
    begun to receive. In a program that names mpi4py, MPI.COMM_WORLD is this communicator. MPI
    itself is not started: of its functions there are Wtime and Get_processor_name.
    """
    if connections is None:
        raise LabError(
            "labkit.cluster.communicator() is for a program that the ranks of this machine run: "
            "with labkit.cluster(ranks=4) as c: c.run(program). Under Slurm, and in a program "
            "without labkit, take mpi4py's MPI.COMM_WORLD."
        )
    from labkit.cluster.ranks.transport import SocketTransport
    from labkit.collectives.communicator import Communicator, lent_to_mpi4py

    transport = SocketTransport(*connections)
    world = Communicator(transport, connections[0])
    names = {"COMM_WORLD": world, "Wtime": perf_counter, "Get_processor_name": node}
    _until_the_end.enter_context(lent_to_mpi4py(*_functions, **names))
    return world


def load_program(program: bytes) -> Callable[[int], Any] | tuple[How, bytes]:
    """Returns the function of a rank, or the report of why it cannot be loaded."""
    try:
        function, args = shipping.unpack_program(program)
    except BaseException as fault:  # noqa: BLE001 (whatever it is, the client must hear of it)
        return "raised", pickle.dumps(ErrorReport.of(fault))
    _functions[:] = [thing for thing in (function, *args) if callable(thing)]
    # Not in the source of all cells, which travels with it: a comment there may name mpi4py.
    call = shipping.call_in(program)
    named = any(name in call for name in (b"mpi4py", b"PROC_NULL", b"ANY_SOURCE", b"ANY_TAG"))
    if connections is not None and (named or "mpi4py.MPI" in sys.modules):
        communicator()  # as MPI.COMM_WORLD, too: MPI itself is not started
    return lambda rank: function(rank, *args)


def call_program(function: Callable[[int], Any], rank: int) -> tuple[How, bytes]:
    """Call the function. Returns how it ended, with its packed result or a packed ErrorReport."""
    try:
        value = None
        with shipping.exit_is_return():
            value = function(rank)
        if value is None:  # also without cloudpickle
            return "returned", pickle.dumps(None)
        what = f"what it returned (type {type(value).__name__})"
        then = "Return plain values or NumPy arrays, such as tensor.numpy()."
        return "returned", shipping.pack(value, what, then)
    except BaseException as fault:  # noqa: BLE001
        return "raised", pickle.dumps(ErrorReport.of(fault))


@dataclass(frozen=True)
class ErrorReport:
    """What a rank reports of the exception that ended its program: words, so that no library is
    loaded to read it.
    """

    kind: str
    """The name of its type, which is LabError for subclasses of it, too."""
    message: str
    traceback: str
    frames: tuple[tuple[str, int, str], ...]
    """File, line and function of each call, innermost last, without labkit's own machinery."""

    @staticmethod
    def of(fault: BaseException) -> ErrorReport:
        """Returns the report of an exception."""
        lines = traceback.TracebackException.from_exception(fault)
        machinery = (__file__, shipping.__file__)
        theirs = [frame for frame in lines.stack if frame.filename not in machinery]
        lines.stack[:] = theirs or lines.stack
        return ErrorReport(
            kind="LabError" if isinstance(fault, LabError) else type(fault).__name__,
            message=str(lines),  # also where its own __str__ fails
            traceback="".join(lines.format()).rstrip(),
            frames=tuple((frame.filename, frame.lineno or 0, frame.name) for frame in theirs),
        )


def modules_of(program: Callable[..., Any]) -> tuple[str, ...]:
    """Returns what is worth importing before the program runs: the modules that its code names."""
    named: set[str] = set()
    if isinstance(program, Script):
        with suppress(SyntaxError, ValueError):  # told by the rank, with its line
            source = Path(program.file).read_bytes()
            named |= shipping.names_in(compile(source, program.file, "exec"))
    for function in shipping.functions_of(program):
        named |= shipping.names_in(function.__code__) | {function.__module__ or ""}
        values = (value for _, value in shipping.names_used(function))
        named |= {value.__name__ for value in values if isinstance(value, ModuleType)}
    parts = {part for name in named for part in name.split(".")[:2]}
    house = Path(shipping.__file__).parent
    rooms = sorted(part for part in parts if part and (house / part).is_dir())
    return (
        *(name for name in HEAVY if name in parts),
        *sorted(name for name in named if name.startswith(DEEP)),
        *(["torch._dynamo"] if "DistributedDataParallel" in parts else []),  # its constructor does
        *(f"labkit.{room}" for room in rooms if "labkit" in parts),
        *(["labkit.cluster.ranks.transport"] if "communicator" in parts else []),
    )


def preload(modules: Iterable[str]) -> None:
    """Import modules, and those that a room of labkit lists in its PRELOAD.

    A module that cannot be imported fails again in the program, with its own message.
    """
    for name in modules:
        with suppress(BaseException):
            module = importlib.import_module(name)
            preload(vars(module).get("PRELOAD", ()))
