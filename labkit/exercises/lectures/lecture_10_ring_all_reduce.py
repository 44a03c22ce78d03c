"""The tasks of lecture 10: ring all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.judges.over_links import all_reduce_over_links
from labkit.exercises.judges.program import more_bytes_than_a_ring, program
from labkit.exercises.task import Task

if TYPE_CHECKING:
    from labkit.collectives import Trace


def _more_than_a_ring(trace: Trace) -> Iterator[str]:
    if trace.steps > 2 * (trace.ranks - 1):
        yield f"it takes {trace.steps} steps; {2 * (trace.ranks - 1)} are enough."
    for one in trace.messages:
        if (one.dest - one.source) % trace.ranks not in (1, trace.ranks - 1):
            yield f"rank {one.source} sends to rank {one.dest}, not to a neighbour on the ring."
            break
    yield from more_bytes_than_a_ring(trace)


TASKS = {
    "10.naive_bytes": Task(
        "16 replicas, 1 GB of gradients each, added up on rank 0 and sent back. How many GB does "
        "rank 0 receive and send together?",
        number(30, "GB"),
        ("How many arrays come in?", "As many go out."),
        """
received = 15 * 1
sent = 15 * 1
answer = received + sent
""",
        "With 32 replicas it is 62 GB: traffic at rank 0 grows linearly with the number of ranks.",
        slips={15: "Rank 0 receives arrays and sends as many.", 32: "None to itself."},
    ),
    "10.owner": Task(
        "A ring of 6 ranks, after its first five steps: which chunk is finished on rank 4?",
        number(5),
        (
            "On 4 ranks rank 0 ended with chunk 1, and rank 1 with chunk 2.",
            "Rank r ends with the chunk that it received last from the left.",
        ),
        "answer = (4 + 1) % 6  # rank r ends with chunk r + 1",
        "Rank r ends with chunk r + 1: the last chunk that it received from the left.",
        slips={4: "Rank 4 began with that chunk."},
    ),
    "10.ring": Task(
        "Write my_ring(comm, buffer), every array the sum of all, on any number of ranks. A rank "
        "sends to its neighbours only, and no more than 2 (n - 1) chunks, in 2 (n - 1) steps.",
        # First on four ranks, like the pictures of the lecture.
        program("all_reduce", _more_than_a_ring, ranks=(4, 2, 3, 5, 8, 1), shown=4),
        (
            "chunks = np.array_split(buffer, n). In each step a rank sends one chunk to the right "
            "and receives one from the left, with comm.Sendrecv: first n - 1 steps that add what "
            "comes in, then n - 1 steps that overwrite.",
            "In step s of the first half rank r sends chunk r - s and receives chunk r - 1 - s, "
            "modulo n. Go by the picture for the second half.",
            "part += received adds in place. part = part + received makes a new array, and the "
            "buffer does not see it.",
        ),
        """
def my_ring(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer, ranks)
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):
        mine = chunks[(rank - step) % ranks]
        theirs = chunks[(left - step) % ranks]
        received = np.empty_like(theirs)
        comm.Sendrecv(mine, dest=right, recvbuf=received, source=left)
        theirs += received
    for step in range(ranks - 1):
        mine = chunks[(right - step) % ranks]
        theirs = chunks[(rank - step) % ranks]
        comm.Sendrecv(mine, dest=right, recvbuf=theirs, source=left)
""",
        "All ranks do the same, and every link is used in every step.",
        difficulty=3,
    ),
    "10.ring_bytes": Task(
        "1 GB of gradients, a ring of 100 ranks. How many GB does each rank send?",
        number(1.98, "GB", within=0.001),
        ("A rank sends 2 (n - 1) messages.", "Each message is an n-th of the array."),
        """
