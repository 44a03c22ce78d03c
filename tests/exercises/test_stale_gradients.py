"""Lectures 12, 13 and 15: a wrong answer is told which mistake it is."""

import numpy as np
import pytest

from labkit.exercises import check
from tests.exercises.cells import changed, refused

STALE = "found.append(version - pulled[worker])\n"
OLD = "x.append(x[k] - step * x[max(0, k - delay)])"


@pytest.mark.parametrize(
    ("task", "old", "new", "words"),
    [
        ("12.my_server", "version += 1\n",
         "version += 1\n            message.reply(weights, version)\n", "Only a pull is answered"),
        ("12.my_server", "weights = weights - rate * message.gradient\n",
         "kept = message.gradient\n", "got [4, 4]"),
        ("13.my_staleness", STALE, "found.append(version + 1 - pulled[worker])\n", "itself stale"),
        ("13.my_staleness", "pulled[worker] = version", "pulled.setdefault(worker, version)",
         "pulled last, not first"),
        ("13.my_descent", OLD, OLD.replace("k - delay", "k"), "The gradient is not old"),
        ("13.my_descent", "x[max(0, k - delay)]", "(x[k - delay] if k >= delay else 0)",
         "x was 1, not 0"),
    ],
)  # fmt: skip
def test_a_solution_with_one_mistake_is_told_it(task, old, new, words):
    refused(task, changed(task, old, new), words)


@pytest.mark.parametrize(
    ("my_step", "words"),
    [
        (lambda s, b: max(s), "slowest gradient that is used"),
        (lambda s, b: sorted(s)[b], "not the fastest"),
    ],
)
def test_a_wrong_step_with_backup_workers_is_told_its_mistake(my_step, words):
    refused("12.my_step", my_step, words)


def test_a_server_may_return_a_list_of_both():
    def my_server(inbox, weights, rate):
        staleness = []
        for message in inbox:
            if message.kind == "push":
                staleness.append(np.int64(len(staleness) - message.version))
                weights -= rate * message.gradient
            else:
                message.reply(weights.tolist(), len(staleness))
        return [weights, np.array(staleness)]

    assert check("12.my_server", my_server)
