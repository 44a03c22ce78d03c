"""A sharded step may be written in any style; what is wrong is named by rank and piece."""

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import check
from tests.exercises.cells import refused


def share(array, comm):
    return np.array_split(array, comm.Get_size())[comm.Get_rank()]


def everything(comm, weights, gradient, optimizer):
    programs.ring_all_reduce(comm, gradient)
    gradient /= comm.Get_size()
    optimizer.update(weights, gradient)


def gathered(comm, part):
    whole = np.empty(part.size * comm.Get_size())
    share(whole, comm)[:] = part
    programs.all_gather(comm, whole)
    return whole


def backwards(comm, parts, gradient_of, optimizers):
    """The layers from the last to the first, all gradients first, then all updates."""
    mine = {}
    for n in reversed(range(len(parts))):
        gradient = gradient_of(n, gathered(comm, parts[n]))
        programs.reduce_scatter(comm, gradient)
        gradient /= comm.Get_size()
        mine[n] = share(gradient, comm).copy()
    for n, gradient in mine.items():
        optimizers[n].update(parts[n], gradient)


def by_the_library(comm, parts, gradient_of, optimizers):
    for n, part in enumerate(parts):
        layer, mine = np.empty(part.size * comm.Get_size()), np.empty(part.size)
        comm.Allgather(part, layer)
        comm.Reduce_scatter(gradient_of(n, layer), mine)
        optimizers[n].update(part, mine / comm.Get_size())


def next_one_early(comm, parts, gradient_of, optimizers):
    following = gathered(comm, parts[0])
    for n, part in enumerate(parts):
        layer, following = following, gathered(comm, parts[(n + 1) % len(parts)])
        gradient = gradient_of(n, layer)
        programs.reduce_scatter(comm, gradient)
        optimizers[n].update(part, share(gradient, comm) / comm.Get_size())


def whole_model(comm, parts, gradient_of, optimizers, at_once=True):
    layers = [gathered(comm, part) for part in parts] if at_once else None
    gradients = []
    for n, part in enumerate(parts):
        gradients.append(gradient_of(n, layers[n] if at_once else gathered(comm, part)))
    for n, gradient in enumerate(gradients):
        programs.reduce_scatter(comm, gradient)
        optimizers[n].update(parts[n], share(gradient, comm) / comm.Get_size())


def one_gather(comm, parts, gradient_of, optimizers):
    """All layers in one collective; the copies that are used are small."""
    whole = np.zeros((comm.Get_size(), *parts.shape))
    whole[comm.Get_rank()] = parts
    programs.all_gather(comm, whole)
    for n, part in enumerate(parts):
        gradient = gradient_of(n, np.concatenate(whole[:, n]))
        programs.reduce_scatter(comm, gradient)
        optimizers[n].update(part, share(gradient, comm) / comm.Get_size())


def all_gradients(*given):
    whole_model(*given, at_once=False)


@pytest.mark.parametrize(
    ("task", "right"),
    [
        ("zero_3", backwards),
        ("zero_3", next_one_early),
        ("zero_3", by_the_library),
    ],
)
def test_a_right_step_is_accepted_in_any_style_and_order(task, right):
    outcome = check(f"44.{task}", right)
    assert outcome, outcome


@pytest.mark.parametrize(
    ("task", "wrong", "words"),
    [
        ("zero_1", everything, ["rank 0's optimizer's state", "(29,)", "(8,)"]),
        ("zero_3", whole_model, ["3 whole layers are in memory at the same time"]),
        ("zero_3", all_gradients, ["3 whole gradients are in memory"]),
        ("zero_3", one_gather, ["It is correct", "gathers all layers before"]),
    ],
)
def test_what_is_wrong_with_a_step_is_named(task, wrong, words):
    refused(f"44.{task}", wrong, *words)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"tensor": 8, "data": 2}, "must be 8"),
        ({"data": 8}, "Most of it: optimizer"),
        (None, "return a dict"),
        ({"tensor": 8, "micro_batches": 1, "zero": 1}, "micro_batches"),
    ],
)
def test_a_plan_that_does_not_fit_is_told_why(plan, words):
    refused("44.plan", lambda model, gpus, device_memory: plan, words)
