"""GPUs as a source, asked through the real nvidia-ml-py; behind it is a library built from C."""

import os
import subprocess
import sys

import pytest

from labkit.telemetry.metrics import METRICS
from tests import nvml_library
from tests.nvml_library import ROOT, Apart, Control, built

NOT_SUPPORTED, REFUSED, TIMEOUT, NO_FUNCTION, GPU_LOST, MISMATCH, UNKNOWN = (
    3,
    4,
    10,
    13,
    15,
    18,
    999,
)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path / "control")


@pytest.fixture
def driver(library, control):
    """Start the source on a scene: `driver("eight")`."""
    started = []

    def start(scene="eight", *, folder=library, pid=None):
        started.append(Apart(folder, control, scene, pid))
        return started[-1]

    yield start
    for gpus in started:
        gpus.close()


def told(states):
    return {(state.device, state.metric, state.why) for state in states}


def test_its_columns_are_known_metrics():
    from labkit.telemetry.gpus import Gpus

    assert Gpus.metrics == nvml_library.METRICS
    assert set(Gpus.metrics) <= set(METRICS)


QUICK = ("utilisation", "memory_activity", "memory", "power", "energy")


def columns(row, metrics=QUICK):
    places = [nvml_library.METRICS.index(metric) for metric in metrics]
    return [tuple(values[place] for place in places) for values in row.values]


@pytest.mark.parametrize("fields", [0, NOT_SUPPORTED])
def test_glances_give_the_rows_that_looks_at_the_same_times_give(driver, control, fields):
    control.fault("fields", fields)  # where they are refused, each number has a call of its own
    looking, glancing = driver(), driver()
    for gpus in (looking, glancing):
        gpus.open()
    for _ in range(3):  # what is refused is found out
        looking.read()
        glancing.read()
    truth, seen = [], []
    for k in range(1, 31):
        truth += looking.read().rows
        if k % 10:
            assert glancing.glance()
        else:
            seen += glancing.read().rows
            # What changes slowly is asked at another moment, and holds.
            assert all(None not in values for values in columns(seen[-1], ("temperature", "clock")))
    assert [row.time for row in seen] == [row.time for row in truth]
    assert [columns(row) for row in seen] == [columns(row) for row in truth]
    assert len({columns(row)[3] for row in seen}) == 30  # and the gauges did move


def test_a_gpu_that_is_lost_between_glances_takes_no_other_along(driver, control):
    gpus = driver()
    gpus.open()
    gpus.read()
    assert gpus.glance()
    control.fault("anything", GPU_LOST, 2)
    assert not gpus.glance()
    reading = gpus.read()
    before, during, after = (columns(row) for row in reading.rows)
    assert None not in before[2]
    assert during[2] == after[2] == (None,) * len(QUICK)
    for row in (before, during, after):
        assert all(None not in values for number, values in enumerate(row) if number != 2)
    assert told(reading.states) == {("gpu2", "", "lost")}
    assert gpus.glance()  # of the others
    control.fault("anything", 0, 2)
    states = gpus.read(6).states
    assert told(states) == {("gpu2", "", "fine")}
    assert gpus.glance()
    assert None not in columns(gpus.read().rows[0])[2]


def test_a_driver_that_goes_down_between_glances_comes_back(driver, control):
    gpus = driver()
    gpus.open()
    gpus.read()
    assert gpus.glance()
    control.fault("anything", MISMATCH)
    control.fault("init", MISMATCH)
    assert not gpus.glance()
    reading = gpus.read()
    assert told(reading.states) == {("gpus", "", "lost")}
    before, after = (columns(row) for row in reading.rows)
    assert None not in before[0]
    assert set(after) == {(None,) * len(QUICK)}
    assert not gpus.glance()  # nothing can be put by
    control.clear()
    control.at(gpus.now)
    assert told(gpus.read(40).states) == {("gpus", "", "fine")}
    assert gpus.glance()
    assert len(gpus.read().rows) == 2


def test_one_field_that_fails_at_a_glance_is_a_gap_in_one_metric(driver, control):
    gpus = driver()
    gpus.open()
    gpus.read()
    control.fault("field power", TIMEOUT, 1)  # the call itself succeeds
    assert gpus.glance()
    control.fault("field power", 0, 1)
    assert gpus.glance()
    rows = [columns(row) for row in gpus.read().rows]
    assert rows[0][1][QUICK.index("power")] is None
    assert [row[1].count(None) for row in rows] == [1, 0, 0]
    assert all(None not in values for row in rows for values in (row[0], *row[2:]))


