"""A recording comes back as it was saved; a damaged file is read up to the damage."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.kinds import LabError
from labkit.telemetry.format import (
    Cost,
    Header,
    RecordingEnd,
    Source,
    Span,
    line,
    row_line,
    values_text,
)
from labkit.telemetry.metrics import OWN, Device, DeviceState, Process, Processes
from labkit.telemetry.recording import Recorder, read, replay
from tests.telemetry.recorders import cpu, gpus, recorder, recording, take

HEADER = Header("NVIDIA H200 × 2", "2026-11-21T10:00:00+01:00", 0.1, 1234.5)
METRICS = ("utilisation", "memory", "energy")
GPUS = tuple(Device(f"gpu{i}", "NVIDIA H200", "gpu", 150e9, 700) for i in range(2))
CPU = (Device("cpu", "a CPU", "cpu"), Device("core0", "core 0", "core", part_of="cpu"))


def lines_of(ticks=20):
    lines = [line(HEADER), line(Source("gpus", METRICS, GPUS))]
    lines.append(line(Source("host", ("utilisation",), CPU)))
    for k in range(1, ticks + 1):
        values = ((k % 101, 41e9 + k, 1e6 + k * 7.25), (None, None, None))
        lines.append(row_line(0, k / 10, values_text(values)))
        lines.append(row_line(1, k / 10, "[12.5],[null]"))
    lines.append(line(DeviceState(0.5, "gpu1", "", "lost", "GPU 1 is lost.")))
    lines.append(line(Span("epoch 1", 0.2, 1.4, 60_000)))
    lines.append(line(Span("earlier", 0.1, 0.3)))
    lines += [line(Cost(0.01, 2.0)), line(RecordingEnd(2.05))]
    return lines


def written(folder, lines, end="\n"):
    file = folder / "r.jsonl"
    file.write_bytes(("\n".join(lines) + end).encode())
    return file


def rows_of(found):
    return sum(len(one.times) for one in found.series)


def test_all_of_a_file_is_read(tmp_path):
    found = read(written(tmp_path, lines_of()))
    assert found.header == HEADER
    assert str(found.kind) == "recorded on NVIDIA H200 × 2, 2026-11-21 10:00"
    assert found.devices == (*GPUS, *CPU)
    times, values = found.column("gpu0", "energy")
    assert times.tolist() == [k / 10 for k in range(1, 21)]
    assert values[:2].tolist() == [1e6 + 7.25, 1e6 + 14.5]
    assert len(found.column("gpu1", "memory")[0]) == 0
    assert [span.name for span in found.spans] == ["earlier", "epoch 1"]
    assert found.states[0].why == "lost"
    assert (found.seconds, found.cost, found.damage) == (2.05, 0.01, None)
    assert "4 devices" in repr(found)


def test_what_is_saved_is_read(tmp_path):
    live = recording(recorder(*lines_of()[1:]))
    live.save(tmp_path / "saved.jsonl")
    again = read(tmp_path / "saved.jsonl")
    assert (again.spans, again.states, again.damage) == (live.spans, live.states, None)
    for one, other in zip(live.series, again.series, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-4)
    with pytest.raises(LabError, match="cannot be written"):
        live.save(tmp_path)


def test_two_recordings_share_an_axis_and_each_span_is_of_its_own_devices(tmp_path):
    for name, busy, every in (("before", 20, 0.1), ("after", 80, 2)):
        rows = [[0, k * every, [busy, 100.0, 10 * k]] for k in range(1, 41)]
        span = {"span": "epoch", "start": 1.0, "end": 30 * every, "images": 100, "loss": 0.5}
        lost = {"state": "lost", "time": 0.5, "device": "gpu0", "metric": "clock", "says": name}
        made = Recorder(dataclasses.replace(HEADER, every=every))
        take(made, gpus(), *rows, span, lost)
        recording(made).save(tmp_path / f"{name}.jsonl")
    both = replay(tmp_path / "before.jsonl", tmp_path / "after.jsonl")
    assert [one.label for one in both.devices] == ["before · GPU 0", "after · GPU 0"]
    found = [(row.span.name, row.label, row.text("utilisation")) for row in both.table().rows]
    assert found == [
        ("epoch · before", "before · GPU 0", "20 %"),
        ("epoch · after", "after · GPU 0", "80 %"),
    ]
    assert both.column("after/gpu0", "power")[0].tolist() == [k * 2 for k in range(1, 41)]
    assert [one.device for one in both.states] == ["before/gpu0", "after/gpu0"]
    assert "before" in str(both.kind)


def test_a_recording_from_a_formula_says_so_everywhere(tmp_path):
    header = dataclasses.replace(HEADER, modelled="two GPUs of a formula")
    found = read(written(tmp_path, [line(header), *lines_of()[1:]]))
    assert str(found.kind) == "modelled: two GPUs of a formula"
    assert "Modelled: two GPUs of a formula." in str(found.table())
    assert '"stamp": "modelled: two GPUs of a formula"' in found.html()


def test_who_else_used_a_gpu_stays_on_this_machine(tmp_path):
    used = Processes(1.0, "gpu0", (Process(7, "ann", 8e9), Process(8, OWN, None)))
    live = recording(recorder(*lines_of()[1:], line(used)))
    assert live.processes == (used,)
    live.save(tmp_path / "saved.jsonl")
    (kept,) = read(tmp_path / "saved.jsonl").processes
    assert [one.user for one in kept.found] == ["", OWN]
    assert any('"ann"' in text for text in live.lines(users=True))


def test_with_a_capacity_the_newest_rows_are_kept():
    rows = [[0, t / 10, [t % 101, None, t]] for t in range(5000)]
    (series,) = recording(recorder(gpus(), *rows, capacity=3 * 1000)).series
    assert series.times.tolist() == [t / 10 for t in range(4000, 5000)]
    assert series.values[-1, 0, 2] == 4999


def test_a_gap_is_neither_busy_nor_idle():
    rows = [[0, t, [100, None, None]] for t in (0, 0.1, 0.2, 60.0, 60.1)]
    made = recording(recorder(gpus(), *rows))
    _, busy, covered = made.busy(made.devices[0])
    assert (busy[-1], covered[-1]) == pytest.approx((0.3, 0.3))


def test_a_span_that_has_ended_stays_as_it_is_when_its_beginning_comes_late():
    ended = Span("epoch 1", 0.2, 1.4, 60_000)
    begun = dataclasses.replace(ended, end=None)
    made = recorder(*map(line, (begun, ended, begun)))
    assert (recording(made).spans, recording(made).seconds) == ((ended,), 1.4)


@pytest.mark.parametrize(
    ("title", "spans", "shown"),
    [
        ("Two batches", [("a", 0, 1)], "Two batches"),
        ("", [("all", 0, 5), ("a", 0, 1), ("b", 2, 5)], "all"),
        ("", [("a", 0, 1), ("b", 2, 5)], "2 × H200"),
    ],
)
def test_a_title_is_what_was_given_or_the_span_around_all_or_the_devices(title, spans, shown):
    made = Recorder(dataclasses.replace(HEADER, title=title))
    take(made, gpus(2, name="H200"), *(line(Span(*one)) for one in spans))
    assert recording(made).title == shown


quiet = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


WHOLE = ("\n".join(lines_of()) + "\n").encode()


@quiet
@given(st.integers(1, len(WHOLE) - 1))
def test_a_file_that_ends_anywhere_is_read_up_to_there(tmp_path, cut):
    file = tmp_path / "cut.jsonl"
    file.write_bytes(WHOLE[:cut])
    complete = WHOLE[:cut].count(b"\n") + (WHOLE[cut : cut + 1] == b"\n")
    if complete == 0:
        with pytest.raises(LabError, match="first line"):
            read(file)
        return
    found = read(file)
    assert rows_of(found) == sum(line[:1] == b"[" for line in WHOLE.split(b"\n")[:complete])
    if complete == WHOLE.count(b"\n"):
        assert found.damage is None
    else:
        at_line_end = b"\n" in (WHOLE[cut - 1 : cut], WHOLE[cut : cut + 1])
        assert ("no end" if at_line_end else f"Line {complete + 1} ") in found.damage


@pytest.mark.parametrize(
    "row",
    ["[0,9.9,[1,2,3]]", "[5,9.9,[1]]", "[0,-1e9,[1,2,3],[1,2,3]]", '{"span":"x"}',
     '[0,9.9,["a",2,3],[1,2,3]]', "[" * 10**5, f"[0,9.9,[1,2,{10**400}],[1,2,3]]",
     '{"span":"x","start":NaN}', '{"end":1e400}'],
    ids=lambda row: row[:20],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_damage_at_its_line(tmp_path, row):
    lines = lines_of()
    found = read(written(tmp_path, [*lines[:10], row, *lines[10:]]))
    assert found.damage.startswith("Line 11 ")
    assert rows_of(found) == 7


def test_a_line_that_cannot_be_read_does_not_make_a_panel_deaf():
    made = recorder(cpu("utilisation"), [0, 0.1, [50]])
    unknown = {"state": "asleep", "time": 1, "device": "cpu", "metric": "", "says": "It sleeps."}
    take(made, unknown, {"state": 7}, "[0,0.2", [0, 0.15, [1, 2]], [7, 0.3, [1]], {"span": 3})
    take(made, [0, 0.4, [60]])
    found = recording(made)
    assert found.column("cpu", "utilisation")[1].tolist() == [50, 60]
    assert [state.says for state in found.states] == ["It sleeps."]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "first line"),
        (b'{"nbformat": 4, "cells": []}\n', "not say that this is a recording"),
        (b'{"labkit":"recording","format":2,"where":""}\n', "format 2"),
    ],
)
def test_what_is_not_a_recording_is_named_as_such(tmp_path, content, says):
    file = tmp_path / "foreign"
    file.write_bytes(content)
    with pytest.raises(LabError, match=says) as fault:
        read(file)
    assert str(file) in str(fault.value)


def test_an_unknown_column_is_an_error_with_the_known_names(tmp_path):
    found = read(written(tmp_path, lines_of()))
    with pytest.raises(LabError, match="gpu0, gpu1, cpu, core0"):
        found.column("gpu7", "energy")
    with pytest.raises(LabError, match="utilisation, memory, energy"):
        found.column("gpu0", "colour")
    assert len(found.column("cpu", "power")[0]) == 0  # a metric that this processor does not give


def test_a_notebook_gets_text_a_picture_and_a_panel(tmp_path, monkeypatch):
    found = read(written(tmp_path, lines_of()))
    monkeypatch.delenv("LABKIT_PICTURES", raising=False)
    data, metadata = found._repr_mimebundle_()
    assert data.keys() == {"text/plain", "image/png", "text/html"}
    assert "recorded on NVIDIA H200" in data["text/html"]
    assert metadata["image/png"]["alt"] in data["text/html"]
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    assert found._repr_mimebundle_()[0].keys() == {"text/plain", "image/png"}
