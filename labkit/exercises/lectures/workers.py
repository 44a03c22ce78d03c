"""The tasks of several workers: lectures 12 to 17."""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Any

from labkit.exercises.judges.answers import (
    check_callable,
    function,
    number,
    numbers_in,
    same_as,
    word,
)
from labkit.exercises.judges.batch_script import batch_script
from labkit.exercises.judges.cluster_loops import coordinator_loop, worker_loop
from labkit.exercises.judges.server_loop import examine_server
from labkit.exercises.task import Task, Unanswered, Wrong

# (worker, what it does), in the order in which the server saw it.
LOGS = (
    [(0, "pull"), (1, "pull"), (0, "push"), (1, "push")],
    [(7, "pull"), (1, "pull"), (2, "pull"), (1, "push"), (1, "pull"), (1, "push"), (7, "push"),
     (1, "pull"), (7, "pull"), (2, "push"), (7, "push"), (1, "push")],
)  # fmt: skip


def _examine_staleness(my_staleness: Callable[..., Any]) -> None:
    for log in LOGS:
        version, read, staleness = 0, {}, []
        for worker, kind in log:
            if kind == "pull":
                read[worker] = version
            else:
                staleness.append(version - read[worker])
                version += 1
        found = numbers_in(my_staleness(list(log)), "a list with a whole number for each push")
        if found != staleness:
            story = ", ".join(f"{w} {'pulls' if kind == 'pull' else 'pushes'}" for w, kind in log)
            raise Wrong(f"The log {story} has staleness {staleness}; yours {found}.")


def _examine_descent(my_descent: Callable[..., Any]) -> None:
    from labkit.updates import delayed

    for step, delay, updates in ((0.5, 0, 6), (0.5, 1, 6), (0.4, 3, 12), (1.5, 2, 4), (0.3, 5, 3)):
        case = f"At step {step}, delay {delay}, after {updates} updates:"
        true = delayed(step, delay, updates)
        found = numbers_in(my_descent(step, delay, updates), "a list of numbers")
        if len(found) != len(true):
            raise Wrong(f"{case} it returned {len(found)} numbers of {len(true)}.")
        for k, (mine, right) in enumerate(zip(found, true, strict=True)):
            if not math.isclose(mine, right, rel_tol=1e-6, abs_tol=1e-9):
                raise Wrong(f"{case} x[{k}] is {mine:.4g} and should be {right:.4g}.")


def _examine_step(my_step: Callable[..., Any]) -> None:
    from labkit.updates import delayed

    for delay in (0, 1, 2, 3, 5, 8, 12, 20):
        (step,) = numbers_in([my_step(delay)], "a number")
        if not 0 < step < math.inf:
            raise Wrong(f"At delay {delay} it returned {step:g}. A step is larger than 0.")
        updates = 12 * (delay + 1)
        x = delayed(min(step, 1e3), delay, 2 * updates)
        # For a whole delay and one update more: then no gradient in flight drives it out.
        far = max(map(abs, x[updates : updates + delay + 1]))
        if far < 1e-3:
            continue
        why = "It converges too slowly: a larger step is faster."
        if min(x) < -1e-3:
            why = "It oscillates: the step is too large for that delay."
        case = f"At delay {delay} and step {step:.3g}, after {updates} updates x is {far:.2g}."
        raise Wrong(f"{case} {why}")


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


NODES = "node[01-03,07],gpu5"

# Nodes, tasks on each, task, node of the task; and the machine of each task.
STEPS = (
    ("node[01-02]", "2(x2)", "2", "1", ["node01", "node01", "node02", "node02"]),
    ("gpu5,gpu[8-9]", "1(x3)", "0", "0", ["gpu5", "gpu8", "gpu9"]),
)

FIX = """#!/bin/bash
#SBATCH --partition=ml
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
# SBATCH --cpus-per-task=6
#SBATCH --mem=100G
#SBATCH --time=8:00
module load Python
#SBATCH --gres=gpu:2
python train.py
"""


def _hosts(answer: Any) -> None:
    hosts = ["node01", "node02", "node03", "node07", "gpu5"]
    if not isinstance(answer, list | tuple):
        raise Wrong(f"{reprlib.repr(answer)} is not a list. Write my_hosts = ['node01', ...].")
    if strange := [host for host in answer if host not in hosts]:
        raise Wrong(f"{strange[0]!r} is not in {NODES}.")
    if list(answer) != hosts:
        raise Wrong(f"There are {len(hosts)} machines, in the order of Slurm's list.")


