"""What a span used, against numbers that are known; and what is not known is said, never 0."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.telemetry.lines import Header, Span, span_line, state_line
from labkit.telemetry.metrics import State
from labkit.telemetry.store import Store
from labkit.telemetry.use import table, use
from labkit.telemetry.use_table import joules_text

EVERY = 0.1
METRICS = ("utilisation", "memory", "power", "energy")


def watched(gauges, seconds=20.0, devices=1, states=(), sort="gpu", metrics=METRICS, **about):
    """A recording of devices that show `gauges(time, device)` every tenth of a second."""
    store = Store(Header("made up", "2026-11-21T10:00:00+01:00", EVERY, 0.0))
    described = [
        {"key": f"gpu{i}", "name": f"GPU {i}", "sort": sort, **about} for i in range(devices)
    ]
    store.take([{"source": "gpus", "metrics": list(metrics), "devices": described}])
    for tick in range(int(seconds / EVERY) + 1):
        t = tick * EVERY
        readings = [gauges(t, device) for device in range(devices)]
        if None not in readings:
            store.take([[0, t, *map(list, readings)]])
    store.take([json.loads(state_line(state, 0.0)) for state in states])
    return store.recording()


def steady(t, device):
    """60 % busy, 10 GB and a bit more with time, 200 W and a counter that says so."""
    return 60, 10e9 + 1e6 * t, 200.0, 5e8 + 200.0 * t


def one(recording, *edges, **how):
    (found,) = use(recording, Span("epoch", *edges, **how))
    return found


def test_a_steady_load_is_told_exactly():
    found = one(watched(steady), 3.03, 13.08, images=60_000)
    assert found.seconds == pytest.approx(10.05)
    assert found.utilisation == pytest.approx(60)
    assert found.peak_utilisation == 60
    assert found.peak_memory == pytest.approx(10e9 + 1e6 * 13.1)
    assert found.joules == pytest.approx(200 * 10.05)
    assert found.images_per_second == pytest.approx(60_000 / 10.05)
    assert found.images_per_joule == pytest.approx(60_000 / 2010)
    assert found.missing == ()
    assert found.notes == ()


def test_the_mean_is_over_time_and_not_over_readings():
    # Many readings while busy, one a second while idle: extra looks must not weigh more.
    store = Store(Header("made up", "2026-11-21T10:00:00+01:00", EVERY, 0.0))
    gpu = {"key": "gpu0", "name": "GPU 0", "sort": "gpu"}
    store.take([{"source": "gpus", "metrics": ["utilisation"], "devices": [gpu]}])
    store.take([[0, t / 100, [100]] for t in range(501)])
    store.take([[0, 5 + t, [0]] for t in range(1, 6)])
    assert one(store.recording(), 0.0, 10.0).utilisation == pytest.approx(50)


edges = st.tuples(st.floats(0.5, 17), st.floats(2.0, 10)).filter(lambda e: sum(e) < 19.5)
WAVES = watched(lambda t, _: ((t * 7) % 100, 1e9, 100 + t * 5, 100 * t + 2.5 * t * t))


@settings(max_examples=60, deadline=None)
@given(edges)
def test_energy_by_the_counter_is_the_integral_of_power(edge):
    start, end = edge[0], sum(edge)
    expected = 100 * (end - start) + 2.5 * (end**2 - start**2)
    assert one(WAVES, start, end).joules == pytest.approx(expected, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(edges)
def test_spans_side_by_side_add_up(edge):
    start, end = edge[0], sum(edge)
    middle = (start + end) / 2
    whole, parts = one(WAVES, start, end), [one(WAVES, start, middle), one(WAVES, middle, end)]
    assert sum(part.joules or 0 for part in parts) == pytest.approx(whole.joules, rel=1e-6) or any(
        part.why("joules") for part in parts
    )
    busy = sum(part.utilisation * part.seconds for part in parts)
    assert busy == pytest.approx(whole.utilisation * whole.seconds, rel=1e-6)


def test_a_span_of_few_updates_is_too_short_for_joules():
    recording = watched(steady)
    assert one(recording, 5.0, 5.8).why("joules") == "too short to measure"
    assert one(recording, 5.0, 6.2).joules == pytest.approx(240)


def test_a_slow_counter_needs_a_longer_span():
    recording = watched(lambda t, _: (60, 1e9, None, 200.0 * int(t + 1e-9)), seconds=60)
    assert one(recording, 5.0, 12.0).why("joules") == "too short to measure"
    assert one(recording, 5.0, 45.0).joules == pytest.approx(8000, rel=0.06)


def test_without_a_counter_power_is_summed_and_that_is_said():
    found = one(watched(lambda t, _: (60, 1e9, 200.0, None)), 3.0, 13.0)
    assert found.joules == pytest.approx(2000)
    assert "summed from its power" in found.notes[0]


def test_a_counter_that_began_anew_is_not_believed():
    def anew(t, _):
        return 60, 1e9, None, 200 * t + (1e6 if t < 8 else 0)

    assert one(watched(anew), 3.0, 13.0).why("joules") == "implausible"
    assert one(watched(anew), 9.0, 19.0).joules == pytest.approx(2000)


@pytest.mark.parametrize("why", ["not supported", "refused", "lost", "implausible", "silent"])
def test_what_is_missing_has_its_reason_and_is_never_zero(why):
    states = [State(0.0, "gpu0", "", why, f"It is {why}.")]
    recording = watched(lambda *_: (None, None, None, None), states=states)
    found = one(recording, 3.0, 13.0, images=100)
    fields = ("utilisation", "peak_utilisation", "peak_memory", "joules")
    assert [getattr(found, name) for name in fields] == [None] * 4
    assert [found.why(name) for name in fields] == [why] * 4
    assert found.images_per_joule is None
    text = str(table(recording))
    assert why in text
    assert f"It is {why}." in text
    assert " 0 " not in text.splitlines()[1]


def test_a_state_that_is_over_is_no_reason_later():
    states = [State(1.0, "gpu0", "", "lost", "gone"), State(2.0, "gpu0", "", "fine", "back")]
    recording = watched(lambda *_: (None, None, None, None), states=states)
    assert one(recording, 3.0, 13.0).why("utilisation") == "not supported"
    assert one(recording, 1.5, 13.0).why("utilisation") == "lost"


def test_a_device_that_was_lost_for_a_while_is_judged_by_the_rest_and_that_is_said():
    def lost(t, _):
        return (60, 1e9, 200.0, 200.0 * t) if not 5 < t < 9 else (None,) * 4

    found = one(watched(lost), 0.0, 20.0)
    assert found.utilisation == pytest.approx(60)
    assert "was known for 8" in found.notes[0]
    assert one(watched(lost), 5.5, 8.5).utilisation is None
    # The hardware's counter went on meanwhile.
    assert found.joules == pytest.approx(4000)


def test_a_span_that_began_before_the_first_look_is_still_whole():
    recording = watched(lambda t, d: steady(t, d) if t > 0.35 else None)
    assert one(recording, 0.0, 10.0).joules == pytest.approx(2000)
    assert one(recording, 30.0, 40.0).why("joules") == "not seen"


def test_several_devices_have_a_row_for_all():
    def two(t, device):
        return (
            (80, 10e9 - device * 1e9, 300.0, 300.0 * t) if device else (20, 5e9, 100.0, 100.0 * t)
        )

    first, second, both = use(watched(two, devices=2), Span("epoch", 5.0, 15.0, images=1000))
    assert (first.device, second.device, both.device) == ("gpu0", "gpu1", "all")
    assert both.utilisation == pytest.approx(50)
    assert both.peak_utilisation == pytest.approx(50)
    assert both.peak_memory == pytest.approx(14e9)
    assert both.joules == pytest.approx(4000)
    assert both.images_per_joule == pytest.approx(0.25)
    # Images belong to the span and not to one of its devices.
    assert first.images_per_second is None


def test_a_sum_with_a_part_missing_is_missing():
    def half(t, device):
        return (20, 5e9, None, None) if device else steady(t, device)

    states = [State(0.0, "gpu1", metric, "not supported", "no") for metric in ("power", "energy")]
    *_, both = use(watched(half, devices=2, states=states), Span("epoch", 5.0, 15.0))
    assert both.joules is None
    assert both.why("joules") == "not supported"
    assert both.utilisation == pytest.approx(40)


def test_slices_of_a_gpu_are_shown_and_not_counted_twice():
    store = Store(Header("made up", "2026-11-21T10:00:00+01:00", EVERY, 0.0))
    gpu = {"key": "gpu0", "name": "H200", "sort": "gpu"}
    parts = [{"key": f"mig{i}", "name": "1g", "sort": "mig", "part_of": "gpu0"} for i in range(2)]
    store.take([{"source": "gpus", "metrics": ["memory"], "devices": [gpu, *parts]}])
    store.take([[0, t / 10, [9e9], [5e9], [4e9]] for t in range(100)])
    found = use(store.recording(), Span("epoch", 1.0, 9.0, images=80))
    assert [row.device for row in found] == ["gpu0", "mig0", "mig1"]
    assert found[0].images_per_second == pytest.approx(10)


def test_a_span_that_goes_on_is_told_up_to_now():
    assert one(watched(steady), 5.0, None).seconds == pytest.approx(15.0)


def test_in_the_thinned_past_a_span_is_told_as_before():
    store = Store(Header("made up", "2026-11-21T10:00:00+01:00", EVERY, 0.0), capacity=1000)
    gpu = {"key": "gpu0", "name": "GPU 0", "sort": "gpu"}
    store.take([{"source": "gpus", "metrics": list(METRICS), "devices": [gpu]}])
    spans = [Span(f"epoch {i}", i * 30 + 5.03, i * 30 + 25.07) for i in range(30)]
    store.take([json.loads(span_line(span)) for span in spans])
    for tick in range(9100):
        t = tick / 10
        busy = any(span.start <= t <= span.end for span in spans)
        store.take([[0, t, [90 if busy else 0, 1e9, None, round(100 * t + 2 * t * t, 3)]]])
    recording = store.recording()
    assert recording.series[0].thinned
    for span in spans:
        found = one(recording, span.start, span.end)
        expected = 100 * 20.04 + 2 * (span.end**2 - span.start**2)
        assert found.joules == pytest.approx(expected, rel=0.01)
        assert found.utilisation == pytest.approx(90, rel=0.02)


def test_the_table_says_the_kind_and_a_span_once_for_all_its_devices():
    span = Span("epoch 1", 1.0, 9.0, 1000)
    with_span = dataclasses.replace(watched(steady, devices=2), spans=(span,))
    text = str(table(with_span))
    assert text.count("epoch 1") == 1
    assert text.splitlines()[0].split()[:3] == ["span", "device", "time"]
    assert "3.20 kJ" in text
    assert text.splitlines()[-1] == "Measured on made up."
    html = table(with_span)._repr_mimebundle_()["text/html"]
    assert html.startswith('<div class="labkit">')
    assert "Measured on made up." in html
    assert repr(table(with_span)) == "SpanTable(1 spans, measured on made up)"


def test_a_recording_without_spans_is_one_span():
    (row,) = table(watched(steady)).rows
    assert (row.span.name, row.seconds) == ("everything", pytest.approx(20.0))


def test_what_a_panel_needs_to_begin_is_no_gap():
    store = Store(Header("made up", "2026-11-21T10:00:00+01:00", EVERY, 0.0))
    cpu = {"key": "cpu", "name": "a CPU", "sort": "cpu"}
    store.take([{"source": "host", "metrics": ["utilisation"], "devices": [cpu]}])
    store.take([[0, round(0.3 + 0.1 * k, 1), [50]] for k in range(20)])
    (row,) = table(store.recording()).rows
    assert (row.span.name, row.span.start, row.notes) == ("everything", 0.3, ())
    assert row.utilisation == pytest.approx(50)


def test_without_a_gpu_the_processor_is_counted_and_its_cores_are_not():
    store = Store(Header("made up", "2026-11-21T10:00:00+01:00", EVERY, 0.0))
    cpu = {"key": "cpu", "name": "a CPU", "sort": "cpu"}
    core = {"key": "core0", "name": "core 0", "sort": "core", "part_of": "cpu"}
    store.take([{"source": "host", "metrics": ["utilisation"], "devices": [cpu, core]}])
    store.take([[0, t / 10, [50], [100]] for t in range(100)])
    (row,) = use(store.recording(), Span("cell", 1.0, 9.0))
    assert (row.device, row.utilisation) == ("cpu", pytest.approx(50))


def host_and_no_gpu(states, spans=()):
    """What is recorded where the GPUs cannot be seen: the processor alone."""
    store = Store(Header("made up", "2026-11-21T10:00:00+01:00", EVERY, 0.0))
    store.take([{"source": "gpus", "metrics": list(METRICS), "devices": []}])
    cpu = {"key": "cpu", "name": "a CPU", "sort": "cpu"}
    store.take([{"source": "host", "metrics": ["utilisation"], "devices": [cpu]}])
    store.take([[1, t / 10, [50]] for t in range(100)])
    store.take([json.loads(state_line(state, 0.0)) for state in states])
    return dataclasses.replace(store.recording(), spans=tuple(spans))


@pytest.mark.parametrize("why", ["not supported", "refused", "lost", "silent", "note"])
def test_what_is_wrong_with_all_gpus_is_said_where_the_processor_is_counted(why):
    states = [State(0.0, "gpus", "", why, "The driver does not fit its library.")]
    recording = host_and_no_gpu(states)
    assert "The driver does not fit its library." in str(table(recording))
    assert "The driver does not fit its library." in recording.figure().alt


def test_what_was_wrong_with_all_gpus_and_is_over_is_not_said():
    told = ((0.0, "silent", "They are silent."), (1.0, "fine", "Back."))
    states = [State(time, "gpus", "", why, says) for time, why, says in told]
    text = str(table(host_and_no_gpu(states)))
    assert "silent" not in text
    assert "Back" not in text


def test_a_span_that_goes_on_has_no_images_yet():
    span = Span("epoch 7", 5.0, None, images=60_000)
    for devices, count in ((1, 1), (2, 3)):
        text = str(table(dataclasses.replace(watched(steady, devices=devices), spans=(span,))))
        assert "epoch 7 (going on)" in text
        heads, *rows = text.splitlines()[: 1 + count]
        assert heads.endswith("images/s  images/J")
        assert all(row.split()[-2:] == ["–", "–"] for row in rows)


def test_a_span_that_begins_after_the_last_row_lasts_no_negative_time():
    assert one(watched(steady), 25.0, None).seconds == 0


@pytest.mark.parametrize(
    ("joules", "text"),
    [(0.0769, "0.0769 J"), (0.00333, "0.00333 J"), (0.0, "0 J"), (1.234, "1.23 J"),
     (9.996, "10.0 J"), (0.99996, "1.00 J"), (99.96, "100 J"), (999.7, "1.00 kJ"),
     (45_678, "45.7 kJ")],
)  # fmt: skip
def test_joules_have_three_digits_that_say_something(joules, text):
    assert joules_text(joules) == text


def test_few_images_for_each_joule_are_still_a_number():
    def heavy(t, _):
        return 60, 1e9, 500.0, 500.0 * t

    span = Span("epoch", 2.0, 18.0, images=26.64)
    text = str(table(dataclasses.replace(watched(heavy), spans=(span,))))
    assert text.splitlines()[1].split()[-1] == "0.00333"


def test_a_span_inside_a_gap_was_not_seen():
    def gap(t, _):
        return (60, 1e9, 200.0, 200.0 * t) if not 5 < t < 15 else (None,) * 4

    for edges in ((6.0, 14.0), (9.0, 9.5)):
        assert one(watched(gap), *edges).why("joules") == "not seen"
    states = [State(5.0, "gpu0", "", "lost", "gone"), State(15.0, "gpu0", "", "fine", "back")]
    assert one(watched(gap, states=states), 6.0, 14.0).why("joules") == "lost"


def test_where_the_counter_stands_still_power_is_tried():
    still = one(watched(lambda *_: (0, 1e9, 30.0, 5e8)), 3.0, 8.0)
    assert still.joules == pytest.approx(150)
    assert "counter stood still" in still.notes[0]
    nothing = one(watched(lambda *_: (0, 1e9, 0.0, 5e8)), 3.0, 18.0)
    assert nothing.joules == 0
    alone = one(watched(lambda *_: (0, 1e9, None, 5e8)), 3.0, 18.0)
    assert alone.why("joules") == "its counter stands still"


def test_a_counter_that_stops_in_the_middle_is_not_believed():
    def stuck(t, _):
        return 60, 1e9, 200.0, 200.0 * min(t, 8.0)

    assert one(watched(stuck), 10.0, 18.0).joules == pytest.approx(1600)


def test_a_long_span_of_few_updates_is_summed_from_power():
    slow = watched(lambda t, _: (60, 1e9, 200.0, 200.0 * (int(t) // 5 * 5)), seconds=60)
    found = one(slow, 5.0, 25.0)
    assert found.joules == pytest.approx(4000)
    assert "refreshed too seldom" in found.notes[0]


def test_a_counter_that_began_anew_is_named_as_such_where_power_is_summed():
    def anew(t, _):
        return 60, 1e9, 200.0, 200 * t + (1e6 if t < 8 else 0)

    found = one(watched(anew), 3.0, 13.0)
    assert found.joules == pytest.approx(2000)
    assert "began anew" in found.notes[0]
    assert "there is no counter" not in found.notes[0]


def test_one_look_is_too_short_to_measure_and_not_unsupported():
    found = one(watched(lambda *_: (None, None, None, 5.0), seconds=0.05), 0.0, 0.05)
    fields = ("utilisation", "peak_utilisation", "peak_memory", "joules")
    assert [found.why(name) for name in fields] == ["too short to measure"] * 4
    refused = [State(0.0, "gpu0", "power", "refused", "no")]
    found = one(watched(lambda *_: (None,) * 4, seconds=0.05, states=refused), 0.0, 0.05)
    assert found.why("joules") == "refused"


@pytest.mark.parametrize(
    "name", ["a\nb", "\x1b[2Jgone", "\ud800", "\x00", "\u202eback", "a\tb", "\r"]
)
def test_a_name_does_nothing_to_a_terminal_or_a_page(name):
    recording = watched(steady, name=name)
    recording = dataclasses.replace(recording, spans=(Span(name, 1.0, 19.0),))
    shown = table(recording)
    html = shown._repr_mimebundle_()["text/html"]
    (str(shown) + html).encode()
    assert str(shown).replace("\n", "").isprintable()
    assert html.replace("\N{NO-BREAK SPACE}", "").isprintable()
    assert str(shown).count("\n") == str(table(watched(steady))).count("\n")
    json.loads(span_line(recording.spans[0]))
    span_line(recording.spans[0]).encode()


@pytest.mark.parametrize(
    ("images", "written"), [(60_000, 60_000), (float("nan"), None), (np.int64(7), 7), (0.5, 0.5)]
)
def test_images_of_any_sort_can_be_written(images, written):
    assert json.loads(span_line(Span("epoch", 1.0, 2.0, images)))["images"] == written


def test_a_very_long_table_is_folded_on_a_page_and_whole_otherwise():
    spans = tuple(Span(f"epoch {i}", i / 100, i / 100 + 2) for i in range(150))
    shown = table(dataclasses.replace(watched(steady, devices=2), spans=spans))  # 450 rows
    html = shown._repr_mimebundle_()["text/html"]
    assert html.count("<tr>") == 2 * 100 + 1 + 1
    assert "250 more rows" in html
    assert len(shown.rows) == 450
    # The first row below the fold says which span it is of.
    below = html.partition("250 more rows")[2].partition("</tr><tr>")[2]
    assert "epoch\N{NO-BREAK SPACE}116" in below[:80]
    few = table(dataclasses.replace(watched(steady), spans=spans))
    assert "more rows" not in few._repr_mimebundle_()["text/html"]


def test_a_table_does_not_ask_for_the_same_again_for_every_span(monkeypatch):
    spans = tuple(Span(f"epoch {i}", i / 100, i / 100 + 2) for i in range(100))
    recording = dataclasses.replace(watched(steady, devices=2), spans=spans)
    asked = []
    monkeypatch.setattr(np, "median", lambda *a: asked.append(a) or float(np.quantile(a[0], 0.5)))
    table(recording)
    assert len(asked) == 2  # the period of each device's counter


def test_a_span_of_no_time_at_all_is_too_short():
    found = one(watched(steady), 5.05, 5.05, images=10)
    assert found.why("joules") == "too short to measure"
    assert found.images_per_second is None


def test_between_two_looks_is_too_short_even_where_utilisation_is_unknown():
    def energy_alone(t, _):
        return (60, 1e9, None, 200.0 * t) if t < 5 else (None, 1e9, None, 200.0 * t)

    assert one(watched(energy_alone), 8.0, 8.5).why("joules") == "too short to measure"
