"""Published numbers: they are recorded, name their source, and give what was printed."""

import pytest

from labkit.collectives import known_links
from labkit.collectives.known_links import LINKS, MEASURED, nccl_latency
from labkit.kinds import LabError


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


@pytest.mark.parametrize(
    ("asked", "keyword"),
    [
        (("tree", "LL", 8), "algorithm"),
        (("ring", "simple", 8), "protocol"),
        (("ring", "LL", 8, "NVLINK"), "over must be one of 'nvlink', 'pci', got 'NVLINK'"),
        (("ring", "LL", 0), "ranks"),
    ],
)
def test_what_the_table_does_not_give_is_refused(asked, keyword):
    with pytest.raises(LabError, match=keyword):
        nccl_latency(*asked)


def test_bus_bandwidth_of_16_gib_is_what_was_printed():
    """ml-engineering: 234.89 GB/s on 8 A100 and 482.26 GB/s on 8 H200."""
    found = {
        m.what: 2 * 7 / 8 * m.nbytes / m.seconds / 1e9 for m in MEASURED if m.nbytes == 16 * 2**30
    }
    assert found == {
        "8 A100": pytest.approx(234.89, abs=0.01), "8 H200": pytest.approx(482.26, abs=0.01)
    }  # fmt: skip


def test_every_number_is_recorded_and_says_where_and_when():
    for one in (*LINKS.values(), *MEASURED):
        assert one.kind.name == "recorded"
        assert "202" in one.kind.source


def test_the_table_has_a_row_with_a_source_for_each_link():
    shown = known_links.table()._repr_mimebundle_()
    assert shown["text/html"].count('<th scope="row"') == len(LINKS)
    assert all(str(one.kind) in shown["text/plain"] for one in LINKS.values())
