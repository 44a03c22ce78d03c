"""Lecture 25: wrong federated programs are refused, with the client or the rank that is wrong."""

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import check
from tests.exercises.cells import changed, refused


def plain_mean(results, examples):
    return np.mean(results, axis=0)


def returns_nothing(results, examples):
    np.average(results, axis=0, weights=examples)


def without_broadcast(comm, weights, x, y, local, rounds):
    for _ in range(rounds):
        weights = np.append(len(y) * local(weights, x, y), len(y))
        programs.ring_all_reduce(comm, weights)
        weights = weights[:-1] / weights[-1]
    return weights


def with_a_server(comm, weights, x, y, local, rounds):
    """Another right program: rank 0 is server and client."""
    for _ in range(rounds):
        programs.broadcast(comm, weights)
        weights = np.append(len(y) * local(weights, x, y), len(y))
        programs.reduce(comm, weights)
        weights = weights[:-1] / weights[-1]
    programs.broadcast(comm, weights)
    return weights


def unweighted(comm, weights, x, y, local, rounds):
    programs.broadcast(comm, weights)
    for _ in range(rounds):
        weights = local(weights, x, y) / comm.Get_size()
        programs.ring_all_reduce(comm, weights)
    return weights


def not_averaged(comm, weights, x, y, local, rounds):
    programs.broadcast(comm, weights)
    for _ in range(rounds):
        weights = local(weights, x, y)
    return weights


def blocks(labels, clients):
    return np.array_split(np.argsort(labels), clients)


def iid(labels, clients, rng):
    return np.array_split(rng.permutation(len(labels)), clients)


def one_block(labels, clients, rng):
    return [blocks(labels, clients)[k] for k in rng.permutation(clients)]


def not_random(labels, clients, rng):
    both = blocks(labels, 2 * clients)
    return [np.append(both[k], both[k + clients]) for k in range(clients)]


def mask(rank, seeds, size, most=2**32, signs=(1, -1), ranks=5):
    """The masks of the first ranks; those of the others are zero."""
    total = np.zeros(size, np.int64)
    for other, seed in enumerate(seeds):
        if other != rank and max(rank, other) < ranks:
            common = np.random.default_rng(seed).integers(most, size=size)
            total += signs[rank > other] * common
    return (total % 2**32).astype(np.uint32)


def always_adds(rank, seeds, size):
    return mask(rank, seeds, size, signs=(1, 1))


def small(rank, seeds, size):
    return mask(rank, seeds, size, most=1000)


def only_two(rank, seeds, size):
    return mask(rank, seeds, size, ranks=2)


@pytest.mark.parametrize(
    ("task", "answer", "words"),
    [
        ("weighted_average", plain_mean, ["[300, 100]", "client 0 counts 0.667 times"]),
        ("weighted_average", returns_nothing, ["None", "return"]),
        ("fed_avg", without_broadcast, ["2 ranks", "rank 0's weights"]),
        ("fed_avg", unweighted, ["2 ranks", "len(y)", "rank 1 counts 0.7 times"]),
        ("fed_avg", not_averaged, ["2 ranks", "rank 1 is missing", "each round"]),
        ("label_shards", iid, ["classes", "at most 2"]),
        ("label_shards", one_block, ["one class", "two blocks"]),
        ("label_shards", not_random, ["rng"]),
        ("masks", always_adds, ["2 ranks do not add up"]),
        ("masks", small, ["[0]", "not random"]),
        ("masks", only_two, ["3 ranks", "[2]"]),
    ],
)
def test_a_wrong_answer_is_refused_with_what_is_wrong(task, answer, words):
    refused(f"25.{task}", answer, *words)


@pytest.mark.parametrize(("task", "answer"), [("fed_avg", with_a_server), ("masks", mask)])
def test_another_right_program_is_accepted(task, answer):
    outcome = check(f"25.{task}", answer)
    assert outcome, outcome.text


@pytest.mark.parametrize(
    ("now", "then", "words"),
    [
        ('config["local-steps"]', "1", ["FedAvg", "one local step"]),
        ("weights - config", "weights + config", ["away from the target"]),
        ('{"num-examples": node["examples"]}', '{"num-examples": 1}', ["num-examples"]),
    ],
)
def test_a_wrong_client_of_flower_is_refused_by_a_real_fedavg(now, then, words):
    refused("25.flower_client", changed("25.flower_client", now, then), *words)
