"""Pieces of a transformer that are cut: other right programs pass, and the serial ones agree."""

import itertools

import numpy as np
import pytest

import labkit
from labkit import collectives, memory
from labkit.collectives import programs
from labkit.exercises import check, tasks
from labkit.exercises.judges.large_models import cut_transformer as cut
from tests.exercises.cells import refused, under_mpi, value


def by_library(comm, array):
    return comm.allreduce(array)


def largest(comm, array):
    return np.max(comm.allgather(array), axis=0)


def norm(comm, x, scale, dy, hidden):
    """By einsum, and with the collectives of the library."""
    r = (by_library(comm, np.einsum("ij,ij->i", x, x)) / hidden + 1e-5) ** -0.5
    dot = by_library(comm, np.einsum("ij,ij,j->i", x, dy, scale))
    dx = dy * scale * r[:, None] - x * (r**3 * dot / hidden)[:, None]
    return [np.einsum("ij,i,j->ij", x, r, scale), dx, np.einsum("ij,ij,i->j", dy, x, r)]


def swiglu(comm, x, gate_up, down):
    """Round-robin columns: any part will do, if it is the same of all three."""
    rank, ranks, f = comm.Get_rank(), comm.Get_size(), len(down)
    mine = slice(rank, f, ranks)
    a, b = x @ gate_up[:, :f][:, mine], x @ gate_up[:, f:][:, mine]
    y = np.tanh(a / 2) * a * b / 2 + a * b / 2  # silu by tanh
    return by_library(comm, y @ down[mine])


def loss(comm, logits, first, targets):
    """The sums of exp and the targets' exps in one message."""
    top = largest(comm, logits.max(axis=1))
    chances = np.exp(logits - top[:, None])
    hot = targets[:, None] == first + np.arange(logits.shape[1])
    both = np.stack([chances.sum(axis=1), np.where(hot, logits - top[:, None], 0).sum(axis=1)])
    total, target = by_library(comm, both)
    return list(np.log(total) - target)


def gradient(comm, logits, first, targets):
    """From the log-sum-exp of each rank, which are combined in a second log-sum-exp."""
    own = logits.max(axis=1)
    mine = own + np.log(np.exp(logits - own[:, None]).sum(axis=1))
    every = np.logaddexp.reduce(comm.allgather(mine))
    hot = targets[:, None] == first + np.arange(logits.shape[1])
    return (np.exp(logits - every[:, None]) - hot) / len(targets)


def tied(comm, of_embedding, of_head):
    rank, last = comm.Get_rank(), comm.Get_size() - 1
    if rank == last == 0:
        return of_embedding + of_head
    if rank == 0:
        comm.Send(of_embedding, dest=last)
        comm.Recv(other := np.empty_like(of_embedding), source=last)
        return of_embedding + other
    if rank == last:
        comm.Recv(other := np.empty_like(of_head), source=0)
        comm.Send(of_head, dest=0)
        return of_head + other
    return None


def empty_in_the_middle(comm, of_embedding, of_head):
    found = tied(comm, of_embedding, of_head)
    return np.zeros(0) if found is None else found


RIGHT = {
    "norm_cut": [norm],
    "swiglu_cut": [swiglu],
    "cut_loss": [loss],
    "cut_gradient": [gradient],
    "tied_gradient": [tied, empty_in_the_middle],
    "dropout_seed": [
        lambda step, layer, data, tensor, divided: (
            ((step * 1000 + layer) * 10_000 + data) * 100 + tensor * divided
        ),
        lambda *given: np.random.SeedSequence([*given[:3], given[3] + 1 if given[4] else 0]),
    ],
}


@pytest.mark.parametrize("task", RIGHT)
def test_a_right_program_in_another_style_is_accepted(task):
    for answer in RIGHT[task]:
        outcome = check(f"41.{task}", answer)
        assert outcome, outcome.text


def averaged(comm, of_embedding, of_head):
    found = tied(comm, of_embedding, of_head)
    return None if found is None else found / 2


