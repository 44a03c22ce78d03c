"""What a rank of a simulated run communicates through: the buffer calls of mpi4py.

A program that uses these calls alone runs unchanged with `mpi4py.MPI.COMM_WORLD`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from labkit.collectives import errors
from labkit.collectives.messages import ANY_SOURCE, ANY_TAG, PROC_NULL, End, OpenCall
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.collectives.records import Array

__all__ = ["Communicator", "Request", "Status", "fill_status"]

FORBIDDEN = "OSUV"  # objects and texts; bfloat16 and its kind are V too, and allowed by name
UNDEFINED = -32766  # what Waitany gives back when there is nothing to wait for, as in every MPI


class Run(Protocol):
    """What the calls are made of: the simulator, as seen from one rank."""

    ranks: int

    def enter(self, rank: int, name: str) -> OpenCall: ...
    def stop(self, fault: LabError) -> NoReturn: ...
    def says(self, name: str) -> bool: ...
    def post(
        self, call: OpenCall, flat: Array, peer: int, tag: int, *, sends: bool, late: bool
    ) -> End: ...
    def finish(
        self, call: OpenCall, ends: Sequence[End | None], statuses: Sequence[Any] = ...
    ) -> None: ...
    def begin(self, call: OpenCall, end: End | None) -> Request: ...
    def wait_for_one(self, call: OpenCall, ends: Sequence[End]) -> None: ...
    def give_way(self, call: OpenCall, end: End) -> None: ...
    def barrier(self, rank: int) -> None: ...


class Status:
    """Where a received message came from, and how long it was."""

    def __init__(self) -> None:
        self.source: int = ANY_SOURCE
        self.tag: int = ANY_TAG
        self.count = 0  # bytes, as in mpi4py
        self.error = 0

    def Get_source(self) -> int:
        """The rank that sent the message."""
        return self.source

    def Get_tag(self) -> int:
        """The message's tag."""
        return self.tag

    def Get_count(self, datatype: Any = None) -> int:
        """Its length in bytes; with a datatype (or a numpy dtype), in elements of that."""
        if datatype is None:
            return self.count
        mpi_size = getattr(datatype, "Get_size", None)
        return self.count // int(mpi_size() if mpi_size else np.dtype(datatype).itemsize)

    Get_elements = Get_count

    def Get_error(self) -> int:
        """Always 0: a run with an error ends."""
        return self.error


def fill_status(status: Any, end: End | None) -> None:
    """Write into a status, ours or mpi4py's, what came; None is a message of PROC_NULL."""
    message = end.message if end else None
    mpi: Any = None if isinstance(status, Status) else sys.modules["mpi4py.MPI"]
    status.source = message.send.rank if message else mpi.PROC_NULL if mpi else PROC_NULL
    status.tag = message.send.tag if message else mpi.ANY_TAG if mpi else ANY_TAG
    nbytes = message.nbytes if message else 0
    if mpi is None:
        status.count = nbytes
    else:
        status.Set_elements(mpi.BYTE, nbytes)


class Request:
    """A message under way, from `Isend` or `Irecv`; its buffer is not yours until `Wait`."""

    def __init__(self, end: End | None, run: Run, rank: int) -> None:
        self.end: End | None = end  # None: of PROC_NULL, or waited for already
        self.active = True  # until it is waited for
        self._run = run
        self._rank = rank

    def take(self) -> End | None:
        """The end of the message, which from now on is waited for."""
        end, self.end, self.active = self.end, None, False
        if end is not None:
            end.waited = True
        return end

    def Wait(self, status: Any = None) -> bool:
        """Come back when the message is complete."""
        _wait("Wait", [self], [status])
        return True

    def Test(self, status: Any = None) -> bool:
        """Whether the message is complete; if it is, this was its `Wait`."""
        if self.end is None:
            if status is not None and self.active:
                fill_status(status, None)
            self.active = False
            return True
        call = self._run.enter(self._rank, "Test")
        self._run.give_way(call, self.end)
        if not self.end.is_done:
            return False
        self._run.finish(call, [self.take()], [status])
        return True

    @classmethod
    def Waitall(cls, requests: Sequence[Any], statuses: Sequence[Any] | None = None) -> bool:
        """Come back when all messages are complete. Takes the requests of mpi4py too."""
        requests = list(requests)
        if any(isinstance(request, Request) for request in requests):
            _wait("Waitall", requests, statuses or ())
        elif requests:
            return bool(type(requests[0]).Waitall(requests, statuses))
        return True

    @classmethod
    def Waitany(cls, requests: Sequence[Any], status: Any = None) -> int:
        """Come back when one of the messages is complete, and say which."""
        requests = list(requests)
        ours = [one for one in requests if isinstance(one, Request) and one.active]
        if not ours:
            theirs = [one for one in requests if not isinstance(one, Request)]
            return int(type(theirs[0]).Waitany(requests, status)) if theirs else UNDEFINED
        run, rank = ours[0]._run, ours[0]._rank
        call = run.enter(rank, "Waitany")
        if all(one.end is not None for one in ours):  # that of PROC_NULL is complete at once
            run.wait_for_one(call, [one.end for one in ours if one.end is not None])
        done = next(one for one in ours if one.end is None or one.end.is_done)
        run.finish(call, [done.take()], [status])
        return requests.index(done)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._run.stop(
            LabError(f"A request has no {name}. There are Wait, Test, Waitall and Waitany.")
        )


