"""The exercises of lecture 06, collectives."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

from labkit.exercises.program_task import ProgramTask, Target
from labkit.exercises.task import Task

if TYPE_CHECKING:
    from labkit.collectives import Trace

__all__ = ["TASKS"]


def _rounds(ranks: int) -> int:
    return ceil(log2(ranks))


def _all_messages(run: Trace) -> int:
    return len(run.messages)


TASKS = {
    "06.star_steps": Task(
        "Rank 0 sends the same array to each of 32 ranks but itself, one after the other. How "
        "many steps does that take?",
        lambda: 32 - 1,
        0.0,
        "One message leaves rank 0 in each step. How many must leave?",
        "steps",
        "31 messages, one at a time, while 30 ranks look on.",
    ),
    "06.tree_broadcast": ProgramTask(
        "Write my_broadcast(comm, buffer): every rank ends with the array of rank 0, on any number "
        "of ranks, in ceil(log2(n)) steps.",
        "broadcast",
        "Let the ranks that have the array double: in round k the ranks below 2**k send, each to "
        "the rank 2**k further on. Who receives, and from whom? Who would send past the last rank?",
        "After each step twice as many ranks have it.",
        targets=(
            Target(
                "it takes {count} steps; {limit} are enough.",
                lambda run: run.steps,
                lambda run: _rounds(run.ranks),
            ),
            Target(
                "it sends {count} messages; {limit} are enough: nobody needs the array twice.",
                _all_messages,
                lambda run: run.ranks - 1,
            ),
        ),
    ),
    "06.mend_the_deadlock": ProgramTask(
        "Mend my_all_gather(comm, buffer) so that it ends on any number of ranks: chunk r of every "
        "array becomes that of rank r.",
        "all_gather",
        "There are three ways out in section 3, and each of them works on a ring, too. (With an "
        "odd number of ranks an order needs some care.)",
        "Somebody has to be ready to receive.",
        shown=5,
    ),
    "06.reduce_root": Task(
        "A tree reduces arrays of 1 MB on 64 ranks. How many MB does the root receive?",
        lambda: log2(64) * 1.0,
        0.0,
        "One array in each step in which the root takes part. A tree of 64 has how many steps?",
        "MB",
        "6 arrays come in, and each is a sum already. In a star the root would receive 63.",
    ),
    "06.scatter_bytes": Task(
        "Rank 0 holds 80 MB and scatters them to 8 ranks; it keeps its own chunk. How many MB "
        "leave rank 0?",
        lambda: 80 * 7 / 8,
        0.0,
        "Each of the others gets one chunk, not the whole.",
        "MB",
        "7 of 8 chunks. A broadcast from a star would send 560 MB.",
    ),
    "06.all_gather_bytes": Task(
        "The weights of a model take 800 MB. Each of 8 ranks holds an eighth of them, and a ring "
        "gathers all of them everywhere. How many MB does each rank send?",
        lambda: 800 / 8 * 7,
        0.0,
        "How many steps has the ring, and how large is a chunk?",
        "MB",
        "Seven chunks of 100 MB each. Sharded optimizers pay this before every forward pass.",
    ),
    "06.all_to_all_messages": Task(
        "16 ranks, and each has a chunk for each of the others. How many messages does an "
        "all-to-all need?",
        lambda: 16 * 15,
        0.0,
        "Nothing is shared: each pair of ranks has two messages of its own.",
        "messages",
        "No tree helps here, because no two ranks want the same chunk.",
    ),
    "06.barrier_steps": Task(
        "How many steps does the barrier by doubling need on 100 ranks?",
        lambda: _rounds(100),
        0.0,
        "After k steps a rank has heard, also through others, of 2**k ranks.",
        "steps",
        "2 to the 6 is 64, which is not enough; 2 to the 7 is 128.",
    ),
    "06.all_reduce_from_two": ProgramTask(
        "Write my_all_reduce(comm, buffer), every array the sum of all, out of two programs that "
        "you have.",
        "all_reduce",
        "Which one brings the sum to one rank? Which one brings it from there to all?",
        "What two collectives can do in turn, one may do better: that is lecture 07.",
    ),
    "06.right_by_luck": Task(
        "On how many of the numbers of ranks from 2 to 16 does neighbour_sum give the true sum?",
        lambda: sum(2 ** _rounds(ranks) == ranks for ranks in range(2, 17)),
        0.0,
        "Let a loop ask check for each number of ranks, and count.",
        "",
        "On 2, 4, 8 and 16: whoever tests with powers of two only will never see the fault.",
    ),
    "06.which_collective": Task(
        "Each replica has the loss of its own images. One rank prints the mean loss of all; the "
        "others do not need it. Which collective is enough?",
        lambda: "reduce",
        0.0,
        "All have a part, one wants the sum of them.",
        "",
        "An all-reduce would do, too, and would bring the others a number that nobody reads.",
    ),
}
