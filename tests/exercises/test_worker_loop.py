"""A worker's program, run by two workers: correct ones pass in any style, each fault is named."""

import json
import os

import keras
import pytest
import tensorflow as tf

from labkit.exercises.task import Unanswered, Wrong
from labkit.exercises.worker_loop import worker_loop

judge = worker_loop()


def batched(dataset, size, policy="DATA"):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = getattr(
        tf.data.experimental.AutoShardPolicy, policy
    )
    return dataset.batch(size).with_options(options)


def loop(*, local=False, policy="DATA", distribute=True, mean=False, reduce=True, save="chief",
         restore="all", scope=True, chief_steps=False, index_from_file=None):  # fmt: skip
    """A worker's program of one's own, right unless told otherwise."""

    def train(strategy, make_model, dataset, global_batch, folder):
        index = strategy.cluster_resolver.task_id
        if scope:
            with strategy.scope():
                model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        else:
            model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
        path = tf.train.latest_checkpoint(folder)
        if path and (restore == "all" or (restore == "chief" and index == 0)):
            checkpoint.restore(path)
        share = global_batch // (2 if local else 1)
        batches = batched(dataset, share, policy)
        if distribute:
            batches = strategy.experimental_distribute_dataset(batches)

        def step(images, labels):
            with tf.GradientTape() as tape:
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, model(images, training=True)
                )
                loss = tf.reduce_mean(each) if mean else tf.reduce_sum(each) / global_batch
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function
        def train_step(images, labels):
            each = strategy.run(step, args=(images, labels))
            return strategy.reduce("SUM", each, axis=None) if reduce else each

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
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def of_one_worker(context):
        share = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return share.batch(context.get_per_replica_batch_size(global_batch))

    @tf.function
    def train_step(iterator):
        def step(batch):
            with tf.GradientTape() as tape:
                loss = entropy(batch[1], model(batch[0], training=True)) / global_batch
            weights = model.trainable_variables
            optimizer.apply(tape.gradient(loss, weights), weights)
            return loss

        return strategy.reduce("SUM", strategy.run(step, args=(next(iterator),)), axis=None)

    batches = iter(strategy.distribute_datasets_from_function(of_one_worker))
    losses = [float(train_step(batches)) for _ in range(8)]
    tf.train.CheckpointManager(checkpoint, manager_folder, max_to_keep=1).save()
    return model, losses


RIGHT = {"the chief saves": loop(), "all save, in folders of their own": in_folders_of_their_own}

WRONG = {
    "not sharded": (loop(policy="OFF"), ["the same 16 images"]),
    "not distributed": (loop(distribute=False), ["the same 32 images"]),
    "local batch": (loop(local=True), ["16 images in the first step", "local batch"]),
    "loss averaged per worker": (loop(mean=True), ["2 times too large"]),
    "missing reduce": (loop(reduce=False), ["strategy.reduce"]),
    "outside the scope": (loop(scope=False), ["outside strategy.scope()"]),
    "every worker saves": (loop(save="all"), ["Both workers wrote", "only the chief"]),
    "no worker saves": (loop(save="none"), ["folder is empty"]),
    "only the chief restores": (loop(restore="chief"), ["Every worker must restore"]),
    "no worker restores": (loop(restore="none"), ["began with new weights"]),
    "the chief makes a step more": (loop(chief_steps=True), ["every worker must make every step"]),
    "an exception": (lambda s, m, d, g, f: 1 / 0, ["On worker", "ZeroDivisionError"]),
    "no function": (17, ["17 is not a function"]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_program_passes_in_any_style(name):
    judge(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_is_told_what_is_wrong(name):
    train, words = WRONG[name]
    with pytest.raises(Wrong) as fault:
        judge(train)
    assert all(word.lower() in str(fault.value).lower() for word in words), fault.value


def test_an_unfinished_program_is_not_answered():
    with pytest.raises(Unanswered):
        judge(lambda strategy, make_model, dataset, global_batch, folder: ...)
