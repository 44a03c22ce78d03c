"""The tasks of lecture 11: all-reduce in practice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.judges.over_links import all_reduce_over_links
from labkit.exercises.judges.program import long_if_packed, more_bytes_than_a_ring, program
from labkit.exercises.task import Task
from labkit.kinds import seconds_text

if TYPE_CHECKING:
    from labkit.collectives import Trace


def _more_than_both(trace: Trace) -> Iterator[str]:
    yield from more_bytes_than_a_ring(trace)
    # So slow a link that 512 bytes take eight times as long as the latency.
    run, packed = long_if_packed(trace)
    seconds = float(run.cost(latency=1e-6, bandwidth=64e9 if packed else 64e6))
    steps = 2 * math.log2(trace.ranks)
    target = steps * 1e-6 + 2 * (1 - 1 / trace.ranks) * trace.inputs[0].nbytes / 64e6
    if seconds > target * (1.01 if packed else 1.00005):
        yield (
            f"it takes {seconds_text(seconds)} and {trace.steps} steps, modelled; the target is "
            f"{seconds_text(target)}, {steps:.0f} steps."
        )


TASKS = {
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
        slips={1.1875: "That is the mean of the links.", 1: "Every chunk crosses the slow link."},
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
        difficulty=2,
        slips={8.356: "A tree goes up and down: 2 log2(n) steps.", 1.593: "A ring has two halves."},
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
        slips={8.05: "Four all-reduces are left.", 0.2: "That is what the four still cost."},
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
        slips={80: "All but the last bucket overlap.", 0: "The last bucket is full at 100 ms."},
    ),
    "11.my_buckets": function_task(
        "Write my_buckets(sizes, limit): put gradients, given by their sizes in the order in which "
        "the backward pass makes them, into buckets. A bucket is closed as soon as it holds limit "
        "or more; the last one may hold less. Return a list of lists of sizes.",
        [
            ([4, 4, 4, 4], 8),
            ([10, 1, 1, 1, 1], 3),
            ([1, 2, 3], 100),
            ([5], 5),
            ([3, 3, 3, 3, 3], 7),
        ],
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
        slips=[
            (">= limit", "> limit", "A bucket that holds exactly limit is closed."),
            ("buckets + [bucket] if bucket else buckets", "buckets", "The last may hold less."),
            (" if bucket else buckets", "", "There is an empty bucket."),
        ],
        difficulty=2,
    ),
    "11.two_levels": Task(
        "Write my_two_levels(comm, buffer), an all-reduce that is measured on 2 racks with 2 hosts "
        "each, ranks 0 and 1 in one and 2 and 3 in the other; links of 100 Mbit/s, uplinks of 20. "
        "Each uplink may carry one array and headers in each direction, and the program may not "
        "be slower than a flat ring.",
        all_reduce_over_links(
            "ring_all_reduce",
            least=1.0,
            too_slow="The uplinks carry little enough, but not both directions at once: let the "
            "racks exchange their sums with Sendrecv.",
            at="rack",
            most=1.0,
            too_much="Sum inside each rack first, and let each of its ranks send only its half of "
            "that sum.",
            link="100 Mbit/s",
            racks=2,
            uplink="20 Mbit/s",
        ),
        (
            "rank ^ 1 is the other rank of your rack, rank ^ 2 the one at your place in the other.",
            "Inside the rack, exchange halves: one rank gets the sum of the first half, the other "
            "that of the second. Which half goes over the uplink from which rank?",
            "At last exchange the finished halves inside the rack.",
        ),
        """
def my_two_levels(comm, buffer):
    rank = comm.Get_rank()
    neighbour, peer = rank ^ 1, rank ^ 2
    halves = np.array_split(buffer, 2)
    mine, other = halves[rank % 2], halves[1 - rank % 2]
    received = np.empty_like(mine)
    for partner, given in ((neighbour, other), (peer, mine)):
        comm.Sendrecv(given, dest=partner, recvbuf=received, source=partner)
        mine += received
    comm.Sendrecv(mine, dest=neighbour, recvbuf=other, source=neighbour)
""",
        "One array each way over an uplink, in two halves at once; the flat ring sends 1.5.",
        difficulty=2,
    ),
}
