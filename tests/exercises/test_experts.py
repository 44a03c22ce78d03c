"""Experts: the serial layer is right by autograd, and programs of other styles are judged right."""

import subprocess

import numpy as np
import pytest

import labkit
from labkit import collectives
from labkit.exercises import check, tasks
from labkit.exercises.judges.large_models.experts import Batch, expert_backward, expert_layer, moves
from tests.exercises.cells import NEEDS_TORCH, TORCH, cells_of, refused, value

ROUTINGS = [
    (1, 4, 2, "any"),
    (2, 1, 1, "any"),
    (3, 2, 1, "hot"),
    (4, 2, 2, "idle"),
    (8, 1, 2, "any"),
]


def solution(name):
    return value(tasks()[f"47.{name}"].solution.strip() + "\n")


def dense(batch):
    """One matrix of gates over all experts: each expert sees all tokens."""
    gates = np.zeros((len(batch.x), batch.experts))
    np.put_along_axis(gates, batch.chosen, batch.gates, axis=1)
    return gates


def wanted(batch):
    """y, dx, d_gates, dw1 and dw2, by TensorFlow's tape over the dense formulation."""
    import tensorflow as tf

    x, gates, w1, w2 = (tf.constant(one) for one in (batch.x, dense(batch), batch.w1, batch.w2))
    with tf.GradientTape() as tape:
        tape.watch((x, gates, w1, w2))
        hidden = tf.nn.relu(tf.einsum("th,ehw->tew", x, w1))
        y = tf.einsum("te,tew,ewh->th", gates, hidden, w2)
        loss = tf.reduce_sum(y * batch.dy)
    dx, d_gates, dw1, dw2 = (one.numpy() for one in tape.gradient(loss, (x, gates, w1, w2)))
    return y.numpy(), dx, np.take_along_axis(d_gates, batch.chosen, axis=1), dw1, dw2


def serial(case):
    """The pieces of all ranks, one after the other."""
    by_name = zip(*case.pieces, strict=True)
    return [np.concatenate([sum(one.parts.values()) for one in each]) for each in by_name]


@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_judges_serial_layer_is_that_of_autograd(routing):
    y, *gradients = wanted(Batch(*routing))
    assert serial(expert_layer(*routing))[0] == pytest.approx(y, abs=1e-12)
    for found, right in zip(serial(expert_backward(*routing)), gradients, strict=True):
        assert found == pytest.approx(right, abs=1e-11)


BY_TORCH = """
import sys, numpy as np, torch
d = dict(np.load(sys.argv[1]))
x, gates, w1, w2 = (torch.tensor(d[n], requires_grad=True) for n in ("x", "gates", "w1", "w2"))
y = torch.zeros_like(x)
for t, picked in enumerate(d["chosen"]):
    for j, e in enumerate(picked):
        y[t] = y[t] + gates[t, j] * (torch.relu(x[t] @ w1[e]) @ w2[e])
y.backward(torch.tensor(d["dy"]))
out = {"y": y.detach(), "dx": x.grad, "d_gates": gates.grad, "dw1": w1.grad, "dw2": w2.grad}
np.savez(sys.argv[2], **{n: one.numpy() for n, one in out.items()})
"""


@NEEDS_TORCH
def test_the_judges_serial_layer_is_that_of_torch(tmp_path):
    batch = Batch(4, 2, 2)
    arrays = {n: getattr(batch, n) for n in ("x", "gates", "w1", "w2", "chosen", "dy")}
    np.savez(tmp_path / "in.npz", **arrays)
    files = [str(tmp_path / name) for name in ("in.npz", "out.npz")]
    subprocess.run([str(TORCH.python), "-c", BY_TORCH, *files], check=True, timeout=300)
    out = np.load(files[1])
    found = serial(expert_layer(4, 2, 2)) + serial(expert_backward(4, 2, 2))
    for right, one in zip(out.values(), found, strict=True):
        assert one == pytest.approx(right, abs=1e-12)


