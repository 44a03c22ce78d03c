"""What a rank of a simulated run talks through: the buffer calls of mpi4py, with their meaning.

A program that uses these calls alone runs unchanged with `mpi4py.MPI.COMM_WORLD`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from types import FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from labkit.collectives import faults
from labkit.collectives.memory_regions import flat_view, overlap
from labkit.collectives.statuses import ANY_SOURCE, ANY_TAG, PROC_NULL, Status
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.collectives.posts import Entered, Post
    from labkit.collectives.simulator import Simulator

__all__ = ["ANY_SOURCE", "ANY_TAG", "PROC_NULL", "Communicator", "Request", "Status"]


class Request:
    """A message under way, from `Isend` or `Irecv`; its buffer is not yours until `Wait`."""

    def __init__(self, post: Post | None, simulator: Simulator, rank: int) -> None:
        self.post: Post | None = post  # None: nothing to wait for, or waited for already
        self.taken = False
        self._simulator = simulator
        self._rank = rank

    def take(self) -> Post | None:
        """The end of the message, which from now on is waited for."""
        post, self.post, self.taken = self.post, None, True
        if post is not None:
            post.waited = True
        return post

    def Wait(self, status: Any = None) -> bool:
        """Come back when the message is complete."""
        self._simulator.wait(self._rank, "Wait", [self], [status])
        return True

    def Test(self, status: Any = None) -> bool:
        """Whether the message is complete; if it is, this was its `Wait`."""
        return self._simulator.test(self._rank, self, status)

    @classmethod
    def Waitall(cls, requests: Sequence[Any], statuses: Sequence[Any] | None = None) -> bool:
        """Come back when all messages are complete. Takes the requests of mpi4py too."""
        requests = list(requests)
        if not requests:
            return True
        if not isinstance(requests[0], Request):
            return bool(type(requests[0]).Waitall(requests, statuses))
        first = requests[0]
        first._simulator.wait(first._rank, "Waitall", requests, statuses)
        return True

    @classmethod
    def Waitany(cls, requests: Sequence[Any], status: Any = None) -> int:
        """Come back when one of the messages is complete, and say which."""
        requests = list(requests)
        if requests and not isinstance(requests[0], Request):
            return int(type(requests[0]).Waitany(requests, status))
        waiting = [request for request in requests if request.post is not None]
        if not waiting:
            raise faults.nothing_to_wait_for()
        first = waiting[0]
        return requests.index(first._simulator.wait_for_one(first._rank, waiting, status))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._simulator.stop(faults.no_such_request_call(name))


class Communicator:
    """One rank's end of a simulated run."""

    def __init__(self, simulator: Simulator, rank: int) -> None:
        self._simulator = simulator
        self._rank = rank

    def Get_rank(self) -> int:
        """Which rank this is: 0, 1, … size - 1."""
        return self._rank

    def Get_size(self) -> int:
        """How many ranks there are."""
        return self._simulator.ranks

    rank = property(Get_rank)
    size = property(Get_size)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Send; come back when the receiver has begun to receive it."""
        run, call = self._simulator, self._enter("Send")
        run.finish(call, [self._send(call, buf, dest, tag)])

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Any = None
    ) -> None:
        """Receive into the buffer; come back when the message is in it."""
        run, call = self._simulator, self._enter("Recv")
        run.finish(call, [self._receive(call, buf, source, tag)], [status])

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
        run, call = self._simulator, self._enter("Sendrecv")
        sent = self._send(call, sendbuf, dest, sendtag)
        received = self._receive(call, recvbuf, source, recvtag, beside=sent)
        run.finish(call, [sent, received], [None, status])

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Begin to send and come back at once; the buffer must stay as it is until `Wait`."""
        run, call = self._simulator, self._enter("Isend")
        return run.later(call, self._send(call, buf, dest, tag))

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Begin to receive and come back at once; the data are in the buffer after `Wait`."""
        run, call = self._simulator, self._enter("Irecv")
        return run.later(call, self._receive(call, buf, source, tag))

    def Barrier(self) -> None:
        """Come back when every rank is here."""
        self._simulator.barrier(self._rank)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self._simulator.stop(faults.no_such_call(name))

    def __repr__(self) -> str:
        return f"Communicator(rank {self._rank} of {self._simulator.ranks})"

    def _enter(self, name: str) -> Entered:
        return self._simulator.enter(self._rank, name)

    def _send(self, call: Entered, buf: Any, dest: Any, tag: Any) -> Post | None:
        try:
            peer, tag = self._peer(dest, call), _tag(tag, call)
            if peer is None and buf is None:
                return None
            flat = flat_view(buf, call)
        except LabError as fault:
            self._simulator.stop(fault)
        return self._simulator.send(call, flat, peer, tag)

    def _receive(
        self, call: Entered, buf: Any, source: Any, tag: Any, beside: Post | None = None
    ) -> Post | None:
        try:
            anyone = _means(source, ANY_SOURCE, "ANY_SOURCE")
            peer = ANY_SOURCE if anyone else self._peer(source, call)
            tag = ANY_TAG if _means(tag, ANY_TAG, "ANY_TAG") else _tag(tag, call)
            if peer is None and buf is None:
                return None
            flat = flat_view(buf, call, writable=True)
            if beside is not None and overlap(beside.flat, flat):
                raise faults.same_memory(call)
        except LabError as fault:
            self._simulator.stop(fault)
        return self._simulator.receive(call, flat, peer, tag)

    def _peer(self, rank: Any, call: Entered) -> int | None:
        """The other rank; None for nobody, which is what PROC_NULL is."""
        if _means(rank, PROC_NULL, "PROC_NULL"):
            return None
        try:
            peer = operator.index(rank)
        except TypeError:
            peer = -1
        if not 0 <= peer < self._simulator.ranks:
            raise faults.wrong_rank(call, rank, self._simulator.ranks)
        return peer


def _tag(tag: Any, call: Entered) -> int:
    try:
        number = operator.index(tag)
    except TypeError:
        number = -1
    if number < 0:
        raise faults.wrong_tag(call, tag)
    return number


def _means(value: Any, ours: int, name: str) -> bool:
    """Whether the value is this constant: ours, or that of an MPI that the program uses."""
    if not isinstance(value, (int, np.integer)) or value >= 0:
        return False
    mpi = sys.modules.get("mpi4py.MPI")
    theirs = mpi is not None and value == getattr(mpi, name, None)
    return value == ours or (theirs and _mentions(name, mpi))


def _mentions(name: str, mpi: Any) -> bool:
    """Whether the program that is calling knows MPI or the constant, which is a plain -1 there.

    That somebody else has loaded mpi4py does not make a neighbour out of rank -1.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        there = frame.f_globals
        if not there.get("__name__", "").startswith("labkit.collectives."):
            said = {*frame.f_code.co_names, *frame.f_code.co_freevars}
            spaces = (there, *(_space(value) for value in there.values()))
            if {name, "MPI"} & said or any(_has(name, mpi, space) for space in spaces):
                return True
        frame = frame.f_back
    return False


def _space(value: Any) -> dict[str, Any]:
    """The names that a module or a function of the program has."""
    space: Any = value.__globals__ if isinstance(value, FunctionType) else {}
    space = vars(value) if isinstance(value, ModuleType) else space
    return {} if str(space.get("__name__", "")).startswith("labkit") else dict(space)


def _has(name: str, mpi: Any, space: dict[str, Any]) -> bool:
    return name in space or any(value is mpi for value in space.values())
