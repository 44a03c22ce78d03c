"""The still picture of a recording: lanes that hold the samples, gaps that stay gaps, words."""

import io
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from labkit.kinds import recorded
from labkit.telemetry.metrics import Device
from labkit.views.telemetry_figure import figure

TIMES = np.arange(0, 10, 0.1)
HALF = np.full(100, 50.0)


def span(name, start, end):
    return SimpleNamespace(name=name, start=start, end=end)


def gpu(n=0, **about):
    return Device(f"gpu{n}", f"name of gpu{n}", "gpu", **about)


def drawn(values=HALF, times=TIMES, devices=None, metric="utilisation", **about):
    """The figure of a recording in which every device has this one metric."""
    devices = [gpu()] if devices is None else devices
    columns = {(one.key, metric): (times, values) for one in devices}
    facts = {"spans": (), "seconds": 10.0, "remarks": (), **about}
    return figure(SimpleNamespace(
        devices=devices, counted=[one for one in devices if one.sort != "core"],
        header=SimpleNamespace(every=0.1), kind=recorded("a made-up machine", "2026-11-21"),
        column=lambda key, metric: columns.get((key, metric), (np.empty(0), np.empty(0))), **facts,
    ))  # fmt: skip


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)


def blue(picture, least=60):
    """How many pixels of each column are of the area of utilisation."""
    red, _, strong = np.moveaxis(pixels(picture), 2, 0)
    return ((strong - red) > least).sum(axis=0)


SPANS = [span(f"epoch {i}", i * 2.0, i * 2 + 1.8) for i in range(5)]


def test_the_words_say_who_how_long_how_busy_and_where_it_was_recorded():
    shown = drawn(spans=SPANS, remarks=["The driver is old."])
    assert shown.alt.startswith("Samples of 1 device over 10.0 s: GPU 0 (name of gpu0) 50 % busy")
    assert "epoch 0, epoch 1" in shown.alt
    assert shown.alt.endswith("The driver is old.")
    assert str(shown.kind) == "recorded on a made-up machine, 2026-11-21"
    assert "no device" in drawn(devices=(), seconds=0.0).alt


def test_the_area_is_as_high_as_the_utilisation():
    half, full = blue(drawn()), blue(drawn(2 * HALF))
    middle = len(half) // 2
    assert full[middle] == pytest.approx(2 * half[middle], rel=0.1)
    assert "100 % busy" in drawn(2 * HALF).alt


def test_a_gap_stays_white_and_does_not_count_in_the_mean():
    there = (TIMES < 4) | (TIMES > 6)
    whole, gap = drawn(), drawn(HALF[there], TIMES[there])
    missing = ((blue(whole) > 20) & (blue(gap) < 5)).sum() / (blue(whole) > 20).sum()
    assert missing == pytest.approx(0.2, abs=0.03)
    assert "50 % busy" in gap.alt


def test_no_area_where_utilisation_is_unknown():
    shown = drawn(1e9 * HALF, metric="memory", devices=(gpu(memory_total=4e11),))
    assert "utilisation unknown" in shown.alt
    assert blue(shown).max() < 5


def test_an_hour_is_drawn_by_its_extremes():
    times = np.arange(0, 3600, 0.1)
    values = np.zeros(len(times))
    values[18_000] = 100.0  # a tenth of a second in an hour
    assert blue(drawn(values, times, seconds=3600.0), least=25).max() > 80


def test_more_devices_and_spans_take_more_room_and_cores_lie_below_their_processor():
    one = pixels(drawn()).shape[0]
    assert pixels(drawn(devices=[gpu(n) for n in range(8)])).shape[0] > 2 * one
    assert pixels(drawn(spans=SPANS)).shape[0] > one
    inside = [span("all", 0.0, 10.0), *SPANS]
    assert pixels(drawn(spans=inside)).shape[0] > pixels(drawn(spans=SPANS)).shape[0]
    cores = [Device(f"core{i}", "", "core", part_of="cpu") for i in range(4)]
    assert "4 of its 4 cores" in drawn(devices=[Device("cpu", "Xeon", "cpu"), *cores]).alt


@pytest.mark.parametrize("name", [r"$\frac$", "训练第一轮", "epoch 🚀", "a\x1b[31mred\x00", ""])
def test_any_name_is_drawn_as_it_is_and_without_a_warning(name):
    parts = [Device("cpu", name, "cpu"), Device(f"core{name}", name, "core", part_of="cpu")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = drawn(devices=parts, spans=[span(name, 0.0, 9.0)])
    assert shown.alt.isprintable()
    shown.alt.encode()
