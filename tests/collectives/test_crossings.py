"""Where two algorithms cost the same, and the lines of costs."""

import math

import pytest

from labkit.collectives import compare_costs, cost, crossover, programs
from labkit.collectives.topologies import Link, nodes, ring, slow_link
from labkit.kinds import LabError

LINK = {"latency": 1e-6, "bandwidth": 100e9}


def test_ring_and_tree_meet_where_the_published_formula_says():
    """Also printed in The Algebra of Distributed Training: 1.136 MB for 64 ranks."""
    size = crossover("ring_all_reduce", "tree_all_reduce", ranks=64, **LINK)
    assert f"{size / 1e6:.3f}" == "1.136"
    assert repr(size) == (
        "1.14 MB, modelled: where the closed forms of ring_all_reduce and tree_all_reduce meet: "
        "tree_all_reduce is faster below, ring_all_reduce above"
    )


def test_recursive_doubling_and_rabenseifner_meet_where_the_published_formula_says():
    size = crossover(
        programs.rabenseifner_all_reduce, programs.recursive_doubling_all_reduce, 64, **LINK
    )
    assert f"{size / 1e6:.3f}" == "0.149"


@pytest.mark.parametrize("ranks", [3, 8, 17, 64, 1000])
@pytest.mark.parametrize("reduction", [0.0, 1e-11])
def test_at_the_crossing_both_cost_the_same(ranks, reduction):
    a, b = "ring_all_reduce", "recursive_doubling_all_reduce"
    size = crossover(a, b, ranks=ranks, reduction=reduction, **LINK)
    costs = [cost(name, ranks, size, reduction=reduction, **LINK) for name in (a, b)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)


def test_what_is_always_faster_never_meets():
    size = crossover("naive_all_reduce", "tree_all_reduce", ranks=64, **LINK)
    assert math.isinf(size)
    assert "they do not; tree_all_reduce is faster at every size" in repr(size)


def test_equal_formulas_meet_at_nothing():
    size = crossover("ring_all_reduce", "parameter_server_all_reduce", ranks=64, **LINK)
    assert size == 0
    assert "they cost the same at every size" in repr(size)


def test_from_the_first_byte_on():
    """Both need 2 steps of latency with 2 ranks; the tree sends everything both times."""
    size = crossover("ring_all_reduce", "tree_all_reduce", ranks=2, **LINK)
    assert size == 0
    assert "ring_all_reduce is faster at every size" in repr(size)


def test_costs_that_have_no_closed_form_are_searched():
    wires = nodes(4, 4, Link(1e-6, 600e9), Link(5e-6, 100e9))
    a, b = "hierarchical_all_reduce", "recursive_doubling_all_reduce"
    size = crossover(a, b, ranks=16, topology=wires, per_node=4)
    costs = [
        cost(a, 16, size, topology=wires, per_node=4),
        cost(b, 16, size, topology=wires),
    ]
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)
    trees = crossover("double_binary_tree_all_reduce", "ring_all_reduce", 64, pieces=8, **LINK)
    assert 1e3 < trees < 1e9


def test_costs_by_size_name_the_fastest_and_where_it_changes():
    names = ["ring_all_reduce", "tree_all_reduce"]
    shown = compare_costs(names, 64, (1e3, 1e9), **LINK)
    assert repr(shown) == (
        "Cost for 64 ranks: tree_all_reduce is the fastest up to 1.14 MB, then ring_all_reduce."
    )
    assert shown.turns[1].at == pytest.approx(crossover(*names, 64, **LINK))
    assert shown.seconds["ring_all_reduce"][0] == cost("ring_all_reduce", 64, 1e3, **LINK)


def test_costs_by_rank_count_double_the_ranks():
    shown = compare_costs(["ring_all_reduce", "tree_all_reduce"], (2, 1000), 1e6, **LINK)
    assert shown.along == (2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert repr(shown) == (
        "Cost for 1.00 MB: ring_all_reduce is the fastest up to 64 ranks, then tree_all_reduce."
    )


def test_each_program_gets_the_options_that_it_knows():
    names = ["hierarchical_all_reduce", "ring_all_reduce"]
    shown = compare_costs(names, 8, (1e3, 1e6), per_node=4, **LINK)
    by_four = cost("hierarchical_all_reduce", 8, 1e3, per_node=4, **LINK)
    assert shown.seconds["hierarchical_all_reduce"][0] == by_four


def test_costs_on_a_topology():
    wires = slow_link(ring(8, 1e-6, 100e9), 0, 1, 10)
    shown = compare_costs(["ring_all_reduce", "tree_all_reduce"], 8, (1e3, 1e9), topology=wires)
    assert "link 0→1 10 times slower" in str(shown.kind)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: compare_costs([], 64, (1, 9), **LINK), "nothing to compare"),
        (lambda: compare_costs(["reduce"], 64, 1e6, **LINK), "one axis"),
        (lambda: compare_costs(["reduce"], (2, 64), (1, 9), **LINK), "one axis"),
        (lambda: compare_costs(["reduce"], 64, (9, 9), **LINK), "is no axis"),
        (lambda: compare_costs(["reduce"], (5, 7), 1e6, **LINK), "fewer than two powers of two"),
        (lambda: compare_costs(["reduce"], 4, (1, 9), pieces=2, **LINK), "no option 'pieces'"),
        (
            lambda: compare_costs(["reduce"], (2, 8), 1e6, topology=ring(4, 1, 1)),
            "one number of ranks",
        ),
        (lambda: crossover("ring", "reduce", 4, **LINK), "no formula for 'ring'"),
    ],
)
def test_mistakes_are_explained(ask, words):
    with pytest.raises(LabError, match=words):
        ask()