def _examine_config(my_config: Callable[..., Any]) -> None:
    from labkit.cluster import tf_config

    for nodes, each, task, node, hosts in STEPS:
        environ = {
            "SLURM_JOB_NODELIST": nodes, "SLURM_STEP_NODELIST": nodes,
            "SLURM_TASKS_PER_NODE": each, "SLURM_STEP_TASKS_PER_NODE": each,
            "SLURM_NTASKS": str(len(hosts)), "SLURM_PROCID": task, "SLURM_NODEID": node,
        }  # fmt: skip
        case = f"For task {task} of {len(hosts)} on {nodes}"
        given = tf_config.check(my_config(environ) or {})
        placed = [address.rpartition(":")[0] for address in given.addresses]
        if len(placed) != len(hosts):
            raise Wrong(f"{case} it names {len(placed)} tasks.")
        if given.task != f"worker {task}":
            raise Wrong(f"{case} it says that this is {given.task}.")
        if placed != hosts:
            raise Wrong(f"{case} the workers are on {', '.join(placed)}. Slurm assigns in blocks.")


LECTURE_12 = {
    "12.sync_step": Task(
        "Four workers need 30, 32, 31 and 90 ms for their gradients. Adding the gradients up takes "
        "5 ms more. How many ms does one synchronous step take?",
        number(95, "ms"),
        ("Which worker has to be ready before the sum can be finished?",),
        "answer = max(30, 32, 31, 90) + 5",
        "Three workers are ready after 32 ms at most, and then wait for the straggler.",
    ),
    "12.stragglers": Task(
        "A worker is late in 1 % of its steps, at random. In how many % of the synchronous steps "
        "of 100 such workers is at least one late?",
        number(63.4, "%", within=0.01),
        (
            "In what share of the steps is none late?",
            "All hundred must be in time at once: 0.99 × 0.99 × …",
        ),
        """
none_late = 0.99**100
answer = 100 * (1 - none_late)
""",
        "Rare for one worker, usual for a hundred: 1 - 0.99 to the power of 100.",
        difficulty=2,
    ),
    "12.async_rate": Task(
        "Four asynchronous workers need 30, 30, 30 and 90 ms for a gradient. How many gradients a "
        "second do they push together?",
        number(111.1, "gradients/s", within=0.01),
        ("How many gradients a second does each of them push?", "Then add up."),
        "answer = sum(1 / seconds for seconds in (0.030, 0.030, 0.030, 0.090))",
        "111 a second. Synchronous training uses four in 90 ms: 44 a second.",
    ),
    "12.my_server": Task(
        "Write my_server(inbox, weights, rate): answer each pull, apply each push at once, and "
        "return the last weights and a list with the staleness of each push.",
        function(examine_server),
        (
            'message.kind is "pull" or "push". A pull needs message.reply(weights, version).',
            "A push has message.gradient. Subtract rate × gradient from the weights; that makes a "
            "new version.",
            "The staleness of a push is version - message.version, before the version grows.",
        ),
        """
def my_server(inbox, weights, rate):
    version, staleness = 0, []
    for message in inbox:
        if message.kind == "pull":
            message.reply(weights, version)
        else:
            weights = weights - rate * message.gradient
            staleness.append(version - message.version)
            version += 1
    return weights, staleness
""",
        "A parameter server is a loop with two branches; each message is handled at once.",
        difficulty=2,
    ),
    "12.my_step": Task(
        "Write my_step(seconds, backups): after how many seconds the weights are updated. seconds "
        "has the time of the gradient of each worker; the last backups gradients are not used.",
        same_as(
            lambda seconds, backups: sorted(seconds)[len(seconds) - 1 - backups],
            ([30, 32, 31, 90], 0),
            ([30, 32, 31, 90], 1),
            ([5, 4, 3, 2, 1], 2),
            ([7], 0),
        ),
        ("Without backups it is the time of the slowest.", "Sort the times."),
        """
def my_step(seconds, backups):
    used = len(seconds) - backups
    return sorted(seconds)[used - 1]
""",
        "One backup hides one straggler, and its gradient is computed for nothing.",
    ),
}

