"""The recommendation follows from the facts; its picture is drawn from the table that decides."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import collectives
from labkit.choosing import Data, Machine, Model, choose, divide, frameworks
from labkit.choosing.choices import CHOICES
from labkit.choosing.facts import Facts
from labkit.choosing.questions import QUESTIONS
from labkit.kinds import LabError
from labkit.known_hardware import LINKS
from labkit.memory import fullest, transformer

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
    "Variables in the host's memory": (Model(1.5e9), MNIST, Machine(16e9, host_memory=64e9)),
    "Spatial parallel": (
        Model(31e6, activation_bytes=60e9),
        Data(500, example_bytes=805e6, batch=1),
        Machine(24e9, devices=4),
    ),
    "Hybrid parallel": (
        Model(70e9, activation_bytes=30e9, convention="mixed adam 16"),
        MNIST,
        Machine(80e9, devices=8, machines=64, link=450e9, network=50e9),
    ),
}
PHOTOS = Data(1.28e6, example_bytes=602_112, batch=64, epochs=90)
PHOTO_MODEL = Model(25.6e6, activation_bytes=90e6, step_seconds=0.08)
GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "sequence": 2048, "vocabulary": 51200}


@pytest.mark.parametrize("name", CASES)
def test_each_choice_has_facts_that_lead_to_it_and_rejects_every_other(name):
    decision = choose(*CASES[name])
    assert decision.choice == name
    rejected = [other for names, evidence in decision.rejected if evidence for other in names]
    assert {name, *rejected} == set(CASES)
    assert name not in rejected


def test_the_cases_cover_the_table():
    assert sorted(CASES) == sorted(choice.name for choice in CHOICES.values())
    answered = {key for facts in CASES.values() for key in choose(*facts).answers}
    assert answered == set(QUESTIONS)


def test_the_evidence_carries_the_numbers():
    shown = choose(SMALL, MNIST, Machine(16e9, devices=2))._repr_mimebundle_()
    for number in ("1.86 MB", "938 steps", "36.8 µs", "lecture 03", "MirroredStrategy"):
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
        "Spatial parallel": facts.layers_split,
        "Hybrid parallel": facts.layers_split,
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
        ((Model(1, step_seconds=0), MNIST, Machine(1)), "step_seconds"),
        ((MNIST, SMALL, Machine(1)), "Data"),
    ],
)
def test_wrong_arguments_are_named(facts, named):
    with pytest.raises(LabError, match=named):
        choose(*facts)


def test_a_training_that_is_short_enough_is_not_distributed():
    """938 steps of 2 ms are 2 s; 90 epochs of photos are 40 hours."""
    machine = Machine(16e9, devices=8)
    assert choose(Model(101_770, step_seconds=0.002), MNIST, machine).choice == "One device"
    assert choose(PHOTO_MODEL, PHOTOS, machine).choice == "Mirrored, one machine"
    assert choose(PHOTO_MODEL, PHOTOS, machine, enough=41 * 3600).choice == "One device"


def test_a_step_shorter_than_its_all_reduce_is_not_distributed():
    """2 x 7/8 of 102.4 MB over 10 Gbit/s take 143 ms: more than half of a step of 80 ms."""
    slow = Machine(16e9, machines=8, network=1.25e9)
    decision = choose(PHOTO_MODEL, PHOTOS, slow)
    assert decision.choice == "One device"
    assert decision.speedup == (1, 1)
    assert "36 %" in decision.reasons[-1]


def test_a_network_that_is_too_slow_leaves_the_devices_of_one_machine():
    """8 GPUs on NVLink pay, 32 over 1 Gbit/s do not."""
    decision = choose(
        PHOTO_MODEL, PHOTOS, Machine(16e9, 8, machines=4, link=235e9, network=0.125e9)
    )
    assert decision.choice == "Mirrored, one machine"
    assert decision.speedup[1] == 8


@pytest.mark.parametrize("gigabits", [2, 3, 4, 4.5, 6, 10, 100])
def test_a_parameter_server_is_never_slower_than_one_device(gigabits):
    pcs = Machine(8e9, machines=20, network=gigabits * 1e9 / 8, equal=False)
    decision = choose(replace(PHOTO_MODEL, step_seconds=0.4), replace(PHOTOS, batch=32), pcs)
    assert decision.choice == ("One device" if gigabits < 4.3 else "Parameter server")
    assert decision.speedup[0] >= 1


def test_the_hosts_memory_helps_several_devices_that_share_the_weights():
    """7B: 108 GB of state do not fit on 4 x 24 GB; 4 of 16 bytes a parameter, shared, do."""
    seven, text = Model(6.74e9, 0.54e9, "mixed adam 16"), Data(50_000, batch=1)
    for host, choice in ((64e9, "More memory first"), (256e9, "Variables in the host's memory")):
        machine = Machine(24e9, devices=4, host_memory=host)
        assert choose(seven, text, machine).choice == choice


def test_the_speed_up_is_that_of_the_cost_model_of_collectives():
    decision = choose(PHOTO_MODEL, PHOTOS, Machine(40e9, devices=8, link=16e9))
    link = LINKS["PCIe 3 x16"]
    reduce = collectives.cost(
        "ring_all_reduce", ranks=8, nbytes=4 * 25.6e6, latency=link.latency, bandwidth=16e9
    )
    assert decision.speedup == pytest.approx((8 * 0.08 / (0.08 + reduce), 8))


def test_a_pipelines_speed_up_is_that_of_its_bubble():
    decision = choose(*CASES["Pipeline parallel"])
    assert decision.speedup == pytest.approx((8 * 32 / (32 + 7),) * 2)


def test_a_division_fits_and_keeps_tensor_groups_inside_a_machine():
    machine = Machine(80e9, devices=8, machines=64)
    step = divide(GPT3, machine)
    plan = step.model
    assert plan.tensor * plan.pipeline * plan.data == 512
    assert 8 % plan.tensor == 0
    assert step.total <= 0.9 * 80e9
    again = transformer(
        **GPT3, tensor=plan.tensor, pipeline=plan.pipeline, data=plan.data, zero=1,
        sequence_parallel=True, recompute="selective",
    )  # fmt: skip
    assert fullest(again).total == step.total


def test_a_hybrid_decision_says_how_to_divide_a_transformer():
    model = Model(175e9, 30e9, "mixed adam 16", shape=GPT3)
    machine = Machine(80e9, devices=8, machines=64, link=450e9, network=50e9)
    decision = choose(model, MNIST, machine)
    assert decision.choice == "Hybrid parallel"
    assert decision.division == divide(GPT3, machine)
    with pytest.raises(LabError, match="more devices"):
        divide(GPT3, Machine(16e9, devices=2))
    with pytest.raises(LabError, match="heads"):
        divide({"layers": 2, "hidden": 8, "sequence": 4, "vocabulary": 9}, machine)


def test_the_table_of_frameworks_names_every_choice():
    text = repr(frameworks())
    for choice in CHOICES.values():
        assert choice.name in text
        assert len(choice.called) == 4
