"""Judges of lecture 38: what is traced, and how long ranks wait for the longest batch."""

from collections import Counter
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import beside, function, judged
from labkit.exercises.judges.observed_traces import CALLS, calls, watch_traces
from labkit.exercises.task import Wrong


def _examine_traces(answer: Any) -> None:
    seen = beside(answer, watch_traces)
    if seen["eager"]:
        raise Wrong(
            f"Of {CALLS} calls {seen['eager']} ran eagerly. Compile the step with tf.function."
        )
    right = [rate * np.mean(x**2, axis=1) for x, rate in calls()]
    if any(
        np.shape(mine) != truth.shape or not np.allclose(mine, truth, 1e-4)
        for mine, truth in zip(seen["results"], right, strict=True)
    ):
        raise Wrong("Its results are not those of the step itself. Padding must not change them.")
    if seen["graph"] > 3:
        raise Wrong(
            f"In {CALLS} calls with {CALLS} lengths and {CALLS} rates the step was traced "
            f"{seen['graph']} times. At most 3 are allowed: leave the length open in the "
            "signature, and let the rate be a tensor."
        )


traces = judged(_examine_traces)


def waiting(steps: list[list[list[int]]], lengths: list[int]) -> float:
    """The share of their time that ranks wait, if a batch takes as long as its longest sequence.

    >>> waiting([[[0], [1]]], [10, 20])
    0.25
    """
    longest = [[max(lengths[i] for i in batch) for batch in ranks] for ranks in steps]
    whole = sum(len(ranks) * max(ranks) for ranks in longest)
    return 1 - sum(map(sum, longest)) / whole


def _examine_even(called: Any) -> None:
    orders = []
    for ranks, batch, seed in ((2, 8, 1), (2, 8, 2), (4, 4, 3)):
        rng = np.random.default_rng(seed)
        lengths = [int(one) for one in 10 * 40 ** np.random.default_rng(38).random(768)]
        steps = called(lengths, ranks, batch, rng)
        try:
            plain = [[[int(i) for i in mine] for mine in step] for step in steps]
        except TypeError:
            raise Wrong(
                "Return a list of steps; a step is a list with one list of indices for each rank."
            ) from None
        if any(len(step) != ranks or {len(mine) for mine in step} != {batch} for step in plain):
            raise Wrong(f"Each step has {ranks} batches of {batch} sequences, one for each rank.")
        counts = Counter(i for step in plain for mine in step for i in mine)
        if wrong := [i for i in range(len(lengths)) if counts[i] != 1]:
            raise Wrong(f"Sequence {wrong[0]} comes {counts[wrong[0]]} times. It must come once.")
        share = waiting(plain, lengths)
        if share > 0.1:
            raise Wrong(
                f"With {ranks} ranks and batches of {batch}, ranks wait for {share:.0%} of their "
                "time. At most 10 % are allowed: the batches of one step must be equally long."
            )
        orders.append([max(lengths[i] for mine in step for i in mine) for step in plain])
        if orders[-1] in (sorted(orders[-1]), sorted(orders[-1], reverse=True)):
            raise Wrong("The steps come in the order of their lengths. Shuffle the steps with rng.")
    if orders[0] == orders[1]:
        raise Wrong("Two generators give the same order of steps. Shuffle the steps with rng.")


even = function(_examine_even)
