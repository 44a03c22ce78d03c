"""The lectures' pictures show what the programs do, and their words say what they show."""

import re

import pytest

from labkit import collectives
from labkit.collectives import pictures, programs

ALL = pictures.diagrams()


def words(name):
    return [text.get_text() for text, _ in ALL[name].sketch().words]


def run(name, ranks, **options):
    return collectives.run(getattr(programs, name), ranks=ranks, **options)


@pytest.mark.parametrize("name", pictures.PROMISES)
def test_every_operation_has_its_picture_with_the_values_of_a_run(name):
    trace = run("ring_all_reduce" if name == "all_reduce" else name, 4)
    drawn = words(f"op_{name}")
    for rank, left in enumerate(trace.outputs):
        for value in left:
            assert f"{value:g}" in drawn, (rank, value)


@pytest.mark.parametrize("name", pictures.PROMISES)
def test_the_words_of_an_operation_name_what_it_promises(name):
    """The alt text is read aloud: a promised value that it leaves out would be hidden."""
    trace = run("ring_all_reduce" if name == "all_reduce" else name, 4)
    said = set(re.findall(r"\d+", ALL[f"op_{name}"].alt.split("After:")[1]))
    promised = {
        f"{trace.outputs[rank][chunk]:g}"
        for rank in range(4) for chunk in range(4) if pictures.PROMISES[name].after(rank, chunk)
    }  # fmt: skip
    assert promised <= said


@pytest.mark.parametrize("name", pictures.PROMISES)
def test_what_an_operation_promises_passes_the_check_of_that_name(name):
    trace = run("ring_all_reduce" if name == "all_reduce" else name, 4)
    assert trace.check(name)


def test_the_ring_shows_every_step_and_the_published_sums():
    drawn = words("ring_steps")
    assert [word for word in drawn if word.startswith("step ")] == [
        f"step {i}" for i in range(1, 7)
    ]
    assert all(drawn.count(total) >= 4 for total in ("28", "32", "36", "40"))


def test_the_bottleneck_is_counted():
    drawn = words("naive_bottleneck")
    assert drawn.count("7 buffers") == 1
    assert drawn.count("1.75 buffers") == 8
    assert drawn.count("1 buffer") == 7


def test_steps_and_bytes_of_tree_and_ring_are_those_of_the_formulas():
    drawn = words("tree_and_ring")
    for power in range(1, 7):
        ranks = 2**power
        assert f"{2 * (ranks - 1)}" in drawn
        assert f"{2 * power}" in drawn
        share = f"{2 * (ranks - 1) / ranks:.2f}".replace(".00", "")
        assert f"{share} buffer{'s' * (ranks > 2)}" in drawn


def test_both_trees_of_the_picture_hold_every_rank_once():
    board = ALL["double_binary_tree"].sketch()
    drawn = [text.get_text() for text, _ in board.words]
    assert all(drawn.count(str(rank)) == 2 for rank in range(8))
    assert len(board.arrows) == 2 * 7, "a tree of 8 ranks has 7 edges"


def test_two_levels_send_less_between_nodes_than_a_flat_ring():
    said = next(word for word in words("two_levels") if word.startswith("Out of each node"))
    inside, flat = map(float, re.findall(r"([\d.]+) buffer", said))
    assert inside == 1
    assert flat == 1.75


@pytest.mark.parametrize("name", ["naive_bottleneck", "tree_and_ring", "two_levels", "buckets"])
def test_numbers_in_the_words_are_in_the_picture(name):
    """The alt texts are written by hand; every decimal number in them is one that was drawn."""
    drawn = " ".join(words(name))
    for number in re.findall(r"\d+\.\d+", ALL[name].alt):
        assert number in drawn, number
