"""Judges of lecture 38: other right ways, further mistakes, and what `explain` computes."""

import math
import random

import pytest

from labkit.exercises import tasks
from labkit.exercises.judges.answers import solved
from labkit.explain.findings import _kept
from labkit.explain.removals import STUDENT, gain
from tests.exercises.cells import refused, value

TASKS = tasks()

RIGHT = {
    "traces": [
        """
def my_compiled(step):
    compiled = tf.function(step, reduce_retracing=True)
    return lambda x, rate: compiled(x, tf.constant(rate))
""",
        """
def my_compiled(step):
    @tf.function(input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([])])
    def inner(x, rate):
        return step(x, rate)
    return inner
""",
    ],
    "even": [
        """
def my_steps(lengths, ranks, batch, rng):
    order = np.argsort(lengths).reshape(-1, ranks, batch)
    return rng.permutation(order)
""",
        """
def my_steps(lengths, ranks, batch, rng):
    # groups of a random order are sorted, as samplers do
    order, size = rng.permutation(len(lengths)), len(lengths) // 2
    steps = []
    for group in order[:size], order[size:]:
        group = sorted(group, key=lengths.__getitem__)
        for first in range(0, size, ranks * batch):
            some = group[first : first + ranks * batch]
            steps.append([some[r * batch : (r + 1) * batch] for r in range(ranks)])
    rng.shuffle(steps)
    return steps
""",
    ],
}
WRONG = {
    "traces": [
        (
            "def my_compiled(step):\n    return tf.function(step)(tf.ones((4, 3)), 1.0)",
            "a function",
        ),
        (
            """
def my_compiled(step):
    compiled = tf.function(step, reduce_retracing=True)
    return lambda x, rate: compiled(x, tf.constant(1.0))
""",
            "not those of the step",
        ),
    ],
    "even": [
        (
            """
def my_steps(lengths, ranks, batch, rng):
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    groups = [order[i : i + batch] for i in range(0, len(order), batch)]
    return rng.permutation([[one] * ranks for one in groups]).tolist()
""",
            "It must come once",
        ),
        (
            """
def my_steps(lengths, ranks, batch, rng):
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    some = [order[i : i + ranks * batch] for i in range(0, len(order), ranks * batch)]
    return [[one] for one in rng.permutation(some).tolist()]
""",
            "one for each rank",
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "source"), [(name, one) for name, all_of in RIGHT.items() for one in all_of]
)
def test_another_right_way_is_right(name, source):
    TASKS[f"38.{name}"].judge(value(source))


@pytest.mark.parametrize(
    ("name", "source", "words"), [(name, *one) for name, all_of in WRONG.items() for one in all_of]
)
def test_another_wrong_way_is_refused(name, source, words):
    refused(f"38.{name}", value(source), words)


def test_explain_computes_what_the_tasks_teach():
    """The interval of a few pairs without outliers, and the gain of what keeps a part."""
    interval, seldom = (solved(TASKS[f"38.{one}"].solution) for one in ("interval", "seldom"))
    draw = random.Random(38)
    for n in (3, 4, 5):
        pairs = [(draw.uniform(2, 6), draw.uniform(1, 2)) for _ in range(n)]
        found = gain([math.log(long / short) for long, short in pairs])
        assert found is not None
        theirs = interval(pairs, STUDENT[n - 1])
        assert (found.low, found.value, found.high) == pytest.approx(theirs)
    for kept in (0.0, 0.1, 0.2, 1.0):
        assert _kept(3.0, kept) == pytest.approx(seldom(3.0, kept))
