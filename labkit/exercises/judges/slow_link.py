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
Sums = list[list[Any]]  # of gradients, by worker and micro-batch
# Of the gradients of a step and the numbers of images, what a wrong program subtracts.
MISTAKES: dict[str, Callable[[Sums, list[list[int]]], Any]] = {
    "It averages the two workers' means, and worker 1 has fewer images. Divide the sum of all "
    "gradients by global_batch: then each image has the same weight.": (
        lambda sums, sizes: sum(sum(g) / sum(n) for g, n in zip(sums, sizes, strict=True)) / 2
    ),
    "Only the last micro-batch of each worker is in the sum.": (
        lambda sums, _: sum(each[-1] for each in sums) / GLOBAL_BATCH
    ),
    "Divide the sum by global_batch.": lambda sums, _: sum(map(sum, sums)),
    "all_reduce gives the sum over both workers, and global_batch counts the images of both: "
    "divide by global_batch alone.": lambda sums, _: sum(map(sum, sums)) / GLOBAL_BATCH / 2,
}


@judged
def accumulated(my_steps: Any) -> None:
    """A function of (weights, steps, gradient, all_reduce, global_batch) that returns weights."""
    data = [_batches(worker) for worker in range(WORKERS)]
    programs = {"yours": partial(_train, my_steps), "often": partial(_train, _often)}
    runs = over_links(programs, data, rounds=1, link="200 Mbit/s")
    for worker, (result, largest, reduces) in enumerate(runs["yours"].results):
        if largest > SIZE:
            raise Wrong(
                f"It called gradient with {largest} images at once. The memory of a worker has "
                f"room for one micro-batch, {SIZE} images: call gradient for each, and add up what "
                "it returns."
            )
        if reduces < STEPS:
            raise Wrong(
                f"In {STEPS} steps worker {worker} called all_reduce {reduces} times. Each step "
                "needs the gradients of both workers: without them a worker trains on its own "
                "images alone."
            )
        _check_weights(worker, result, data)
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
            images, labels = steps[-1][-1]
            steps[-1][-1] = images[:-3], labels[:-3]
    return steps


def _weights() -> Any:
    return np.random.default_rng(9).normal(0, 0.01, (PIXELS, CLASSES)).astype(np.float32)


def _gradient(weights: Any, images: Any, labels: Any) -> Any:
    """The sum over the images of the gradients of their cross-entropy."""
    logits = images @ weights
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    return images.T @ shares


def _train(my_steps: Callable[..., Any], comm: Any, steps: Parts) -> tuple[Any, int, int]:
    """On a worker: its weights, most images in a call of gradient, and the calls of all_reduce."""
    sizes, reduces = [0], 0

    def gradient(weights: Any, images: Any, labels: Any) -> Any:
        sizes.append(len(images))
        return _gradient(weights, images, labels)

    def all_reduce(array: Any) -> Any:
        nonlocal reduces
        reduces += 1
        total = np.array(array)
        ring_all_reduce(comm, total)
        return total

    return my_steps(_weights(), steps, gradient, all_reduce, GLOBAL_BATCH), max(sizes), reduces


def _often(weights: Any, steps: Parts, gradient: Any, all_reduce: Any, global_batch: int) -> Any:
    """All-reduce after each micro-batch, as a program does without accumulation."""
    for parts in steps:
        total = sum(all_reduce(gradient(weights, *part)) for part in parts)
        weights = weights - RATE * total / global_batch
    return weights


def _check_weights(worker: int, result: Any, data: list[Parts]) -> None:
    def is_(rule: Callable[[Sums, list[list[int]]], Any]) -> bool:
        """Whether a program that subtracts RATE × what this makes ends with these weights."""
        weights = _weights()
        for parts in zip(*data, strict=True):
            sums = [[_gradient(weights, *part) for part in own] for own in parts]
            weights = weights - RATE * rule(sums, [[len(n) for _, n in own] for own in parts])
        far = np.linalg.norm(np.asarray(result, np.float32) - weights)
        return bool(far <= CLOSE * np.linalg.norm(weights - _weights()))

    if np.shape(result) != (PIXELS, CLASSES):
        raise Wrong(f"It returned {type(result).__name__}: return the weights.")
    if not is_(lambda sums, _: sum(map(sum, sums)) / GLOBAL_BATCH):
        usual = (
            f"Each step subtracts {RATE} × (sum of all its gradients) / global_batch, once, from "
            "the weights with which all of them were computed: begin each step with a new sum."
        )
        why = next((why for why, rule in MISTAKES.items() if is_(rule)), usual)
        raise Wrong(f"Worker {worker}'s weights are not those of the serial program. {why}")
