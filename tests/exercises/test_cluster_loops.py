"""Programs for several processes, run by them: correct ones pass, each fault is named.

What the weights, images and losses of a worker tell is what they tell in test_training_loops.
"""

import json
import os
from contextlib import nullcontext

import keras
import pytest
import tensorflow as tf

from labkit.exercises.judges import cluster_loops
from labkit.exercises.judges.cluster_loops import coordinator_loop, worker_loop
from labkit.exercises.task import Wrong
from tests.exercises.cells import changed, refused
from tests.exercises.test_training_loops import entropy

pytestmark = pytest.mark.usefixtures("four")
WORKER, LEAD = worker_loop, coordinator_loop


def worker(*, share=True, save="chief", restore="all", chief_steps=False):
    """A worker's program of one's own, right unless told otherwise."""

    def train(strategy, make_model, dataset, global_batch, folder):
        index = strategy.cluster_resolver.task_id
        with strategy.scope():
            model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
        path = tf.train.latest_checkpoint(folder)
        if path and (restore == "all" or (restore == "chief" and index == 0)):
            checkpoint.restore(path)
        options = tf.data.Options()
        policies = tf.data.experimental.AutoShardPolicy
        options.experimental_distribute.auto_shard_policy = policies.DATA if share else policies.OFF
        batches = strategy.experimental_distribute_dataset(
            dataset.batch(global_batch).with_options(options)
        )

        def step(images, labels):
            with tf.GradientTape() as tape:
                losses = entropy(labels, model(images, training=True))
                loss = tf.reduce_sum(losses) / global_batch
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function
        def train_step(images, labels):
            return strategy.reduce("SUM", strategy.run(step, args=(images, labels)), axis=None)

        if save == "early" and index == 0:
            checkpoint.save(f"{folder}/model")
        losses = [train_step(images, labels) for images, labels in batches]
        if chief_steps and index == 0:
            train_step(*next(iter(batches)))
        if save == "all" or (save == "chief" and index == 0):
            checkpoint.save(f"{folder}/model")
        return model, losses

    return train


def in_folders_of_their_own(strategy, make_model, dataset, global_batch, folder):
    """As TensorFlow's guide does: all save, each in a folder; the dataset is from a function."""
    role = json.loads(os.environ["TF_CONFIG"])["task"]
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(learning_rate=0.1)
    manager_folder = folder if role["index"] == 0 else f"{folder}-worker-{role['index']}"
    checkpoint = tf.train.Checkpoint(model=model)
    checkpoint.restore(tf.train.latest_checkpoint(folder))
    total = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def of_one_worker(context):
        share = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return share.batch(context.get_per_replica_batch_size(global_batch))

    @tf.function
    def train_step(iterator):
        def step(batch):
            with tf.GradientTape() as tape:
                loss = total(batch[1], model(batch[0], training=True)) / global_batch
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
            return loss

        return strategy.reduce("SUM", strategy.run(step, args=(next(iterator),)), axis=None)

    batches = iter(strategy.distribute_datasets_from_function(of_one_worker))
    losses = [float(train_step(batches)) for _ in range(6)]
    tf.train.CheckpointManager(checkpoint, manager_folder, max_to_keep=1).save()
    return model, losses


def chief(*, join=True, count="assign_add", times=1, schedule=True, scope=True, apply=True,
          run=True):  # fmt: skip
    """A chief's program of one's own, right unless told otherwise."""

    def lead(coordinator, make_model, make_dataset, steps):
        with coordinator.strategy.scope():
            optimizer, counter = keras.optimizers.SGD(0.1), tf.Variable(0, dtype=tf.int64)
        with coordinator.strategy.scope() if scope else nullcontext():
            model = make_model()
        calls = [0]

        def update(images, labels):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(entropy(labels, model(images, training=True)))
            gradients = tape.gradient(loss, model.trainable_variables)
            if apply:
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        @tf.function
        def step(batches):
            images, labels = next(batches)
            if run:
                coordinator.strategy.run(update, args=(images, labels))
            else:
                update(images, labels)
            calls[0] += 1
            if count == "assign_add":
                counter.assign_add(1)
            if count == "assign":
                counter.assign(counter + 1)

        make = coordinator.create_per_worker_dataset if schedule else lambda make: make()
        batches = iter(make(make_dataset))
        for _ in range(times * steps):
            if schedule:
                coordinator.schedule(step, args=(batches,))
            else:
                step(batches)
        if join:
            coordinator.join()
        if count == "schedule":
            return model, times * steps
        return model, calls[0] if count == "calls" else counter

    return lead


