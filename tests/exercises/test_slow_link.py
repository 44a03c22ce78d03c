"""Gradient accumulation is judged by weights, and by the bytes that the kernel counts."""

import numpy as np
import pytest

from labkit.exercises import tasks
from tests.cluster.test_links import needs_links
from tests.exercises.cells import changed, refused

TASK = "04.over_a_slow_link"
EACH = "total + gradient(weights, images, labels)"
UPDATE = "weights = weights - 0.1 * all_reduce(total) / global_batch"
STEPS, ZERO = "    for micro_batches in steps:\n", "        total = 0\n"
OFTEN = EACH.replace("gradient(weights, images, labels)",
                     "all_reduce(gradient(weights, images, labels))")  # fmt: skip


@needs_links
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (f"{EACH}\n        {UPDATE}", f"{OFTEN}\n        {UPDATE.replace('all_reduce', '')}",
         ["kernel counted", "call all_reduce once"]),
        (f"        {UPDATE}", f"            {UPDATE}", ["with which all of them were computed"]),
        ("in micro_batches:", "in [[np.concatenate(one) for one in zip(*micro_batches)]]:",
         ["gradient with 30 images at once"]),
        ("all_reduce(total)", "total", ["all_reduce 0 times", "own images"]),
        (STEPS + ZERO, ZERO[4:] + STEPS, ["new sum"]),
        ("all_reduce(total) / global_batch",
         "all_reduce(total / sum(len(one[1]) for one in micro_batches)) / 2",
         ["worker 1 has fewer images"]),
        ("in micro_batches", "in micro_batches[1:]", ["sum of all its gradients"]),
        ("total + gradient", "gradient", ["Only the last micro-batch"]),
        (" / global_batch", "", ["Divide the sum by global_batch"]),
    ],
)  # fmt: skip
def test_each_mistake_is_named(old, new, words):
    refused(TASK, changed(TASK, old, new), *words)


def _weights_are_averaged_each_step(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = sum(gradient(weights, *part) for part in micro_batches)
        weights = all_reduce(weights / 2 - 0.1 * total / global_batch)
    return weights


def _in_half_precision(weights, steps, gradient, all_reduce, global_batch):
    for micro_batches in steps:
        total = sum(gradient(weights, *part) for part in micro_batches) / global_batch
        weights -= 0.1 * all_reduce(total.astype(np.float16)).astype(np.float32)
    return weights


@needs_links
@pytest.mark.parametrize("answer", [_weights_are_averaged_each_step, _in_half_precision])
def test_right_answers_in_another_style_are_right(answer):
    assert tasks()[TASK].check(answer).state == "right", tasks()[TASK].check(answer)