LECTURE_13 = {
    "13.my_staleness": Task(
        "Write my_staleness(log): a list with the staleness of each push, in order. The log is a "
        'list of (worker, "pull") and (worker, "push").',
        function(_examine_staleness),
        (
            "Each push makes a new version. What was the version when this worker pulled last?",
            "Keep a dictionary: for each worker the version that it has pulled. The staleness of "
            "a push is the current version minus that.",
        ),
        """
def my_staleness(log):
    version, pulled, found = 0, {}, []
    for worker, what in log:
        if what == "pull":
            pulled[worker] = version
        else:
            found.append(version - pulled[worker])
            version += 1
    return found
""",
        "You only need the current version, and the version that each worker has pulled.",
        difficulty=2,
    ),
    "13.mean_staleness": Task(
        "16 equal workers train asynchronously. How stale is a gradient, on average?",
        number(15, "updates"),
        ("While a worker computes one gradient, how many does each of the others push?",),
        "answer = 16 - 1  # each of the others pushes one",
        "Each of the other 15 pushes once between its pull and its push.",
    ),
    "13.slow_staleness": Task(
        "Three workers need 10 ms for a gradient and a fourth needs 50 ms. How stale is a gradient "
        "of the fourth when it arrives?",
        number(15, "updates"),
        ("How many gradients does each fast worker push within 50 ms?", "There are three."),
        """
each_fast_worker = 50 / 10
answer = 3 * each_fast_worker
""",
        "3 × 5. The slowest worker pushes the fewest gradients, and the stalest.",
    ),
    "13.my_descent": Task(
        "Write my_descent(step, delay, updates): a list with x before the first update and after "
        "each. Update k subtracts step × x[k - delay]; before there was an update, x was 1.",
        function(_examine_descent),
        (
            "x = [1.0]; then append x[-1] - step * x[...], as often as there are updates.",
            "max(0, k - delay) keeps the index at 0 or above.",
        ),
        """
def my_descent(step, delay, updates):
    x = [1.0]
    for k in range(updates):
        x.append(x[k] - step * x[max(0, k - delay)])
    return x
""",
        "The only difference from plain gradient descent is the older index.",
        difficulty=2,
    ),
    "13.limit_by_hand": Task(
        "Delay 2, curvature 1: up to which step does the descent stay stable?",
        number(0.61803, within=0.01),
        (
            "Halve the interval between a step with which x converges and one with which it "
            "diverges.",
            "updates.delayed(step, 2, 1000)[-1] is close to 0 below the limit, and huge above it.",
        ),
        """
from labkit import updates

stable, unstable = 0.0, 2.0
while unstable - stable > 1e-4:
    middle = (stable + unstable) / 2
    if max(map(abs, updates.delayed(middle, 2, 2000)[-3:])) < 1:
        stable = middle
    else:
        unstable = middle
answer = stable
""",
        "2 sin(pi / 10) = 0.618. Without a delay it is 2.",
        difficulty=2,
    ),
    "13.rate_of_eight": Task(
        "8 equal workers, so a delay of 7. How many times smaller than without delay is the "
        "largest stable learning rate?",
        number(9.567, "times", within=0.01),
        ("updates.stability_limit computes the limit for a delay.", "Divide two of its results."),
        """
from labkit import updates

answer = updates.stability_limit(0) / updates.stability_limit(7)
""",
        "Nearly ten times for eight workers: dividing by their number is nearly enough.",
    ),
    "13.my_step": Task(
        "Write my_step(delay): a step for each delay from 0 to 20 that brings x from 1 to below "
        "0.001, for good, within 12 × (delay + 1) updates.",
        function(_examine_step),
        (
            "At the limit x no longer converges; the best step lies well below.",
            "updates.stability_limit(delay) is the limit. Which share of it is a good step at "
            "one delay? Try that share at the others.",
        ),
        """
def my_step(delay):
    return updates.stability_limit(delay) / 3
    # Or the largest step without any oscillation:
    #     return delay**delay / (delay + 1) ** (delay + 1)
""",
        "The largest useful step shrinks with the delay, about in proportion: lr ~ 1 / delay.",
        difficulty=2,
    ),
    "13.first_at_the_target": Task(
        "Four workers. Synchronous: 200 steps of 95 ms reach the target. Asynchronous: 111 updates "
        "a second, but 1,500 are needed. By how many seconds is the asynchronous run sooner?",
        number(5.486, "s", within=0.02),
        (
            "How long does the synchronous run take? Steps × seconds of a step.",
            "How long does the asynchronous one take? Updates / updates per second.",
        ),
        """
synchronous = 200 * 0.095
asynchronous = 1500 / 111
answer = synchronous - asynchronous
""",
        "1,500 gradients instead of 800, and still sooner: it computes more gradients a second.",
    ),
    "13.bounded_staleness": Task(
        "A worker of 10 ms a gradient and one of 40 ms; the bound lets no worker be more than 3 "
        "gradients ahead. How many gradients a second does the fast one push in the long run?",
        number(25, "gradients/s", within=0.02),
        (
            "How long can the fast worker stay fast?",
            "Which worker sets the pace once it is 3 gradients ahead?",
        ),
        "answer = 1 / 0.040  # 3 ahead, the fast worker waits for each gradient of the slow one",
        "25 a second, as many as the slow one. A bound absorbs short delays, but no straggler.",
        difficulty=2,
    ),
    "13.eight_gpus": Task(
        "Eight equal GPUs in one machine with fast links. How do you begin: "
        '"synchronous" or "asynchronous"?',
        word("synchronous"),
        ("How much would each of them wait for the others?",),
        'answer = "synchronous"  # equal devices hardly wait for each other',
        "Equal workers hardly wait: asynchronous training gains little and pays with staleness.",
    ),
    "13.borrowed_laptops": Task(
        "Forty borrowed laptops, fast and slow ones; some are closed in the middle of the day. "
        'How do you begin: "synchronous" or "asynchronous"?',
        word("asynchronous"),
        ("Which of the two continues when one laptop does not answer?",),
        'answer = "asynchronous"  # a synchronous step waits for every worker',
        "No worker waits for the slowest, or for one that has left. Lower the learning rate.",
    ),
}

