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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

from labkit import shipping
from labkit.cluster.engine import Job
from labkit.cluster.environment import set_threads
from labkit.kinds import LabError

VARIABLE = "LABKIT_RANK"  # all of ThisRank, in the environment of each rank
# What takes seconds to import and starts no threads when imported.
HEAVY = ("numpy", "tensorflow", "keras", "torch")
How = Literal["returned", "raised"]


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
    """Where each rank may listen."""
    engine: str

    def variable(self) -> dict[str, str]:
        """The variable that `this_rank` reads."""
        return {VARIABLE: json.dumps(asdict(self))}


def this_rank() -> ThisRank:
    """In a program that a cluster runs: which rank this is, and where the others are."""
    text = os.environ.get(VARIABLE)
    if text is None:
        raise LabError(
            "This process is no rank of a cluster. Call this_rank() in a program that "
            "c.run(program) runs."
        )
    found = json.loads(text)
    return ThisRank(**{**found, "addresses": tuple(found["addresses"])})


class Link(Protocol):
    """A rank's connection to the client: pipes here, srun and files under Slurm."""

    def started(self) -> bool:
        """Report that the program is loaded; wait until all ranks have. False: run is over."""

    def finished(self, how: How, payload: bytes) -> None:
        """Hand over the result or the report; after a result, wait until the run is over."""


def run(rank: int, job: Job, node: Mapping[str, str | None], stacks: int, link: Link) -> int:
    """Be this rank until the end; the exit code. `node`: variables that only its node knows.

    faulthandler writes stacks to the file `stacks`. SIGUSR1 asks for one; faulthandler answers also
    where Python is stuck in a library.
    """
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks)
    for name, value in {**node, **job.environment[rank]}.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    sys.modules["__main__"] = ModuleType("__main__")  # programs of a notebook live there
    sys.argv[:] = [""]
    _leave_a_stack_at_exit(stacks)
    preload(job.modules)
    set_threads()
    loaded = load_program(job.program)
    if not link.started():
        return 0
    how, payload = loaded if isinstance(loaded, tuple) else call_program(loaded, rank)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    link.finished(how, payload)
    return 0 if how == "returned" else 1


def load_program(program: bytes) -> Callable[[int], Any] | tuple[How, bytes]:
    """The function of a rank, or why it cannot be loaded."""
    try:
        function, args = shipping.unpack_program(program)
    except BaseException as fault:  # noqa: BLE001 (whatever it is, the client must hear of it)
        return "raised", pickle.dumps(Report.of(fault))
    return lambda rank: function(rank, *args)


def call_program(function: Callable[[int], Any], rank: int) -> tuple[How, bytes]:
    """Call the function; the payload is its packed result, or a packed Report."""
    try:
        try:
            value = function(rank)
        except SystemExit as ending:
            if ending.code not in (None, 0):
                raise
            value = None
        what = f"what it returned (type {type(value).__name__})"
        then = "Return plain values or NumPy arrays, such as tensor.numpy()."
        return "returned", shipping.pack(value, what, then)
    except BaseException as fault:  # noqa: BLE001
        return "raised", pickle.dumps(Report.of(fault))


@dataclass(frozen=True)
class Report:
    """What a rank reports of the exception that ended its program."""

    sentence: str
    """Type and message; of a LabError, the message."""
    traceback: str
    frames: tuple[tuple[str, int, str], ...]
    """File, line and function, the innermost last; without labkit's own machinery."""
    is_lab_error: bool
    packed: bytes = b""
    """The exception; empty when it cannot be sent."""
    library: str = ""
    """Where the class of the exception comes from."""

    @staticmethod
    def of(fault: BaseException) -> Report:
        """The report of an exception."""
        lines = traceback.TracebackException.from_exception(fault)
        machinery = (__file__, shipping.__file__)
        theirs = [frame for frame in lines.stack if frame.filename not in machinery]
        lines.stack[:] = theirs or lines.stack
        packed = b""
        with suppress(Exception):
            # Some exceptions can be packed and not unpacked: their __init__ takes more arguments.
            packed = shipping.pack(fault, "The exception")
            shipping.unpack(packed)
        kind = "" if isinstance(fault, LabError) else f"{type(fault).__name__}: "
        return Report(
            sentence=f"{kind}{fault}".removesuffix(": "),
            traceback="".join(lines.format()).rstrip(),
            frames=tuple((frame.filename, frame.lineno or 0, frame.name) for frame in theirs),
            is_lab_error=isinstance(fault, LabError),
            packed=packed,
            library=type(fault).__module__.partition(".")[0],
        )

    def exception(self) -> BaseException | None:
        """The exception itself, unless a library would have to be loaded here for it."""
        if self.library in sys.modules:
            with suppress(Exception):  # the user's own class may raise anything
                found = shipping.unpack(self.packed)
                return found if isinstance(found, BaseException) else None
        return None


def modules_of(program: Callable[..., Any]) -> tuple[str, ...]:
    """What is worth importing before the program runs: what its code names."""
    named: set[str] = set()
    for function in shipping.functions_of(program):
        named |= shipping.names_in(function.__code__) | {function.__module__ or ""}
        values = (value for _, value in shipping.names_used(function))
        named |= {value.__name__ for value in values if isinstance(value, ModuleType)}
    parts = {part for name in named for part in name.split(".")[:2]}
    house = Path(shipping.__file__).parent
    rooms = sorted(part for part in parts if part and (house / part).is_dir())
    return (
        *(name for name in HEAVY if name in parts),
        *(f"labkit.{room}" for room in rooms if "labkit" in parts),
    )


def preload(modules: Iterable[str]) -> None:
    """Import modules, and those that a room of labkit names in its PRELOAD.

    What cannot be imported here fails in the program, with its own sentence.
    """
    for name in modules:
        with suppress(BaseException):
            module = importlib.import_module(name)
            preload(vars(module).get("PRELOAD", ()))


def _leave_a_stack_at_exit(stacks: int) -> None:
    """A program that ends its own process without an exception leaves its stack."""
    mine = os.getpid()

    def traced(call: Callable[..., Any], ends_me: Callable[..., bool]) -> Callable[..., Any]:
        def tracing(*args: Any, **keywords: Any) -> Any:
            if os.getpid() == mine and ends_me(*args, **keywords):  # not a fork of it
                faulthandler.dump_traceback(stacks, all_threads=False)
            return call(*args, **keywords)

        return tracing

    os._exit = traced(os._exit, lambda *_, **__: True)
    os.kill = traced(os.kill, lambda pid, number: pid in (0, mine) and number != 0)
