"""A chief, workers and a parameter server, as real processes on this machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labkit.cluster.ranks.tf_config import from_hosts
from labkit.kinds import LabError
from labkit.strategies import parameter_server


@pytest.fixture(scope="module")
def run():
    """100 asynchronous steps, with a slow worker."""
    return parameter_server.train(100, delays={1: 0.05})


def test_every_step_is_applied_once_and_training_learns(run):
    assert (run.scheduled, run.executed, run.applied, run.repeated) == (100, 100, 100, 0)
    assert sorted(update.step for update in run.updates) == list(range(100))
    first, last = (
        np.mean([u.loss for u in part]) for part in (run.updates[:20], run.updates[-20:])
    )
    assert last < first


def test_a_slow_worker_is_not_waited_for_and_its_gradients_are_stale(run):
    assert run.by_worker[1] < run.by_worker[0]
    assert all(0 <= update.read < update.written <= 100 for update in run.updates)
    assert max(update.staleness for update in run.updates if update.worker == 1) > 0
    assert sum(run.by_worker.values()) == sum(run.staleness_counts.values()) == 100
    counted = sum(staleness * count for staleness, count in run.staleness_counts.items())
    assert run.mean_staleness == counted / 100


def test_a_count_that_is_read_and_then_written_can_only_lose(run):
    assert 0 < run.read_then_written <= run.executed
    counts = replace(run, scheduled=90, executed=110, read_then_written=80)
    assert (counts.lost, counts.repeated) == (30, 20)
    assert replace(run.updates[0], read=3, written=6).staleness == 2


def test_a_program_started_without_a_server_is_told_how(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", from_hosts(["127.0.0.1"]).text())
    with pytest.raises(LabError, match="no parameter server: its roles are worker"):
        parameter_server.join()


def test_what_cannot_be_trained_is_refused_before_processes_start():
    with pytest.raises(LabError, match=r"worker in delays .*from 0 to 1, got 2"):
        parameter_server.train(100, delays={2: 0.1})
