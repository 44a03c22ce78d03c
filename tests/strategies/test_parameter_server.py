"""A chief, workers and a parameter server, as real processes on this machine."""

from __future__ import annotations

import numpy as np
import pytest

from labkit import plain
from labkit.cluster import Cluster
from labkit.cluster.tf_config import from_hosts
from labkit.kinds import LabError
from labkit.strategies import parameter_server
from labkit.strategies.parameter_server import ENVIRONMENT, PRELOAD, ROLES


@pytest.fixture
def ranks():
    with Cluster(roles=ROLES, environment=ENVIRONMENT, preload=PRELOAD) as started:
        yield started


def chief_of(ranks, program, *arguments):
    return ranks.run(program, *arguments, until={0}, show=False)[0]


def test_one_at_a_time_gives_the_weights_of_one_device(ranks):
    def both(rank):
        from labkit.hardware import replicas
        from labkit.strategies.cases import RATE, STEPS, practice_job
        from labkit.strategies.serving import Chief

        chief = Chief(parameter_server.join(), learning_rate=RATE, one_at_a_time=True)
        chief.steps(STEPS)
        alone = practice_job(replicas(1, devices="cpu"))
        alone.steps(STEPS)
        return chief.record(), chief.weights(), alone.weights()

    served, ours, expected = chief_of(ranks, both)
    assert max(np.abs(a - b).max() for a, b in zip(ours, expected, strict=True)) <= 1e-6
    # Nobody else was there to be late, to overwrite, or to be overwritten.
    assert served.staleness == {0: 20}
    assert (served.executed, served.descended, served.careless) == (20, 20, 20)


def test_asynchronous_updates_are_all_applied_and_a_slow_worker_is_not_waited_for():
    served = parameter_server.train(100, delays={1: 0.05})
    assert (served.scheduled, served.executed, served.descended) == (100, 100, 100)
    # Each update has its number, and the weights that it was computed from are older.
    assert [update.written for update in served.updates] == list(range(1, 101))
    assert all(0 <= update.read < update.written for update in served.updates)
    assert sorted(update.step for update in served.updates) == list(range(100))
    assert served.by_worker[1] < served.by_worker[0]
    assert sum(served.by_worker.values()) == sum(served.staleness.values()) == 100
    late = [update.staleness for update in served.updates if update.worker == 1]
    assert max(late) > 1
    # A count that is read and then written can only lose.
    assert 0 < served.careless <= 100
    assert served.lost == 100 - served.careless
    first, last = (
        np.mean([u.loss for u in part]) for part in (served.updates[:20], served.updates[-20:])
    )
    assert last < first
    assert plain.load(plain.dump(served)) == served
    assert "2 workers, parameter servers: 1" in repr(served)


def test_fit_of_keras_3_cannot_take_its_data_to_the_workers(ranks):
    going = ranks.start(parameter_server.case("model.fit").program, until={0}, show=False)
    outcome = going.finish(deadline=60)
    # If this fails because it works: say so in the lecture on many workers.
    assert "create_per_worker_dataset" in outcome.errors[0].traceback


def test_a_program_started_without_a_server_is_told_how(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", from_hosts(["127.0.0.1"]).text())
    with pytest.raises(LabError, match="no parameter server: its roles are worker"):
        parameter_server.join()


def test_delays_of_workers_that_do_not_exist_are_refused():
    from labkit.strategies.serving import delays_of

    assert delays_of({1: 0.5}, 2) == [0.0, 0.5]
    for wrong in ({2: 0.1}, {0: -1.0}, {0: 1e9}):
        with pytest.raises(LabError, match="workers are 0 to 1"):
            delays_of(wrong, 2)
