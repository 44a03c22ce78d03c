"""Training loops in one process: correct ones pass in any style, each named mistake is told.

Most run eagerly: a graph traced for each would take most of the time.
"""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from labkit.exercises.judges import watched_model
from labkit.kinds import LabError
from tests.exercises.cells import changed, refused, tasks

pytestmark = pytest.mark.usefixtures("four")
LOOP, ACCUMULATE, CLIP, RESUME = "12.loop", "16.accumulate", "16.clip", "16.resume"


def entropy(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def gradients_of(model, images, labels, divide_by):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(entropy(labels, model(images, training=True))) / divide_by
    return tape.gradient(loss, model.trainable_variables)


# Under a strategy.


def beside_the_replicas(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        for images, labels in dataset.batch(global_batch):
            found = gradients_of(model, images, labels, global_batch)
            optimizer.apply(found, model.trainable_variables)


def from_function(strategy, make_model, dataset, global_batch):
    """Each replica's batches come from a function; the whole pass is one tf.function."""
    share = global_batch // strategy.num_replicas_in_sync
    batches = strategy.distribute_datasets_from_function(lambda context: dataset.batch(share))
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        total = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = total(labels, model(images, training=True)) / global_batch
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def one_pass():
        losses, number = tf.TensorArray(tf.float32, 0, dynamic_size=True), 0
        for images, labels in batches:
            each = strategy.run(step, args=(images, labels))
            losses = losses.write(number, strategy.reduce("SUM", each, axis=None))
            number = number + 1
        return losses.stack()

    return model, one_pass().numpy()


def own_update(strategy, make_model, dataset, global_batch, summed=True):
    """Without an optimizer: the gradients are all-reduced and subtracted by hand."""
    with strategy.scope():
        model = make_model()

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(entropy(labels, model(images, training=True))) / global_batch
        gradients = tape.gradient(loss, model.trainable_variables)
        context = tf.distribute.get_replica_context()
        if summed:
            gradients = context.all_reduce("sum", gradients)

        def update(strategy, *gradients):
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                strategy.extended.update(
                    variable.value, lambda v, g: v.assign_sub(0.1 * g), args=(gradient,)
                )

        context.merge_call(update, args=tuple(gradients))
        return loss

    run = tf.function(lambda x, y: strategy.run(step, args=(x, y)))
    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    return model, [float(strategy.reduce("SUM", run(x, y), axis=None)) for x, y in batches]


def applied_across_replicas(strategy, make_model, dataset, global_batch, scope=False):
    """Gradients are reduced and applied between the steps: Keras allows it outside the scope."""
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)

    def local(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(entropy(labels, model(images, training=True))) / global_batch
        return loss, tape.gradient(loss, model.trainable_variables)

    losses = []
    for pair in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
        loss, each = strategy.run(local, args=pair)
        total = [strategy.reduce("SUM", one, axis=None) for one in each]
        with strategy.scope() if scope else nullcontext():
            optimizer.apply(total, model.trainable_variables)
        losses.append(strategy.reduce("SUM", loss, axis=None))
    return model, losses


# Accumulated, clipped, resumed.


def accumulated_by_keras(make_model, dataset, batch, micro_batches):
    model = make_model()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=micro_batches)
    size = batch // micro_batches
    for images, labels in dataset.batch(size):
        optimizer.apply(gradients_of(model, images, labels, size), model.trainable_variables)
    return model


def one_tape_around_all(make_model, dataset, batch, micro_batches):
    model, optimizer = make_model(), keras.optimizers.SGD(0.1)
    for images, labels in dataset.batch(batch):
        with tf.GradientTape() as tape:
            loss = sum(
                tf.reduce_sum(entropy(labels[k::micro_batches], model(part, training=True)))
                for k in range(micro_batches)
                for part in [images[k::micro_batches]]
            )
            loss /= batch
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return model


def clipped_by_keras(strategy, make_model, dataset, global_batch, clip_norm):
    with strategy.scope():
        model = make_model()
        optimizer = keras.optimizers.SGD(0.1, global_clipnorm=clip_norm)
        optimizer.build(model.trainable_variables)

    def step(images, labels):
        return gradients_of(model, images, labels, global_batch)

    for pair in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
        found = strategy.run(step, args=pair)
        total = [strategy.reduce("SUM", one, axis=None) for one in found]
        optimizer.apply(total, model.trainable_variables)
    return model


def resumed_by_load_model(make_model, dataset, batch, folder, after_step):
    file = Path(folder) / "model.keras"
    if file.exists():
        model = keras.models.load_model(file)
    else:
        model = make_model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
    for images, labels in dataset.batch(batch).skip(int(model.optimizer.iterations)):
        model.train_on_batch(images, labels)
        model.save(file)
        after_step(int(model.optimizer.iterations))
    return model


# The worked solutions, which test_tasks runs, are other styles still.
RIGHT = [
    (LOOP, from_function, "dataset from a function"),
    (LOOP, own_update, "an update of one's own"),
    (LOOP, applied_across_replicas, "an update between the steps"),
    (ACCUMULATE, changed(ACCUMULATE, "range(micro_batches)", "range(micro_batches := 8)"),
     "smaller micro-batches"),
    (ACCUMULATE, accumulated_by_keras, "gradient_accumulation_steps of Keras"),
    (CLIP, clipped_by_keras, "global_clipnorm outside the replicas"),
    (RESUME, resumed_by_load_model, "load_model"),
]  # fmt: skip
WRONG = [
    (LOOP, beside_the_replicas, "Call the step with strategy.run"),
    (LOOP, partial(applied_across_replicas, scope=True), "out of the scope's block"),
    (LOOP, partial(own_update, summed=False), "copies of the weights differ"),
    (LOOP, lambda strategy, make_model, dataset, batch: 1 / 0, "ZeroDivisionError"),
    (ACCUMULATE, one_tape_around_all, "no memory is saved"),
    ("13.my_fit", lambda *given: applied_across_replicas(*given)[0], "model.fit has not trained"),
]
SUM = '        gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)\n'


@pytest.mark.parametrize(("task", "train", "style"), RIGHT, ids=[style for *_, style in RIGHT])
def test_a_correct_loop_passes_in_any_style(task, train, style):
    tf.config.experimental.enable_tensor_float_32_execution(True)
    tasks()[task].judge(train)
    assert tf.config.experimental.tensor_float_32_execution_enabled()  # again


@pytest.mark.parametrize(("task", "train", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_a_wrong_loop_is_told_what_is_wrong(task, train, words):
    refused(task, train, words)


def test_where_tensorflow_runs_undivided_a_loop_on_replicas_is_not_judged(monkeypatch):
    def too_late(count):
        raise LabError("TensorFlow is already running with 1.")

    monkeypatch.setattr(watched_model, "replicas", too_late)
    assert tasks()[LOOP].check(own_update).state == "elsewhere"
    assert tasks()[ACCUMULATE].check(changed(ACCUMULATE, "", "", graph=False))
