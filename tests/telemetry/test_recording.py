"""A recording comes back as it was saved; a damaged file is read up to the damage."""

import dataclasses
import json
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.kinds import LabError, measured
from labkit.telemetry.format import (
    Header,
    Span,
    cost_line,
    end_line,
    header_line,
    row_line,
    source_line,
    span_line,
    state_line,
)
from labkit.telemetry.metrics import Device, Row, State
from labkit.telemetry.recording import Recorder, read
from tests.telemetry.recorders import cpu, recorder, recording, take

HEADER = Header("NVIDIA H200 × 2", "2026-11-21T10:00:00+01:00", 0.1, 1234.5)
METRICS = ("utilisation", "memory", "energy")
GPUS = tuple(Device(f"gpu{i}", "NVIDIA H200", "gpu", 150e9, 700) for i in range(2))
CPU = (Device("cpu", "a CPU", "cpu"), Device("core0", "core 0", "core", part_of="cpu"))


def lines_of(ticks=20):
    lines = [header_line(HEADER), source_line("gpus", METRICS, GPUS)]
    lines.append(source_line("host", ("utilisation",), CPU))
    for k in range(1, ticks + 1):
        values = ((k % 101, 41e9 + k, 1e6 + k * 7.25), (None, None, None))
        lines.append(row_line(0, Row(k / 10, values), 0.0))
        lines.append(row_line(1, Row(k / 10, ((12.5,), (None,))), 0.0))
    lines.append(state_line(State(0.5, "gpu1", "", "lost", "GPU 1 is lost."), 0.0))
    lines.append(span_line(Span("epoch 1", 0.2, 1.4, 60_000, "training")))
    lines.append(span_line(Span("earlier", 0.1, 0.3)))
    lines += [cost_line(2.0, 0.01), end_line(2.05)]
    return lines


def written(folder, lines, end="\n"):
    file = folder / "r.jsonl"
    file.write_bytes(("\n".join(lines) + end).encode())
    return file


def same(one, other):
    """Everything but the kind, which a file says differently."""
    for name in ("header", "spans", "states", "seconds", "cost"):
        assert getattr(one, name) == getattr(other, name)
    for a, b in zip(one.series, other.series, strict=True):
        assert (a.source, a.metrics, a.devices) == (b.source, b.metrics, b.devices)
        np.testing.assert_array_equal(a.times, b.times)
        np.testing.assert_allclose(a.values, b.values, rtol=1e-12, atol=1e-9)


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


def test_a_file_and_the_recorder_of_a_panel_agree(tmp_path):
    lines = lines_of(300)
    live = Recorder(HEADER)
    live.take("\n".join(lines))
    same(live.recording(measured("here")), read(written(tmp_path, lines)))


def test_sums_are_not_lost_by_saving_what_was_thinned(tmp_path):
    thinned = Recorder(HEADER, capacity=1000)
    thinned.take("\n".join(lines_of(3000)))
    live = thinned.recording(measured("here"))
    live.save(tmp_path / "thin.jsonl")
    again = read(tmp_path / "thin.jsonl")
    assert live.series[0].thinned
    assert again.series[0].thinned
    for metric in ("busy_seconds", "covered_seconds"):
        sums = again.column("gpu0", metric)[1], live.column("gpu0", metric)[1]
        np.testing.assert_allclose(*sums, atol=1e-3)


number = st.none() | st.integers(0, 10**12) | st.floats(0, 1e12).map(lambda x: round(x, 3))
matrices = st.tuples(st.integers(0, 3), st.integers(0, 3)).flatmap(
    lambda shape: st.tuples(
        st.just(shape),
        st.lists(
            st.lists(
                st.lists(number, min_size=shape[1], max_size=shape[1]),
                min_size=shape[0],
                max_size=shape[0],
            ),
            max_size=12,
        ),
    )
)
words = st.text(max_size=20)
span = st.builds(
    Span, words, st.integers(0, 99).map(float), st.none() | st.integers(99, 200).map(float),
    st.none() | st.integers(1, 10**6), st.sampled_from(["you", "cell", "training", "keras"]),
)  # fmt: skip
quiet = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quiet
@given(matrices, st.lists(span, max_size=4), words)
def test_any_recording_survives_saving_and_reading(tmp_path, matrix, spans, where):
    (devices, metrics), rows = matrix
    names = ("memory", "energy", "clock")[:metrics]
    made = Recorder(dataclasses.replace(HEADER, where=where))
    take(made, source_line("gpus", names, [Device(f"g{i}", where, "gpu") for i in range(devices)]))
    take(made, *([0, k / 10, *row] for k, row in enumerate(rows)), *map(span_line, spans))
    live = made.recording(measured(where))
    live.save(tmp_path / "any.jsonl")
    again = read(tmp_path / "any.jsonl")
    assert again.damage is None
    assert (again.header, again.spans) == (live.header, live.spans)
    np.testing.assert_allclose(again.series[0].values, live.series[0].values, atol=1e-4, rtol=1e-15)
    assert len(live.series[0].times) == len(rows)


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


