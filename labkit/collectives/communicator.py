"""What a rank communicates through: the buffer calls of mpi4py.

A program that uses these calls alone runs unchanged with `mpi4py.MPI.COMM_WORLD`. Messages go
through a `Transport`: here the scheduler of simulated ranks, in `labkit.cluster` sockets.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from labkit.collectives.messages import (
    ANY_SOURCE,
    ANY_TAG,
    PROC_NULL,
    Context,
    End,
    Meeting,
    OpenCall,
    function_of,
)
from labkit.collectives.records import Array
from labkit.kinds import LabError
from labkit.shipping import names_in

LENT = ("ANY_SOURCE", "ANY_TAG", "PROC_NULL", "Request", "Status")
CALLS = ("Send", "Recv", "Sendrecv", "Isend", "Irecv", "Barrier", "Split", "Get_rank", "Get_size")
# In every MPI: Waitany's result when there is nothing to wait for; the color of no communicator.
UNDEFINED = -32766
UNKNOWN = np.dtype("V0")  # of Fortran's datatypes, such as MPI.COMPLEX, where MPI has not started


class Transport(Protocol):
    """What carries messages between ranks, and lets a call wait for them."""

    world: Context

    def enter(self, rank: int, name: str, context: Context | None = None) -> OpenCall:
        """A rank makes a call."""

    def post(
        self, call: OpenCall, memory: Array, peer: int, tag: int, *, sends: bool, late: bool
    ) -> End:
        """Post one end of a message."""

    def wait_for(
        self, call: OpenCall, ends: list[End], enough: Callable[[Iterable[bool]], bool] = all
    ) -> None:
        """Wait until all of the ends are done, or any."""

    def finish(self, call: OpenCall, ends: Sequence[End | None] = ()) -> None:
        """Wait for the ends, and return from the call."""

    def meet(self, call: OpenCall, color: int = 0, key: int = 0) -> Meeting:
        """Wait until every rank of the communicator makes this call."""

    def split(self, call: OpenCall, color: int, key: int) -> Context:
        """The communicator of the ranks that give the same color."""

    def fault(self, text: str) -> LabError:
        """The error that ends the run."""


class Status:
    """Where a received message came from, and how long it was."""

    def __init__(self) -> None:
        self.source: int = ANY_SOURCE
        self.tag: int = ANY_TAG
        self.count = 0  # bytes, as in mpi4py

    def Get_source(self) -> int:
        """The rank that sent the message."""
        return self.source

    def Get_tag(self) -> int:
        """The message's tag."""
        return self.tag

    def Get_count(self, datatype: Any = None) -> int:
        """Its length in bytes; with a datatype of MPI or numpy, in elements of that."""
        if datatype is None:
            return self.count
        return self.count // int(np.dtype(getattr(datatype, "typestr", datatype)).itemsize)

    def _fill(self, end: End | None) -> None:
        self.source, self.tag, self.count = PROC_NULL, ANY_TAG, 0
        if end is not None:
            send = end.message
            self.source = send.call.context.ranks.index(send.rank)
            self.tag, self.count = send.tag, send.nbytes


class Request:
    """A message under way, from `Isend` or `Irecv`; its buffer is not yours until `Wait`."""

    def __init__(self, end: End | None, run: Transport, rank: int) -> None:
        self._end = end  # None: of PROC_NULL
        self._active = True  # until it is waited for
        self._run = run
        self._rank = rank

    def Wait(self, status: Status | None = None) -> bool:
        """Return when the message is complete."""
        _wait("Wait", [self], [status])
        return True

    @classmethod
    def Waitall(cls, requests: Sequence[Any], statuses: Sequence[Status] | None = None) -> bool:
        """Return when all messages are complete."""
        _wait("Waitall", requests, statuses or [])
        return True

    @classmethod
    def Waitany(cls, requests: Sequence[Any], status: Status | None = None) -> int:
        """Return when one of the messages is complete, with its place among the requests."""
        active = [one for one in requests if _is_active(one)]
        if not active:
            return UNDEFINED
        ends = [one._end for one in active]
        if None not in ends:  # a request of PROC_NULL is complete at once
            active[0]._run.wait_for(active[0]._run.enter(active[0]._rank, "Waitany"), ends, any)
        one = next(one for one in active if one._end is None or one._end.is_done)
        _wait("Waitany", [one], [status])
        return requests.index(one)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        text = f"A request has no {name}. There are Wait, Waitall and Waitany."
        raise self._run.fault(text)


def _is_active(request: Any) -> bool:
    """Whether there is something to wait for: not so for MPI.REQUEST_NULL."""
    return isinstance(request, Request) and request._active


