"""The registry of hardware: every number has a source and a day, and the parts fit together."""

import pytest

from labkit.known_hardware import BROADCASTS, GPUS, H100_NODES, LINKS, MACHINES, NCCL_RING


@pytest.mark.parametrize("registry", [GPUS, LINKS, MACHINES, NCCL_RING])
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


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_connected_and_names_known_parts(name):
    machine = MACHINES[name]
    assert machine.gpu in {*GPUS, ""}
    assert {edge.link for edge in machine.edges} <= {*LINKS, ""}
    reached, waiting = set(), [machine.nodes[0]]
    while waiting:
        node = waiting.pop()
        reached.add(node)
        ends = [{e.a, e.b} - {node} for e in machine.edges if node in (e.a, e.b)]
        waiting += [*set().union(*ends) - reached]
    assert reached == set(machine.nodes)
    assert sum(node.startswith(("GPU", "TPU")) for node in machine.nodes) == machine.gpus


@pytest.mark.parametrize(("name", "links"), [("DGX-1 V100", 6), ("DGX H100", 18)])
def test_each_gpu_of_a_machine_uses_all_its_nvlinks(name, links):
    machine = MACHINES[name]
    assert links == GPUS[machine.gpu].links
    for gpu in range(8):
        ends = [
            e for e in machine.edges if e.link.startswith("NVLink") and f"GPU {gpu}" in (e.a, e.b)
        ]
        assert sum(edge.count for edge in ends) == links


def test_the_cube_mesh_of_dgx_1_is_what_nvidia_smi_prints():
    """The rows of GPU 0 and GPU 5 of `nvidia-smi topo -m`: NV1, NV2, or no link."""
    counts = {}
    for edge in MACHINES["DGX-1 V100"].edges:
        counts[edge.a, edge.b] = counts[edge.b, edge.a] = edge.count
    rows = [[counts.get((f"GPU {a}", f"GPU {b}"), 0) for b in range(8)] for a in (0, 5)]
    assert rows == [[0, 1, 1, 2, 2, 0, 0, 0], [0, 2, 0, 0, 1, 0, 2, 1]]


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
