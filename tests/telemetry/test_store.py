"""The store keeps extremes and sums in bounded memory, whatever comes and for however long."""

import json
import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.telemetry.lines import Header, Span, span_line, state_line
from labkit.telemetry.metrics import State
from labkit.telemetry.store import Store

HEADER = Header("made up", "2026-11-21T10:00:00+01:00", 0.1, 0.0)
METRICS = ["utilisation", "power", "energy"]


def source(devices=1, metrics=METRICS, name="gpus"):
    described = [{"key": f"gpu{i}", "name": f"GPU {i}", "sort": "gpu"} for i in range(devices)]
    return {"source": name, "metrics": list(metrics), "devices": described}


def stored(rows, devices=1, metrics=METRICS, capacity=20_000):
    store = Store(HEADER, capacity)
    store.take([source(devices, metrics)])
    for start in range(0, len(rows), 10):
        store.take(rows[start : start + 10])
    return store


reading = st.none() | st.floats(0, 100)
devices = st.lists(st.tuples(reading, reading), min_size=2, max_size=2)
steps = st.lists(st.tuples(st.floats(0.001, 3), devices), min_size=1, max_size=400)


def rows_of(given_steps):
    """Rows whose third column is a counter that grows by one a row."""
    time, rows = 0.0, []
    for number, (step, values) in enumerate(given_steps):
        time += step
        rows.append([0, time, *([*pair, number] for pair in values)])
    return rows


def integral(rows, device, column, trapezoid):
    """What the sums must be, written once more and plainly."""
    total = known = 0.0
    last = None
    for row in rows:
        value = row[2 + device][column]
        if value is None:
            continue
        if last is not None and row[1] - last[0] <= 1.0:
            step = row[1] - last[0]
            known += step
            total += step * ((value + last[1]) / 2 if trapezoid else value / 100)
        last = row[1], value
    return total, known


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(16, 100))
def test_extremes_and_sums_survive_thinning(given_steps, capacity):
    rows = rows_of(given_steps)
    recording = stored(rows, 2, capacity=capacity).recording()
    assert len(recording.series[0].times) <= capacity
    for device in range(2):
        key = f"gpu{device}"
        for column, metric in enumerate(METRICS):
            given_values = [row[2 + device][column] for row in rows]
            known = [value for value in given_values if value is not None]
            kept = recording.column(key, metric)[1]
            assert (
                len(kept) == 0
                if not known
                else (kept.min(), kept.max()) == (min(known), max(known))
            )
        for column, metric, known_as, trapezoid in (
            (0, "busy", "watched", False),
            (1, "joules", "powered", True),
        ):
            total, seconds = integral(rows, device, column, trapezoid)
            for name, expected in ((metric, total), (known_as, seconds)):
                sums = recording.column(key, name)[1]
                assert (sums[-1] if len(sums) else 0) == pytest.approx(expected, abs=1e-9)
                assert (np.diff(sums) >= 0).all()


@settings(max_examples=40, deadline=None)
@given(steps)
def test_time_never_runs_back_and_the_newest_row_stays(given_steps):
    rows = rows_of(given_steps)
    times = stored(rows, 2, capacity=64).recording().series[0].times
    assert (np.diff(times) >= 0).all()
    assert times[-1] == rows[-1][1]
    assert times[0] == rows[0][1]


def test_nothing_is_thinned_before_it_must_be():
    rows = [[0, i * 0.1, [i % 100, None, i]] for i in range(1000)]
    one = stored(rows).recording().series[0]
    assert not one.thinned
    assert one.values[:, 0, 0].tolist() == [i % 100 for i in range(1000)]


def test_hours_take_no_more_memory_than_minutes_and_the_first_of_them_stays_to_be_seen():
    store = stored([], capacity=2000)
    for start in range(0, 144_000, 512):
        times = range(start, start + 512)
        store.take([[0, t / 10, [t % 101, 50, t]] for t in times])
    recording = store.recording()
    one = recording.series[0]
    assert len(one.times) <= 2000
    assert one.values.nbytes < 2e6
    gaps = np.diff(one.times)
    # The oldest rows stand for a few minutes, not for hours.
    assert gaps.max() < 600
    assert np.sum(one.times < 7200) > 50
    assert recording.column("gpu0", "energy")[1][0] == 0
    assert one.thinned


