"""However many replicas, and however they add up gradients: the result of the serial program."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.training import Job
from labkit.training.inputs import epoch_order
from labkit.training.optimizers import Optimizer

STEPS, BATCH = 30, 128


def trained(data, replicas, **changed):
    asked = {"batch": BATCH, "optimizer": "sgd", "learning_rate": 0.1, "dropout": 0.0, **changed}
    job = Job("dense", data, replicas=replicas, **asked)
    job.steps(STEPS)
    return job


def largest_difference(one, other):
    return max(np.abs(a - b).max() for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def serial(data, one):
    """In float64: in float32 rounding may decide whether a ReLU passes a gradient."""
    import keras

    keras.config.set_dtype_policy("float64")
    yield trained(data, one).weights()
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    ("count", "reduction"), [(2, "hierarchical copy"), (4, "reduction to one device")]
)
def test_mirrored_replicas_end_with_the_single_device_weights(
    data, serial, two, four, count, reduction
):
    """30 steps of SGD, no dropout, the same global batch: equal to 1e-12."""
    job = trained(data, {2: two, 4: four}[count], reduction=reduction)
    assert largest_difference(serial, job.weights()) < 1e-12


def test_every_replica_holds_the_same_weights(data, four):
    """Adam on four replicas: the copies are equal to the last bit, as each did the same update."""
    job = trained(data, four, optimizer="adam", learning_rate=0.001, dropout=0.2)
    for variable in job.model.trainable_variables:
        copies = [copy.numpy() for copy in job.strategy.experimental_local_results(variable.value)]
        assert len(copies) == 4
        assert all((copy == copies[0]).all() for copy in copies)


def test_the_loop_is_the_plain_keras_program(data, serial, one):
    """An independent implementation: Keras' own train_on_batch over the same batches."""
    import keras

    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    layers = [keras.Input((28, 28)), keras.layers.Flatten(), dense(128, "relu"), dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    start = Job("dense", data, replicas=one, batch=BATCH, dropout=0.0).weights()
    model.set_weights(start)
    order = epoch_order(len(data.y_train), 0, 0).numpy()
    for number in range(STEPS):
        rows = order[number * BATCH : (number + 1) * BATCH]
        model.train_on_batch(data.x_train[rows].astype("float32") / 255, data.y_train[rows])
    assert largest_difference(serial, model.get_weights()) < 2e-6


def test_weak_scaling_is_the_serial_program_with_the_larger_batch(data, serial, two):
    """Batch 64 on each of two replicas is batch 128 on one device."""
    both = trained(data, two, batch=64, scaling="weak")
    assert (both.global_batch, both.replica_batch) == (128, 64)
    assert largest_difference(serial, both.weights()) < 1e-12


def test_the_same_seed_gives_the_same_weights_with_dropout(data, two):
    """Repeatable to the last bit."""
    asked = {"dropout": 0.2, "images": 1280}
    jobs = [Job("dense", data, replicas=two, seed=seed, **asked) for seed in (5, np.int64(5))]
    for job in jobs:
        job.steps(10)
    first, again = (job.weights() for job in jobs)
    assert largest_difference(first, again) == 0.0


def test_replicas_draw_different_dropout(data, two):
    """Keras' own layer, which would draw alike for all; after some steps, too."""
    import keras
    import tensorflow as tf

    job = Job("dense", data, replicas=two, batch=64, images=640, dropout=0.5)
    layer = next(layer for layer in job.model.layers if isinstance(layer, keras.layers.Dropout))

    @tf.function
    def masks():
        return job.strategy.run(lambda: layer(tf.ones((4, 128)), training=True))

    for _ in range(2):
        first, second = (part.numpy() for part in job.strategy.experimental_local_results(masks()))
        assert (first != second).any()
        assert set(np.unique(first)) == {0.0, 2.0}
        job.steps(2)


@pytest.mark.parametrize("rule", ["adam", "sgd"])
def test_an_update_is_that_of_keras(one, rule):
    """Ten updates with random gradients, against keras.optimizers."""
    import keras
    import tensorflow as tf

    random = np.random.default_rng(3)
    start = [random.normal(size=shape).astype("float32") for shape in ((7, 5), (5,))]
    ours = [keras.Variable(value) for value in start]
    theirs = [keras.Variable(value) for value in start]
    mine = Optimizer(rule, 0.05)
    mine.build(ours)
    peer = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}[rule](0.05)
    for _ in range(10):
        gradients = [tf.constant(random.normal(size=v.shape).astype("float32")) for v in start]
        mine.apply(gradients, ours)
        peer.apply(gradients, theirs)
    assert largest_difference([v.numpy() for v in theirs], [v.numpy() for v in ours]) < 1e-5


def test_warm_up_raises_the_rate_step_by_step():
    """Gradient 1, rate 1, four steps of warm-up: 1/4, 2/4, 3/4, 1, and 1 from then on."""
    import tensorflow as tf

    weight = tf.Variable([0.0])
    optimizer = Optimizer("sgd", 1.0, warmup_steps=4)
    optimizer.build([weight])
    seen = []
    for _ in range(6):
        before = float(weight[0])
        optimizer.apply([tf.constant([1.0])], [weight])
        seen.append(before - float(weight[0]))
    assert seen == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0])