def _wait(name: str, requests: Sequence[Any], statuses: Sequence[Any]) -> None:
    """Wait for all requests; MPI's REQUEST_NULL among them is nothing to wait for."""
    ours = [one for one in requests if isinstance(one, Request)]
    run, rank = ours[0]._run, ours[0]._rank
    call = run.enter(rank, name)
    ends: list[End | None] = []
    known: list[Any] = []
    for index, request in enumerate(requests):
        if isinstance(request, Request) and request.active:
            ends.append(request.take())
            known.append(statuses[index] if index < len(statuses) else None)
    run.finish(call, ends, known)


class Communicator:
    """One rank's end of a simulated run."""

    def __init__(self, run: Run, rank: int) -> None:
        self._run = run
        self._rank = rank

    def Get_rank(self) -> int:
        """Which rank this is: 0, 1, … size - 1."""
        return self._rank

    def Get_size(self) -> int:
        """How many ranks there are."""
        return self._run.ranks

    rank = property(Get_rank)
    size = property(Get_size)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send; come back when the receiver has begun to receive it."""
        call = self._run.enter(self._rank, "Send")
        self._run.finish(call, [self._send(call, buf, dest, tag)])

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Any = None
    ) -> None:
        """Receive into the buffer; come back when the message is in it."""
        call = self._run.enter(self._rank, "Recv")
        self._run.finish(call, [self._receive(call, buf, source, tag)], [status])

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Any = None,
    ) -> None:
        """Send and receive at the same time, so that neither waits for the other."""
        call = self._run.enter(self._rank, "Sendrecv")
        sent = self._send(call, sendbuf, dest, sendtag)
        received = self._receive(call, recvbuf, source, recvtag, beside=sent)
        self._run.finish(call, [sent, received], [None, status])

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Begin to send and come back at once; the buffer must stay as it is until `Wait`."""
        call = self._run.enter(self._rank, "Isend")
        return self._run.begin(call, self._send(call, buf, dest, tag, late=True))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Begin to receive and come back at once; the data are in the buffer after `Wait`."""
        call = self._run.enter(self._rank, "Irecv")
        return self._run.begin(call, self._receive(call, buf, source, tag, late=True))

    def Barrier(self) -> None:
        """Come back when every rank is here."""
        self._run.barrier(self._rank)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._run.stop(errors.no_such_call(name))

    def __repr__(self) -> str:
        return f"Communicator(rank {self._rank} of {self._run.ranks})"

    def _send(
        self, call: OpenCall, buf: Any, dest: Any, tag: Any, late: bool = False
    ) -> End | None:
        try:
            peer, tag = self._peer(dest, call), self._tag(tag, call)
            if peer is None and buf is None:
                return None
            flat = _flat_view(buf, call)
        except LabError as fault:
            self._run.stop(fault)
        if peer is None:
            return None
        return self._run.post(call, flat, peer, tag, sends=True, late=late)

    def _receive(
        self,
        call: OpenCall,
        buf: Any,
        source: Any,
        tag: Any,
        *,
        beside: End | None = None,
        late: bool = False,
    ) -> End | None:
        try:
            anyone = self._means(source, "ANY_SOURCE")
            peer = ANY_SOURCE if anyone else self._peer(source, call)
            tag = ANY_TAG if self._means(tag, "ANY_TAG") else self._tag(tag, call)
            if peer is None and buf is None:
                return None
            flat = _flat_view(buf, call, writable=True)
            if beside is not None and _overlap(beside.flat, flat):
                raise errors.bad_buffer(
                    call,
                    "would receive into the memory that it sends. Receive into an array of its "
                    "own, such as np.empty_like(chunk), and copy.",
                )
        except LabError as fault:
            self._run.stop(fault)
        if peer is None:
            return None
        return self._run.post(call, flat, peer, tag, sends=False, late=late)

    def _peer(self, rank: Any, call: OpenCall) -> int | None:
        """The other rank; None for PROC_NULL."""
        if self._means(rank, "PROC_NULL"):
            return None
        peer = _index(rank)
        if not 0 <= peer < self._run.ranks:
            is_null = peer < 0 and rank == getattr(sys.modules.get("mpi4py.MPI"), "PROC_NULL", None)
            raise errors.bad_rank(call, rank, self._run.ranks, is_null)
        return peer

    def _tag(self, tag: Any, call: OpenCall) -> int:
        number = _index(tag)
        if number < 0:
            raise errors.bad_tag(call, tag)
        return number

    def _means(self, value: Any, name: str) -> bool:
        """Whether the value is this constant: ours, or MPI's, if the program says its name.

        In MPICH, PROC_NULL is -1: that mpi4py is loaded does not make it of rank - 1.
        """
        if not isinstance(value, (int, np.integer)) or value >= 0:
            return False
        if value == {"ANY_SOURCE": ANY_SOURCE, "ANY_TAG": ANY_TAG, "PROC_NULL": PROC_NULL}[name]:
            return True
        mpi = sys.modules.get("mpi4py.MPI")
        return mpi is not None and value == getattr(mpi, name) and self._run.says(name)


def _index(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        return -1


def _flat_view(buf: Any, call: OpenCall, *, writable: bool = False) -> Array:
    """The elements of a buffer in their order in memory: no copy, so that a receive fills them."""
    array, count, first, datatype = _parts(buf, call)
    if not isinstance(array, np.ndarray):
        array = _as_array(array, call)
    if array.dtype.kind in FORBIDDEN and (array.dtype.kind != "V" or array.dtype.names):
        raise errors.bad_buffer(
            call, f"was given an array of {array.dtype}. Give an array of numbers."
        )
    if datatype is not None and not _is_own(datatype, array.dtype):
        name = getattr(datatype, "name", datatype) or "a derived datatype"
        raise errors.bad_buffer(
            call,
            f"was given an array of {array.dtype} with the datatype {name}. Here a message has the "
            "array's own datatype: leave it out, and copy the elements of a vector or struct into "
            "an array of their own.",
        )
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        raise errors.bad_buffer(
            call,
            f"was given an array of shape {array.shape} that is not in one stretch of memory, such "
            "as every second element or a column. Copy it first: np.ascontiguousarray(x).",
        )
    if writable and not flags.writeable:
        raise errors.bad_buffer(
            call,
            "cannot write into this array: it is read-only, or a single number. Receive into an "
            "array of your own, such as np.empty_like(x).",
        )
    flat: Array = array.reshape(-1) if flags.c_contiguous else array.reshape(-1, order="F")
    if count is not None:
        if first < 0 or count < 0 or first + count > flat.size:
            raise errors.bad_buffer(
                call, f"asks for {first + count:,} elements of an array that has {flat.size:,}."
            )
        flat = flat[first : first + count]
    return flat


def _parts(buf: Any, call: OpenCall) -> tuple[Any, int | None, int, Any]:
    """Array, count, first element and datatype of `[array, count, type]` and its like."""
    if not isinstance(buf, (list, tuple)):
        return buf, None, 0, None
    if not buf or isinstance(buf[0], (bool, int, float, complex)):
        raise errors.bad_buffer(call, _no_array(buf))
    numbers: list[int] = []
    datatype = None
    for extra in buf[1:]:
        if isinstance(extra, (int, np.integer)):
            numbers.append(int(extra))
        elif isinstance(extra, (tuple, list)):
            numbers += map(int, extra)
        elif extra is not None:
            datatype = extra
    count, first = [*numbers, None, 0][:2] if len(numbers) != 1 else (numbers[0], 0)
    return buf[0], count, first or 0, datatype


def _is_own(datatype: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a datatype of mpi4py, or its code such as "d", is that of the array."""
    code = datatype
    if hasattr(datatype, "typestr"):
        code = datatype.typestr if datatype.is_predefined else None
    try:
        return code is not None and np.dtype(code) == dtype
    except TypeError:
        return False


def _as_array(thing: Any, call: OpenCall) -> Array:
    if isinstance(thing, np.generic):
        scalar = np.asarray(thing)
        scalar.flags.writeable = False  # a receive into it would be lost
        return scalar
    try:
        return np.asarray(memoryview(thing))
    except (TypeError, ValueError):
        raise errors.bad_buffer(call, _no_array(thing)) from None


def _no_array(thing: Any) -> str:
    what = "None" if thing is None else f"a {type(thing).__name__}"
    return (
        f"needs a numpy array and was given {what}. "
        "Give np.array(...); a single number is np.array([x])."
    )


def _overlap(one: Array | None, other: Array) -> bool:
    """Whether two stretches of memory have a byte in common."""
    return one is not None and bool(np.may_share_memory(one, other)) and one.size * other.size > 0
