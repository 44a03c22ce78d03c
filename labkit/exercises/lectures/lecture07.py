"""The exercises of lecture 07, ring all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from labkit.exercises.judges import number
from labkit.exercises.program import program
from labkit.exercises.task import Task
from labkit.kinds import bytes_text, seconds_text

if TYPE_CHECKING:
    from labkit.collectives import Trace


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


TASKS = {
    "07.naive_bytes": Task(
        "16 replicas, 1 GB of gradients each, added up on rank 0 and sent back. How many GB does "
        "rank 0 receive and send together?",
        number(15 * 1 + 15 * 1, "GB"),
        "Fifteen arrays come in. What goes out?",
        "With 32 replicas it is 62 GB: traffic at rank 0 grows linearly with the number of ranks.",
    ),
    "07.owner": Task(
        "A ring of 6 ranks, after its first five steps: which chunk is finished on rank 4?",
        number((4 + 1) % 6),
        "On 4 ranks rank 0 ended with chunk 1, and rank 1 with chunk 2.",
        "Rank r ends with chunk r + 1: the last chunk that it received from the left.",
    ),
    "07.ring": Task(
        "Write my_ring(comm, buffer), every array the sum of all, on any number of ranks. No rank "
        "may send more than 2 (n - 1) chunks, in 2 (n - 1) steps.",
        # First on four ranks, like the pictures of the lecture.
        program("all_reduce", _more_than_a_ring, ranks=(4, 2, 3, 5, 8, 1), shown=4),
        "chunks = np.array_split(buffer, n). In each step a rank sends one chunk to the right and "
        "receives one from the left: first add what comes in, n - 1 times; then overwrite, n - 1 "
        "times. Which chunk is it in step s? Go by the picture. (part += received adds in place; "
        "part = part + received makes a new array, and the buffer does not see it.)",
        "All ranks do the same, and every link is used in every step.",
    ),
    "07.ring_bytes": Task(
        "1 GB of gradients, a ring of 100 ranks. How many GB does each rank send?",
        number(2 * 99 / 100, "GB", within=0.001),
        "2 (n - 1) messages, each an n-th of the array.",
        "With 8 ranks it is 1.75 GB, and with a thousand it is still less than 2 GB.",
    ),
    "07.ring_steps": Task(
        "How many steps has a ring all-reduce on 100 ranks?",
        number(2 * 99, "steps"),
        "Each half sends a chunk round the ring, to n - 1 other ranks.",
        "Bytes hardly grow with the ranks; steps do. Each step costs a latency.",
    ),
    "07.bus_bandwidth": Task(
        "Eight A100 all-reduced 17.18 GB (16 GiB) in 128.0 ms. How many GB/s of bus bandwidth?",
        number(2 * 7 / 8 * 17.18 / 0.128, "GB/s", within=0.01),
        "Bytes over seconds is the algorithm bandwidth. Each rank sends 2 (n - 1) / n times that.",
        "78 % of the 300 GB/s that the data sheet gives for one direction.",
    ),
    "07.slow_link": Task(
        "A ring of 16 ranks reduces a very large array. One link becomes four times slower: how "
        "many times longer does the all-reduce take?",
        number(4, "times", within=0.05),
        "Each chunk has to cross that link. Is there another way round it?",
        "The slowest link sets the pace: every chunk crosses it, and the other 15 links idle.",
    ),
    "07.crossover": Task(
        "256 ranks, α = 2 µs, B = 50 GB/s. From how many MB on does a ring beat a binomial tree?",
        # 2 (n - 1) steps of S / n bytes against 2 log2(n) steps of S bytes
        number((255 - 8) / (8 - 255 / 256) * 2e-6 * 50e9 / 1e6, "MB", within=0.02),
        "collectives.crossover computes it, in bytes.",
        "Below it the all-reduce is latency-bound, above it bandwidth-bound.",
    ),
    "07.both_targets": Task(
        "Write my_all_reduce(comm, buffer) for 2, 4 and 8 ranks. On 8 ranks, with 64 float64 each, "
        "no rank may send more than a ring would make it send (896 B), and with a latency of 1 µs "
        "and 64 MB/s it may take 20 µs. The ring takes 28 µs.",
        program(
            "all_reduce",
            _more_than_both,
            ranks=(2, 4, 8),
            elements=lambda ranks: (8 * ranks, ranks),
        ),
        "Halve what you exchange in each step, and double the distance to the partner or halve it: "
        "rank ^ distance. After log2(n) steps each rank has one finished n-th. Then go back the "
        "same way and let the finished parts grow.",
        "As few bytes as a ring in as few steps as a tree, up and down. It is called after Rolf "
        "Rabenseifner, and MPI libraries use it for long arrays.",
    ),
    "07.buckets": Task(
        "A network has 161 gradient tensors. Each all-reduce costs 50 µs before its first byte "
        "moves. How many ms does it save to send them in 4 buckets?",
        number((161 - 4) * 0.050, "ms", within=0.01),
        "The bytes are the same. How many all-reduces are saved?",
        "Most tensors are small: in buckets the bytes are the same, at fewer latencies.",
    ),
    "07.exposed": Task(
        "A backward pass of 100 ms fills ten equal buckets, one after the other at an even pace. "
        "The all-reduce of a bucket takes 8 ms and overlaps with the backward pass. How many ms "
        "after the backward pass is the last one done?",
        number(8, "ms"),
        "Is the link ever behind? A bucket comes every 10 ms.",
        "72 of 80 ms are hidden by the overlap. Only the last bucket is exposed.",
    ),
}