LECTURE_14 = {
    "14.count_primes": Task(
        f"Write my_count(rank): how many primes are in this rank's share of the numbers below "
        f"{LIMIT:,}. Together the ranks must test every number once, on 4 ranks and on 3.",
        _count_primes,
        (
            "labkit.cluster.this_rank().ranks says how many ranks there are.",
            "range(rank, limit, ranks) is one way to shard the numbers.",
        ),
        """
import labkit

def is_prime(number):
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))

def my_count(rank, limit=20_000):
    ranks = labkit.cluster.this_rank().ranks
    return sum(is_prime(number) for number in range(rank, limit, ranks))
""",
        "2,262 primes, counted by four processes, and by three.",
    ),
    "14.second_of_three": Task(
        "Three machines, node1, node2 and node3, are workers; each listens on port 23450. Write "
        "the TF_CONFIG of node2, as a dictionary or as JSON.",
        _tf_config("worker 1", worker="node1:23450 node2:23450 node3:23450"),
        (
            "Two entries: cluster, the same for all, and task, of this machine.",
            'cluster is {"worker": [three addresses]}; task has type and index, from 0 on.',
        ),
        """
my_tf_config = {
    "cluster": {"worker": ["node1:23450", "node2:23450", "node3:23450"]},
    "task": {"type": "worker", "index": 1},
}
""",
        "Only the index differs from the TF_CONFIG of node1 and node3.",
    ),
    "14.my_share": Task(
        "Write my_share(rank, ranks, images): the numbers of the images that a rank trains on. "
        "Every image belongs to exactly one rank, and no rank has two images more than another.",
        function(_examine_share),
        (
            "Assign the images in turn: rank 0 gets 0, ranks, 2 × ranks, …",
            "A range with a step of `ranks` does it.",
        ),
        """
def my_share(rank, ranks, images):
    return range(rank, images, ranks)
""",
        "Each image once, whatever the number of ranks.",
    ),
    "14.global_batch": Task(
        "Three machines with four GPUs each, 64 images a replica. What is the global batch?",
        number(768, "images"),
        ("How many replicas are in sync? Not as many as there are workers.",),
        """
replicas = 3 * 4
answer = replicas * 64
""",
        "12 replicas in 3 workers: strategy.num_replicas_in_sync counts replicas.",
    ),
    "14.images_read": Task(
        "60,000 images, 4 workers, sharded by data. How many images does each worker read in an "
        "epoch, from the beginning of its input pipeline?",
        number(60_000, "images"),
        (
            "Sharding by data happens at the end of the input pipeline, not at its files.",
            "What does a worker do with the images of the other workers?",
        ),
        """
kept = 60_000 / 4
dropped = 60_000 - kept  # those of other workers: read, and not used
answer = kept + dropped
""",
        "It keeps 15,000 and drops 45,000. By file it would open only its own.",
        difficulty=2,
    ),
    "14.files": Task(
        "10 equal files, 4 workers, sharded by file. How many does the busiest worker read?",
        number(3, "files"),
        ("10 / 4 is not a whole number: a file is not divided.",),
        """
from math import ceil

answer = ceil(10 / 4)
""",
        "Two workers have three files, two have two: at the end of the epoch some wait.",
    ),
    "14.worker_loop": Task(
        "Write my_train(strategy, make_model, dataset, global_batch, folder): restore the last "
        "checkpoint of the folder if there is one, train one pass with plain SGD, learning rate "
        "0.1, and save a checkpoint in the folder. Return the model and the list of the loss of "
        "each step. Two workers run it, twice.",
        worker_loop(),
        (
            "The loop is that of lecture 03; global_batch is that of both workers.",
            "tf.train.Checkpoint(model=model, optimizer=optimizer) restores "
            "tf.train.latest_checkpoint(folder) on every worker, before the first step.",
            "The chief alone saves: the worker whose strategy.cluster_resolver.task_id is 0.",
        ),
        """
import keras
import tensorflow as tf

def my_train(strategy, make_model, dataset, global_batch, folder):
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    checkpoint.restore(tf.train.latest_checkpoint(folder))

    def step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(images, labels):
        losses = strategy.run(step, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    losses = [train_step(images, labels) for images, labels in batches]
    if strategy.cluster_resolver.task_id == 0:
        checkpoint.save(f"{folder}/pass")
    return model, losses
""",
        "Both workers hold the weights of the serial program, also after the restart.",
        difficulty=3,
    ),
    "14.steps_of_workers": Task(
        "100,003 images, 4 workers. Each worker makes batches of 250 from its own shard, the "
        "images at every fourth place; the last batch may be smaller, and nothing is repeated. "
        "How many steps can all four make together?",
        number(100, "steps"),
        ("How many images are in the smallest shard?", "A step needs all four workers."),
        """
sizes = [len(range(worker, 100_003, 4)) for worker in range(4)]
answer = min(-(-size // 250) for size in sizes)
""",
        "Three workers have 25,001 images and would make a 101st step, but the fourth has 25,000.",
        difficulty=2,
    ),
    "14.my_steps": Task(
        "Write my_steps(images, batch, replicas, workers, drop_remainder): how many steps one "
        "epoch of a finite dataset of global batches has. Each of the replicas of each of the "
        "workers gets batch images.",
        same_as(
            lambda images, batch, replicas, workers, drop_remainder: (
                int if drop_remainder else ceil
            )(images / (batch * replicas * workers)),
            (60_000, 32, 1, 1, True),
            (60_000, 64, 2, 4, True),
            (60_000, 64, 2, 4, False),
            (1_280, 32, 4, 2, False),
            (100, 64, 2, 2, True),
            (100, 64, 2, 2, False),
        ),
        (
            "The global batch is batch × replicas × workers.",
            "drop_remainder=True rounds down, False rounds up.",
        ),
        """
def my_steps(images, batch, replicas, workers, drop_remainder):
    global_batch = batch * replicas * workers
    full, rest = divmod(images, global_batch)
    return full if drop_remainder or rest == 0 else full + 1
""",
        "Rounded down or up: the remainder is dropped, or is one more and smaller step.",
        difficulty=2,
    ),
}

