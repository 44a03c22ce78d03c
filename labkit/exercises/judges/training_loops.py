"""Judges of programs in one process: training loops, a step, an evaluation, an input pipeline.

The watched model tells what the loop did with the data. What it did with the gradients is told by
the weights, which are compared with those of the serial program; a task's conditions ask whether
they are those of a known mistake.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labkit.exercises.judges import serial
from labkit.exercises.judges.answers import beside, note, numbers_in
from labkit.exercises.judges.serial import BATCH, REPLICAS, STEPS, Gradients, total
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

Told = Callable[..., None]
CLOSE_ADAM = 2e-4  # Adam divides by the size of the gradient: rounding of a small one is enlarged
MICRO_BATCHES = 4
SAVED, SAVES, INTERRUPTED_AFTER = 8, 12, (4, 11)  # a batch; steps; even and odd, one of two digits
CLIP_NORM = 0.859  # of the six global norms, from 0.83 to 1.79, one is smaller


def _passes(my_train: Callable[..., Any], *norms: float) -> Iterator[tuple[Models, Any, int, int]]:
    """One pass under a strategy, and one with another global batch; the last batch is smaller."""
    for batch, images, more in ((BATCH, BATCH * STEPS, norms[:1]), (12, 20, norms[1:])):
        made = on_replicas()
        with exact(made):
            data = make_dataset().take(images)
            result = my_train(made.strategy, made.make, data, batch, *more)
        yield made, result, images, batch


@judge
def training_loop(my_train: Callable[..., Any], _: Told) -> None:
    """A function of (strategy, make_model, dataset, global_batch) that returns (model, losses).

    It must train one pass with plain SGD, rate RATE, the mean loss of each global batch.
    """
    for made, result, images, batch in _passes(my_train):
        model, losses = returned(result, made.models)
        shares, steps = check_images(made.seen, images, batch), serial.batches(batch, images)
        copies = weight_copies(made.strategy, model)
        serial.check_weights(copies, made.optimizers, steps, batch)
        serial.check_losses(losses, shares, serial.train(steps=steps, batch=batch)[1])


def _ends(weights: list[Any], right: list[Any], close: float = serial.CLOSE) -> Callable[..., bool]:
    """Whether weights that are not right are those after serial.train(rule, steps, batch)."""
    if serial.BLIND or serial.near(weights, right, close):
        return lambda *_: False
    return lambda *given: serial.near(weights, serial.train(*given)[0], close)


@judge
def accumulation(my_train: Callable[..., Any], told: Told) -> None:
    """A function of (make_model, dataset, batch, micro_batches) that returns the model."""
    made = on_one_device()
    with exact(made):
        model = model_of(my_train(made.make, make_dataset(), BATCH, MICRO_BATCHES), made.models)
    _check_micro_batches(made.seen)
    parts: list[list[Any]] = []  # the micro-batches of each batch
    for images in (images for _, images, training in made.seen if training):
        if not parts or sum(map(len, parts[-1])) >= BATCH:
            parts.append([])
        parts[-1].append(images)
    weights, right = model.get_weights(), serial.train()[0]
    told(
        k=len(parts[0]), parts=parts, one_by_one=[[part] for each in parts for part in each],
        ends=_ends(weights, right),
        most_held=made.most_held * (serial.BLIND or serial.near(weights, right)),
    )  # fmt: skip
    known = {BATCH: serial.FACTORS[BATCH]}
    serial.compare(weights, right, serial.factors(made.optimizers, known, total))


@judge
def clipping(my_train: Callable[..., Any], told: Told) -> None:
    """A function of (strategy, make_model, dataset, global_batch, clip_norm): returns the model."""
    norms = CLIP_NORM, 10.0
    for norm, (made, result, images, batch) in zip(norms, _passes(my_train, *norms), strict=True):
        model = model_of(result, made.models)
        parts = [list(share.values()) for share in check_images(made.seen, images, batch)]
        weights = serial.equal_copies(weight_copies(made.strategy, model))

        def rule(parts: list[Gradients], norm: float = norm) -> Gradients:
            return serial.clip(total(parts), norm)

        right = serial.train(rule, parts, batch)[0]
        told(norm=norm, parts=parts, batch=batch, ends=_ends(weights, right))
        sizes = serial.factors(made.optimizers, serial.FACTORS, rule, parts, batch)
        named = f"{serial.DIVIDED}; its gradient is clipped by the global norm {norm:g}"
        serial.compare(weights, right, sizes, named)


@judge
def resuming(my_train: Callable[..., Any], told: Told) -> None:
    """A function of (make_model, dataset, batch, folder, after_step) that returns the model."""
    made, begin, steps = on_one_device(), 0, list[int]()
    with exact(made), tempfile.TemporaryDirectory() as folder:
        for end in (*INTERRUPTED_AFTER, SAVES):
            made.seen.clear()
            result = _run_until(my_train, made, folder, end, steps)
            again = f"It was interrupted after step {begin} and run again. " if begin else ""
            _check_steps(made.seen, SAVED, begin, end, again)
            begin = end
            if not any(Path(folder).iterdir()):
                raise Wrong(f"The folder is empty after step {end}. Save a checkpoint in it.")
    if steps != list(range(1, SAVES + 1)):
        raise Wrong(f"Call after_step(1), …, after_step({SAVES}), once after each step.")
    weights = model_of(result, made.models).get_weights()
    batches = serial.batches(SAVED, SAVED * SAVES)
    right = serial.train(serial.adam(), batches, SAVED)[0]
    told(batches=batches, ends=_ends(weights, right, CLOSE_ADAM))
    serial.compare(weights, right, (), f"keras.optimizers.Adam({serial.ADAM_RATE})", CLOSE_ADAM)


resuming.close = CLOSE_ADAM  # type: ignore[attr-defined]  # for those who compare its record


def _check_micro_batches(seen: Seen) -> None:
    size = BATCH // MICRO_BATCHES
    if (largest := max((len(images) for _, images, _ in seen), default=0)) > size:
        raise Wrong(
            f"The model got {largest} images in one call. The batch has {BATCH} images and "
            f"{MICRO_BATCHES} micro-batches: at most {size} images may be on the device at once."
        )
    _check_steps(seen, BATCH, 0, STEPS, "")


def _check_steps(seen: Seen, size: int, begin: int, end: int, says: str) -> None:
    order = [image for _, images, training in seen if training for image in images]
    batches = [order[first : first + size] for first in range(0, len(order), size)]
    expected = list(range(begin * size, end * size))
    if [image for batch in batches for image in sorted(batch)] == expected:
        return
    if begin and order[:1] == [0]:
        raise Wrong(
            f"{says}It began with the first image of the dataset. Restore the last checkpoint, and "
            "skip the batches that are done (optimizer.iterations counts them)."
        )
    if begin and order and (done := order[0] // size) < begin:
        text = (
            f"It went on after step {done}. Read the newest checkpoint (as text, 10 is before 9)."
        )
        if done == begin - 1:
            text = f"It used the batch of step {begin} again. Save after the update of each step, "
            text += "and before after_step."
        raise Wrong(f"{says}{text}")
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
        if int(step) == end < SAVES:
            raise Preempted

    try:
        result = my_train(made.make, make_dataset(), SAVED, folder, after_step)
    except Preempted:
        return None
    if end < SAVES:
        raise Wrong(
            f"after_step({end}) ends the job. It was called with {steps}, and the loop went on. "
            "The first step has number 1; after a restart go on counting."
        )
    return result


# A step, an evaluation, a `fit`, an input pipeline.

EVALUATED, UNEVEN = 77, 14  # the last batch has 7 images: 4 for one replica, 3 for the other
LONE = 19  # on one device the last batch has one image
IMAGES, SMALL_BATCH = 10_409, 64  # of the input pipeline: no buffer of 10,000, no equal batches


@judge
def one_step(my_step: Callable[..., Any], told: Told) -> None:
    """A function of (model, optimizer, images, labels) that trains one step, returns the loss."""
    import keras

    tf, made, half = import_tensorflow(), on_one_device(), BATCH * STEPS // 2
    images, labels = map(tf.constant, serial.make_data())
    steps = serial.batches(half, 2 * half)  # of more images than a usual batch
    with exact(made):
        model, optimizer = made.make(), keras.optimizers.SGD(serial.RATE / 2)
        optimizer.build(model.trainable_variables)
        batches = [(images[at], labels[at]) for at in (slice(half), slice(half, None))]
        losses = [my_step(model, optimizer, *batch) for batch in batches]

    def times(by: float) -> Any:
        """Weights and losses with so large a gradient."""
        return serial.train(serial.scaled(by / 2), steps, half)

    (right, each), weights = times(1), model.get_weights()
    note(model)
    is_right = serial.BLIND or serial.near(weights, right)
    told(ends=lambda by: not is_right and serial.near(weights, times(by)[0]), times=serial.times)
    named = "the optimizer that is given and the mean cross-entropy of logits"
    serial.compare(weights, right, (), f"{named} (from_logits=True in Keras)")
    after = serial.train(serial.scaled(1 / 2), [steps[0], steps[0]], half)[1][1].mean()
    found = numbers_in(losses, "the loss, one number")
    for step, (given, loss) in enumerate(zip(found, each.mean(axis=1), strict=True), 1):
        if not (serial.BLIND or abs(given - loss) < 1e-3):
            when = "; yours is that after it" * bool(abs(given - after) < 1e-3)
            raise Wrong(
                f"The weights are right. Step {step} returned {given:.4f}; the mean loss of "
                f"its batch, before the update, is {loss:.4f}{when}."
            )
    if not all(training for _, _, training in made.seen):
        raise Wrong("Call the model with training=True, or else Dropout and its like do nothing.")


@judge
def accuracy(my_accuracy: Callable[..., Any], told: Told) -> None:
    """A function of (model, images, labels, batch) that returns the accuracy of all images."""
    made = on_one_device()
    with exact(made):
        found = my_accuracy(made.make(), *(one[:EVALUATED] for one in serial.make_data()), LONE)
    if (largest := max((len(batch) for _, batch, _ in made.seen), default=0)) > LONE:
        raise Wrong(f"The model got {largest} images in one call; at most {LONE} may be.")
    _tell_accuracy(told, found, made.seen, LONE)


@judge
def distributed_accuracy(my_evaluate: Callable[..., Any], told: Told) -> None:
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
        raise Wrong("One replica alone did all the work. Use strategy.run(step, args=(…)).")
    shares = [sum(map(sum, each)) / sum(map(len, each)) for each in batches]
    steps = [a.mean() / 2 + b.mean() / 2 for a, b in zip(*batches, strict=False)]
    means = sum(steps) / len(steps)
    _tell_accuracy(told, found, made.seen, UNEVEN, shares=shares, means=means)


@judge
def fitting(my_fit: Callable[..., Any], _: Told) -> None:
    """A function of (strategy, make_model, dataset, global_batch): one epoch; returns the model."""
    for made, result, images, batch in _passes(my_fit):
        model = model_of(result, made.models)
        check_images(made.seen, images, batch)
        steps, copies = serial.batches(batch, images), weight_copies(made.strategy, model)
        serial.check_weights(copies, made.optimizers, steps, 0)  # Keras divides by its images
        if getattr(model, "history", None) is None:
            raise Wrong("The weights are right, but model.fit has not trained the model.")


def input_pipeline(told: Told, my_dataset: Callable[..., Any]) -> None:
    """A function of (images, labels, batch) that returns a dataset, in a new order each epoch."""
    import numpy as np

    epochs = beside(my_dataset, _observed_epochs)
    batches, orders = epochs[0], np.array([np.concatenate(batches) for batches in epochs])
    # Behind a buffer of b images none comes b places early. In 3 mixed orders one is earlier than
    # 0.97 of the data, but for 1 in 700,000 times.
    told(
        orders=orders, numbers=np.arange(IMAGES),
        near=min(map(np.ptp, batches[:-1])),
        in_order=np.corrcoef([one.mean() for one in batches], np.arange(len(batches)))[0, 1] > 0.5,
    )  # fmt: skip


def _observed_epochs(answer: Any) -> Any:
    return judge(_epochs)()(answer)


def _epochs(my_dataset: Callable[..., Any], _: Told) -> list[list[Any]]:
    import numpy as np

    numbers = np.arange(IMAGES)
    dataset = my_dataset(numbers.reshape(-1, 1).astype("float32"), numbers, SMALL_BATCH)
    if not isinstance(dataset, import_tensorflow().data.Dataset):
        raise Wrong(f"It returned a {type(dataset).__name__}: return a tf.data.Dataset.")
    return [_epoch(dataset) for _ in range(3)]


def _epoch(dataset: Any) -> list[Any]:
    """The numbers of the images of an epoch, by batch."""
    batches: list[Any] = []
    for element in dataset:
        if not (isinstance(element, tuple) and [len(one.shape) for one in element] == [2, 1]):
            raise Wrong("An element must be a pair, the images and the labels of a batch.")
        images, labels = element
        if (images.numpy()[:, 0] != labels.numpy()).any():
            raise Wrong(
                "Images no longer have their own labels (or other pixels). Shuffle both together."
            )
        batches.append(labels.numpy())
        if sum(map(len, batches)) > IMAGES:
            raise Wrong("An epoch has more images than the data. Use each once, without repeat.")
    if (count := len({image for batch in batches for image in batch.tolist()})) != IMAGES:
        raise Wrong(
            f"An epoch has {count} of the {IMAGES} images. Use all, also those of the last, "
            "smaller batch."
        )
    for size in sorted(map(len, batches))[1:]:
        if size != SMALL_BATCH:
            raise Wrong(f"A batch has {size} images; it should have {SMALL_BATCH}.")
    return batches


def _tell_accuracy(told: Told, found: Any, seen: Seen, batch: int, **facts: Any) -> None:
    """Each image once, without Dropout, and the right number."""
    if any(training for _, _, training in seen):
        raise Wrong("Call the model with training=False, because an evaluation has no Dropout.")
    right = serial.right_answers()[:EVALUATED]
    order = [image for _, images, _ in seen for image in images]
    if sorted(order) != list(range(len(right))):
        raise Wrong(
            f"The model got {len(order)} images, {len(set(order))} different ones, and it must get "
            f"each of the {len(right)} once. The last batch is smaller than the others."
        )
    (given,) = numbers_in([found], "the accuracy, one number")
    if not (serial.BLIND or abs(given - right.mean()) < 1e-4):
        batches = [right[first : first + batch].mean() for first in range(0, len(right), batch)]
        is_ = lambda value: abs(given - value) < 1e-4  # noqa: E731
        told(is_=is_, batches=sum(batches) / len(batches), right=right.mean(), **facts)
        raise Wrong(f"It returned {given:.4f}; the accuracy is {right.mean():.4f}.")
