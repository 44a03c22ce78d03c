"""The shape that messages form, the spots of the ranks, and who sends to whom in words."""

import pytest

from labkit.collectives.page.message_shape import shape
from labkit.collectives.page.phases import pattern

BINOMIAL = [(4, 0), (5, 1), (6, 2), (7, 3), (2, 0), (3, 1), (1, 0)]
GROUPS = [(1, 0), (2, 0), (4, 3), (5, 3), (3, 0)]
PAIRS = [(0, 1), (1, 0), (2, 3), (3, 2)]
ACROSS = [(0, 2), (2, 0), (1, 3), (3, 1)]
STAR = [(1, 0), (2, 0), (3, 0)]


def ring(ranks, by=1):
    return [(rank, (rank + by) % ranks) for rank in range(ranks)]


def back(pairs):
    return [(b, a) for a, b in reversed(pairs)]


def made(ranks, pairs):
    return shape(ranks, [(step, *pair) for step, pair in enumerate(pairs)])


@pytest.mark.parametrize(
    ("ranks", "pairs", "expected"),
    [
        (4, ring(4), {"kind": "ring", "direction": 1}),
        (4, ring(4, -1), {"kind": "ring", "direction": -1}),
        (6, ring(6) + ring(6, -1), {"kind": "ring", "direction": 0}),
        (8, BINOMIAL + back(BINOMIAL), {"kind": "tree", "root": 0}),
        (8, back(BINOMIAL), {"kind": "tree", "root": 0}),
        (3, [(0, 1), (0, 2)], {"kind": "tree", "root": 0}),
        (4, STAR, {"kind": "star", "root": 0}),
        (5, [(2, 0), (2, 1), (2, 3), (2, 4)], {"kind": "star", "root": 2}),
        (6, [*GROUPS, *back(GROUPS)], {"kind": "levels", "size": 3}),
        (4, PAIRS + ACROSS + PAIRS, {"kind": "levels", "size": 2}),
        (4, PAIRS + ACROSS, {"kind": "circle"}),  # recursive doubling
        (4, [(0, 1), (1, 2), (2, 3)], {"kind": "circle"}),
        (2, [(0, 1)], {"kind": "circle"}),
        (4, [(0, 1), (1, 2), (2, 0)], {"kind": "circle"}),
        (4, ring(4) + ring(4, 2) + ring(4, -1), {"kind": "circle"}),
    ],
)
def test_the_shape_is_that_of_the_messages(ranks, pairs, expected):
    found = made(ranks, pairs)
    spots = found.pop("spots")
    assert found == expected
    assert len({(round(x, 3), round(y, 3)) for x, y in spots}) == ranks
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in spots)


def test_a_root_is_above_or_in_the_middle_and_groups_are_rows_or_columns():
    assert [round(3 * y) for _, y in made(8, BINOMIAL)["spots"]] == [0, 1, 1, 2, 1, 2, 2, 3]
    star = made(4, STAR)["spots"]
    assert star[0] == (0.5, 0.5)
    assert max(y for _, y in star) == 1  # as high as the stage
    assert [y for _, y in made(6, GROUPS)["spots"]] == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("pairs", "ranks", "shape", "said"),
    [
        (ring(4), 4, {"direction": 1}, "Every rank sends to the next rank on the ring"),
        (ring(4, 3), 4, {"direction": -1}, "Every rank sends to the previous rank on the ring"),
        (ring(4), 4, {}, "Every rank sends to the rank 1 higher, counted round"),
        (ring(8, 6), 8, {}, "Every rank sends to the rank 2 lower, counted round"),
        ([(4, 0), (5, 1), (6, 2), (7, 3)], 8, {}, "Ranks 4–7 send to the rank 4 lower"),
        (ACROSS, 6, {}, "Ranks 0–3 exchange with the rank 2 away"),
        ([(3, 1)], 4, {}, "Rank 3 sends to rank 1"),
        (STAR, 4, {}, "Ranks 1–3 send to rank 0"),
        ([(0, 1), (1, 3), (4, 5), (5, 0), (6, 2)], 8, {}, "0 → 1, 1 → 3, 4 → 5, 5 → 0 and 1 more"),
    ],
)
def test_who_sends_to_whom_is_said_in_few_true_words(pairs, ranks, shape, said):
    assert pattern(pairs, ranks, shape) == said
