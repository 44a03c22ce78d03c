"""One rank, in its own process: it runs the program, and packs what came of it.

>>> from labkit.cluster import this_rank          # doctest: +SKIP
>>> this_rank().rank, this_rank().role            # doctest: +SKIP
(2, 'worker')
"""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Literal

from labkit import shipping
from labkit.kinds import LabError

__all__ = [
    "VARIABLE",
    "Account",
    "ThisRank",
    "account_of",
    "prepare",
    "result_of",
    "run_prepared",
    "run_program",
]

# The whole of ThisRank, in the environment of each rank, whatever engine has started it.
VARIABLE = "LABKIT_RANK"
How = Literal["returned", "raised"]
# Of these, a rank tells what it had to load, so that the next ones find it there already.
WORTH_KEEPING = frozenset(
    {"absl", "google", "h5py", "keras", "labkit", "numpy", "optree", "scipy", "tensorflow", "torch"}
)


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

    def as_variable(self) -> dict[str, str]:
        """The variable that `here` reads."""
        return {VARIABLE: json.dumps(asdict(self))}


@dataclass(frozen=True)
class Prepared:
    """A program that is loaded, or the reason why it could not be."""

    before: int
    """Modules that were loaded already."""
    function: Callable[..., Any] | None
    args: tuple[Any, ...]
    fault: bytes


@dataclass(frozen=True)
class Account:
    """What a rank tells of an exception that ended its program."""

    sentence: str
    """Type and message."""
    traceback: str
    exception: bytes | None
    """Packed; None when it cannot be."""
    frames: tuple[tuple[str, int, str], ...]
    """File, line and function, the innermost last; those of labkit's own machinery left out."""

    library: str = ""
    """Where the class of the exception comes from."""

    def unpacked(self) -> BaseException | None:
        """The exception itself, where it can be had here without loading a large library."""
        if self.library in WORTH_KEEPING - {"labkit"} and self.library not in sys.modules:
            # To load TensorFlow for the sake of its exception would hold up the sentence for long.
            return None
        try:
            found = None if self.exception is None else _Light(io.BytesIO(self.exception)).load()
        except Exception:  # noqa: BLE001 (its class may not be here, or may not like its arguments)
            return None
        return found if isinstance(found, BaseException) else None


class _Light(pickle.Unpickler):
    """It loads no TensorFlow for the sake of an exception: somebody waits for the sentence."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in WORTH_KEEPING and module not in sys.modules:
            raise pickle.UnpicklingError(f"{module} is not loaded here")
        return super().find_class(module, name)


def run_program(program: bytes, rank: int) -> tuple[How, bytes]:
    """Run what `shipping.pack_program` packed; the payload is for Returned or Raised."""
    return run_prepared(prepare(program), rank)


def prepare(program: bytes) -> Prepared:
    """Load the program and what it needs, which may take a while: before a rank says Ready.

    It catches everything, as `run_prepared` does, so that an engine has one thing to send.
    """
    before = len(sys.modules)
    try:
        function, args = shipping.unpack_program(program)
    except BaseException as fault:  # noqa: BLE001 (whatever it is, somebody waits to be told)
        return Prepared(before, None, (), pickle.dumps(_account(fault)))
    return Prepared(before, function, args, b"")


def run_prepared(program: Prepared, rank: int) -> tuple[How, bytes]:
    """Call the function; the payload is for Returned or Raised."""
    if program.function is None:
        return "raised", program.fault
    try:
        try:
            value = program.function(rank, *program.args)
        except SystemExit as ending:
            if ending.code not in (None, 0):
                raise
            value = None
        return "returned", _pack_result(value, _loaded_since(program.before))
    except BaseException as fault:  # noqa: BLE001
        return "raised", pickle.dumps(_account(fault))


def result_of(payload: bytes | memoryview) -> tuple[Any, tuple[str, ...]]:
    """The value that a rank returned, and the modules worth loading before its like is run."""
    value, loaded = shipping.unpack(payload)
    return value, loaded


def account_of(payload: bytes | memoryview) -> Account:
    """What a rank tells of its exception."""
    account = pickle.loads(payload)  # noqa: S301
    assert isinstance(account, Account)
    return account


def _pack_result(value: Any, loaded: tuple[str, ...]) -> bytes:
    kind = type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return shipping.pack(
        (value, loaded),
        f"what it returned ({article} {kind})",
        "Return plain values or NumPy arrays, such as tensor.numpy().",
    )


def _loaded_since(before: int) -> tuple[str, ...]:
    """The newest names only: to touch each of TensorFlow's is to copy the pages that they are on,
    which a forked rank shares with its launcher: 26 ms.
    """
    newest = islice(reversed(sys.modules), max(0, len(sys.modules) - before))
    return tuple(
        name
        for name in [*newest][::-1]
        if name.partition(".")[0] in WORTH_KEEPING and not name.startswith("labkit.cluster")
    )


def _account(fault: BaseException) -> Account:
    lines = traceback.TracebackException.from_exception(fault)
    _leave_out_ours(lines)
    try:
        packed: bytes | None = shipping.pack(fault, "The exception")
        # Some exceptions can be packed and not unpacked: their __init__ wants more arguments.
        shipping.unpack(packed or b"")
    except Exception:  # noqa: BLE001
        packed = None
    return Account(
        sentence=_sentence(fault),
        traceback="".join(lines.format()).rstrip(),
        exception=packed,
        frames=_frames(fault.__traceback__),
        library=type(fault).__module__.partition(".")[0],
    )


def _sentence(fault: BaseException) -> str:
    try:
        message = str(fault)
    except Exception:  # noqa: BLE001 (a __str__ of the user's own)
        message = "(its message cannot be written)"
    if isinstance(fault, LabError):
        return message
    name = type(fault).__name__
    return f"{name}: {message}" if message else name


def _is_ours(file: str) -> bool:
    return file in (__file__, shipping.__file__)


def _leave_out_ours(lines: traceback.TracebackException) -> None:
    kept = [frame for frame in lines.stack if not _is_ours(frame.filename)]
    lines.stack[:] = kept or lines.stack[:]


def _frames(trace: TracebackType | None) -> tuple[tuple[str, int, str], ...]:
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(trace)
    ]
    return tuple(frame for frame in frames if not _is_ours(frame[0]))
