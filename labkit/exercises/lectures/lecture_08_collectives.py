"""The tasks of lecture 08: collectives."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from labkit.exercises.judges.answers import judged, number
from labkit.exercises.judges.program import TIME_LIMIT, program
from labkit.exercises.task import Task, Wrong
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.collectives import Trace


def _more_than_a_tree(trace: Trace) -> Iterator[str]:
    steps = ceil(log2(trace.ranks))
    if trace.steps > steps:
        yield f"it takes {trace.steps} steps; {steps} are enough."
    if len(trace.messages) >= trace.ranks:
        yield f"it sends {len(trace.messages)} messages; {trace.ranks - 1} are enough."


def _more_than_own_chunks(trace: Trace) -> Iterator[str]:
    """Seen on chunks of 100 elements: one that was packed by pickle is a little longer."""
    import numpy as np

    long = trace.again([np.arange(100.0 * trace.ranks)] * trace.ranks)
    if any(message.dest for message in long.messages):
        yield "a rank sends to another one than rank 0."
    if any(message.nbytes > 1200 for message in long.messages):
        yield "a message is longer than a chunk: send chunk r only, not the whole array."
    if len(trace.messages) > trace.ranks - 1:
        yield f"it sends {len(trace.messages)} messages; {trace.ranks - 1} are enough."


_of_any_chunks = program("gather", _more_than_own_chunks)
_of_equal_chunks = program(
    "gather", _more_than_own_chunks, elements=lambda ranks: (ranks, 2 * ranks)
)


def _in_its_place(answer: Any) -> Trace:
    """A gather that is also right where the message of rank 2 is the first to come."""
    from labkit import collectives

    def late(comm: Any, buffer: Any) -> None:
        if other := {1: 3, 3: 1}.get(comm.Get_rank()):
            comm.sendrecv(None, other, source=other)
        answer(comm, buffer)

    trace: Trace = _of_any_chunks(answer)
    verdict = collectives.run(late, ranks=4, timeout=TIME_LIMIT).check("gather")
    if verdict:
        return trace
    text = "Where rank 2 sends first, chunks are in wrong places: name the source of each Recv."
    raise Wrong(f"{text}\n{verdict}", trace)


def _as_they_come(answer: Any) -> Trace:
    """A gather that also ends where rank 1 sends last, and leaves messages with another tag."""
    import numpy as np

    from labkit import collectives

    def late(comm: Any, buffer: Any) -> None:
        rank, token = comm.Get_rank(), np.zeros(1)
        if rank == 1:
            comm.Recv(token, source=3, tag=99)
        request = comm.Isend(token, dest=0, tag=5) if rank == 3 else None
        answer(comm, buffer)
        if rank == 3:
            comm.Send(token, dest=1, tag=99)
        if request:
            request.Wait()
        elif rank == 0:
            comm.Recv(token, source=3, tag=5)

    trace: Trace = _of_equal_chunks(answer)
    if tags := {message.tag for message in trace.messages} - {7}:
        raise Wrong(f"It is correct. But its messages carry tag {min(tags)}, not tag 7.", trace)
    try:
        verdict = collectives.run(late, ranks=4, timeout=TIME_LIMIT).check("gather")
        if verdict:
            return trace
        text = f"{verdict}"
    except LabError as fault:
        text = f"{fault}"
    raise Wrong(
        "It gathers, but not on 4 ranks of which rank 1 sends last, and rank 3 also a message "
        "with tag 5. Take the messages in the order in which they come (source=MPI.ANY_SOURCE, "
        f"tag=7), and put each where status.Get_source() says.\n{text}",
        trace,
    )


TASKS = {
    "08.star_steps": Task(
        "Rank 0 of 32 sends its array to each other rank in turn. How many steps does that take?",
        number(31, "steps"),
        ("One message leaves rank 0 in each step.", "How many ranks are there besides rank 0?"),
        "answer = 32 - 1",
        "31 messages, one in each step; the other 30 ranks neither send nor receive in it.",
        slips={5: "That is a tree. Here only rank 0 sends.", 32: "Not to rank 0 itself."},
    ),
    "08.tree_broadcast": Task(
        "Write my_broadcast(comm, buffer): every rank ends with the array of rank 0, on any number "
        "of ranks, in ceil(log2(n)) steps.",
        program("broadcast", _more_than_a_tree, ranks=(2, 3, 4, 5, 8, 17, 1)),
        (
            "Let the number of ranks that have the array double in each round: 1, 2, 4, …",
            "In the round in which the ranks below `have` have it, each of them sends to rank + "
            "have. So a rank between have and 2 × have receives from rank - have.",
            "Does rank + have exist? Send only if it is smaller than the number of ranks.",
        ),
        """