LECTURE_15 = {
    "15.lost_update": Task(
        "A counter on the server holds 5. Two workers read it, each adds 1 to what it read, each "
        "writes its result. What does the counter hold?",
        number(6),
        ("Both workers have read the same number.", "What does each of them write?"),
        """
counter = 5
first = counter  # both read before one of them writes
second = counter
counter = first + 1
counter = second + 1
answer = counter
""",
        "A race condition: an unsynchronised read-modify-write loses updates.",
    ),
    "15.parameter_server": Task(
        "Machine a is the chief, b, c and d are workers, e is the parameter server; all listen on "
        "port 12345. Write the TF_CONFIG of e.",
        _tf_config("ps 0", chief="a:12345", worker="b:12345 c:12345 d:12345", ps="e:12345"),
        (
            "Three roles: chief, worker and ps, each a list of addresses.",
            "The index counts within a role, from 0.",
        ),
        """
my_servers_config = {
    "cluster": {
        "chief": ["a:12345"],
        "worker": ["b:12345", "c:12345", "d:12345"],
        "ps": ["e:12345"],
    },
    "task": {"type": "ps", "index": 0},
}
""",
        "The fifth machine is rank 4, and ps 0: ranks count through all roles, indices do not.",
    ),
    "15.schedule": Task(
        "Write my_lead(coordinator, make_model, make_dataset, steps): the workers make so many "
        "steps with SGD, learning rate 0.1. Return the model, and the number of updates as "
        "counted by a variable on the parameter server.",
        coordinator_loop(),
        (
            "Make the model, the optimizer and the counter (a tf.Variable) inside "
            "coordinator.strategy.scope().",
            "A tf.function takes an iterator and makes one step with strategy.run; "
            "coordinator.create_per_worker_dataset(make_dataset) gives each worker its iterator.",
            "coordinator.schedule(step, args=(batches,)) for each step, then coordinator.join(). "
            "Count with assign_add inside the step.",
        ),
        """
import keras
import tensorflow as tf

def my_lead(coordinator, make_model, make_dataset, steps):
    strategy = coordinator.strategy
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        updates = tf.Variable(0, dtype=tf.int64)

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    @tf.function
    def step(batches):
        strategy.run(replica_step, args=next(batches))
        updates.assign_add(1)

    batches = iter(coordinator.create_per_worker_dataset(make_dataset))
    for _ in range(steps):
        coordinator.schedule(step, args=(batches,))
    coordinator.join()
    return model, updates.numpy()
""",
        "The workers made every step once, and the counter lost none.",
        difficulty=3,
    ),
    "15.server_bytes": Task(
        "A model of 400 MB, 8 workers, 4 parameter servers that share the weights evenly. Each "
        "worker makes one step: it fetches all weights and sends all gradients. How many MB pass "
        "through each server?",
        number(1600, "MB"),
        (
            "First all bytes: each of 8 workers moves the model twice.",
            "Each server has a quarter of the weights, and so a quarter of the bytes.",
        ),
        """
one_worker = 400 + 400  # weights and gradients
answer = 8 * one_worker / 4
""",
        "With one server it would be 6.4 GB: its traffic grows with the number of workers.",
        difficulty=2,
    ),
    "15.which_strategy": Task(
        "One machine has four GPUs of 40 GB and 512 GB of main memory. The weights of your model "
        "take 100 GB, and each step touches a small part of them. Which strategy of TensorFlow is "
        "made for that?",
        word("CentralStorageStrategy"),
        ("A mirrored variable has a copy on every GPU.", "Where would one copy for all fit?"),
        'answer = "CentralStorageStrategy"  # 100 GB fit into 512 GB once, and into no GPU of 40',
        "One copy, in main memory. It is still called experimental, and is for one machine.",
    ),
    "15.which_fault": Task(
        "Synchronous workers train, and one has a fault. After which do all workers stop making "
        "steps, though no process has ended and no connection is closed: "
        '"kill", "hang" or "slow"?',
        word("hang"),
        (
            "Which fault did the others notice at once?",
            "After which did they continue to make steps?",
        ),
        'answer = "hang"  # a killed process closes its connections, a slow one still makes steps',
        "A dead process closes its connections; a hanging one does not. Only a timeout finds it.",
    ),
    "15.failures": Task(
        "A machine fails once in 1,095 days, on average. Your training runs on 500 of them, and "
        "one failure stops it. How many hours does it run between two failures, on average?",
        number(52.56, "hours", within=0.01),
        ("500 machines fail 500 times as often as one.", "A day has 24 hours."),
        """
days = 1095 / 500
answer = days * 24
""",
        "Every two days. On a large cluster restarts are normal: the program must support them.",
    ),
    "15.lost_work": Task(
        "A step takes 0.2 s, a checkpoint is written after every 100 steps, and a worker is killed "
        "right after step 374. How many seconds of training are done again?",
        number(14.8, "s", within=0.01),
        ("After which step was the last checkpoint written?", "How many steps came after it?"),
        """
last_checkpoint = 374 // 100 * 100
answer = (374 - last_checkpoint) * 0.2
""",
        "Steps 301 to 374. On average half of the interval is lost.",
    ),
    "15.checkpoint_interval": Task(
        "Writing a checkpoint takes 6 s. On average 6 hours pass between two failures. After how "
        "many seconds of training should the next checkpoint be written?",
        number(509.1, "s", within=0.02),
        (
            "The square root of 2 × seconds to write × seconds between failures.",
            "6 hours are 21,600 seconds.",
        ),
        """
from math import sqrt

answer = sqrt(2 * 6 * (6 * 3600))
""",
        "About eight and a half minutes; then writing and doing again cost about 1.2 % each.",
        difficulty=2,
    ),
}

