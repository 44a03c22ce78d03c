"""The exercises of lecture 06, collectives."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2
from typing import TYPE_CHECKING

from labkit.exercises.judges import number, word
from labkit.exercises.program import program
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
    "06.star_steps": Task(
        "Rank 0 of 32 sends its array to each other rank in turn. How many steps does that take?",
        number(32 - 1, "steps"),
        "One message leaves rank 0 in each step. How many must leave?",
        "31 messages, one in each step; the other 30 ranks neither send nor receive in it.",
    ),
    "06.tree_broadcast": Task(
        "Write my_broadcast(comm, buffer): every rank ends with the array of rank 0, on any number "
        "of ranks, in ceil(log2(n)) steps.",
        program("broadcast", _more_than_a_tree),
        "Let the ranks that have the array double: in round k the ranks below 2**k send, each to "
        "the rank 2**k further on. Who receives, and from whom? Who would send past the last rank?",
        "After each step twice as many ranks have the array: log2(n) steps, rounded up.",
    ),
    "06.fix_the_deadlock": Task(
        "Fix my_all_gather(comm, buffer) so that it ends on any number of ranks: chunk r of every "
        "array becomes that of rank r.",
        program("all_gather", shown=5),
        "Each fix of section 3 works on a ring, too; with odd n an order needs some care.",
        "A blocking send returns when its receive is posted: some rank has to receive first.",
    ),
    "06.reduce_root": Task(
        "A tree reduces arrays of 1 MB on 64 ranks. How many MB does the root receive?",
        number(log2(64) * 1, "MB"),
        "One array in each step in which the root takes part. How many steps has a tree of 64?",
        "6 arrays come in, and each is a sum already. In a star the root would receive 63.",
    ),
    "06.scatter_bytes": Task(
        "Rank 0 scatters 80 MB to 8 ranks and keeps its own chunk. How many MB does it send?",
        number(80 * 7 / 8, "MB"),
        "Each of the others gets one chunk, not the whole.",
        "7 of 8 chunks. A broadcast by a star would send 560 MB.",
    ),
    "06.all_gather_bytes": Task(
        "The weights of a model take 800 MB. Each of 8 ranks holds an eighth of them, and a ring "
        "gathers all of them everywhere. How many MB does each rank send?",
        number(800 / 8 * 7, "MB"),
        "How many steps has the ring, and how large is a chunk?",
        "Seven chunks of 100 MB each. Sharded optimizers pay this before every forward pass.",
    ),
    "06.all_to_all_messages": Task(
        "16 ranks, each with a chunk for each other rank. In the all-to-all of this lecture every "
        "chunk goes directly to its owner. How many messages is that?",
        number(16 * 15, "messages"),
        "Each pair of ranks exchanges two messages. How many pairs are there?",
        "240. Bruck's algorithm sends fewer and longer messages, and more bytes in all.",
    ),
    "06.barrier_steps": Task(
        "How many steps does the barrier by doubling need on 100 ranks?",
        number(ceil(log2(100)), "steps"),
        "After k steps a rank has heard, also through others, of 2**k ranks.",
        "2 to the 6 is 64, which is not enough; 2 to the 7 is 128.",
    ),
    "06.all_reduce_from_two": Task(
        "Write my_all_reduce(comm, buffer), every array the sum of all, with two other programs.",
        program("all_reduce"),
        "Which collective puts the sum on one rank? Which one copies it from there to all?",
        "An all-reduce of its own may be faster than two collectives: see lecture 07.",
    ),
    "06.right_by_luck": Task(
        "On how many of the numbers of ranks from 2 to 16 does neighbour_sum give the true sum?",
        number(4),
        "Let a loop call check for each number of ranks, and count.",
        "On 2, 4, 8 and 16: a test with powers of two only does not find the mistake.",
    ),
    "06.which_collective": Task(
        "Each replica has the loss of its own images. One rank prints the mean loss of all; the "
        "others do not need it. Which collective is enough?",
        word("reduce"),
        "Every rank contributes a number; only one rank needs the sum.",
        "An all-reduce also brings the others a number that they do not use.",
    ),
}