def test_counters_are_exact_beside_the_edges_of_spans_in_the_thinned_past():
    store = stored([], capacity=400)
    edges = (3.21, 17.43)
    store.take([json.loads(span_line(Span("epoch", *edges)))])
    for tick in range(3000):
        t = tick / 10
        store.take([[0, t, [0, 0, round(t * t, 4)]]])
    recording = store.recording()
    times = recording.series[0].times
    assert recording.series[0].thinned
    for edge in edges:
        assert {round(math.floor(edge * 10) / 10, 1), round(math.ceil(edge * 10) / 10, 1)} <= set(
            np.round(times, 1).tolist()
        )


def test_a_gap_is_neither_busy_nor_idle():
    rows = [[0, t, [100, None, None]] for t in (0, 0.1, 0.2, 60.0, 60.1)]
    recording = stored(rows).recording()
    assert recording.column("gpu0", "busy")[1][-1] == pytest.approx(0.3)
    assert recording.column("gpu0", "watched")[1][-1] == pytest.approx(0.3)


def test_a_device_that_comes_later_gets_columns_and_the_others_keep_theirs():
    store = stored([[0, 0.1, [10, 1, 1]]])
    store.take([source(2), [0, 0.2, [20, 1, 2], [30, 1, 1]]])
    store.take([source(1), [0, 0.3, [40, 1, 3]]])
    recording = store.recording()
    assert [one.key for one in recording.devices] == ["gpu0", "gpu1"]
    assert recording.column("gpu0", "utilisation")[1].tolist() == [10, 20, 40]
    assert recording.column("gpu1", "utilisation")[0].tolist() == [0.2]


def test_several_sources_keep_apart():
    store = Store(HEADER)
    host = {
        "source": "host",
        "metrics": ["memory"],
        "devices": [{"key": "cpu", "name": "", "sort": "cpu"}],
    }
    store.take([source(), host, [1, 0.1, [5e9]], [0, 0.1, [50, 1, 1]]])
    assert store.recording().column("cpu", "memory")[1].tolist() == [5e9]
    assert store.recording().column("gpu0", "utilisation")[1].tolist() == [50]


def test_a_span_comes_twice_and_is_one():
    store = Store(HEADER)
    store.take([json.loads(span_line(Span("epoch", 1.0)))])
    assert store.recording().spans == (Span("epoch", 1.0),)
    store.take([json.loads(span_line(Span("epoch", 1.0, 2.0, 10, "training")))])
    store.take([json.loads(span_line(Span("epoch", 1.0, 2.0)))])
    assert sorted(span.end for span in store.recording().spans) == [2.0, 2.0]


def test_a_row_that_fits_no_source_is_left_out_and_said():
    store = stored([[0, 0.1, [1, 2]], [0, 0.2, [1, 2, 3]], [7, 0.3, [1]], [0, 0.15, [1, 2, 3]]])
    recording = store.recording()
    assert len(recording.series[0].times) == 1
    said = " ".join(state.says for state in recording.states)
    assert "2 rows of gpus" in said
    assert "1 rows of unnamed sources" in said


def test_states_are_bounded_and_the_last_word_on_each_metric_stays():
    store = Store(HEADER)
    store.take([json.loads(state_line(State(0.0, "gpu1", "power", "refused", "no"), 0.0))])
    flap = [State(float(i), "gpu0", "", "lost", f"{i}") for i in range(10_000)]
    store.take([json.loads(state_line(state, 0.0)) for state in flap])
    states = store.recording().states
    assert len(states) <= 2000
    assert states[0].device == "gpu1"
    assert states[-1].says == "9999"


def test_a_recording_is_a_copy():
    store = stored([[0, 0.1, [1, 2, 3]]])
    early = store.recording()
    store.take([[0, 0.2, [100, 2, 4]]])
    assert early.column("gpu0", "utilisation")[1].tolist() == [1]
    with pytest.raises(ValueError, match="read-only"):
        early.series[0].values[0] = 5


def test_it_can_be_asked_while_it_is_fed():
    store, stop, faults = stored([], capacity=500), threading.Event(), []

    def ask():
        while not stop.is_set():
            try:
                one = store.recording().series[0]
                assert len(one.times) == len(one.values)
            except Exception as fault:  # noqa: BLE001 (told by the test)
                faults.append(fault)
                return

    asking = threading.Thread(target=ask)
    asking.start()
    for tick in range(5000):
        store.take([[0, tick / 10, [1, 2, tick]]])
    stop.set()
    asking.join(10)
    assert faults == []
