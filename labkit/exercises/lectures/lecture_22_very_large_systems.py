"""The tasks of lecture 22: very large systems."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

from labkit.exercises.judges.answers import function_task, number
from labkit.exercises.judges.program import BLOCKS, program
from labkit.exercises.task import Task
from labkit.kinds import bytes_text

if TYPE_CHECKING:
    from labkit.collectives import Trace

PER_NODE = 4


def _out_of_nodes(trace: Trace) -> Iterator[str]:
    """On nodes of four: the bytes that leave a node, in all and from each of its ranks."""
    out = [0] * trace.ranks
    for one in trace.messages:
        out[one.source] += one.nbytes * (one.source // PER_NODE != one.dest // PER_NODE)
    nodes = [sum(out[first : first + PER_NODE]) for first in range(0, trace.ranks, PER_NODE)]
    chunk = ceil(ceil(trace.inputs[0].size / PER_NODE) / len(nodes)) * trace.inputs[0].itemsize
    enough = 2 * (len(nodes) - 1) * PER_NODE * chunk
    if max(nodes) > enough:
        yield (
            f"{bytes_text(max(nodes))} leave node {nodes.index(max(nodes))}; {bytes_text(enough)} "
            "are enough. Add up inside each node first; between nodes take a ring."
        )
    elif max(out) > enough / PER_NODE:
        yield (
            f"rank {out.index(max(out))} alone sends {bytes_text(max(out))} to other nodes. Let "
            f"each of the four ranks send a quarter ({bytes_text(enough / PER_NODE)}), over a "
            "network card of its own."
        )


LAYERS = [(2.0, 30.0), (1.5, 15.0), (3.25, 52.0), (0.75, 5.0), (1.0, 6.0)]
TASKS = {
    "22.buckets_overlap": function_task(
        "Write my_step(layers, limit, start, rate): the seconds until the backward pass is over "
        "and all gradients are summed. layers holds (seconds, bytes) in the order of the backward "
        "pass. A bucket is closed as soon as it holds limit bytes or more, and at the end. Its "
        "all-reduce takes start + bytes / rate, and begins when the bucket is closed and the one "
        "before it is done.",
        [
            (LAYERS, 42, 0.4, 8.0),
            (LAYERS, 0, 0.5, 20.0),
            (LAYERS, 1000, 0.5, 20.0),
            (LAYERS, 45, 0.4, 8.0),
            (LAYERS, 30, 0.1, 1e6),
            ([(1.0, 8.0)], 4, 0.0, 2.0),
        ],
        (
            "Keep two clocks: now, the end of the layer that was computed last, and free, the time "
            "at which the link is free.",
            "A closed bucket: free = max(now, free) + start + held / rate. The last bucket is "
            "closed at the end of the backward pass.",
        ),
        """
def my_step(layers, limit, start, rate):
    now = free = held = 0
    for i, (seconds, nbytes) in enumerate(layers):
        now += seconds
        held += nbytes
        if held >= limit or i == len(layers) - 1:
            free = max(now, free) + start + held / rate
            held = 0
    return free
""",
        "What is after the backward pass is the exposed communication: free - now.",
        slips=[
            ("max(now, free)", "now", "A bucket waits until the one before it is done."),
            (" or i == len(layers) - 1", "", "The last bucket is not sent."),
            ("held >= limit", "held > limit", "A bucket that holds limit bytes is closed."),
        ],
        difficulty=2,
    ),
    "22.exposed": Task(
        "A backward pass takes 30 ms. All buckets together need 45 ms on the link, the first one "
        "is full after 5 ms, and the link is busy from then on. How many ms are exposed?",
        number(20, "ms"),
        ("When does the link finish, counted from the start of the backward pass?",),
        """
link_is_done = 5 + 45
answer = link_is_done - 30
""",
        "The link is the bottleneck: at best 45 ms + the time until the first bucket is full.",
        slips={15: "The link begins after 5 ms.", 50: "30 of them are hidden."},
    ),
    "22.hierarchical": Task(
        "Write my_two_levels(comm, buffer), every array the sum of all, for nodes of four "
        "consecutive ranks. Of N nodes none may send more than 2 (N - 1) / N buffers to the "
        "others, and each of its ranks no more than a quarter of that.",
        program(
            "all_reduce",
            _out_of_nodes,
            may_call=(*BLOCKS, "all_reduce"),
            ranks=(8, 4, 12, 16),
            elements=lambda ranks: (2 * ranks, ranks + 3),
        ),
        (
            "comm.Split(color, key) gives all ranks with the same color a communicator. Which "
            "color have the ranks of one node? And those at the same place in their nodes?",
            "Inside a node programs.reduce_scatter leaves chunk r on its rank r. Which program "
            "makes the sum of that chunk over all nodes, and on which communicator?",
            "At last programs.all_gather(node, buffer) copies the four chunks inside each node.",
        ),
        """
