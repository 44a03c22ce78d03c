"""Models with experts: published counts, and the load of skewed experts against drawn tokens."""

import numpy as np
import pytest

from labkit.kinds import LabError
from labkit.memory.expert_models import MODELS, load


def test_parameters_are_those_of_the_published_weights():
    """Mixtral's checkpoint has 46,702,792,704 numbers, DeepSeek-V3's paper says 671 and 37 B."""
    mixtral, deepseek = MODELS["Mixtral 8x7B"], MODELS["DeepSeek-V3"]
    assert mixtral.parameters == 46_702_792_704
    assert round(mixtral.active / 1e9, 1) == 12.9
    assert deepseek.parameters == 671_026_419_200
    assert round(deepseek.active / 1e9, 2) == 37.55
    without = deepseek.active - deepseek.vocabulary * deepseek.hidden
    assert round(without / 1e9, 2) == 36.63


def test_cache_and_exchange_are_those_of_deepseeks_papers():
    deepseek = MODELS["DeepSeek-V3"]
    assert deepseek.cache_bytes() == 70_272
    seconds = deepseek.exchange_bytes(32, there=1, back=2) / 50e9
    assert seconds * 7000 / 7168 == pytest.approx(120.96e-6)  # the paper takes 7K as 7,000


def test_a_model_counted_matrix_by_matrix_has_the_same_parameters():
    m = MODELS["Mixtral 8x7B"]
    h, kv, f, e = 4096, 1024, 14_336, 8
    attention = [(h, h), (h, kv), (h, kv), (h, h)]
    layer = attention + [(h, e)] + e * [(h, f), (h, f), (f, h)] + [(h,), (h,)]
    whole = 32 * layer + [(32_000, h), (32_000, h), (h,)]
    assert m.parameters == sum(int(np.prod(shape)) for shape in whole)


@pytest.mark.parametrize(("experts", "chosen", "skew"), [(8, 1, 1.0), (16, 2, 0.7), (8, 4, 3.0)])
def test_the_loads_are_shares_of_the_choices_and_no_token_chooses_an_expert_twice(
    experts, chosen, skew
):
    found = load(experts=experts, chosen=chosen, ranks=4, skew=skew, capacity=1.5)
    assert sum(found.experts) == pytest.approx(experts)
    assert max(found.experts) <= experts / chosen * (1 + 1e-12)
    free = [one for one in found.experts if one < experts / chosen * (1 - 1e-9)]
    wanted = [(experts - len(free) + n + 1) ** -skew for n in range(len(free))]
    assert free == pytest.approx([one / wanted[0] * free[0] for one in wanted])
    kept = np.minimum(found.experts, 1.5)
    assert found.dropped == pytest.approx(1 - kept.mean())
    assert found.slowest == pytest.approx(kept.reshape(4, -1).mean(axis=1).max())


def test_top_1_loads_are_those_of_drawn_tokens():
    wanted = (np.arange(8) + 1.0) ** -1.2
    drawn = np.random.default_rng(3).choice(8, size=200_000, p=wanted / wanted.sum())
    counted = np.bincount(drawn, minlength=8) / 25_000
    found = load(experts=8, chosen=1, ranks=8, skew=1.2, capacity=9)
    assert found.experts == pytest.approx(counted, rel=0.03)
    assert found.dropped == 0


def test_a_balanced_layer_drops_nothing_and_no_rank_is_slower():
    assert load(experts=8, chosen=2, ranks=4, skew=0, capacity=1)[1:] == pytest.approx((0, 1))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"ranks": 3}, "a multiple of ranks = 3"), ({"chosen": 9}, "chosen"), ({"skew": -1}, "skew")],
)
def test_what_is_not_possible_is_named(wrong, told):
    given = {"experts": 8, "chosen": 2, "ranks": 4, "skew": 1.0, "capacity": 1.0}
    with pytest.raises(LabError, match=told):
        load(**(given | wrong))