def test_an_impossible_number_at_a_glance_is_told_and_not_shown(driver, control):
    gpus = driver()
    gpus.open()
    gpus.read()
    control.put("utilisation", 180, 1)
    assert gpus.glance()
    control.put("utilisation", 80, 1)
    reading = gpus.read()
    first, last = (columns(row, ("utilisation",))[1] for row in reading.rows)
    assert (first, last) == ((None,), (80,))
    assert [state.why for state in reading.states] == ["implausible", "fine"]


def test_eight_gpus_give_every_metric(driver, control):
    control.put("pid", os.getpid())
    gpus = driver("eight", pid=os.getpid())
    devices, states = gpus.open()
    assert [device.key for device in devices] == [f"gpu{number}" for number in range(8)]
    assert {(d.name, d.sort, d.memory_total, d.power_limit) for d in devices} == {
        ("NVIDIA H100", "gpu", 80e9, 700.0)
    }
    assert states == ()
    rows, states = gpus.looks(21)
    assert states == []
    assert all(None not in values.values() for values in rows[-1])
    first, last = rows[0][3], rows[-1][3]
    assert last["energy"] - first["energy"] == pytest.approx(
        sum(row[3]["power"] for row in rows[1:]) * 0.1, rel=0.02
    )
    assert 2e9 * 0.9 < last["pcie"] / 2 < 6e9 * 1.1
    assert 5e10 * 0.9 < last["nvlink"] / 2 < 13e10 * 1.1
    assert len({row[3]["utilisation"] for row in rows}) > 5
    assert len({values["power"] for values in rows[-1]}) == 8


def test_a_look_asks_few_questions_and_none_that_waits(driver, control):
    gpus = driver("eight", pid=os.getpid())
    gpus.open()
    gpus.looks(1)
    quick, slow = ("fields", "memory", "utilisation"), ("temperature", "clock", "processes")
    before = {call: control.called(call, 5) for call in (*quick, *slow, "gpm")}
    gpus.looks(100)
    counts = {call: control.called(call, 5) - before[call] for call in before}
    assert {counts[call] for call in quick} == {100}
    assert all(counts[call] <= 21 for call in slow)
    assert counts["gpm"] <= 51
    for never in ("throughput", "power", "energy"):
        assert control.called(never, 5) == 0


def test_traffic_that_only_counters_tell_is_asked_twice_a_second(driver, control):
    gpus = driver("mesh")
    gpus.open()
    gpus.looks(5)
    before = control.called("fields")
    rows, _ = gpus.looks(100)
    assert control.called("fields") - before <= 121
    assert 2e9 * 0.9 < rows[-1][0]["pcie"] / 2 < 6e9 * 1.1


def test_no_driver_is_a_note(tmp_path):
    program = "from labkit.telemetry.gpus import Gpus; g = Gpus(); print(g.open()); print(g.read())"
    seen = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **seen},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    if "Device(" in done.stdout:
        pytest.skip("this machine has an NVIDIA driver of its own")
    assert "why='note'" in done.stdout
    assert "No NVIDIA driver" in done.stdout
    assert "values=()" in done.stdout


@pytest.mark.parametrize(
    ("scene", "why", "words"),
    [
        ("not loaded", "lost", "its driver is not running"),
        ("mismatch", "lost", "different versions"),
        ("permission", "refused", "no permission"),
        ("odd", "lost", "nvidia-smi"),
    ],
)
def test_a_broken_driver_is_one_sentence(driver, scene, why, words):
    gpus = driver(scene)
    devices, (state,) = gpus.open()
    assert devices == ()
    assert (state.device, state.metric, state.why) == ("gpus", "", why)
    assert words in state.says
    assert gpus.read().rows[-1].values == ()


def test_a_gpu_that_is_lost_does_not_take_the_others_along(driver, control):
    gpus = driver("eight")
    gpus.open()
    gpus.looks(5)
    control.fault("anything", GPU_LOST, gpu=1)
    rows, states = gpus.looks(40)
    assert all(set(row[1].values()) == {None} for row in rows)
    assert all(row[0]["power"] and row[2]["energy"] for row in rows)
    (lost,) = states
    assert (lost.device, lost.metric, lost.why) == ("gpu1", "", "lost")
    assert "GPU 1 is lost" in lost.says
    # It is left alone for seconds at a time.
    assert control.called("fields", 0) - control.called("fields", 1) >= 38
    control.fault("anything", 0, gpu=1)
    rows, states = gpus.looks(60)
    assert told(states) == {("gpu1", "", "fine")}
    assert rows[-1][1]["power"]


