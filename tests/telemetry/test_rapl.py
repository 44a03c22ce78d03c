import os

import pytest

from labkit.telemetry.rapl import Energy, Jumped, packages


class Sockets:
    """A made folder of energy counters, in microjoules."""

    def __init__(self, folder):
        self.folder = folder

    def set(self, zone, microjoules, name="package-0", most=262_143_328_850):
        place = self.folder / f"intel-rapl:{zone}"
        place.mkdir(exist_ok=True)
        (place / "name").write_text(f"{name}\n")
        (place / "max_energy_range_uj").write_text(f"{most}\n")
        (place / "energy_uj").write_text(f"{microjoules}\n")

    def energy(self):
        found, missing = packages(self.folder)
        assert missing == ""
        return Energy(found)


@pytest.fixture
def sockets(tmp_path):
    return Sockets(tmp_path)


def test_energy_is_counted_from_the_first_look_and_power_is_its_growth(sockets):
    sockets.set(0, 5_000_000)
    energy = sockets.energy()
    assert (energy.read(10.0), energy.watts) == (0.0, None)
    sockets.set(0, 9_000_000)
    assert energy.read(10.1) == pytest.approx(4.0)
    assert energy.watts == pytest.approx(40.0)


def test_sockets_are_added_and_their_parts_are_not_counted_twice(sockets):
    sockets.set(0, 0)
    sockets.set(1, 0, name="package-1")
    sockets.set("0:0", 0, name="core")
    sockets.set("2", 0, name="psys")
    energy = sockets.energy()
    energy.read(0.0)
    sockets.set(0, 3_000_000)
    sockets.set(1, 4_000_000, name="package-1")
    sockets.set("0:0", 2_000_000, name="core")
    sockets.set("2", 9_000_000, name="psys")
    assert energy.read(1.0) == pytest.approx(7.0)


def test_a_counter_that_wraps_around_goes_on(sockets):
    sockets.set(0, 99_000_000, most=100_000_000)
    energy = sockets.energy()
    energy.read(0.0)
    sockets.set(0, 2_000_000, most=100_000_000)
    assert energy.read(0.1) == pytest.approx(3.0)
    assert energy.watts == pytest.approx(30.0)


def test_a_counter_that_was_set_back_is_no_wrap_and_gives_no_number(sockets):
    sockets.set(0, 200_000_000_000)
    energy = sockets.energy()
    energy.read(0.0)
    sockets.set(0, 1_000_000)
    with pytest.raises(Jumped, match="200000 J to 1 J"):
        energy.read(0.1)
    assert energy.watts is None
    sockets.set(0, 3_000_000)
    assert energy.read(0.2) == pytest.approx(2.0)
    assert energy.watts is None  # there is nothing yet to compare with
    sockets.set(0, 5_000_000)
    energy.read(0.3)
    assert energy.watts == pytest.approx(20.0)


def test_looks_that_are_too_near_give_energy_and_no_power(sockets):
    sockets.set(0, 0)
    energy = sockets.energy()
    energy.read(0.0)
    sockets.set(0, 1_000_000)
    assert energy.read(0.01) == pytest.approx(1.0)
    assert energy.watts is None
    sockets.set(0, 4_000_000)
    energy.read(0.1)
    assert energy.watts == pytest.approx(40.0)


def test_a_machine_without_counters_says_so(tmp_path):
    found, says = packages(tmp_path / "nothing")
    assert found == ()
    assert "does not tell" in says


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_counters_that_may_not_be_read_name_who_can_help(sockets):
    sockets.set(0, 0)
    (sockets.folder / "intel-rapl:0/energy_uj").chmod(0)
    found, says = packages(sockets.folder)
    assert found == ()
    assert "administrator" in says


def test_a_counter_that_is_garbled_is_left_out(sockets):
    sockets.set(0, "many")
    assert packages(sockets.folder)[0] == ()
