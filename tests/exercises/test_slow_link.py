"""Gradient accumulation is judged by weights, and by the bytes that the kernel counts."""

import numpy as np
import pytest

from labkit.exercises import tasks
from tests.cluster.test_links import needs_links

TASK = "13.over_a_slow_link"


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