def test_a_gpu_that_is_lost_from_the_start_keeps_its_place(driver):
    gpus = driver("lost handle")
    devices, states = gpus.open()
    assert [device.key for device in devices] == ["gpu0", "gpu1"]
    assert ("gpu1", "", "lost") in told(states)
    rows, _ = gpus.looks(2)
    assert rows[-1][0]["power"]
    assert set(rows[-1][1].values()) == {None}


def test_a_gpu_that_may_not_be_asked_is_refused(driver, control):
    control.fault("handle", REFUSED, gpu=1)
    gpus = driver("eight")
    _, states = gpus.open()
    (state,) = [state for state in states if not state.metric]
    assert (state.device, state.why) == ("gpu1", "refused")
    assert "no permission to ask GPU 1" in state.says


@pytest.mark.parametrize("code", [MISMATCH, 1, 9])
def test_a_driver_that_goes_is_tried_again_ever_more_rarely_and_comes_back(driver, control, code):
    gpus = driver("eight")
    gpus.open()
    gpus.looks(3)
    control.fault("anything", code)
    before = control.called("init")
    rows, states = gpus.looks(40, later=0.5)
    assert all(value is None for row in rows for values in row for value in values.values())
    assert told(states) == {("gpus", "", "lost")}
    if code == MISMATCH:
        assert "different versions" in states[0].says
    assert 3 <= control.called("init") - before <= 6
    control.fault("anything", 0)
    rows, states = gpus.looks(80, later=0.5)
    assert told(states) == {("gpus", "", "fine")}
    assert all(values["power"] for values in rows[-1])


def test_a_driver_that_opens_and_answers_nothing_is_not_pestered(driver, control):
    gpus = driver("eight")
    gpus.open()
    gpus.looks(3)
    control.fault("memory", 1)
    before = control.called("init")
    rows, states = gpus.looks(40, later=0.5)
    assert told(states) <= {("gpus", "", "lost"), ("gpus", "", "fine")}
    assert rows[-1][0]["memory"] is None
    assert control.called("init") - before <= 6


def test_what_a_lost_gpu_was_said_to_lack_heals_with_it(driver, control):
    gpus = driver("eight")
    gpus.open()
    control.fault("clock", NOT_SUPPORTED, gpu=1)
    _, states = gpus.looks(10)
    assert told(states) == {("gpu1", "clock", "not supported")}
    control.fault("anything", GPU_LOST, gpu=1)
    gpus.looks(3)
    control.clear()
    rows, states = gpus.looks(60)
    assert told(states) == {("gpu1", "", "fine"), ("gpu1", "clock", "fine")}
    assert rows[-1][1]["clock"]


def test_another_gpu_in_its_place_is_not_taken_for_the_lost_one(driver, control):
    gpus = driver("eight")
    gpus.open()
    control.fault("anything", GPU_LOST, gpu=1)
    gpus.looks(3)
    control.fault("anything", 0, gpu=1)
    control.fault("by uuid", 6, gpu=1)  # no GPU of this name; its number is given to another
    rows, _ = gpus.looks(80)
    assert set(rows[-1][1].values()) == {None}


def test_mig_instances_are_devices_and_say_what_they_cannot_tell(driver):
    gpus = driver("mig")
    devices, states = gpus.open()
    assert [(d.key, d.sort, d.part_of, d.memory_total) for d in devices] == [
        ("gpu0", "gpu", None, 80e9),
        ("gpu0.mig0", "mig", "gpu0", 40e9),
        ("gpu0.mig1", "mig", "gpu0", 40e9),
    ]
    rows, more = gpus.looks(8)
    whole, first, second = rows[-1]
    assert whole["power"]
    assert whole["utilisation"] is None
    assert first["memory"] == second["memory"] == 1e9
    assert first["sm_activity"]
    assert first["power"] is first["utilisation"] is None
    says = {(state.device, state.metric): state.says for state in (*states, *more)}
    assert "cut into instances with MIG" in says["gpu0", "utilisation"]
    assert "MIG instance 1 of GPU 0" in says["gpu0.mig1", "power"]