def step_of(forward, backward, routing):
    """(comm) → y, dx, d_gates, dw1, dw2 of a rank, by the worked solutions."""
    case, back = expert_layer(*routing), expert_backward(*routing)

    def step(comm):
        rank = comm.Get_rank()
        chosen, *given = back.given[rank]
        others = backward(*moves(comm, chosen, routing[1]), *given)
        return [forward(comm, *case.given[rank]), *others]

    return step


def of_rank(routing, rank):
    case, back = expert_layer(*routing), expert_backward(*routing)
    return [sum(one.parts.values()) for one in (*case.pieces[rank], *back.pieces[rank])]


@pytest.mark.parametrize("routing", [(3, 2, 1, "hot"), (4, 2, 2, "idle")])
def test_the_worked_solutions_run_in_processes(routing):
    step = step_of(solution("layer"), solution("backward"), routing)
    with labkit.cluster(ranks=routing[0]) as c:
        found = c.run(lambda rank: step(labkit.cluster.communicator()))
    for rank, one in enumerate(found):
        for array, right in zip(one, of_rank(routing, rank), strict=True):
            assert array == pytest.approx(right, abs=1e-11)


@pytest.mark.parametrize("routing", [(3, 2, 1, "hot"), (4, 2, 2, "idle")])
def test_the_worked_solutions_run_under_mpi(routing):
    pytest.importorskip("mpi4py.MPI")
    step = step_of(solution("layer"), solution("backward"), routing)
    right = [of_rank(routing, rank) for rank in range(routing[0])]

    def distances(comm, buffer):
        pairs = zip(step(comm), right[comm.Get_rank()], strict=True)
        buffer[:] = [np.abs(one - two).max() if two.size else one.size for one, two in pairs]

    for buffer in collectives.run_mpi(distances, [np.ones(5)] * routing[0]):
        assert buffer == pytest.approx(np.zeros(5), abs=1e-11)


# The lecture's own programs.

LECTURE = cells_of("47", ["experts-21", "experts-29", "experts-38", "experts-48a"], h=16)


def given_to(replicas, size, k=1):
    """Tokens, routing and weights; the lecture's programs read the weights by their names."""
    random, ranks = np.random.default_rng([replicas, size]), replicas * size
    cuts = np.cumsum(random.multinomial(20, np.ones(ranks) / ranks))[:-1]
    LECTURE["exchange"].__globals__.update(
        W1=random.normal(size=(size, 16, 12)), W2=random.normal(size=(size, 12, 16)),
        x=random.normal(size=(20, 16)), dy=random.normal(size=(20, 16)), T=20,
    )  # fmt: skip
    chosen = np.argsort(random.random((20, size)), axis=1)[:, :k]
    return np.split(np.arange(20), cuts), chosen, random.random((20, k))


