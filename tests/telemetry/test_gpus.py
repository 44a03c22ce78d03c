"""GPUs as a source, read through the real nvidia-ml-py; behind it is a library built from C."""

import math
import os
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.telemetry.metrics import METRICS, SourceLost
from tests import nvml_library
from tests.nvml_library import CALLS, ROOT, Apart, Control, built

NOT_SUPPORTED, REFUSED, TIMEOUT, NO_FUNCTION, GPU_LOST, MISMATCH = 3, 4, 10, 13, 15, 18
FAST = ("utilisation", "memory_activity", "memory", "power", "energy")
NO_PROCESS = 2**22 + 5  # no process has a number as high as this


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def control(tmp_path):
    return Control(tmp_path / "control")


@pytest.fixture
def driver(library, control):
    """Start the source on a scene, not opened yet: `driver("eight")`."""
    started = []

    def start(scene="eight", *, folder=library, pid=None):
        started.append(Apart(folder, control, scene, pid))
        return started[-1]

    yield start
    for gpus in started:
        gpus.close()


@pytest.fixture(scope="module")
def eight(library, tmp_path_factory):
    """A process with eight GPUs, for many tests."""
    started = Apart(
        library, Control(tmp_path_factory.mktemp("eight") / "control"), "eight", os.getpid()
    )
    yield started
    started.close()


@pytest.fixture
def gpus(eight):
    """Eight GPUs, opened; the process that is looked for on them is this one."""
    eight.new()
    eight.control.put("pid", os.getpid())
    eight.open()
    return eight


def told(states):
    return {(state.device, state.metric, state.why) for state in states}


def fast(row):
    places = [nvml_library.METRICS.index(metric) for metric in FAST]
    return [tuple(values[place] for place in places) for values in row.values]


# --- what is read


def test_eight_gpus_give_every_metric(driver, control):
    control.put("pid", os.getpid())
    gpus = driver("eight", pid=os.getpid())
    devices, states = gpus.open()
    assert [device.key for device in devices] == [f"gpu{number}" for number in range(8)]
    assert {(d.name, d.sort, d.memory_total, d.power_limit) for d in devices} == {
        ("NVIDIA H100", "gpu", 80e9, 700.0)
    }
    assert states == ()
    rows, states = gpus.samples(21)
    assert states == []
    assert set(rows[-1][0]) <= set(METRICS)
    assert all(None not in values.values() for values in rows[-1])
    first, last = rows[0][3], rows[-1][3]
    assert last["energy"] - first["energy"] == pytest.approx(
        sum(row[3]["power"] for row in rows[1:]) * 0.1, rel=0.02
    )
    assert 2e9 * 0.9 < last["pcie"] / 2 < 6e9 * 1.1
    assert 5e10 * 0.9 < last["nvlink"] / 2 < 13e10 * 1.1
    assert len({row[3]["utilisation"] for row in rows}) > 5
    assert len({values["power"] for values in rows[-1]}) == 8


@pytest.mark.parametrize("fields", [0, NOT_SUPPORTED])
def test_samples_that_are_unpacked_together_are_those_unpacked_at_once(driver, control, fields):
    control.fault("fields", fields)  # where they are refused, each number has a call of its own
    at_once, together = driver(), driver()
    for gpus in (at_once, together):
        gpus.open()
    truth, batches = [], []
    for k in range(30):
        at_once.sample()
        together.sample()
        truth += at_once.take()[0]
        if k % 5 == 4:
            batches += together.take()[0]
    assert [row.time for row in batches] == [row.time for row in truth]
    assert [fast(row) for row in batches] == [fast(row) for row in truth]
    assert len({fast(row)[3] for row in truth}) == 30  # and the numbers did move


def test_a_sample_makes_few_calls_and_none_that_waits(gpus):
    gpus.samples(1)
    each, slow = ("fields", "memory", "utilisation"), ("temperature", "clock", "processes", "gpm")
    before = {call: gpus.control.called(call, 5) for call in (*each, *slow)}
    single = [gpus.control.called(call, 5) for call in ("power", "energy")]
    gpus.samples(100)
    counts = {call: gpus.control.called(call, 5) - before[call] for call in before}
    assert {counts[call] for call in each} == {100}
    assert all(counts[call] <= 11 for call in slow)
    assert [gpus.control.called(call, 5) for call in ("power", "energy")] == single
    assert gpus.control.called("throughput", 5) == 0


