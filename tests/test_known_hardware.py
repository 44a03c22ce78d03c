"""The registry of hardware: every number has a source and a day, and the parts fit together."""

import pytest

from labkit.known_hardware import BROADCASTS, GPUS, H100_NODES, LINKS, NCCL_RING


@pytest.mark.parametrize("registry", [GPUS, LINKS, NCCL_RING])
def test_every_entry_is_recorded_with_a_source_and_a_day(registry):
    for one in (*registry.values(), *BROADCASTS, *H100_NODES):
        assert one.kind.name == "recorded"
        assert "202" in one.kind.source.rpartition(",")[2]


def test_a_message_takes_microseconds():
    assert all(1e-7 < one.latency < 2e-5 for one in LINKS.values() if one.latency)


# Printed by ml-engineering, network/README.md: GB/s of all links of one GPU, one direction.
@pytest.mark.parametrize(
    ("gpu", "gigabytes"),
    [("V100 16 GB", 150), ("A100 80 GB", 300), ("H100 SXM", 450), ("B200 SXM", 900),
     ("MI300X", 448), ("L4", 31)],
)  # fmt: skip
def test_the_links_of_a_gpu_add_up_to_what_was_printed(gpu, gigabytes):
    assert GPUS[gpu].link_bandwidth == gigabytes * 1e9
