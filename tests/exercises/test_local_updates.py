"""Lecture 49: programs of local updates against serial ones, and judges against other answers."""

import subprocess
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import labkit
from labkit.exercises import check, tasks
from labkit.kinds import LabError
from tests.exercises.cells import NEEDS_TORCH, TORCH, cells_of, refused, under_mpi, value

IDS = ("07", "10", "20", "25", "30", "30a", "32", "43", "44", "45")
LECTURE = cells_of("49", [f"fewer-{name}" for name in IDS], LabError=LabError, labkit=labkit)
gradient = LECTURE["gradient"]


def solution(name):
    return value(tasks()[f"49.{name}"].solution.strip() + "\n")


def on(ranks, program, *arguments):
    return LECTURE["run_on"](ranks, program, *arguments)[1]


# Serial programs of our own: matrices with a row for each rank.


def local_updates(ranks, rounds, every, change, rate, kept):
    """Local steps, then Nesterov's step in its other form, with a look ahead."""
    theta, push = np.zeros(5), np.zeros(5)
    states = [{} for _ in range(ranks)]
    for at in range(rounds):
        rows = np.tile(theta, (ranks, 1))
        for step in range(at * every, (at + 1) * every):
            for rank in range(ranks):
                rows[rank] -= change(states[rank], gradient(rows[rank], step, rank))
        pseudo = theta - rows.sum(axis=0) / ranks
        push = kept * push - rate * pseudo  # Keras's form: the rate is in the velocity
        theta = theta + kept * push - rate * pseudo
    return theta


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("every", [1, 4])
def test_diloco_is_the_serial_program_on_every_rank(ranks, every):
    for name in ("sgd", "momentum", "adam"):
        right = local_updates(ranks, 6, every, LECTURE[name], 0.7, 0.9)
        found = on(ranks, LECTURE["diloco"], LECTURE[name], 6, every)
        assert np.abs(np.array(found) - right).max() < 1e-12 * np.abs(right).max(), name


def test_with_rate_1_and_no_momentum_it_is_local_sgd():
    averaged = local_updates(3, 5, 4, LECTURE["momentum"], 1, 0)
    found = on(3, LECTURE["train"], LECTURE["momentum"], 20, 4, "weights")
    assert np.allclose(found, averaged, rtol=1e-12)


def nesterov(rate, gradients):
    """The lecture's outer steps, one for each gradient."""
    theta, velocity, seen = np.zeros(4), np.zeros(4), []
    for one in gradients:
        theta, velocity = LECTURE["outer"](theta, velocity, one, rate, 0.9)
        seen.append(theta)
    return np.array(seen)


GRADIENTS = np.random.default_rng(49).normal(size=(7, 4))


def test_the_outer_step_is_that_of_keras():
    import keras

    weights = keras.Variable(np.zeros(4), dtype="float64")
    optimizer = keras.optimizers.SGD(0.7, momentum=0.9, nesterov=True)
    for one, right in zip(GRADIENTS, nesterov(0.7, GRADIENTS), strict=True):
        optimizer.apply([keras.ops.convert_to_tensor(one, "float64")], [weights])
        assert np.allclose(weights.numpy(), right, rtol=1e-6)


