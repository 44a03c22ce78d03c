"""MPI's own collectives, as a communicator has them: each is a program of labkit's, or a few lines.

`comm.Bcast(buffer)` runs `programs.broadcast`, with messages that no other receive takes. Simulated
ranks all come to the call before one goes on, as MPI may wait for all in any collective.
"""

from __future__ import annotations

import operator
import pickle
import sys
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from labkit.collectives import programs
from labkit.collectives.buffers import MPI_OPERATIONS, Comm
from labkit.collectives.messages import End
from labkit.collectives.specs import SpecFault, fill, in_place, is_whole, memory, overlap, parts

# Arrays.


def _reduce(comm: Comm, sendbuf: Any, recvbuf: Any, op: Any = None, root: int = 0) -> None:
    total = memory(recvbuf if in_place(sendbuf) else sendbuf).copy()
    programs.reduce(comm, total, op, root)
    if comm.rank == root:
        fill(recvbuf, total)


def _allreduce(comm: Comm, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
    fill(recvbuf, sendbuf)
    programs.rabenseifner_all_reduce(comm, memory(recvbuf), op)


def _reduce_scatter(
    comm: Comm, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Any = None
) -> None:
    source = memory(recvbuf if in_place(sendbuf) else sendbuf)
    shares = parts([source, recvcounts], comm.size, equal=recvcounts is None)
    equal = np.zeros((comm.size, max(one.size for one in shares)), source.dtype)
    for row, one in zip(equal, shares, strict=True):
        row[: one.size] = one
    programs.reduce_scatter(comm, equal, op)
    mine, into = equal[comm.rank, : shares[comm.rank].size], memory(recvbuf)
    fill(into[: mine.size] if in_place(sendbuf) else into, mine)


def _gather(comm: Comm, sendbuf: Any, recvbuf: Any, root: int = 0, *, equal: bool) -> None:
    if comm.rank == root:
        chunks: Any = parts(recvbuf, comm.size, equal=equal)
        fill(chunks[root], sendbuf)
    else:
        chunks = [memory(sendbuf)] * comm.size
    programs.gather(comm, chunks, root)


def _scatter(comm: Comm, sendbuf: Any, recvbuf: Any, root: int = 0, *, equal: bool) -> None:
    if comm.rank == root:
        chunks: Any = parts(sendbuf, comm.size, equal=equal)
        fill(chunks[root] if in_place(recvbuf) else recvbuf, chunks[root])
    else:
        chunks = [memory(recvbuf)] * comm.size
    programs.scatter(comm, chunks, root)


def _allgather(comm: Comm, sendbuf: Any, recvbuf: Any, *, equal: bool) -> None:
    chunks: Any = parts(recvbuf, comm.size, equal=equal)
    fill(chunks[comm.rank], sendbuf)
    programs.all_gather(comm, chunks)


def _alltoall(comm: Comm, sendbuf: Any, recvbuf: Any, *, equal: bool) -> None:
    incoming = parts(recvbuf, comm.size, equal=equal)
    outgoing = [one.copy() for one in incoming]
    if not in_place(sendbuf):
        outgoing = parts(sendbuf, comm.size, equal=equal)
    fill(incoming[comm.rank], outgoing[comm.rank])
    for dest, source in _others(comm):
        comm.Sendrecv(outgoing[dest], dest=dest, recvbuf=incoming[source], source=source)


def _others(comm: Comm) -> list[tuple[int, int]]:
    """By step a rank to send to and one to receive from: in each, every rank does both once."""
    rank, ranks = comm.rank, comm.size
    return [((rank + step) % ranks, (rank - step) % ranks) for step in range(1, ranks)]


# Objects.

PACKED = np.dtype("V1")


class Parcel(bytearray):
    """An object packed by pickle. An empty one takes whatever a send sends, and nothing else.

    Its memory is of a type of its own: to unpickle what a Send sends would run what it says.
    """

    @classmethod
    def of(cls, obj: Any) -> Parcel:
        """Returns the object, packed."""
        return cls(pickle.dumps(obj))

    def memory(self) -> Any:
        """Its bytes, which are no numbers."""
        return np.frombuffer(self, PACKED)

    def take(self, offer: End) -> None:
        """Make room for a message."""
        if offer.held is not None and offer.held.dtype != PACKED:
            text = f"takes what a send sends, and rank {offer.rank} sends an array: "
            raise SpecFault(f"{text}Recv goes with Send, and recv with send.")
        self[:] = bytes(offer.nbytes)

    def opened(self) -> Any:
        """The object, which a rank of the same run has packed; None of PROC_NULL."""
        return pickle.loads(self) if self else None  # noqa: S301


def _bcast_object(comm: Comm, obj: Any, root: int = 0) -> Any:
    parcel = Parcel.of(obj if comm.rank == root else None)
    size = np.array([len(parcel)])
    programs.broadcast(comm, size, root)
    parcel = parcel if comm.rank == root else Parcel(size[0])
    programs.broadcast(comm, parcel.memory(), root)
    return parcel.opened()


def _gather_objects(comm: Comm, sendobj: Any, root: int = 0) -> list[Any] | None:
    if comm.rank != root:
        return comm.send(sendobj, dest=root)  # type: ignore[no-any-return]
    return [sendobj if one == root else comm.recv(source=one) for one in range(comm.size)]


def _scatter_objects(comm: Comm, sendobj: Any, root: int = 0) -> Any:
    if comm.rank != root:
        return comm.recv(source=root)
    for other, one in enumerate(_one_each(sendobj, comm.size)):
        if other != root:
            comm.send(one, dest=other)
    return sendobj[root]


def _alltoall_objects(comm: Comm, sendobj: Any) -> list[Any]:
    found = _one_each(sendobj, comm.size)
    for dest, source in _others(comm):
        found[source] = comm.sendrecv(sendobj[dest], dest=dest, source=source)
    return found


def _one_each(objects: Any, ranks: int) -> list[Any]:
    if objects is None or len(objects) != ranks:
        raise SpecFault(f"needs a list of {ranks} objects, one for each rank.")
    return [*objects]


def _allgather_objects(comm: Comm, sendobj: Any) -> Any:
    return _bcast_object(comm, _gather_objects(comm, sendobj))


def _reduce_objects(comm: Comm, sendobj: Any, op: Any = None, root: int = 0) -> Any:
    objects = _gather_objects(comm, sendobj, root)
    return None if objects is None else reduce(op, objects)


def _allreduce_objects(comm: Comm, sendobj: Any, op: Any = None) -> Any:
    return _bcast_object(comm, _reduce_objects(comm, sendobj, op))


# By mpi4py's name of the call: its program, and which collective it is.
CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "Bcast": (
        lambda comm, buf, root=0: programs.broadcast(comm, memory(buf), root),
        "broadcast",
    ),
    "Reduce": (_reduce, "reduce"),
    "Allreduce": (_allreduce, "all_reduce"),
    "Reduce_scatter": (_reduce_scatter, "reduce_scatter"),
    "Reduce_scatter_block": (
        lambda comm, sendbuf, recvbuf, op=None: _reduce_scatter(comm, sendbuf, recvbuf, None, op),
        "reduce_scatter",
    ),
    "Gather": (partial(_gather, equal=True), "gather"),
    "Gatherv": (partial(_gather, equal=False), "gather"),
    "Scatter": (partial(_scatter, equal=True), "scatter"),
    "Scatterv": (partial(_scatter, equal=False), "scatter"),
    "Allgather": (partial(_allgather, equal=True), "all_gather"),
    "Allgatherv": (partial(_allgather, equal=False), "all_gather"),
    "Alltoall": (partial(_alltoall, equal=True), "all_to_all"),
    "Alltoallv": (partial(_alltoall, equal=False), "all_to_all"),
    "bcast": (_bcast_object, "broadcast"),
    "reduce": (_reduce_objects, "reduce"),
    "allreduce": (_allreduce_objects, "all_reduce"),
    "gather": (_gather_objects, "gather"),
    "scatter": (_scatter_objects, "scatter"),
    "allgather": (_allgather_objects, "all_gather"),
    "alltoall": (_alltoall_objects, "all_to_all"),
}
# Which collective a program or a call of the library is.
MEANING = {f"programs.{name}": meaning for name, meaning in programs.MEANING.items()}
MEANING |= {f"comm.{name}": meaning for name, (_, meaning) in CALLS.items()}


def prepare(name: str, given: dict[str, Any], comm: Comm) -> None:
    """Check what a call was given, and replace its op by a function."""
    root, op, mpi = given.get("root", 0), given.get("op"), sys.modules.get("mpi4py.MPI")
    if not (is_whole(root) and 0 <= root < comm.size):
        raise SpecFault(f"has root={root!r}. Ranks count from 0 to {comm.size - 1}.")
    both = "sendbuf" in given and ("root" not in given or comm.rank == root)
    if both and overlap(given["sendbuf"], given["recvbuf"]):
        raise SpecFault(
            "would receive into the memory that it sends. Receive into an array of its own, or "
            "give MPI.IN_PLACE in the place of one of the two."
        )
    if "op" in given and name[0].islower():
        given["op"] = operator.add if op is None else op
    elif "op" in given:
        same = [add for one, add in MPI_OPERATIONS.items() if op == getattr(mpi, one, ...)]
        if op is not None and not same:
            known = ", ".join(f"MPI.{one}" for one in MPI_OPERATIONS)
            raise SpecFault(f"needs one of {known} as its op, got {op!r}.")
        given["op"] = same[0] if same else np.add
