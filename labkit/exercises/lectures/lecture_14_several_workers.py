"""The tasks of lecture 14: several workers."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from labkit.exercises.judges.answers import function, function_task, judged, number, numbers_in
from labkit.exercises.judges.cluster_loops import cluster_config, worker_loop
from labkit.exercises.task import Task, Wrong

LIMIT, PRIMES = 20_000, 2262  # below the limit


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

    for ranks in (4, 3):
        with Cluster(ranks) as c:
            found = c.run(my_count, show=False)
        total = sum(numbers_in(found, "a whole number on each rank"))
        counts = f"On {ranks} ranks it counted {found}"
        if total != PRIMES:
            raise Wrong(f"{counts}: {total:g} together, too {'few' if total < PRIMES else 'many'}.")
        if max(found) > 0.6 * PRIMES:
            raise Wrong(f"{counts}: one rank has done most of the work.")


TASKS = {
    "14.count_primes": Task(
        f"Write my_count(rank): how many primes are in this rank's share of the numbers below "
        f"{LIMIT:,}. Together the ranks must test every number once, on 4 ranks and on 3.",
        judged(_count_primes),
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
        cluster_config("worker 1", worker="node1:23450 node2:23450 node3:23450"),
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
        slips={192: "Count the replicas, not the machines."},
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
        slips={15_000: "These it keeps; what does it read?"},
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
        "checkpoint of the folder if there is one, train one pass over all images with plain SGD, "
        "learning rate 0.1, and save a checkpoint in the folder. The loss of a step is the sum of "
        "its images' losses, divided by global_batch, also if the last batch is smaller. Return "
        "the model and the list of the loss of each step. Two workers run it, twice.",
        worker_loop,
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
    "14.my_steps": function_task(
        "Write my_steps(images, batch, replicas, workers, drop_remainder): how many steps one "
        "epoch of a finite dataset of global batches has. Each of the replicas of each of the "
        "workers gets batch images.",
        [
            (60_000, 32, 1, 1, True),
            (60_000, 64, 2, 4, True),
            (60_000, 64, 2, 4, False),
            (1_280, 32, 4, 2, False),
            (1_281, 32, 4, 2, False),
            (100, 64, 2, 2, True),
            (100, 64, 2, 2, False),
        ],
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
        slips=[
            (
                "batch * replicas * workers",
                "batch",
                "batch is that of one replica; a step takes batch × replicas × workers.",
            ),
            (
                "drop_remainder or",
                "not drop_remainder or",
                "drop_remainder=True rounds down, False rounds up.",
            ),
            (" or rest == 0", "", "The last batch is smaller only if there is a remainder."),
        ],
        difficulty=2,
    ),
}
