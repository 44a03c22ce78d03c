"""Real and simulated training: what the record says is what happened to the weights."""

import itertools

import numpy as np
import pytest

from labkit.cluster import Cluster
from labkit.kinds import LabError
from labkit.updates import Quadratic, Softmax, simulate, train

PROBLEM = Softmax(points=500, batch=16)
MODES = {
    "sync": {"mode": "sync"},
    "backups": {"mode": "sync", "backups": 1},
    "async": {"mode": "async"},
    "ssp": {"mode": "ssp", "bound": 1},
}


@pytest.fixture(scope="module", params=itertools.product(("simulate", "train"), MODES), ids=str)
def run(request):
    how, mode = request.param
    return {"simulate": simulate, "train": train}[how](
        PROBLEM, workers=3, updates=30, compute=0.002, slow={2: 3.0}, jitter=0.5,
        learning_rate=0.2, **MODES[mode],
    )  # fmt: skip


def replayed(run):
    """All versions of the weights, computed from nothing but who read which version."""
    versions, steps, parts = {0: PROBLEM.start()}, [0] * run.workers, {}
    for one in run.gradients:
        step, steps[one.worker] = steps[one.worker], steps[one.worker] + 1
        if one.written is not None:
            gradient = PROBLEM.gradient(versions[one.read], one.worker, run.workers, step)
            parts.setdefault(one.written, {})[one.worker] = gradient
            needed = run.workers - run.settings.backups if run.settings.mode == "sync" else 1
            if len(parts[one.written]) == needed:
                mean = sum(g for _, g in sorted(parts[one.written].items())) / needed
                versions[one.written] = versions[one.written - 1] - 0.2 * mean
    return versions


def test_the_weights_are_what_the_record_says(run):
    versions = replayed(run)
    assert sorted(versions) == list(range(run.updates + 1)) == list(range(31))
    assert np.array_equal(versions[30], run.weights)
    assert [one.loss for one in run.losses] == [PROBLEM.loss(w) for w in versions.values()]


def test_time_runs_forward_and_no_worker_does_two_things_at_once(run):
    for one in run.gradients:
        times = [
            one.requested, one.pulled, one.began, one.ended, one.arrived, one.ready, one.applied,
        ]  # fmt: skip
        assert times == sorted(times)
    for worker in range(run.workers):
        for before, after in itertools.pairwise(run.of(worker)):
            assert before.applied == after.requested
            assert before.applied <= after.pulled


def test_backup_workers_are_the_only_ones_to_be_dropped(run):
    backups = run.settings.backups
    for version in range(1, 31) if run.settings.mode == "sync" else ():
        assert sum(one.written == version for one in run.gradients) == 3 - backups
    assert (run.dropped > 0) == (backups > 0)


def test_synchronous_training_ends_where_the_simulated_one_does():
    keywords = {"workers": 2, "mode": "sync", "updates": 15, "learning_rate": 0.2}
    real, model = train(PROBLEM, compute=0.001, **keywords), simulate(PROBLEM, **keywords)
    assert np.array_equal(real.weights, model.weights)
    assert real.losses[-1].loss == model.losses[-1].loss
    assert real.kind.name == "measured"
    assert "2 workers and a server" in real.kind.source


def test_a_time_without_an_update_is_refused():
    with pytest.raises(LabError, match=r"seconds=0\.01"):
        train(Quadratic(), workers=1, seconds=0.01, compute=0.2)


def test_the_timeout_comes_on_top_of_the_seconds_of_the_training(monkeypatch):
    given = []
    monkeypatch.setattr(Cluster, "run", lambda *_, timeout, **__: given.append(timeout) or [None])
    train(workers=1, seconds=90, timeout=5)
    assert given == [95]


class Raising(Quadratic):
    """Worker 1 fails at its third gradient."""

    def gradient(self, weights, worker, workers, step):
        if (worker, step) == (1, 2):
            raise ValueError("the third gradient is one too many")
        return super().gradient(weights, worker, workers, step)


def test_a_worker_that_fails_is_named():
    with pytest.raises(LabError, match=r"Rank 2 .*the third gradient is one too many"):
        train(Raising(), workers=2, mode="sync", updates=5000, compute=0.001)
