"""A footprint counts bytes as the published conventions do, and says how."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.memory import bars, footprint

STATE = ("weights", "gradients", "optimizer")


@pytest.mark.parametrize(
    ("convention", "bytes_each"),
    [
        ("float32 sgd", (4, 4, 0)),
        ("float32 adam", (4, 4, 8)),
        ("mixed adam 16", (2, 2, 12)),  # ZeRO: K = 12
        ("mixed adam 18", (2, 4, 12)),  # float32 gradients; what is gathered stays 16-bit
        ("bfloat16 adam 12", (2, 2, 8)),
    ],
)
def test_each_convention_costs_what_its_publication_says(convention, bytes_each):
    step = footprint(1000, convention=convention)
    assert tuple(step[name] // 1000 for name in STATE) == bytes_each


# Rajbhandari et al. 2020, Table 1, in GB; stages 1, 2 and 3 shard ever more of the state.
TABLE_1 = {
    (7.5e9, 64): (31.4, 16.6, 1.88),
    (128e9, 4): (896, 704, 512),
    (128e9, 64): (536, 284, 32),
    (1e12, 4): (7000, 5500, 4000),
    (1e12, 64): (4187.5, 2218.75, 250),
}


@pytest.mark.parametrize("case", TABLE_1)
def test_sharding_takes_what_the_zero_paper_prints(case):
    parameters, devices = case
    whole = footprint(parameters, convention="mixed adam 16")
    found = [
        footprint(parameters, convention="mixed adam 16", data=devices, zero=zero).total / 1e9
        for zero in (1, 2, 3)
    ]
    assert found == pytest.approx(TABLE_1[case], rel=3e-3)
    assert whole.total == 16 * parameters


def test_stage_3_holds_the_layer_that_it_gathered_where_the_layers_are_known():
    whole = {"parameters": 7.5e9, "convention": "mixed adam 16", "data": 64, "zero": 3}
    layer = (2 + 2) * 7.5e9 / 30  # its weights, and its gradient before that is reduced
    assert footprint(**whole, layers=30)["gathered layer"] == layer
    assert footprint(**whole, layers=30).total == footprint(**whole).total + layer
    one = {**whole, "data": 1}
    assert footprint(**one, layers=30).total == footprint(**one).total  # it gathers nothing


@given(st.integers(1, 10**12), st.integers(1, 1000))
def test_shards_hold_everything_and_waste_less_than_a_byte_each(parameters, devices):
    whole = footprint(parameters)
    shard = whole.sharded(devices, ("weights", "optimizer"))
    for name in ("weights", "optimizer"):
        assert 0 <= shard[name] * devices - whole[name] < devices
    assert shard["gradients"] == whole["gradients"]


@pytest.mark.parametrize("memory", [None, 16e9])
def test_the_picture_says_the_totals_in_words(memory):
    shown = bars({"small": footprint(101_770), "none": footprint(0)}, device_memory=memory)
    assert "small 1.63 MB" in shown.alt
    assert ("16.0 GB" in shown.alt) == (memory is not None)
    assert shown.kind.name == "modelled"
