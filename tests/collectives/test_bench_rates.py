"""Sizes and bandwidths are counted as nccl-tests counts them."""

import pytest

from labkit import LabError
from labkit.collectives.bench import bus_bandwidth, bus_factor, sizes_of

GIB = 1 << 30


@pytest.mark.parametrize(
    ("ranks", "all_reduce", "all_gather"),
    [(2, 1.0, 0.5), (4, 1.5, 0.75), (8, 1.75, 0.875), (16, 1.875, 0.9375)],
)
def test_the_bus_factors_are_those_of_nccl_tests(ranks, all_reduce, all_gather):
    """NVIDIA/nccl-tests, doc/PERFORMANCE.md, read in 2026-11."""
    assert bus_factor("all_reduce", ranks) == all_reduce
    for name in ("all_gather", "reduce_scatter", "all_to_all"):
        assert bus_factor(name, ranks) == all_gather
    assert bus_factor("broadcast", ranks) == bus_factor("reduce", ranks) == 1


def test_a_published_row_has_its_bus_bandwidth():
    """stas00/ml-engineering, network/README.md, 2026-11: 8 A100, 16 GiB in 127,997 µs."""
    assert round(bus_bandwidth("all_reduce", 8, 16 * GIB, 127_997e-6) / 1e9, 2) == 234.89


def test_sizes_double_and_1k_is_1024():
    assert sizes_of("1k:16M")[0] == 1024
    assert sizes_of("1k:16M")[-1] == 16 << 20
    assert len(sizes_of("1k:16M")) == 15
    assert sizes_of("3:20") == (3, 6, 12)
    assert sizes_of("2MiB") == (2 << 20,)
    assert sizes_of(100) == (100,)
    assert sizes_of([8, 4, 8]) == (4, 8)


@pytest.mark.parametrize(
    "asked", ["", "big", "1k:2k:4k", "2k:1k", "-1", "1.5k", 0, -8, True, [], [1.5], 5 << 30]
)
def test_what_is_no_size_is_said_with_its_own_words(asked):
    with pytest.raises(LabError, match=r"Give|Write|no sizes"):
        sizes_of(asked)
