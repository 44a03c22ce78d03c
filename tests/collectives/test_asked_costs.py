"""Costs asked for with numbers of numpy, and with what is no number at all."""

import numpy as np
import pytest

from labkit.collectives import compare_costs, cost, crossover, programs, run, topologies
from labkit.kinds import LabError

LINK = {"latency": 1e-6, "bandwidth": 100e9}
HERE = topologies.ring(4, **LINK)
FLAT = topologies.Link(1e-6, 1e9)


def test_numpy_may_have_counted():
    ranks, size = np.int64(8), np.int64(10**6)
    link = {"latency": np.float32(1e-6), "bandwidth": np.int64(10**9)}
    assert cost("ring_all_reduce", ranks, size, **link) == pytest.approx(
        cost("ring_all_reduce", 8, 1e6, 1e-6, 1e9)
    )
    assert crossover("ring_all_reduce", "tree_all_reduce", np.int32(64), **LINK) == (
        crossover("ring_all_reduce", "tree_all_reduce", 64, **LINK)
    )
    assert cost("hierarchical_all_reduce", 8, 8, per_node=np.int64(4), **LINK) == (
        cost("hierarchical_all_reduce", 8, 8, per_node=4, **LINK)
    )
    assert topologies.ring(np.int64(4), **LINK) == HERE
    assert topologies.straggler(HERE, np.int64(1), 2) == topologies.straggler(HERE, 1, 2)
    lines = compare_costs(["ring_all_reduce"], np.int64(4), (1e3, 1e6), **LINK)
    assert repr(lines) == repr(compare_costs("ring_all_reduce", 4, (1e3, 1e6), **LINK))


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: cost("ring_all_reduce", 4, "1MB", **LINK), "nbytes='1MB' is no size"),
        (lambda: cost("ring_all_reduce", 4, None, **LINK), "nbytes=None is no size"),
        (lambda: cost("ring_all_reduce", 4, np.ones(2), **LINK), "is no size"),
        (lambda: cost("ring_all_reduce", 4, 1, reduction="x", **LINK), "reduction='x' is no time"),
        (lambda: cost("ring_all_reduce", 4, 1, topology="ring"), "topology='ring' is no topology"),
        (lambda: cost("ring_all_reduce", True, 1, **LINK), "ranks=True is no number"),
        (lambda: topologies.slow_link(HERE, 0, 1, "x"), "'x' times slower is not slower"),
        (lambda: topologies.straggler(HERE, "a", 2), "There is no rank 'a' among 4"),
        (lambda: topologies.straggler(HERE, 1.5, 2), "There is no rank 1.5 among 4"),
        (lambda: topologies.straggler(HERE, 1, late="x"), "cannot begin 'x' seconds late"),
        (lambda: topologies.nodes(2, 2, 1, FLAT), "inside=1 is no link"),
        (lambda: compare_costs(["ring_all_reduce"], 4, ("a", "b"), **LINK), "is no axis"),
        (lambda: compare_costs(["ring_all_reduce"], 4, None, **LINK), "nbytes=None is no axis"),
    ],
)
def test_what_is_no_number_is_told(ask, sentence):
    with pytest.raises(LabError, match=sentence):
        ask()


def test_a_trace_asks_in_the_same_way():
    trace = run(programs.ring_all_reduce, ranks=4)
    with pytest.raises(LabError, match="reduction=None is no time"):
        trace.cost(reduction=None, **LINK)
    with pytest.raises(LabError, match="is no topology"):
        trace.cost(topology="ring")


def test_long_ways_around_a_large_ring_are_refused_at_once():
    wide = topologies.ring(16384, **LINK)
    with pytest.raises(LabError, match="which they share, and each would be simulated"):
        cost("tree_all_reduce", 16384, 1e9, topology=wide)
