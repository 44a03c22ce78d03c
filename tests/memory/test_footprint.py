"""A footprint counts bytes as the published conventions do, and says how."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import plain
from labkit.kinds import LabError
from labkit.memory import CONVENTIONS, bars, footprint


def test_the_course_model_has_the_bytes_of_its_float32_parameters():
    small = footprint(101_770, batch=64, activation_bytes=1000, example_bytes=784)
    assert small["weights"] == 407_080
    assert small["gradients"] == 407_080
    assert small["optimizer"] == 814_160
    assert small["activations"] == 64_000
    assert small["data"] == 64 * 784
    assert small.total == 4 * 407_080 + 64_000 + 64 * 784


@pytest.mark.parametrize(
    ("convention", "per_parameter"),
    [
        ("float32 sgd", 8),
        ("float32 adam", 16),
        ("mixed adam 16", 16),
        ("mixed adam 18", 18),
        ("bfloat16 adam 10", 10),
        ("bfloat16 adam 12", 12),
    ],
)
def test_each_convention_costs_what_its_publication_says(convention, per_parameter):
    assert footprint(1000, convention=convention).total == 1000 * per_parameter


def test_seven_and_a_half_billion_parameters_take_120_gb_as_in_the_zero_paper():
    assert footprint(7.5e9, convention="mixed adam 16").total == 120_000_000_000


@pytest.mark.parametrize(
    ("parts", "gigabytes"),
    [
        (("optimizer",), 31.40625),
        (("optimizer", "gradients"), 16.640625),
        (("optimizer", "gradients", "weights"), 1.875),
    ],
)
def test_shared_out_over_64_devices_it_takes_what_the_zero_paper_prints(parts, gigabytes):
    whole = footprint(7.5e9, convention="mixed adam 16")
    assert whole.shared_out(64, parts, "shared").total == gigabytes * 1e9


def test_the_playbook_counts_15_and_15_and_60_gb():
    playbook = footprint(7.5e9, convention="bfloat16 adam 12")
    parts = [playbook[name] / 1e9 for name in ("weights", "gradients", "optimizer")]
    assert parts == [15, 15, 60]


@given(st.integers(0, 10**12), st.integers(1, 10_000), st.sampled_from(sorted(CONVENTIONS)))
def test_the_state_grows_with_parameters_and_not_with_the_batch(parameters, batch, convention):
    one = footprint(parameters, batch=batch, activation_bytes=7, convention=convention)
    assert one.state == parameters * CONVENTIONS[convention].per_parameter
    assert one.total - one.state == 7 * batch


@given(st.integers(1, 10**12), st.integers(1, 1000))
def test_shares_hold_everything_and_waste_less_than_a_byte_each(parameters, devices):
    whole = footprint(parameters)
    share = whole.shared_out(devices, ("weights", "optimizer"), "shared")
    for name in ("weights", "optimizer"):
        assert 0 <= share[name] * devices - whole[name] < devices
    assert share["gradients"] == whole["gradients"]


def test_it_says_that_it_is_modelled_and_shows_the_breakdown():
    text = str(footprint(101_770, convention="mixed adam 18"))
    assert "modelled: 6 + 4 + 8 bytes per parameter" in text
    assert "6 B × 101,770 parameters" in text


def test_it_comes_back_from_json():
    one = footprint(1e6, batch=3, activation_bytes=9).shared_out(4, ("optimizer",), "shared")
    assert plain.load(plain.dump(one)) == one


def test_a_notebook_gets_a_table_with_heads_and_kind():
    html = footprint(1e6)._repr_mimebundle_()["text/html"]
    assert '>weights</th>' in html
    assert "modelled" in html


@pytest.mark.parametrize(
    "wrong",
    [
        {"parameters": -1},
        {"parameters": float("nan")},
        {"parameters": float("inf")},
        {"parameters": "many"},
        {"parameters": True},
        {"parameters": 1, "batch": 0},
        {"parameters": 1, "activation_bytes": -2},
        {"parameters": 1, "example_bytes": None},
    ],
)
def test_a_number_that_cannot_be_is_named_with_its_value(wrong):
    name = list(wrong)[-1]
    with pytest.raises(LabError) as fault:
        footprint(**wrong)
    assert name in str(fault.value)
    assert repr(wrong[name]) in str(fault.value)


def test_an_unknown_convention_lists_the_known_ones():
    with pytest.raises(LabError, match=r"'float8'.*mixed adam 18"):
        footprint(1, convention="float8")


def test_an_unknown_part_lists_the_known_ones():
    with pytest.raises(LabError, match=r"'weight'.*weights"):
        footprint(1)["weight"]


@pytest.mark.parametrize("memory", [None, 1e3, 2e6, 16e9])
def test_the_picture_says_the_totals_in_words(memory):
    shown = bars({"small": footprint(101_770), "none": footprint(0)}, device_memory=memory)
    assert "small 1.63 MB" in shown.alt
    assert shown.kind is not None
    assert shown.kind.name == "modelled"


def test_bars_of_nothing_say_what_to_write():
    with pytest.raises(LabError, match="footprint"):
        bars({})