def a_row_of_the_vocabulary(comm, logits, first, targets):
    whole = np.concatenate(comm.allgather(logits), axis=1)
    return np.logaddexp.reduce(whole, axis=1) - whole[np.arange(len(whole)), targets]


def negative_index(comm, logits, first, targets):
    """Wraps below its first token, and clips above its last."""
    index = np.minimum(targets - first, logits.shape[1] - 1)
    index = np.maximum(index, -logits.shape[1])
    top = largest(comm, logits.max(axis=1))
    total = by_library(comm, np.exp(logits - top[:, None]).sum(axis=1))
    return np.log(total) + top - by_library(comm, logits[np.arange(len(index)), index])


def nothing_in_the_middle_but_zeros(comm, of_embedding, of_head):
    given = [one for one in (of_embedding, of_head) if one is not None]
    total = sum(given) if given else np.zeros((9, 4))
    programs.tree_all_reduce(comm, total)
    return total if given else None


def all_columns(comm, x, gate_up, down):
    """On each rank, and a share of the result to the sum."""
    a, b = np.split(x @ gate_up, 2, axis=1)
    return by_library(comm, (cut.silu(a) * b) @ down / comm.Get_size())


WRONG = {
    "swiglu_cut": [(all_columns, "Cut the matrices before the products")],
    "cut_loss": [
        (lambda *given: np.divide(loss(*given), 2), "it is the right one, 0.5 times"),
        (a_row_of_the_vocabulary, "It is correct.", "never the logits"),
        (lambda *given: loss(*given)[0], "the shape ()"),
        (negative_index, "rank 0's loss is wrong"),
        (lambda *given: np.mean(loss(*given)) + np.zeros(len(given[3])), "not their mean"),
    ],
    "cut_gradient": [(lambda *given: gradient(*given).T, "it must have")],
    "tied_gradient": [
        (averaged, "0.5 times", "neither their mean"),
        (nothing_in_the_middle_but_zeros, "on 3 ranks stage 1 sends the gradient"),
        (lambda comm, a, b: a if b is None else b, "the contribution of the"),
    ],
    "norm_cut": [
        (lambda comm, x, scale, dy, hidden: norm(comm, x, scale, dy, hidden)[:2], "return y, dx"),
    ],
    "dropout_seed": [
        (lambda step, layer, data, tensor, divided: [layer], "The same mask for"),
        (lambda *given: abs(hash(given)), "their seeds must be equal"),
        (lambda step, layer, data, tensor, divided: -1 - tensor * divided, "default_rng says"),
    ],
}


@pytest.mark.parametrize("task", WRONG)
def test_a_wrong_program_is_refused_with_its_mistake(task):
    for answer, *words in WRONG[task]:
        refused(f"41.{task}", answer, *words)


def serial_loss(logits, targets):
    return np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(targets)), targets]


def slope(function, at, direction, step=1e-6):
    return (function(at + step * direction) - function(at - step * direction)) / (2 * step)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_the_judges_know_the_serial_loss_and_its_slope(ranks):
    """Against NumPy's logaddexp, and against differences."""
    case = cut.cut_loss(ranks, 300)
    whole = np.concatenate([logits for logits, *_ in case.given], axis=1)
    targets = case.given[0][2]
    assert len({logits.shape[1] for logits, *_ in case.given}) > (ranks > 1)
    for [piece] in case.pieces:
        assert piece.parts[""] == pytest.approx(serial_loss(whole, targets))
    case = cut.cut_gradient(ranks, 1)
    whole = np.concatenate([logits for logits, *_ in case.given], axis=1)
    targets = case.given[0][2]
    found = np.concatenate([piece.parts[""] for [piece] in case.pieces], axis=1)
    along = np.random.default_rng(0).normal(size=whole.shape)
    by_difference = slope(lambda one: serial_loss(one, targets).mean(), whole, along)
    assert (found * along).sum() == pytest.approx(by_difference, rel=1e-6)


