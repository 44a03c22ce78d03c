"""What a rank communicates through: the calls of mpi4py.

A program that uses these calls alone runs unchanged with `mpi4py.MPI.COMM_WORLD`. Messages go
through a `Transport`: here the scheduler of simulated ranks, in `labkit.cluster` sockets. The
collectives are programs of these calls, in `library.py`, on every transport.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from labkit.collectives import library
from labkit.collectives.library import Parcel
from labkit.collectives.messages import (
    ANY_SOURCE,
    ANY_TAG,
    LIBRARY_TAG,
    PROC_NULL,
    Context,
    End,
    Lines,
    Meeting,
    OpenCall,
    function_of,
)
from labkit.collectives.records import Array
from labkit.collectives.specs import SpecFault, is_whole, memory
from labkit.kinds import LabError
from labkit.shipping import functions_of, names_in

LENT = ("ANY_SOURCE", "ANY_TAG", "PROC_NULL", "Request", "Status")
# In every MPI: Waitany's result when there is nothing to wait for; the color of no communicator.
UNDEFINED = -32766


class Transport(Protocol):
    """What carries messages between ranks, and lets a call wait for them."""

    world: Context

    def enter(
        self, rank: int, name: str, context: Context | None = None, inside: OpenCall | None = None
    ) -> OpenCall:
        """A rank makes a call; `inside`: the library's collective that it is a part of."""

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

    def probe(self, call: OpenCall, peer: int, tag: int) -> End:
        """Wait for the message that such a receive would take, and leave it where it is."""

    def meet(self, call: OpenCall, color: int = 0, key: int = 0) -> Meeting:
        """Come to a call that every rank of the communicator makes; at a Barrier wait for them."""

    def split(self, call: OpenCall, color: int, key: int) -> Context:
        """Returns the communicator of the ranks that give the same color."""

    def fault(self, text: str) -> LabError:
        """Returns the error that ends the run."""