messages, chunk = 2 * (100 - 1), 1 / 100
answer = messages * chunk
""",
        "With 8 ranks it is 1.75 GB, and with a thousand it is still less than 2 GB.",
        slips={2: "In each half a rank sends n - 1 chunks, not n.", 0.99: "A ring has two halves."},
    ),
    "10.ring_steps": Task(
        "How many steps has a ring all-reduce on 100 ranks?",
        number(198, "steps"),
        ("Each half sends a chunk round the ring, to n - 1 other ranks.",),
        "answer = 2 * (100 - 1)",
        "Bytes hardly grow with the ranks; steps do. Each step costs a latency.",
        slips={99: "A ring has two halves.", 200: "A half has n - 1 steps.", 14: "That is a tree."},
    ),
    "10.bus_bandwidth": Task(
        "Eight A100 all-reduced 17.18 GB (16 GiB) in 128.0 ms. How many GB/s of bus bandwidth?",
        number(234.9, "GB/s", within=0.01),
        (
            "Bytes over seconds is the algorithm bandwidth.",
            "Each rank sends 2 (n - 1) / n times the bytes of its array.",
        ),
        """
algorithm_bandwidth = 17.18 / 0.128
answer = algorithm_bandwidth * 2 * (8 - 1) / 8
""",
        "78 % of the 300 GB/s that the data sheet gives for one direction.",
        difficulty=2,
        slips={134.2: "That is the algorithm bandwidth.", 117.4: "An all-reduce has two halves."},
    ),
    "10.my_cost": function_task(
        "Write my_cost(ranks, nbytes, latency, bandwidth): the seconds of a ring all-reduce of "
        "nbytes in the model of this lecture. Additions take no time.",
        [(6, 120e6, 5e-6, 10e9), (2, 1e3, 1e-6, 1e9), (100, 0, 1e-6, 1e9), (1, 1e6, 1e-6, 1e9)],
        ("How many steps are there, in both halves?", "In each step a rank sends one chunk."),
        """
def my_cost(ranks, nbytes, latency, bandwidth):
    steps, chunk = 2 * (ranks - 1), nbytes / ranks
    return steps * (latency + chunk / bandwidth)
""",
        "Latency grows with the number of ranks; the bytes of a rank stay below two arrays.",
        slips=[
            ("nbytes / ranks", "nbytes", "A step sends one chunk."),
            ("2 * (ranks - 1)", "ranks - 1", "A ring has two halves."),
            ("2 * (ranks - 1)", "2 * ranks", "A half has n - 1 steps."),
        ],
        difficulty=2,
    ),
    "10.over_links": Task(
        "Write my_sum(comm, buffer), an all-reduce that is measured on 4 hosts with links of "
        "100 Mbit/s. No link may carry more than 1.5 arrays and headers in one direction, and "
        "naive_all_reduce must take at least 1.8 times as long.",
        all_reduce_over_links(
            "naive_all_reduce",
            least=1.8,
            too_slow="The links carry little enough, but not at once: in each step all four hosts "
            "must send and receive, as with Sendrecv.",
            at="host",
            most=1.5,
            too_much="Send chunks, not whole arrays, and distribute the traffic over all links.",
            link="100 Mbit/s",
        ),
        (
            "Your ring of section 3 is an answer: call it. Another one sends the chunks directly.",
            "Chunk r of all ranks goes to rank r, which adds up. Then rank r sends the sum to all.",
            "In step s let each rank send to rank + s and receive from rank - s, modulo n, with "
            "Sendrecv.",
        ),
        """
def my_sum(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer, ranks)
    received = np.empty_like(chunks[rank])
    for step in range(1, ranks):
        right, left = (rank + step) % ranks, (rank - step) % ranks
        comm.Sendrecv(chunks[right], dest=right, recvbuf=received, source=left)
        chunks[rank] += received
    for step in range(1, ranks):
        right, left = (rank + step) % ranks, (rank - step) % ranks
        comm.Sendrecv(chunks[rank], dest=right, recvbuf=chunks[left], source=left)
""",
        "All four links are in use all the time, in both directions.",
        difficulty=2,
    ),
}
