"""Whatever goes wrong, in whatever order: the rest is still told, nothing is made up, all heals."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.nvml_library import CALLS, METRICS, Apart, Control, built

DOWN = (1, 9, 12, 18)
LOST = (15, 16, 28)
OTHERS = (2, 3, 4, 6, 10, 13, 17, 20, 21, 25, 26, 27, 999, 4321)
# What is asked at every look, and the calls that give it; a metric has a number unless all fail.
QUICK = {
    "memory": (("memory",),),
    "utilisation": (("utilisation",),),
    "memory_activity": (("utilisation",),),
    "power": (("fields", "field power"), ("power",)),
    "energy": (("fields", "field energy"), ("energy",)),
}
FAULTY = [
    call for call in CALLS if call not in ("init", "handle", "by uuid", "throughput", "samples")
]
IMPOSSIBLE = {"utilisation": 1000, "memory": 1e15, "power": 1e6, "temperature": 0, "sm": -3}

steps = st.one_of(
    st.tuples(
        st.just("fault"),
        st.sampled_from(FAULTY),
        st.integers(0, 7),
        # Most faults are of one metric; now and then a GPU goes, or the whole driver.
        st.sampled_from(OTHERS * 4 + LOST * 2 + DOWN),
    ),
    st.tuples(st.just("heal"), st.sampled_from(FAULTY), st.integers(0, 7), st.just(0)),
    st.tuples(st.just("handle"), st.just("handle"), st.integers(0, 7), st.sampled_from((4, 15))),
    st.tuples(st.just("lie"), st.sampled_from(sorted(IMPOSSIBLE)), st.integers(0, 7), st.just(0)),
)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    started = Apart(built(folder), Control(folder / "control"), "eight", os.getpid())
    yield started
    started.close()


def follow(holding, states):
    for state in states:
        assert state.says.endswith("."), state
        if state.why == "fine":
            assert (state.device, state.metric) in holding, state
            del holding[state.device, state.metric]
        else:
            holding[state.device, state.metric] = state.why


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    plan=st.lists(
        st.tuples(steps, st.sampled_from((0.1, 0.1, 0.7, 6.0, 65.0)), st.integers(0, 4)),
        max_size=14,
    )
)
def test_any_sequence_of_faults(gpus, plan):
    control, holding, codes, lies = gpus.control, {}, {}, set()
    control.clear()
    control.put("pid", os.getpid())
    control.at(gpus.now)
    devices, states = gpus.open()
    assert (len(devices), states) == (8, ())
    last, went_down = gpus.read().rows[-1].time, False
    for (what, call, gpu, code), later, glances in plan:
        # The fault comes between glances that were taken and the look that works them out.
        early = sum(gpus.glance() for _ in range(glances // 2))
        if what == "lie":
            control.put(call, IMPOSSIBLE[call], gpu)
            lies.add(gpu)
        else:
            control.fault(call, code, gpu)
            codes[call, gpu] = code
        for turn in range(4):
            for _ in range(glances):
                if not gpus.glance():
                    break
            reading = gpus.read(later)
            follow(holding, reading.states)
            times = [row.time for row in reading.rows]
            assert times == sorted(set(times))
            assert times[0] > last
            last = times[-1]
            went_down |= any(state.device == "gpus" for state in reading.states)
            for place, row in enumerate(reading.rows):
                for number, values in enumerate(row.values):
                    shown = dict(zip(METRICS, values, strict=True))
                    if turn or place >= early:
                        check(shown, number, codes, number in lies, went_down)
                    assert all(value is None or value > 0 for value in values)
    control.clear()
    control.put("pid", os.getpid())
    for _ in range(105):
        reading = gpus.read(1)
        follow(holding, reading.states)
    assert holding == {}
    assert all(None not in values for values in reading.rows[-1].values)


def check(row, number, codes, lied, went_down):
    """No number is made up, and what no fault touches is there."""
    for metric, value in row.items():
        assert value is None or value > 0, (metric, value)  # in this scene nothing is ever 0
    mine = {call: code for (call, gpu), code in codes.items() if gpu == number and code}
    for metric, ways in QUICK.items():
        if "anything" in mine or all(any(call in mine for call in way) for way in ways):
            assert row[metric] is None, metric
    healthy = not lied and not any(gpu == number for _, gpu in codes)
    if healthy and not went_down:
        assert all(row[metric] is not None for metric in QUICK)
