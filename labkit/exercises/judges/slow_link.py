"""The judge of gradient accumulation: two workers, whose link the kernel counts.

Each trains a linear classifier on its own micro-batches. The weights must be those of a serial
program, and the link must carry a gradient once a step, not once for each micro-batch.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from labkit.collectives.programs import ring_all_reduce
from labkit.exercises.judges.frameworks import error
from labkit.exercises.judges.over_links import over_links

WORKERS, STEPS, PARTS, SIZE = 2, 3, 5, 6  # PARTS micro-batches of SIZE images on each worker
GLOBAL_BATCH = WORKERS * PARTS * SIZE - 3  # the last micro-batch of worker 1 is smaller
PIXELS, CLASSES, RATE = 500, 100, 0.1
CLOSE = 0.005  # of the whole change: half precision may be sent

Parts = list[list[tuple[Any, Any]]]  # by step and micro-batch
Sums = list[list[Any]]  # of gradients, by worker and micro-batch


def accumulated(told: Callable[..., None], my_steps: Any) -> None:
    """A function of (weights, steps, gradient, all_reduce, global_batch) that returns weights."""
    data = [_batches(worker) for worker in range(WORKERS)]
    programs = {"yours": partial(_train, my_steps), "often": partial(_train, _often)}
    runs = over_links(programs, data, answer=my_steps, rounds=1, link="200 Mbit/s")
    sent, often = (run.traffic.bytes("host 0")[0] for run in runs.values())
    for worker, (result, largest, reduces) in enumerate(runs["yours"].results):
        facts = {"largest": largest, "reduces": reduces, "sent": sent, "often": often}
        told(worker=worker, result=result, ends=partial(_ends, result, data), **facts)


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
    wrong = error(images @ weights, labels) * len(labels)
    return images.T @ wrong.astype(np.float32)


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


def _ends(result: Any, data: list[Parts], rule: Callable[[Sums, list[int]], Any]) -> bool:
    """Whether a program ends with these weights that subtracts RATE × what the rule makes.

    The rule gets each worker's gradients of a step, and its number of images.
    """
    weights = _weights()
    for parts in zip(*data, strict=True):
        sums = [[_gradient(weights, *part) for part in own] for own in parts]
        sizes = [sum(len(labels) for _, labels in own) for own in parts]
        weights = weights - RATE * rule(sums, sizes)
    far = np.linalg.norm(np.asarray(result, np.float32) - weights)
    return bool(far <= CLOSE * np.linalg.norm(weights - _weights()))
