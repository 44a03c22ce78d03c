"""The tasks of lecture 08: collectives."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import TYPE_CHECKING

from labkit.exercises.judges.answers import number
from labkit.exercises.judges.program import program
from labkit.exercises.task import Task

if TYPE_CHECKING:
    from labkit.collectives import Trace


def _more_than_a_tree(trace: Trace) -> Iterator[str]:
    steps = ceil(log2(trace.ranks))
    if trace.steps > steps:
        yield f"it takes {trace.steps} steps; {steps} are enough."
    if len(trace.messages) >= trace.ranks:
        yield f"it sends {len(trace.messages)} messages; {trace.ranks - 1} are enough."


TASKS = {
    "08.star_steps": Task(
        "Rank 0 of 32 sends its array to each other rank in turn. How many steps does that take?",
        number(31, "steps"),
        ("One message leaves rank 0 in each step.", "How many ranks are there besides rank 0?"),
        "answer = 32 - 1",
        "31 messages, one in each step; the other 30 ranks neither send nor receive in it.",
    ),
    "08.tree_broadcast": Task(
        "Write my_broadcast(comm, buffer): every rank ends with the array of rank 0, on any number "
        "of ranks, in ceil(log2(n)) steps.",
        program("broadcast", _more_than_a_tree),
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
    ),
    "08.my_gather": Task(
        "Write my_gather(comm, buffer): rank 0 ends with chunk r of each rank r, on any number of "
        "ranks. Each rank but rank 0 sends one message.",
        program(
            "gather",
            lambda trace: (
                [f"it sends {len(trace.messages)} messages; {trace.ranks - 1} are enough."]
                if len(trace.messages) > trace.ranks - 1
                else []
            ),
        ),
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
}
