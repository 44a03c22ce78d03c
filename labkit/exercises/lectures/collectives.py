"""The tasks of the collectives: lectures 08 to 11."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, log2
from typing import TYPE_CHECKING, Any

from labkit.exercises.judges.answers import function, number, same_as, word
from labkit.exercises.judges.program import program
from labkit.exercises.task import Task, Wrong
from labkit.kinds import bytes_text, seconds_text

if TYPE_CHECKING:
    from labkit.collectives import Trace


def _more_than_a_tree(trace: Trace) -> Iterator[str]:
    steps = ceil(log2(trace.ranks))
    if trace.steps > steps:
        yield f"it takes {trace.steps} steps; {steps} are enough."
    if len(trace.messages) >= trace.ranks:
        yield f"it sends {len(trace.messages)} messages; {trace.ranks - 1} are enough."


def _more_bytes_than_a_ring(trace: Trace) -> Iterator[str]:
    ring = 2 * (trace.ranks - 1) / trace.ranks * max(one.nbytes for one in trace.inputs)
    if max(trace.bytes_sent) > ring:
        busiest = bytes_text(max(trace.bytes_sent))
        yield f"the busiest rank sends {busiest}; {bytes_text(ring)} are enough."


def _more_than_a_ring(trace: Trace) -> Iterator[str]:
    if trace.steps > 2 * (trace.ranks - 1):
        yield f"it takes {trace.steps} steps; {2 * (trace.ranks - 1)} are enough."
    yield from _more_bytes_than_a_ring(trace)


def _more_than_both(trace: Trace) -> Iterator[str]:
    yield from _more_bytes_than_a_ring(trace)
    # So slow a link that 512 bytes take eight times as long as the latency.
    seconds = float(trace.cost(latency=1e-6, bandwidth=64e6))
    if seconds > 20.001e-6:
        yield f"it takes {seconds_text(seconds)}, modelled; the target is 20 µs."


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


def _examine_buckets(my_buckets: Callable[..., Any]) -> None:
    for sizes, limit in (
        ([4, 4, 4, 4], 8),
        ([10, 1, 1, 1, 1], 3),
        ([1, 2, 3], 100),
        ([5], 5),
        ([3, 3, 3, 3, 3], 7),
    ):
        rest, right = list(sizes), []
        while rest:
            bucket = [rest.pop(0)]
            while rest and sum(bucket) < limit:
                bucket.append(rest.pop(0))
            right.append(bucket)
        found = my_buckets(list(sizes), limit)
        try:
            found = [list(bucket) for bucket in found]
        except TypeError:
            raise Wrong(f"It returned {found!r}: return a list of lists.") from None
        if found != right:
            raise Wrong(f"Of the sizes {sizes} and a limit of {limit} it made {found}.")


LECTURE_08 = {
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

LECTURE_09 = {
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
    ),
    "09.all_to_all_messages": Task(
        "16 ranks, each with a chunk for each other rank. In the all-to-all of this lecture every "
        "chunk goes directly to its owner. How many messages is that?",
        number(240, "messages"),
        ("How many messages does one rank send?", "All 16 ranks send as many."),
        "answer = 16 * (16 - 1)",
        "240. Bruck's algorithm sends fewer and longer messages, and more bytes in all.",
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
    ),
    "09.all_reduce_from_two": Task(
        "Write my_all_reduce(comm, buffer), every array the sum of all, with two other programs.",
        program("all_reduce"),
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
    ),
    "09.which_collective": Task(
        "Each replica has the loss of its own images. One rank prints the mean loss of all; the "
        "others do not need it. Which collective is enough?",
        word("reduce"),
        ("Every rank contributes a number; only one rank needs the sum.",),
        'answer = "reduce"  # all contribute, one rank gets the sum',
        "An all-reduce also brings the others a number that they do not use.",
    ),
}

LECTURE_10 = {
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
    ),
    "10.ring": Task(
        "Write my_ring(comm, buffer), every array the sum of all, on any number of ranks. No rank "
        "may send more than 2 (n - 1) chunks, in 2 (n - 1) steps.",
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
    ),
    "10.ring_steps": Task(
        "How many steps has a ring all-reduce on 100 ranks?",
        number(198, "steps"),
        ("Each half sends a chunk round the ring, to n - 1 other ranks.",),
        "answer = 2 * (100 - 1)",
        "Bytes hardly grow with the ranks; steps do. Each step costs a latency.",
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
    ),
    "10.my_cost": Task(
        "Write my_cost(ranks, nbytes, latency, bandwidth): the seconds of a ring all-reduce of "
        "nbytes in the model of this lecture. Additions take no time.",
        same_as(
            lambda ranks, nbytes, latency, bandwidth: (
                2 * (ranks - 1) * (latency + nbytes / ranks / bandwidth)
            ),
            (8, 100e6, 5e-6, 10e9),
            (2, 1e3, 1e-6, 1e9),
            (100, 0, 1e-6, 1e9),
            (1, 1e6, 1e-6, 1e9),
        ),
        ("How many steps are there, in both halves?", "In each step a rank sends one chunk."),
        """
def my_cost(ranks, nbytes, latency, bandwidth):
    steps, chunk = 2 * (ranks - 1), nbytes / ranks
    return steps * (latency + chunk / bandwidth)
