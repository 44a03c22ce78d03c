"""The exercises of lecture 07, ring all-reduce."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from labkit.exercises.program_task import ProgramTask, Target
from labkit.exercises.task import Task
from labkit.kinds import bytes_text, seconds_text

if TYPE_CHECKING:
    from labkit.collectives import Trace

__all__ = ["TASKS", "WIRE"]

# The wire of the last program: so slow that 512 bytes take eight times as long as the latency.
WIRE = {"latency": 1e-6, "bandwidth": 64e6}


def _busiest(run: Trace) -> int:
    return max(run.bytes_sent)


def _largest(run: Trace) -> int:
    return max(array.nbytes for array in run.inputs)


def _share(run: Trace) -> float:
    """What each rank of a ring sends, in bytes."""
    return 2 * (run.ranks - 1) / run.ranks * _largest(run)


def _crossover() -> float:
    from labkit import collectives

    found = collectives.crossover(
        "ring_all_reduce", "tree_all_reduce", ranks=256, latency=2e-6, bandwidth=50e9
    )
    return float(found) / 1e6


TASKS = {
    "07.naive_bytes": Task(
        "16 replicas, 1 GB of gradients each, all added up on rank 0 and sent back. How many GB go "
        "in and out of rank 0 together?",
        lambda: 15 * 1.0 + 15 * 1.0,
        0.0,
        "Fifteen arrays come in. What goes out?",
        "GB",
        "With 32 replicas it would be 62 GB: the more help, the longer the queue at one door.",
    ),
    "07.owner": Task(
        "A ring of 6 ranks as in this lecture, after its first five steps. Which chunk is finished "
        "on rank 4?",
        lambda: (4 + 1) % 6,
        0.0,
        "On 4 ranks rank 0 ended with chunk 1, and rank 1 with chunk 2.",
        "",
        "Rank r ends with chunk r + 1: the last one that came to it from the left.",
    ),
    "07.ring": ProgramTask(
        "Write my_ring(comm, buffer), every array the sum of all, on any number of ranks. No rank "
        "may send more than 2 (n - 1) chunks, in 2 (n - 1) steps.",
        "all_reduce",
        "chunks = np.array_split(buffer, n). In each step a rank sends one chunk to the right and "
        "receives one from the left: first add what comes in, n - 1 times; then overwrite, n - 1 "
        "times. Which chunk is it in step s? Go by the picture. (part += received adds in place; "
        "part = part + received makes a new array, and the buffer does not see it.)",
        "No rank is special, and no link rests.",
        targets=(
            Target(
                "it takes {count} steps; {limit} are enough.",
                lambda run: run.steps,
                lambda run: 2 * (run.ranks - 1),
            ),
            Target(
                "the busiest rank sends {count}; {limit} are enough.", _busiest, _share, bytes_text
            ),
        ),
        # First on four, where every wrong number can be held against the lecture's pictures.
        ranks=(4, 2, 3, 5, 8, 1),
        shown=4,
    ),
    "07.ring_bytes": Task(
        "1 GB of gradients, a ring of 100 ranks. How many GB does each rank send?",
        lambda: 2 * 99 / 100,
        0.001,
        "2 (n - 1) messages, each an n-th of the array.",
        "GB",
        "With 8 ranks it was 1.75, with a thousand it would still be less than 2.",
    ),
    "07.ring_steps": Task(
        "How many steps has a ring all-reduce on 100 ranks?",
        lambda: 2 * 99,
        0.0,
        "Both halves of it go once round, but for one step.",
        "steps",
        "Bytes hardly grow with the ranks; steps do. Each step costs a latency.",
    ),
    "07.bus_bandwidth": Task(
        "Eight A100 all-reduced 16 GiB (17.18 GB) in 128.0 ms. Which bus bandwidth is that, in "
        "GB/s?",
        lambda: 2 * 7 / 8 * 17.18 / 0.128,
        0.01,
        "Bytes over seconds is the algorithm bandwidth. Each rank sends 2 (n - 1) / n times that.",
        "GB/s",
        "78 % of the 300 GB/s that the data sheet gives for one direction.",
    ),
    "07.slow_link": Task(
        "A ring of 16 ranks reduces a very large array. Now one link of it is four times slower. "
        "How many times longer does the all-reduce take?",
        lambda: 4.0,
        0.05,
        "Each chunk has to cross that link. Can anything overtake on a ring?",
        "times",
        "Fifteen fast links wait for one.",
    ),
    "07.crossover": Task(
        "256 ranks, a latency of 2 µs, links of 50 GB/s. From which size on does the ring beat the "
        "binomial tree, in MB?",
        _crossover,
        0.02,
        "collectives.crossover knows it, and gives it in bytes.",
        "MB",
        "Below it latency rules, above it bandwidth.",
    ),
    "07.both_targets": ProgramTask(
        "Write my_all_reduce(comm, buffer) for 2, 4 and 8 ranks. On 8 ranks, with 64 float64 each, "
        "no rank may send more than a ring would make it send (896 B), and with a latency of 1 µs "
        "and 64 MB/s it may take 20 µs. The ring takes 28 µs.",
        "all_reduce",
        "Halve what you exchange in each step, and double the distance to the partner or halve it: "
        "rank ^ distance. After log2(n) steps each rank has one finished n-th. Then go back the "
        "same way and let the finished parts grow.",
        "As few bytes as a ring in as few steps as a tree, up and down. It is called after Rolf "
        "Rabenseifner, and MPI libraries use it for long arrays.",
        ranks=(2, 4, 8),
        elements=(lambda n: 8 * n, lambda n: n),
        targets=(
            Target(
                "the busiest rank sends {count}; the target is {limit}.",
                _busiest,
                _share,
                bytes_text,
            ),
            Target(
                "it takes {count}, modelled; the target is {limit}.",
                lambda run: run.cost(**WIRE),
                lambda run: (
                    (2 * log2(run.ranks)) * WIRE["latency"] + _share(run) / WIRE["bandwidth"]
                ),
                seconds_text,
            ),
        ),
        shown_elements=64,
    ),
    "07.buckets": Task(
        "A network has 161 gradient tensors. Each all-reduce costs 50 µs before its first byte "
        "moves. How many ms does it save to send them in 4 buckets?",
        lambda: (161 - 4) * 0.050,
        0.01,
        "The bytes are the same. How many all-reduces are saved?",
        "ms",
        "The tensors of a network are many and mostly small: in buckets the bytes are the same, "
        "and the latency is paid less often.",
    ),
    "07.what_is_left": Task(
        "A backward pass of 100 ms fills ten equal buckets, one after the other at an even pace. "
        "The all-reduce of a bucket takes 8 ms and runs beside the backward pass. How many ms "
        "after the backward pass is the last one done?",
        lambda: 8.0,
        0.0,
        "Is the link ever behind? A bucket comes every 10 ms.",
        "ms",
        "72 of 80 ms are hidden. Only the last bucket has nothing left to hide behind.",
    ),
}
