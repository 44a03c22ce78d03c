"""Links between ranks: the routes of single messages, and the same for many at once."""

from itertools import pairwise

import numpy as np
import pytest

from labkit.collectives.topology import Link, fully_connected, nodes, ring, slow_link
from labkit.kinds import LabError

FAST, SLOW = Link(1e-6, 600e9), Link(5e-6, 100e9)
SHAPES = {
    "ring": ring(7, 1e-6, 10e9),
    "even ring": ring(6, 1e-6, 10e9),
    "all": fully_connected(5, 1e-6, 10e9),
    "nodes": nodes(3, 4, FAST, SLOW),
}
each_shape = pytest.mark.parametrize("shape", SHAPES)


def pairs(topology):
    return [(a, b) for a in range(topology.ranks) for b in range(topology.ranks)]


@each_shape
def test_every_route_leads_from_its_start_to_its_end(shape):
    for a, b in pairs(SHAPES[shape]):
        stops = [a, *(hop[1] for hop in SHAPES[shape].route(a, b))]
        assert stops[-1] == b
        assert list(pairwise(stops)) == SHAPES[shape].route(a, b)


def seconds(topology, src, dst, nbytes=1e6):
    return topology.durations(np.array([src]), np.array([dst]), nbytes)[0]


def test_a_message_takes_the_latencies_of_its_links_and_its_bytes_over_the_narrowest():
    around = slow_link(SHAPES["even ring"], 1, 2, 10)
    assert seconds(around, 0, 2) == pytest.approx(11 * 1e-6 + 10 * 1e6 / 10e9)
    assert seconds(around, 2, 1) == pytest.approx(1e-6 + 1e6 / 10e9)  # the other direction
    assert seconds(around, 3, 3) == 0
    assert seconds(SHAPES["nodes"], 0, 3) == pytest.approx(1e-6 + 1e6 / 600e9)
    assert seconds(SHAPES["nodes"], 3, 4) == pytest.approx(5e-6 + 1e6 / 100e9)
    twice = slow_link(slow_link(SHAPES["all"], 0, 1, 2), 0, 1, 5)
    assert seconds(twice, 0, 1) == pytest.approx(10 * seconds(SHAPES["all"], 0, 1))


@pytest.mark.parametrize(
    ("mistake", "keyword"),
    [
        (lambda: nodes(2, 2, 1, FAST), "inside"),
        (lambda: slow_link(SHAPES["ring"], 0, 2, 10), "no link 0→2"),
        (lambda: slow_link(SHAPES["ring"], 0, 1, 0.5), "factor"),
    ],
)
def test_a_mistake_is_one_sentence(mistake, keyword):
    with pytest.raises(LabError, match=keyword):
        mistake()
