"""What a mesh of five dimensions holds and sends: published counts, and numbers counted by hand."""

from itertools import product

import pytest

from labkit import memory
from labkit.choosing.mesh import (
    DECODERS,
    expert_bytes,
    goes_around,
    mesh,
    ring_bytes,
    ulysses_bytes,
)
from labkit.kinds import LabError

# Sums over the tensors of the published files.
PUBLISHED = {
    "Llama 3 8B": 8_030_261_248, "Llama 3 70B": 70_553_706_496, "Llama 3 405B": 405_853_388_800,
    "Mixtral 8x7B": 46_702_792_704,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_parameters_of_a_model_are_those_of_its_files(name):
    assert DECODERS[name].parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", DECODERS)
def test_one_device_holds_all_parameters(name):
    held = mesh(DECODERS[name]).held
    assert held["weights"] == pytest.approx(2 * DECODERS[name].parameters, rel=1e-6)
    assert held["optimizer"] == pytest.approx(12 * DECODERS[name].parameters, rel=1e-6)


def test_a_layer_keeps_what_llamas_layer_keeps():
    """A token of Llama 3 8B: 12h + 4hG/H + 8f + 4H + 8 bytes."""
    held = mesh(DECODERS["Llama 3 8B"], sequence=1024).held
    token = 12 * 4096 + 4 * 4096 * 8 / 32 + 8 * 14_336 + 4 * 32 + 8
    assert held["activations"] == 32 * 1024 * token
    eighth = mesh(DECODERS["Llama 3 8B"], sequence=1024, tensor=4, context=2).held
    assert eighth["activations"] == pytest.approx(held["activations"] / 8)


@pytest.mark.parametrize("name", ["Llama 3 8B", "Llama 3 70B"])
def test_without_context_and_experts_it_is_the_calculator_of_memory(name):
    model = DECODERS[name]
    sizes = product((1, 2, 8), (1, 4, 16), (1, 16), ("none", "full"), (4096, 16_384))
    for tensor, pipeline, data, recompute, sequence in sizes:
        mine = mesh(model, tensor=tensor, pipeline=pipeline, data=data, sequence=sequence,
                    recompute=recompute == "full")  # fmt: skip
        step = memory.transformer(
            layers=model.layers, hidden=model.hidden, heads=model.heads, mlp=model.mlp,
            key_heads=model.key_heads, vocabulary=model.vocabulary, sequence=sequence,
            micro_batches=mine.micro_batches, tensor=tensor, pipeline=pipeline, data=data, zero=1,
            sequence_parallel=True, recompute=recompute, block="llama", flash=True,
        )  # fmt: skip
        theirs = {part.name: part.bytes for part in memory.fullest(step).parts}
        shown = {part: size for part, size in mine.held.items() if size or part in theirs}
        assert shown == {part: pytest.approx(size, rel=1e-4) for part, size in theirs.items()}


def test_the_ring_sends_less_than_ulysses_on_8_ranks_and_more_on_16():
    """64 heads, 8 of keys, 131,072 tokens: 470 against 528 MB forward on 8."""
    sent = {ranks: (ring_bytes(131_072, ranks, 8 * 128, 1),
                    ulysses_bytes(131_072, ranks, 64, 8, 128, 1)) for ranks in (8, 16)}  # fmt: skip
    assert sent[8] == pytest.approx((470e6, 528e6), rel=2e-3)
    assert sent[16][1] < sent[16][0]
    assert goes_around(8, 64, 8)
    assert not goes_around(16, 64, 8)
    assert goes_around(2, 32, 32)  # equal
    assert goes_around(3, 32, 32)  # 32 heads cannot be divided by 3
    ring = mesh(DECODERS["Llama 3 70B"], context=8, sequence=131_072)
    assert ring.ring
    assert not mesh(DECODERS["Llama 3 70B"], context=16, sequence=131_072).ring
    forward_and_back = ring_bytes(131_072, 8, 8 * 128)
    assert forward_and_back == 131_072 / 8 * 1024 * 2 * (2 * 7 + 2 * 7 + 2 * 8)
    assert ring.sent["context"] == 128 * 80 * forward_and_back


def test_experts_are_held_once_in_their_group_and_tokens_cross_four_times_a_layer():
    model, sizes = DECODERS["Mixtral 8x7B"], {"data": 8, "sequence": 4096}
    whole, shared = mesh(model, **sizes), mesh(model, **sizes, expert=8)
    experts = 32 * 8 * 3 * 4096 * 14_336
    assert whole.held["weights"] - shared.held["weights"] == pytest.approx(2 * experts * 7 / 8)
    assert whole.held["optimizer"] == pytest.approx(shared.held["optimizer"])
    assert whole.sent["expert"] == 0
    all_to_all = 7 / 8 * 4096 * 2 * 4096 * 2  # two copies of each token, 16 bits
    assert expert_bytes(4096, 8, 4096, 2) == all_to_all
    assert shared.sent["expert"] == 4 * 32 * shared.micro_batches * all_to_all
    # Gradients of experts that one rank alone holds are not summed with anybody.
    less = whole.sent["data"] - shared.sent["data"]
    assert less == pytest.approx(7 / 8 * 4 * experts)


def test_groups_send_over_the_network_where_they_leave_a_machine():
    model = DECODERS["Llama 3 70B"]
    inside = mesh(model, tensor=4, context=2, sequence=131_072)
    outside = mesh(model, tensor=8, context=2, sequence=131_072)
    assert inside.seconds["context"] == inside.sent["context"] / 450e9
    assert outside.seconds["context"] == outside.sent["context"] / 50e9
    bubble = mesh(model, pipeline=4, data=512)
    assert bubble.seconds["bubble"] == bubble.seconds["computation"] * 3 / bubble.micro_batches


@pytest.mark.parametrize(
    "sizes", [{"expert": 16}, {"expert": 3, "data": 4}, {"tensor": 64}, {"pipeline": 33}]
)
def test_a_division_that_does_not_exist_is_refused(sizes):
    with pytest.raises(LabError):
        mesh(DECODERS["Mixtral 8x7B"], **{"data": 16, **sizes})
