"""The still picture of a recording: lanes that hold the samples, gaps that stay gaps, words."""

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from labkit.kinds import recorded
from labkit.telemetry.format import Header, Span
from labkit.telemetry.metrics import Device, DeviceState
from labkit.telemetry.page.panel_figure import figure
from labkit.telemetry.recording import Recording, Series

TIMES = np.arange(0, 10, 0.1)
HALF = np.full(100, 50.0)
KIND = recorded("a made-up machine", "2026-11-21")
EPOCHS = tuple(Span(f"epoch {i}", i * 2.0, i * 2 + 1.8) for i in range(5))


def gpu(n=0, **about):
    return Device(f"gpu{n}", f"name of gpu{n}", "gpu", **about)


ONE = (gpu(),)


def drawn(
    values=HALF, times=TIMES, devices=ONE, metric="utilisation", title="", metrics=None, **about
):
    """The figure of a recording in which every device has this one metric."""
    table = np.repeat(values[:, None, None], len(devices), axis=1)
    header = Header(KIND.source, "2026-11-21T10:00:00+01:00", 0.1, 0.0, title)
    series = Series("gpus", (metric,), tuple(devices), times, table)
    return figure(Recording(KIND, header, (series,), **{"seconds": 10.0, **about}), metrics)


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)


def blue(picture, least=60):
    """How many pixels of each column are of the area of utilisation."""
    red, _, strong = np.moveaxis(pixels(picture), 2, 0)
    return ((strong - red) > least).sum(axis=0)


@pytest.fixture(scope="module")
def plain():
    return drawn()


def test_the_words_say_what_who_how_long_how_busy_and_where_it_was_recorded():
    note = DeviceState(0.0, "gpus", "", "note", "The driver is old.")
    shown = drawn(spans=EPOCHS, states=(note,), title="Five $ epochs")
    assert shown.alt.startswith(
        "Five $ epochs: samples of 1 device over 10.0 s: GPU 0 (name of gpu0) 50 % busy"
    )
    assert "epoch 0, epoch 1" in shown.alt
    assert shown.alt.endswith("The driver is old.")
    assert shown.kind == KIND
    assert "no device" in drawn(HALF[:0], TIMES[:0], devices=(), seconds=0.0).alt


def test_the_area_is_as_high_as_the_utilisation(plain):
    full = drawn(2 * HALF)
    middle = len(blue(full)) // 2
    assert blue(full)[middle] == pytest.approx(2 * blue(plain)[middle], rel=0.1)
    assert "100 % busy" in full.alt


def test_a_gap_stays_white_and_does_not_count_in_the_mean(plain):
    there = (TIMES < 4) | (TIMES > 6)
    gap = drawn(HALF[there], TIMES[there])
    missing = ((blue(plain) > 20) & (blue(gap) < 5)).sum() / (blue(plain) > 20).sum()
    assert missing == pytest.approx(0.2, abs=0.03)
    assert "50 % busy" in gap.alt


def test_memory_of_a_process_is_drawn_where_the_panel_shows_it_and_then_alone():
    chosen = drawn(metric="process_memory", metrics=["process_memory"])
    assert chosen.png != drawn(metric="process_memory").png  # no sample of what is usual
    assert blue(drawn(metrics=["process_memory"])).max() < 5


def test_an_hour_is_drawn_by_its_extremes():
    times = np.arange(0, 3600, 0.1)
    values = np.zeros(len(times))
    values[18_000] = 100.0  # a tenth of a second in an hour
    assert blue(drawn(values, times, seconds=3600.0), least=25).max() > 80


@pytest.mark.parametrize("name", [r"$\frac$", "训练第一轮 🚀", ""])
def test_any_name_is_drawn_as_it_is_and_without_a_warning(name):
    parts = [Device("cpu", name, "cpu"), Device(f"core{name}", name, "core", part_of="cpu")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert drawn(devices=parts, spans=(Span(name, 0.0, 9.0),), title=name)
