"""Real training: what the record says is what happened to the weights, whoever was quick."""

import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from labkit.kinds import LabError
from labkit.updates import (
    CourseModel,
    Quadratic,
    Softmax,
    simulate,
    staleness_bound,
    train,
    usual_staleness,
)
from labkit.updates.channel import connect, listen, meet

RATE = 0.2


def replayed(run, problem):
    """The weights of every version, computed anew: all that is needed is who read which version."""
    versions, steps = {0: problem.start()}, [0] * run.workers
    for one in run.gradients:
        slope = problem.gradient(versions[one.read], one.worker, run.workers, steps[one.worker])
        steps[one.worker] += 1
        versions[one.written] = versions[one.written - 1] - run.learning_rate * slope
    return versions


def test_asynchronous_training_is_what_its_record_says():
    problem = Softmax(images=500, batch=16)
    run = train(
        problem, workers=3, mode="async", updates=60, compute=0.003, slow={2: 3.0}, jitter=0.5,
        learning_rate=RATE,
    )  # fmt: skip
    versions = replayed(run, problem)
    assert np.array_equal(versions[60], run.weights())
    assert [one.loss for one in run.losses] == [problem.loss(w) for w in versions.values()]
    assert run.kind.name == "measured"
    assert "3 workers and a server, each a process" in run.kind.source
    # Counted as in the simulator: every update ages the gradients of all others by one.
    last = {one.worker: one.written for one in run.gradients}
    unfinished = sum(run.updates - last.get(worker, 0) for worker in range(3))
    assert sum(run.staleness) + unfinished == usual_staleness(3) * run.updates
    for one in run.gradients:
        times = [one.asked, one.allowed, one.began, one.ended, one.arrived, one.ready, one.applied]
        assert times == sorted(times)


def test_synchronous_training_ends_where_the_simulated_one_does():
    problem = Softmax(images=500, batch=16)
    keywords = {"workers": 2, "mode": "sync", "updates": 15, "learning_rate": RATE}
    run = train(problem, compute=0.001, **keywords)
    model = simulate(problem, **keywords)
    assert np.array_equal(run.weights(), model.weights())
    assert [one.loss for one in run.losses] == [one.loss for one in model.losses]
    assert set(run.staleness) == {0}


def test_a_bound_holds_the_quick_ones_back():
    run = train(
        workers=3, mode="bounded", bound=1, updates=60, compute=0.002, slow={2: 5.0}, jitter=0.5
    )
    assert run.max_staleness <= staleness_bound(3, 1)
    steps = [0, 0, 0]
    for one in run.gradients:
        assert steps[one.worker] - min(steps) <= 1
        steps[one.worker] += 1


def test_a_round_with_a_backup_takes_the_first_ones_and_drops_the_late_one():
    run = train(Quadratic(), workers=3, mode="sync", backups=1, updates=20, compute=0.002)
    for version in range(1, 21):
        assert sum(one.written == version for one in run.gradients) == 2
    assert all(one.read < run.updates for one in run.gradients)
    expected = 0.5 * (1 - 0.1) ** (2 * 20)
    assert run.losses[-1].loss == pytest.approx(expected)


class Breaking(Quadratic):
    """Worker 1 meets its end at its third gradient."""

    def gradient(self, weights, worker, workers, step):
        if (worker, step) == (1, 2):
            self.end()
        return super().gradient(weights, worker, workers, step)

    def end(self):
        raise ValueError("the third gradient is one too many")


class Dying(Breaking):
    def end(self):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("problem", "words"),
    [(Breaking(), "the third gradient is one too many"), (Dying(), "SIGKILL")],
)
def test_a_worker_that_fails_is_named(problem, words):
    with pytest.raises(LabError, match=f"Rank 2 .*{words}"):
        train(problem, workers=2, updates=5000, compute=0.001)


def test_it_ends_at_its_deadline():
    with pytest.raises(LabError, match="had not ended after"):
        train(Quadratic(), workers=2, updates=100_000, compute=0.05, deadline=0.9)


def test_more_workers_than_processes_is_refused_at_once():
    with pytest.raises(LabError, match="workers=64: each is a process, and at most 63"):
        train(workers=64)


def test_more_time_than_the_deadline_is_refused_at_once():
    with pytest.raises(LabError, match=r"do not fit into a deadline of 5\.00 s"):
        train(seconds=10, deadline=5)


def test_a_caller_without_the_key_is_sent_away_and_the_next_one_is_met():
    server = listen("127.0.0.1:0")
    address = f"127.0.0.1:{server.getsockname()[1]}"
    refused = []

    def call(key):
        try:
            connect(address, key, deadline=20).close()
        except LabError as fault:
            refused.append(str(fault))

    with server:
        for key, met in ((b"wrong", False), (b"right", True)):
            caller = threading.Thread(target=call, args=(key,))
            caller.start()
            found = meet(server, b"right")
            caller.join(20)
            assert (found is not None) is met
            if found is not None:
                found.close()
    assert len(refused) == 1
    assert "is not this run's server" in refused[0]


def test_a_server_that_is_not_there_is_said():
    with listen("127.0.0.1:0") as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(LabError, match=f"{address} could not be reached"):
        connect(address, b"key", deadline=0.1)


def test_the_course_model_trains_with_the_course_step_in_each_worker():
    draw = np.random.default_rng(0)
    data = SimpleNamespace(
        x_train=draw.integers(0, 256, (128, 6, 6), dtype=np.uint8),
        y_train=draw.integers(0, 4, 128, dtype=np.uint8),
        classes=4,
        label="noise",
    )

    def one_layer():
        from keras import Input, Sequential, layers

        return Sequential(
            [Input((6, 6)), layers.Flatten(), layers.Dense(4, kernel_initializer="zeros")]
        )

    keywords = {"workers": 2, "mode": "sync", "updates": 8, "learning_rate": RATE}
    run = train(CourseModel(data, one_layer, batch=16), compute=0.0, deadline=120, **keywords)
    # A single layer from zero is softmax regression, which NumPy does as well.
    expected = simulate(Softmax(data, images=128, batch=16), **keywords)
    assert np.abs(run.weights() - expected.weights()).max() < 1e-6
    assert run.losses[-1].loss == pytest.approx(expected.losses[-1].loss, abs=1e-6)
    assert run.problem == "one_layer model on 128 images of noise, batch 16"