@pytest.mark.parametrize("grid", [(1, 3), (3, 1), (2, 2), (3, 2), (2, 4)])
def test_gradients_of_experts_and_router_over_their_groups_are_those_of_one_process(grid):
    replicas, size = grid
    parts, chosen, gate = given_to(*grid)
    space, expert, gate = LECTURE["exchange"].__globals__, chosen[:, 0], gate[:, 0]
    x, dy, w1, w2 = (space[name] for name in ("x", "dy", "W1", "W2"))
    mean, found = solution("groups"), [None] * replicas * size
    routers = np.random.default_rng(3).normal(size=(20, 4, 5))  # of each token

    def step(comm, buffer):
        rank = comm.Get_rank()
        t, e, group = parts[rank], rank % size, comm.Split(rank // size, rank)
        gradients = LECTURE["top_1_backward"](group, x[t], expert[t], gate[t], w1[e], w2[e], dy[t])
        flat = np.concatenate([one.ravel() for one in gradients[1:]])
        found[rank] = mean(comm, size, routers[t].sum(axis=0), flat, len(t))

    collectives.run(step, ranks=replicas * size)
    _, dw1, dw2 = LECTURE["serial_backward"](x, expert, gate, dy)
    for rank, (d_router, d_expert) in enumerate(found):
        right = np.concatenate([dw1[rank % size].ravel(), dw2[rank % size].ravel()]) / 20
        assert d_expert == pytest.approx(right, abs=1e-12)
        assert d_router == pytest.approx(routers.mean(axis=0), abs=1e-12)


@pytest.mark.parametrize("where", ["simulated", "processes", "mpi"])
def test_a_token_that_crosses_to_each_node_once_is_as_in_one_process_anywhere(where):
    parts, chosen, gates = given_to(1, 6, k=3)
    space = LECTURE["exchange"].__globals__
    x, w1, w2 = (space[name] for name in ("x", "W1", "W2"))
    out = np.array([[np.maximum(a @ w1[e], 0) @ w2[e] for e in one]
                    for a, one in zip(x, chosen, strict=True)])  # fmt: skip
    right = (gates[:, :, None] * out).sum(axis=1)
    program = LECTURE["once_to_each_node"]

    def far(comm, buffer):
        t = parts[comm.Get_rank()]
        y = program(comm, x[t], chosen[t], gates[t], 2)
        buffer[0] = np.abs(y - right[t]).max(initial=0)
        return buffer

    if where == "mpi":
        pytest.importorskip("mpi4py.MPI")
        found = collectives.run_mpi(far, [np.ones(1)] * 6)
    elif where == "processes":
        with labkit.cluster(ranks=6) as c:
            found = c.run(lambda rank: far(labkit.cluster.communicator(), np.ones(1)))
    else:
        found = collectives.run(far, [np.ones(1)] * 6).outputs
    assert np.concatenate(found) == pytest.approx(np.zeros(6), abs=1e-11)


# Right programs in other styles.


def by_lists(comm, x, chosen, gates, w1, w2):
    """Pickled lists of (place, expert, token) to each rank, and lists of (place, result) back."""
    held, out = len(w1), [[] for _ in range(comm.Get_size())]
    for t, picked in enumerate(chosen):
        for j, e in enumerate(picked):
            out[e // held].append(((t, j), e % held, x[t]))
    arrived = comm.alltoall(out)
    done = [[(at, np.maximum(row @ w1[n], 0) @ w2[n]) for at, n, row in one] for one in arrived]
    y = np.zeros_like(x)
    for one in comm.alltoall(done):
        for (t, j), row in one:
            y[t] += gates[t, j] * row
    return y


def by_messages(comm, x, chosen, gates, w1, w2):
    """A message for each pair of ranks, with the number of the expert as a column."""
    rank, ranks, held, h = comm.Get_rank(), comm.Get_size(), len(w1), x.shape[1]
    flat = chosen.ravel()
    places = [np.flatnonzero(flat // held == other) for other in range(ranks)]
    counts, into = np.array([len(one) for one in places]), np.empty(ranks, int)
    comm.Alltoall(counts, into)
    rows = [np.column_stack([x[at // chosen.shape[1]], flat[at] % held]) for at in places]
    found = [np.empty((n, h + 1)) for n in into]
    requests = [comm.Irecv(one, source=r) for r, one in enumerate(found) if r != rank]
    requests += [comm.Isend(one, dest=r) for r, one in enumerate(rows) if r != rank]
    for one in requests:
        one.Wait()
    found[rank] = rows[rank]
    results = [np.zeros((len(one), h)) for one in found]
    for one, result in zip(found, results, strict=True):
        for row, into in zip(one, result, strict=True):
            n = int(row[-1])
            into[:] = np.maximum(row[:-1] @ w1[n], 0) @ w2[n]
    back = [np.empty((len(at), h)) for at in places]
    requests = [comm.Irecv(one, source=r) for r, one in enumerate(back) if r != rank]
    requests += [comm.Isend(one, dest=r) for r, one in enumerate(results) if r != rank]
    for one in requests:
        one.Wait()
    back[rank] = results[rank]
    y = np.zeros_like(x)
    for at, one in zip(places, back, strict=True):
        np.add.at(y, at // chosen.shape[1], gates.ravel()[at, None] * one)
    return y


def one_choice_after_the_other(comm, x, chosen, gates, w1, w2):
    layer = solution("layer")
    parts = [layer(comm, x, chosen[:, j:][:, :1], gates[:, j:][:, :1], w1, w2)
             for j in range(chosen.shape[1])]  # fmt: skip
    return sum(parts)


def backward_by_rows(dispatch, combine, x, gates, w1, w2, dy):
    """Row by row; the gates multiply what comes back, and dy is sent bare."""
    k = gates.shape[1]
    rows, which = dispatch(np.repeat(x, k, axis=0))
    d, _ = dispatch((gates[:, :, None] * dy[:, None]).reshape(-1, x.shape[1]))
    dw1, dw2, dx, out = np.zeros_like(w1), np.zeros_like(w2), [], []
    for row, e, one in zip(rows, which, d, strict=True):
        a = row @ w1[e]
        out.append(np.maximum(a, 0) @ w2[e])
        da = (w2[e] @ one) * (a > 0)
        dx.append(w1[e] @ da)
        dw1[e] += np.outer(row, da)
        dw2[e] += np.outer(np.maximum(a, 0), one)
    shape = (len(which), x.shape[1])
    full = (len(x), k, x.shape[1])
    dx, out = (combine(np.reshape(one, shape)).reshape(full) for one in (dx, out))
    return [dx.sum(1), np.einsum("tkh,th->tk", out, dy), dw1, dw2]


def backward_at_once(dispatch, combine, x, gates, w1, w2, dy):
    """One message each way: tokens beside gradients, results beside gradients of rows."""
    k, h = gates.shape[1], x.shape[1]
    given = np.hstack([np.repeat(x, k, 0), gates.reshape(-1, 1) * np.repeat(dy, k, 0)])
    found, which = dispatch(given)
    out, dw1, dw2 = np.zeros_like(found), [], []
    for e in range(len(w1)):
        rows, d = np.split(found[which == e], 2, axis=1)
        active = np.maximum(rows @ w1[e], 0)
        da = d @ w2[e].T * (active > 0)
        out[which == e] = np.hstack([active @ w2[e], da @ w1[e].T])
        dw1.append(rows.T @ da)
        dw2.append(active.T @ d)
    back = combine(out).reshape(len(x), k, 2 * h)
    d_gates = (back[:, :, :h] * dy[:, None]).sum(axis=2)
    return back[:, :, h:].sum(axis=1), d_gates, np.array(dw1), np.array(dw2)


def capacity_by_lists(comm, chosen, experts, capacity):
    everything = comm.allgather(chosen.tolist())
    used, kept = [0] * experts, []
    for rank, one in enumerate(everything):
        for e in one:
            used[e] += 1
            if rank == comm.Get_rank():
                kept.append(used[e] <= capacity)
    return kept


def balance_by_objects(comm, p, chosen):
    rows = comm.allgather((p, chosen))
    p, chosen = (np.concatenate(one) for one in zip(*rows, strict=True))
    f = np.mean([np.bincount(one, minlength=p.shape[1]) / len(one) for one in chosen], axis=0)
    return float(p.shape[1] * (f * p.mean(axis=0)).sum())


def groups_by_objects(comm, size, d_router, d_expert, tokens):
    total = comm.allreduce(tokens)
    found = comm.allgather(d_expert)
    mine = sum(found[comm.Get_rank() % size :: size])
    return comm.allreduce(d_router / total), mine / total


def route_by_loops(logits, k, over):
    chosen, weights = [], []
    for row in logits:
        p = np.exp(row - max(row))
        p /= p.sum()
        best = sorted(range(len(row)), key=lambda e: (-row[e], e))[:k]
        chosen.append(best)
        weights.append(p[best] / (p[best].sum() if over == "chosen" else 1))
    return chosen, weights


RIGHT = {
    "layer": [by_lists, by_messages, one_choice_after_the_other],
    "backward": [backward_by_rows, backward_at_once],
    "capacity": [capacity_by_lists],
    "balance": [balance_by_objects],
    "groups": [groups_by_objects],
    "route": [route_by_loops],
}


@pytest.mark.parametrize("task", RIGHT)
def test_a_right_program_in_another_style_is_accepted(task):
    for answer in RIGHT[task]:
        assert (outcome := check(f"47.{task}", answer)), outcome.text


# Wrong programs.


def everything_to_all(comm, x, chosen, gates, w1, w2):
    """No token is sent for itself: all ranks get all tokens and all experts."""
    w1, w2 = (np.concatenate(comm.allgather(w)) for w in (w1, w2))
    out = [
        [np.maximum(a @ w1[e], 0) @ w2[e] for e in one] for a, one in zip(x, chosen, strict=True)
    ]
    return (gates[:, :, None] * np.reshape(out, (*chosen.shape, -1))).sum(axis=1)


def changed_in(name, old, new):
    source = tasks()[f"47.{name}"].solution.strip() + "\n"
    assert old in source
    return value(source.replace(old, new))


WRONG = [
    ("layer", everything_to_all, ["It is correct. But", "only to the ranks of its experts"]),
    ("layer", lambda comm, x, *_: x, ["rank 0's y is wrong"]),
    ("layer", lambda comm, x, chosen, *others: by_lists(comm, x, chosen[:, :1], *others),
     ["Only the first choice of each token counts."]),
    ("layer", lambda comm, x, chosen, gates, *w: by_lists(comm, x, chosen, gates**2, *w),
     ["The gates are multiplied twice."]),
    ("layer", lambda comm, x, chosen, gates, w1, w2: by_lists(
        comm, x, comm.Get_rank() * len(w1) + chosen % len(w1), gates, w1, w2),
     ["The tokens stay where they are."]),
    ("layer", lambda comm, x, chosen, gates, w1, w2: by_lists(comm, x, chosen, gates, -w1, w2),
     ["y is the sum over a token's choices"]),
    ("backward", lambda d, c, x, gates, w1, w2, dy: backward_by_rows(
        d, c, x, gates, w1, w2, dy)[:3], ["return dx, d_gates, dw1, dw2"]),
    ("backward", lambda d, c, x, *others: (d(x[1:])[0], x, x, x), ["a row for each choice"]),
    ("capacity", lambda comm, chosen, experts, most: np.ones(len(chosen)), ["kept is wrong"]),
    ("balance", lambda comm, p, chosen: 1.0, ["loss is wrong"]),
    ("groups", lambda comm, size, d_router, d_expert, tokens: (
        comm.allreduce(d_router) / comm.allreduce(tokens), d_expert / comm.allreduce(tokens)),
     ["d_expert is wrong", "the contribution of rank 3 is missing"]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "answer", "words"), WRONG)
def test_a_wrong_program_is_told_why(task, answer, words):
    refused(f"47.{task}", answer, *words)


@pytest.mark.parametrize(
    ("task", "old", "new", "told"),
    [
        ("capacity", "[: comm.Get_rank()]", "[: comm.Get_rank() + 1]", "ranks before yours have"),
        ("capacity", "used[expert] += 1", "used[:] += 1", "The capacity is that of each expert."),
        ("balance", "f @ sums[experts:-1]", "f @ f", "loss is wrong"),
        ("groups", "/ total, d_expert / total", ", d_expert", "each contribution counts"),
        ("groups", "(comm, d_router)", "(replicas, d_router)", "All ranks have the router"),
        ("backward", "(active > 0)", "1", "dx is wrong"),
        ("backward", "rows[own].T @ d_hidden", "rows[own].T @ d_hidden / 2", "do not divide it"),
        ("layer", "(arrive.sum(), h)", "(len(rows), h)", "exchange the counts first"),
        ("layer", "@ w1[n], 0)", "@ w1[0], 0)", "y is wrong"),
    ],
)
def test_a_mistake_that_no_task_names_is_refused_with_its_piece(task, old, new, told):
    refused(f"47.{task}", changed_in(task, old, new), told)


def test_places_that_only_kept_tokens_take_are_the_same_places():
    answer = changed_in("capacity", "used[expert] += 1", "used[expert] += int(kept[t])")
    assert check("47.capacity", answer)


def test_counts_that_were_not_exchanged_are_explained():
    answer = changed_in("layer", "comm.Alltoall(counts, arrive)", "arrive[:] = counts")
    refused("47.layer", answer, "exchange the counts first")