@NEEDS_TORCH
def test_the_outer_step_is_that_of_torch_also_of_pseudo_gradients():
    program = f"""
import torch
w = torch.zeros(4, dtype=torch.float64)
optimizer = torch.optim.SGD([w], lr=0.02 * 0.7, momentum=0.9, nesterov=True)
for one in {GRADIENTS.tolist()}:
    w.grad = torch.tensor(one, dtype=torch.float64)
    optimizer.step()
    print(*w.tolist())
"""
    done = subprocess.run(
        [str(TORCH.python), "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    found = np.array([line.split() for line in done.stdout.splitlines()], float)
    assert np.allclose(found, nesterov(0.7, 0.02 * GRADIENTS), rtol=1e-12)


@pytest.mark.parametrize("every", [1, 3, 50])
def test_the_fixed_point_is_where_local_sgd_ends(every):
    curvature, minimum = np.array([0.3, 1.0, 3.5, 2.0]), np.array([4.0, -1.0, 0.5, 2.0])
    rows = np.zeros(4)
    for _ in range(3000):
        for _ in range(every):
            rows = rows - 0.1 * curvature * (rows - minimum)
        rows = np.full(4, rows.mean())
    found = solution("fixed_point")(curvature, minimum, 0.1, every)
    assert np.isclose(found, rows[0], rtol=1e-9)
    lowest = (curvature * minimum).sum() / curvature.sum()
    assert np.isclose(found, lowest) == (every == 1)


# The program of section 5, with a small model in place of the MLP.


def over_a_link(ranks, way, steps, every):
    """The shared weights after each round, by rank; on ranks that are simulated."""
    here = threading.local()
    space = LECTURE["over_a_link"].__globals__
    kept = {name: space.get(name) for name in ("labkit", "time", "start", "of_batch", "adamw")}
    space["labkit"] = SimpleNamespace(cluster=SimpleNamespace(communicator=lambda: here.comm))
    space["time"] = SimpleNamespace(perf_counter=lambda: 0.0)
    space["RATES"] = dict.fromkeys(["DiLoCo", "overlapped"], (0.4, 0.9)) | dict.fromkeys(
        ["synchronous", "local, averaged"], (1, 0)
    )
    space["start"] = np.random.default_rng(7).normal(size=5)
    space["of_batch"] = lambda w, step, rank: np.tanh(w - rank) + np.cos(step + rank)
    space["adamw"] = lambda state, w, g: w - 0.02 * g

    def program(comm):
        here.comm = comm
        return [theta for _, theta in LECTURE["over_a_link"](comm.Get_rank(), way, steps, every)]

    try:
        return on(ranks, program)
    finally:
        space.update(kept)


def serial_ways(ranks, way, steps, every):
    of_batch = [lambda w, step, r=r: np.tanh(w - r) + np.cos(step + r) for r in range(ranks)]
    theta = np.random.default_rng(7).normal(size=5)
    rows, velocity, late, thetas = [theta] * ranks, 0 * theta, None, []
    for first in range(0, steps, every):
        start = list(rows)
        for step in range(first, first + every):
            g = [one(w, step) for one, w in zip(of_batch, rows, strict=True)]
            g = [sum(g) / ranks] * ranks if way == "synchronous" else g
            rows = [w - 0.02 * one for w, one in zip(rows, g, strict=True)]
        change = sum(rows) / ranks - sum(start) / ranks
        used = late if way == "overlapped" else change
        if way == "synchronous":
            theta = rows[0]
        elif used is not None:
            rate, kept = (1, 0) if way == "local, averaged" else (0.4, 0.9)
            velocity = kept * velocity - used
            theta = theta - rate * (kept * velocity - used)
        if way == "overlapped":
            rows = [theta + w - old for w, old in zip(rows, start, strict=True)]
        else:
            rows = [theta] * ranks
        late = change
        thetas.append(theta)
    if way == "overlapped":
        thetas = [*thetas, theta - 0.4 * (0.9 * (0.9 * velocity - late) - late)]
    return thetas


@pytest.mark.parametrize("way", ["synchronous", "local, averaged", "DiLoCo", "overlapped"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_program_that_is_measured_is_the_serial_one(way, ranks):
    right = np.array(serial_ways(ranks, way, 12, 3))
    found = np.array(over_a_link(ranks, way, 12, 3))
    assert np.abs(found - right).max() < 1e-12
    assert all(np.array_equal(one, found[0]) for one in found)  # the same bits


def test_diloco_under_mpi():
    pytest.importorskip("mpi4py")

    def program(comm, buffer):
        buffer[:] = LECTURE["diloco"](comm, LECTURE["adam"], 4, 3)

    right = local_updates(3, 4, 3, LECTURE["adam"], 0.7, 0.9)
    outputs = under_mpi(program, [np.zeros(5)] * 3, timeout=60)
    assert np.allclose(outputs, right, rtol=1e-12)


# A lost rank, in processes.


def survivors(attempts):
    """The serial program with the shards of those that took part, and its velocity."""
    w, v = np.zeros(5), np.zeros(5)
    for step, living, commits in attempts:
        if commits:
            v = 0.9 * v + np.mean([gradient(w, step, rank) for rank in living], axis=0)
            w = w - 0.02 * v
    return w, v


def with_a_lighthouse(rank, space, joins, steps, stop):
    comm = labkit.cluster.communicator()
    if rank == 0:
        return space["lighthouse"](comm, joins, steps)
    return space["replica"](comm, steps, stop)


@pytest.mark.parametrize(
    ("joins", "lost", "tried"),
    [
        ({1: 0, 2: 0, 3: 0, 4: 9}, (2, 5), {5: [1, 2, 3], 4: [1, 2, 3]}),
        ({1: 0, 2: 0, 3: 0, 4: 2}, (3, 0), {0: [1, 2, 3]}),
        ({1: 0, 2: 3, 3: 0, 4: 7}, (4, 7), {7: [1, 2, 3, 4]}),
        ({1: 0, 2: 0, 3: 99, 4: 99}, None, {}),
    ],
)
def test_replicas_go_on_without_the_one_that_is_killed(joins, lost, tried):
    import time

    space = {name: LECTURE[name] for name in ("lighthouse", "replica")}
    LECTURE["replica"].__globals__["time"] = time
    with labkit.cluster(ranks=5) as c:
        tolerate = {lost[0]} if lost else set()
        run = c.start(with_a_lighthouse, space, joins, 12, lost, tolerate=tolerate, show=False)
        if lost:
            run.wait_for("half of the all-reduce", rank=lost[0], timeout=60)
            run.kill(lost[0])
        outcome = run.finish(timeout=60)
    outcome.raise_errors()
    attempts, *ends = (outcome.results[rank] for rank in sorted(outcome.results))
    assert [step for step, _, commits in attempts if commits] == list(range(12))
    failed = {step: living for step, living, commits in attempts if not commits}
    assert failed == ({lost[1]: tried[lost[1]]} if lost else {})
    w, v = survivors(attempts)
    took_part = {rank for _, living, _ in attempts for rank in living} - set(tolerate)
    assert len(ends) == 4 - len(tolerate)
    right = [np.abs(one[0] - w).max() < 1e-12 and one[2] == 12 for one in ends]
    assert sum(right) == len(took_part)
    for found, velocity, _ in (one for one, is_right in zip(ends, right, strict=True) if is_right):
        assert np.array_equal(found, next(o for o, r in zip(ends, right, strict=True) if r)[0])
        assert np.allclose(velocity, v, rtol=1e-12)


# Other right answers.


def local_sgd_by_a_root(comm, w, gradient, lr, steps, every):
    for first in range(0, steps, every):
        for step in range(first, min(first + every, steps)):
            w = w - lr * gradient(w, step)
        rows = comm.gather(w)
        w = comm.bcast(None if rows is None else np.mean(rows, axis=0))
    return w


def local_sgd_by_changes(comm, w, gradient, lr, steps, every):
    start, w = w.copy(), w.copy()
    for step in range(steps):
        w -= lr * gradient(w, step)
        if step % every == every - 1 or step == steps - 1:
            total = np.empty_like(w)
            comm.Allreduce(w - start, total)
            start += total / comm.size
            w[:] = start
    return w


def diloco_by_weights(comm, w, inner, outer, rounds, every):
    theta, state, step, velocity = w, {}, 0, 0 * w
    for _ in range(rounds):
        w = theta.copy()
        for _ in range(every):
            w = inner(w, state, step)
            step += 1
        rows = comm.allgather(w)
        theta, velocity = outer(theta, velocity, theta - sum(rows) / len(rows))
    return theta


def diloco_with_velocities_of_ranks(comm, w, inner, outer, rounds, every):
    """Nesterov's step is linear: the mean of own steps is the step with the mean."""
    theta, state, velocity = w, {}, 0 * w
    for at in range(rounds):
        w = theta
        for step in range(every):
            w = inner(w, state, at * every + step)
        mine, velocity = outer(theta, velocity, theta - w)
        theta = comm.allreduce(mine) / comm.size
    return theta


def overlapped_with_a_list(comm, w, inner, outer, begin_mean, rounds, every):
    theta, velocity, under_way = w.copy(), np.zeros(len(w)), []
    for at in range(rounds):
        before = w.copy()
        for step in range(at * every, at * every + every):
            w = inner(w, step)
        own = before - w
        under_way.append(begin_mean(comm, own))
        if len(under_way) == 2:
            theta, velocity = outer(theta, velocity, under_way.pop(0)())
            w = theta - own
    theta, _ = outer(theta, velocity, under_way[0]())
    return theta


def mean_by_exchange(comm, gradient, living):
    rank, total = comm.Get_rank(), np.zeros_like(gradient)
    for one in living:
        if one == rank:
            for other in living:
                if other != rank:
                    comm.Send(gradient, dest=other)
            total += gradient
        else:
            part = np.empty_like(gradient)
            comm.Recv(part, source=one)
            total += part
    return total / len(living)


def commit_by_a_chain(comm, ok, living):
    at = living.index(comm.Get_rank())
    if at:
        ok = comm.recv(source=living[at - 1]) and ok
    if at + 1 < len(living):
        comm.send(ok, dest=living[at + 1])
        ok = comm.recv(source=living[at + 1])
    if at:
        comm.send(ok, dest=living[at - 1])
    return ok


def rejoin_from_the_last(comm, w, v, step, living, new):
    rank, number = comm.Get_rank(), np.array([step])
    for other in new:
        for array in (w, v, number):
            if rank == living[-1]:
                comm.Send(array, dest=other)
            elif rank == other:
                comm.Recv(array, source=living[-1])
    return w, v, int(number[0])


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("local_sgd", local_sgd_by_a_root),
        ("local_sgd", local_sgd_by_changes),
        ("diloco", diloco_by_weights),
        ("diloco", diloco_with_velocities_of_ranks),
        ("overlapped", overlapped_with_a_list),
        ("quorum_mean", mean_by_exchange),
        ("commit", commit_by_a_chain),
        ("rejoin", rejoin_from_the_last),
    ],
)
def test_other_right_programs_are_accepted(name, answer):
    outcome = check(f"49.{name}", answer)
    assert outcome, str(outcome)


# Other wrong answers; the usual ones stand in the tasks.


def other_on_rank_0(comm, w, gradient, lr, steps, every):
    """Rank 0 ends with other weights than the rest."""
    w = solution("local_sgd")(comm, w, gradient, lr, steps, every)
    return w if comm.Get_rank() else w + 1.5


def all_of_the_world(comm, gradient, living):
    return comm.allreduce(gradient) / len(living)


def step_begins_at_0(comm, w, v, step, living, new):
    w, v, _ = solution("rejoin")(comm, w, v, step, living, new)
    return w, v, 0


def applied_late(comm, w, inner, outer, begin_mean, rounds, every):
    """What Kale and others call delayed: every rank begins its round from theta."""
    theta, velocity, finish = w, 0 * w, None
    for at in range(rounds):
        w = theta
        for step in range(every):
            w = inner(w, at * every + step)
        moved = theta - w
        if finish:
            theta, velocity = outer(theta, velocity, finish())
        finish = begin_mean(comm, moved)
    return outer(theta, velocity, finish())[0]


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("local_sgd", other_on_rank_0, "rank 0's w is wrong"),
        ("quorum_mean", all_of_the_world, "allreduce"),
        ("rejoin", step_begins_at_0, "rank 0's step is wrong"),
        ("overlapped", applied_late, "theta is wrong"),
        ("commit", lambda comm, ok, living: None, "must be an array"),
        ("diloco", lambda comm, w, inner, outer, rounds, every: w, "theta is wrong"),
    ],
)
def test_other_wrong_programs_are_refused(name, answer, words):
    refused(f"49.{name}", answer, words)
