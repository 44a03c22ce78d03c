"""The calculator for transformers gives what the papers print, and says what it counted."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import memory
from labkit.kinds import LabError
from labkit.known_hardware import GPUS
from labkit.memory import activations_per_layer, mfu, stages, time_to_train, transformer
from labkit.pipelines import schedule

# Korthikanti et al. 2022, Table 3: the four models, with vocabulary 51,200 and sequence 2,048.
MODELS = {
    "22B": {"layers": 48, "hidden": 6144, "heads": 64, "micro_batch": 4},
    "175B": {"layers": 96, "hidden": 12288, "heads": 96, "pipeline": 8, "micro_batches": 64},
    "530B": {"layers": 105, "hidden": 20480, "heads": 128, "pipeline": 35, "micro_batches": 280},
    "1T": {"layers": 128, "hidden": 25600, "heads": 160, "pipeline": 64, "micro_batches": 512},
}


def model(name, **options):
    usual = {"sequence": 2048, "vocabulary": 51200, "tensor": 8}
    return transformer(**{**usual, **MODELS[name], **options})


@pytest.mark.parametrize(
    ("name", "seconds", "gpus", "percent", "hardware"),
    [("22B", 1.10, 8, 41.5, 43.7), ("175B", 13.75, 64, 51.4, 52.8),
     ("530B", 37.83, 280, 56.0, 57.0), ("1T", 71.49, 512, 56.3, 57.0)],
)  # fmt: skip
def test_mfu_is_what_table_5_prints(name, seconds, gpus, percent, hardware):
    """The seconds are printed with three digits: 1.10 s can be anything from 41.5 to 41.8 %."""
    found = mfu(model(name, recompute="selective"), seconds=seconds, gpus=gpus, peak=312e12)
    assert 100 * found == pytest.approx(percent, rel=0.005)
    assert 100 * found.hardware == pytest.approx(hardware, rel=0.005)
    assert found.kind.name == "modelled"


def test_full_recomputation_costs_a_third_more():
    one = {"seconds": 13.75, "gpus": 64}
    full = mfu(model("175B", recompute="full"), **one)
    # The head is not computed again: a little less than 8/6.
    assert full.hardware / full == pytest.approx(8 / 6, rel=0.01)


@pytest.mark.parametrize(
    ("options", "gigabytes"),
    [({}, 7.08), ({"tensor": 8}, 1.325), ({"tensor": 8, "sequence_parallel": True}, 0.885),
     ({"tensor": 8, "sequence_parallel": True, "recompute": "selective"}, 0.214),
     ({"tensor": 8, "recompute": "selective"}, 0.654), ({"recompute": "full"}, 0.1007),
     ({"tensor": 8, "recompute": "full"}, 0.1007),
     ({"tensor": 8, "sequence_parallel": True, "recompute": "full"}, 0.01258)],
)  # fmt: skip
def test_activations_of_a_layer_are_those_of_the_formulas(options, gigabytes):
    found = activations_per_layer(hidden=6144, heads=64, sequence=2048, micro_batch=4, **options)
    assert found / 1e9 == pytest.approx(gigabytes, abs=5e-4 if gigabytes < 2 else 5e-3)


@given(
    st.integers(1, 12), st.integers(1, 9), st.sampled_from([1, 2, 4, 8]), st.integers(1, 4),
    st.integers(1, 30),
)  # fmt: skip
def test_parameters_are_those_of_a_model_that_is_built_by_hand(layers, h, tensor, heads, words):
    """An independent count: every matrix and vector of a GPT, whole and on all tensor ranks."""
    s, h = 16, 8 * heads * h
    matrices = [(h, 3 * h), (3 * h,), (h, h), (h, 4 * h), (4 * h,), (4 * h, h)]
    vectors = [(h,)] * 6  # two norms with scale and shift, two biases after a sum
    each = sum(map(math.prod, matrices + vectors))
    found = transformer(
        layers=layers, hidden=h, heads=8 * heads, sequence=s, vocabulary=words, tensor=tensor
    )
    whole = layers * each + words * h + s * h
    assert found.parameters == whole
    copies = (tensor - 1) * (layers * 6 * h + s * h)  # each tensor rank keeps these
    on_all = tensor * found["weights"] // 2
    assert whole + copies <= on_all <= whole + copies + tensor * (layers + 1)
    formula = 12 * layers * h**2 * (1 + 13 / (12 * h) + (words + s) / (12 * layers * h))
    assert found.parameters == pytest.approx(formula)


@pytest.mark.parametrize(
    ("name", "chunks", "size"),
    [("1f1b", 1, 3), ("1f1b", 1, 16), ("interleaved", 2, 4), ("interleaved", 2, 16)],
)
def test_a_stage_keeps_the_activations_that_its_schedule_holds(name, chunks, size):
    layer = activations_per_layer(hidden=6144, heads=64, sequence=2048, micro_batch=4)
    every = stages(model("22B", tensor=1, pipeline=4, chunks=chunks, micro_batches=size)).values()
    held = schedule(name, stages=4, micro_batches=size, chunks=chunks).peaks()
    assert [one["activations"] for one in every] == [48 / 4 * layer * one for one in held]


def test_stages_hold_the_model_and_both_ends_of_it():
    every = list(stages(model("22B", tensor=1, pipeline=4, hidden=np.int32(6144))).values())
    weights = [one["weights"] // 2 for one in every]
    assert weights[1] == weights[2] == 12 * (12 * 6144**2 + 13 * 6144)
    assert weights[0] - weights[1] == (51200 + 2048) * 6144
    assert weights[3] - weights[1] == 51200 * 6144  # the head's copy of the word embedding
    assert sum(weights) == every[0].parameters + 51200 * 6144
    assert [len(one.parts) for one in every] == [5, 4, 4, 5]


@pytest.mark.parametrize(
    ("options", "masks", "tensor"),
    [({}, 8, 1), ({"micro_batches": 3}, 3, 1), ({"sequence_parallel": True}, 8, 8)],
)
def test_the_ends_keep_dropout_masks_inputs_and_logits(options, masks, tensor):
    """Korthikanti et al. 2022, section 4.3: masks of p micro-batches, and 4sbh(1 + v/h)."""
    first, *_, last = stages(model("175B", **options)).values()
    sbh = 2048 * 12288
    assert first["embedding and head"] == masks * sbh // tensor
    assert last["embedding and head"] == 4 * sbh // tensor + 4 * 2048 * 51200 // 8


@pytest.mark.parametrize("zero", range(4))
def test_zero_shards_what_the_stage_says(zero):
    whole, sharded = model("22B"), model("22B", data=16, zero=zero)
    for level, name in enumerate(("optimizer", "gradients", "weights"), start=1):
        share = 16 if zero >= level else 1
        assert sharded[name] == -(-whole[name] // share)
    extra = sharded.total - sum(sharded[p.name] for p in whole.parts)
    layer = 12 * 6144**2 // 8 + 7 * 6144 // 8 + 6 * 6144
    assert extra == (4 * layer if zero == 3 else 0)
    assert model("22B", data=1, zero=zero).total == whole.total  # nothing to gather


def test_recomputation_needs_one_layer_more_while_it_runs():
    found = {name: model("22B", recompute=name) for name in ("none", "selective", "full")}
    totals = [one["activations"] for one in found.values()]
    assert totals == sorted(totals, reverse=True)
    layer = totals[0] // 48
    assert found["full"]["recomputed layer"] + found["full"]["activations"] // 48 == layer


@pytest.mark.parametrize(
    ("case", "days"),
    [((175e9, 300e9, 1024, 140e12), 34), ((1.008e12, 450e9, 3072, 163e12), 84)],
)
def test_days_of_training_are_those_that_were_printed(case, days):
    """Narayanan et al. 2021, section 5.1: GPT-3 and a trillion parameters."""
    names = ("parameters", "tokens", "gpus", "flops")
    found = time_to_train(**dict(zip(names, case, strict=True)))
    assert round(found / 86_400) == days
    assert found.kind.name == "modelled"
    assert str(found).endswith("days")


def test_a_step_fits_where_nine_tenths_of_the_memory_are_enough():
    def gpus(step):
        return [row[0] for row in memory.fits(step).rows if row[-1] == "yes"]

    small = memory.footprint(3e9, convention="mixed adam 16")  # 48 GB
    assert "A100 40 GB" not in gpus(small)
    assert "A100 80 GB" in gpus(small)
    tight = memory.footprint(4.6e9, convention="mixed adam 16")  # 73.6 GB, more than 72
    assert "A100 80 GB" not in gpus(tight)
    big = model("175B", micro_batches=None)
    most = max(one.total for one in stages(big).values())
    assert memory.fullest(big).total == most
    assert gpus(big) == [name for name, gpu in GPUS.items() if most <= 0.9 * gpu.memory]
    assert memory.fits(big)._repr_mimebundle_()["text/html"].count('<th scope="row"') == len(GPUS)


def test_bars_take_footprints_with_different_parts():
    found = model("22B", data=2, zero=3, recompute="full")
    shown = memory.bars({"ZeRO-3": found, "small": memory.footprint(1e9)}, device_memory=80e9)
    assert "ZeRO-3" in shown.alt


LLAMAS = {  # layers, hidden, heads, key heads, MLP, vocabulary; parameters of the published weights
    "Llama-2-7B": (32, 4096, 32, 32, 11008, 32_000, 6_738_415_616),
    "Llama-2-70B": (80, 8192, 64, 8, 28672, 32_000, 68_976_648_192),
    "Llama-3-8B": (32, 4096, 32, 8, 14336, 128_256, 8_030_261_248),
    "Llama-3-70B": (80, 8192, 64, 8, 28672, 128_256, 70_553_706_496),
}
NAMES = ("layers", "hidden", "heads", "key_heads", "mlp", "vocabulary")


def llama(name, **options):
    shape = dict(zip(NAMES, LLAMAS[name], strict=False))
    return transformer(**shape, **{"sequence": 4096, "block": "llama", "flash": True, **options})


@pytest.mark.parametrize("name", LLAMAS)
def test_llamas_have_the_parameters_that_were_published(name):
    layers, h, heads, keys, wide, words, published = LLAMAS[name]
    assert llama(name).parameters == published
    assert llama(name)["weights"] == 2 * published
    tied = llama(name, tied=True)
    assert tied.parameters == published - words * h == tied["weights"] // 2
    each = stages(llama(name, pipeline=4)).values()
    assert sum(one["weights"] for one in each) == 2 * published
    copied = (layers * 2 + 1) * h  # norms, on each tensor rank
    shared = -(-(words * h) // 8)
    on_all = 8 * llama(name, tensor=8)["weights"] // 2
    assert on_all == published + 7 * copied + 2 * (8 * shared - words * h)
    layer = 2 * h * h + 2 * h * keys * h // heads + 3 * h * wide
    flops = 4096 * (6 * (layers * layer + words * h) + 12 * layers * 4096 * h)
    found = mfu(llama(name), seconds=1.0, gpus=1, peak=1e15)
    assert found * 1e15 == pytest.approx(flops)
    assert found.hardware * 1e15 == pytest.approx(flops + 2 * 4096 * layers * 4096 * h)
    assert "12Lsh" in found.kind.source


@pytest.mark.parametrize("name", LLAMAS)
@pytest.mark.parametrize("keep_silu", [True, False])
def test_a_llama_layer_keeps_what_was_counted_in_pytorch(name, keep_silu):
    """By hand: 12h + 4hG/H + 8f + 4H + 8 bytes a token."""
    _, h, heads, keys, wide, *_ = LLAMAS[name]
    token = 12 * h + 4 * h * keys // heads + (8 if keep_silu else 6) * wide + 4 * heads + 8
    shape = dict(zip(NAMES[1:-1], LLAMAS[name][1:], strict=False))
    options = {"micro_batch": 3, "sequence": 512, "block": "llama", "keep_silu": keep_silu}
    kept = activations_per_layer(**shape, **options, flash=True)
    assert kept == 3 * 512 * token
    scores = 2 * heads * 512 - 4 * heads  # a 16-bit softmax in place of the log-sum-exp
    assert activations_per_layer(**shape, **options) == 3 * 512 * (token + scores)
    parts = activations_per_layer(**shape, **options, flash=True, tensor=8)
    rows = 3 * 512 * (8 * h + 8)  # on each rank: inputs of norms and matrices
    assert 8 * parts == kept + 7 * rows
    ranks = {"tensor": 8, "sequence_parallel": True}
    assert 8 * activations_per_layer(**shape, **options, flash=True, **ranks) == kept
    full = activations_per_layer(**shape, **options, flash=True, **ranks, recompute="full")
    assert full == 2 * 3 * 512 * h // 8


def test_more_tensor_ranks_than_key_heads_hold_copies():
    shape = {"hidden": 64, "heads": 16, "sequence": 1, "micro_batch": 1, "flash": True}
    kept = [activations_per_layer(**shape, key_heads=keys, tensor=8) for keys in (2, 4, 8, 16)]
    assert kept[0] == kept[1] == kept[2] < kept[3]
    whole = {"layers": 1, "hidden": 64, "heads": 16, "sequence": 1, "vocabulary": 8}
    two, eight = (transformer(**whole, key_heads=keys, tensor=8) for keys in (2, 8))
    assert two["weights"] == eight["weights"]
    assert two.parameters < eight.parameters
    with pytest.raises(LabError, match="multiple or a divisor of tensor = 4"):
        activations_per_layer(**{**shape, "hidden": 72, "heads": 24}, key_heads=6, tensor=4)


@pytest.mark.parametrize("block", ["gpt", "llama"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_nothing_of_flash_attention_grows_with_the_square(block, recompute):
    def step(sequence):
        return model("22B", sequence=sequence, flash=True, block=block, recompute=recompute)

    for name in ("activations", "recomputed layer") if recompute == "full" else ("activations",):
        assert step(32_768)[name] == 4 * step(8_192)[name]
    if recompute == "selective":
        assert "recomputed layer" not in [part.name for part in step(4096).parts]


def test_a_gpt_without_dropout_keeps_no_masks():
    sizes = {"hidden": 6144, "heads": 64, "sequence": 2048, "micro_batch": 4}
    kept = activations_per_layer(**sizes, dropout=False)
    assert kept == 2048 * 4 * (32 * 6144 + 2 * 64 * 2048)  # zero-bubble's 32sbh, and the softmax
    assert stages(model("175B", dropout=False))["stage 0"]["activations"]
    assert "embedding and head" not in [one.name for one in model("175B", dropout=False).parts]


@pytest.mark.parametrize(
    "wrong",
    [{"tensor": 7}, {"pipeline": 5}, {"recompute": "some"}, {"chunks": 5}, {"heads": 5},
     {"zero": True}, {"zero": 1.0}, {"layers": 10**400}, {"block": "bert"}, {"key_heads": 7},
     {"mlp": 0}, {"hidden": None}],
)  # fmt: skip
def test_a_wrong_argument_is_named(wrong):
    with pytest.raises(LabError) as fault:
        model("22B", **wrong)
    assert {"tensor": "heads", "pipeline": "layers"}.get(*wrong, *wrong) in str(fault.value)
    with pytest.raises(LabError, match="by their names"):
        memory.bars({})
    with pytest.raises(LabError, match="micro_batches"):
        mfu(model("175B", micro_batches=None), seconds=1.0, gpus=64)
