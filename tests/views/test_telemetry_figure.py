"""The still picture of a recording: lanes that hold what was read, gaps that stay gaps, words."""

import io
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from labkit.kinds import recorded
from labkit.telemetry.metrics import Device
from labkit.views import telemetry_figure
from labkit.views.telemetry_figure import figure


def device(key, sort="gpu", **about):
    return Device(key, f"name of {key}", sort, **about)


def recording(columns, devices, spans=(), seconds=10.0, remarks=()):
    """What a figure asks of a recording; `columns` by (device, metric)."""
    nothing = np.empty(0), np.empty(0)
    counted = [one for one in devices if one.sort != "core"]
    return SimpleNamespace(
        devices=devices, counted=counted, spans=spans, seconds=seconds, remarks=remarks,
        header=SimpleNamespace(every=0.1), kind=recorded("a made-up machine", "2026-11-21"),
        column=lambda key, metric: columns.get((key, metric), nothing),
    )  # fmt: skip


def busy(times, values):
    steps = np.diff(times, prepend=times[0]).clip(0, 1)
    return {"utilisation": (times, values), "busy_seconds": (times, np.cumsum(values * steps) / 100),
            "covered_seconds": (times, np.cumsum(steps))}  # fmt: skip


def columns_of(key, metrics):
    return {(key, metric): column for metric, column in metrics.items()}


TIMES = np.arange(0, 10, 0.1)
SPANS = [SimpleNamespace(name=f"epoch {i}", start=i * 2.0, end=i * 2 + 1.8) for i in range(5)]


def drawn(values=None, times=TIMES, spans=()):
    values = np.full(len(times), 50.0) if values is None else values
    return figure(recording(columns_of("gpu0", busy(times, values)), [device("gpu0")], spans))


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)


def blue(picture):
    """How many pixels of each column are of the area of utilisation."""
    red, _, strong = np.moveaxis(pixels(picture), 2, 0)
    return ((strong - red) > 60).sum(axis=0)


def test_the_words_say_who_how_long_and_how_busy():
    alt = drawn(spans=SPANS).alt
    assert alt.startswith("Readings of 1 device over 10.0 s: GPU 0 (name of gpu0) 50 % busy")
    assert "epoch 0, epoch 1" in alt


def test_the_kind_is_on_it():
    assert str(drawn().kind) == "recorded on a made-up machine, 2026-11-21"


def test_the_area_is_as_high_as_the_utilisation():
    half, full = blue(drawn()), blue(drawn(np.full(100, 100.0)))
    middle = len(half) // 2
    assert full[middle] == pytest.approx(2 * half[middle], rel=0.1)


def test_a_gap_stays_white():
    there = (TIMES < 4) | (TIMES > 6)
    whole, gap = blue(drawn()), blue(drawn(np.full(there.sum(), 50.0), TIMES[there]))
    missing = ((whole > 20) & (gap < 5)).sum() / (whole > 20).sum()
    assert missing == pytest.approx(0.2, abs=0.03)


def test_no_area_where_utilisation_is_unknown():
    only_memory = {("gpu0", "memory"): (TIMES, np.full(100, 1e9))}
    shown = figure(recording(only_memory, [device("gpu0", memory_total=4e9)]))
    assert "utilisation unknown" in shown.alt
    assert blue(shown).max() < 5


def test_an_hour_is_drawn_by_its_extremes():
    times = np.arange(0, 3600, 0.1)
    values = np.zeros(len(times))
    values[18_000] = 100.0  # a tenth of a second in an hour
    one = recording(columns_of("gpu0", busy(times, values)), [device("gpu0")], seconds=3600.0)
    light = pixels(figure(one))
    tinted = (light[:, :, 2] - light[:, :, 0] > 25).sum(axis=0)
    assert tinted.max() > 80


def test_spans_take_room_for_their_names():
    assert pixels(drawn(spans=SPANS)).shape[0] > pixels(drawn()).shape[0]


@pytest.mark.parametrize("count", [1, 300])
def test_however_many_spans_there_are_it_is_drawn(count):
    spans = [
        SimpleNamespace(
            name=f"a long name {i}", start=i / 30, end=None if i == count - 1 else (i + 1) / 30
        )
        for i in range(count)
    ]
    assert drawn(spans=spans).png


def test_more_devices_more_lanes_and_cores_below_their_processor():
    one = busy(TIMES, np.full(100, 50.0))
    gpus = [device(f"gpu{i}") for i in range(8)]
    eight = figure(recording({k: v for g in gpus for k, v in columns_of(g.key, one).items()}, gpus))
    assert pixels(eight).shape[0] > 2 * pixels(drawn()).shape[0]
    parts = [device("cpu", "cpu"), *(device(f"core{i}", "core", part_of="cpu") for i in range(4))]
    host = figure(
        recording({k: v for d in parts for k, v in columns_of(d.key, one).items()}, parts)
    )
    assert "4 of its 4 cores" in host.alt


def test_nothing_seen_is_said():
    assert figure(recording({}, [], seconds=0.0)).alt == "An empty recording: no device was seen."


def test_drawing_twice_gives_the_same_bytes():
    assert drawn(spans=SPANS).png == drawn(spans=SPANS).png


def test_a_span_lies_above_those_inside_it():
    inside = [SimpleNamespace(name="inside", start=1.0 + i, end=1.9 + i) for i in range(5)]
    around = SimpleNamespace(name="around", start=0.5, end=8.0)
    before = SimpleNamespace(name="before", start=0.0, end=0.5)
    shown = SimpleNamespace(spans=[before, around, *inside], seconds=10.0)
    top, below = [[band.name for band in row] for row in telemetry_figure._rows_of_spans(shown)]
    assert top == ["before", "around"]
    assert below == ["inside"] * 5


@pytest.mark.parametrize(
    "name",
    ["$x$", r"$\frac$", "costs 5 $ or $$", "训练第一轮", "epoch 🚀", "one\ntwo", "a\x1b[31mred\x00",
     "\ud800", " " * 20, "", "अनुभव", "שלום"],
)  # fmt: skip
def test_any_name_is_drawn_as_it_is_and_without_a_warning(name):
    spans = [SimpleNamespace(name=name, start=0.0, end=9.0)]
    parts = [Device("gpu0", name, "gpu"), Device(f"mig{name}", name, "mig")]
    parts += [Device(f"core{name}", name, "core", part_of="gpu0")]
    one = busy(TIMES, np.full(100, 50.0))
    columns = {k: v for d in parts for k, v in columns_of(d.key, one).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = figure(recording(columns, parts, spans))
    assert shown.alt.isprintable()
    shown.alt.encode()


def test_a_dollar_begins_no_formula():
    """Two names of the same letters: as formulas they would be set in another typeface."""
    one, other = (
        drawn(spans=[SimpleNamespace(name=name, start=0.0, end=10.0)])
        for name in ("a $b$ c", "a b c")
    )
    dark = [(pixels(shown)[:90].sum(axis=2) < 300).sum() for shown in (one, other)]
    assert dark[0] > dark[1] + 30  # the signs themselves are drawn


def test_what_holds_for_a_whole_source_is_in_the_words():
    said = "The driver does not fit its library: restart."
    assert said in figure(recording({}, [], seconds=0.0, remarks=[said])).alt
    one = columns_of("gpu0", busy(TIMES, np.full(100, 50.0)))
    assert figure(recording(one, [device("gpu0")], remarks=[said])).alt.endswith(said)
