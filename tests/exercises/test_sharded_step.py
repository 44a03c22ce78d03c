"""A sharded step may be written in any style; what is wrong is named by rank and piece."""

import numpy as np
import pytest

from labkit.collectives import programs
from labkit.exercises import check
from tests.exercises.cells import refused


def share(array, comm):
    return np.array_split(array, comm.Get_size())[comm.Get_rank()]


def by_hand(comm, weights, gradient, optimizer):
    """Every rank sends each other rank its piece directly, and the new piece likewise."""
    rank, ranks = comm.Get_rank(), comm.Get_size()
    pieces, mine = np.array_split(gradient, ranks), share(gradient, comm).copy()
    received = np.empty_like(mine)
    for step in range(1, ranks):
        to, source = (rank + step) % ranks, (rank - step) % ranks
        comm.Sendrecv(pieces[to], dest=to, recvbuf=received, source=source)
        mine += received
    part = share(weights, comm).copy()
    optimizer.update(part, mine / ranks)
    share(weights, comm)[:] = part
    for step in range(1, ranks):
        to, source = (rank + step) % ranks, (rank - step) % ranks
        comm.Sendrecv(part, dest=to, source=source, recvbuf=np.array_split(weights, ranks)[source])


def faulty(*, reduce=True, divide=True, copy=False, gather=True):
    def program(comm, weights, gradient, optimizer):
        if reduce:
            programs.reduce_scatter(comm, gradient)
        if divide:
            gradient /= comm.Get_size()
        part = share(weights, comm)
        optimizer.update(part.copy() if copy else part, share(gradient, comm))
        if gather:
            programs.all_gather(comm, weights)

    return program


unreduced, undivided = faulty(reduce=False, divide=False), faulty(divide=False)
not_gathered, a_copy = faulty(gather=False), faulty(copy=True)


def equal_pieces(comm, weights, gradient, optimizer):
    """Rounded down: the last weights are in no piece."""
    size, rank = weights.size // comm.Get_size(), comm.Get_rank()
    piece = slice(rank * size, (rank + 1) * size)
    programs.reduce_scatter(comm, gradient)
    gradient /= comm.Get_size()
    optimizer.update(weights[piece], gradient[piece])
    programs.all_gather(comm, weights)


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


def own_gradient(comm, parts, gradient_of, optimizers):
    for n, part in enumerate(parts):
        optimizers[n].update(part, share(gradient_of(n, gathered(comm, part)), comm))


def part_only(comm, parts, gradient_of, optimizers):
    for n, part in enumerate(parts):
        optimizers[n].update(part, gradient_of(n, part))


def reduced_everywhere(comm, parts, gradient_of, optimizers):
    for n, part in enumerate(parts):
        gradient = gradient_of(n, gathered(comm, part))
        programs.ring_all_reduce(comm, gradient)
        gradient /= comm.Get_size()
        optimizers[n].update(part, share(gradient, comm))


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


def whole_state(comm, parts, gradient_of, optimizers):
    for n, part in enumerate(parts):
        layer = gathered(comm, part)
        gradient = gradient_of(n, layer)
        programs.reduce_scatter(comm, gradient)
        optimizers[n].update(layer, gradient / comm.Get_size())
        part[:] = share(layer, comm)


def all_gradients(*given):
    whole_model(*given, at_once=False)


@pytest.mark.parametrize(
    ("task", "right"),
    [
        ("zero_1", by_hand),
        ("zero_3", backwards),
        ("zero_3", next_one_early),
        ("zero_3", by_the_library),
    ],
)
def test_a_right_step_is_accepted_in_any_style_and_order(task, right):
    outcome = check(f"21.{task}", right)
    assert outcome, outcome


@pytest.mark.parametrize(
    ("task", "wrong", "words"),
    [
        ("zero_1", unreduced, ["4 ranks, rank 0's piece 0", "0 counts 4 times", "3 is missing"]),
        ("zero_1", undivided, ["piece 0 (weights 0 to 7)", "rank 3 counts 4 times", "divide once"]),
        ("zero_1", a_copy, ["rank 0's piece 0", "rank 0 is missing", "in place"]),
        ("zero_1", not_gathered, ["piece 1 (weights 8 to 14)", "1 is missing", "Only rank 1"]),
        ("zero_1", equal_pieces, ["rank 0's piece 0", "row 7", "not those of the serial program"]),
        ("zero_1", everything, ["rank 0's optimizer's state", "(29,)", "(8,)"]),
        ("zero_3", own_gradient, ["rank 0's part of layer 0", "rank 1 is missing"]),
        ("zero_3", part_only, ["Rank 0 raised", "has 24 weights", "all-gather the parts"]),
        ("zero_3", whole_model, ["3 whole layers are in memory at the same time"]),
        ("zero_3", all_gradients, ["3 whole gradients are in memory"]),
        ("zero_3", one_gather, ["It is correct", "gathers all layers before"]),
        ("zero_3", whole_state, ["optimizer's state of layer 0", "(24,)", "(6,)"]),
        ("zero_3", reduced_everywhere, ["It is correct", "reduce-scatter, not an all-reduce"]),
    ],
)
def test_what_is_wrong_with_a_step_is_named(task, wrong, words):
    refused(f"21.{task}", wrong, *words)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"tensor": 8, "data": 2}, "must be 8"),
        ({"data": 8}, "Most of it: optimizer"),
        (None, "return a dict"),
        ({"tensor": 8, "microbatches": 1, "zero": 1}, "microbatches"),
    ],
)
def test_a_plan_that_does_not_fit_is_told_why(plan, words):
    refused("21.plan", lambda model, gpus, device_memory: plan, words)
