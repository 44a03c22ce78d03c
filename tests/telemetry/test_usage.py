"""What a span used, against numbers that are known; what is not known has its reason."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.telemetry.columns import Series
from labkit.telemetry.format import Span, line
from labkit.telemetry.metrics import DeviceState
from tests.telemetry.recorders import cpu, gpus, recorder, recording, take

EVERY = 0.1
METRICS = ("utilisation", "memory", "power", "energy")
FIELDS = ("utilisation", "peak_utilisation", "peak_memory", "joules")


def sampled(samples, seconds=20.0, devices=1, states=(), spans=()):
    """A recording of devices that show `samples(time, device)` every tenth of a second."""
    made = recorder(gpus(devices, METRICS))
    for tick in range(int(seconds / EVERY) + 1):
        rows = [samples(tick * EVERY, device) for device in range(devices)]
        if None not in rows:
            take(made, [0, tick * EVERY, *map(list, rows)])
    take(made, *(line(state) for state in states))
    return dataclasses.replace(recording(made), spans=tuple(spans))


def steady(t, device):
    """60 % utilisation, 10 GB and a bit more with time, 200 W and a counter that agrees."""
    return 60, 10e9 + 1e6 * t, 200.0, 5e8 + 200.0 * t


def nothing(t, device):
    return (None,) * 4


def one(found, *edges, **more):
    (row,) = use(found, Span("epoch", *edges, **more))
    return row


def use(found, *spans):
    return dataclasses.replace(found, spans=spans).table().rows


def test_a_steady_load_gives_exact_numbers():
    row = one(sampled(steady), 3.03, 13.08, images=60_000)
    assert row.seconds == pytest.approx(10.05)
    assert row.utilisation == pytest.approx(60)
    assert row.peak_utilisation == 60
    assert row.peak_memory == pytest.approx(10e9 + 1e6 * 13.1)
    assert row.joules == pytest.approx(200 * 10.05)
    assert row.images_per_second == pytest.approx(60_000 / 10.05)
    assert row.images_per_joule == pytest.approx(60_000 / 2010)
    assert row.missing == {}


def test_a_gpu_that_did_nothing_has_no_images_per_joule():
    row = one(sampled(lambda t, device: (0, *steady(t, device)[1:])), 3.0, 13.0, images=60_000)
    assert (row.utilisation, row.images_per_joule) == (0, None)
    assert row.joules == pytest.approx(2000)


def test_the_mean_is_over_time_and_not_over_samples():
    made = recorder(cpu("utilisation"))
    take(made, *([0, t / 100, [100]] for t in range(501)))  # many while busy
    take(made, *([0, 5 + t, [0]] for t in range(1, 6)))  # one a second while idle
    assert one(recording(made), 0.0, 10.0).utilisation == pytest.approx(50)


edges = st.tuples(st.floats(0.5, 17), st.floats(2.0, 10)).filter(lambda e: sum(e) < 19.5)
WAVES, RARELY = (  # the counter is read at each sample, or at few, as on a GPU
    sampled(lambda t, _, few=few: ((t * 7) % 100, 1e9, 100 + t * 5,
                                   None if few and t % 5 > 1e-6 else 100 * t + 2.5 * t * t))
    for few in (False, True)
)  # fmt: skip


@settings(max_examples=30)
@given(edges)
def test_energy_by_the_counter_is_the_integral_of_power(edge):
    start, end = edge[0], sum(edge)
    expected = 100 * (end - start) + 2.5 * (end**2 - start**2)
    assert one(WAVES, start, end).joules == pytest.approx(expected, rel=0.01)
    assert one(RARELY, start, end).joules == pytest.approx(expected, rel=0.01)


def test_a_span_of_few_updates_of_the_counter_is_too_short_for_joules():
    found = sampled(steady)
    assert one(found, 5.0, 5.8).missing["joules"] == "too short to measure"
    assert one(found, 5.0, 6.2).joules == pytest.approx(240)
    lost = sampled(lambda t, _: (None if 4 < t < 8 else 60, 1e9, 200.0, 200 * min(t, 4.0)))
    rare = [dataclasses.replace(rows, every=0.5) for rows in lost.series]
    missing = one(dataclasses.replace(lost, series=rare), 5.0, 7.0).missing
    assert (missing["utilisation"], missing["joules"]) == ("too short to measure", "not seen")


@pytest.mark.parametrize(
    "counter",
    [
        lambda t: None,
        lambda t: 200 * t + (1e6 if t < 8 else 0),
        lambda t: 200 * min(t, 4.0),
    ],
    ids=["missing", "begins anew", "stops"],
)
def test_a_counter_that_cannot_be_used_gives_no_joules(counter):
    row = one(sampled(lambda t, _: (60, 1e9, 200.0, counter(t))), 5.0, 13.0)
    assert row.joules is None
    assert row.missing["joules"]


@pytest.mark.parametrize(("about", "why"), [("gpu0", "not supported"), ("gpus", "lost")])
def test_what_is_missing_has_its_reason_and_is_never_zero(why, about):
    found = sampled(nothing, states=[DeviceState(0.0, about, "", why, f"It is {why}.")])
    row = one(found, 3.0, 13.0, images=100)
    assert [getattr(row, name) for name in FIELDS] == [None] * 4
    assert [row.text(name) for name in FIELDS] == [why] * 4
    assert row.images_per_joule is None
    assert f"It is {why}." in str(found)


def test_columns_are_read_for_each_device_and_not_for_each_span(monkeypatch):
    """An hour of eight GPUs with 5,000 spans too short for joules took 44 s."""
    read, column = [], Series.column
    monkeypatch.setattr(Series, "column", lambda *given: read.append(given) or column(*given))
    found, counts = sampled(steady, devices=2), []
    for number in (1, 10):
        read.clear()
        rows = use(found, *[Span(f"step {n}", n, n + 0.5) for n in range(number)])
        assert all(row.text("joules") == "too short to measure" for row in rows)
        counts.append(len(read))
    assert counts[0] == counts[1]


def test_several_devices_have_a_row_for_all():
    def two(t, device):
        return (80, 9e9, 300.0, 300.0 * t) if device else (20, 5e9, 100.0, 100.0 * t)

    first, second, both = use(sampled(two, devices=2), Span("epoch", 5.0, 15.0, images=1000))
    assert (first.device, second.device, both.device) == ("gpu0", "gpu1", "all")
    assert both.utilisation == pytest.approx(50)
    assert both.peak_utilisation == pytest.approx(50)
    assert both.peak_memory == pytest.approx(14e9)
    assert both.joules == pytest.approx(4000)
    assert both.images_per_joule == pytest.approx(0.25)
    assert first.images_per_second is None  # images belong to the span, not to one device


def test_what_is_missing_of_one_device_is_missing_of_all_together():
    def second_is_lost(t, device):
        return nothing(t, device) if device else steady(t, device)

    found = sampled(
        second_is_lost, devices=2, states=[DeviceState(0.0, "gpu1", "", "lost", "gone")]
    )
    first, second, both = use(found, Span("epoch", 5.0, 15.0, images=1000))
    assert None not in [getattr(first, name) for name in FIELDS]
    for row in (second, both):
        assert [row.text(name) for name in FIELDS] == ["lost"] * 4
        assert [getattr(row, name) for name in FIELDS] == [None] * 4
    assert (both.images_per_second, both.images_per_joule) == (100, None)


def test_a_span_that_is_open_is_measured_up_to_now_and_has_no_images_yet():
    span = Span("epoch 7", 5.0, None, images=60_000)
    for devices in (1, 2):
        *_, row = use(sampled(steady, devices=devices), span)
        assert row.seconds == pytest.approx(15.0)
        assert (row.images_per_second, row.images_per_joule) == (None, None)
    assert "epoch 7 (going on)" in str(sampled(steady, spans=[span]))
    assert one(sampled(steady), 25.0, None).seconds == 0


def test_a_recording_without_spans_is_one_row_from_its_first_sample_on():
    made = recorder(cpu("utilisation"), *([0, round(0.3 + 0.1 * k, 1), [50]] for k in range(20)))
    (row,) = recording(made).table().rows
    assert (row.span.name, row.span.start) == ("everything", 0.3)
    assert row.missing["joules"] == "not supported"
    assert row.utilisation == pytest.approx(50)


@pytest.mark.parametrize(
    ("whys", "said"), [(["silent"], True), (["note"], True), (["silent", "fine"], False)]
)
def test_what_is_wrong_with_all_gpus_is_said_where_the_processor_is_counted(whys, said):
    made = recorder(gpus(0), cpu("utilisation"), *([1, t / 10, [50]] for t in range(100)))
    for time, why in enumerate(whys):
        take(made, line(DeviceState(time, "gpus", "", why, f"The driver is {why}.")))
    text = str(recording(made))
    assert (f"The driver is {whys[0]}." in text) is said
    assert "fine" not in text
