"""The tasks of lecture 09: all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from labkit.exercises.judges.answers import number, word
from labkit.exercises.judges.program import BLOCKS, program
from labkit.exercises.task import Task

if TYPE_CHECKING:
    from labkit.collectives import Trace

DEADLOCK = """
def my_all_gather(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer, ranks)
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):
        mine = chunks[(rank - step) % ranks]
        theirs = chunks[(left - step) % ranks]
        comm.Send(mine, dest=right)
        comm.Recv(theirs, source=left)
"""


def _not_two_programs(trace: Trace) -> Iterator[str]:
    sends = [call for call in trace.calls if call.begins]
    places = [call.place for call in sends if call.place and not call.library]
    names = {trace.sources[place.source].name for place in places}
    names |= {call.library[0] for call in sends if call.library}
    if trace.program in names or len(names) == 1:
        yield f"{' and '.join(sorted(names))} made the calls. Call two other programs."


TASKS = {
    "09.fix_the_deadlock": Task(
        "Fix my_all_gather(comm, buffer) so that it ends on any number of ranks: chunk r of every "
        "array becomes that of rank r.",
        program("all_gather", shown=5),
        (
            "A blocking Send returns when its receive is posted. Every rank sends first: which "
            "rank receives?",
            "Each fix of lecture 08, section 3, works on a ring, too: Sendrecv, Isend, or another "
            "order on some ranks. (With odd n an order needs some care.)",
        ),
        """
def my_all_gather(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(buffer, ranks)
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    for step in range(ranks - 1):
        mine = chunks[(rank - step) % ranks]
        theirs = chunks[(left - step) % ranks]
        comm.Sendrecv(mine, dest=right, recvbuf=theirs, source=left)
        # Or with a request:
        #     request = comm.Isend(mine, dest=right)
        #     comm.Recv(theirs, source=left)
        #     request.Wait()
""",
        "A blocking send returns when its receive is posted: some rank has to receive first.",
        difficulty=2,
        given=DEADLOCK,
    ),
    "09.all_gather_bytes": Task(
        "The weights of a model take 800 MB. Each of 8 ranks holds an eighth of them, and a ring "
        "gathers all of them everywhere. How many MB does each rank send?",
        number(700, "MB"),
        ("How large is a chunk?", "The ring has n - 1 steps; each rank sends a chunk in each."),
        """
chunk = 800 / 8
answer = (8 - 1) * chunk
""",
        "Seven chunks of 100 MB each. Sharded optimizers pay this before every forward pass.",
        slips={800: "A ring of n ranks has n - 1 steps.", 100: "It sends a chunk in each step."},
    ),
    "09.all_to_all_messages": Task(
        "16 ranks, each with a chunk for each other rank. In the all-to-all of this lecture every "
        "chunk goes directly to its owner. How many messages is that?",
        number(240, "messages"),
        ("How many messages does one rank send?", "All 16 ranks send as many."),
        "answer = 16 * (16 - 1)",
        "240. Bruck's algorithm sends fewer and longer messages, and more bytes in all.",
        slips={120: "Between two ranks pass two, one each way.", 256: "None to itself."},
    ),
    "09.barrier_steps": Task(
        "How many steps does the barrier by doubling need on 100 ranks?",
        number(7, "steps"),
        (
            "After k steps a rank has received, also through others, the messages of 2**k ranks.",
            "Which is the smallest k with 2**k ≥ 100?",
        ),
        """
from math import ceil, log2

answer = ceil(log2(100))
""",
        "2 to the 6 is 64, which is not enough; 2 to the 7 is 128.",
        slips={6: "Then a rank has heard of 64 ranks.", 99: "The distance doubles in each step."},
    ),
    "09.all_reduce_from_two": Task(
        "Write my_all_reduce(comm, buffer), every array the sum of all, with two other programs "
        "(no all-reduce of labkit), one after the other.",
        program("all_reduce", _not_two_programs, may_call=BLOCKS),
        (
            "Which collective puts the sum on one rank? Which one copies it from there to all?",
            "programs.reduce and programs.broadcast are functions of (comm, buffer). Call one "
            "after the other.",
        ),
        """
def my_all_reduce(comm, buffer):
    programs.reduce(comm, buffer)
    programs.broadcast(comm, buffer)
    # Or, with more steps and fewer bytes:
    #     programs.reduce_scatter(comm, buffer)
    #     programs.all_gather(comm, buffer)
""",
        "A program made for the all-reduce may be faster than two collectives: see lecture 10.",
    ),
    "09.right_by_luck": Task(
        "On how many of the numbers of ranks from 2 to 16 does neighbour_sum give the true sum?",
        number(4),
        (
            "Let a loop run neighbour_sum on each number of ranks and count the right results.",
            "collectives.run(neighbour_sum, ranks=n).check('all_reduce') is true or false.",
        ),
        """
import numpy as np
from labkit import collectives

def neighbour_sum(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    received, distance = np.empty_like(buffer), 1
    while distance < ranks:
        dest, source = (rank + distance) % ranks, (rank - distance) % ranks
        comm.Sendrecv(buffer, dest=dest, recvbuf=received, source=source)
        buffer += received
        distance *= 2

runs = [collectives.run(neighbour_sum, ranks=n) for n in range(2, 17)]
answer = sum(bool(run.check("all_reduce")) for run in runs)
""",
        "On 2, 4, 8 and 16: a test with powers of two only does not find the mistake.",
        difficulty=2,
        slips={15: "Its numbers may be right by luck: ask check.", 3: "2 ranks count, too."},
    ),
    "09.which_collective": Task(
        "Each replica has the loss of its own images. One rank prints the mean loss of all; the "
        "others do not need it. Which collective puts the sum on that rank alone?",
        word("reduce", "reduction"),
        ("Every rank contributes a number; only one rank needs the sum.",),
        'answer = "reduce"  # all contribute, one rank gets the sum',
        "An all-reduce also brings the others a number that they do not use.",
        slips={"allreduce": "It leaves the sum on every rank.", "broadcast": "It adds nothing up."},
    ),
}
