"""Costs: closed forms, rounds and the clock agree with each other and with published numbers."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import collectives
from labkit.collectives import (
    cost,
    crossover,
    formula,
    overlap,
    programs,
)
from labkit.collectives.clock import timed
from labkit.collectives.topology import (
    Link,
    fully_connected,
    late_starts,
    nodes,
    ring,
    slow_link,
    straggler,
)
from labkit.kinds import LabError

LINK = {"latency": 1e-6, "bandwidth": "100 GB/s"}
WIRE = {"ranks": 8, "latency": 100e-6, "bandwidth": "80 Gbit/s"}
INSIDE, BETWEEN = Link(1e-6, 600e6), Link(5e-6, 100e6)
RINGS = ("all_gather", "hierarchical_all_reduce", "reduce_scatter", "ring_all_reduce")
NODES = {"topology": nodes(8, 2, Link(1e-6, 600e9), Link(5e-6, 100e9))}

# Every program, and again with the options that change what it sends.
CASES = [
    *((name, ()) for name in programs.MEANING),
    ("hierarchical_all_reduce", (("per_node", 4),)),
    ("double_binary_tree_all_reduce", (("pieces", 3),)),
    ("broadcast", (("root", 1),)),
    ("gather", (("root", 2),)),
]


def even_bytes(ranks, options):
    """So many bytes that every program can halve and cut them without a rest."""
    core = 1 << (ranks.bit_length() - 1)
    per_node = min(options.get("per_node", 2), ranks)
    count = ranks // per_node
    return 4 * math.lcm(ranks, core, per_node * count, 2 * options.get("pieces", 4))


@cache
def traced(name, ranks, options):
    size = even_bytes(ranks, dict(options))
    inputs = [np.zeros(size, np.uint8) for _ in range(ranks)]
    return collectives.run(getattr(programs, name), inputs=inputs, **dict(options))


def my_ring(comm, buffer):
    """A student's own program."""
    programs.ring_all_reduce(comm, buffer)


