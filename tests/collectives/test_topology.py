"""Links between ranks: the routes of single messages, and the same for many at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import plain
from labkit.collectives.topology import (
    Link,
    fully_connected,
    nodes,
    ring,
    slow_link,
    straggler,
    switch,
)
from labkit.kinds import LabError

FAST, SLOW = Link(1e-6, 600e9), Link(5e-6, 100e9)
SHAPES = {
    "ring": ring(7, 1e-6, 10e9),
    "even ring": ring(6, 1e-6, 10e9),
    "two": ring(2, 1e-6, 10e9),
    "all": fully_connected(5, 1e-6, 10e9),
    "switch": switch(5, 1e-6, 10e9),
    "nodes": nodes(3, 4, FAST, SLOW),
    "one card": nodes(3, 4, FAST, SLOW, cards=1),
    "two cards": nodes(2, 5, FAST, SLOW, cards=2),
    "lone ranks": nodes(4, 1, FAST, SLOW),
    "one node": nodes(1, 4, FAST, SLOW),
}
each_shape = pytest.mark.parametrize("shape", SHAPES)


def pairs(topology):
    return [(a, b) for a in range(topology.ranks) for b in range(topology.ranks)]


def links(topology):
    return sorted({hop[:2] for a, b in pairs(topology) for hop in topology.route(a, b)})


def by_route(topology, src, dst, nbytes):
    route = topology.route(src, dst)
    if not route:
        return 0.0
    return sum(hop.latency for hop in route) + nbytes / min(hop.bandwidth for hop in route)


def test_a_ring_takes_the_shorter_way_around():
    routes = {dst: [hop[:2] for hop in SHAPES["ring"].route(0, dst)] for dst in (2, 5)}
    assert routes == {2: [("0", "1"), ("1", "2")], 5: [("0", "6"), ("6", "5")]}


def test_a_message_between_nodes_passes_two_network_cards():
    route = SHAPES["two cards"].route(2, 9)
    assert [hop[:2] for hop in route] == [("card 0.0", "network"), ("network", "card 1.1")]
    assert sum(hop.latency for hop in route) == pytest.approx(5e-6)


@each_shape
def test_every_route_leads_from_its_start_to_its_end(shape):
    for a, b in pairs(SHAPES[shape]):
        route = SHAPES[shape].route(a, b)
        assert bool(route) == (a != b)
        assert all(one.end == other.start for one, other in pairwise(route))


@each_shape
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_many_messages_at_once_cost_what_their_routes_cost(shape, data):
    topology = SHAPES[shape]
    for start, end in data.draw(st.lists(st.sampled_from(links(topology)), max_size=3)):
        topology = slow_link(topology, start, end, data.draw(st.sampled_from([2, 10])))
    src, dst = np.array(pairs(topology)).T
    sizes = np.arange(len(src)) * 1000.0
    alone = [by_route(topology, a, b, n) for a, b, n in zip(src, dst, sizes, strict=True)]
    np.testing.assert_allclose(topology.durations(src, dst, sizes), alone, rtol=1e-12)


@each_shape
def test_a_slow_link_slows_the_routes_over_it_and_no_other(shape):
    for start, end in links(SHAPES[shape]):
        slower = slow_link(SHAPES[shape], start, end, 3)
        for a, b in pairs(slower):
            over = [hop[:2] for hop in SHAPES[shape].route(a, b)]
            assert (slower.route(a, b) != SHAPES[shape].route(a, b)) == ((start, end) in over)


def test_a_link_made_slow_twice_is_slower_by_both_factors():
    twice = slow_link(slow_link(SHAPES["all"], 0, 1, 2), 0, 1, 5)
    assert twice == slow_link(SHAPES["all"], 0, 1, 10)


def test_a_straggler_slows_the_messages_at_both_of_its_sides():
    slower = straggler(SHAPES["all"], 2, factor=4, late=0.5)
    src, dst = np.array([(0, 1), (0, 2), (2, 0)]).T
    even = SHAPES["all"].durations(src, dst, 1e6)
    np.testing.assert_allclose(slower.durations(src, dst, 1e6), even * [1, 4, 4])
    assert slower.starts().tolist() == [0, 0, 0.5, 0, 0]


def test_a_topology_describes_itself_and_comes_back_from_its_text():
    topology = straggler(slow_link(SHAPES["switch"], 0, "switch", 10), 3, late=0.001)
    assert str(topology) == (
        "5 ranks on a switch, 1.00 µs and 10.0 GB/s from rank to rank, "
        "link 0→switch 10 times slower, rank 3 1.00 ms late"
    )
    assert "1 network card a node" in str(SHAPES["one card"])
    assert plain.load(plain.dump(topology)) == topology


@pytest.mark.parametrize(
    ("mistake", "keyword"),
    [
        (lambda: ring(0, 1e-6, 1e9), "ranks"),
        (lambda: ring(4, -1, 1e9), "latency"),
        (lambda: ring(4, 1e-6, 0), "bandwidth"),
        (lambda: nodes(2, 4, FAST, SLOW, cards=8), "cards"),
        (lambda: nodes(2, 2, 1, FAST), "inside"),
        (lambda: slow_link(SHAPES["ring"], 0, 2, 10), "no link 0→2"),
        (lambda: slow_link(SHAPES["switch"], 0, 1, 10), 'Name a rank and "switch"'),
        (lambda: slow_link(SHAPES["all"], 0, 9, 10), "no link 0→9"),
        (lambda: slow_link(SHAPES["nodes"], "card 0.7", "network", 10), "no link card 0.7"),
        (lambda: slow_link(SHAPES["ring"], 0, 1, 0.5), "factor"),
        (lambda: straggler(SHAPES["ring"], 7, 2), "rank"),
        (lambda: straggler(SHAPES["ring"], 1, late=-1), "late"),
    ],
)
def test_a_mistake_is_one_sentence(mistake, keyword):
    with pytest.raises(LabError, match=keyword):
        mistake()
