"""The decision follows from the facts; its picture is drawn from the table that it walks."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import plain
from labkit.kinds import LabError
from labkit.memory import Data, Machine, Model, choose, decision_tree
from labkit.memory.facts import Facts
from labkit.memory.pictures import _tree
from labkit.memory.questions import CHOICES, FIRST, QUESTIONS, path, routes

SMALL = Model(101_770, activation_bytes=4_200)
MNIST = Data(60_000, example_bytes=3_136)
BILLIONS = Model(7.5e9, activation_bytes=2e9, convention="mixed adam 16")

CASES = {
    "One device": (SMALL, MNIST, Machine(16e9)),
    "Mirrored, one machine": (SMALL, MNIST, Machine(16e9, devices=2)),
    "Mirrored, several machines": (SMALL, MNIST, Machine(16e9, devices=2, machines=4)),
    "Parameter server": (SMALL, MNIST, Machine(16e9, machines=4, equal=False)),
    "Federated learning": (
        SMALL,
        Data(60_000, sites=5, may_leave_site=False),
        Machine(16e9, devices=2),
    ),
    "Smaller batch, accumulated": (Model(1e6, activation_bytes=1e9), MNIST, Machine(16e9)),
    "Sharded data parallel (ZeRO)": (BILLIONS, MNIST, Machine(80e9, devices=8, link=450e9)),
    "Pipeline parallel": (BILLIONS, MNIST, Machine(80e9, devices=1, machines=8, network=1e9)),
    "Tensor parallel": (
        Model(7.5e9, activation_bytes=100e9, convention="mixed adam 16"),
        MNIST,
        Machine(80e9, devices=8, link=450e9),
    ),
    "More memory first": (Model(540e9), MNIST, Machine(16e9, devices=2)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_training_has_a_case_that_leads_to_it(name):
    assert choose(*CASES[name]).choice == name


def test_every_choice_of_the_table_is_covered_by_a_case():
    assert sorted(CASES) == sorted(choice.name for choice in CHOICES.values())


@pytest.mark.parametrize("name", CASES)
def test_every_other_choice_is_rejected_once_with_a_reason(name):
    decision = choose(*CASES[name])
    others = [other.choice for other in decision.rejected]
    assert sorted([*others, name]) == sorted(CASES)
    assert all(other.reason for other in decision.rejected)


def test_reasons_carry_the_numbers():
    text = str(choose(SMALL, MNIST, Machine(16e9, devices=2)))
    assert "1.86 MB" in text
    assert "938 steps" in text
    assert "25.4 µs" in text
    assert "lecture 03" in text
    assert "tf.distribute.MirroredStrategy" in text


def test_sharing_out_what_the_links_cannot_carry_in_time_becomes_a_pipeline():
    fast = Machine(80e9, devices=8, link=450e9)
    slow = Machine(80e9, devices=8, link=10e9)
    assert choose(BILLIONS, MNIST, fast).choice == "Sharded data parallel (ZeRO)"
    assert choose(BILLIONS, MNIST, slow).choice == "Pipeline parallel"


def test_seconds_on_the_link_follow_the_published_byte_counts():
    """A ring all-reduce moves 2(n-1)/n of the gradients, ZeRO's third stage 3(n-1)/n of them."""
    spread = Facts(BILLIONS, MNIST, Machine(80e9, machines=8, link=450e9, network=1e9))
    assert spread.all_reduce_seconds() == pytest.approx(2 * 7 / 8 * 15e9 / 1e9)
    assert spread.gather_seconds() == pytest.approx(3 * 7 / 8 * 15e9 / 1e9)
    together = Facts(BILLIONS, MNIST, Machine(80e9, devices=8, link=450e9, network=1e9))
    assert together.gather_seconds() == pytest.approx(3 * 7 / 8 * 15e9 / 450e9)


def test_data_that_may_not_leave_one_place_is_trained_there():
    decision = choose(SMALL, Data(100, may_leave_site=False), Machine(16e9))
    assert decision.choice == "One device"
    assert "train there" in str(decision)


def test_every_question_and_choice_is_reached_by_some_route_and_none_goes_round():
    reached = [end for _, end in routes()]
    asked = {key for route, _ in routes() for key, _ in route}
    assert sorted(reached) == sorted(CHOICES)
    assert asked == set(QUESTIONS)


@given(
    parameters=st.floats(1, 1e12),
    activation=st.floats(0, 1e11),
    convention=st.sampled_from(["float32 sgd", "float32 adam", "mixed adam 16"]),
    batch=st.integers(1, 512),
    sites=st.integers(1, 3),
    may_leave=st.booleans(),
    memory=st.floats(1e9, 2e11),
    devices=st.integers(1, 16),
    machines=st.integers(1, 64),
    link=st.floats(1e8, 1e12),
    equal=st.booleans(),
)
def test_any_facts_lead_to_a_choice_that_fits_where_it_says_so(
    parameters,
    activation,
    convention,
    batch,
    sites,
    may_leave,
    memory,
    devices,
    machines,
    link,
    equal,
):
    model = Model(parameters, activation, convention)
    data = Data(1e6, 1000, batch, sites, may_leave)
    machine = Machine(memory, devices, machines, link=link, equal=equal)
    decision = choose(model, data, machine)
    usable = Facts(model, data, machine).usable
    if decision.choice == "More memory first":
        assert decision.footprint.total > usable
    elif decision.choice != "Federated learning":
        assert decision.footprint.total <= usable
    assert plain.load(plain.dump(decision)) == decision


