"""What GPUs say and cannot be true, and whose memory it is: a reason, never a wrong number."""

import os
import subprocess
import sys

import pytest

from tests.nvml_library import Apart, Control, built

# No process has a number as high as this.
NOBODY = 2**22 + 5


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path / "control")


@pytest.fixture
def gpus(library, control):
    """Eight GPUs, opened; the process that is looked for on them is this one."""
    started = Apart(library, control, "eight", os.getpid())
    control.put("pid", os.getpid())
    started.open()
    yield started
    started.close()


def only(states):
    (state,) = states
    return state.device, state.metric, state.why


def test_power_without_utilisation_is_implausible(gpus, control):
    control.put("utilisation", 0, gpu=3)
    control.put("power", 480, gpu=3)
    rows, states = gpus.looks(12)
    assert rows[-1][3]["utilisation"] == 0  # for a moment, both may be true of their own time
    assert states == []
    rows, states = gpus.looks(12)
    assert only(states) == ("gpu3", "utilisation", "implausible")
    assert "480 W" in states[0].says
    assert "0 %" in states[0].says
    assert rows[-1][3]["utilisation"] is None
    assert rows[-1][3]["power"] == 480
    assert rows[-1][2]["utilisation"] > 0
    control.put("utilisation", 97, gpu=3)
    rows, states = gpus.looks(2)
    assert only(states) == ("gpu3", "utilisation", "fine")
    assert rows[-1][3]["utilisation"] == 97


def test_three_times_the_power_of_rest_is_work(gpus, control):
    control.put("utilisation", 0, gpu=3)
    control.put("power", 75, gpu=3)
    _, states = gpus.looks(30)
    assert states == []
    control.put("power", 300, gpu=3)
    _, states = gpus.looks(30)
    assert only(states) == ("gpu3", "utilisation", "implausible")


def test_a_gpu_at_rest_is_plausible(gpus, control):
    control.put("utilisation", 0)
    control.put("power", 75)
    rows, states = gpus.looks(40)
    assert states == []
    assert {values["utilisation"] for values in rows[-1]} == {0}


@pytest.mark.parametrize(
    ("value", "number", "metric", "words"),
    [
        ("utilisation", 141, "utilisation", "141 %"),
        ("sm", -1, "sm_activity", "-1 %"),
        ("memory", 90e9, "memory", "90.0 GB of its 80.0 GB"),
        ("temperature", 0, "temperature", "0 °C"),
        ("temperature", 4000, "temperature", "4000 °C"),
        ("power", 65000, "power", "65000 W"),
    ],
)
def test_a_number_that_cannot_be_is_none(gpus, control, value, number, metric, words):
    gpus.looks(3)
    control.put(value, number, gpu=6)
    rows, states = gpus.looks(8)
    assert only(states) == ("gpu6", metric, "implausible")
    assert words in states[0].says
    assert rows[-1][6][metric] is None
    assert rows[-1][5][metric] is not None
    control.clear()
    rows, states = gpus.looks(8)
    assert only(states) == ("gpu6", metric, "fine")
    assert rows[-1][6][metric]


def test_an_energy_counter_that_dips_is_not_believed(gpus, control):
    control.put("energy", 1000, gpu=0)
    gpus.looks(2)
    control.put("energy", 10, gpu=0)
    rows, states = gpus.looks(5)
    assert only(states) == ("gpu0", "energy", "implausible")
    assert "1000 J" in states[0].says
    assert "10 J" in states[0].says
    assert rows[-1][0]["energy"] is None
    control.put("energy", 1010, gpu=0)
    rows, states = gpus.looks(1)
    assert only(states) == ("gpu0", "energy", "fine")
    assert rows[-1][0]["energy"] == 1010


def test_an_energy_counter_that_was_set_back_goes_on_and_never_falls(gpus, control):
    control.put("energy", 1000, gpu=0)
    gpus.looks(2)
    energies, told = [], []
    for look in range(50):
        control.put("energy", 20 + 30 * look, gpu=0)
        rows, states = gpus.looks(1)
        energies.append(rows[0][0]["energy"])
        told += [state.why for state in states]
    assert told == ["implausible", "fine"]
    shown = [energy for energy in energies if energy is not None]
    assert shown == sorted(shown)
    assert shown[0] >= 1000
    assert shown[-1] - shown[-11] == pytest.approx(300)


def test_memory_of_this_process_is_told(gpus, control):
    control.put("process memory", 5e9)
    rows, states = gpus.looks(1)
    assert rows[0][0]["process_memory"] == 5e9
    assert states == []


def test_a_gpu_that_others_use_holds_nothing_of_ours(gpus, control):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        control.put("pid", other.pid)
        rows, states = gpus.looks(30)
        other.communicate(b"\n")
    assert {row[0]["process_memory"] for row in rows[10:]} == {0}
    assert states == []


@pytest.mark.parametrize("also_ours", [True, False])
def test_process_numbers_of_another_world_are_not_believed(gpus, control, also_ours):
    """In a container, the number of one of the host's processes may happen to be ours."""
    control.put("pid", os.getpid() if also_ours else 0)
    control.put("other pid", NOBODY)
    rows, states = gpus.looks(20)
    assert {row[0]["process_memory"] for row in rows} == {None}
    mine = [state for state in states if state.device == "gpu0"]
    assert only(mine) == ("gpu0", "process_memory", "not supported")
    assert "container" in mine[0].says
    assert rows[-1][0]["memory"]


def test_memory_in_use_by_nobody_is_said(gpus, control):
    control.put("pid", 0)
    rows, states = gpus.looks(10)
    assert {row[0]["process_memory"] for row in rows} == {None}
    assert "names no process" in states[0].says
    assert states[0].why == "not supported"


def test_an_idle_gpu_without_processes_holds_nothing(gpus, control):
    control.put("pid", 0)
    control.put("memory", 6e8)
    rows, states = gpus.looks(10)
    assert {row[0]["process_memory"] for row in rows} == {0}
    assert states == []


def test_memory_that_the_driver_does_not_tell_is_not_zero(gpus, control):
    control.put("process memory", -1)
    rows, states = gpus.looks(10)
    assert {row[0]["process_memory"] for row in rows} == {None}
    assert "how much memory" in states[0].says


def test_without_a_process_to_look_for_the_column_says_so(library, control):
    gpus = Apart(library, control)
    try:
        _, states = gpus.open()
        assert only(s for s in states if s.device == "gpu0") == (
            "gpu0",
            "process_memory",
            "not supported",
        )
        assert "No process was named" in states[0].says
        rows, _ = gpus.looks(5)
        assert rows[-1][0]["process_memory"] is None
        assert control.called("processes") == 0
    finally:
        gpus.close()
