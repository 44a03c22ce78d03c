"""A student's server, once it is right, serves processes that compute real gradients."""

import pytest

from labkit.exercises.real_workers import put_to_work
from labkit.kinds import LabError


def my_server(inbox, weights, rate):
    version, staleness = 0, []
    for message in inbox:
        if message.kind == "pull":
            message.reply(weights, version)
        else:
            weights = weights - rate * message.gradient
            staleness.append(version - message.version)
            version += 1
    return weights, staleness


def test_it_serves_real_workers_as_the_modelled_ones():
    done = put_to_work(my_server, workers=2, updates=30, compute=0.001)
    assert (len(done.staleness), done.staleness[0]) == (30, 0)
    # Each push makes the one gradient that is under way older by one, and no more.
    assert sum(done.staleness) <= 30
    assert done.losses[1] < done.losses[0]
    assert done.kind.name == "measured"
    assert "2 workers and your server: 30 pushes" in repr(done)


@pytest.mark.parametrize("server", [..., lambda inbox, weights, rate: (weights, [])])
def test_a_server_that_is_not_right_yet_is_not_let_loose(server):
    with pytest.raises(LabError, match="not finished yet"):
        put_to_work(server)