@pytest.mark.parametrize("name", CASES)
def test_the_picture_and_the_function_agree(name):
    """The heavy boxes of the picture are the questions asked and the choice made, no other."""
    decision = choose(*CASES[name])
    board = _tree(decision.answers)
    heavy = {" ".join(words) for words in _boxes(board, heavy=True)}
    asked = {_joined(QUESTIONS[key].text) for key, _ in path(Facts(*CASES[name]))}
    taken = next(choice for choice in CHOICES.values() if choice.name == name)
    lecture = "" if taken.lecture is None else f" lecture {taken.lecture:02d}"
    assert heavy == asked | {name + lecture}


def test_the_picture_holds_every_question_and_every_choice():
    drawn = [" ".join(words) for words in _boxes(_tree(()))]
    for question in QUESTIONS.values():
        assert drawn.count(_joined(question.text)) == 1
    for choice in CHOICES.values():
        assert sum(words.startswith(choice.name) for words in drawn) == 1
    assert not _boxes(_tree(()), heavy=True)


def test_the_arrows_of_the_picture_join_what_the_table_joins():
    """Follow the drawn arrows from box to box; every answer leads where the table says."""
    board = _tree(())
    named = {box: _key(" ".join(words)) for box, words in _words(board).items()}
    joined = set()
    for points in board.arrows:
        start = next(key for box, key in named.items() if _touches(box, points[0]))
        end = next(key for box, key in named.items() if _touches(box, points[-1]))
        joined.add((start, end))
    wanted = {(key, after) for key, one in QUESTIONS.items() for after in (one.yes, one.no)}
    assert joined == wanted


def test_the_word_at_each_arrow_is_the_answer_that_leads_there():
    board = _tree(())
    named = {box: _key(" ".join(words)) for box, words in _words(board).items()}
    words = [text for text, _ in board.words if text.get_text() in ("yes", "no")]
    assert len(words) == len(board.arrows)
    for points in board.arrows:
        start = QUESTIONS[next(key for box, key in named.items() if _touches(box, points[0]))]
        end = next(key for box, key in named.items() if _touches(box, points[-1]))
        nearest = min(words, key=lambda text: _distance(text.get_position(), *points[:2]))
        assert end == getattr(start, nearest.get_text())


def test_the_alt_text_names_every_answer():
    alt = decision_tree().alt
    for question in QUESTIONS.values():
        assert question.text in alt
    for choice in CHOICES.values():
        assert choice.name in alt


def test_the_first_question_is_the_root():
    targets = {after for one in QUESTIONS.values() for after in (one.yes, one.no)}
    assert FIRST not in targets


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Model(0), "parameters is 0"),
        (lambda: Model(1, convention="float8"), "'float8'"),
        (lambda: Data(0), "examples is 0"),
        (lambda: Data(1, batch=-3), "batch is -3"),
        (lambda: Machine(0), "device_memory is 0"),
        (lambda: Machine(1, devices=0), "devices is 0"),
        (lambda: Machine(1, network=0), "network is 0"),
    ],
)
def test_facts_that_cannot_be_are_named_with_their_value(make, named):
    with pytest.raises(LabError, match=named):
        make()


def test_arguments_in_the_wrong_order_are_explained():
    with pytest.raises(LabError, match=r"needs a Model .*labkit\.memory\.Model"):
        choose(MNIST, SMALL, Machine(1))


def test_the_same_facts_give_the_same_decision_in_any_process():
    random.seed(1)
    one, two = (choose(*CASES["Tensor parallel"]) for _ in range(2))
    assert one == two
    assert repr(one) == repr(two)


def _words(board):
    """Box -> its lines of words, for boxes that hold words."""
    boxes = {}
    for text, box in board.words:
        if box is not None:
            boxes.setdefault(box, []).append(text.get_text().replace("\u00a0", " "))
    return boxes


def _boxes(board, heavy=False):
    found = _words(board)
    return [words for box, words in found.items() if not heavy or box in board.heavy]


def _joined(text):
    return " ".join(text.split())


def _key(words):
    for key, question in QUESTIONS.items():
        if _joined(question.text) == words:
            return key
    return max(
        (key for key, choice in CHOICES.items() if words.startswith(choice.name)),
        key=lambda key: len(CHOICES[key].name),
    )


def _distance(point, start, end):
    """From a point to the stretch between two others."""
    (x, y), (x0, y0), (x1, y1) = point, start, end
    length = (x1 - x0) ** 2 + (y1 - y0) ** 2
    share = min(1, max(0, ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length))
    return ((x - x0 - share * (x1 - x0)) ** 2 + (y - y0 - share * (y1 - y0)) ** 2) ** 0.5


def _touches(box, point):
    x, y = point
    corners = itertools.product((box.x, box.x + box.width), (box.y, box.y + box.height))
    on_x = box.x <= x <= box.x + box.width
    on_y = box.y <= y <= box.y + box.height
    return on_x and on_y and (x, y) not in set(corners)