def _wait(name: str, requests: Sequence[Any], statuses: Sequence[Status | None]) -> None:
    pairs = [pair for pair in zip_longest(requests, statuses) if _is_active(pair[0])]
    if pairs:
        run, rank = pairs[0][0]._run, pairs[0][0]._rank
        run.finish(run.enter(rank, name), [request._end for request, _ in pairs])
    for request, status in pairs:
        request._active = False
        if status is not None:
            status._fill(request._end)


class Communicator:
    """One rank's end of a run, or of those of its ranks that a Split put together."""

    def __init__(self, run: Transport, rank: int, context: Context | None = None) -> None:
        self._run = run
        self._rank = rank  # of the run
        self._context = context or run.world
        self._here = self._context.ranks.index(rank)

    def Get_rank(self) -> int:
        """Which rank this is: 0, 1, … size - 1."""
        return self._here

    def Get_size(self) -> int:
        """How many ranks there are."""
        return len(self._context.ranks)

    rank = property(Get_rank)
    size = property(Get_size)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send; return when the receiver has begun to receive."""
        call = self._enter("Send")
        self._run.finish(call, [self._post(call, buf, dest, tag, sends=True)])

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> None:
        """Receive into the buffer; return when the message is in it."""
        call = self._enter("Recv")
        self._run.finish(call, [end := self._post(call, buf, source, tag, sends=False)])
        if status is not None:
            status._fill(end)

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Send and receive at the same time, so that neither waits for the other."""
        call = self._enter("Sendrecv")
        sent = self._post(call, sendbuf, dest, sendtag, sends=True)
        received = self._post(call, recvbuf, source, recvtag, sends=False)
        self._run.finish(call, [sent, received])
        if status is not None:
            status._fill(received)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Begin to send and return at once; the buffer must stay as it is until `Wait`."""
        return self._begin("Isend", buf, dest, tag, sends=True)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Begin to receive and return at once; the data are in the buffer after `Wait`."""
        return self._begin("Irecv", buf, source, tag, sends=False)

    def Barrier(self) -> None:
        """Return when every rank of this communicator is here."""
        call = self._enter("Barrier")
        self._run.meet(call)
        self._run.finish(call)

    def Split(self, color: int = 0, key: int = 0) -> Communicator | None:
        """A communicator of the ranks that give the same color, ordered by key, then by rank.

        Every rank of this communicator must call it; with MPI.UNDEFINED as its color, a rank gets
        MPI.COMM_NULL (None where mpi4py is not loaded).
        """
        call = self._enter("Split")
        if not (_is_whole(color) and (color >= 0 or color == UNDEFINED)):
            text = f"needs a whole number ≥ 0 as its color, or MPI.UNDEFINED, got {color!r}."
            raise self._wrong(call, text)
        if not _is_whole(key):
            raise self._wrong(call, f"needs a whole number as its key, got {key!r}.")
        context = self._run.split(call, int(color), int(key))
        self._run.finish(call)
        if color == UNDEFINED:
            return getattr(sys.modules.get("mpi4py.MPI"), "COMM_NULL", None)
        return Communicator(self._run, self._rank, context)

    def Free(self) -> None:
        """Give back what Split made: MPI needs it, here nothing is held."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        advice = f"There are {', '.join(CALLS)}. Write what it does from these."
        if (call := name.capitalize()) in CALLS:
            takes = "" if call == "Barrier" else ", which sends numpy arrays as they lie in memory"
            advice = f"Use comm.{call}{takes}."
        raise self._run.fault(f"This communicator has no comm.{name}. {advice}")

    def _enter(self, name: str) -> OpenCall:
        return self._run.enter(self._rank, name, self._context)

    def _begin(self, name: str, buf: Any, peer: Any, tag: Any, *, sends: bool) -> Request:
        call = self._enter(name)
        end = self._post(call, buf, peer, tag, sends=sends, late=True)
        self._run.finish(call)
        return Request(end, self._run, self._rank)

    def _post(
        self, call: OpenCall, buf: Any, peer: Any, tag: Any, *, sends: bool, late: bool = False
    ) -> End | None:
        """Post one end of a message; None for PROC_NULL."""
        if peer == PROC_NULL:
            return None
        memory = self._memory(call, buf)
        into_an_own = "Receive into an array of its own, such as np.empty_like(x)."
        if not sends and not memory.flags.writeable:
            text = f"cannot write into a read-only array or a single number. {into_an_own}"
            raise self._wrong(call, text)
        sent = call.posts[0].memory if call.posts else None
        if sent is not None and sent.size and np.may_share_memory(sent, memory):
            raise self._wrong(call, f"would receive into the memory that it sends. {into_an_own}")
        anyone, anything = not sends and peer == ANY_SOURCE, not sends and tag == ANY_TAG
        if not (anyone or (_is_whole(peer) and 0 <= peer < self.size)):
            raise self._wrong(
                call,
                f"names rank {peer!r}. Ranks count from 0 to {self.size - 1}: the neighbour "
                "of the last is (rank + 1) % size; divide with //, and a rank without a neighbour "
                "names MPI.PROC_NULL.",
            )
        if not (anything or (_is_whole(tag) and tag >= 0)):
            raise self._wrong(call, f"needs a whole number ≥ 0 as its tag, got {tag!r}.")
        to = ANY_SOURCE if anyone else self._context.ranks[peer]
        return self._run.post(call, memory, to, int(tag), sends=sends, late=late)

    def _memory(self, call: OpenCall, buf: Any) -> Array:
        """The elements of a buffer in their order in memory: no copy, so that a receive fills them.

        As in mpi4py it is an array, [array, count], [array, type] or [array, count, type].
        """
        array, *specs = buf if isinstance(buf, (list, tuple)) and buf else [buf]
        what = "None" if buf is None else f"a {type(buf).__name__}"
        if not isinstance(array, np.ndarray):
            with suppress(TypeError):
                array = np.asarray(memoryview(array))
        elif array.dtype.hasobject:
            array, what = None, "an array of Python objects"
        if not isinstance(array, np.ndarray):
            raise self._wrong(
                call,
                f"needs a numpy array of numbers and was given {what}. Give np.array(...); a "
                "single number is np.array([x]).",
            )
        if not array.flags.forc:
            raise self._wrong(
                call,
                f"was given an array of shape {array.shape} that is not in one stretch of memory, "
                "such as every second element or a column. Copy it first: np.ascontiguousarray(x).",
            )
        memory: Array = array.reshape(-1, order="A")
        count, first = memory.size, 0
        for spec in specs:
            if isinstance(spec, (list, tuple)):
                count, first = spec
            elif _is_whole(spec):
                count = spec
            elif (dtype := _dtype_of(spec)) not in {array.dtype, UNKNOWN}:
                raise self._wrong(
                    call,
                    f"was given an array of {array.dtype} with the datatype {dtype or spec}. "
                    "Here a message has the array's own datatype: leave it out, and copy the "
                    "elements of a vector or struct into an array of their own.",
                )
        if not 0 <= first <= first + count <= memory.size:
            text = f"asks for {first + count:,} elements of an array that has {memory.size:,}."
            raise self._wrong(call, text)
        return memory[first : first + count]

    def _wrong(self, call: OpenCall, problem: str) -> LabError:
        return self._run.fault(f"{call.words} {problem}")


def _is_whole(number: Any) -> bool:
    return isinstance(number, (int, np.integer))


def _dtype_of(datatype: Any) -> np.dtype[Any] | None:
    """NumPy's, of a datatype of mpi4py, or of its code such as "d"; None if there is none."""
    with suppress(TypeError):
        dtype: np.dtype[Any] = np.dtype(getattr(datatype, "typestr", datatype))
        return dtype
    return None


