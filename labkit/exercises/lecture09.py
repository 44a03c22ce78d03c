"""The exercises of lecture 09, many workers."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from numbers import Integral
from operator import index
from typing import Any

from labkit.exercises.function_task import FunctionTask
from labkit.exercises.task import Task
from labkit.exercises.written_task import WrittenTask
from labkit.kinds import LabError

__all__ = ["TASKS"]

LIMIT = 20_000  # of the numbers that the ranks look through
Cluster = dict[str, tuple[str, ...]]


def _config_is(cluster: Cluster, role: str, number: int) -> Callable[[Any], str | None]:
    """Whether an answer is a TF_CONFIG that can work, and the one that is asked for."""

    def missing(answer: Any) -> str | None:
        from labkit.cluster import tf_config

        if answer is None:
            return None
        given = tf_config.check(answer)
        if set(given.cluster) != set(cluster):
            return (
                f"It can work, but its roles are {', '.join(given.cluster)}. Read who takes part."
            )
        for name, addresses in cluster.items():
            if given.cluster[name] != addresses:
                return f"It can work, but the addresses of {name} are {list(given.cluster[name])}."
        if (given.role, given.index) != (role, number):
            return f"It can work, but on another machine: it is that of {given.task}."
        return ""

    return missing


def _share_is_fair(my_share: Callable[[int, int, int], Any]) -> str:
    for images, ranks in ((12, 3), (12, 1), (10, 4), (3, 5), (60_000, 7)):
        given = [my_share(rank, ranks, images) for rank in range(ranks)]
        if any(share is None for share in given):
            return "It returns nothing: it ends without return."
        if isinstance(given[0], str):
            return f"It returned {given[0]!r}: return numbers of images, such as [0, 2, 4]."
        dealt = [[index(number) for number in share] for share in given]
        where = f"With {images} images and {ranks} ranks, "
        seen = sorted(number for share in dealt for number in share)
        if len(set(seen)) < len(seen):
            twice = next(a for a, b in pairwise(seen) if a == b)
            return f"{where}image {twice} is given to two ranks."
        if seen != list(range(images)):
            lost = sorted(set(range(images)) - set(seen))
            what = f"nobody gets image {lost[0]}" if lost else f"there is an image {seen[-1]}"
            return f"{where}{what}."
        sizes = sorted(map(len, dealt))
        if sizes[-1] - sizes[0] > 1:
            return f"{where}one rank has {sizes[0]} images and another {sizes[-1]}."
    return ""


def _primes(limit: int) -> int:
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(sieve[number * number :: number]))
    return sum(sieve)


def _counts_primes(my_count: Any) -> str | None:
    if not callable(my_count):
        raise LabError(f"{my_count!r} is no function. Hand in the function itself.")
    from labkit.cluster import Cluster

    truth = _primes(LIMIT)
    for ranks in (4, 3):
        with Cluster(ranks) as c:
            found = c.run(my_count, deadline=30, show=False)
        if found == [None] * ranks or found == [...] * ranks:
            return None
        if not all(isinstance(count, Integral) for count in found):
            strange = next(count for count in found if not isinstance(count, Integral))
            return f"On {ranks} ranks one returned {reprlib.repr(strange)}: return a whole number."
        if sum(found) != truth:
            more = "few" if sum(found) < truth else "many"
            return (
                f"On {ranks} ranks it counted {found}: {sum(found)} together, which are too {more}."
            )
        if max(found) > 0.6 * truth:
            return f"On {ranks} ranks it counted {found}: one rank has done most of the work."
    return ""


TASKS = {
    "09.count_primes": WrittenTask(
        f"Write my_count(rank): how many of the numbers below {LIMIT:,} that are this rank's share "
        "are prime. All ranks together must have looked at every number once, on 4 ranks and on 3.",
        _counts_primes,
        "labkit.cluster.this_rank().ranks says how many ranks there are. "
        "range(rank, limit, ranks) is one way to share them out.",
        "2,262 primes, counted by four processes, and by three.",
    ),
    "09.second_of_three": WrittenTask(
        "Three machines, node1, node2 and node3, are workers; each listens on port 23450. Write "
        "the TF_CONFIG of node2, as a dictionary or as JSON.",
        _config_is({"worker": ("node1:23450", "node2:23450", "node3:23450")}, "worker", 1),
        "Two entries: cluster, the same for all three, and task, with type and index. Who has "
        "index 0?",
        "Only the index differs from the TF_CONFIG of node1 and node3.",
    ),
    "09.parameter_server": WrittenTask(
        "Machine a is the chief, b, c and d are workers, e is the parameter server; all listen on "
        "port 12345. Write the TF_CONFIG of e.",
        _config_is(
            {
                "chief": ("a:12345",),
                "worker": ("b:12345", "c:12345", "d:12345"),
                "ps": ("e:12345",),
            },
            "ps",
            0,
        ),
        "Three roles: chief, worker and ps, each a list of addresses. Every role counts from 0.",
        "The fifth machine is rank 4, and ps 0: ranks count through all roles, indices do not.",
    ),
    "09.my_share": FunctionTask(
        "Write my_share(rank, ranks, images): the numbers of the images that a rank trains on. "
        "Every image belongs to exactly one rank, and no rank has two images more than another.",
        _share_is_fair,
        "A range with a step of `ranks`, or numpy's array_split.",
        "Each image once, whatever the number of ranks.",
    ),
    "09.global_batch": Task(
        "Three machines have four GPUs each. Every replica gets 64 images a step. What is the "
        "global batch?",
        lambda: 3 * 4 * 64,
        0.0,
        "How many replicas are in sync? Not as many as there are workers.",
        "images",
        "12 replicas in 3 workers: strategy.num_replicas_in_sync counts replicas.",
    ),
    "09.images_read": Task(
        "60,000 images, 4 workers, sharded by data. How many images does each worker read in an "
        "epoch, from the beginning of its pipeline?",
        lambda: 60_000.0,
        0.0,
        "The shard is taken from a stream that everybody produces. What becomes of the images "
        "that belong to others?",
        "images",
        "It keeps 15,000 and throws 45,000 away. By file it would open only its own.",
    ),
    "09.files": Task(
        "10 files of equal size, 4 workers, sharded by file. How many files does the busiest "
        "worker read?",
        lambda: 3.0,
        0.0,
        "Deal ten cards to four players.",
        "files",
        "Two workers have three files, two have two: at the end of the epoch some wait.",
    ),
    "09.server_bytes": Task(
        "A model of 400 MB, 8 workers, 4 parameter servers that share the weights evenly. Each "
        "worker makes one step: it fetches all weights and sends all gradients. How many MB pass "
        "through each server?",
        lambda: 8 * 2 * 400 / 4,
        0.0,
        "First all bytes: each of 8 workers moves the model twice. Then share them out.",
        "MB",
        "With one server it would be 6.4 GB, through one door.",
    ),
    "09.which_strategy": Task(
        "One machine has four GPUs of 40 GB and 512 GB of main memory. The weights of your model "
        "take 100 GB, and each step touches a small part of them. Which strategy of TensorFlow is "
        "made for that?",
        lambda: "CentralStorageStrategy",
        0.0,
        "A mirrored variable has a copy on every GPU. Where would one copy for all fit?",
        "",
        "One copy, in main memory. It is still called experimental, and is for one machine.",
    ),
    "09.which_fault": Task(
        "Workers train in step, and one has a fault. After which does nobody make a step any more, "
        'though no process has ended and no connection is closed: "kill", "hang" or "slow"?',
        lambda: "hang",
        0.0,
        "Which two did the others notice, or outlive?",
        "",
        "A dead process closes its connections; a hanging one keeps them open. Only a clock helps.",
    ),
    "09.failures": Task(
        "A machine fails once in three years (1,095 days), on average. Your training runs on 500 "
        "of them, and one failure stops it. How many hours does it run between two failures, on "
        "average?",
        lambda: 1095 * 24 / 500,
        0.01,
        "500 machines fail 500 times as often as one.",
        "hours",
        "Every two days. On a large cluster a restart is no exception, but part of the program.",
    ),
    "09.lost_work": Task(
        "A step takes 0.2 s, a checkpoint is written after every 100 steps, and a worker is killed "
        "right after step 374. How many seconds of training are done again?",
        lambda: 74 * 0.2,
        0.01,
        "From which step does it go on?",
        "seconds",
        "Steps 301 to 374. On average half of the interval is lost.",
    ),
    "09.how_often": Task(
        "Writing a checkpoint takes 6 s. On average 6 hours pass between two failures. After how "
        "many seconds of training should the next checkpoint be written?",
        lambda: sqrt(2 * 6 * 6 * 3600),
        0.02,
        "The square root of 2 × seconds to write × seconds between failures.",
        "seconds",
        "About eight and a half minutes; then writing and doing again cost about 1.2 % each.",
    ),
}
