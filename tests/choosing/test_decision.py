"""The guide compares every way that fits; its picture is drawn from the table of questions."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import collectives
from labkit.choosing import Data, Machine, Model, choose, divide, frameworks
from labkit.choosing.choices import CHOICES, COMPARED, FASTEST, QUESTIONS
from labkit.choosing.facts import Facts
from labkit.choosing.mesh import ring_bytes, ulysses_bytes
from labkit.choosing.ways import LAST, _layout, ways
from labkit.cluster.calibrate import Calibration
from labkit.cluster.links.network import Network
from labkit.kinds import LabError, bytes_text, modelled
from labkit.known_hardware import LINKS
from labkit.memory import activations_per_layer, fullest, transformer
from labkit.timing.estimate import Estimate

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PHOTOS = Data(1.28e6, 602_112, batch=64, epochs=90)
FEW_PHOTOS = replace(PHOTOS, batch=32)
RESNET = Model(25.6e6, 90e6, step_seconds=0.1)
SLOW_RESNET = replace(RESNET, step_seconds=0.4)
A100S = Machine(40e9, 8, link=235e9)
PCS = Machine(8e9, machines=20, network=0.625e9, slowest=0.5)
SPOT = Machine(40e9, machines=8, network=3.125e9, mtbf=24 * 3600)
SMALL = Model(101_770, activation_bytes=4_200)
MNIST = Data(60_000, example_bytes=3_136)
TEXT = Data(50_000, 8_192, batch=1, epochs=3)
SCANS = Data(90_000, 8_192, batch=1, sites=12, may_leave_site=False)
UNET = Model(31e6, 60e9, step_seconds=4.0)
IMAGES = Data(500, 805e6, batch=1, epochs=50)


def shape(layers, hidden, heads, sequence):
    names = ("layers", "hidden", "heads", "sequence")
    return {
        **dict(zip(names, (layers, hidden, heads, sequence), strict=True)),
        "vocabulary": 32_000,
    }


def language(parameters, step_seconds, *sizes):
    """A transformer in 16 bits of which each layer keeps its input."""
    layers, hidden, _, sequence = sizes
    kept = 2 * layers * hidden * sequence
    return Model(parameters, kept, "mixed adam 16", step_seconds, shape(*sizes), recomputed=True)


SEVEN = language(7e9, 1.6, 32, 4096, 32, 2048)
THIRTEEN = language(13e9, 1.0, 40, 5120, 40, 2048)
SEVENTY = language(70e9, 4.3, 80, 8192, 64, 4096)
GPT2 = Model(1.5e9, 1.3e9, "mixed adam 16", 0.5, shape(48, 1600, 25, 1024))
TABLES = Model(25.01e9, 1e5, step_seconds=0.02, embeddings=25e9, row_bytes=13_312)
CLICKS = Data(4e9, 500, batch=4096)
H100S = Machine(80e9, 8, 64, link="450 GB/s", network="400 Gbit/s")

# A million tokens; 256 experts as in DeepSeek-V3; 8 as in Mixtral 8x7B.
MILLION = replace(
    language(70e9, 1100, 80, 8192, 64, 2**20), shape=shape(80, 8192, 64, 2**20) | {"key_heads": 8}
)
DEEPSEEK = replace(
    language(671e9, 3.4, 61, 7168, 128, 4096), experts=256, chosen=8, expert_parameters=654e9
)
MIXTRAL = replace(
    language(46.7e9, 1.0, 32, 4096, 32, 4096), experts=8, chosen=2, expert_parameters=45.1e9
)
# The reviewers' eleven. Each: facts, the choice, and words of what it prints.
REVIEWED = {
    "unequal GPUs in one machine: synchronous, uneven batches": (
        RESNET, PHOTOS, Machine(40e9, 4, slowest=0.5), "Mirrored, one machine", "uneven batches"),
    "8 spot GPUs: synchronous with checkpoints": (
        RESNET, PHOTOS, SPOT, "Mirrored, several machines", "checkpoints", "4.73× to 7.45×"),
    "two unequal PCs: synchronous, 83 % of the step is computation": (
        SLOW_RESNET, FEW_PHOTOS, replace(PCS, machines=2, network=1.25e9),
        "Mirrored, several machines", "uneven batches", "83 % is computation"),
    "20 unequal PCs at 5 Gbit/s: one device": (
        SLOW_RESNET, FEW_PHOTOS, PCS, "One device", "8.43× to 15.00×", "worth 42 %"),
    "7 billion on 8 × 24 GB: FSDP": (
        SEVEN, TEXT, Machine(24e9, 8), "Sharded data parallel (ZeRO)", "3.28× to 5.57×"),
    "25e9 embeddings: sharded embeddings": (
        TABLES, CLICKS, Machine(80e9, 8, link=300e9), "Sharded embeddings"),
    "7 billion at 12 hospitals with 24 GB: fit first": (
        SEVEN, SCANS, Machine(24e9, machines=12), "More memory, or LoRA", "LoRA the frozen"),
    "20 trials on 8 GPUs: a trial each": (
        RESNET, PHOTOS, A100S, "A training on each device",
        "20 trainings, 4 of them on 2"),
    "U-Net on 2 × 40 GB: recomputation and bf16 first": (
        UNET, IMAGES, Machine(40e9, 2), "bf16 and recomputation", "Mirrored, one machine"),
    "70 billion on one 8 × H100: more memory, or LoRA": (
        SEVENTY, TEXT, replace(H100S, machines=1), "More memory, or LoRA", "140 GB in 16 bits"),
    "13 billion on 8 × 8 A100: HSDP": (
        THIRTEEN, TEXT, Machine(80e9, 8, 8, link=235e9, network=200e9), "Hybrid sharded (HSDP)"),
}  # fmt: skip
# What a sceptical reader would try next.
MORE = {
    "one GPU": (RESNET, PHOTOS, Machine(40e9), "One device"),
    "a batch that is too large": (
        RESNET, replace(PHOTOS, batch=1024), Machine(40e9), "Smaller batch, accumulated"),
    "a training of five seconds": (
        replace(SMALL, step_seconds=5e-4), MNIST, Machine(16e9, 2), "One device"),
    "ResNet on 8 A100": (RESNET, PHOTOS, A100S, "Mirrored, one machine"),
    "a PC that is a tenth as fast": (
        SLOW_RESNET, FEW_PHOTOS, replace(PCS, machines=2, slowest=0.1), "One device"),
    "100 machines, each lost hourly": (
        RESNET, PHOTOS, replace(SPOT, machines=100, network=12.5e9, mtbf=3600), "Parameter server"),
    "GPT-2 on 4 × 24 GB": (GPT2, TEXT, Machine(24e9, 4), "Sharded data parallel (ZeRO)", "stage 2"),
    "GPT-2 on 8 × 80 GB": (
        GPT2, replace(TEXT, batch=8), Machine(80e9, 8, link=450e9), "Mirrored, one machine"),
    "the same, with 256 GB": (
        SEVEN, TEXT, Machine(24e9, 4, host_memory=256e9), "Variables in the host's memory"),
    "7 billion on 8 PCs": (SEVEN, TEXT, Machine(24e9, machines=8), "Pipeline parallel"),
    "8 billion, long sequences, everything kept": (
        Model(8e9, 380e9, "mixed adam 16", 2.0, shape(32, 4096, 32, 8192)), TEXT,
        Machine(80e9, 8, link=450e9), "Tensor parallel"),
    "70 billion on 512, 50 GB/s": (SEVENTY, TEXT, H100S, "Hybrid parallel", "tensor 8"),
    "tables, and a network that is slower than one machine": (
        TABLES, CLICKS, Machine(80e9, 8, 4, link=300e9, network=25e9), "Sharded embeddings",
        "42 % of one"),
    "tables that only the hosts can hold": (
        TABLES, CLICKS, Machine(16e9, 4, host_memory=512e9), "Sharded embeddings", "on the hosts"),
    "a volume that no shortening fits": (
        replace(UNET, activation_bytes=400e9), IMAGES, Machine(24e9, 4), "Spatial parallel"),
    "hospitals and a small model": (
        RESNET, SCANS, Machine(24e9, machines=12), "Federated learning", "One device"),
    "hospitals with 8 GPUs each": (
        SEVEN, SCANS, Machine(24e9, 8, 12), "Federated learning", "Sharded data parallel (ZeRO)"),
    "a million tokens on 512 H100: the ring sends less than Ulysses": (
        MILLION, TEXT, replace(H100S, network=400e9), "Context parallel", "context 8",
        "One example keeps 344 GB with tensor 4", "sends 940 MB around a ring"),
    "the same, not yet recomputed": (
        replace(MILLION, recomputed=False, activation_bytes=30e12), TEXT,
        replace(H100S, network=400e9), "bf16 and recomputation", "Context parallel"),
    "256 experts on 2,048 H100": (
        DEEPSEEK, TEXT, replace(H100S, machines=256, network=400e9), "Expert parallel",
        "The experts have 10.5 TB of state", "512 tokens at once; 295 keep a GPU busy"),
    "8 experts on 64 H100": (
        MIXTRAL, TEXT, replace(H100S, machines=8, network=400e9), "Expert parallel",
        "experts on 8"),
    "8 small experts that fit": (
        replace(MIXTRAL, parameters=1.5e9, expert_parameters=1.4e9), TEXT,
        replace(H100S, machines=1), "Mirrored, one machine"),
    "no step time": (SMALL, MNIST, Machine(16e9, 2), "Mirrored, one machine"),
}  # fmt: skip
TRIALS = {"20 trials on 8 GPUs: a trial each": 20}
CASES = REVIEWED | MORE


@cache
def decide(name):
    model, data, machine, *_ = CASES[name]
    return choose(model, data, machine, trials=TRIALS.get(name, 1))


@pytest.mark.parametrize("name", CASES)
def test_the_choice_is_the_one_that_an_expert_expects_and_prints_every_other_that_fits(name):
    model, data, machine, expected, *words = CASES[name]
    decision = decide(name)
    assert decision.choice == expected
    shown = " ".join(repr(decision).split())
    for word in words:
        assert word in shown
    if decision.way:
        facts = Facts(model, data, machine, TRIALS.get(name, 1))
        text = [one.text(facts) for one in ways(facts) if one.fits]
        assert decision.way.text(facts) in shown
        assert all(one in shown for one in text)
        assert model.step_seconds is None or all("× of one device" in one for one in text)
    # The last answer leads to the choice.
    key, yes = [*decision.answers.items()][-1]
    end = QUESTIONS[key].yes if yes else QUESTIONS[key].no
    ends = {FASTEST: COMPARED, "one_device": ("one_device", "accumulate")}.get(end, (end,))
    assert decision.choice in {CHOICES[one].name for one in ends}
    alt = decision.picture().alt
    assert alt.endswith(f"{decision.choice}.")
    for asked, question in QUESTIONS.items():
        assert (question.text in alt) == (asked in decision.answers)


def test_the_cases_cover_the_tables():
    decisions = [decide(name) for name in CASES]
    assert {one.choice for one in decisions} == {choice.name for choice in CHOICES.values()}
    assert {key for one in decisions for key in one.answers} == set(QUESTIONS)


@pytest.mark.parametrize("trials", [3, 8, 9, 20])
def test_trials_are_never_slower_than_one_after_the_other_on_all_devices(trials):
    for machine in (A100S, Machine(40e9, machines=8, network=0.125e9)):
        decision = choose(RESNET, PHOTOS, machine, trials=trials)
        assert decision.speedup[0] >= 0.99 * choose(RESNET, PHOTOS, machine).speedup[0]
        assert trials < 8 or decision.choice == "A training on each device"


def way(key, *facts):
    return next(one for one in ways(Facts(*facts)) if one.key == key)


def test_the_speed_up_is_that_of_the_cost_model_of_collectives():
    machine = Machine(40e9, devices=8, link=16e9)
    reduce = collectives.cost(
        "ring_all_reduce", ranks=8, nbytes=4 * 25.6e6, latency=LINKS["PCIe 3 x16"].latency,
        bandwidth=16e9,
    )  # fmt: skip
    found = choose(RESNET, PHOTOS, machine)
    assert found.speedup == pytest.approx((8 * 0.1 / (0.1 + reduce), 8))


def test_a_calibrated_network_takes_what_the_calibration_predicts():
    name, kind = "between hosts", modelled("a calibration")
    links = Calibration(
        Network.of(4, "1 Gbit/s"), {name: Estimate(5e-4, 2e-4, 3e-3, "s", 0.9, kind)},
        {name: Estimate(0.11e9, 0.1e9, 0.12e9, "B/s", 0.9, kind)}, kind,
    )  # fmt: skip
    machine = Machine(
        8e9, machines=4, network=links.bandwidth[name].value,
        network_latency=links.latency[name].value,
    )  # fmt: skip
    predicted = links.estimate("ring_all_reduce", 4 * 25.6e6).value
    assert way("multi_worker", RESNET, PHOTOS, machine).communication == pytest.approx(predicted)


def test_seconds_on_the_link_follow_the_published_byte_counts():
    """Stage 3 of ZeRO sends 3(n-1)/n of 16-bit weights, again for each micro-batch."""
    machine, large = Machine(24e9, 8, link=1e9), replace(SEVEN, activation_bytes=6e9, shape=None)
    for batch in (1, 4):  # 24 GB hold the share of the state and one example
        found = way("sharded", large, replace(TEXT, batch=batch), machine)
        assert found.communication == pytest.approx(batch * 3 * 7 / 8 * 14, rel=1e-4)


def test_float32_master_weights_are_never_sent():
    """18 bytes a parameter: 2 of 16-bit weights gathered twice, 4 of gradients reduced once."""
    model = Model(1e9, convention="mixed adam 18", step_seconds=1)
    found = way("sharded", model, MNIST, Machine(18e9, devices=4, link=1e9))
    assert found.held == (2 + 4 / 4 + 12 / 4) * 1e9 + 32 * 3_136  # stage 2 keeps the weights
    assert found.communication == pytest.approx(3 / 4 * (2 + 4), rel=1e-4)


def test_a_pipelines_speed_up_is_that_of_its_bubble():
    """8 stages, 8 × 4 micro-batches of the same global batch: 7 / 32 of the time is empty."""
    model = Model(7.5e9, 2e9, "mixed adam 16", 100.0, SEVEN.shape)
    found = way("pipeline", model, replace(TEXT, batch=4), Machine(80e9, 8, link=450e9))
    assert found.high == pytest.approx(8 / (1 + 7 / 32))


def test_uneven_batches_use_all_speeds_and_a_lockstep_the_slowest():
    machine = Machine(80e9, 4, link=1e15, slowest=0.5)
    assert way("mirrored", RESNET, PHOTOS, machine).high == pytest.approx(3)
    pipeline = way("pipeline", GPT2, PHOTOS, machine)
    assert pipeline.high == pytest.approx(4 * 0.5 / (1 + 3 / 256))
    assert "uneven" not in pipeline.how


@pytest.mark.parametrize("convention", ["float32 adam", "mixed adam 16"])
def test_recomputation_keeps_the_input_of_each_layer_and_makes_a_step_a_third_longer(convention):
    model = replace(SEVENTY, activation_bytes=1e12, convention=convention, recomputed=False)
    short = Facts(model, TEXT, H100S).shortened.model
    assert short.activation_bytes == 2 * 80 * 4096 * 8192  # 16-bit numbers
    assert short.step_seconds == pytest.approx(4.3 * 4 / 3)


@pytest.mark.parametrize("model", [SEVEN, replace(SEVEN, recomputed=False)])
def test_tensor_parallelism_is_counted_with_sequence_parallelism(model):
    """Each of t ranks keeps 1/t, as the calculator; inputs are gathered again in backward."""
    found = way("tensor", model, TEXT, Machine(80e9, 8, link=1e9))
    state = (2 + 2 + 12) * 7e9 / 8 + 8_192
    size = {"hidden": 4096, "heads": 32, "sequence": 2048, "micro_batch": 1}
    kept = activations_per_layer(**size, tensor=8, sequence_parallel=True, recompute="full")
    assert found.held == state + 32 * kept
    halves = 12 if model.recomputed else 10  # all-gathers and reduce-scatters a layer
    sent = 8 * 32 * halves * 7 / 8 * 2 * 2048 * 4096 / 1e9  # of 8 examples
    assert found.communication == pytest.approx(sent, rel=0.01)


def test_a_sequence_travels_a_ring_or_its_heads_are_exchanged_whichever_sends_less():
    """Forward, Ulysses sends less iff G·p > H + max(G, p), of the heads that a rank has."""
    machine = replace(H100S, network=400e9)
    for keys in (1, 8, 64):
        long = Facts(replace(MILLION, shape=MILLION.shape | {"key_heads": keys}), TEXT, machine)
        for t in (1, 2, 4, 8):
            for c in (2, 4, 5, 8, 16, 64):
                heads, each = 64 // t, max(keys, t) / t
                plan = _layout(long, 64, long.model.shape, t, 1, c)
                ring = ring_bytes(2**20, c, each * 128, 1)
                ulysses = ulysses_bytes(2**20, c, heads, each, 128, 1)
                if heads % c:
                    assert f"Ulysses needs a multiple of {c} heads" in plan.why
                else:
                    assert (
                        f"sends {bytes_text(ring)} around a ring, {bytes_text(ulysses)} in"
                        in plan.why
                    )
                # Only what travels a ring can be hidden.
                hidden = plan.sending - _layout(long, 64, long.model.shape, t, 1).sending
                assert (hidden > 0) == (heads % c > 0 or ring <= ulysses)


def test_the_tokens_of_experts_are_sent_four_times_a_layer_and_six_if_recomputed():
    """8 devices a machine, each with one of 8 experts: 7/8 of the tokens leave it, twice over."""
    machine = Machine(80e9, 8, link=1e9)
    for recomputed, calls in ((False, 4), (True, 6)):
        model = replace(MIXTRAL, recomputed=recomputed, parameters=30e9, expert_parameters=29.9e9)
        one = _layout(Facts(model, TEXT, machine), 1, model.shape, 1, 1, e=8)
        sent = 32 * calls * 7 / 8 * 4096 * 2 * 2 * 4096  # bytes of a device
        assert one.waiting == pytest.approx(sent / 1e9, rel=1e-3)
        assert one.state == pytest.approx((0.1 + 29.9 / 8) * 4e9 + 12 * 30e9 / 8)


def test_micro_batches_are_as_equal_as_they_can_be():
    """A batch of 8 of which 7 examples fit is two of 4."""
    found = way("accumulate", RESNET, replace(PHOTOS, batch=8), Machine(1.16e9))
    assert "2 batches of 4 accumulated" in found.how
    assert found.held == 16 * 25.6e6 + 4 * (90e6 + 602_112)


FACTS = {
    "model": st.builds(
        Model, st.floats(1e5, 1e12), st.floats(0, 1e11),
        st.sampled_from(["float32 sgd", "float32 adam", "mixed adam 16", "mixed adam 18"]),
        st.sampled_from([None, 0.01, 0.1, 1.0, 10.0]),
        st.sampled_from([None, shape(32, 4096, 32, 2048), shape(80, 8192, 64, 4096)]),
        st.booleans(),
    ),
    "data": st.builds(
        Data, st.just(1e9), st.just(1000), st.sampled_from([1, 8, 64]), st.integers(1, 3),
        st.booleans(),
    ),
    "machine": st.builds(
        Machine, st.floats(1e9, 2e11), st.sampled_from([1, 3, 4, 8]),
        st.sampled_from([1, 2, 7, 64]), st.floats(1e9, 1e12), st.floats(1e8, 1e12),
        st.sampled_from([0.3, 1.0]), st.sampled_from([3600.0, float("inf")]),
        st.sampled_from([0, 1e12]),
    ),
    "more": st.floats(1, 100),
}  # fmt: skip


def every_fact(test):
    return settings(max_examples=25)(given(**FACTS)(test))


@every_fact
def test_what_is_chosen_fits_and_what_is_faster_would_cost_too_much(model, data, machine, more):
    decision, facts = choose(model, data, machine), Facts(model, data, machine)
    if "worth" in decision.answers:
        assert decision.way.held <= 0.9 * machine.device_memory
        verdicts = {text: why for why, text in decision.others}
        for one in ways(facts):
            if one.fits and one.key not in LAST and one.score > 1.06 * decision.way.score:
                assert "is asked" in verdicts[one.text(facts)]


@every_fact
def test_more_memory_or_machines_never_make_it_infeasible(model, data, machine, more):
    roomy = replace(machine, device_memory=more * machine.device_memory)
    many = replace(machine, machines=round(more) * machine.machines)
    for data_, larger in ((data, roomy), (replace(data, sites=1), many)):
        found = [choose(model, data_, one).choice for one in (machine, larger)]
        assert found[0] == "More memory, or LoRA" or found[1] != "More memory, or LoRA"


@every_fact
def test_a_faster_network_never_favours_fewer_devices(model, data, machine, more):
    def devices(one):
        found = choose(model, replace(data, sites=1), one)
        return found.way.devices if found.way else 0

    assert devices(replace(machine, network=more * machine.network)) >= devices(machine)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Model(-1), "parameters"),
        (lambda: Model(1e6, embeddings=2e6), "embeddings"),
        (lambda: Model(1, convention="float8"), "'float8'"),
        (lambda: Model(1, shape={"layers": 2}), "heads"),
        (lambda: Data(1, example_bytes=float("nan")), "example_bytes"),
        (lambda: Machine(1, devices=10**9), "devices"),
        (lambda: choose(MNIST, SMALL, Machine(1)), "Data"),
        (lambda: choose(SMALL, MNIST, Machine(1), worth=float("nan")), "worth"),
    ],
)
def test_wrong_arguments_are_named(call, named):
    with pytest.raises(LabError, match=named):
        call()


def test_a_division_fits_and_keeps_tensor_groups_inside_a_machine():
    gpt3 = {**shape(96, 12288, 96, 2048), "vocabulary": 51_200}
    step = divide(gpt3, replace(H100S, link=16e9))
    plan = step.model
    assert plan.tensor * plan.pipeline * plan.data == 512
    assert 8 % plan.tensor == 0
    assert step.total <= 0.9 * 80e9
    again = transformer(
        **gpt3, tensor=plan.tensor, pipeline=plan.pipeline, data=plan.data, zero=1,
        sequence_parallel=True, recompute="selective",
    )  # fmt: skip
    assert fullest(again).total == step.total
    with pytest.raises(LabError, match="more devices"):
        divide(gpt3, Machine(16e9, devices=2))


def test_a_division_knows_grouped_queries_and_flash_attention():
    llama = {**shape(80, 8192, 64, 16_384), "key_heads": 8, "mlp": 28_672, "block": "llama"}
    step = divide({**llama, "flash": True}, H100S)
    assert step.parameters == 68_976_648_192
    assert "recomputed layer" not in [part.name for part in step.parts]
    assert divide(llama, H100S)["recomputed layer"] > 1e9
    six = divide(
        {**llama, "heads": 96, "hidden": 9216, "sequence": 2048}, replace(H100S, devices=6)
    )
    assert six.model.tensor in (1, 2)  # 8 key heads are no multiple of 3 or 6
    with pytest.raises(LabError, match="mlp"):
        divide({**llama, "mlp": 0}, H100S)


def test_the_table_of_frameworks_names_every_choice():
    text = repr(frameworks())
    lectures = {path.name[:2] for path in NOTEBOOKS.glob("[0-9]*.ipynb")}
    for choice in CHOICES.values():
        assert f"{choice.lecture}" in lectures
        assert choice.name in text
        assert len(choice.called) == 4