LECTURE_16 = {
    "16.ranks": Task(
        "A job asks for --nodes=3 and --ntasks-per-node=4. How many processes does srun start?",
        number(12, "processes"),
        ("One for each task, on each node.",),
        "answer = 3 * 4",
        "12 processes run the same program; SLURM_PROCID tells them apart.",
    ),
    "16.rank_on_node": Task(
        "The same job, ranks in blocks. Which SLURM_PROCID has the first task on the third node?",
        number(8),
        ("How many tasks are on the two nodes before it?", "Ranks begin with 0."),
        "answer = 2 * 4  # ranks 0 to 7 are on the first two nodes",
        "8, and its SLURM_LOCALID is 0: the rank within the node, which selects the GPU.",
    ),
    "16.memory": Task(
        "Two ranks run on each node, and each needs 24 GB. Which number belongs into --mem=...G?",
        number(48, "GB"),
        ("--mem is for a whole node, not for a rank.",),
        "answer = 2 * 24",
        "48 GB for each node. --mem-per-cpu is per core: do not confuse the two.",
    ),
    "16.cpus": Task(
        "A node has 64 cores and 4 GPUs, and each GPU one rank. How many cores are the fair share "
        "of a rank?",
        number(16, "cores"),
        ("A job on one of four GPUs leaves three for others, and they need cores, too.",),
        "answer = 64 / 4",
        "--cpus-per-task=16. A job with 1 GPU and all 64 cores leaves three GPUs unusable.",
    ),
    "16.time": Task(
        "How many seconds does --time=2:30 give you?",
        number(150, "s"),
        ("Two numbers are minutes and seconds.",),
        "answer = 2 * 60 + 30",
        "Two and a half minutes. For hours write 2:30:00.",
    ),
    "16.hosts": Task(
        f"Slurm says {NODES}. Write the list of the machines.",
        _hosts,
        ("A bracket stands for several names; zeros in front stay.", "01-03 are three machines."),
        'my_hosts = ["node01", "node02", "node03", "node07", "gpu5"]',
        "In a terminal `scontrol show hostnames` does it, in Python tf_config.hosts_of.",
    ),
    "16.my_config": Task(
        "Write my_config(environ): the TF_CONFIG (a dictionary) of the task with that environment. "
        "All are workers, on port 23450; a second task on one machine takes the next port.",
        function(_examine_config),
        (
            "hosts_of(environ['SLURM_JOB_NODELIST']) are the machines; environ['SLURM_NTASKS'] is "
            "the number of tasks, as text.",
            "Each machine has as many tasks as the others, and they follow each other: first all "
            "of machine 0, then all of machine 1.",
            "The index of this task is int(environ['SLURM_PROCID']).",
        ),
        """
from labkit.cluster.tf_config import hosts_of

def my_config(environ):
    machines = hosts_of(environ["SLURM_JOB_NODELIST"])
    each = int(environ["SLURM_NTASKS"]) // len(machines)
    workers = [f"{machine}:{23450 + task}" for machine in machines for task in range(each)]
    task = {"type": "worker", "index": int(environ["SLURM_PROCID"])}
    return {"cluster": {"worker": workers}, "task": task}
""",
        "The same program runs on every machine, and each process finds its own rank.",
        difficulty=2,
    ),
    "16.header": Task(
        "Write a batch script: 2 nodes of the partition alpha for 1 hour; on each node one rank "
        "with 1 GPU, 14 cores and 64 GB. It starts python train.py on every rank.",
        batch_script(nodes=2, ranks=2, gpus=1, cores=14, memory=64, minutes=60, partition="alpha"),
        (
            "The first line is #!/bin/bash. Then seven options, a #SBATCH line each: partition, "
            "nodes, ntasks-per-node, gres, cpus-per-task, mem, time.",
            "srun starts a program once for every rank.",
            "Since Slurm 22.05 srun needs its own --cpus-per-task=$SLURM_CPUS_PER_TASK.",
        ),
        '''
my_script = """#!/bin/bash
#SBATCH --partition=alpha
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=14
#SBATCH --mem=64G
#SBATCH --time=1:00:00

srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py
"""
''',
        "It requests what the ranks need, and srun passes the cores on to them.",
        difficulty=2,
    ),
    "16.fix": Task(
        "The script must run 8 ranks on 4 nodes of the partition ml for 8 hours: on each node 2 "
        "GPUs and 100 GB, for each rank 6 cores. It has four mistakes. Fix them.",
        batch_script(nodes=4, ranks=8, gpus=2, cores=6, memory=100, minutes=480, partition="ml"),
        (
            "Read each line as sbatch does: which begin with #SBATCH, and where do the options "
            "end?",
            "How long is 8:00?",
            "Without srun the program runs once. Since Slurm 22.05 srun needs its own "
            "--cpus-per-task.",
        ),
        '''
my_fixed_script = """#!/bin/bash
#SBATCH --partition=ml
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=6
#SBATCH --mem=100G
#SBATCH --time=8:00:00
#SBATCH --gres=gpu:2
module load Python
srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py
"""
''',
        "A blank after # makes an option a comment. 8:00 is eight minutes. sbatch reads no option "
        "after the first command. Without srun the program runs once, on the first node; without "
        "its own --cpus-per-task srun requests one core for each rank.",
        difficulty=2,
        given=FIX,
    ),
    "16.first_cause": Task(
        "Three ranks have failed. Rank 0: UnavailableError, Connection reset by peer. Rank 1: "
        "DeadlineExceededError, waited for rank 2. Rank 2: ResourceExhaustedError, out of memory. "
        "Which rank is the cause?",
        number(2),
        ("Two of them report another rank's failure.",),
        "answer = 2  # ranks 0 and 1 lost rank 2; it alone failed by itself",
        "The errors of the other ranks are consequences, and often they are the last in the log.",
    ),
}

