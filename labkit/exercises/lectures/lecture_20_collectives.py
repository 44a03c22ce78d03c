"""What answers of lecture 20 are judged by: a gather in which a rank is late."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.exercises.judges.answers import judged
from labkit.exercises.judges.program import TIME_LIMIT, program
from labkit.exercises.task import Wrong
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.collectives import Trace


def gather(
    told: Callable[..., None], late: Callable[..., None], says: str, **settings: Any
) -> Callable[[Any], Trace]:
    """A gather that is also right on 4 ranks where `late(comm, gather)` calls it; else `says`."""
    prove = program("gather", told, **settings)

    def examine(answer: Any) -> Trace:
        from labkit import collectives

        def hindered(comm: Any, buffer: Any) -> None:
            late(comm, lambda: answer(comm, buffer))

        hindered.func = answer  # type: ignore[attr-defined]  # the lines that are named are its own
        trace = prove(answer)
        try:
            verdict: Any = collectives.run(hindered, ranks=4, timeout=TIME_LIMIT).check("gather")
        except LabError as fault:
            verdict = fault
        if isinstance(verdict, LabError) or not verdict:
            raise Wrong(f"{says}\n{verdict}", trace)
        return trace

    return judged(examine, 7 * TIME_LIMIT)


def rank_2_first(comm: Any, gather: Callable[[], None]) -> None:
    """The others send after rank 2."""
    if other := {1: 3, 3: 1}.get(comm.Get_rank()):
        comm.sendrecv(None, other, source=other)
    gather()


def rank_1_last(comm: Any, gather: Callable[[], None]) -> None:
    """Rank 1 sends after the others, and rank 3 also a message with another tag."""
    rank, token = comm.Get_rank(), np.zeros(1)
    if rank == 1:
        comm.Recv(token, source=3, tag=99)
    request = comm.Isend(token, dest=0, tag=5) if rank == 3 else None
    gather()
    if rank == 3:
        comm.Send(token, dest=1, tag=99)
    if request:
        request.Wait()
    elif rank == 0:
        comm.Recv(token, source=3, tag=5)


def on_long_chunks(trace: Trace) -> Any:
    """The same with chunks of 800 bytes: one that was packed by pickle is a little longer."""
    return trace.again([np.arange(100.0 * trace.ranks)] * trace.ranks)