@contextmanager
def lent_to_mpi4py(*programs: Callable[..., Any], **more: Any) -> Iterator[None]:
    """Until the end of the block, mpi4py's Request, Status and constants are those of this module.

    So MPI.Request.Waitall takes the requests of these ranks, and -1 means PROC_NULL only where a
    program says so, and not as rank - 1 of rank 0. A program may have given them other names
    (`comm = MPI.COMM_WORLD`), but for numbers: -1 may be anything.
    """
    functions = [function_of(program) for program in programs]
    codes = [function.__code__ for function in functions if hasattr(function, "__code__")]
    named = {name for code in codes for name in names_in(code)}
    if any(name.startswith("mpi4py") or name in LENT for name in named):
        with suppress(ImportError):  # the program will raise it again
            importlib.import_module("mpi4py.MPI")
    mpi = sys.modules.get("mpi4py.MPI")
    spaces = [vars(mpi), *(getattr(one, "__globals__", {}) for one in functions)] if mpi else []
    ours = {name: globals()[name] for name in LENT} | more
    theirs = {name: getattr(mpi, name, None) for name in ours}
    lent = [
        (space, name, one)
        for space in spaces
        for name, value in list(space.items())
        for one in ours
        if value is theirs[one] and (name == one or not isinstance(value, int))
    ]
    for space, name, one in lent:
        space[name] = ours[one]
    try:
        yield
    finally:
        for space, name, one in lent:
            space[name] = theirs[one]
