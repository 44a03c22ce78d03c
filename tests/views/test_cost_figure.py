"""The picture of costs says in words what it shows, and what it was computed from."""

import pytest

from labkit.collectives import compare_costs

LINK = {"latency": 1e-6, "bandwidth": 100e9}
NAMES = ["ring_all_reduce", "tree_all_reduce", "double_binary_tree_all_reduce"]


@pytest.mark.parametrize(("ranks", "nbytes"), [(4, (1e3, 1e8)), ((2, 16), 1e6)])
def test_the_picture_and_its_words_agree(ranks, nbytes):
    shown = compare_costs(NAMES, ranks, nbytes, **LINK)
    made = shown.figure()
    assert made.alt.startswith(repr(shown))
    assert "double binary tree" in made.alt
    assert made.kind == shown.kind
    assert made.kind.name == "modelled"
    assert shown._repr_mimebundle_()[0]["text/plain"] == made.alt
