"""Closed forms, against the traces of our programs and against what others have published."""

import numpy as np
import pytest

from labkit.collectives import cost, formula, programs
from labkit.collectives.formulas import FORMULAS, terms
from labkit.collectives.known_links import MEASURED
from labkit.kinds import LabError
from tests.collectives.priced_traces import CASES, even_bytes, traced

LINK = {"latency": 3e-6, "bandwidth": 7e6, "reduction": 5e-8}


def test_there_is_a_formula_for_every_program():
    assert set(FORMULAS) == set(programs.MEANING)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_formula_is_what_its_program_costs(name, options):
    settings = dict(options)
    for ranks in range(1 + settings.get("root", 0), 18):
        nbytes = even_bytes(ranks, settings)
        seconds = cost(name, ranks, nbytes, **LINK, **settings)
        assert seconds == pytest.approx(traced(name, ranks, options).cost(**LINK), rel=1e-12)


@pytest.mark.parametrize("pieces", [1, 2, 5, 16])
def test_the_bound_of_the_double_binary_tree_holds_and_is_near_for_many_ranks(pieces):
    for ranks in (2, 3, 5, 8, 13, 32, 64):
        bound = terms("double_binary_tree_all_reduce", ranks, pieces=pieces)
        at = {"nbytes": 1e6, "latency": 1e-6, "bandwidth": 1e9, "reduction": 1e-10}
        seconds = cost("double_binary_tree_all_reduce", ranks, pieces=pieces, **at)
        share = seconds / bound.seconds(*at.values())
        assert share <= 1 + 1e-12
        if ranks >= 32:
            assert share > 0.85


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


def test_a_formula_reads_as_it_is_computed():
    assert str(formula(programs.ring_all_reduce)) == "2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ"
    assert repr(formula("barrier")) == "barrier: T = ⌈log2 P⌉·α"
    assert repr(formula("double_binary_tree_all_reduce")).startswith(
        "double_binary_tree_all_reduce: T ≤ (4⌈log2 P⌉ + 6k - 8)"
    )
    assert all(form.source for form in FORMULAS.values())


def test_one_rank_has_nothing_to_send():
    assert {terms(name, 1) for name in FORMULAS} == {(0, 0, 0)}


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: formula("bruck"), "no formula for 'bruck'.*ring_all_reduce"),
        (lambda: terms("ring_all_reduce", 0), "ranks=0"),
        (lambda: terms("ring_all_reduce", 4, pieces=2), "no option 'pieces'.*It has none"),
        (lambda: terms("broadcast", 4, root=-1), "root=-1 cannot be"),
        (lambda: cost("ring_all_reduce", 4, -1, 1, 1), "nbytes=-1"),
        (lambda: cost("broadcast", 4, 1, 1, 1, root=4), "no root=4 among 4"),
    ],
)
def test_what_has_no_formula_is_said(ask, words):
    with pytest.raises(LabError, match=words):
        ask()


def test_the_reduction_changes_no_cost():
    plain = cost("ring_all_reduce", 4, 1e6, **LINK)
    assert cost("ring_all_reduce", 4, 1e6, op="max", **LINK) == plain
    assert cost(programs.ring_all_reduce, 4, 1e6, op=np.maximum, **LINK) == plain
