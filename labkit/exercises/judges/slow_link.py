"""The judge of gradient accumulation: two workers, whose link the kernel counts.

Each trains a linear classifier on its own micro-batches. The weights must be those of a serial
program, and the link must carry a gradient once a step, not once for each micro-batch.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
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
    for worker, (result, calls, reduces) in enumerate(runs["yours"].results):
        _check_calls(worker, calls, reduces)
        _check_updates(worker, result, [weights for _, weights in calls])
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


Call = tuple[list[int], Any]  # the numbers of the images, and the weights


def _train(my_steps: Callable[..., Any], comm: Any, steps: Parts) -> tuple[Any, list[Call], int]:
    """On a worker: what it returns, its calls of gradient, and the number of those of all_reduce.

    Equal weights of two calls in a row are one array.
    """
    known = {x.tobytes(): n for n, x in enumerate(x for s in steps for part in s for x in part[0])}
    calls: list[Call] = []
    reduces = 0

    def gradient(weights: Any, images: Any, labels: Any) -> Any:
        used = calls[-1][1] if calls and np.array_equal(calls[-1][1], weights) else weights.copy()
        rows = np.asarray(images, np.float32)
        calls.append(([known.get(image.tobytes(), -1) for image in rows], used))
        return _gradient(weights, images, labels)

    def all_reduce(array: Any) -> Any:
        nonlocal reduces
        reduces += 1
        total = np.array(array)
        ring_all_reduce(comm, total)
        return total

    return my_steps(_weights(), steps, gradient, all_reduce, GLOBAL_BATCH), calls, reduces


def _often(weights: Any, steps: Parts, gradient: Any, all_reduce: Any, global_batch: int) -> Any:
    """All-reduce after each micro-batch, as a program does without accumulation."""
    for parts in steps:
        total = sum(all_reduce(gradient(weights, *part)) for part in parts)
        weights = weights - RATE * total / global_batch
    return weights


def _check_calls(worker: int, calls: list[Call], reduces: int) -> None:
    each = PARTS * SIZE - (3 if worker == 1 else 0)  # images of a step
    most = max((len(images) for images, _ in calls), default=0)
    if most > SIZE:
        raise Wrong(
            f"It called gradient with {most} images at once. The memory of a worker has room for "
            f"one micro-batch, {SIZE} images: call gradient for each, and add up what it returns."
        )
    trained = [image for images, _ in calls for image in images]
    if len({*trained} - {-1}) < STEPS * each:
        raise Wrong(
            f"Worker {worker} computed the gradients of {len({*trained} - {-1})} of its "
            f"{STEPS * each} images. All micro-batches of all steps belong to the training."
        )
    if len(trained) > STEPS * each:
        raise Wrong(f"Worker {worker} computed the gradients of some images more than once.")
    if reduces < STEPS:
        raise Wrong(
            f"In {STEPS} steps worker {worker} called all_reduce {reduces} times. Each step needs "
            "the gradients of both workers: without them a worker trains on its own images alone."
        )
    order = [image // each for image in trained]
    if order != sorted(order):
        raise Wrong("Take the steps in the order of the list.")
    for (images, weights), (others, later) in pairwise(calls):
        if images[0] // each == others[0] // each and weights is not later:
            raise Wrong(
                "It changes the weights between two micro-batches of a step, so later gradients "
                "are those of other weights. Update once, at the end of a step."
            )


def _check_updates(worker: int, result: Any, used: list[Any]) -> None:
    """The change of the weights in each step, by the weights with which gradient was called."""
    try:
        final = np.asarray(result, np.float32).reshape(PIXELS, CLASSES)
    except (TypeError, ValueError):
        raise Wrong(f"It returned {type(result).__name__}: return the weights.") from None
    per_step = len(used) // STEPS
    steps = zip(*(_batches(worker) for worker in range(WORKERS)), strict=True)
    for n, (parts, (before, after)) in enumerate(
        zip(steps, pairwise([*used[::per_step], final]), strict=True)
    ):
        change = after - before
        sums = [[_gradient(before, *part) for part in own] for own in parts]
        right = -RATE * sum(map(sum, sums)) / GLOBAL_BATCH
        if np.linalg.norm(change - right) <= CLOSE * np.linalg.norm(right):
            continue
        if n == 0:
            sizes = [[len(labels) for _, labels in own] for own in parts]
            _name(change, right, before, sums, sizes)
        first = ", and that of step 1 is right" * (n > 0)
        raise Wrong(
            f"On worker {worker} the update of step {n + 1} is wrong{first}. "
            f"It must be -{RATE} × (sum of all gradients of the step) / global_batch: begin each "
            "step with a new sum, and return the weights after the last update."
        )


def _name(change: Any, right: Any, before: Any, sums: Any, sizes: Any) -> None:
    """The mistake that leads to this change, if it is a usual one."""
    if not change.any():
        raise Wrong("Step 2 computes its gradients with the weights of step 1: update them first.")
    own = [sum(g) / sum(n) for g, n in zip(sums, sizes, strict=True)]
    each = [g / n for gs, ns in zip(sums, sizes, strict=True) for g, n in zip(gs, ns, strict=True)]
    mean = "Divide the sum of all gradients by global_batch: then each image has the same weight."
    directions = {
        "": right,
        f"It averages the two workers' means, and worker 1 has fewer images. {mean}": sum(own),
        f"It averages the means of micro-batches, and the last one is smaller. {mean}": sum(each),
        "Only the last micro-batch of each worker is in the sum.": sums[0][-1] + sums[1][-1],
    }
    if np.allclose(change - before, right, atol=1e-4):
        raise Wrong("all_reduce has summed the weights of both workers: they are doubled.")
    for why, direction in directions.items():
        factor = float((change * direction).sum() / (direction**2).sum())
        if np.linalg.norm(change - factor * direction) <= CLOSE * np.linalg.norm(change):
            hints = [text for times, text in FACTORS.items() if abs(factor / times - 1) < 0.01]
            text = f"The first update is {factor:.3g} times as large as it must be. "
            raise Wrong(why or text + " ".join(hints))


FACTORS = {
    GLOBAL_BATCH: "Divide the sum by global_batch.",
    1 / WORKERS: "all_reduce gives the sum over both workers, and global_batch counts the images "
    "of both: divide by global_batch alone.",
    WORKERS: "global_batch counts the images of both workers: divide by it.",
    -1: "Subtract the gradient.",
}