class Status:
    """Where a received message came from, and how long it was."""

    def __init__(self) -> None:
        self.source: int = ANY_SOURCE
        self.tag: int = ANY_TAG
        self.count = 0  # bytes, as in mpi4py

    def Get_source(self) -> int:
        """Returns the rank that sent the message."""
        if self.source == ANY_SOURCE:
            raise LabError("This status is empty. Give it to Recv first: status=status.")
        return self.source

    def Get_tag(self) -> int:
        """Returns the message's tag."""
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

    def __init__(
        self, end: End | None, run: Transport, rank: int, parcel: Parcel | None = None
    ) -> None:
        self._end = end  # None: of PROC_NULL
        self._parcel = parcel  # that an irecv fills
        self._active = True  # until it is waited for
        self._run = run
        self._rank = rank

    def Wait(self, status: Status | None = None) -> bool:
        """Return when the message is complete."""
        _wait("Wait", [self], [status])
        return True

    def wait(self, status: Status | None = None) -> Any:
        """The same; of an `irecv` this returns the object."""
        _wait("wait", [self], [status])
        return True if self._parcel is None else self._parcel.opened()

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
    """Returns whether there is something to wait for: not so for MPI.REQUEST_NULL."""
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

    def __init__(
        self,
        run: Transport,
        rank: int,
        context: Context | None = None,
        inside: OpenCall | None = None,
    ) -> None:
        self._run = run
        self._rank = rank  # of the run
        self._context = context or run.world
        self._here = self._context.ranks.index(rank)
        self._inside = inside  # the library's collective whose messages are sent

    def Get_rank(self) -> int:
        """Returns which rank this is: 0, 1, … size - 1."""
        return self._here

    def Get_size(self) -> int:
        """Returns how many ranks there are."""
        return len(self._context.ranks)

    rank = property(Get_rank)
    size = property(Get_size)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send; return when the receiver has begun to receive."""
        self._call("Send", (buf, dest, tag, True))

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """The same, also where a `Send` is eager."""
        self._call("Ssend", (buf, dest, tag, True))

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> None:
        """Receive into the buffer; return when the message is in it."""
        self._call("Recv", (buf, source, tag, False), status=status)

    def Sendrecv(
        self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None,
        source: int = ANY_SOURCE, recvtag: int = ANY_TAG, status: Status | None = None,
    ) -> None:  # fmt: skip
        """Send and receive at the same time, so that neither waits for the other."""
        ends = (sendbuf, dest, sendtag, True), (recvbuf, source, recvtag, False)
        self._call("Sendrecv", *ends, status=status)

    def Sendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0,
        source: int = ANY_SOURCE, recvtag: int = ANY_TAG, status: Status | None = None,
    ) -> None:  # fmt: skip
        """Send the buffer, and receive into the same."""
        ends = (buf, dest, sendtag, True), (buf, source, recvtag, False)
        self._call("Sendrecv_replace", *ends, status=status)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Begin to send and return at once; the buffer must stay as it is until `Wait`."""
        return self._begin("Isend", (buf, dest, tag, True))

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """The same; complete when the receiver has begun to receive, also where Isend is eager."""
        return self._begin("Issend", (buf, dest, tag, True))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Begin to receive and return at once; the data are in the buffer after `Wait`."""
        return self._begin("Irecv", (buf, source, tag, False))

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send any object that pickle can pack."""
        self._call("send", (Parcel.of(obj), dest, tag, True))

    def recv(
        self, buf: None = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Any = None
    ) -> Any:
        """Returns the object that another rank's `send` sends."""
        self._call("recv", (found := Parcel(), source, tag, False), status=status)
        return found.opened()

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Begin to send an object and return at once."""
        return self._begin("isend", (Parcel.of(obj), dest, tag, True))

    def irecv(self, buf: None = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Begin to receive an object and return at once; `wait` returns it."""
        return self._begin("irecv", (found := Parcel(), source, tag, False), found)

    def sendrecv(
        self, sendobj: Any, dest: int, sendtag: int = 0, recvbuf: None = None,
        source: int = ANY_SOURCE, recvtag: int = ANY_TAG, status: Status | None = None,
    ) -> Any:  # fmt: skip
        """Send an object and receive one at the same time."""
        ends = (
            (Parcel.of(sendobj), dest, sendtag, True),
            (found := Parcel(), source, recvtag, False),
        )
        self._call("sendrecv", *ends, status=status)
        return found.opened()

    def Probe(
        self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> bool:
        """Wait for a message and leave it where it is: the status says whose, and how long."""
        self._call("Probe", (None, source, tag, False), status=status)
        return True

    def Barrier(self) -> None:
        """Return when every rank of this communicator is here."""
        call = self._enter("Barrier")
        self._run.meet(call)
        self._run.finish(call)

    probe, barrier = Probe, Barrier

    def Split(self, color: int = 0, key: int = 0) -> Communicator | None:
        """A communicator of the ranks that give the same color, ordered by key, then by rank.

        Every rank of this communicator must call it; with MPI.UNDEFINED as its color, a rank gets
        MPI.COMM_NULL (None where mpi4py is not loaded).
        """
        call = self._enter("Split")
        if not (is_whole(color) and (color >= 0 or color == UNDEFINED)):
            text = f"needs a whole number ≥ 0 as its color, or MPI.UNDEFINED, got {color!r}."
            raise self._wrong(call, text)
        if not is_whole(key):
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
        if name in library.CALLS:
            return partial(self._collective, name)
        calls = [*(one for one in vars(Communicator) if one[0] != "_"), *library.CALLS]
        advice = f"There are {', '.join(calls)}. Write what it does from these."
        alike = [one for one in calls if one.lower() in (name.lower(), name.lower()[1:])]
        if alike:
            advice = f"Use comm.{' or comm.'.join(alike)}."
        raise self._run.fault(f"This communicator has no comm.{name}. {advice}")

    def _collective(self, name: str, *arguments: Any, **keywords: Any) -> Any:
        """Run the library's program of this call, once all ranks have come to it."""
        program, _ = library.CALLS[name]
        given = inspect.signature(program).bind(self, *arguments, **keywords)
        given.apply_defaults()
        call = self._enter(name)
        try:
            library.prepare(name, given.arguments, self)
            self._run.meet(call, given.arguments.get("root", 0))
            self._run.finish(call)
            given.arguments["comm"] = Communicator(self._run, self._rank, self._context, call)
            return program(*given.args, **given.kwargs)
        except SpecFault as fault:
            raise self._wrong(call, f"{fault}") from None

    def _enter(self, name: str) -> OpenCall:
        return self._run.enter(self._rank, name, self._context, self._inside)

    def _begin(self, name: str, end: tuple[Any, Any, Any, bool], found: Any = None) -> Request:
        return Request(self._call(name, end, late=True), self._run, self._rank, found)

    def _call(
        self, name: str, *ends: tuple[Any, Any, Any, bool],
        status: Status | None = None, late: bool = False,
    ) -> End | None:  # fmt: skip
        """Post ends, each a buffer, a rank, a tag, and whether it is sent; wait unless late.

        The last one comes back, or the message that a Probe finds.
        """
        call, posted = self._enter(name), list[End | None]()
        try:
            for end in ends:
                posted.append(self._post(call, *end, late))
        except SpecFault as fault:
            raise self._wrong(call, f"{fault}") from None
        self._run.finish(call, [] if late or name == "Probe" else posted)
        if status is not None:
            status._fill(posted[-1])
        return posted[-1]

    def _post(
        self, call: OpenCall, buf: Any, peer: Any, tag: Any, sends: bool, late: bool
    ) -> End | None:
        """Post one end of a message; None for PROC_NULL."""
        if peer == PROC_NULL:
            return None
        anyone, anything = not sends and peer == ANY_SOURCE, not sends and tag == ANY_TAG
        if not (anyone or (is_whole(peer) and 0 <= peer < self.size)):
            raise SpecFault(
                f"names rank {peer!r}. Ranks count from 0 to {self.size - 1}: the neighbour "
                "of the last is (rank + 1) % size; divide with //, and a rank without a neighbour "
                "names MPI.PROC_NULL."
            )
        if not (anything or (is_whole(tag) and tag >= 0)):
            raise SpecFault(f"needs a whole number ≥ 0 as its tag, got {tag!r}.")
        to = ANY_SOURCE if anyone else self._context.ranks[peer]
        tag = LIBRARY_TAG if self._inside else int(tag)
        if call.name == "Probe":
            return self._run.probe(call, to, tag)
        if isinstance(buf, Parcel) and not sends:
            buf.take(self._run.probe(call, to, tag))
        elements = buf.memory() if isinstance(buf, Parcel) else memory(buf)
        if call.name.endswith("_replace") and sends:
            elements = elements.copy()
        into_an_own = "Receive into an array of its own, such as np.empty_like(x)."
        if not sends and not elements.flags.writeable:
            raise SpecFault(
                f"cannot write into a read-only array or a single number. {into_an_own}"
            )
        sent = call.posts[0].memory if call.posts else None
        if sent is not None and sent.size and np.may_share_memory(sent, elements):
            raise SpecFault(f"would receive into the memory that it sends. {into_an_own}")
        return self._run.post(call, elements, to, tag, sends=sends, late=late)

    def _wrong(self, call: OpenCall, problem: str) -> LabError:
        return self._run.fault(f"{call.words} {problem}")


class NoWorld:
    """Stands for MPI.COMM_WORLD in a simulated run."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise LabError(
            f"MPI.COMM_WORLD ({self._lines.here().text}) is not the communicator of simulated "
            "ranks: use the comm that the program is given."
        )


@contextmanager
def lent_to_mpi4py(*programs: Callable[..., Any], **more: Any) -> Iterator[None]:
    """Until the end of the block, mpi4py's Request, Status and constants are those of this module.

    So MPI.Request.Waitall takes the requests of these ranks, and rank - 1 of rank 0 is not
    PROC_NULL, which is -1 in MPICH. Modules of one's own may have given them other names
    (`comm = MPI.COMM_WORLD`), but for numbers: -1 may be anything.
    """
    functions = [part for one in programs for part in [function_of(one), *functions_of(one)]]
    codes = (one.__code__ for one in functions if hasattr(one, "__code__"))
    named = {name for code in codes for name in names_in(code)}
    if any(name.startswith("mpi4py") or name in LENT for name in named):
        with suppress(ImportError):  # the program will raise it again
            importlib.import_module("mpi4py.MPI")
    if (mpi := sys.modules.get("mpi4py.MPI")) is None:
        yield
        return
    spaces = [vars(mpi), *(getattr(one, "__globals__", {}) for one in functions)]
    spaces += _own_modules(len(sys.modules))
    ours = {name: globals()[name] for name in LENT} | more
    theirs = {name: getattr(mpi, name, None) for name in ours}
    ids = {id(value) for value in theirs.values()}
    lent = [
        (space, name, one)
        for space in {id(space): space for space in spaces}.values()
        for name, value in list(space.items())
        if id(value) in ids
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


@lru_cache(maxsize=1)  # the check of a run runs its program again, several times
def _own_modules(_count: int) -> list[dict[str, Any]]:
    """Returns the names of the modules that are no package's: of a program's own files."""
    packages = sys.prefix, sys.base_prefix, str(Path(__file__).parents[1])
    files = {name: getattr(one, "__file__", None) for name, one in list(sys.modules.items())}
    own = [name for name, file in files.items() if file and not file.startswith(packages)]
    return [vars(sys.modules[name]) for name in own]
