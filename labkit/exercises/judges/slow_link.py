"""The judge of gradient accumulation: two workers, whose link the kernel counts.

Each trains a linear classifier on its own micro-batches. The weights must be those of a serial
program, and the link must carry a gradient once a step, not once for each micro-batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives.programs import ring_all_reduce
from labkit.exercises.judges.answers import judged
from labkit.exercises.judges.over_links import over_links
from labkit.exercises.task import Wrong
from labkit.kinds import bytes_text

WORKERS, STEPS, PARTS, SIZE = 2, 3, 5, 6  # PARTS micro-batches of SIZE images on each worker
GLOBAL_BATCH = WORKERS * PARTS * SIZE - 3  # the last micro-batch of worker 1 is smaller
PIXELS, CLASSES, RATE = 500, 100, 0.1
CLOSE = 0.005  # of the whole change: half precision may be sent
AT_MOST = 0.45  # of the bytes of a program that sends after each micro-batch

Parts = list[list[tuple[Any, Any]]]  # by step and micro-batch


@judged
def accumulated(my_steps: Any) -> None:
    """A function of (weights, steps, gradient, all_reduce, global_batch) that returns weights."""
    data = [_batches(worker) for worker in range(WORKERS)]
    programs = {"yours": partial(_train, my_steps), "often": partial(_train, _often)}
    runs = over_links(programs, data, rounds=1, link="200 Mbit/s")
    found = runs["yours"].results
    for worker, (_, images, reduces) in enumerate(found):
        _check_images(worker, images, reduces)
    for worker, (weights, _, _) in enumerate(found):
        _check_weights(worker, weights, data)
    sent, often = (run.traffic.bytes("host 0")[0] for run in runs.values())
    if sent > AT_MOST * often:
        raise Wrong(
            f"The weights are right, but the kernel counted {bytes_text(sent)} from worker 0, and "
            f"{bytes_text(often)} when every micro-batch calls all_reduce. Add up the gradients of "
            "a step's micro-batches on the worker, and call all_reduce once, with their sum."
        )


def _batches(worker: int) -> Parts:
    """The images and labels of a worker."""
    random = np.random.default_rng(worker)
    steps: Parts = []
    for _ in range(STEPS):
        images = random.uniform(0, 1, (PARTS * SIZE, PIXELS)).astype(np.float32)
        labels = random.integers(0, CLASSES, PARTS * SIZE)
        steps.append([(images[at : at + SIZE], labels[at : at + SIZE])
                      for at in range(0, PARTS * SIZE, SIZE)])  # fmt: skip
        if worker == 1:
            steps[-1][-1] = tuple(part[:-3] for part in steps[-1][-1])
    return steps


def _weights() -> Any:
    return np.zeros((PIXELS, CLASSES), np.float32)


def _gradient(weights: Any, images: Any, labels: Any) -> Any:
    """The sum over the images of the gradients of their cross-entropy."""
    logits = images @ weights
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    return images.T @ shares


def _train(my_steps: Callable[..., Any], comm: Any, steps: Parts) -> tuple[Any, Any, int]:
    """On a worker: what it returns, the images of each call of gradient, calls of all_reduce."""
    seen: list[list[bytes]] = []
    reduces = 0

    def gradient(weights: Any, images: Any, labels: Any) -> Any:
        seen.append([image.tobytes() for image in images])
        return _gradient(weights, images, labels)

    def all_reduce(array: Any) -> Any:
        nonlocal reduces
        reduces += 1
        total = np.array(array)
        ring_all_reduce(comm, total)
        return total

    weights = my_steps(_weights(), steps, gradient, all_reduce, GLOBAL_BATCH)
    known = {x.tobytes(): n for n, x in enumerate(x for s in steps for part in s for x in part[0])}
    return weights, [[known.get(image, -1) for image in call] for call in seen], reduces


def _often(weights: Any, steps: Parts, gradient: Any, all_reduce: Any, global_batch: int) -> Any:
    """All-reduce after each micro-batch, as a program does without accumulation."""
    for parts in steps:
        total = sum(all_reduce(gradient(weights, *part)) for part in parts)
        weights = weights - RATE * total / global_batch
    return weights


def _check_images(worker: int, calls: list[list[int]], reduces: int) -> None:
    images = STEPS * (PARTS * SIZE - (3 if worker == 1 else 0))
    most = max(map(len, calls), default=0)
    if most > SIZE:
        raise Wrong(
            f"It called gradient with {most} images at once. The memory of a worker has room for "
            f"one micro-batch, {SIZE} images: call gradient for each, and add up what it returns."
        )
    trained = [image for call in calls for image in call]
    if len({*trained} - {-1}) < images:
        raise Wrong(
            f"Worker {worker} computed the gradients of {len({*trained} - {-1})} of its {images} "
            "images. All micro-batches of all steps belong to the training."
        )
    if len(trained) > images:
        raise Wrong(f"Worker {worker} computed the gradients of some images more than once.")
    if reduces < STEPS:
        raise Wrong(
            f"In {STEPS} steps worker {worker} called all_reduce {reduces} times. Each step needs "
            "the gradients of both workers: without them a worker trains on its own images alone."
        )


def _check_weights(worker: int, found: Any, data: list[Parts]) -> None:
    try:
        weights = np.asarray(found, np.float32).reshape(PIXELS, CLASSES)
    except (TypeError, ValueError):
        raise Wrong(f"It returned {type(found).__name__}: return the weights.") from None
    right = _by(_total, data)
    if _far(weights, right) <= CLOSE:
        return
    if not weights.any():
        raise Wrong("It returned the weights as they were at the beginning.")
    for why, program in SLIPS.items():
        if _far(weights, program(data)) <= CLOSE:
            raise Wrong(f"Worker {worker} does not end with the serial program's weights. {why}")
    raise Wrong(
        f"Worker {worker} does not end with the weights of the serial program, which updates once "
        f"a step: weights - {RATE} × (sum of all gradients of the step) / global_batch."
    )


def _far(weights: Any, right: Any) -> float:
    return float(np.linalg.norm(weights - right) / np.linalg.norm(right))


def _by(rule: Callable[..., Any], data: list[Parts], *, kept: bool = False) -> Any:
    """One process with all images; rule(sums, sizes), by worker and micro-batch, is the update.

    kept: what was summed is not cleared for the next step.
    """
    weights, before = _weights(), _weights()
    for step in zip(*data, strict=True):
        sums = [[_gradient(weights, *part) for part in parts] for parts in step]
        sizes = [[len(labels) for _, labels in parts] for parts in step]
        before = rule(sums, sizes) + (before if kept else 0)
        weights = weights - RATE * before
    return weights


def _total(sums: Any, _: Any) -> Any:
    return sum(map(sum, sums)) / GLOBAL_BATCH


def _each_part(data: list[Parts], factor: float = 1.0) -> Any:
    """Updates after each micro-batch."""
    weights = _weights()
    for step in zip(*data, strict=True):
        for parts in zip(*step, strict=True):
            total = sum(_gradient(weights, *part) for part in parts)
            weights = weights - RATE * factor * total / GLOBAL_BATCH
    return weights


def _scaled(factor: float) -> Callable[[list[Parts]], Any]:
    return partial(_by, lambda *step: factor * _total(*step))


SLIPS: dict[str, Callable[[list[Parts]], Any]] = {
    "The sum is not divided by global_batch.": _scaled(GLOBAL_BATCH),
    "Its updates are half as large: all_reduce gives the sum over both workers, and global_batch "
    "counts the images of both. Divide by global_batch alone.": _scaled(1 / WORKERS),
    "Its updates are twice as large: divide by global_batch, the images of both workers.":
        _scaled(WORKERS),
    "Its updates are divided by the number of micro-batches, too. gradient gives a sum, not a "
    "mean: divide by global_batch alone.": _scaled(1 / PARTS),
    "It goes up the gradient: subtract it.": _scaled(-1),
    "It averages the two workers' means, and worker 1 has fewer images. Divide the sum of all "
    "gradients by global_batch: then each image has the same weight.":
        partial(_by, lambda sums, sizes: sum(
            sum(g) / sum(n) for g, n in zip(sums, sizes, strict=True)) / WORKERS),
    "It averages the means of micro-batches, and the last one of worker 1 is smaller. Divide the "
    "sum of all gradients by global_batch: then each image has the same weight.":
        partial(_by, lambda sums, sizes: sum(
            g / n for gs, ns in zip(sums, sizes, strict=True) for g, n in zip(gs, ns, strict=True)
        ) / WORKERS / PARTS),
    "Only the last micro-batch of each worker is in the sum.":
        partial(_by, lambda sums, _: sum(parts[-1] for parts in sums) / GLOBAL_BATCH),
    "The sum of a step still holds the gradients of the step before. Begin each step with a new "
    "sum.": partial(_by, _total, kept=True),
    "It updates the weights after each micro-batch, so later gradients are those of other weights. "
    "Update once a step.": _each_part,
    "It updates the weights after each micro-batch, and as if each were a whole batch.":
        partial(_each_part, factor=PARTS),
}  # fmt: skip
