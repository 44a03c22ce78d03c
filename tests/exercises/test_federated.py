"""Lecture 61: wrong federated programs are refused, with the client or the rank that is wrong."""

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import check, tasks
from labkit.exercises.judges import federated
from tests.exercises.cells import refused, value


def with_a_server(comm, weights, x, y, local, rounds):
    """Another right program: rank 0 is server and client."""
    for _ in range(rounds):
        programs.broadcast(comm, weights)
        weights = np.append(len(y) * local(weights, x, y), len(y))
        programs.reduce(comm, weights)
        weights = weights[:-1] / weights[-1]
    programs.broadcast(comm, weights)
    return weights


def rounds_with(*changes):
    """The worked solution of 61.within_bytes with these changes."""
    source = tasks()["61.within_bytes"].solution.strip() + "\n"
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return value(source)


def by_collectives(comm, weights, x, y, local):
    """Another right program, with the library's collectives."""
    w = weights.astype("f")
    for _ in range(6):
        comm.Bcast(w, root=0)
        mine = local(w, x, y, 6).astype("f") / 4 if comm.Get_rank() else np.zeros(1000, "f")
        comm.Reduce(mine, w, root=0)
    return w


def examples_are_sent(comm, weights, x, y, local):
    if comm.Get_rank():
        comm.Send(np.c_[x, y].astype("f"), dest=0)
        return None
    both = [np.empty((800, 101), "f") for _ in range(4)]
    for client, one in enumerate(both, start=1):
        comm.Recv(one, source=client)
    every = np.concatenate(both).astype(float)
    return local(weights, every[:, :-1], every[:, -1].astype(int), 40)


FLOAT64 = (("weights.astype(np.float32)", "weights"), (".astype(np.float32)", ""))


@pytest.mark.parametrize(
    "answer",
    [
        rounds_with(("range(5)", "range(6)"), ("epochs=10", "epochs=5")),
        by_collectives,
    ],
)
def test_other_rounds_within_the_bytes_are_accepted(answer):
    outcome = check("61.within_bytes", answer)
    if outcome.state == "elsewhere":
        pytest.skip(outcome.text)
    assert outcome, outcome.text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            rounds_with(("range(5)", "range(30)"), ("epochs=10", "epochs=1")),
            ["link of host 0, in 30 rounds with E = 1", "More local epochs"],
        ),
        (rounds_with(*FLOAT64), ["8 bytes", "float32"]),
        (examples_are_sent, ["3,200 examples", "must stay"]),
    ],
)
def test_rounds_that_send_or_reach_the_wrong_amount_are_refused_by_name(answer, words):
    refused("61.within_bytes", answer, *words)


def test_the_minimum_that_the_task_names_is_that_of_gradient_descent():
    x, y = map(np.concatenate, zip(*federated.sites(), strict=True))
    weights = np.zeros(federated.FEATURES * federated.CLASSES)
    for _ in range(70):
        error = federated.softmax(x @ weights.reshape(federated.FEATURES, -1))
        error[np.arange(len(y)), y] -= 1
        weights -= 2 * (x.T @ error).ravel() / len(y)
    assert federated.loss(weights) == pytest.approx(federated.MINIMUM, abs=5e-4)


def test_another_right_program_is_accepted():
    outcome = check("61.fed_avg", with_a_server)
    assert outcome, outcome.text