@pytest.mark.parametrize("ranks", range(1, 9))
def test_the_judge_knows_the_slope_of_a_norm(ranks):
    case = cut.norm_cut(ranks)
    x, scale, dy = (np.concatenate([one[n] for one in case.given], axis=-1) for n in range(3))

    def weighed(x, scale):
        return (dy * x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5) * scale).sum()

    y, dx, d_scale = (
        np.concatenate([pieces[n].parts[""] for pieces in case.pieces], axis=-1) for n in range(3)
    )
    assert (dy * y).sum() == pytest.approx(weighed(x, scale))
    along, of_scale = np.random.default_rng(1).normal(size=x.shape), np.cos(scale)
    assert (dx * along).sum() == pytest.approx(slope(lambda one: weighed(one, scale), x, along))
    assert (d_scale * of_scale).sum() == pytest.approx(
        slope(lambda one: weighed(x, one), scale, of_scale)
    )


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_no_two_mistakes_return_the_same(ranks):
    for case in (cut.norm_cut(ranks), cut.cut_loss(ranks, 1), cut.cut_gradient(ranks, 1)):
        for piece in itertools.chain.from_iterable(case.pieces):
            right = piece.parts[""]
            found = {k.strip(): one for k, one in piece.mistakes.items()}
            for (one, a), (two, b) in itertools.combinations(found.items(), 2):
                assert not np.allclose(a, b), (one, two)
            assert not any(np.allclose(one, right) for one in found.values())


CASES = {
    "norm_cut": cut.norm_cut, "swiglu_cut": cut.swiglu_cut, "tied_gradient": cut.tied,
    "cut_loss": lambda ranks: cut.cut_loss(ranks, 300),
    "cut_gradient": lambda ranks: cut.cut_gradient(ranks, 300),
}  # fmt: skip


def solutions(ranks):
    """Of a rank: what each worked solution returns, flat and one after the other."""
    written = {name: value(tasks()[f"41.{name}"].solution) for name in CASES}
    given = {name: [*case(ranks).given] for name, case in CASES.items()}

    def program(comm):
        rank = comm.Get_rank()
        found = []
        for name, answer in written.items():
            result = answer(comm, *given[name][rank])
            parts = result if isinstance(result, tuple) else (result,)
            found += [np.ravel(one) for one in parts if one is not None]
        return np.concatenate(found)

    return program


def proved(found):
    ranks = len(found)
    cases = [case(ranks) for case in CASES.values()]
    for rank, numbers in enumerate(found):
        right = [
            np.sum([*piece.parts.values()], axis=0).ravel()
            for case in cases for piece in case.pieces[rank] if piece.name != "result"
        ]  # fmt: skip
        assert numbers == pytest.approx(np.concatenate(right), abs=1e-9)


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_solution_runs_in_local_processes(ranks):
    program = solutions(ranks)
    with labkit.cluster(ranks=ranks) as c:
        proved(c.run(lambda rank: program(labkit.cluster.communicator()), timeout=120, show=False))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_solution_runs_under_mpi(ranks):
    pytest.importorskip("mpi4py")
    program, sizes = solutions(ranks), []

    def measured(comm, buffer):
        sizes.append((comm.Get_rank(), program(comm).size))

    collectives.run(measured, ranks=ranks)
    most = max(size for _, size in sizes)

    def filled(comm, buffer):
        found = program(comm)
        buffer[: found.size] = found

    outputs = under_mpi(filled, [np.zeros(most)] * ranks, timeout=120)
    proved([one[: dict(sizes)[rank]] for rank, one in enumerate(outputs)])


def test_the_flops_of_the_task_are_those_of_the_library():
    flops = value(tasks()["41.forward_flops"].solution)
    shape = {"layers": 4, "hidden": 64, "heads": 8, "key_heads": 2, "mlp": 176, "vocabulary": 500}
    step = memory.transformer(**shape, sequence=32, block="llama", flash=True)
    assert flops(**shape, sequence=32) == step.model.step_flops() / 3
