"""Costs by structure: equal to pricing a trace wherever both can run, and quick where it cannot."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.collectives import cost
from labkit.collectives import rounds as by_rounds
from labkit.collectives.schedules import SCHEDULES, schedule
from labkit.collectives.topologies import (
    Link,
    fully_connected,
    nodes,
    ring,
    slow_link,
    straggler,
    switch,
)
from labkit.kinds import LabError
from tests.collectives.priced_traces import CASES, even_bytes, traced

INSIDE, BETWEEN = Link(1e-6, 600e6), Link(5e-6, 100e6)


def per_node_of(ranks):
    return next(size for size in (4, 3, 2, 1) if ranks % size == 0)


def wirings(ranks):
    """Several kinds of wires, plain, and with something wrong with them."""
    last, node = ranks - 1, per_node_of(ranks)
    made = {
        "all": fully_connected(ranks, 2e-6, 50e6),
        "ring": ring(ranks, 2e-6, 50e6),
        "switch": switch(ranks, 2e-6, 50e6),
        "nodes": nodes(ranks // node, node, INSIDE, BETWEEN),
        "one card": nodes(ranks // node, node, INSIDE, BETWEEN, cards=1),
    }
    if ranks > 1:
        made["slow switch"] = slow_link(made["switch"], "switch", last // 2, 7)
        made["slow ring"] = slow_link(made["ring"], last, 0, 10)
        made["slow pair"] = slow_link(made["all"], 0, 1, 10)
        made["straggler"] = straggler(made["all"], last, factor=5)
        made["late"] = straggler(slow_link(made["ring"], 0, 1, 3), last // 2, late=1e-3)
    return made


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_cost_by_structure_is_that_of_the_trace(name, options):
    settings = dict(options)
    for ranks in [1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17]:
        if ranks <= settings.get("root", 0):
            continue
        trace, nbytes = traced(name, ranks, options), even_bytes(ranks, settings)
        for kind, wires in wirings(ranks).items():
            seconds = cost(name, ranks, nbytes, topology=wires, reduction=3e-8, **settings)
            expected = trace.cost(topology=wires, reduction=3e-8)
            assert seconds == pytest.approx(expected, rel=1e-9), (ranks, kind)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_however_many_things_are_wrong_with_the_wires(data):
    ranks = data.draw(st.integers(2, 9))
    wires = data.draw(st.sampled_from([switch, fully_connected, ring]))(ranks, 2e-6, 50e6)
    links = sorted({hop[:2] for a in range(ranks) for hop in wires.route(a, (a + 1) % ranks)})
    for link in data.draw(st.lists(st.sampled_from(links), max_size=3)):
        wires = slow_link(wires, *link, data.draw(st.sampled_from([1.5, 2, 30])))
    for rank in data.draw(st.lists(st.integers(0, ranks - 1), max_size=2)):
        late = data.draw(st.sampled_from([0, 1e-5, 1e-3]))
        wires = straggler(wires, rank, data.draw(st.sampled_from([1, 2.5])), late)
    name = data.draw(st.sampled_from(sorted(SCHEDULES)))
    seconds = cost(name, ranks, even_bytes(ranks, {}), topology=wires, reduction=3e-8)
    expected = traced(name, ranks, ()).cost(topology=wires, reduction=3e-8)
    assert seconds == pytest.approx(expected, rel=1e-9)


def test_without_its_shortcuts_the_algebra_says_the_same(monkeypatch):
    """Once by the rank that never waits, once round by round."""
    wires = slow_link(ring(200, 2e-6, 50e6), 7, 8, 10)
    quick = cost("ring_all_reduce", 200, 1e6, topology=wires, reduction=3e-8)
    monkeypatch.setattr(by_rounds, "_critical", lambda *_: None)
    assert cost("ring_all_reduce", 200, 1e6, topology=wires, reduction=3e-8) == pytest.approx(quick)


def test_a_ring_of_16384_ranks_with_one_slow_link_waits_for_it_in_every_step():
    wires = slow_link(ring(16_384, 1e-6, 100e9), 5, 6, 10)
    begin = time.process_time()
    seconds = cost("ring_all_reduce", 16_384, 1e9, topology=wires)
    spent = time.process_time() - begin
    assert seconds == pytest.approx(2 * 16_383 * 10 * (1e-6 + 1e9 / 16_384 / 100e9))
    assert spent < 10  # without the shortcut of rounds.py it is several times that


def test_eight_nodes_of_eight_gain_four_times_by_adding_up_inside_first():
    """A published worked example: 600 and 100 GB/s, 1 and 5 µs, 1 GB, about 4 times."""
    wires = nodes(8, 8, Link(1e-6, 600e9), Link(5e-6, 100e9))
    flat = cost("ring_all_reduce", 64, 1e9, topology=wires)
    levels = cost("hierarchical_all_reduce", 64, 1e9, topology=wires, per_node=8)
    assert flat / levels == pytest.approx(3.916, abs=0.001)
    assert 1e3 * flat == pytest.approx(126 * (5e-3 + 1e3 / 64 / 100))


def test_a_shared_card_takes_most_of_that_gain_away():
    """All eight ranks of a node send outward at once, and one card has to carry it all."""
    wires = nodes(8, 8, Link(1e-6, 600e9), Link(5e-6, 100e9), cards=1)
    flat = cost("ring_all_reduce", 64, 1e8, topology=wires)
    levels = cost("hierarchical_all_reduce", 64, 1e8, topology=wires, per_node=8)
    across = 2 * 7 / 8 * 1e8 / 100e9
    assert across < levels < flat < 1.5 * levels


def test_messages_too_many_to_simulate_one_by_one_are_refused():
    crowded = ring(4096, 1e-6, 100e9)
    with pytest.raises(LabError, match="messages over 17,179,869,184 links here, which they share"):
        cost("all_to_all", 4096, 1e6, topology=crowded)


def test_a_program_that_does_not_wait_has_no_rounds():
    with pytest.raises(LabError, match="has no rounds"):
        schedule("double_binary_tree_all_reduce", 4, 1e6)


def test_a_cost_says_how_it_was_found():
    wires = slow_link(ring(4, 1e-6, 100e9), 0, 1, 10)
    assert repr(cost("ring_all_reduce", 4, 1e6, topology=wires)) == (
        "210 µs, modelled: ring_all_reduce simulated by its structure; P = 4, S = 1.00 MB, "
        "ring of 4 ranks, 1.00 µs and 100 GB/s a link, link 0→1 10 times slower"
    )
