"""Judges of a step, an evaluation, a `fit` and an input pipeline, each against the serial program.

The last batch of an evaluation is smaller than the others, so a mean of means is found out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.exercises.judges import serial
from labkit.exercises.judges.answers import numbers_in
from labkit.exercises.judges.serial import BATCH, REPLICAS
from labkit.exercises.judges.watched_model import (
    Seen,
    check_images,
    exact,
    judge,
    make_dataset,
    model_of,
    on_one_device,
    on_replicas,
    weight_copies,
)
from labkit.exercises.task import Wrong
from labkit.hardware.devices import import_tensorflow

UNEVEN = 20  # a batch that does not divide the 96 images
IMAGES, SMALL_BATCH = 1000, 64  # of the input pipeline


@judge
def one_step(my_step: Callable[..., Any]) -> None:
    """A function of (model, optimizer, images, labels) that trains one step, returns the loss."""
    import keras

    tf, made, losses = import_tensorflow(), on_one_device(), []
    images, labels = map(tf.constant, serial.make_data())
    steps = [[range(BATCH)], [range(BATCH, 2 * BATCH)]]
    with exact(made):
        model, optimizer = made.make(), keras.optimizers.SGD(serial.RATE)
        optimizer.build(model.trainable_variables)
        for first in (0, BATCH):
            batch = slice(first, first + BATCH)
            losses.append(my_step(model, optimizer, images[batch], labels[batch]))
    if not all(training for _, _, training in made.seen):
        raise Wrong("Call the model with training=True: else Dropout and its like do nothing.")
    factors = {
        serial.NO_UPDATE: 0,
        "The loss is a sum over the batch: take its mean.": BATCH,
        "The weights went up the gradient: the optimizer subtracts for you.": -1,
    }
    mistakes = {says: serial.train(serial.scaled(by), steps)[0] for says, by in factors.items()}
    right, each = serial.train(steps=steps)
    serial.compare(model.get_weights(), right, mistakes)
    found = numbers_in(losses, "the loss, one number")
    for step, (given, loss) in enumerate(zip(found, each.mean(axis=1), strict=True), 1):
        if not abs(given - loss) < 1e-3:
            raise Wrong(
                f"The weights are right. Step {step} returned {given:.4f}; the mean loss of "
                f"its batch, before the update, is {loss:.4f}."
            )


@judge
def accuracy(my_accuracy: Callable[..., Any]) -> None:
    """A function of (model, images, labels, batch) that returns the accuracy of all images."""
    made = on_one_device()
    with exact(made):
        found = my_accuracy(made.make(), *serial.make_data(), UNEVEN)
    if (largest := max((len(batch) for _, batch, _ in made.seen), default=0)) > UNEVEN:
        raise Wrong(f"The model got {largest} images in one call; at most {UNEVEN} may be.")
    _check_accuracy(found, made.seen, {})


@judge
def distributed_accuracy(my_evaluate: Callable[..., Any]) -> None:
    """A function of (strategy, model, dataset, global_batch) that returns the accuracy."""
    made = on_replicas()
    with exact(made):
        with made.strategy.scope():
            model = made.make()
        found = my_evaluate(made.strategy, model, make_dataset(), UNEVEN)
    mistakes: dict[float, str] = {}
    right = serial.right_answers()
    for replica in range(REPLICAS):
        share = right[[image for r, batch, _ in made.seen if r == replica for image in batch]]
        if not len(share):
            raise Wrong("One replica alone did all the work: strategy.run(step, args=(…)).")
        says = "That counts one replica's images only: strategy.reduce sums the counts of all."
        mistakes |= {share.mean(): says, share.sum() / len(right): says}
    _check_accuracy(found, made.seen, mistakes)


@judge
def fitting(my_fit: Callable[..., Any]) -> None:
    """A function of (strategy, make_model, dataset, global_batch): one epoch; returns the model."""
    made = on_replicas()
    with exact(made):
        model = model_of(my_fit(made.strategy, made.make, make_dataset(), BATCH), made.models)
    check_images(made.seen)
    serial.check_weights(weight_copies(made.strategy, model))


@judge
def input_pipeline(my_dataset: Callable[..., Any]) -> None:
    """A function of (images, labels, batch) that returns a dataset, in a new order each epoch."""
    import numpy as np

    numbers = np.arange(IMAGES)
    dataset = my_dataset(numbers.reshape(-1, 1).astype("float32"), numbers, SMALL_BATCH)
    if not isinstance(dataset, import_tensorflow().data.Dataset):
        raise Wrong(f"It returned a {type(dataset).__name__}: return a tf.data.Dataset.")
    orders = [_epoch(dataset), _epoch(dataset)]
    if any(max(order[: IMAGES // 10]) < 0.85 * IMAGES for order in orders):
        raise Wrong(
            "The first batches hold images from the beginning of the data only: shuffle them, "
            "before batch, with a buffer as large as the data."
        )
    if orders[0] == orders[1]:
        raise Wrong("Both epochs have the same order: shuffle anew in each, and after cache.")


def _epoch(dataset: Any) -> list[int]:
    """The numbers of the images of an epoch, in their order."""
    order: list[int] = []
    for element in dataset:
        if not isinstance(element, tuple) or len(element) != 2 or element[1].shape.rank != 1:
            raise Wrong("An element must be a pair: a batch of images, a batch of labels.")
        images, labels = (one.numpy() for one in element)
        if (images[:, 0] != labels).any():
            raise Wrong("Images no longer have their own labels: shuffle both together.")
        order += labels.tolist()
        if len(order) > IMAGES:
            raise Wrong("An epoch has more images than the data: each once, without repeat.")
        if len(labels) != SMALL_BATCH and len(order) < IMAGES:
            raise Wrong(f"A batch has {len(labels)} images; it should have {SMALL_BATCH}.")
    if sorted(order) != list(range(IMAGES)):
        raise Wrong(
            f"An epoch has {len(set(order))} of the {IMAGES} images. Keep the last, smaller batch."
        )
    return order


def _check_accuracy(found: Any, seen: Seen, mistakes: dict[float, str]) -> None:
    """Each image once, without Dropout, and the right number; else the mistake that it tells."""
    if any(training for _, _, training in seen):
        raise Wrong("Call the model with training=False: an evaluation has no Dropout.")
    right, order = serial.right_answers(), [image for _, batch, _ in seen for image in batch]
    if sorted(order) != list(range(len(right))):
        raise Wrong(
            f"The model got {len(order)} images, {len(set(order))} different ones: it must get "
            f"each of the {len(right)} once. The last batch is smaller than the others."
        )
    (given,) = numbers_in([found], "the accuracy, one number")
    batches = [right[first : first + UNEVEN].mean() for first in range(0, len(right), UNEVEN)]
    mistakes = {
        sum(batches) / len(batches): "That is the mean of the batches' accuracies; the last batch "
        "is smaller. Count right answers, and divide once.",
        100 * right.mean(): "That is in per cent; return a share of 1.",
        right.sum(): "That is the number of right answers; divide it by that of the images.",
        **mistakes,
    }
    if abs(given - right.mean()) < 1e-4:
        return
    for value, says in mistakes.items():
        if abs(given - value) < 1e-4:
            raise Wrong(says)
    raise Wrong(f"It returned {given:.4f}; the accuracy is {right.mean():.4f}.")
