"""GPUs as a source, read through the real nvidia-ml-py; behind it is a library built from C."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.telemetry.metrics import METRICS, OWN
from labkit.telemetry.nvidia import user_of
from tests import nvml_library
from tests.nvml_library import CALLS, Apart, Control, built
from tests.telemetry.test_amd import card

NOT_SUPPORTED, REFUSED, TIMEOUT, NO_FUNCTION, GPU_LOST = 3, 4, 10, 13, 15
FAST = ("utilisation", "memory_activity", "memory", "power")


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

    def start(scene="eight", folder=library, amd=None):
        started.append(Apart(folder, control, scene, amd=amd))
        return started[-1]

    yield start
    for gpus in started:
        gpus.close()


@pytest.fixture(scope="module")
def eight(library, tmp_path_factory):
    """A process with eight GPUs, for many tests."""
    started = Apart(library, Control(tmp_path_factory.mktemp("eight") / "control"))
    yield started
    started.close()


@pytest.fixture
def gpus(eight):
    """Eight GPUs without faults, opened."""
    eight.control.heal()
    eight.open()
    return eight


def told(states):
    return {(state.device, state.metric, state.why) for state in states}


def fast(row):
    places = [nvml_library.METRICS.index(metric) for metric in FAST]
    return [tuple(values[place] for place in places) for values in row.values]


# --- what is read


def test_eight_gpus_give_every_metric(gpus):
    devices, states = gpus.open()
    assert [device.key for device in devices] == [f"gpu{number}" for number in range(8)]
    assert {(d.name, d.sort, d.memory_total, d.power_limit) for d in devices} == {
        ("NVIDIA H100", "gpu", 80e9, 700.0)
    }
    assert states == ()
    rows, states = gpus.samples(51)
    assert states == []
    assert set(rows[-1][0]) <= set(METRICS)
    assert all(None not in values.values() for values in rows[-1])
    first, last = rows[0][3], rows[-1][3]  # the counter of energy is read every 5 s
    assert last["energy"] - first["energy"] == pytest.approx(
        sum(row[3]["power"] for row in rows[1:]) * 0.1, rel=0.02
    )
    assert len({row[3]["utilisation"] for row in rows}) > 5
    assert len({values["power"] for values in rows[-1]}) == 8
    assert all(100 < values["power"] < 700 for values in rows[-1])  # W, not NVML's mW


def test_samples_that_are_unpacked_together_are_those_unpacked_at_once(driver, control):
    control.fault("fields", NOT_SUPPORTED)  # then each number has a call of its own
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
    each, slow = ("fields", "memory", "utilisation"), ("temperature", "clock", "gpm")
    before = {call: gpus.control.called(call, 5) for call in (*each, *slow, "power", "energy")}
    gpus.samples(100)
    counts = {call: gpus.control.called(call, 5) - before[call] for call in before}
    assert {counts[call] for call in each} == {100}
    assert all(0 < counts[call] <= 11 for call in slow)
    assert counts["power"] == 0
    assert counts["energy"] == 2  # it takes milliseconds
    for _ in range(3):
        gpus.sample(0, edge=True)
    assert gpus.control.called("energy", 5) - before["energy"] == 5


def test_who_uses_a_gpu_is_told_once(driver):
    gpus = driver("shared")
    gpus.open()
    gpus.sample()
    _, (used,) = gpus.take()
    own, other = used.found
    assert (used.device, own.memory, other.memory) == ("gpu1", 2e9, 31e9)
    assert own.user not in ("", OWN)  # nobody said which program is watched
    assert other.user == ""
    assert gpus.samples(150)[1] == []


def test_what_is_watched_is_the_program_with_its_children():
    assert user_of(os.getpid(), os.getppid()) == user_of(os.getpid(), os.getpid()) == OWN
    assert user_of(os.getppid(), os.getpid()) != OWN


# --- what is missing is said, and never zero


@pytest.mark.parametrize(
    ("scene", "why", "words"),
    [
        ("not loaded", "lost", "its driver is not running"),
        ("permission", "refused", "no permission"),
    ],
)
def test_a_broken_driver_is_one_sentence(driver, scene, why, words):
    devices, (state,) = driver(scene).open()
    assert (devices, state.device, state.why) == ((), "gpus", why)
    assert words in state.says


@pytest.mark.parametrize(
    ("code", "why", "words"),
    [
        (REFUSED, "refused", "no permission to read the utilisation of GPU 2"),
        (NO_FUNCTION, "not supported", "GPU 2 does not report its utilisation"),  # an old driver
    ],
)
def test_why_a_metric_cannot_be_read_is_said(gpus, code, why, words):
    gpus.control.fault("utilisation", code, gpu=2)
    _, states = gpus.open()
    assert told(states) == {("gpu2", metric, why) for metric in ("utilisation", "memory_activity")}
    assert words in states[0].says


def test_a_gpu_that_is_lost_does_not_take_the_others_along(gpus):
    gpus.samples(5)
    gpus.sample()
    gpus.control.fault("anything", GPU_LOST, gpu=1)
    gpus.sample()
    gpus.sample(later=1)
    (before, *after), states = gpus.take()
    assert None not in fast(before)[1]
    assert {fast(row)[1] for row in after} == {(None,) * len(FAST)}
    for row in (before, *after):
        assert all(None not in values for number, values in enumerate(fast(row)) if number != 1)
    (state,) = states  # once, not at each sample
    assert told(states) == {("gpu1", "", "lost")}
    assert "GPU 1 is lost" in state.says
    gpus.control.fault("anything", 0, gpu=1)
    rows, states = gpus.samples(12)
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


@pytest.mark.parametrize(("scene", "count"), [("eight", 8), ("not loaded", 0)])
def test_a_graphics_of_amd_is_one_more_gpu_of_the_same_sample(driver, tmp_path, scene, count):
    gpus = driver(scene, amd=card(tmp_path, 0, gpu_busy_percent=3).parents[4])
    devices, states = gpus.open()
    assert [one.key for one in devices] == [f"gpu{number}" for number in range(count + 1)]
    assert ("gpus", "", "lost") in told(states) or count
    *others, own = gpus.samples(2)[0][-1]
    assert (own["utilisation"], own["energy"], len(others)) == (3, None, count)
    assert all(one["power"] for one in others)


# --- whatever goes wrong, in whatever order: nothing is made up, and all heals

# The calls that give a metric; where one of them fails, it has no number.
NEEDS = {
    "memory": {"memory"},
    "utilisation": {"utilisation"},
    "memory_activity": {"utilisation"},
    "power": {"fields", "field power"},
    "energy": {"energy"},
}
faults = st.tuples(
    st.sampled_from(CALLS), st.integers(0, 7),
    st.sampled_from((0, 0, NOT_SUPPORTED, REFUSED, TIMEOUT, NO_FUNCTION, GPU_LOST, 999)),
)  # fmt: skip


@settings(max_examples=30)
@given(plan=st.lists(st.tuples(faults, st.sampled_from((0.1, 1.0)), st.integers(1, 4)), max_size=8))
def test_any_sequence_of_faults(eight, plan):
    eight.control.heal()
    eight.open()
    holding, codes = set(), {}

    def check():
        rows, states = eight.take()
        for state in states:
            assert state.says.endswith("."), state
            (holding.remove if state.why == "fine" else holding.add)((state.device, state.metric))
        for row in rows:
            for number, values in enumerate(row.values):
                found = dict(zip(nvml_library.METRICS, values, strict=True))
                assert all(value is None or value > 0 for value in values)  # none is ever 0 here
                failing = {call for (call, gpu), code in codes.items() if gpu == number and code}
                for metric, needs in NEEDS.items():
                    missing = failing & (needs | {"anything"})
                    assert (found[metric] is None) == bool(missing), metric
        return rows

    for (call, gpu, code), later, count in plan:
        eight.control.fault(call, code, gpu)
        codes[call, gpu] = code
        for _ in range(count):
            eight.sample(later, edge=True)
        check()
    eight.control.heal()
    codes.clear()
    for _ in range(3):
        eight.sample(1, edge=True)
        rows = check()
    assert holding == set()
    assert all(None not in values for values in rows[-1].values)