LECTURE_17 = {
    "17.gpu_hours": Task(
        "2 nodes with 4 GPUs each for 3.5 hours. How many GPU hours are charged?",
        number(28, "GPU hours"),
        ("An allocation is charged, whether you use it or not.",),
        "answer = 2 * 4 * 3.5",
        "Also if TF_CONFIG was not set, and eight processes trained the same model eight times.",
    ),
    "17.done_after": Task(
        "On one GPU a training runs 8 hours and need not wait. Four GPUs wait 3 hours and run at "
        "an efficiency of 90 %. After how many hours are you done with four?",
        number(5.222, "hours", within=0.01),
        ("Waiting plus running.", "Four at 90 % are as good as how many?"),
        """
running = 8 / (4 * 0.9)
answer = 3 + running
""",
        "Sooner than one GPU by almost three hours, for 8.9 GPU hours instead of 8.",
    ),
    "17.longest_wait": Task(
        "The same training. From how many hours of waiting on is one GPU the better choice?",
        number(5.778, "hours", within=0.01),
        ("Which wait is as long as the time that four GPUs save?",),
        """
running = 8 / (4 * 0.9)
answer = 8 - running
""",
        "5.8 hours. A longer wait in the queue costs more than the devices save.",
    ),
    "17.soonest": Task(
        "Of 8 devices A holds 4 until hour 8, and B, first in the queue, wants all 8 for 12 hours. "
        "You come at hour 1, with a training of 24 device hours at an efficiency of 100 %. "
        "With how many devices (1, 2, 3, 4, 6 or 8) are you done first?",
        number(4, "devices"),
        (
            "4 devices are free until hour 8, when B begins. A job that ends before may be "
            "backfilled.",
            "Let queue_model.queue try all six: n devices for 24 / n hours.",
        ),
        """
from labkit.cluster.queue_model import Request, queue

def done(devices):
    yours = Request("you", 1.0, devices, 24 / devices)
    placed = queue([Request("A", 0, 4, 8.0), Request("B", 0.5, 8, 12.0), yours], devices=8)
    return next(one.end for one in placed.started if one.request is yours)

answer = min((1, 2, 3, 4, 6, 8), key=done)
""",
        "Backfilling: on four free devices you end before B can begin; on three you would not.",
        difficulty=3,
    ),
    "17.my_start": Task(
        "Write my_start(devices, limit, free, hours, spare): may a small job start now? It "
        "requests devices for at most limit hours, and `free` devices are free. The large job that "
        "is first in the queue can begin in `hours` hours, and leaves `spare` of the devices that "
        "are free now. Return True or False.",
        same_as(
            lambda devices, limit, free, hours, spare: (
                devices <= free and (limit <= hours or devices <= spare)
            ),
            (2, 3, 3, 3, 0),
            (2, 4, 3, 3, 0),
            (4, 1, 3, 3, 0),
            (1, 24, 3, 3, 1),
            (2, 24, 3, 3, 1),
        ),
        (
            "It may not delay the large job.",
            "Either it ends before the large job begins, or it takes devices that are spare.",
        ),
        """
def my_start(devices, limit, free, hours, spare):
    return devices <= free and (limit <= hours or devices <= spare)
""",
        "This is backfilling. It uses the limit of a job, not the time that the job will take.",
        difficulty=2,
    ),
    "17.my_devices": Task(
        "Write my_devices(waits, runs): with how many devices you are done first. Both are "
        "dictionaries by the number of devices: hours in the queue, and hours of the training.",
        same_as(
            lambda waits, runs: min(waits, key=lambda devices: waits[devices] + runs[devices]),
            ({1: 0.5, 2: 1.0, 4: 6.0}, {1: 12.0, 2: 6.5, 4: 3.5}),
            ({1: 0, 8: 1}, {1: 8, 8: 1}),
            ({4: 3, 1: 0}, {4: 2.3, 1: 5}),
        ),
        ("From submission to the last step: add both.", "min takes a key."),
        """
def my_devices(waits, runs):
    return min(runs, key=lambda devices: waits[devices] + runs[devices])
""",
        "The number that runs fastest need not be it.",
    ),
}

TASKS = LECTURE_12 | LECTURE_13 | LECTURE_14 | LECTURE_15 | LECTURE_16 | LECTURE_17