@pytest.mark.parametrize("batch", [1, 5])
def test_utilisation_that_the_driver_samples_more_finely(driver, batch):
    """A row has the mean of the driver's samples since the row before, and nothing gets slower."""
    gpus, rows = driver("buffered"), []
    gpus.open()
    for k in range(50):
        gpus.sample(0.107)
        if k % batch == batch - 1:
            rows += gpus.take()[0]
    assert len(rows) == 50
    assert all(None not in values for row in rows for values in fast(row))
    for before, row in pairwise(rows):
        # The driver's samples, one every 20 ms.
        ticks = range(math.floor(before.time * 50) + 1, math.floor(row.time * 50) + 1)
        expected = [round(50 + 50 * math.sin(tick / 50 * 31.4)) for tick in ticks]
        assert row.values[1][0] == pytest.approx(sum(expected) / len(expected), abs=0.5)


def test_what_the_fields_do_not_have_is_read_singly(driver, control):
    control.fault("field power", NOT_SUPPORTED)
    control.fault("field energy", NO_FUNCTION)
    gpus = driver("eight")
    gpus.open()
    rows, states = gpus.samples(3)
    assert states == []
    assert all(values["power"] and values["energy"] for values in rows[-1])


def test_a_driver_that_has_none_of_the_newer_functions(tmp_path, driver):
    gpus = driver("eight", folder=built(tmp_path / "old", old=True), pid=os.getpid())
    _, states = gpus.open()
    rows, more = gpus.samples(3)
    for metric in ("utilisation", "memory", "power", "temperature", "clock", "energy"):
        assert all(values[metric] for values in rows[-1]), metric
    assert {state.metric for state in states} == {"sm_activity", "pcie", "nvlink", "process_memory"}
    assert {state.why for state in states} == {"not supported"}
    assert more == []


def test_answers_that_make_no_sense_cost_nothing_else(driver):
    """A name that is no text, and fields of a type that is not known."""
    gpus = driver("odd answers")
    devices, _ = gpus.open()
    assert [device.name for device in devices] == ["GPU 0", "GPU 1"]
    rows, _ = gpus.samples(6)
    assert rows[-1][0]["power"]  # from the single call
    assert rows[-1][0]["memory"] == 1e9


# --- what is missing is said, and never zero


