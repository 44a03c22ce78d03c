"""The registry of hardware: every number has a source and a day, and the parts fit together."""

import pytest

from labkit.known_hardware import BROADCASTS, GPUS, H100_NODES, LINKS, NCCL_RING


@pytest.mark.parametrize("registry", [GPUS, LINKS, NCCL_RING])
def test_every_entry_is_recorded_with_a_source_and_a_day(registry):
    for one in (*registry.values(), *BROADCASTS, *H100_NODES):
        assert one.kind.name == "recorded"
        assert "202" in one.kind.source.rpartition(",")[2]


# Printed by ml-engineering, network/README.md: GB/s of all links of one GPU, one direction.
@pytest.mark.parametrize(
    ("gpu", "gigabytes"),
    [("V100 16 GB", 150), ("A100 80 GB", 300), ("H100 SXM", 450), ("B200 SXM", 900),
     ("MI300X", 448), ("L4", 31)],
)  # fmt: skip
def test_the_links_of_a_gpu_add_up_to_what_was_printed(gpu, gigabytes):
    assert GPUS[gpu].link_bandwidth == gigabytes * 1e9


# Derived from src/graph/tuning.cc of 2026-06, ring on one node over NVLink, microseconds.
@pytest.mark.parametrize(
    ("ranks", "protocol", "microseconds"),
    [(2, "LL", 7.8), (8, "LL128", 40.6), (8, "Simple", 56.0)],
)  # fmt: skip
def test_nccl_base_latency_of_a_ring(ranks, protocol, microseconds):
    one = NCCL_RING[protocol]
    assert 1e6 * (one.start + 2 * (ranks - 1) * one.step) == pytest.approx(microseconds)


def test_bus_bandwidths_of_nodes_are_what_was_printed():
    """The Ultra-Scale Playbook, pp_comm_bandwidth: GB/s of an all-reduce of 256 MB."""
    found = {m.ranks: 2 * (m.ranks - 1) / m.ranks * m.nbytes / m.seconds / 1e9 for m in H100_NODES}
    assert found[8] == pytest.approx(436.0)
    assert found[512] == pytest.approx(32.9)
