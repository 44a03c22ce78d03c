"""A step, an evaluation, a `fit`, an input pipeline: correct in any style, each mistake named."""

import keras
import pytest
import tensorflow as tf

from tests.exercises.cells import changed, tasks
from tests.exercises.test_training_loops import entropy

pytestmark = pytest.mark.usefixtures("four")
STEP, ACCURACY, EVALUATE = "11.my_step", "11.my_accuracy", "13.my_evaluate"
FIT, DATASET = "13.my_fit", "14.my_dataset"
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


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


def evaluated(model, images, labels, batch):
    model.compile(metrics=["accuracy"], loss=LOSS)
    return model.evaluate(images, labels, batch_size=batch, verbose=0)[1]


def by_keras_evaluate(strategy, model, dataset, global_batch):
    with strategy.scope():
        model.compile(loss=LOSS, metrics=["accuracy"])
    return model.evaluate(dataset.batch(global_batch), verbose=0)[1]


def by_metric(strategy, model, dataset, global_batch):
    with strategy.scope():
        metric = keras.metrics.SparseCategoricalAccuracy()

    def step(images, labels):
        metric.update_state(labels, model(images, training=False))

    for pair in strategy.experimental_distribute_dataset(dataset.batch(global_batch)):
        strategy.run(step, args=pair)
    return metric.result()


def fit_step_by_step(strategy, make_model, dataset, global_batch):
    with strategy.scope():
        model = make_model()
        model.compile("sgd", LOSS)
        model.optimizer.learning_rate = 0.1
    batches = strategy.experimental_distribute_dataset(dataset.batch(global_batch))
    model.fit(batches, steps_per_epoch=-(-len(dataset) // global_batch), shuffle=False, verbose=0)
    return model


RIGHT = [
    (STEP, train_on_batch, "train_on_batch"),
    (STEP, own_update, "an update of one's own"),
    (STEP, changed(STEP, "def my_step", "@tf.function\ndef my_step"), "in a graph"),
    (ACCURACY, evaluated, "evaluate"),
    (EVALUATE, by_keras_evaluate, "Keras' evaluate"),
    (EVALUATE, by_metric, "a metric in the scope"),
    (FIT, fit_step_by_step, "a distributed dataset"),
    (DATASET, changed(DATASET, "dataset.shuffle", "dataset.cache().shuffle"), "cache"),
]


@pytest.mark.parametrize(("task", "mine", "style"), RIGHT, ids=[style for *_, style in RIGHT])
def test_a_correct_function_passes_in_any_style(task, mine, style):
    tasks()[task].judge(mine)