def test_memory_that_is_shared_with_the_machine_is_named(driver):
    gpus = driver("no memory")
    devices, states = gpus.open()
    assert {device.memory_total for device in devices} == {None}
    rows, more = gpus.looks(2)
    assert rows[-1][0]["memory"] is None
    assert rows[-1][0]["power"]
    (state,) = [s for s in (*states, *more) if (s.device, s.metric) == ("gpu0", "memory")]
    assert state.why == "not supported"
    assert "share one memory" in state.says


def test_a_refused_metric_leaves_the_others_and_is_tried_again_after_a_minute(driver, control):
    gpus = driver("eight")
    gpus.open()
    control.fault("field power", REFUSED, gpu=2)
    control.fault("power", NOT_SUPPORTED, gpu=2)
    rows, states = gpus.looks(10)
    assert rows[-1][2]["power"] is None
    assert rows[-1][2]["energy"]
    assert rows[-1][1]["power"]
    (state,) = states
    assert (state.device, state.metric, state.why) == ("gpu2", "power", "refused")
    assert "no permission to read the power of GPU 2" in state.says
    asked = control.called("power", 2)
    gpus.looks(100)
    assert control.called("power", 2) == asked
    control.clear()
    _, states = gpus.looks(70, later=1)
    assert told(states) == {("gpu2", "power", "fine")}


def test_what_the_fields_do_not_have_is_asked_singly(driver, control):
    control.fault("field power", NOT_SUPPORTED)
    control.fault("field energy", NO_FUNCTION)
    gpus = driver("eight")
    gpus.open()
    rows, states = gpus.looks(3)
    assert states == []
    assert all(values["power"] and values["energy"] for values in rows[-1])


def test_a_driver_that_has_none_of_the_newer_functions(tmp_path, driver):
    gpus = driver("eight", folder=built(tmp_path / "old", old=True), pid=os.getpid())
    gpus.open()
    rows, states = gpus.looks(3)
    for metric in ("utilisation", "memory", "power", "temperature", "clock", "energy"):
        assert all(values[metric] for values in rows[-1]), metric
    absent = {"sm_activity", "pcie", "nvlink", "process_memory"}
    assert {state.metric for state in states} == absent
    assert {state.why for state in states} == {"not supported"}


def test_one_missing_answer_is_a_gap_and_three_are_told(driver, control):
    gpus = driver("eight")
    gpus.open()
    gpus.looks(3)
    control.fault("memory", TIMEOUT, gpu=4)
    rows, states = gpus.looks(2)
    assert [row[4]["memory"] for row in rows] == [None, None]
    assert states == []
    _, states = gpus.looks(5)
    (state,) = states
    assert (state.device, state.metric, state.why) == ("gpu4", "memory", "silent")
    assert "no answer in time" in state.says
    control.clear()
    control.at(gpus.now)
    rows, states = gpus.looks(2)
    assert told(states) == {("gpu4", "memory", "fine")}
    assert rows[-1][4]["memory"]


def test_answers_that_make_no_sense_cost_nothing_else(driver):
    """A name that is no text, and fields of a type that nobody knows."""
    gpus = driver("odd answers")
    devices, _ = gpus.open()
    assert [device.name for device in devices] == ["GPU 0", "GPU 1"]
    rows, _ = gpus.looks(6)
    assert rows[-1][0]["power"]  # from the single call
    assert rows[-1][0]["memory"] == 1e9


def test_the_drivers_own_finer_numbers_become_rows_of_their_own(driver):
    gpus = driver("buffered")
    gpus.open()
    times, shares, energies = [], [], 0
    for later in (0.1, 0.1, 0.003, 0.1, 0.25, 0.1):
        for row in gpus.read(later).rows:
            times.append(row.time)
            shares.append(row.values[0][0])
            energies += row.values[0][-1] is not None
    assert times == sorted(set(times))
    assert len(times) > 25
    assert energies == 6  # a counter is told only where it was read
    assert all(0 <= share <= 100 for share in shares[1:] if share is not None)
    assert len(set(shares)) > 8


def test_a_narrow_counter_is_not_believed_when_it_may_have_gone_round(driver):
    gpus = driver("narrow")
    gpus.open()
    rows, _ = gpus.looks(20)
    sent = [row[0]["pcie"] for row in rows if row[0]["pcie"] is not None]
    assert len(sent) >= 10
    assert all(2e9 * 0.9 < rate / 2 < 6e9 * 1.1 for rate in sent)
    rows, states = gpus.looks(10, later=1)
    assert {row[0]["pcie"] for row in rows[1:]} == {None}
    (state,) = [s for s in states if (s.device, s.metric) == ("gpu0", "pcie")]
    assert "starts over" in state.says
