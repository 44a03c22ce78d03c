"""A step, an evaluation, a `fit`, an input pipeline: correct in any style, each mistake named."""

from contextlib import nullcontext

import keras
import pytest
import tensorflow as tf

from labkit.exercises.judges.training_loops import (
    accuracy,
    distributed_accuracy,
    fitting,
    input_pipeline,
    one_step,
)
from labkit.exercises.task import Wrong
from tests.exercises.test_training_loops import entropy

pytestmark = pytest.mark.usefixtures("four")
STEP, ACCURACY, EVALUATE, FIT = one_step, accuracy, distributed_accuracy, fitting
DATASET = input_pipeline
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def step(*, loss=LOSS, sign=1, training=True, apply=True, result=lambda loss: loss):
    """A step of one's own, right unless told otherwise; so are the functions below."""

    def my_step(model, optimizer, images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=training))
        found = tape.gradient(value, model.trainable_variables)
        for _ in range(apply):
            optimizer.apply([sign * one for one in found], model.trainable_variables)
        return result(value)

    return my_step


def train_on_batch(model, optimizer, images, labels):
    model.compile(optimizer, LOSS)
    return model.train_on_batch(images, labels)


def own_update(model, optimizer, images, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(entropy(labels, model(images, training=True)))
    for variable, gradient in zip(
        model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
    ):
        variable.assign_sub(optimizer.learning_rate * gradient)
    return float(loss)


def measure(*, size=lambda batch: batch, end=lambda count, batch: count, training=False,
            result=lambda hits: sum(map(sum, hits)) / sum(map(len, hits))):  # fmt: skip
    def my_accuracy(model, images, labels, batch):
        hits = []
        for first in range(0, end(len(images), batch), size(batch)):
            part = slice(first, first + size(batch))
            logits = model(images[part], training=training).numpy()
            hits.append((logits.argmax(axis=1) == labels[part]).tolist())
        return result(hits)

    return my_accuracy


def predicted(model, images, labels, batch):
    answers = model.predict(images, batch_size=batch, verbose=0).argmax(axis=1)
    return tf.reduce_mean(tf.cast(answers == labels, tf.float32))


def evaluated(model, images, labels, batch):
    model.compile(metrics=["accuracy"], loss=LOSS)
    return model.evaluate(images, labels, batch_size=batch, verbose=0)[1]


def evaluate(*, distribute=True, reduce="SUM", result=lambda right, count: right / count,
             training=False, whole=lambda batch: {"batch_size": batch}):  # fmt: skip
    def my_evaluate(strategy, model, dataset, global_batch):
        def step(images, labels):
            answers = tf.argmax(model(images, training=training), axis=1, output_type=tf.int32)
            return tf.math.count_nonzero(answers == labels), tf.size(labels, tf.int64)

        def total(each):
            if reduce is None:
                return strategy.experimental_local_results(each)[0]
            return strategy.reduce(reduce, each, axis=None)

        batches, totals = dataset.batch(**whole(global_batch)), []
        if distribute:
            batches = strategy.experimental_distribute_dataset(batches)
        for batch in batches:
            each = strategy.run(step, args=batch) if distribute else step(*batch)
            totals.append([int(total(one)) if distribute else int(one) for one in each])
        return result(*map(sum, zip(*totals, strict=True)))

    return my_evaluate


def by_keras_evaluate(strategy, model, dataset, global_batch):
    with strategy.scope():
        model.compile(loss=LOSS, metrics=["accuracy"])
    return model.evaluate(dataset.batch(global_batch), verbose=0)[1]


def by_mean(strategy, model, dataset, global_batch):
    def share(images, labels):
        answers = tf.argmax(model(images, training=False), axis=1, output_type=tf.int32)
        return tf.reduce_mean(tf.cast(answers == labels, tf.float32))

    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    found = [strategy.reduce("MEAN", strategy.run(share, args=one), axis=None) for one in batches]
    return sum(found) / len(found)


def by_metric(*, scope=True, make=keras.metrics.SparseCategoricalAccuracy, outside_run=False):
    def my_evaluate(strategy, model, dataset, global_batch):
        with strategy.scope() if scope else nullcontext():
            metric = make()

        def step(images, labels):
            logits = model(images, training=False)
            if isinstance(metric, tf.Variable):
                answers = tf.argmax(logits, axis=1, output_type=tf.int32)
                metric.assign_add(tf.reduce_sum(tf.cast(answers == labels, tf.float32)))
            elif not outside_run:
                metric.update_state(labels, logits)
            return logits

        for images, labels in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
            each = strategy.run(step, args=(images, labels))
            if outside_run:
                local = map(strategy.experimental_local_results, (labels, each))
                metric.update_state(*(tf.concat(parts, axis=0) for parts in local))
        return metric / 77 if isinstance(metric, tf.Variable) else metric.result()

    return my_evaluate


def unreduced(strategy, model, dataset, global_batch):
    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    each = [
        strategy.run(lambda x, y: tf.reduce_sum(model(x, training=False)), args=one)
        for one in batches
    ]
    return each[-1]


def fit(*, scope=True, batch=lambda b: b, shuffle=False, epochs=1, loss=LOSS, rate=0.1, **sgd):
    def my_fit(strategy, make_model, dataset, global_batch):
        made = None if scope else make_model()
        with strategy.scope():
            model = made or make_model()
            model.compile(keras.optimizers.SGD(rate, **sgd), loss)
        if shuffle:
            dataset = dataset.shuffle(96, seed=1)
        model.fit(dataset.batch(batch(global_batch)), epochs=epochs, shuffle=False, verbose=0)
        return model

    return my_fit


def fit_step_by_step(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model = make_model()
        model.compile("sgd", LOSS)
        model.optimizer.learning_rate = 0.1
    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    model.fit(batches, steps_per_epoch=6, shuffle=False, verbose=0)
    return model


def dataset(*steps, separate=False, result=lambda dataset: dataset):
    def my_dataset(images, labels, batch):
        slices = tf.data.Dataset.from_tensor_slices
        made = slices((images, labels))
        if separate:
            made = tf.data.Dataset.zip(slices(images).shuffle(9000), slices(labels).shuffle(9000))
        for change in steps:
            made = change(made, batch)
        return result(made)

    return my_dataset


def whole(made, batch):
    return made.shuffle(60_000)


def batched(made, batch):
    return made.batch(batch)


def permuted_once(images, labels, batch):
    order = tf.random.shuffle(range(len(images)))
    pair = tf.gather(images, order), tf.gather(labels, order)
    return tf.data.Dataset.from_tensor_slices(pair).shuffle(1000).batch(batch)


def permuted(images, labels, batch):
    def rows(numbers):
        return tf.gather(images, numbers), tf.gather(labels, numbers)

    return tf.data.Dataset.range(len(images)).shuffle(len(images)).batch(batch).map(rows)


RIGHT = [
    (STEP, train_on_batch, "train_on_batch"),
    (STEP, own_update, "an update of one's own"),
    (STEP, tf.function(step()), "in a graph"),
    (ACCURACY, predicted, "predict"),
    (ACCURACY, evaluated, "evaluate"),
    (ACCURACY, measure(size=lambda batch: 7), "smaller batches"),
    (EVALUATE, evaluate(), "counts"),
    (EVALUATE, by_keras_evaluate, "Keras' evaluate"),
    (EVALUATE, by_metric(), "a metric in the scope"),
    (EVALUATE, by_metric(scope=False, outside_run=True), "a metric outside scope and replicas"),
    (FIT, fit_step_by_step, "a distributed dataset"),
    (DATASET, dataset(lambda made, _: made.cache(), whole, batched), "cache"),
]
WRONG = [
    (STEP, step(apply=False), "have not changed"),
    (STEP, step(sign=-1), "up the gradient"),
    (STEP, step(training=False), "training=True"),
    (STEP, step(loss=lambda y, logits: tf.reduce_sum(entropy(y, logits))), "sum over the batch"),
    (STEP, step(loss=keras.losses.SparseCategoricalCrossentropy()), "differ from those"),
    (ACCURACY, measure(end=lambda count, batch: count - count % batch), "70 different ones"),
    (ACCURACY, measure(training=True), "training=False"),
    (ACCURACY, measure(result=lambda hits: sum(sum(one) / len(one) for one in hits) / len(hits)),
     "mean of the batches"),
    (EVALUATE, evaluate(distribute=False), "One replica alone"),
    (EVALUATE, evaluate(reduce=None), "one replica's images"),
    (EVALUATE, evaluate(training=True), "training=False"),
    (EVALUATE, evaluate(whole=lambda batch: {"batch_size": batch, "drop_remainder": True}),
     "70 different ones"),
    (EVALUATE, by_mean, "mean of the replicas' accuracies"),
    (EVALUATE, by_metric(scope=False), "outside strategy.scope(), and all replicas change it"),
    (FIT, fit(scope=False), "outside strategy.scope()"),
    (FIT, fit(shuffle=True), "do not shuffle"),
    (FIT, fit(epochs=2), "It took 12 steps"),
    (FIT, fit(loss="sparse_categorical_crossentropy"), "from_logits=True"),
    (FIT, fit(loss=lambda y, logits: tf.reduce_mean(LOSS.call(y, logits))), "2 times too large"),
    (DATASET, dataset(batched), "order of the data"),
    (DATASET, dataset(lambda made, _: made.shuffle(9000), batched), "buffer as large as the data"),
    (DATASET, permuted_once, "nearly the order of the first"),
    (DATASET, dataset(batched, whole), "shuffle before batch"),
    (DATASET, dataset(whole, lambda made, _: made.cache(), batched), "same order"),
    (DATASET, dataset(batched, separate=True), "their own labels"),
    (DATASET, dataset(whole, lambda made, b: made.batch(b, True)), "9984 of the 10000"),
    (DATASET, dataset(whole, lambda made, b: made.repeat(), batched), "without repeat"),
]  # fmt: skip


@pytest.mark.parametrize(("judge", "mine", "style"), RIGHT, ids=[style for *_, style in RIGHT])
def test_a_correct_function_passes_in_any_style(judge, mine, style):
    judge(mine)


@pytest.mark.parametrize(("judge", "mine", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_a_wrong_function_is_told_what_is_wrong(judge, mine, words):
    with pytest.raises(Wrong) as fault:
        judge(mine)
    assert words in str(fault.value)