@quiet
@given(
    st.integers(1, WHOLE.count(b"\n") - 1),
    st.binary(min_size=1, max_size=8).filter(lambda junk: b"\n" not in junk),
    st.integers(0, 30),
)
def test_a_damaged_line_is_named_and_all_before_it_is_read(tmp_path, line, junk, at):
    lines = WHOLE.split(b"\n")[:-1]
    broken = lines[line][:at] + junk + lines[line][at + len(junk) :]
    file = tmp_path / "broken.jsonl"
    file.write_bytes(b"\n".join([*lines[:line], broken, *lines[line + 1 :]]) + b"\n")
    found = read(file)  # never anything but a recording
    before = sum(one[:1] == b"[" for one in lines[:line])
    assert rows_of(found) >= before
    try:
        json.loads(broken.decode(errors="replace"))  # changed, but still a line
    except ValueError:
        if broken.strip():
            assert f"Line {line + 1} " in found.damage
            assert rows_of(found) == before


@pytest.mark.parametrize(
    "row",
    ["[0,9.9,[1,2,3]]", "[0,9.9,[1,2],[1,2]]", "[5,9.9,[1]]", "[]", "[0]", "[0,9.9,7,8]",
     "[0,9.9,[1,2,3],[1,2,3]", "[0,null,[1,2,3],[1,2,3]]",
     '{"span":"x"}', "[0,-1e9,[1,2,3],[1,2,3]]", '[0,9.9,["a",2,3],[1,2,3]]'],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_damage_at_its_line(tmp_path, row):
    lines = lines_of()
    found = read(written(tmp_path, [*lines[:10], row, *lines[10:]]))
    assert found.damage.startswith("Line 11 ")
    assert rows_of(found) == 7


def test_what_a_newer_labkit_adds_is_skipped(tmp_path):
    lines = lines_of()
    lines[1] = source_line("gpus", METRICS, [GPUS[0], dataclasses.replace(GPUS[1], sort="npu")])
    newer = ['{"weather":"fine"}', '{"state":"asleep","time":1,"device":"","metric":"","says":""}']
    found = read(written(tmp_path, [*lines[:5], *newer, *lines[5:]]))
    assert found.damage is None
    assert [one.key for one in found.counted] == ["gpu0"]
    assert len(found.column("gpu0", "energy")[0]) == 20
    assert found.table().rows


def test_a_line_that_cannot_be_read_does_not_make_a_panel_deaf():
    made = recorder(cpu("utilisation"), [0, 0.1, [50]])
    unknown = {"state": "asleep", "time": 1, "device": "cpu", "metric": "", "says": "It sleeps."}
    take(made, unknown, {"state": 7}, "[0,0.2", [0, 0.15, [1, 2]], [7, 0.3, [1]], {"span": 3})
    take(made, [0, 0.4, [60]])
    found = recording(made)
    assert found.column("cpu", "utilisation")[1].tolist() == [50, 60]
    assert "It sleeps." in [state.says for state in found.states]
    assert "5 lines" in found.states[-1].says


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "first line"),
        (b'{"nbformat": 4, "cells": []}\n', "not say that this is a recording"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "first line"),
        (b'{"labkit":"recording","format":2,"where":""}\n', "format 2"),
        (b'{"labkit":"recording","format":1,"where":"x"', "cut short"),
        (b"[1,2]\n", "not say that this is a recording"),
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


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    found = read(written(tmp_path, lines_of()))
    before = (tmp_path / "r.jsonl").read_bytes()

    def full(self, target):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(LabError, match="No space left"):
        found.save(tmp_path / "r.jsonl")
    assert (tmp_path / "r.jsonl").read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["r.jsonl"]


def test_a_notebook_gets_text_a_picture_and_a_panel(tmp_path, monkeypatch):
    found = read(written(tmp_path, lines_of()))
    monkeypatch.delenv("LABKIT_PICTURES", raising=False)
    data, metadata = found._repr_mimebundle_()
    assert data.keys() == {"text/plain", "image/png", "text/html"}
    assert "recorded on NVIDIA H200" in data["text/html"]
    assert metadata["image/png"]["alt"] in data["text/html"]
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    assert found._repr_mimebundle_()[0].keys() == {"text/plain", "image/png"}


def test_a_span_comes_twice_and_is_one():
    made = recorder(span_line(Span("epoch", 1.0)))
    assert recording(made).spans == (Span("epoch", 1.0),)
    made.add_span(Span("epoch", 1.0, 2.0, 10, "you"))
    assert recording(made).spans == (Span("epoch", 1.0, 2.0, 10, "you"),)


def test_of_many_spans_the_last_ones_stay():
    made = recorder()
    for i in range(11_000):
        made.add_span(Span("step", float(i), i + 0.5))
    found = recording(made)
    assert len(found.spans) == 10_000
    assert found.spans[-1].start == 10_999