def own_update(coordinator, make_model, make_dataset, steps):
    """Without strategy.run and without an optimizer; the number of updates is a Python number."""
    with coordinator.strategy.scope():
        model, done = make_model(), tf.Variable(0.0)

    @tf.function
    def step(iterator):
        images, labels = next(iterator)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(entropy(labels, model(images, training=True)))
        weights = [variable.value for variable in model.trainable_variables]
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        done.assign_add(1.0)

    iterator = iter(coordinator.create_per_worker_dataset(make_dataset))
    for _ in range(steps):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    return model, int(done.numpy())


def more(*case):
    """A case that only `make stress` runs: each takes seconds."""
    return pytest.param(*case, marks=pytest.mark.stress, id=case[-1])


WRONG = [
    (WORKER, worker(share=False), "the same 8 images"),
    (WORKER, worker(save="all"), "Both workers wrote"),
    more(WORKER, worker(save="early"), "before the training: save after"),
    (WORKER, worker(restore="chief"), "Every worker must restore"),
    (WORKER, lambda s, m, d, g, f: 1 / 0, "On worker 0: It raised ZeroDivisionError"),
    (LEAD, chief(join=False), "coordinator.join()"),
    (LEAD, chief(count="assign"), "race condition"),
    more(LEAD, chief(times=2), "600 updates were made"),
    (LEAD, chief(count="schedule"), "no variable on the parameter server"),
    (LEAD, chief(schedule=False), "The chief made the steps by itself"),
    (LEAD, chief(run=False), "strategy.run"),
]


@pytest.mark.stress
@pytest.mark.parametrize(
    ("judge", "program"), [(WORKER, in_folders_of_their_own), (LEAD, own_update)]
)
def test_a_correct_program_passes_in_another_style(judge, program):
    judge(program)


@pytest.mark.parametrize(("judge", "program", "words"), WRONG)
def test_a_wrong_program_is_told_what_is_wrong(judge, program, words):
    with pytest.raises(Wrong) as fault:
        judge(program)
    assert words in str(fault.value), fault.value


@pytest.mark.stress
def test_a_worker_that_makes_a_step_alone_is_told_so(monkeypatch):
    monkeypatch.setattr(cluster_loops, "TIMEOUT", 3.0)
    with pytest.raises(Wrong, match="every worker must make every step"):
        WORKER(worker(chief_steps=True))


BATCHES = "dataset.batch(global_batch)"
SCHEDULE = "        coordinator.schedule(step, args=(batches,))\n"
COUNT = "        updates.assign_add(1)\n"
SGD = "SGD(0.1)"
SLIPS = [
    ("14.worker_loop", BATCHES, f"{BATCHES[:-1]}, drop_remainder=True)", "the last batch has 11"),
    more("14.worker_loop", BATCHES, "dataset.repeat().batch(global_batch).take(6)", "Step 6 used"),
    more(
        "14.worker_loop",
        "tf.nn.compute_average_loss(losses, global_batch_size=global_batch)",
        "tf.reduce_mean(losses) / strategy.num_replicas_in_sync",
        "Divide its loss by global_batch, too",
    ),
    more(
        "14.worker_loop",
        "    if strategy.cluster_resolver.task_id == 0:\n",
        "    if strategy.cluster_resolver.task_id == 0:\n"
        "        strategy.reduce('SUM', losses[0], axis=None)\n",
        "every worker must make every step",
    ),
    ("15.schedule", SCHEDULE, f"{SCHEDULE}        coordinator.join()\n", "The chief waited 299"),
    more("15.schedule", COUNT, "", "and you counted 0"),
    more(
        "15.schedule",
        f"    for _ in range(steps):\n{SCHEDULE}",
        "    @tf.function\n    def all_steps(batches):\n        for _ in tf.range(steps):\n"
        "            step(batches)\n    coordinator.schedule(all_steps, args=(batches,))\n",
        "one worker makes them all",
    ),
    ("15.restart", ".skip(int(done.numpy()))", "", "the images begin anew"),
    more("15.restart", "if done.numpy() % 2 == 0 and", "if", "4 checkpoints were saved"),
    ("15.restart", ", optimizer=optimizer", "", "momentum begins anew"),
    more("15.restart", "% 2 == 0", "% 10 == 0", "the folder is empty"),
    more("15.restart", ", momentum=0.9", "", "SGD(0.1, momentum=0.9)"),
    more(
        "15.restart",
        "    checkpoint.restore(",
        "    strategy.cluster_resolver.task_id or checkpoint.restore(",
        "Every worker must restore",
    ),
]


@pytest.mark.parametrize(("task", "old", "new", "words"), SLIPS)
def test_a_solution_with_one_mistake_is_told_it(task, old, new, words):
    refused(task, changed(task, old, new), words)
