"""Wrong answers of lecture 22: programs on nodes, and training loops that do not resume."""

import os

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import tasks

pytestmark = pytest.mark.usefixtures("four", "warm")
TASKS = tasks()


def one_for_all(comm, buffer):
    """Right, but the first rank of each node alone talks to the other nodes."""
    rank = comm.Get_rank()
    node = comm.Split(rank // 4, rank)
    first = comm.Split(0 if rank % 4 == 0 else 1, rank)
    programs.reduce(node, buffer)
    if rank % 4 == 0:
        programs.ring_all_reduce(first, buffer)
    programs.broadcast(node, buffer)


def only_inside(comm, buffer):
    programs.ring_all_reduce(comm.Split(comm.Get_rank() // 4, comm.Get_rank()), buffer)


@pytest.mark.parametrize(
    ("program", "keyword"),
    [
        (programs.ring_all_reduce, "leave node"),
        (one_for_all, "rank 0 alone"),
        (only_inside, "rank"),
    ],
)
def test_a_two_level_program_must_be_right_and_share_the_slow_links(program, keyword):
    outcome = TASKS["22.hierarchical"].check(program)
    assert outcome.state == "wrong"
    assert keyword in outcome.text


def no_checkpoint(w, gradient, steps, every, path):
    v = np.zeros_like(w)
    for step in range(steps):
        v = 0.9 * v + gradient(w, step)
        w = w - 0.1 * v
    return w


def _loop(velocity, step_saved, whole):
    def my_train(w, gradient, steps, every, path):
        v, first = np.zeros_like(w), 0
        if os.path.exists(path):  # noqa: PTH110
            with np.load(path) as saved:
                w, first = saved["w"], int(saved["step"])
                v = saved["v"] if velocity else v
        for step in range(first, steps):
            v = 0.9 * v + gradient(w, step)
            w = w - 0.1 * v
            if (step + 1) % every == 0:
                with open(path + ".new" * whole, "wb") as file:  # noqa: PTH123
                    np.savez(file, w=w, v=v, step=step + step_saved)
                if whole:
                    os.replace(path + ".new", path)  # noqa: PTH105
        return w

    return my_train


def no_momentum(w, gradient, steps, every, path):
    for step in range(steps):
        w = w - 0.1 * gradient(w, step)
    return w


@pytest.mark.parametrize(
    ("program", "keyword"),
    [
        (no_checkpoint, "began with step 0"),
        (no_momentum, "Without a failure"),
        (_loop(velocity=False, step_saved=1, whole=True), "velocity"),
        (_loop(velocity=True, step_saved=0, whole=True), "began with step"),
        (_loop(velocity=True, step_saved=2, whole=True), "weights differ"),
        (_loop(velocity=True, step_saved=1, whole=False), "os.replace"),
        (lambda w, gradient, steps, every, path: w, "Without a failure"),
        (lambda w, gradient, steps, every, path: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_loop_that_is_killed_must_end_with_the_weights_of_one_that_is_not(program, keyword):
    outcome = TASKS["22.resume"].check(program)
    assert outcome.state == "wrong"
    assert keyword in outcome.text
