"""A step, an evaluation, a `fit`, an input pipeline: correct in any style, each mistake named."""

import keras
import pytest
import tensorflow as tf

from tests.exercises.cells import changed, refused, tasks
from tests.exercises.test_training_loops import entropy

pytestmark = pytest.mark.usefixtures("four")
STEP, ACCURACY, EVALUATE = "02.my_step", "02.my_accuracy", "04.my_evaluate"
FIT, DATASET = "04.my_fit", "05.my_dataset"
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
    model.fit(batches, steps_per_epoch=6, shuffle=False, verbose=0)
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
RIGHT_ANSWERS = "right += (answers == labels[first:first + batch])"
REDUCE = "strategy.reduce(tf.distribute.ReduceOp.SUM, counts, axis=None)"
SHUFFLED = "shuffle(len(images))."
SLICES = "tf.data.Dataset.from_tensor_slices"
WRONG = [
    (STEP, "    optimizer.apply_gradients(zip(gradients, model.trainable_variables))\n", "",
     "have not changed"),
    (STEP, "zip(gradients", "zip([-one for one in gradients]", "up the gradient"),
    (STEP, "training=True", "training=False", "training=True"),
    (STEP, "from_logits=True", "from_logits=True, reduction='sum'", "sum over the batch"),
    (STEP, "from_logits=True", "from_logits=False", "differ from those"),
    (ACCURACY, "len(images), batch)", "len(images) // batch * batch, batch)", "70 different ones"),
    (ACCURACY, "training=False", "training=True", "training=False"),
    (ACCURACY, f"{RIGHT_ANSWERS}.sum()\n    return right / len(images)",
     f"{RIGHT_ANSWERS}.mean()\n    return right / -(-len(images) // batch)", "mean of the batches"),
    (EVALUATE, f"counts = strategy.run(count, args=(images, labels))\n        return {REDUCE}",
     "return count(*(strategy.experimental_local_results(one)[0] for one in (images, labels)))",
     "One replica alone"),
    (EVALUATE, REDUCE, "strategy.experimental_local_results(counts)[0]", "one replica's images"),
    (EVALUATE, "batch(global_batch)", "batch(global_batch, True)", "70 different ones"),
    (EVALUATE, "[right, tf.size(labels)]", "[right / tf.size(labels), 1.0]",
     "mean of the replicas' accuracies"),
    (FIT, "    with strategy.scope():\n        model = make_model()\n",
     "    model = make_model()\n    with strategy.scope():\n", "outside strategy.scope()"),
    (FIT, "dataset.batch", "dataset.shuffle(96, seed=1).batch", "do not shuffle"),
    (FIT, "shuffle=False", "shuffle=False, epochs=2", "It took 12 steps"),
    (FIT, "keras.losses.SparseCategoricalCrossentropy(from_logits=True)",
     "'sparse_categorical_crossentropy'", "from_logits=True"),
    (DATASET, SHUFFLED, "", "order of the data"),
    (DATASET, "len(images)", "9000", "buffer as large as the data"),
    (DATASET, f"{SHUFFLED}batch(batch)", f"batch(batch).{SHUFFLED[:-1]}", "shuffle before batch"),
    (DATASET, SHUFFLED, f"{SHUFFLED}cache().", "same order"),
    (DATASET, f"{SLICES}((images, labels))",
     f"tf.data.Dataset.zip({SLICES}(images).shuffle(9000), {SLICES}(labels))", "their own labels"),
    (DATASET, "batch(batch)", "batch(batch, True)", "9984 of the 10000"),
    (DATASET, SHUFFLED, f"{SHUFFLED}repeat().", "without repeat"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "mine", "style"), RIGHT, ids=[style for *_, style in RIGHT])
def test_a_correct_function_passes_in_any_style(task, mine, style):
    tasks()[task].judge(mine)


@pytest.mark.parametrize(("task", "old", "new", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_a_solution_with_one_mistake_is_told_it(task, old, new, words):
    refused(task, changed(task, old, new, graph=False), words)
