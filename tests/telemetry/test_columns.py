"""Extremes and sums survive thinning, in bounded memory, whatever comes and for however long."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.telemetry.recorders import gpus, recorder, recording, take

METRICS = ("utilisation", "power", "energy")
NUMBERS = len(METRICS) + 2  # of a device in a row, with the sums

sample = st.none() | st.floats(0, 100)
steps = st.lists(
    st.tuples(st.floats(0.001, 3), st.lists(st.tuples(sample, sample), min_size=2, max_size=2)),
    min_size=1,
    max_size=400,
)


def rows_of(given_steps):
    """Rows of two devices whose third column is a counter that grows by one a row."""
    time, rows = 0.0, []
    for number, (step, values) in enumerate(given_steps):
        time += step
        rows.append([0, time, *([*pair, number] for pair in values)])
    return rows


def integral(rows, device):
    """The sums, computed once more in the plain way."""
    total = covered = 0.0
    last = None
    for row in rows:
        value = row[2 + device][0]
        if value is None:
            continue
        if last is not None and row[1] - last[0] <= 1.0:
            step = row[1] - last[0]
            covered += step
            total += step * value / 100
        last = row[1], value
    return total, covered


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(16, 100))
def test_extremes_and_sums_survive_thinning(given_steps, capacity):
    rows = rows_of(given_steps)
    made = recording(recorder(gpus(2), *rows, capacity=capacity * NUMBERS * 2))
    (series,) = made.series
    assert len(series.times) <= capacity
    assert (np.diff(series.times) >= 0).all()
    assert (series.times[0], series.times[-1]) == (rows[0][1], rows[-1][1])
    for device in range(2):
        for column, metric in enumerate(METRICS):
            known = [row[2 + device][column] for row in rows]
            known = [value for value in known if value is not None]
            kept = made.column(f"gpu{device}", metric)[1]
            assert len(kept) > 0 if known else len(kept) == 0
            if known:
                assert (kept.min(), kept.max()) == (min(known), max(known))
        names = ("busy_seconds", "covered_seconds")
        for name, expected in zip(names, integral(rows, device), strict=True):
            sums = made.column(f"gpu{device}", name)[1]
            assert (sums[-1] if len(sums) else 0) == pytest.approx(expected, abs=1e-9)
            assert (np.diff(sums) >= 0).all()


def test_hours_take_the_memory_of_minutes_and_their_beginning_stays_visible():
    made = recorder(gpus(), capacity=2000 * NUMBERS)
    for start in range(0, 144_000, 512):
        made.take("\n".join(f"[0,{t / 10},[{t % 101},50,{t}]]" for t in range(start, start + 512)))
    (series,) = recording(made).series
    assert series.thinned
    assert len(series.times) <= 2000
    assert np.diff(series.times).max() < 60
    assert (series.times[0], series.times[-1]) == (0, 14_438.3)
    assert (np.diff(series.times[-500:]) < 0.11).all()  # the last minutes are whole


def test_a_gap_is_neither_busy_nor_idle():
    rows = [[0, t, [100, None, None]] for t in (0, 0.1, 0.2, 60.0, 60.1)]
    made = recording(recorder(gpus(), *rows))
    assert made.column("gpu0", "busy_seconds")[1][-1] == pytest.approx(0.3)
    assert made.column("gpu0", "covered_seconds")[1][-1] == pytest.approx(0.3)


def test_devices_may_come_and_go_and_keep_their_columns():
    made = recorder(gpus(), [0, 0.1, [10, 1, 1]], gpus(2), [0, 0.2, [20, 1, 2], [30, 1, 1]])
    take(made, gpus(1), [0, 0.3, [40, 1, 3]])
    found = recording(made)
    assert [one.key for one in found.devices] == ["gpu0", "gpu1"]
    assert found.column("gpu0", "utilisation")[1].tolist() == [10, 20, 40]
    assert found.column("gpu1", "utilisation")[0].tolist() == [0.2]
    assert found.column("gpu0", "busy_seconds")[1][-1] == pytest.approx(0.06)


def test_a_recording_does_not_change_when_more_rows_come():
    made = recorder(gpus(), [0, 0.1, [1, 2, 3]])
    early = recording(made)
    take(made, [0, 0.2, [100, 2, 4]])
    assert early.column("gpu0", "utilisation")[1].tolist() == [1]
    with pytest.raises(ValueError, match="read-only"):
        early.series[0].values[0] = 5
