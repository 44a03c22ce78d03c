"""Costs: closed forms, rounds and the clock agree with each other and with published numbers."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import collectives
from labkit.collectives import compare_costs, cost, crossover, formula, programs
from labkit.collectives.clock import timed
from labkit.collectives.formulas import FORMULAS, terms
from labkit.collectives.known_links import MEASURED
from labkit.collectives.rounds import SCHEDULES
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

LINK = {"latency": 1e-6, "bandwidth": 100e9}
INSIDE, BETWEEN = Link(1e-6, 600e6), Link(5e-6, 100e6)

# Every program, and again with the options that change what it sends.
CASES = [
    *((name, ()) for name in FORMULAS),
    ("hierarchical_all_reduce", (("per_node", 4),)),
    ("double_binary_tree_all_reduce", (("pieces", 3),)),
    ("broadcast", (("root", 1),)),
    ("gather", (("root", 2),)),
]
each_case = pytest.mark.parametrize(("name", "options"), CASES)


def even_bytes(ranks, options):
    """So many bytes that every program can halve and cut them without a rest."""
    core = 1 << (ranks.bit_length() - 1)
    per_node = min(options.get("per_node", 2), ranks)
    nodes = ranks // per_node
    return 4 * math.lcm(ranks, core, per_node * nodes, 2 * options.get("pieces", 4))


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
    made = {
        "ring": ring(ranks, 2e-6, 50e6),
        "nodes": nodes(ranks // node, node, INSIDE, BETWEEN),
        "one card": nodes(ranks // node, node, INSIDE, BETWEEN, cards=1),
    }
    if ranks > 1:
        made["slow switch"] = slow_link(switch(ranks, 2e-6, 50e6), "switch", last // 2, 7)
        made["slow ring"] = slow_link(made["ring"], last, 0, 10)
        made["straggler"] = straggler(fully_connected(ranks, 2e-6, 50e6), last, factor=5)
        made["late"] = straggler(slow_link(made["ring"], 0, 1, 3), last // 2, late=1e-3)
    return made


# --- the three ways to a cost agree


def test_there_is_a_formula_for_every_program():
    assert set(FORMULAS) == set(programs.MEANING)


@each_case
def test_a_formula_is_what_its_program_costs(name, options):
    link = {"latency": 3e-6, "bandwidth": 7e6, "reduction": 5e-8}
    for ranks in (1, 2, 3, 4, 6, 8, 13, 16, 17):
        if ranks <= dict(options).get("root", 0):
            continue
        nbytes = even_bytes(ranks, dict(options))
        seconds = cost(name, ranks, nbytes, **link, **dict(options))
        expected = timed(traced(name, ranks, options), **link).seconds
        assert seconds == pytest.approx(expected, rel=1e-12)


@each_case
def test_a_cost_on_a_topology_is_that_of_the_clock(name, options):
    for ranks in (3, 4, 6, 8, 13):
        nbytes = even_bytes(ranks, dict(options))
        for kind, links in topologies(ranks).items():
            seconds = cost(name, ranks, nbytes, topology=links, reduction=3e-8, **dict(options))
            expected = timed(traced(name, ranks, options), topology=links, reduction=3e-8).seconds
            assert seconds == pytest.approx(expected, rel=1e-9), (ranks, kind)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_rounds_are_exact_against_the_clock_on_any_mix_of_faults(data):
    ranks = data.draw(st.integers(2, 9))
    links = data.draw(st.sampled_from([switch, fully_connected, ring]))(ranks, 2e-6, 50e6)
    hops = sorted({hop[:2] for a in range(ranks) for hop in links.route(a, (a + 1) % ranks)})
    for hop in data.draw(st.lists(st.sampled_from(hops), max_size=3)):
        links = slow_link(links, *hop, data.draw(st.sampled_from([1.5, 2, 30])))
    for rank in data.draw(st.lists(st.integers(0, ranks - 1), max_size=2)):
        late = data.draw(st.sampled_from([0, 1e-5, 1e-3]))
        links = straggler(links, rank, data.draw(st.sampled_from([1, 2.5])), late)
    name = data.draw(st.sampled_from(sorted(SCHEDULES)))
    seconds = cost(name, ranks, even_bytes(ranks, {}), topology=links, reduction=3e-8)
    expected = timed(traced(name, ranks, ()), topology=links, reduction=3e-8).seconds
    assert seconds == pytest.approx(expected, rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(ranks=st.integers(1, 24), nbytes=st.floats(1e3, 1e9))
def test_your_own_program_costs_what_ours_costs(ranks, nbytes):
    for links in (LINK, {"topology": ring(ranks, 2e-6, 50e6)}):
        ours = cost("ring_all_reduce", ranks, nbytes, reduction=1e-11, **links)
        mine = cost(my_ring, ranks, nbytes, reduction=1e-11, **links)
        assert mine == pytest.approx(ours, rel=1e-9)


def test_your_own_program_gets_its_options_and_is_never_taken_for_ours():
    def ring_all_reduce(comm, buffer, times=1):
        for _ in range(times):
            programs.ring_all_reduce(comm, buffer)

    once = cost(ring_all_reduce, 8, 1e6, **LINK)
    assert cost(ring_all_reduce, 8, 1e6, times=3, **LINK) == pytest.approx(3 * once)
    assert "your ring_all_reduce" in repr(once)


@pytest.mark.parametrize("pieces", [1, 5, 16])
def test_the_bound_of_the_double_binary_tree_holds_and_is_near_for_many_ranks(pieces):
    for ranks in (2, 5, 13, 32):
        bound = terms("double_binary_tree_all_reduce", ranks, pieces=pieces)
        at = {"nbytes": 1e6, "latency": 1e-6, "bandwidth": 1e9, "reduction": 1e-10}
        seconds = cost("double_binary_tree_all_reduce", ranks, pieces=pieces, **at)
        share = seconds / bound.seconds(*at.values())
        assert share <= 1 + 1e-12
        if ranks >= 32:
            assert share > 0.85
    many = cost("double_binary_tree_all_reduce", 4096, 1e6, **LINK)
    assert "at most" in repr(many)


def test_a_ring_of_16384_ranks_with_one_slow_link_waits_for_it_in_every_step():
    links = slow_link(ring(16_384, **LINK), 5, 6, 10)
    seconds = cost("ring_all_reduce", 16_384, 1e9, topology=links)
    assert seconds == pytest.approx(2 * 16_383 * 10 * (1e-6 + 1e9 / 16_384 / 100e9))


def test_one_late_rank_delays_a_long_ring_by_its_delay():
    links = ring(1000, **LINK)
    seconds = cost("ring_all_reduce", 1000, 1e9, topology=links)
    late = cost("ring_all_reduce", 1000, 1e9, topology=straggler(links, 9, late=1e-3))
    assert late == pytest.approx(seconds + 1e-3)


# --- published numbers


# nccl-tests, doc/PERFORMANCE.md: bus bandwidth is algorithm bandwidth times these.
@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75), (16, 1.875)])
def test_ring_all_reduce_sends_what_nccl_tests_counts(ranks, factor):
    assert terms("ring_all_reduce", ranks).bytes == factor
    assert terms("all_gather", ranks).bytes == terms("reduce_scatter", ranks).bytes == factor / 2


# Dive into Deep Learning, parameterserver.md: 160 MB of gradients, 16 GB/s, no latency.
@pytest.mark.parametrize(
    ("name", "ranks", "milliseconds"),
    [
        ("naive_all_reduce", 4, 60),  # on one of four GPUs
        ("naive_all_reduce", 5, 80),  # on the CPU, which is one more
        ("parameter_server_all_reduce", 4, 15),  # sharded over the four
    ],
)
def test_d2l_parameter_server(name, ranks, milliseconds):
    assert 1e3 * cost(name, ranks, 160e6, 0.0, 16e9) == pytest.approx(milliseconds)


def test_d2l_ring_on_eight_v100():
    """About 6 ms: they leave out that each rank sends 7/8 of the data twice, not all of it."""
    seconds = cost("ring_all_reduce", 8, 160e6, 0.0, 3 * 18e9)
    assert 1e3 * seconds * 8 / 7 == pytest.approx(5.93, abs=0.01)


def test_a_star_of_sends_meets_what_mpitutorial_measured_and_a_tree_is_near():
    """mpitutorial.com, 100,000 ints: the first pair of ranks gives the link, the rest follows."""
    errors = {}
    for name in ("naive_broadcast", "broadcast"):
        known = {m.ranks: m.seconds for m in MEASURED if m.collective == name}
        errors[name] = [
            round(100 * (cost(name, p, 4e5, 0.0, 4e5 / known[2]) / known[p] - 1), 1)
            for p in (4, 8, 16)
        ]
    assert errors == {"naive_broadcast": [0.7, 1.0, 1.0], "broadcast": [-15.8, -4.8, 6.2]}


def test_eight_nodes_of_eight_gain_four_times_by_adding_up_inside_first():
    """A published worked example: 600 and 100 GB/s, 1 and 5 µs, 1 GB, about 4 times."""
    links = nodes(8, 8, Link(1e-6, 600e9), Link(5e-6, 100e9))
    flat = cost("ring_all_reduce", 64, 1e9, topology=links)
    levels = cost("hierarchical_all_reduce", 64, 1e9, topology=links, per_node=8)
    assert flat / levels == pytest.approx(3.916, abs=0.001)
    assert 1e3 * flat == pytest.approx(126 * (5e-3 + 1e3 / 64 / 100))


@pytest.mark.parametrize(
    ("first", "second", "megabytes"),
    [
        # Also printed in The Algebra of Distributed Training.
        ("ring_all_reduce", "tree_all_reduce", "1.136"),
        ("rabenseifner_all_reduce", programs.recursive_doubling_all_reduce, "0.149"),
    ],
)
def test_crossovers_are_where_the_published_formula_says(first, second, megabytes):
    assert f"{crossover(first, second, ranks=64, **LINK) / 1e6:.3f}" == megabytes


# --- crossovers and comparisons


@pytest.mark.parametrize(
    ("ranks", "first", "second", "options"),
    [
        (3, "ring_all_reduce", "recursive_doubling_all_reduce", {}),
        (1000, "ring_all_reduce", "recursive_doubling_all_reduce", {}),
        (17, my_ring, "recursive_doubling_all_reduce", {}),
        (64, "double_binary_tree_all_reduce", "ring_all_reduce", {"pieces": 8}),
    ],
)
def test_at_the_crossover_both_cost_the_same(ranks, first, second, options):
    size = crossover(first, second, ranks=ranks, reduction=1e-11, **LINK, **options)
    assert 0 < size < math.inf
    own = {first: options if first in FORMULAS else {}, second: {}}
    costs = [cost(p, ranks, size, reduction=1e-11, **LINK, **own[p]) for p in (first, second)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)


def test_on_a_topology_the_crossover_is_searched():
    links = nodes(4, 4, Link(1e-6, 600e9), Link(5e-6, 100e9))
    a, b = "hierarchical_all_reduce", "recursive_doubling_all_reduce"
    size = crossover(a, b, ranks=16, topology=links, per_node=4)
    expected = cost(a, 16, size, topology=links, per_node=4)
    assert cost(b, 16, size, topology=links) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("first", "second", "ranks", "size", "words"),
    [
        ("naive_all_reduce", "tree_all_reduce", 64, math.inf, "tree_all_reduce is faster at every"),
        ("ring_all_reduce", "parameter_server_all_reduce", 64, 0, "the same at every size"),
        # With 2 ranks both need 2 steps; the tree sends everything both times.
        ("ring_all_reduce", "tree_all_reduce", 2, 0, "ring_all_reduce is faster at every"),
    ],
)
def test_programs_that_never_meet(first, second, ranks, size, words):
    found = crossover(first, second, ranks=ranks, **LINK)
    assert found == size
    assert words in repr(found)


def test_costs_by_size_name_the_fastest_and_where_it_changes():
    names = ["ring_all_reduce", "tree_all_reduce"]
    shown = compare_costs(names, 64, (1e3, 1e9), **LINK)
    assert repr(shown) == (
        "Cost for 64 ranks: tree_all_reduce is the fastest up to 1.14 MB, then ring_all_reduce."
    )
    assert shown.crossovers[0].at == pytest.approx(crossover(*names, 64, **LINK))
    assert shown.seconds["ring_all_reduce"][0] == cost("ring_all_reduce", 64, 1e3, **LINK)


def test_costs_by_rank_count_double_the_ranks():
    shown = compare_costs(["ring_all_reduce", "tree_all_reduce"], (2, 1000), 1e6, **LINK)
    assert shown.along == (2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert repr(shown) == (
        "Cost for 1.00 MB: ring_all_reduce is the fastest up to 64 ranks, then tree_all_reduce."
    )


def test_each_program_gets_the_options_that_it_knows_and_yours_is_compared_too():
    links = slow_link(ring(8, **LINK), 0, 1, 10)
    both = ["hierarchical_all_reduce", "ring_all_reduce", my_ring]
    shown = compare_costs(both, 8, (1e3, 1e6), per_node=4, topology=links)
    by_four = cost("hierarchical_all_reduce", 8, 1e3, per_node=4, topology=links)
    assert shown.seconds["hierarchical_all_reduce"][0] == by_four
    assert shown.seconds["my_ring"] == pytest.approx(shown.seconds["ring_all_reduce"])
    assert "link 0→1 10 times slower" in str(shown.kind)


# --- what is said, and what is refused


def test_a_cost_says_how_it_was_found():
    links = slow_link(ring(4, **LINK), 0, 1, 10)
    assert repr(cost("ring_all_reduce", 4, 1e6, topology=links)) == (
        "210 µs, modelled: the rounds of ring_all_reduce; P = 4, S = 1.00 MB, "
        "ring of 4 ranks, 1.00 µs and 100 GB/s a link, link 0→1 10 times slower"
    )
    assert str(formula(programs.ring_all_reduce)) == "2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ"
    assert repr(formula("barrier")) == "barrier: T = ⌈log2 P⌉·α"
    assert all(form.source for form in FORMULAS.values())


def test_the_reduction_changes_no_cost_and_numpy_may_have_counted():
    plain = cost("ring_all_reduce", 4, 1e6, **LINK)
    assert cost("ring_all_reduce", np.int64(4), np.int64(10**6), op="max", **LINK) == plain
    assert cost(programs.ring_all_reduce, 4, 1e6, op=np.maximum, **LINK) == plain
    assert {terms(name, 1) for name in FORMULAS} == {(0, 0, 0)}


@pytest.mark.parametrize(
    ("mistake", "keyword"),
    [
        (lambda: formula("bruck"), "no formula for 'bruck'.*ring_all_reduce"),
        (lambda: cost("bruck", 4, 1, 1, 1), "no formula for 'bruck'"),
        (lambda: terms("ring_all_reduce", 0), "ranks"),
        (lambda: cost("ring_all_reduce", 4, -1, 1, 1), "nbytes"),
        (lambda: cost("ring_all_reduce", 4, "1MB", **LINK), "nbytes"),
        (lambda: cost("ring_all_reduce", 4, 1, reduction="x", **LINK), "reduction"),
        (lambda: cost("broadcast", 4, 1, 1, 1, root=4), "root"),
        (lambda: cost("ring_all_reduce", 4, 1, 1, 1, pieces=2), "pieces"),
        (lambda: cost(my_ring, 1024, 1, **LINK), "256"),
        (lambda: cost("all_to_all", 140, 1, topology=ring(140, **LINK)), "share the links"),
        (lambda: crossover("ring", "reduce", 4, **LINK), "no formula for 'ring'"),
        (lambda: compare_costs([], 64, (1, 9), **LINK), "at least one"),
        (lambda: compare_costs(["reduce"], 64, 1e6, **LINK), "one axis"),
        (lambda: compare_costs(["reduce"], (2, 64), (1, 9), **LINK), "one axis"),
        (lambda: compare_costs(["reduce"], 64, (9, 9), **LINK), "two ends"),
        (lambda: compare_costs(["reduce"], (5, 7), 1e6, **LINK), "powers of two"),
        (lambda: compare_costs(["reduce"], 4, (1, 9), pieces=2, **LINK), "pieces"),
        (lambda: compare_costs(["reduce"], (2, 8), 1e6, topology=ring(4, 1, 1)), "one number of"),
    ],
)
def test_a_mistake_is_one_sentence(mistake, keyword):
    with pytest.raises(LabError, match=keyword):
        mistake()
