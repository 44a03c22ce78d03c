"""Links between ranks: the routes of single messages, and the same for many at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives.topology import Link, fully_connected, nodes, ring, slow_link, straggler
from labkit.kinds import LabError

FAST, SLOW = Link(1e-6, 600e9), Link(5e-6, 100e9)
SHAPES = {
    "ring": ring(7, 1e-6, 10e9),
    "even ring": ring(6, 1e-6, 10e9),
    "two": ring(2, 1e-6, 10e9),
    "all": fully_connected(5, 1e-6, 10e9),
    "nodes": nodes(3, 4, FAST, SLOW),
    "lone ranks": nodes(4, 1, FAST, SLOW),
}
each_shape = pytest.mark.parametrize("shape", SHAPES)


def pairs(topology):
    return [(a, b) for a in range(topology.ranks) for b in range(topology.ranks)]


def by_route(topology, src, dst, nbytes):
    """Seconds of one message, link by link."""
    factors = {(slow.src, slow.dst): slow.factor for slow in topology.slow}
    link = topology.link
    if topology.between and src // topology.per_node != dst // topology.per_node:
        link = topology.between
    route = [factors.get(hop, 1) for hop in topology.route(src, dst)]
    return sum(route) * link.latency + max(route, default=0) * nbytes / link.bandwidth


@each_shape
def test_every_route_leads_from_its_start_to_its_end(shape):
    for a, b in pairs(SHAPES[shape]):
        stops = [a, *(hop[1] for hop in SHAPES[shape].route(a, b))]
        assert stops[-1] == b
        assert list(pairwise(stops)) == SHAPES[shape].route(a, b)


@each_shape
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_many_messages_at_once_cost_what_their_routes_cost(shape, data):
    topology = SHAPES[shape]
    links = sorted({hop for a, b in pairs(topology) for hop in topology.route(a, b)})
    for src, dst in data.draw(st.lists(st.sampled_from(links), max_size=3)):
        topology = slow_link(topology, src, dst, data.draw(st.sampled_from([2, 10])))
    src, dst = np.array(pairs(topology)).T
    sizes = np.arange(len(src)) * 1000.0
    alone = [by_route(topology, a, b, n) for a, b, n in zip(src, dst, sizes, strict=True)]
    np.testing.assert_allclose(topology.durations(src, dst, sizes), alone, rtol=1e-12)


def test_a_straggler_slows_the_messages_at_both_of_its_sides():
    slower = straggler(SHAPES["all"], 2, factor=4, late=0.5)
    src, dst = np.array([(0, 1), (0, 2), (2, 0)]).T
    even = SHAPES["all"].durations(src, dst, 1e6)
    np.testing.assert_allclose(slower.durations(src, dst, 1e6), even * [1, 4, 4])
    assert slower.starts().tolist() == [0, 0, 0.5, 0, 0]


def test_a_topology_names_its_faults():
    text = str(straggler(slow_link(SHAPES["nodes"], 0, 1, 10), 3, late=0.001))
    for words in ("3 nodes of 4 ranks", "link 0→1 10 times slower", "rank 3 1.00 ms late"):
        assert words in text


@pytest.mark.parametrize(
    ("mistake", "keyword"),
    [
        (lambda: ring(4, 1e-6, 0), "bandwidth"),
        (lambda: nodes(2, 2, 1, FAST), "inside"),
        (lambda: slow_link(SHAPES["ring"], 0, 2, 10), "no link 0→2"),
        (lambda: slow_link(SHAPES["ring"], 0, 1, 0.5), "factor"),
        (lambda: straggler(SHAPES["ring"], 7, 2), "rank"),
    ],
)
def test_a_mistake_is_one_sentence(mistake, keyword):
    with pytest.raises(LabError, match=keyword):
        mistake()
