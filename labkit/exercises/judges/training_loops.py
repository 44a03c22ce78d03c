"""Judges of programs in one process: training loops, a step, an evaluation, an input pipeline.

The watched model tells what the loop did with the data. What it did with the gradients is told by
the weights, which are compared with those of the serial program and of known mistakes.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit.exercises.judges import serial
from labkit.exercises.judges.answers import numbers_in
from labkit.exercises.judges.serial import BATCH, REPLICAS, STEPS, Gradients, Rule
from labkit.exercises.judges.watched_model import (
    Models,
    Seen,
    check_images,
    exact,
    judge,
    make_dataset,
    model_of,
    on_one_device,
    on_replicas,
    returned,
    weight_copies,
)
from labkit.exercises.task import Wrong
from labkit.hardware.devices import import_tensorflow

CLOSE_ADAM = 2e-4  # Adam divides by the size of the gradient: rounding of a small one is enlarged
MICRO_BATCHES = 4
INTERRUPTED_AFTER = (2, 5)  # an even and an odd number
CLIP_NORM = 0.859  # of the six global norms, from 0.83 to 1.79, one is smaller


@judge
def training_loop(my_train: Callable[..., Any]) -> None:
    """A function of (strategy, make_model, dataset, global_batch) that returns (model, losses).

    It must train one pass with plain SGD, rate RATE, the mean loss of each global batch.
    """
    made = on_replicas()
    with exact(made):
        result = my_train(made.strategy, made.make, make_dataset(), BATCH)
    model, losses = returned(result, made.models)
    shares = check_images(made.seen)
    serial.check_weights(weight_copies(made.strategy, model))
    serial.check_losses(losses, shares)


@judge
def accumulation(my_train: Callable[..., Any]) -> None:
    """A function of (make_model, dataset, batch, micro_batches) that returns the model."""
    made = on_one_device()
    with exact(made):
        model = model_of(my_train(made.make, make_dataset(), BATCH, MICRO_BATCHES), made.models)
    _check_micro_batches(made.seen)
    serial.compare(model.get_weights(), serial.train()[0], _accumulation_mistakes(made.seen))
    if made.most_held > 1:
        raise Wrong(
            f"{made.most_held} micro-batches ran forward before the backward pass of the first, so "
            "the device held the activations of all of them: no memory is saved. Open a new "
            "GradientTape for each micro-batch, and compute its gradients before the next one."
        )


@judge
def clipping(my_train: Callable[..., Any]) -> None:
    """A function of (strategy, make_model, dataset, global_batch, clip_norm): returns the model."""
    made = on_replicas()
    with exact(made):
        result = my_train(made.strategy, made.make, make_dataset(), BATCH, CLIP_NORM)
    model = model_of(result, made.models)
    parts = [list(share.values()) for share in check_images(made.seen)]
    right, _ = serial.train(lambda each: serial.clip(serial.total(each), CLIP_NORM), parts)
    rules = _clipping_mistakes().items()
    mistakes = ((says, serial.train(rule, parts)[0]) for says, rule in rules)
    weights = serial.equal_copies(weight_copies(made.strategy, model))
    named = f"{serial.PROGRAM}, its gradient clipped by the global norm {CLIP_NORM:g}"
    serial.compare(weights, right, mistakes, named)


@judge
def resuming(my_train: Callable[..., Any]) -> None:
    """A function of (make_model, dataset, batch, folder, after_step) that returns the model."""
    made, begin, steps = on_one_device(), 0, list[int]()
    with exact(made), tempfile.TemporaryDirectory() as folder:
        for end in (*INTERRUPTED_AFTER, STEPS):
            made.seen.clear()
            result = _run_until(my_train, made, folder, end, steps)
            again = f"It was interrupted after step {begin} and run again. " if begin else ""
            _check_steps(made.seen, begin, end, again)
            begin = end
            if not any(Path(folder).iterdir()):
                raise Wrong(f"The folder is empty after step {end}: save a checkpoint in it.")
    if steps != list(range(1, STEPS + 1)):
        raise Wrong(f"Call after_step(1), …, after_step({STEPS}), once after each step.")
    weights = model_of(result, made.models).get_weights()
    named = f"keras.optimizers.Adam({serial.ADAM_RATE})"
    mistake = (
        "The weights were restored, and the state of the optimizer was not. Adam's moments and "
        "its step counter belong into the checkpoint.",
        serial.train(serial.adam(INTERRUPTED_AFTER))[0],
    )
    right = serial.train(serial.adam())[0]
    serial.compare(weights, right, [mistake], named, CLOSE_ADAM)


def _check_micro_batches(seen: Seen) -> None:
    size = BATCH // MICRO_BATCHES
    if (largest := max((len(images) for _, images, _ in seen), default=0)) > size:
        raise Wrong(
            f"The model got {largest} images in one call. The batch has {BATCH} images and "
            f"{MICRO_BATCHES} micro-batches: at most {size} images may be on the device at once."
        )
    _check_steps(seen, 0, STEPS, "")


def _check_steps(seen: Seen, begin: int, end: int, says: str) -> None:
    order = [image for _, images, training in seen if training for image in images]
    batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    expected = list(range(begin * BATCH, end * BATCH))
    if [image for batch in batches for image in sorted(batch)] == expected:
        return
    if begin and order[:1] == [0]:
        raise Wrong(
            f"{says}It began with the first image of the dataset: save the position in the data, "
            "too, or skip what optimizer.iterations counts."
        )
    if begin and order[:1] == [(begin - 1) * BATCH]:
        raise Wrong(
            f"{says}It used the batch of step {begin} again: save after the update of each step, "
            "and before after_step."
        )
    raise Wrong(
        f"{says}It used {len(order)} images with training=True. The serial program uses those "
        f"from {expected[0]} to {expected[-1]}, each once and in order."
    )


class Preempted(BaseException):
    """The scheduler ends the job: no `except Exception` stops it."""


def _run_until(
    my_train: Callable[..., Any], made: Models, folder: str, end: int, steps: list[int]
) -> Any:
    """Train, interrupted after a step; the last step of all is not interrupted."""

    def after_step(step: Any) -> None:
        steps.append(int(step))
        if int(step) == end < STEPS:
            raise Preempted

    try:
        result = my_train(made.make, make_dataset(), BATCH, folder, after_step)
    except Preempted:
        return None
    if end < STEPS:
        raise Wrong(
            f"after_step({end}) ends the job. It was called with {steps}, and the loop went on. "
            "The first step has number 1; after a restart go on counting."
        )
    return result


# Known mistakes.


def _accumulation_mistakes(seen: Seen) -> serial.Mistakes:
    parts: list[list[Any]] = []  # the micro-batches of each batch
    for images in (images for _, images, training in seen if training):
        if not parts or sum(map(len, parts[-1])) >= BATCH:
            parts.append([])
        parts[-1].append(images)
    k = len(parts[0])
    one_by_one = [[part] for each in parts for part in each]
    kept: Gradients = []

    def never_reset(each: list[Gradients]) -> Gradients:
        kept[:] = serial.total([*([list(kept)] if kept else []), *each])
        return list(kept)

    each_time = "It updated the weights after each micro-batch. Sum the gradients first, then "
    each_time += "update once for each batch."
    rules: list[tuple[str, Rule, Any]] = [
        (
            f"The gradients are {k} times too large: each is the gradient of the mean over one "
            f"micro-batch, and {k} of them are summed. Divide their sum by micro_batches.",
            serial.scaled(k),
            parts,
        ),
        ("Only the last micro-batch of each batch reached the weights: add its gradients to those "
         "of the others.", lambda each: each[-1], parts),
        (each_time, serial.scaled(k), one_by_one),
        (each_time, serial.total, one_by_one),
        ("The sum of the gradients is never reset: set it to zero after each update.", never_reset,
         parts),
    ]  # fmt: skip
    return ((says, serial.train(rule, steps)[0]) for says, rule, steps in rules)


def _clipping_mistakes() -> dict[str, Rule]:
    n = REPLICAS
    sum_first = "Sum the gradients over the replicas first (all-reduce), and clip the sum."
    one_norm = "The global norm is one number over all variables: tf.clip_by_global_norm."

    def clip(gradients: Gradients) -> Gradients:
        return serial.clip(gradients, CLIP_NORM)

    return {
        f"The gradients are not clipped by their global norm. {one_norm}": serial.total,
        f"Each replica clips its own gradients before they are summed. {sum_first}": (
            lambda each: serial.total([*map(clip, each)])
        ),
        f"The gradients of each variable are clipped by their own norm. {one_norm}": (
            lambda each: [clip([one])[0] for one in serial.total(each)]
        ),
        f"The gradients are {n} times too large at the end: they are summed over the replicas "
        "again. optimizer.apply in a step sums once more: divide them by "
        "strategy.num_replicas_in_sync.": (
            lambda each: [n * one for one in clip(serial.total(each))]
        ),
    }  # fmt: skip


# A step, an evaluation, a `fit`, an input pipeline.

EVALUATED, UNEVEN = 77, 14  # the last batch has 7 images: 4 for one replica, 3 for the other
IMAGES, SMALL_BATCH = 10_000, 64  # of the input pipeline


@judge
def one_step(my_step: Callable[..., Any]) -> None:
    """A function of (model, optimizer, images, labels) that trains one step, returns the loss."""
    import keras

    tf, made, losses = import_tensorflow(), on_one_device(), []
    images, labels = map(tf.constant, serial.make_data())
    steps = [[range(BATCH)], [range(BATCH, 2 * BATCH)]]
    with exact(made):
        model, optimizer = made.make(), keras.optimizers.SGD(serial.RATE / 2)
        optimizer.build(model.trainable_variables)
        for first in (0, BATCH):
            batch = slice(first, first + BATCH)
            losses.append(my_step(model, optimizer, images[batch], labels[batch]))
    if not all(training for _, _, training in made.seen):
        raise Wrong("Call the model with training=True: else Dropout and its like do nothing.")
    factors = {
        "The loss is a sum over the batch: take its mean.": BATCH,
        "The weights went up the gradient: the optimizer subtracts for you.": -1,
    }
    mistakes = (
        (says, serial.train(serial.scaled(by / 2), steps)[0]) for says, by in factors.items()
    )
    right, each = serial.train(serial.scaled(1 / 2), steps)
    named = "the optimizer that is given and the mean cross-entropy of logits"
    serial.compare(model.get_weights(), right, mistakes, f"{named} (from_logits=True in Keras)")
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
        found = my_accuracy(made.make(), *(one[:EVALUATED] for one in serial.make_data()), UNEVEN)
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
        found = my_evaluate(made.strategy, model, make_dataset().take(EVALUATED), UNEVEN)
    right = serial.right_answers()[:EVALUATED]
    batches = [
        [right[list(images)] for r, images, _ in made.seen if r == replica]
        for replica in range(REPLICAS)
    ]
    if not all(batches):
        raise Wrong("One replica alone did all the work: strategy.run(step, args=(…)).")
    one = "That counts one replica's images only: strategy.reduce sums the counts of all."
    means = "That is a mean of the replicas' accuracies, and their parts differ in size. Sum the "
    means += "right answers of all replicas and batches, and divide once."
    shares = [sum(map(sum, each)) / sum(map(len, each)) for each in batches]
    steps = [a.mean() / 2 + b.mean() / 2 for a, b in zip(*batches, strict=False)]
    _check_accuracy(
        found, made.seen, {**dict.fromkeys(shares, one), sum(steps) / len(steps): means}
    )


@judge
def fitting(my_fit: Callable[..., Any]) -> None:
    """A function of (strategy, make_model, dataset, global_batch): one epoch; returns the model."""
    made = on_replicas()
    with exact(made):
        model = model_of(my_fit(made.strategy, made.make, make_dataset(), BATCH), made.models)
    check_images(made.seen)
    loss = getattr(model, "loss", None)
    if loss == "sparse_categorical_crossentropy" or getattr(loss, "from_logits", None) is False:
        raise Wrong(
            "The model returns logits, and this loss expects probabilities: from_logits=True."
        )
    serial.check_weights(weight_copies(made.strategy, model))


@judge
def input_pipeline(my_dataset: Callable[..., Any]) -> None:
    """A function of (images, labels, batch) that returns a dataset, in a new order each epoch."""
    import numpy as np

    numbers = np.arange(IMAGES)
    dataset = my_dataset(numbers.reshape(-1, 1).astype("float32"), numbers, SMALL_BATCH)
    if not isinstance(dataset, import_tensorflow().data.Dataset):
        raise Wrong(f"It returned a {type(dataset).__name__}: return a tf.data.Dataset.")
    epochs = [_epoch(dataset) for _ in range(3)]
    orders = [np.concatenate(batches) for batches in epochs]
    if (orders[0] == numbers).all():
        raise Wrong("The images come in the order of the data: shuffle them, before batch.")
    if (orders[0] == orders[1]).all():
        raise Wrong("Both epochs have the same order: shuffle anew in each, and after cache.")
    batches = epochs[0]
    in_order = np.corrcoef([one.mean() for one in batches], np.arange(len(batches)))[0, 1] > 0.5
    near = min(map(np.ptp, batches[:-1]))
    if near < SMALL_BATCH or (near < IMAGES / 2 and not in_order):
        raise Wrong("Whole batches are mixed, and each holds neighbours: shuffle before batch.")
    # Behind a buffer of b images none comes b places early. In 3 mixed orders one is earlier than
    # 0.97 of the data, but for 1 in 700,000 times.
    if max((order - numbers).max() for order in orders) < 0.97 * IMAGES:
        raise Wrong(
            "The first batches hold images from the beginning of the data only: shuffle needs a "
            "buffer as large as the data, len(images)."
        )


def _epoch(dataset: Any) -> list[Any]:
    """The numbers of the images of an epoch, by batch."""
    batches: list[Any] = []
    for images, labels in dataset:
        if (images.numpy()[:, 0] != labels.numpy()).any():
            raise Wrong(
                "Images no longer have their own labels (or other pixels): shuffle both together."
            )
        batches.append(labels.numpy())
        if sum(map(len, batches)) > IMAGES:
            raise Wrong("An epoch has more images than the data: each once, without repeat.")
    if (count := len({image for batch in batches for image in batch.tolist()})) != IMAGES:
        raise Wrong(
            f"An epoch has {count} of the {IMAGES} images: use all, also those of the last, "
            "smaller batch."
        )
    for size in map(len, batches):
        if size not in (SMALL_BATCH, IMAGES % SMALL_BATCH):
            raise Wrong(f"A batch has {size} images; it should have {SMALL_BATCH}.")
    return batches


def _check_accuracy(found: Any, seen: Seen, mistakes: dict[float, str]) -> None:
    """Each image once, without Dropout, and the right number; else the mistake that it tells."""
    if any(training for _, _, training in seen):
        raise Wrong("Call the model with training=False: an evaluation has no Dropout.")
    right = serial.right_answers()[:EVALUATED]
    order = [image for _, batch, _ in seen for image in batch]
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
        right.mean() / REPLICAS: "The counts of the replicas were averaged: sum them "
        "(ReduceOp.SUM), or average both counts and divide then.",
        **mistakes,
    }
    if abs(given - right.mean()) < 1e-4:
        return
    for value, says in mistakes.items():
        if abs(given - value) < 1e-4:
            raise Wrong(says)
    raise Wrong(f"It returned {given:.4f}; the accuracy is {right.mean():.4f}.")