""",
        "Latency grows with the number of ranks; the bytes of a rank stay below two arrays.",
        difficulty=2,
    ),
}

LECTURE_11 = {
    "11.slow_link": Task(
        "A ring of 16 ranks reduces a very large array. One link becomes four times slower: how "
        "many times longer does the all-reduce take?",
        number(4, "times", within=0.05),
        ("Each chunk has to cross that link.", "Is there another way round it?"),
        """
steps, chunk, bandwidth = 2 * (16 - 1), 1.0, 1.0
fast = steps * chunk / bandwidth
slow = steps * chunk / (bandwidth / 4)  # in every step a chunk crosses the slow link
answer = slow / fast
""",
        "The slowest link sets the pace: every chunk crosses it, and the other 15 links idle.",
        difficulty=2,
    ),
    "11.crossover": Task(
        "256 ranks, α = 2 µs, B = 50 GB/s. From how many MB on does a ring beat a binomial tree?",
        number(3.527, "MB", within=0.02),
        (
            "A ring needs 2 (n - 1) steps of S / n bytes, a tree up and down 2 log2(n) steps of S "
            "bytes.",
            "A step of b bytes takes α + b / B. For which S do both take as long? (Or let "
            "collectives.crossover compute it, in bytes.)",
        ),
        """
from math import log2

n, latency, bandwidth = 256, 2e-6, 50e9
# 2 (n - 1) (latency + S / n / bandwidth) = 2 log2(n) (latency + S / bandwidth), solved for S:
more_steps = (n - 1) - log2(n)
more_arrays = log2(n) - (n - 1) / n
answer = more_steps / more_arrays * latency * bandwidth / 1e6
""",
        "Below it the all-reduce is latency-bound, above it bandwidth-bound.",
        difficulty=3,
    ),
    "11.both_targets": Task(
        "Write my_all_reduce(comm, buffer) for 2, 4 and 8 ranks. On 8 ranks, with 64 float64 each, "
        "no rank may send more than a ring would make it send (896 B), and with a latency of 1 µs "
        "and 64 MB/s it may take 20 µs. The ring takes 28 µs.",
        program(
            "all_reduce",
            _more_than_both,
            ranks=(2, 4, 8),
            elements=lambda ranks: (8 * ranks, ranks),
        ),
        (
            "Exchange with a partner, rank ^ distance, and let the distance halve: 4, 2, 1. In "
            "each step keep one half of what you have, and give the other half away.",
            "Add what you receive to the half that you keep. After log2(n) steps each rank has "
            "one finished n-th.",
            "Then go back the same way: in reverse order send what you kept, and receive into "
            "what you gave away.",
        ),
        """
def my_all_reduce(comm, buffer):
    rank, ranks = comm.Get_rank(), comm.Get_size()
    kept, swaps = buffer, []
    distance = ranks // 2
    while distance >= 1:
        partner = rank ^ distance
        low, high = np.array_split(kept, 2)
        kept, given = (low, high) if rank < partner else (high, low)
        received = np.empty_like(kept)
        comm.Sendrecv(given, dest=partner, recvbuf=received, source=partner)
        kept += received
        swaps.append((partner, kept, given))
        distance //= 2
    for partner, kept, given in reversed(swaps):
        comm.Sendrecv(kept, dest=partner, recvbuf=given, source=partner)
""",
        "As few bytes as a ring in as few steps as a tree, up and down. It is called after Rolf "
        "Rabenseifner, and MPI libraries use it for long arrays.",
        difficulty=3,
    ),
    "11.buckets": Task(
        "A network has 161 gradient tensors. Each all-reduce costs 50 µs before its first byte "
        "moves. How many ms does it save to send them in 4 buckets?",
        number(7.85, "ms", within=0.01),
        ("The bytes are the same. How many all-reduces are saved?", "50 µs are 0.050 ms."),
        """
saved = 161 - 4  # all-reduces
answer = saved * 0.050
""",
        "Most tensors are small: in buckets the bytes are the same, at fewer latencies.",
    ),
    "11.exposed": Task(
        "A backward pass of 100 ms fills ten equal buckets, one after the other at an even pace. "
        "The all-reduce of a bucket takes 8 ms and overlaps with the backward pass. How many ms "
        "after the backward pass is the last one done?",
        number(8, "ms"),
        ("A bucket is full every 10 ms. Is the link ever behind?", "When is the last one full?"),
        """
link_is_free = 0
for bucket in range(1, 11):
    full = 10 * bucket  # ms after the begin of the backward pass
    link_is_free = max(full, link_is_free) + 8
answer = link_is_free - 100
""",
        "72 of 80 ms are hidden by the overlap. Only the last bucket is exposed.",
        difficulty=2,
    ),
    "11.my_buckets": Task(
        "Write my_buckets(sizes, limit): put gradients, given by their sizes in the order in which "
        "the backward pass makes them, into buckets. A bucket is closed as soon as it holds limit "
        "or more; the last one may hold less. Return a list of lists of sizes.",
        function(_examine_buckets),
        (
            "Go through the sizes and keep one open bucket.",
            "Close it when its sum is at least the limit. What is open at the end?",
        ),
        """
def my_buckets(sizes, limit):
    buckets, bucket = [], []
    for size in sizes:
        bucket.append(size)
        if sum(bucket) >= limit:
            buckets.append(bucket)
            bucket = []
    return buckets + [bucket] if bucket else buckets
""",
        "All ranks follow the same rule, so they send the same buckets in the same order.",
        difficulty=2,
    ),
}

TASKS = LECTURE_08 | LECTURE_09 | LECTURE_10 | LECTURE_11
