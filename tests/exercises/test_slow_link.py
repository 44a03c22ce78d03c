"""Gradient accumulation is judged by weights, and by the bytes that the kernel counts."""

import numpy as np
import pytest

from labkit.exercises import tasks
from tests.cluster.test_links import needs_links
from tests.exercises.cells import changed, refused, value

TASK = "04.over_a_slow_link"


def _each_part(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        for images, labels in micro_batches:
            weights = weights - 0.1 * all_reduce(gradient(weights, images, labels)) / global_batch
    return weights


def _often(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = sum(all_reduce(gradient(weights, *part)) for part in micro_batches)
        weights = weights - 0.1 * total / global_batch
    return weights


def _all_at_once(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        images, labels = (np.concatenate(both) for both in zip(*micro_batches, strict=True))
        total = all_reduce(gradient(weights, images, labels))
        weights = weights - 0.1 * total / global_batch
    return weights


def _averaged_at_the_end(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = sum(gradient(weights, *part) for part in micro_batches)
        weights = weights - 0.1 * total / (global_batch / 2)
    return all_reduce(weights) / 2


def _never_cleared(weights, steps, gradient, all_reduce, global_batch):
    total = np.zeros_like(weights)
    for micro_batches in steps:
        for part in micro_batches:
            total += gradient(weights, *part)
        weights = weights - 0.1 * all_reduce(total) / global_batch
    return weights


def _mean_of_means(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = sum(gradient(weights, *part) for part in micro_batches)
        images = sum(len(labels) for _, labels in micro_batches)
        weights = weights - 0.1 * all_reduce(total / images) / 2
    return weights


@needs_links
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_often, ["kernel counted", "call all_reduce once"]),
        (_all_at_once, ["gradient with 30 images at once"]),
        (_averaged_at_the_end, ["all_reduce 1 times", "own images"]),
        (_never_cleared, ["new sum"]),
        (_each_part, ["with which all of them were computed"]),
        (_mean_of_means, ["worker 1 has fewer images"]),
        (changed(TASK, "in micro_batches", "in micro_batches[1:]"), ["sum of all its gradients"]),
        (changed(TASK, "total + gradient", "gradient"), ["Only the last micro-batch"]),
        (changed(TASK, " / global_batch", ""), ["Divide the sum by global_batch"]),
    ],
)
def test_each_mistake_is_named(answer, words):
    refused(TASK, answer, *words)


def _in_place(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = np.zeros(weights.shape)  # float64
        for images, labels in micro_batches:
            total += gradient(weights, images, labels)
        weights -= (0.1 / global_batch * all_reduce(total)).astype(weights.dtype)
    return weights


def _weights_are_averaged_each_step(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = sum(gradient(weights, *part) for part in micro_batches)
        weights = all_reduce(weights / 2 - 0.1 * total / global_batch)
    return weights


def _in_half_precision(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = sum(gradient(weights, *part) for part in micro_batches) / global_batch
        weights = weights - 0.1 * all_reduce(total.astype(np.float16)).astype(np.float32)
    return weights


@needs_links
@pytest.mark.parametrize(
    "answer",
    [
        value(tasks()[TASK].solution.strip() + "\n"),
        _in_place,
        _weights_are_averaged_each_step,
        _in_half_precision,
    ],
)
def test_right_answers_in_another_style_are_right(answer):
    assert tasks()[TASK].check(answer).state == "right", tasks()[TASK].check(answer)
