"""A training loop under a strategy: correct ones pass in any style, each fault is named."""

import keras
import pytest
import tensorflow as tf

from labkit.exercises.task import Unanswered, Wrong
from labkit.exercises.training_loop import training_loop

judge = training_loop()
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


def cross_entropy(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def loop(*, batch=lambda b: b, shuffle=False, scope=True, loss=None, reduce=None, apply=True,
         distribute=True, rate=0.1, steps=None, training=True):  # fmt: skip
    """A loop of one's own, right unless told otherwise."""

    def train(strategy, make_model, dataset, global_batch):
        if scope:
            with strategy.scope():
                model, optimizer = make_model(), keras.optimizers.SGD(rate)
        else:
            model, optimizer = make_model(), keras.optimizers.SGD(rate)

        def step(images, labels):
            with tf.GradientTape() as tape:
                losses = cross_entropy(labels, model(images, training=training))
                if loss is None:
                    value = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
                else:
                    value = loss(losses, global_batch)
            gradients = tape.gradient(value, model.trainable_variables)
            if apply:
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return value

        @tf.function
        def train_step(images, labels):
            each = strategy.run(step, args=(images, labels))
            return reduce(strategy, each) if reduce else strategy.reduce(SUM, each, axis=None)

        if shuffle:
            dataset = dataset.shuffle(1000, seed=1)
        batches = dataset.batch(batch(global_batch))
        if distribute:
            batches = strategy.experimental_distribute_dataset(batches)
        losses = [train_step(images, labels) for images, labels in batches]
        return model, losses[:steps]

    return train


def from_function(strategy, make_model, dataset, global_batch):
    """Each replica's batches come from a function; the whole pass is one tf.function."""
    share = global_batch // strategy.num_replicas_in_sync
    batches = strategy.distribute_datasets_from_function(lambda context: dataset.batch(share))
    with strategy.scope():
        model, optimizer = make_model(), keras.optimizers.SGD(0.1)
        entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = entropy(labels, model(images, training=True)) / global_batch
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


def own_update(strategy, make_model, dataset, global_batch):
    """Without an optimizer: the gradients are all-reduced and subtracted by hand."""
    with strategy.scope():
        model = make_model()

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(cross_entropy(labels, model(images, training=True)))
            loss /= strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        context = tf.distribute.get_replica_context()
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


def keras_fit(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model = make_model()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.optimizer.learning_rate = 0.1
    losses = []
    for images, labels in dataset.batch(global_batch):
        step = tf.data.Dataset.from_tensors((images, labels))
        losses += model.fit(step, shuffle=False, verbose=0).history["loss"]
    return model, losses


def serial(strategy, make_model, dataset, global_batch):
    model = make_model()
    return model, [0.0 for _ in dataset.batch(global_batch)]


def one_replica(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model = make_model()
    losses = []
    for images, labels in dataset.batch(global_batch):
        losses.append(float(tf.reduce_mean(cross_entropy(labels, model(images, training=True)))))
    return model, losses


RIGHT = {
    "compute_average_loss": loop(),
    "a sum over the global batch": loop(loss=lambda losses, batch: tf.reduce_sum(losses) / batch),
    "dataset from a function": from_function,
    "an update of one's own": own_update,
    "model.fit": keras_fit,
}

WRONG = {
    "loss averaged per replica and summed": (
        loop(loss=lambda losses, _: tf.reduce_mean(losses)), ["2 times too large", "global_batch"]),
    "scaled once more": (
        loop(loss=lambda losses, batch: tf.reduce_sum(losses) / batch / 2), ["2 times too small"]),
    "a sum": (loop(loss=lambda losses, _: tf.reduce_sum(losses)), ["sum, not a mean"]),
    "variables outside the scope": (loop(scope=False), ["outside strategy.scope()"]),
    "local batch": (loop(batch=lambda b: b // 2), ["16 images in the first step", "local batch"]),
    "global batch taken twice": (loop(batch=lambda b: b * 2), ["64 images in the first step"]),
    "loss that is never reduced": (
        loop(reduce=lambda strategy, each: each), ["strategy.reduce"]),
    "loss of the first replica": (
        loop(reduce=lambda strategy, each: strategy.experimental_local_results(each)[0]),
        ["one replica's share"]),
    "loss averaged over the replicas": (
        loop(reduce=lambda strategy, each: strategy.reduce(MEAN, each, axis=None)),
        ["0.5 times"]),
    "shuffled": (loop(shuffle=True), ["do not shuffle"]),
    "not distributed": (loop(distribute=False), ["the same 32 images"]),
    "no update": (loop(apply=False), ["have not changed"]),
    "another rate": (loop(rate=0.03), ["differ from those of the serial program"]),
    "without training=True": (loop(training=False), ["training=True"]),
    "too few losses": (loop(steps=3), ["3 losses"]),
    "no strategy at all": (serial, ["outside strategy.scope()"]),
    "a step outside strategy.run": (one_replica, ["strategy.run"]),
    "an exception": (lambda strategy, make_model, dataset, batch: 1 / 0, ["ZeroDivisionError"]),
    "no function": (17, ["17 is not a function"]),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_loop_passes_in_any_style(name):
    judge(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_loop_is_told_what_is_wrong(name):
    train, words = WRONG[name]
    with pytest.raises(Wrong) as fault:
        judge(train)
    assert all(word.lower() in str(fault.value).lower() for word in words), fault.value


def test_an_unfinished_loop_is_not_answered():
    with pytest.raises(Unanswered):
        judge(lambda strategy, make_model, dataset, global_batch: ...)
