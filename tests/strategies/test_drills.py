"""Fault drills: real faults in real processes, and what each strategy makes of them."""

from __future__ import annotations

import pytest

from labkit import plain
from labkit.kinds import LabError
from labkit.strategies.drills import FATAL, SLOW, STEPS, drill


def said(drilled, words):
    return [moment for moment in drilled.timeline if words in moment.what]


def test_without_a_worker_synchronous_training_ends_and_says_so():
    drilled = drill("kill")
    assert not drilled.went_on
    assert drilled.victim == "worker 1"
    [fault], [complaint] = said(drilled, "SIGKILL"), said(drilled, "gives up")
    assert (fault.who, complaint.who) == ("worker 1", "worker 0")
    assert "UnavailableError" in complaint.what
    assert drilled.noticed == pytest.approx(complaint.seconds - fault.seconds, abs=0.01)
    assert plain.load(plain.dump(drilled)) == drilled


def test_a_hanging_worker_is_noticed_when_patience_is_over():
    drilled = drill("hang", patience=1.5)
    assert not drilled.went_on
    [complaint] = said(drilled, "gives up")
    assert "DeadlineExceededError: Collective has timed out" in complaint.what
    assert drilled.noticed >= 1.4


def test_all_synchronous_workers_go_at_the_pace_of_the_slowest():
    drilled = drill("slow")
    assert drilled.went_on
    assert len(said(drilled, f"step {STEPS} is done")) >= 1
    assert "pace of the slowest" in drilled.result
    # Worker 0 sleeps for nobody, and yet each of its steps holds the other's sleep.
    assert drilled.numbers["step_after"] > 0.9 * SLOW


def test_a_training_begins_again_from_its_checkpoint_and_ends_where_it_would_have():
    drilled = drill("restart")
    assert drilled.went_on
    assert drilled.numbers == {"began_at": 20, "apart": 0}
    assert f"Steps 21 to {FATAL} were done twice" in drilled.result
    assert "exactly those of a training that nothing interrupted" in drilled.result


def test_a_killed_worker_of_a_parameter_server_is_survived():
    drilled = drill("kill", "parameter_server")
    assert drilled.went_on
    assert said(drilled, "SIGKILL")[0].who == "worker 1"
    assert "120 steps were handed out" in drilled.result


def test_a_hanging_worker_of_a_parameter_server_is_named():
    drilled = drill("hang", "parameter_server", patience=1.5)
    assert not drilled.went_on
    # Mostly 119: the others go on. Now and then the servers wait with it, and all stand still.
    assert "of 120 steps are done, and nothing has come for 1.50 s" in drilled.result
    assert "The chief waits for worker 1, without an answer" in drilled.result


def test_a_lost_server_ends_it_and_a_checkpoint_brings_it_back():
    drilled = drill("restart", "parameter_server")
    assert drilled.went_on
    assert said(drilled, "SIGKILL")[0].who == "server"
    assert "exactly those" in drilled.result


def test_a_drill_shows_its_timeline_in_text_and_in_a_table():
    drilled = drill("slow", "parameter_server")
    shown = drilled._repr_mimebundle_()
    assert shown["text/plain"].startswith("Drill: a worker becomes slow, ParameterServer")
    assert "<table" in shown["text/html"]
    assert "Nobody waited for it" in drilled.result
    assert drilled.numbers["steps_of_worker_1"] < drilled.numbers["steps_of_worker_0"]
    assert drilled.went_on


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"fault": "flood"}, "kill, hang, slow, restart"),
        ({"fault": "kill", "strategy": "mirrored"}, "multi_worker, parameter_server"),
        ({"fault": "kill", "patience": 100.0}, "fewer seconds than the deadline of 60"),
        ({"fault": "kill", "patience": "long"}, "patience='long'"),
        ({"fault": "kill", "workers": 1}, "workers"),
    ],
)
def test_what_cannot_be_drilled_is_said(arguments, says):
    with pytest.raises(LabError, match=says):
        drill(**arguments)
