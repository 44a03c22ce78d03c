"""Published numbers: they are recorded, name their source, and give what was printed."""

import pytest

from labkit.collectives import known_links
from labkit.collectives.known_links import LINKS, MEASURED, nccl_latency


# Derived from src/graph/tuning.cc of 2026-06, ring on one node over NVLink, microseconds.
@pytest.mark.parametrize(
    ("ranks", "protocol", "microseconds"),
    [(2, "LL", 7.8), (2, "Simple", 15.2), (4, "Simple", 28.8),
     (8, "LL", 15.0), (8, "LL128", 40.6), (8, "Simple", 56.0)],
)  # fmt: skip
def test_nccl_base_latency_of_a_ring(ranks, protocol, microseconds):
    assert 1e6 * nccl_latency("ring", protocol, ranks) == pytest.approx(microseconds)


def test_the_fitted_latency_of_eight_a100_is_that_of_nccl_over_its_steps():
    """56.3 µs fitted to a published measurement, 56.0 µs in NCCL's own model."""
    fitted = 14 * LINKS["NVLink 3, 8 A100"].link.latency
    assert fitted == pytest.approx(nccl_latency("ring", "Simple", 8), rel=0.01)


def test_bus_bandwidths_of_nodes_are_what_was_printed():
    """The Ultra-Scale Playbook, pp_comm_bandwidth: GB/s of an all-reduce of 256 MB."""
    found = {
        m.ranks: 2 * (m.ranks - 1) / m.ranks * m.nbytes / m.seconds / 1e9
        for m in MEASURED
        if m.collective == "all_reduce"
    }
    assert found[8] == pytest.approx(436.0)
    assert found[512] == pytest.approx(32.9)


def test_every_number_is_recorded_and_the_table_says_where_and_when():
    for one in (*LINKS.values(), *MEASURED):
        assert one.kind.name == "recorded"
        assert "202" in one.kind.source
    shown = known_links.table()._repr_mimebundle_()
    assert shown["text/html"].count('<th scope="row"') == len(LINKS)
    assert all(str(one.kind) in shown["text/plain"] for one in LINKS.values())
