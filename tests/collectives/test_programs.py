import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from labkit import collectives
from labkit.collectives import programs
from labkit.collectives.buffers import OPERATIONS
from labkit.collectives.programs import family
from tests.collectives.numpy_oracle import DTYPES, REDUCING, assert_done, exact_inputs

ROOTED = {"broadcast", "reduce", "scatter", "gather"}

# To explain a failure, every line of the simulator would be traced, for minutes.
QUICK = set(Phase) - {Phase.explain}

each_program = pytest.mark.parametrize("name", programs.MEANING)
each_all_reduce = pytest.mark.parametrize("name", programs.ALL_REDUCES)


def run(name, inputs, **options):
    return collectives.run(getattr(programs, name), inputs, **options)


@each_program
@settings(max_examples=6, phases=QUICK)
@given(data=st.data())
def test_a_program_does_what_numpy_does(name, data):
    meaning = programs.MEANING[name]
    ranks = data.draw(st.integers(1, 17), label="ranks")
    shape = data.draw(array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7), label="shape")
    if meaning == "all_to_all":
        shape = (*shape, ranks)
    dtype = data.draw(st.sampled_from(DTYPES), label="dtype")
    options = {}
    if meaning in REDUCING:
        options["op"] = data.draw(st.sampled_from(list(OPERATIONS)), label="op")
    if meaning in ROOTED:
        options["root"] = data.draw(st.integers(0, ranks - 1), label="root")
    if name == "hierarchical_all_reduce":
        options["per_node"] = data.draw(st.integers(1, 9), label="per node")
    if name == "double_binary_tree_all_reduce":
        options["pieces"] = data.draw(st.integers(1, 5), label="pieces")
    inputs = exact_inputs(ranks, shape, dtype, seed=data.draw(st.integers(0, 99), label="seed"))
    with np.errstate(over="ignore", invalid="ignore"):
        trace = run(name, inputs, **options)
    wanted = {key: value for key, value in options.items() if key in ("op", "root")}
    assert_done(meaning, inputs, trace.outputs, **wanted)
    if name != "barrier":
        verdict = trace.check(meaning)
        assert verdict, str(verdict)
        assert verdict.op == options.get("op", "sum" if meaning in REDUCING else None)


@each_all_reduce
def test_all_ranks_end_with_the_same_bits(name):
    # Training drifts apart if one replica rounds otherwise than the next.
    numbers = np.random.default_rng(0).normal(size=(7, 50)).astype("f4")
    outputs = run(name, list(numbers)).outputs
    np.testing.assert_allclose(outputs[0], numbers.sum(axis=0), rtol=1e-4, atol=1e-5)
    for other in outputs[1:]:
        np.testing.assert_array_equal(other, outputs[0])


@pytest.mark.parametrize(("ranks", "per_node"), [(8, 2), (12, 3)])
def test_between_the_nodes_each_rank_only_sends_its_chunk(ranks, per_node):
    nodes, elements = ranks // per_node, ranks * per_node
    trace = run(
        "hierarchical_all_reduce", exact_inputs(ranks, (elements,), "f8"), per_node=per_node
    )
    between = [0] * ranks
    for one in trace.messages:
        if one.source // per_node != one.dest // per_node:
            assert one.source % per_node == one.dest % per_node
            between[one.source] += one.nbytes
    chunk = 8 * elements // per_node
    assert between == [2 * chunk * (nodes - 1) // nodes] * ranks


@pytest.mark.parametrize("ranks", [1, 2, 7, 12, 33])
def test_two_trees_share_the_work(ranks):
    inner = [set(), set()]
    for shift in (0, 1):
        families = [family(rank, ranks, shift) for rank in range(ranks)]
        for rank, (parent, children) in enumerate(families):
            assert len(children) <= 2
            assert all(families[child][0] == rank for child in children)
            assert parent is None or rank in families[parent][1]
            if children:
                inner[shift].add(rank)
        depth, here = 0, [rank for rank, (parent, _) in enumerate(families) if parent is None]
        assert len(here) == 1
        reached = len(here)
        while here := [child for rank in here for child in families[rank][1]]:
            depth, reached = depth + 1, reached + len(here)
        assert reached == ranks
        assert depth <= math.log2(ranks)
    assert not inner[0] & inner[1]