def topologies(ranks):
    """Several kinds of links, healthy and not."""
    last, node = ranks - 1, next(size for size in (4, 3, 2, 1) if ranks % size == 0)
    alike = fully_connected(ranks, 3e-6, 7e6)
    around, groups = ring(ranks, 2e-6, 50e6), nodes(ranks // node, node, INSIDE, BETWEEN)
    made = {"alike": alike, "ring": around, "nodes": groups}
    made["late nodes"] = late_starts(groups, np.linspace(0, 1e-4, ranks))
    if ranks > 1:
        made["slow ring"] = slow_link(around, last, 0, 10)
        made["slow nodes"] = slow_link(groups, last, 0, 7)
        made["straggler"] = straggler(alike, last, factor=5)
        made["late"] = straggler(slow_link(around, 0, 1, 3), last // 2, late=1e-3)
    return made


# --- the three ways to a cost agree


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_cost_is_that_of_the_clock(name, options):
    for ranks in (1, 3, 8):
        if ranks <= dict(options).get("root", 0):
            continue
        nbytes = even_bytes(ranks, dict(options))
        for kind, links in topologies(ranks).items():
            seconds = cost(name, ranks, nbytes, topology=links, **dict(options))
            expected = timed(traced(name, ranks, options), topology=links).seconds
            assert seconds == pytest.approx(expected, rel=1e-9), (ranks, kind)


@settings(max_examples=25)
@given(data=st.data())
def test_rounds_are_exact_against_the_clock_on_any_mix_of_faults(data):
    ranks = data.draw(st.integers(2, 9))
    name = data.draw(st.sampled_from(RINGS))
    links = data.draw(st.sampled_from([fully_connected, ring]))(ranks, 2e-6, 50e6)
    if ranks % 2 == 0 and data.draw(st.booleans()):
        links = nodes(ranks // 2, 2, INSIDE, BETWEEN)
    for rank in data.draw(st.lists(st.integers(0, ranks - 1), max_size=3)):
        factor = data.draw(st.sampled_from([1.5, 2, 30]))
        links = slow_link(links, rank, (rank + 1) % ranks, factor)
    for rank in data.draw(st.lists(st.integers(0, ranks - 1), max_size=2)):
        late = data.draw(st.sampled_from([0, 1e-5, 1e-3]))
        links = straggler(links, rank, data.draw(st.sampled_from([1, 2.5])), late)
    seconds = cost(name, ranks, even_bytes(ranks, {}), topology=links)
    expected = timed(traced(name, ranks, ()), topology=links).seconds
    assert seconds == pytest.approx(expected, rel=1e-9)


def test_your_own_program_gets_its_options_and_is_never_taken_for_ours():
    def ring_all_reduce(comm, buffer, times=1):
        for _ in range(times):
            programs.ring_all_reduce(comm, buffer)

    once = cost(ring_all_reduce, 8, 1e6, **LINK)
    assert once == pytest.approx(cost("ring_all_reduce", 8, 1e6, **LINK), rel=1e-9)
    assert cost(ring_all_reduce, 8, 1e6, times=3, **LINK) == pytest.approx(3 * once)
    assert "your ring_all_reduce" in repr(once)
    assert "your" not in repr(cost(programs.ring_all_reduce, 8, 1e6, **LINK))


def test_all_ranks_of_a_large_system_may_start_late_and_some_be_slow():
    """16,384 ranks in 2,048 nodes."""
    late = np.random.default_rng(0).exponential(1e-2, 16_384)
    large = nodes(2_048, 8, Link(1e-6, 450e9), Link(5e-6, 50e9))
    seconds = {}
    for name, links in (("even", large), ("late", late_starts(large, late))):
        slow = slow_link(straggler(links, 5, 2), 901, 909, 1.9)
        seconds[name] = cost("hierarchical_all_reduce", 16_384, 1e9, topology=slow, per_node=8)
    assert max(late) < seconds["late"] < seconds["even"] + max(late)
    assert "and 16,382 more stragglers" in repr(seconds["late"])
    with pytest.raises(LabError, match="16 ranks"):
        late_starts(nodes(4, 4, INSIDE, BETWEEN), late)


# --- published numbers


def test_d2l_parameter_server():
    """Dive into Deep Learning, parameterserver.md: 160 MB of gradients, 16 GB/s, no latency."""
    link = {"nbytes": 160e6, "latency": 0.0, "bandwidth": 16e9}
    assert cost("naive_all_reduce", 4, **link) == pytest.approx(60e-3)  # on one of four GPUs
    assert cost("naive_all_reduce", 5, **link) == pytest.approx(80e-3)  # on the CPU: one more
    assert cost("parameter_server_all_reduce", 4, **link) == pytest.approx(15e-3)  # sharded


def test_eight_nodes_of_eight_gain_four_times_by_adding_up_inside_first():
    """A published worked example: 600 and 100 GB/s, 1 and 5 µs, 1 GB, about 4 times."""
    links = nodes(8, 8, Link(1e-6, 600e9), Link(5e-6, 100e9))
    flat = cost("ring_all_reduce", 64, 1e9, topology=links)
    levels = cost("hierarchical_all_reduce", 64, 1e9, topology=links, per_node=8)
    assert flat / levels == pytest.approx(3.916, abs=0.001)


def test_crossovers_are_where_the_published_formula_says():
    """The first is also printed in The Algebra of Distributed Training."""
    size = crossover("ring_all_reduce", "tree_all_reduce", ranks=64, **LINK)
    assert f"{size / 1e6:.3f}" == "1.136"
    doubling = programs.recursive_doubling_all_reduce
    size = crossover("rabenseifner_all_reduce", doubling, ranks=64, **LINK)
    assert f"{size / 1e6:.3f}" == "0.149"


# --- crossovers and comparisons


@pytest.mark.parametrize(
    ("ranks", "first", "second", "links"),
    [
        (5, my_ring, "recursive_doubling_all_reduce", LINK),
        (16, "hierarchical_all_reduce", "recursive_doubling_all_reduce", NODES),
    ],
)
def test_at_the_crossover_both_cost_the_same(ranks, first, second, links):
    size = crossover(first, second, ranks=ranks, **links)
    costs = {
        (program, factor): cost(program, ranks, factor * size, **links)
        for program in (first, second)
        for factor in (0.5, 1, 2)
    }
    assert costs[first, 1] == pytest.approx(costs[second, 1], rel=1e-6)
    order = [min(first, second, key=lambda one: costs[one, factor]) for factor in (0.5, 2)]
    earlier, later = (getattr(one, "__name__", one) for one in order)
    assert f"{earlier} is faster below, {later} above" in repr(size)


@pytest.mark.parametrize(
    ("mistake", "keyword"),
    [
        (lambda: formula(my_ring), "no formula for my_ring"),
        (lambda: cost("ring_all_reduce", 4, 1, pieces=2, **LINK), "pieces"),
        (lambda: cost(my_ring, 1024, 1, **LINK), "256"),
        (lambda: overlap([], bucket=0, **WIRE), r"got \[\]"),
        (lambda: overlap([(-1e-3, 4e6)], bucket=0, **WIRE), "seconds .* got -0.001"),
    ],
)
def test_a_mistake_is_one_sentence(mistake, keyword):
    with pytest.raises(LabError, match=keyword):
        mistake()


# --- gradients in buckets

LAYERS = [(1e-3, 4e6)] * 12


def test_all_at_the_end_is_the_backward_pass_and_one_whole_all_reduce():
    plan = overlap(LAYERS, bucket=float("inf"), **WIRE)
    whole = cost("ring_all_reduce", nbytes=48e6, **WIRE)
    assert plan.seconds == pytest.approx(12e-3 + whole)
    assert plan.exposed == pytest.approx(whole)


def test_buckets_of_four_layers_start_when_their_last_gradient_is_there():
    plan = overlap(LAYERS, bucket=16e6, **WIRE)
    assert [(one.first, one.last) for one in plan.buckets] == [(0, 3), (4, 7), (8, 11)]
    assert plan.buckets[0].start == pytest.approx(4e-3)


def test_layers_without_parameters_send_nothing():
    """Dropout between layers, and at both ends: the same buckets, later by the time it takes."""
    dropout = (1e-3, 0.0)
    layers = [dropout, *[part for layer in LAYERS for part in (layer, dropout)]]
    plan = overlap(layers, bucket=0, **WIRE)
    assert [one.first for one in plan.buckets] == [0, *range(2, 24, 2)]
    assert [one.last for one in plan.buckets] == [*range(1, 25, 2)]
    assert overlap([*layers, *[dropout] * 99], bucket=0, **WIRE).seconds == pytest.approx(0.124)


@settings(max_examples=30)
@given(
    layers=st.lists(st.tuples(st.floats(1e-5, 1e-2), st.floats(1e3, 1e8)), min_size=1, max_size=9),
    bucket=st.floats(0, 1e8),
)
def test_a_step_is_never_shorter_than_its_parts_nor_longer_than_their_sum(layers, bucket):
    plan = overlap(layers, bucket=bucket, **WIRE)
    backward = sum(seconds for seconds, _ in layers)
    sending = sum(one.end - one.start for one in plan.buckets)
    assert max(backward, sending) - 1e-12 <= plan.seconds <= backward + sending + 1e-12
    assert sum(one.nbytes for one in plan.buckets) == pytest.approx(sum(b for _, b in layers))