def test_no_driver_is_a_note(tmp_path):
    program = (
        "from labkit.telemetry.gpus import Gpus; g = Gpus(1); d, (s,) = g.open();"
        "print(len(d), s.why, s.says)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("this machine has an NVIDIA driver of its own")
    assert done.stdout.startswith("0 note No NVIDIA driver")


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
    with pytest.raises(SourceLost, match=words) as lost:
        driver(scene).open()
    assert lost.value.why == why


def test_mig_is_named_as_the_reason(driver):
    gpus = driver("mig")
    devices, states = gpus.open()
    assert [device.key for device in devices] == ["gpu0"]
    rows, _ = gpus.samples(2)
    assert rows[-1][0]["power"]
    assert rows[-1][0]["utilisation"] is None
    (state,) = [state for state in states if state.metric == "utilisation"]
    assert state.why == "not supported"
    assert "MIG" in state.says


def test_memory_that_is_shared_with_the_machine_is_named(driver):
    gpus = driver("no memory")
    devices, states = gpus.open()
    assert {device.memory_total for device in devices} == {None}
    rows, _ = gpus.samples(2)
    assert rows[-1][0]["memory"] is None
    assert rows[-1][0]["power"]
    (state,) = [one for one in states if (one.device, one.metric) == ("gpu0", "memory")]
    assert state.why == "not supported"
    assert "share one memory" in state.says


def test_a_refused_metric_leaves_the_others_and_comes_back(gpus):
    gpus.control.fault("field power", REFUSED, gpu=2)
    gpus.control.fault("power", NOT_SUPPORTED, gpu=2)
    rows, states = gpus.samples(10)
    assert rows[-1][2]["power"] is None
    assert rows[-1][2]["energy"]
    assert rows[-1][1]["power"]
    assert told(states) == {("gpu2", "power", "refused")}
    assert "no permission to read the power of GPU 2" in states[0].says
    called = gpus.control.called("power", 2)
    gpus.samples(100)
    assert gpus.control.called("power", 2) == called  # it is left alone for a minute
    gpus.control.clear()
    gpus.control.at(gpus.now)
    gpus.control.put("pid", os.getpid())
    _, states = gpus.samples(70, later=1)
    assert told(states) == {("gpu2", "power", "fine")}


def test_one_missing_answer_is_a_gap_and_more_are_told(gpus):
    gpus.samples(3)
    gpus.control.fault("memory", TIMEOUT, gpu=4)
    (row,), states = gpus.samples(1)
    assert row[4]["memory"] is None
    assert row[4]["power"]
    gpus.control.fault("memory", 0, gpu=4)
    rows, more = gpus.samples(5)
    assert (states, more) == ([], [])
    assert rows[-1][4]["memory"]
    gpus.control.fault("memory", TIMEOUT, gpu=4)
    rows, states = gpus.samples(5)
    assert told(states) == {("gpu4", "memory", "silent")}
    assert "no answer in time" in states[0].says
    gpus.control.fault("memory", 0, gpu=4)
    rows, states = gpus.samples(12, later=1)
    assert told(states) == {("gpu4", "memory", "fine")}
    assert rows[-1][4]["memory"]


def test_one_field_that_fails_in_a_batch_is_a_gap_in_one_metric(gpus):
    gpus.samples(2)
    gpus.control.fault("field power", TIMEOUT, 1)  # the call itself succeeds
    gpus.sample()
    gpus.control.fault("field power", 0, 1)
    gpus.sample()
    rows = [fast(row) for row in gpus.take()[0]]
    assert rows[0][1][FAST.index("power")] is None
    assert [row[1].count(None) for row in rows] == [1, 0]
    assert all(None not in values for row in rows for values in (row[0], *row[2:]))


# --- a GPU or the driver is lost


def test_a_gpu_that_is_lost_does_not_take_the_others_along(gpus):
    gpus.samples(5)
    gpus.sample()
    gpus.control.fault("anything", GPU_LOST, gpu=1)
    gpus.sample()
    gpus.sample()
    (before, during, after), states = gpus.take()
    assert None not in fast(before)[1]
    assert fast(during)[1] == fast(after)[1] == (None,) * len(FAST)
    for row in (before, during, after):
        assert all(None not in values for number, values in enumerate(fast(row)) if number != 1)
    assert told(states) == {("gpu1", "", "lost")}
    assert "GPU 1 is lost" in states[0].says
    called = gpus.control.called("fields", 1)
    gpus.samples(40)
    assert gpus.control.called("fields", 1) - called <= 2  # it is left alone for seconds at a time
    gpus.control.fault("anything", 0, gpu=1)
    rows, states = gpus.samples(60)
    assert told(states) == {("gpu1", "", "fine")}
    assert rows[-1][1]["power"]


def test_a_gpu_that_is_lost_from_the_start_keeps_its_place(driver):
    gpus = driver("lost handle")
    devices, states = gpus.open()
    assert [device.key for device in devices] == ["gpu0", "gpu1"]
    assert ("gpu1", "", "lost") in told(states)
    rows, _ = gpus.samples(2)
    assert rows[-1][0]["power"]
    assert set(rows[-1][1].values()) == {None}


def test_a_gpu_that_may_not_be_read_is_refused(driver, control):
    control.fault("handle", REFUSED, gpu=1)
    _, states = driver("eight").open()
    (state,) = [state for state in states if not state.metric]
    assert (state.device, state.why) == ("gpu1", "refused")
    assert "no permission to read GPU 1" in state.says


def test_another_gpu_in_its_place_is_not_taken_for_the_lost_one(gpus):
    gpus.control.fault("anything", GPU_LOST, gpu=1)
    gpus.samples(3)
    gpus.control.fault("anything", 0, gpu=1)
    gpus.control.fault("by uuid", 6, gpu=1)  # no GPU of this name; its number is given to another
    rows, _ = gpus.samples(80)
    assert set(rows[-1][1].values()) == {None}


@pytest.mark.parametrize("code", [MISMATCH, 1, 9])
def test_a_driver_that_goes_down_is_raised_and_can_be_opened_again(gpus, code):
    gpus.samples(3)
    gpus.sample()
    gpus.control.fault("anything", code)
    gpus.sample()
    with pytest.raises(SourceLost):
        gpus.sample()
    rows, _ = gpus.take()  # what was sampled before is not lost
    assert None not in fast(rows[0])[0]
    with pytest.raises(SourceLost):
        gpus.open()
    gpus.control.fault("anything", 0)
    devices, states = gpus.open()
    assert (len(devices), states) == (8, ())
    rows, _ = gpus.samples(2)
    assert all(values["power"] for values in rows[-1])


# --- numbers that cannot be true


@pytest.mark.parametrize(
    ("value", "number", "metric", "words"),
    [
        ("utilisation", 141, "utilisation", "141 %"),
        ("sm", -1, "sm_activity", "-1 %"),
        ("memory", 90e9, "memory", "90.0 GB of its 80.0 GB"),
        ("temperature", 0, "temperature", "0 °C"),
        ("temperature", 4000, "temperature", "4000 °C"),
        ("power", 65000, "power", "W"),
    ],
)
def test_a_number_that_cannot_be_is_none(gpus, value, number, metric, words):
    gpus.samples(3)
    gpus.control.put(value, number, gpu=6)
    rows, states = gpus.samples(12)
    assert told(states) == {("gpu6", metric, "implausible")}
    assert len(states) == 1
    assert words in states[0].says
    assert rows[-1][6][metric] is None
    assert rows[-1][5][metric] is not None
    gpus.control.put(value, float("nan"), gpu=6)
    rows, states = gpus.samples(12)
    assert told(states) == {("gpu6", metric, "fine")}
    assert rows[-1][6][metric]


def test_power_at_no_utilisation_is_possible(gpus):
    """Copy engines draw power, and utilisation counts kernels only."""
    gpus.control.put("utilisation", 0, gpu=3)
    gpus.control.put("power", 480, gpu=3)
    rows, states = gpus.samples(40)
    assert states == []
    assert {(row[3]["utilisation"], row[3]["power"]) for row in rows} == {(0, 480)}


def test_an_energy_counter_that_dips_is_not_believed(gpus):
    gpus.control.put("energy", 1e7, gpu=0)
    gpus.samples(2)
    gpus.control.put("energy", 10, gpu=0)
    rows, states = gpus.samples(5)
    assert told(states) == {("gpu0", "energy", "implausible")}
    assert rows[-1][0]["energy"] is None
    gpus.control.put("energy", 1e7 + 10, gpu=0)
    rows, states = gpus.samples(1)
    assert told(states) == {("gpu0", "energy", "fine")}
    assert rows[-1][0]["energy"] == 1e7 + 10


@pytest.mark.parametrize("reload", [False, True])
def test_an_energy_counter_that_was_set_back_goes_on_and_never_falls(gpus, reload):
    gpus.control.put("energy", 1e7, gpu=0)
    gpus.samples(2)
    if reload:
        gpus.control.put("energy", 20, gpu=0)
        gpus.open()
    shown = []
    for k in range(50):
        gpus.control.put("energy", 20 + 30 * k, gpu=0)
        ((row,), _) = gpus.samples(1)
        shown.append(row[0]["energy"])
    known = [energy for energy in shown if energy is not None]
    assert known == sorted(known)
    assert known[0] >= 1e7
    assert known[-1] - known[-11] == pytest.approx(300)


# --- whose memory it is


def test_memory_of_this_process_is_told(gpus):
    gpus.control.put("process memory", 5e9)
    rows, states = gpus.samples(1, later=1)
    assert rows[0][0]["process_memory"] == 5e9
    assert states == []


def test_another_process_can_be_followed(gpus):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        gpus.control.put("pid", other.pid)
        gpus.follow(other.pid)
        rows, states = gpus.samples(20)
        other.communicate(b"\n")
    assert rows[-1][0]["process_memory"] > 1e9
    assert states == []


def test_a_gpu_that_others_use_holds_nothing_of_ours(gpus):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        gpus.control.put("pid", other.pid)
        rows, states = gpus.samples(30)
        other.communicate(b"\n")
    assert {row[0]["process_memory"] for row in rows[10:]} == {0}
    assert states == []


@pytest.mark.parametrize("also_ours", [True, False])
def test_process_numbers_of_the_host_are_not_believed_in_a_container(gpus, also_ours):
    """The number of one of the host's processes may happen to be ours."""
    gpus.control.put("pid", os.getpid() if also_ours else 0)
    gpus.control.put("other pid", NO_PROCESS)
    rows, states = gpus.samples(40)
    assert rows[-1][0]["process_memory"] is None
    mine = [state for state in states if state.device == "gpu0"]
    assert told(mine) == {("gpu0", "process_memory", "not supported")}
    assert "container" in mine[0].says
    assert rows[-1][0]["memory"]


def test_memory_in_use_by_no_process_is_said(gpus):
    gpus.control.put("pid", 0)
    rows, states = gpus.samples(20)
    assert rows[-1][0]["process_memory"] is None
    assert "names no process" in states[0].says
    assert states[0].why == "not supported"


def test_an_idle_gpu_without_processes_holds_nothing(gpus):
    gpus.control.put("pid", 0)
    gpus.control.put("memory", 6e8)
    rows, states = gpus.samples(20)
    assert {row[0]["process_memory"] for row in rows[10:]} == {0}
    assert states == []


def test_memory_that_the_driver_does_not_tell_is_not_zero(gpus):
    gpus.control.put("process memory", -1)
    rows, states = gpus.samples(20)
    assert rows[-1][0]["process_memory"] is None
    assert "how much memory" in states[0].says


# --- whatever goes wrong, in whatever order: nothing is made up, and all heals

DOWN, LOST = (1, 9, 12, 18), (15, 16, 28)
OTHERS = (2, 3, 4, 6, 10, 13, 17, 20, 21, 25, 26, 27, 999, 4321)
# The calls that give a metric, the best first; it has a number unless all fail.
WAYS = {
    "memory": (("memory",),),
    "utilisation": (("utilisation",),),
    "memory_activity": (("utilisation",),),
    "power": (("fields", "field power"), ("power",)),
    "energy": (("fields", "field energy"), ("energy",)),
}
FAULTY = [c for c in CALLS if c not in ("init", "handle", "by uuid", "throughput", "samples")]
IMPOSSIBLE = {"utilisation": 1000, "memory": 1e15, "power": 1e6, "temperature": 0, "sm": -3}

steps = st.one_of(
    st.tuples(
        st.just("fault"), st.sampled_from(FAULTY), st.integers(0, 7),
        # Most faults are of one metric; now and then a GPU goes, or the whole driver.
        st.sampled_from(OTHERS * 4 + LOST * 2 + DOWN),
    ),
    st.tuples(st.just("fault"), st.sampled_from(FAULTY), st.integers(0, 7), st.just(0)),
    st.tuples(st.just("fault"), st.just("handle"), st.integers(0, 7), st.sampled_from((4, 15))),
    st.tuples(st.just("lie"), st.sampled_from(sorted(IMPOSSIBLE)), st.integers(0, 7), st.just(0)),
)  # fmt: skip


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=st.lists(
        st.tuples(steps, st.sampled_from((0.1, 0.1, 0.7, 6.0, 65.0)), st.integers(1, 4)),
        max_size=14,
    )
)
def test_any_sequence_of_faults(eight, plan):
    world = SimpleNamespace(gpus=eight, holding={}, codes={}, lies=set(), last=0.0)
    control = eight.control
    eight.new()
    control.put("pid", os.getpid())
    follow(world, eight.open()[1])
    for (what, call, gpu, code), later, count in plan:
        if what == "lie":
            control.put(call, IMPOSSIBLE[call], gpu)
            world.lies.add(gpu)
        else:
            control.fault(call, code, gpu)
            world.codes[call, gpu] = code
        went_down = not step(world, 1, later) or not step(world, count, later)
        if went_down:  # as the sampler does
            control.clear()
            control.put("pid", os.getpid())
            control.at(eight.now)
            world.codes, world.lies = {}, set()
            follow(world, eight.open()[1])
    control.clear()
    control.put("pid", os.getpid())
    for _ in range(130):
        eight.sample(1)
        rows, states = eight.take()
        follow(world, states)
    assert world.holding == {}
    assert all(None not in values for values in rows[-1].values)