def my_two_levels(comm, buffer):
    rank = comm.Get_rank()
    node = comm.Split(rank // 4, rank)   # the ranks of my node
    peers = comm.Split(rank % 4, rank)   # the ranks at my place, one in each node
    mine = np.array_split(buffer, 4)[rank % 4]
    programs.reduce_scatter(node, buffer)
    programs.ring_all_reduce(peers, mine)
    programs.all_gather(node, buffer)
""",
        "Each rank has its own quarter on the slow links, and all network cards work at once.",
        difficulty=3,
    ),
    "22.straggler": function_task(
        "Write my_slowest(times, ranks): the mean time of a step in which so many ranks wait for "
        "the slowest of them. Each rank's time is one of times, drawn independently.",
        [
            ([1.0, 2.0], 1),
            ([1.0, 2.0], 2),
            ([1.0] * 99 + [3.0], 64),
            ([3.0, 1.0, 2.0, 2.0], 5),
            ([0.5], 1000),
        ],
        (
            "All ranks are done after the k-th of the n sorted times with probability "
            "(k / n) ** ranks.",
            "So the k-th is the slowest one with probability (k / n) ** ranks - "
            "((k - 1) / n) ** ranks.",
            "The mean is the sum of each time multiplied by its probability.",
        ),
        """
def my_slowest(times, ranks):
    n, mean = len(times), 0
    for k, time in enumerate(sorted(times), start=1):
        mean += time * ((k / n) ** ranks - ((k - 1) / n) ** ranks)
    return mean
""",
        "The mean over all n ** ranks combinations, without trying them.",
        slips=[
            ("return mean", "return sum(times) / n", "That is the mean of one rank."),
            ("return mean", "return max(times)", "That is the slowest: it may not occur."),
            (" - ((k - 1) / n) ** ranks", "", "Subtract the steps that end before the k-th."),
        ],
        difficulty=2,
    ),
    "22.slow_steps": Task(
        "Each of 1,000 ranks is slow in one of 1,000 steps, at random. In how many per cent of the "
        "steps does at least one rank make all others wait?",
        number(63.2, "%", within=0.005),
        ("With which probability is no rank slow?", "0.999 to the power of 1,000."),
        "answer = 100 * (1 - 0.999**1000)",
        "What is rare on one device is the usual case on many.",
        slips={100: "Some steps have two slow ranks.", 36.8: "In these no rank is slow."},
    ),
    "22.gpu_hours": Task(
        "A training on 16,384 GPUs was interrupted unexpectedly 419 times in 54 days. If each GPU "
        "contributes equally, how many thousand hours pass between two interruptions of one GPU?",
        number(50.68, within=0.01),
        ("How many hours has the job between two of them?", "One GPU has 16,384 times as many."),
        """
job = 54 * 24 / 419  # hours between two interruptions
answer = job * 16_384 / 1000
""",
        "5.8 years for a GPU, and about 3 hours for the job.",
        slips={3.093: "That is the job's, in hours.", 50_677: "That is in hours."},
    ),
    "22.young": function_task(
        "Write my_interval(hours, devices, write): after how many seconds of training the next "
        "checkpoint should be written (Young). A device fails every so many hours on average, any "
        "failure stops the job, and a checkpoint takes write seconds.",
        [(50_000, 16_384, 60), (50_000, 1, 60), (1000, 10, 6), (876, 4, 0)],
        (
            "N devices fail N times as often as one.",
            "√(2 · MTBF of the job · write), all in seconds.",
        ),
        """
from math import sqrt

def my_interval(hours, devices, write):
    mtbf = 3600 * hours / devices
    return sqrt(2 * mtbf * write)
""",
        "With four times the devices, save twice as often.",
        slips=[
            (" / devices", "", "N devices fail N times as often as one."),
            ("3600 * ", "", "Take the hours in seconds, and return seconds."),
            ("sqrt(2", "sqrt(1", "The 2 of Young's formula is missing."),
        ],
    ),
    "22.my_goodput": function_task(
        "Write my_goodput(interval, write, restart, gaps): the share of the time that was training "
        "which counts. gaps are the seconds from each failure to the next. After a failure come "
        "restart seconds, then interval seconds of training and write seconds for a checkpoint, in "
        "turns; what no finished checkpoint holds is lost.",
        [
            (100, 10, 30, [10.0, 536.0, 263.0, 549.0, 804.0, 129.0, 642.0, 660.0, 18.0]),
            (100, 10, 30, [530.0, 20.0, 139.0, 1000.0]),
            (100, 0, 0, [100.0, 99.0]),
            (100, 10, 30, [475.0, 600.0]),
            (50, 5, 500, [300.0, 100.0]),
        ],
        (
            "How many whole pairs of interval and write fit into a gap, after the restart?",
            "A gap may be shorter than the restart: then nothing fits. Divide by the sum of gaps.",
        ),
        """
def my_goodput(interval, write, restart, gaps):
    finished = 0
    for gap in gaps:
        finished += max(gap - restart, 0) // (interval + write)
    return finished * interval / sum(gaps)
""",
        "With many gaps, drawn at random, it comes near the closed form.",
        slips=[
            ("//", "/", "Training that no finished checkpoint holds is lost."),
            ("gap - restart", "gap", "A restart comes after each failure."),
            ("interval + write", "interval", "Each checkpoint takes write seconds, too."),
        ],
        difficulty=2,
    ),
}
