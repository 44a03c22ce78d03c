"""The recommendation follows from the facts; its picture is drawn from the table that decides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.kinds import LabError
from labkit.memory import Data, Machine, Model, choose
from labkit.memory.recommend import CHOICES, QUESTIONS, Facts

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
    rejected = [other for names, evidence in decision.rejected if evidence for other in names]
    assert sorted([name, *rejected]) == sorted(CASES)


def test_the_cases_cover_the_table():
    assert sorted(CASES) == sorted(choice.name for choice in CHOICES.values())
    answered = {key for facts in CASES.values() for key in choose(*facts).answers}
    assert answered == set(QUESTIONS)


def test_the_evidence_carries_the_numbers():
    shown = choose(SMALL, MNIST, Machine(16e9, devices=2))._repr_mimebundle_()
    for number in ("1.86 MB", "938 steps", "25.4 µs", "lecture 03", "MirroredStrategy"):
        assert number in shown["text/plain"]
        assert number in shown["text/html"]


def test_a_link_too_slow_for_sharding_leads_to_a_pipeline():
    slow = Machine(80e9, devices=8, link=10e9)
    assert choose(BILLIONS, MNIST, slow).choice == "Pipeline parallel"


def test_seconds_on_the_link_follow_the_published_byte_counts():
    """Ring all-reduce: 2(n-1)/n of the gradients; stage 3 of ZeRO: 3(n-1)/n of 16-bit weights."""
    facts = Facts(BILLIONS, MNIST, Machine(80e9, machines=8, link=450e9, network=1e9))
    assert facts.link_seconds(2 * facts.step()["gradients"]) == pytest.approx(
        2 * 7 / 8 * 15e9 / 1e9
    )
    assert facts.link_seconds(facts.sharding_bytes) == pytest.approx(3 * 7 / 8 * 15e9 / 1e9)


def test_float32_master_weights_are_never_sent():
    """18 bytes a parameter: 2 of 16-bit weights gathered twice, 4 of gradients reduced once."""
    model = Model(1e9, convention="mixed adam 18")
    facts = Facts(model, MNIST, Machine(80e9, devices=2, link=1e9))
    assert facts.sharding_bytes == (2 + 2 + 4) * 10**9
    assert facts.step()["gradients"] == 4 * 10**9


@settings(deadline=None, max_examples=40)
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
    facts = Facts(model, data, machine)
    held = {
        "Federated learning": lambda: None,
        "Smaller batch, accumulated": lambda: facts.step(1),
        "Sharded data parallel (ZeRO)": facts.sharded,
        "Pipeline parallel": facts.sharded,
        "Tensor parallel": facts.layers_split,
        "More memory first": facts.layers_split,
    }
    choice = choose(model, data, machine).choice
    step = held.get(choice, facts.step)()
    if step is not None:
        assert (step.total <= facts.usable) == (choice != "More memory first")


def test_the_picture_names_the_path_that_was_taken():
    decision = choose(*CASES["Pipeline parallel"])
    alt = decision.picture().alt
    for key, question in QUESTIONS.items():
        assert (question.text in alt) == (key in dict(decision.answers))
    assert alt.endswith("Pipeline parallel.")


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ((Model(-1), MNIST, Machine(1)), "parameters"),
        ((Model(1, convention="float8"), MNIST, Machine(1)), "'float8'"),
        ((SMALL, Data(1, batch=-3), Machine(1)), "batch"),
        ((SMALL, MNIST, Machine(1, network=0)), "network"),
        ((MNIST, SMALL, Machine(1)), "Data"),
    ],
)
def test_wrong_arguments_are_named(facts, named):
    with pytest.raises(LabError, match=named):
        choose(*facts)