def step(world, count, later):
    """Some samples, and a check of their rows; False when the driver went down."""
    try:
        for _ in range(count):
            world.gpus.sample(later)
        down = False
    except SourceLost:
        down = True
    rows, states = world.gpus.take()
    follow(world, states)
    for row in rows:
        assert row.time > world.last
        world.last = row.time
        for number, values in enumerate(row.values):
            check(world, number, dict(zip(nvml_library.METRICS, values, strict=True)))
    return not down


def follow(world, states):
    for state in states:
        assert state.says.endswith("."), state
        if state.why == "fine":
            assert (state.device, state.metric) in world.holding, state
            del world.holding[state.device, state.metric]
        else:
            world.holding[state.device, state.metric] = state.why


def check(world, number, row):
    """No number is made up, and what no fault touches is there."""
    for metric, value in row.items():
        assert value is None or value > 0, (metric, value)  # in this scene nothing is ever 0
    mine = {call for (call, gpu), code in world.codes.items() if gpu == number and code}
    for metric, ways in WAYS.items():
        if "anything" in mine or all(any(call in mine for call in way) for way in ways):
            assert row[metric] is None, metric
    if number not in world.lies and not any(gpu == number for _, gpu in world.codes):
        assert all(row[metric] is not None for metric in WAYS)
