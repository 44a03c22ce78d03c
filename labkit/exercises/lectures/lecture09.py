"""The exercises of lecture 09, many workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import sqrt
from typing import Any

from labkit.exercises.coordinator_loop import coordinator_loop
from labkit.exercises.judges import check_callable, function, number, numbers_in, word
from labkit.exercises.task import Task, Unanswered, Wrong
from labkit.exercises.worker_loop import worker_loop

LIMIT, PRIMES = 20_000, 2262  # below the limit


def _tf_config(task: str, **cluster: str) -> Callable[[Any], None]:
    """A TF_CONFIG that can work, and is the one that the question asks for."""

    def judge(answer: Any) -> None:
        from labkit.cluster import tf_config

        given = tf_config.check(answer or {})
        if given.cluster != {role: tuple(those.split()) for role, those in cluster.items()}:
            raise Wrong(f"It can work, but its cluster is {given.content()['cluster']}.")
        if given.task != task:
            raise Wrong(f"It can work, but on another machine: it is that of {given.task}.")

    return judge


def _examine_share(my_share: Callable[..., Any]) -> None:
    for images, ranks in ((12, 3), (12, 1), (10, 4), (3, 5), (60_000, 7)):
        case = f"With {images} images and {ranks} ranks"
        what = "a list of numbers of images"
        shares = [numbers_in(my_share(rank, ranks, images), what) for rank in range(ranks)]
        owners = Counter(image for share in shares for image in share)
        for image in sorted({*range(images), *owners}):
            if owners[image] != (image in range(images)):
                raise Wrong(f"{case}, image {image:g} is given to {owners[image]} ranks.")
        sizes = sorted(map(len, shares))
        if sizes[-1] - sizes[0] > 1:
            raise Wrong(f"{case}, one rank has {sizes[0]} images and another {sizes[-1]}.")


def _count_primes(my_count: Any) -> None:
    from labkit.cluster import Cluster

    check_callable(my_count)
    for ranks in (4, 3):
        with Cluster(ranks) as c:
            found = c.run(my_count, show=False)
        if all(count is ... for count in found):
            raise Unanswered
        total = sum(numbers_in(found, "a whole number on each rank"))
        counts = f"On {ranks} ranks it counted {found}"
        if total != PRIMES:
            raise Wrong(f"{counts}: {total:g} together, too {'few' if total < PRIMES else 'many'}.")
        if max(found) > 0.6 * PRIMES:
            raise Wrong(f"{counts}: one rank has done most of the work.")


TASKS = {
    "09.count_primes": Task(
        f"Write my_count(rank): how many of the numbers below {LIMIT:,} that are this rank's share "
        "are prime. All ranks together must have looked at every number once, on 4 ranks and on 3.",
        _count_primes,
        "labkit.cluster.this_rank().ranks says how many ranks there are. "
        "range(rank, limit, ranks) is one way to shard them.",
        "2,262 primes, counted by four processes, and by three.",
    ),
    "09.second_of_three": Task(
        "Three machines, node1, node2 and node3, are workers; each listens on port 23450. Write "
        "the TF_CONFIG of node2, as a dictionary or as JSON.",
        _tf_config("worker 1", worker="node1:23450 node2:23450 node3:23450"),
        "Two entries: cluster, the same for all, and task, with type and index, from 0 on.",
        "Only the index differs from the TF_CONFIG of node1 and node3.",
    ),
    "09.parameter_server": Task(
        "Machine a is the chief, b, c and d are workers, e is the parameter server; all listen on "
        "port 12345. Write the TF_CONFIG of e.",
        _tf_config("ps 0", chief="a:12345", worker="b:12345 c:12345 d:12345", ps="e:12345"),
        "Three roles: chief, worker and ps, each a list of addresses. Every role counts from 0.",
        "The fifth machine is rank 4, and ps 0: ranks count through all roles, indices do not.",
    ),
    "09.my_share": Task(
        "Write my_share(rank, ranks, images): the numbers of the images that a rank trains on. "
        "Every image belongs to exactly one rank, and no rank has two images more than another.",
        function(_examine_share),
        "A range with a step of `ranks`, or numpy's array_split.",
        "Each image once, whatever the number of ranks.",
    ),
    "09.global_batch": Task(
        "Three machines with four GPUs each, 64 images a replica. What is the global batch?",
        number(3 * 4 * 64, "images"),
        "How many replicas are in sync? Not as many as there are workers.",
        "12 replicas in 3 workers: strategy.num_replicas_in_sync counts replicas.",
    ),
    "09.images_read": Task(
        "60,000 images, 4 workers, sharded by data. How many images does each worker read in an "
        "epoch, from the beginning of its input pipeline?",
        number(60_000, "images"),
        "Every worker reads the whole stream. What happens to the images of other workers?",
        "It keeps 15,000 and drops 45,000. By file it would open only its own.",
    ),
    "09.files": Task(
        "10 equal files, 4 workers, sharded by file. How many does the busiest worker read?",
        number(3, "files"),
        "10 / 4 is not a whole number.",
        "Two workers have three files, two have two: at the end of the epoch some wait.",
    ),
    "09.worker_loop": Task(
        "Write my_train(strategy, make_model, dataset, global_batch, folder): restore the last "
        "checkpoint of the folder if there is one, train one pass with plain SGD, learning rate "
        "0.1, and save a checkpoint in the folder. Return the model and the list of the loss of "
        "each step. Two workers run it, twice.",
        worker_loop(),
        "The loop is that of lecture 03. Every worker restores, the chief alone saves: the worker "
        "whose strategy.cluster_resolver.task_id is 0.",
        "Both workers hold the weights of the serial program, also after the restart.",
    ),
    "09.schedule": Task(
        "Write my_lead(coordinator, make_model, make_dataset, steps): the workers make so many "
        "steps with SGD, learning rate 0.1. Return the model, and the number of updates as "
        "counted by a variable on the parameter server.",
        coordinator_loop(),
        "coordinator.strategy.scope() for the variables, create_per_worker_dataset(make_dataset), "
        "schedule for each step, join at the end, assign_add for the counter.",
        "The workers made every step once, and the counter lost none.",
    ),
    "09.server_bytes": Task(
        "A model of 400 MB, 8 workers, 4 parameter servers that share the weights evenly. Each "
        "worker makes one step: it fetches all weights and sends all gradients. How many MB pass "
        "through each server?",
        number(8 * 2 * 400 / 4, "MB"),
        "First all bytes: each of 8 workers moves the model twice. Then divide by the servers.",
        "With one server it would be 6.4 GB: its traffic grows with the number of workers.",
    ),
    "09.which_strategy": Task(
        "One machine has four GPUs of 40 GB and 512 GB of main memory. The weights of your model "
        "take 100 GB, and each step touches a small part of them. Which strategy of TensorFlow is "
        "made for that?",
        word("CentralStorageStrategy"),
        "A mirrored variable has a copy on every GPU. Where would one copy for all fit?",
        "One copy, in main memory. It is still called experimental, and is for one machine.",
    ),
    "09.which_fault": Task(
        "Synchronous workers train, and one has a fault. After which do all workers stop making "
        "steps, though no process has ended and no connection is closed: "
        '"kill", "hang" or "slow"?',
        word("hang"),
        "Which two did the others notice, or outlive?",
        "A dead process closes its connections; a hanging one does not. Only a timeout finds it.",
    ),
    "09.failures": Task(
        "A machine fails once in 1,095 days, on average. Your training runs on 500 of them, and "
        "one failure stops it. How many hours does it run between two failures, on average?",
        number(1095 * 24 / 500, "hours", within=0.01),
        "500 machines fail 500 times as often as one.",
        "Every two days. On a large cluster a restart is no exception, but part of the program.",
    ),
    "09.lost_work": Task(
        "A step takes 0.2 s, a checkpoint is written after every 100 steps, and a worker is killed "
        "right after step 374. How many seconds of training are done again?",
        number(74 * 0.2, "s", within=0.01),
        "From which step does it go on?",
        "Steps 301 to 374. On average half of the interval is lost.",
    ),
    "09.checkpoint_interval": Task(
        "Writing a checkpoint takes 6 s. On average 6 hours pass between two failures. After how "
        "many seconds of training should the next checkpoint be written?",
        number(sqrt(2 * 6 * 6 * 3600), "s", within=0.02),
        "The square root of 2 × seconds to write × seconds between failures.",
        "About eight and a half minutes; then writing and doing again cost about 1.2 % each.",
    ),
}
