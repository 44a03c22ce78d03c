"""The recommendation follows from the facts; its picture is drawn from the table that decides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import plain
from labkit.kinds import LabError
from labkit.memory import Data, Machine, Model, choose, decision_tree
from labkit.memory.questions import CHOICES, QUESTIONS, Facts

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
def test_each_choice_has_facts_that_lead_to_it_and_rejects_every_other(name):
    decision = choose(*CASES[name])
    assert decision.choice == name
    assert sorted([name, *(other.choice for other in decision.rejected)]) == sorted(CASES)
    assert all(other.reason for other in decision.rejected)
    assert decision == choose(*CASES[name])


def test_the_cases_cover_the_table():
    assert sorted(CASES) == sorted(choice.name for choice in CHOICES.values())
    asked = {key for facts in CASES.values() for key, _ in choose(*facts).answers}
    assert asked == set(QUESTIONS)


def test_reasons_carry_the_numbers():
    text = str(choose(SMALL, MNIST, Machine(16e9, devices=2)))
    for number in ("1.86 MB", "938 steps", "25.4 µs", "lecture 03", "MirroredStrategy"):
        assert number in text


def test_a_link_too_slow_for_sharding_leads_to_a_pipeline():
    slow = Machine(80e9, devices=8, link=10e9)
    assert choose(BILLIONS, MNIST, slow).choice == "Pipeline parallel"


def test_seconds_on_the_link_follow_the_published_byte_counts():
    """Ring all-reduce: 2(n-1)/n of the gradients; stage 3 of ZeRO: 3(n-1)/n of 16-bit weights."""
    facts = Facts(BILLIONS, MNIST, Machine(80e9, machines=8, link=450e9, network=1e9))
    assert facts.all_reduce_seconds() == pytest.approx(2 * 7 / 8 * 15e9 / 1e9)
    assert facts.sharding_seconds() == pytest.approx(3 * 7 / 8 * 15e9 / 1e9)


def test_float32_master_weights_are_never_sent():
    """18 bytes a parameter: 2 of 16-bit weights gathered twice, 4 of gradients reduced once."""
    model = Model(1e9, convention="mixed adam 18")
    facts = Facts(model, MNIST, Machine(80e9, devices=2, link=1e9))
    assert facts.sharding_bytes == (2 + 2 + 4) * 10**9
    assert facts.all_reduce_seconds() == pytest.approx(4.0)


@settings(deadline=None)
@given(
    parameters=st.floats(1, 1e12),
    activation=st.floats(0, 1e11),
    convention=st.sampled_from(["float32 sgd", "float32 adam", "mixed adam 16", "mixed adam 18"]),
    data=st.builds(
        Data, st.just(1e6), st.just(1000), st.integers(1, 512), st.integers(1, 3), st.booleans()
    ),
    machine=st.builds(
        Machine,
        st.floats(1e9, 2e11),
        st.integers(1, 16),
        st.integers(1, 64),
        st.floats(1e8, 1e12),
        equal=st.booleans(),
    ),
)
def test_any_facts_lead_to_a_choice_that_fits_where_it_says_so(
    parameters, activation, convention, data, machine
):
    model = Model(parameters, activation, convention)
    decision = choose(model, data, machine)
    usable = Facts(model, data, machine).usable
    if decision.choice == "More memory first":
        assert decision.footprint.total > usable
    elif decision.choice != "Federated learning":
        assert decision.footprint.total <= usable
    assert plain.load(plain.dump(decision)) == decision


@pytest.mark.parametrize("name", CASES)
def test_the_picture_names_the_path_that_was_taken(name):
    decision = choose(*CASES[name])
    alt = decision.picture().alt
    for key, question in QUESTIONS.items():
        assert (question.text in alt) == (key in dict(decision.answers))
    assert alt.endswith(f"{name}.")


def test_the_whole_tree_names_every_question_and_choice():
    alt = decision_tree().alt
    for question in QUESTIONS.values():
        assert question.text in alt
    for choice in CHOICES.values():
        assert choice.name in alt


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Model(0), "parameters"),
        (lambda: Model(1, convention="float8"), "'float8'"),
        (lambda: Data(1, batch=-3), "batch"),
        (lambda: Machine(1, network=0), "network"),
        (lambda: choose(MNIST, SMALL, Machine(1)), "Data"),
    ],
)
def test_wrong_arguments_are_named(make, named):
    with pytest.raises(LabError, match=named):
        make()