def my_broadcast(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    have = 1  # the ranks below this number have the array
    while have < ranks:
        if rank < have and rank + have < ranks:
            comm.Send(buffer, dest=rank + have)
        elif have <= rank < 2 * have:
            comm.Recv(buffer, source=rank - have)
        have *= 2
""",
        "After each step twice as many ranks have the array: log2(n) steps, rounded up.",
        difficulty=2,
    ),
    "08.reduce_root": Task(
        "A tree reduces arrays of 1 MB on 64 ranks. How many MB does the root receive?",
        number(6, "MB"),
        (
            "The root receives one array in each step in which it takes part.",
            "In each step half of the ranks are done. How many steps until only the root is left?",
        ),
        """
from math import log2

steps = log2(64)  # the root receives one array in each
answer = steps * 1
""",
        "6 arrays come in, and each is a sum already. In a star the root would receive 63.",
        slips={63: "In a tree the root receives sums.", 64: "In a tree it receives sums."},
    ),
    "08.scatter_bytes": Task(
        "Rank 0 scatters 80 MB to 8 ranks and keeps its own chunk. How many MB does it send?",
        number(70, "MB"),
        ("Each of the others gets one chunk, not the whole.", "A chunk is 80 MB / 8."),
        """
chunk = 80 / 8
answer = 7 * chunk
""",
        "7 of 8 chunks. A broadcast by a star would send 560 MB.",
        slips={80: "Rank 0 keeps its own chunk.", 10: "That is one chunk. To how many ranks?"},
    ),
    "08.my_gather": Task(
        "Write my_gather(comm, buffer): rank 0 ends with chunk r of each rank r, on any number of "
        "ranks. Each rank but rank 0 sends one message.",
        judged(_in_its_place, 7 * TIME_LIMIT),
        (
            "chunks = np.array_split(buffer, ranks) gives all chunks of the buffer.",
            "Rank r sends chunks[r]; rank 0 receives each into its own chunks[r].",
        ),
        """
def my_gather(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer, ranks)
    if rank == 0:
        for other in range(1, ranks):
            comm.Recv(chunks[other], source=other)
    else:
        comm.Send(chunks[rank], dest=0)
""",
        "n - 1 messages, all to one rank: rank 0 receives one in each step.",
    ),
    "08.first_come": Task(
        "Write first_come(comm, buffer): a gather of equal chunks. Each rank but rank 0 sends one "
        "message with tag 7, and rank 0 takes these in the order in which they come, no others.",
        judged(_as_they_come, 7 * TIME_LIMIT),
        (
            "How many messages does rank 0 take? It cannot name their senders.",
            "status = MPI.Status(); comm.Recv(part, source=MPI.ANY_SOURCE, tag=7, status=status). "
            "Into which array? One that is as long as a chunk.",
            "status.Get_source() is the sender, which is the number of its chunk, too.",
        ),
        """
def first_come(comm, buffer):
    from mpi4py import MPI

    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer, ranks)
    if rank > 0:
        comm.Send(chunks[rank], dest=0, tag=7)
        return
    part, status = np.empty_like(chunks[0]), MPI.Status()
    for _ in range(ranks - 1):
        comm.Recv(part, source=MPI.ANY_SOURCE, tag=7, status=status)
        chunks[status.Get_source()][:] = part
""",
        "A slow rank delays its own message alone, and not those of the ranks after it.",
        difficulty=2,
    ),
}
