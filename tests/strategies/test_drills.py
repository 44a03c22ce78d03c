"""Fault drills: real faults in real processes, and what each strategy makes of them."""

from __future__ import annotations

import pytest

import labkit
from labkit.cluster.here.local import LocalEngine
from labkit.kinds import LabError
from labkit.strategies import drills
from labkit.strategies.drills import FATAL, STEPS, drill


def events(record, words):
    return [event for event in record.timeline if words in event.what]


@pytest.fixture(scope="module")
def restart():
    """Worker 1 is killed, and all start again; with the ranks whose stack was asked for."""
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalEngine, "ask_stacks", lambda engine, ranks: asked.extend(ranks))
        return drill("restart"), asked


def test_the_time_until_a_killed_worker_is_noticed_is_that_of_tensorflow_alone(restart):
    record, asked = restart
    [fault], [complaint] = events(record, "SIGKILL"), events(record, "gives up")
    assert (fault.who, complaint.who) == ("worker 1", "worker 0")
    assert "UnavailableError" in complaint.what
    assert record.noticed == pytest.approx(complaint.seconds - fault.seconds, abs=0.01)
    assert asked == []  # a stack takes 100 ms


def test_a_training_continues_from_its_checkpoint_and_ends_where_it_would_have(restart):
    record, _ = restart
    assert record.went_on
    assert f"Steps 21 to {FATAL} were done twice" in record.result
    assert "are exactly those of a training that was not interrupted" in record.result
    seconds = [event.seconds for event in record.timeline]
    assert seconds == sorted(seconds)
    assert events(record, f"step {STEPS} is done") == [record.timeline[-1]]
    assert "started again from its checkpoint. Noticed after" in str(record)


def test_only_the_chief_writes_the_checkpoint(tmp_path):
    def train(rank, folder):
        """A job without variables, which does nothing in a step."""
        from pathlib import Path
        from types import SimpleNamespace
        from unittest.mock import Mock

        from labkit.strategies.drills import steps_with_checkpoints

        job = Mock(steps_per_epoch=STEPS, replicas=SimpleNamespace(index=rank))
        job.model = job.optimizer = SimpleNamespace(weights=[], variables=list)
        steps_with_checkpoints(job, Path(folder, str(rank)), lambda step: None)
        return Path(folder, str(rank)).exists()

    with labkit.cluster(ranks=2) as c:
        assert c.run(train, str(tmp_path)) == [True, False]


def test_a_hanging_worker_is_noticed_when_the_timeout_is_over():
    """By an error of the collective; on a busy machine TensorFlow may end the process instead."""
    record = drill("hang", timeout=1.5)
    assert not record.went_on
    assert record.noticed is not None
    [stopped] = events(record, "SIGSTOP")
    assert stopped.who == "worker 1"
    assert record.timeline[-1].who == "worker 0"
    assert "Training stopped. Noticed after" in str(record)
    why = "until its timeout of 1.50 s" if record.noticed > 1.35 else "heartbeats"
    assert why in record.result
    for complaint in events(record, "gives up"):
        assert "DeadlineExceededError: Collective has timed out" in complaint.what


def test_a_parameter_server_survives_a_killed_worker():
    record = drill("kill", "parameter_server")
    assert record.went_on
    assert record.noticed is None
    [killed], last = events(record, "SIGKILL"), events(record, "steps are done")[-1]
    assert killed.who == "worker 1"
    assert last.seconds > killed.seconds
    assert int(last.what.split()[0]) >= 2 * STEPS
    assert "Training went on. The lost" in str(record)


def test_a_chief_that_gives_up_with_the_killed_worker_has_not_gone_on(monkeypatch):
    def needs_worker_1(rank):
        if rank == 0:
            print("10 steps are done", flush=True)
        labkit.cluster.communicator().recv(source=2)  # worker 1 waits for itself

    monkeypatch.setattr(drills, "_train_with_server", needs_worker_1)
    record = drill("kill", "parameter_server")
    assert not record.went_on
    assert record.noticed > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"fault": "flood"}, "kill, hang, slow"),
        ({"fault": "hang", "strategy": "parameter_server"}, "parameter_server has kill"),
        ({"fault": "kill", "timeout": 100.0}, "timeout .*< 60, got 100"),
    ],
)
def test_a_drill_that_does_not_exist_is_refused(arguments, says):
    with pytest.raises(LabError, match=says):
        drill(**arguments)
