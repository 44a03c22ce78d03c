"""A recording comes back as it was saved; a damaged file is read up to the damage, and named."""

import contextlib
import dataclasses
import gzip
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.kinds import LabError, measured
from labkit.telemetry.lines import (
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
from labkit.telemetry.reading_files import read
from labkit.telemetry.store import Store

HEADER = Header("NVIDIA H200 × 2", "2026-11-21T10:00:00+01:00", 0.1, 1234.5)
METRICS = ("utilisation", "memory", "energy")
GPUS = tuple(Device(f"gpu{i}", "NVIDIA H200", "gpu", 150e9, 700) for i in range(2))
CPU = (Device("cpu", "a CPU", "cpu"), Device("core0", "core 0", "core", part_of="cpu"))


def lines_of(ticks=20):
    lines = [header_line(HEADER), source_line("gpus", METRICS, GPUS)]
    lines.append(source_line("host", ("utilisation",), CPU))
    for k in range(1, ticks + 1):
        t = k / 10
        values = ((k % 101, 41e9 + k, 1e6 + k * 7.25), (None, None, None))
        lines.append(row_line(0, Row(t, values), 0.0))
        lines.append(row_line(1, Row(t, ((12.5,), (None,))), 0.0))
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
    assert (one.header, one.spans, one.states) == (other.header, other.spans, other.states)
    assert (one.seconds, one.cost) == (other.seconds, other.cost)
    for a, b in zip(one.series, other.series, strict=True):
        assert (a.source, a.metrics, a.devices) == (b.source, b.metrics, b.devices)
        np.testing.assert_array_equal(a.times, b.times)
        np.testing.assert_allclose(a.values, b.values, rtol=1e-12, atol=1e-9)


def test_all_of_a_file_is_read(tmp_path):
    recording = read(written(tmp_path, lines_of()))
    assert recording.header == HEADER
    assert str(recording.kind) == "recorded on NVIDIA H200 × 2, 2026-11-21 10:00"
    assert [one.key for one in recording.devices] == ["gpu0", "gpu1", "cpu", "core0"]
    assert recording.devices[0] == GPUS[0]
    times, values = recording.column("gpu0", "energy")
    assert times.tolist() == [k / 10 for k in range(1, 21)]
    assert values[:2].tolist() == [1e6 + 7.25, 1e6 + 14.5]
    assert len(recording.column("gpu1", "memory")[0]) == 0
    assert [span.name for span in recording.spans] == ["earlier", "epoch 1"]
    assert recording.states[0].why == "lost"
    assert (recording.seconds, recording.cost, recording.damage) == (2.05, 0.01, None)
    assert repr(recording) == (
        "Recording(4 devices, 2.05 s, 2 spans, recorded on NVIDIA H200 × 2, 2026-11-21 10:00)"
    )


def test_what_is_saved_comes_back(tmp_path):
    recording = read(written(tmp_path, lines_of()))
    recording.save(tmp_path / "again.jsonl")
    again = read(tmp_path / "again.jsonl")
    same(again, recording)
    assert again.damage is None


def test_a_file_and_the_panel_that_wrote_it_agree(tmp_path):
    lines = lines_of(300)
    store = Store(HEADER)
    store.take([json.loads(line) for line in lines])
    same(store.recording(), read(written(tmp_path, lines)))
    assert store.recording().kind == measured("NVIDIA H200 × 2")


def test_sums_are_not_lost_by_saving_what_was_thinned(tmp_path):
    store = Store(HEADER, capacity=100)
    store.take([json.loads(line) for line in lines_of(3000)])
    live = store.recording()
    assert live.series[0].thinned
    live.save(tmp_path / "thin.jsonl")
    again = read(tmp_path / "thin.jsonl")
    assert again.series[0].thinned
    for metric in ("busy", "watched"):
        assert again.column("gpu0", metric)[1][-1] == pytest.approx(
            live.column("gpu0", metric)[1][-1], abs=1e-3
        )


number = st.none() | st.integers(0, 10**12) | st.floats(0, 1e12).map(lambda x: round(x, 3))
matrices = st.integers(0, 3).flatmap(
    lambda devices: st.integers(0, 3).flatmap(
        lambda metrics: st.tuples(
            st.just((devices, metrics)),
            st.lists(
                st.lists(
                    st.lists(number, min_size=metrics, max_size=metrics),
                    min_size=devices,
                    max_size=devices,
                ),
                max_size=12,
            ),
        )
    )
)
words = st.text(max_size=20)
span = st.builds(
    Span, words, st.integers(0, 99).map(float), st.none() | st.integers(99, 200).map(float),
    st.none() | st.integers(0, 10**6), st.sampled_from(["you", "cell", "training", "keras"]),
)  # fmt: skip
quiet = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@quiet
@given(matrices, st.lists(span, max_size=4), words)
def test_any_recording_survives_saving_and_reading(tmp_path, matrix, spans, where):
    (devices, metrics), rows = matrix
    names = ("memory", "energy", "clock")[:metrics]
    described = [Device(f"gpu{i}", where, "gpu") for i in range(devices)]
    header = dataclasses.replace(HEADER, where=where)
    store = Store(header)
    store.take([json.loads(source_line("gpus", names, described))])
    store.take([[0, k / 10, *row] for k, row in enumerate(rows)])
    store.take([json.loads(span_line(one)) for one in spans])
    store.recording().save(tmp_path / "any.jsonl")
    again = read(tmp_path / "any.jsonl")
    assert again.damage is None
    live = store.recording()
    assert (again.header, again.spans) == (live.header, live.spans)
    np.testing.assert_allclose(again.series[0].values, live.series[0].values, atol=1e-4, rtol=1e-15)


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
    recording = read(file)
    rows = sum(line[:1] == b"[" for line in WHOLE.split(b"\n")[:complete])
    assert sum(len(one.times) for one in recording.series) == rows
    if complete == WHOLE.count(b"\n"):
        assert recording.damage is None
    else:
        whole = WHOLE[cut - 1 : cut] == b"\n" or WHOLE[cut : cut + 1] == b"\n"
        assert ("no end" if whole else "cut short") in recording.damage


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
    recording = read(file)  # never anything but a recording
    before = sum(one[:1] == b"[" for one in lines[:line])
    assert sum(len(one.times) for one in recording.series) + _lost(recording) >= before
    with contextlib.suppress(ValueError):
        json.loads(broken)
        return  # changed, but still a line
    assert f"Line {line + 1} " in recording.damage
    assert sum(len(one.times) for one in recording.series) == before


def _lost(recording):
    """Rows that are out of order because the damage changed a time."""
    said = (recording.damage or "").split(" of its rows")[0].split()
    return int(said[-1]) if "out of order" in (recording.damage or "") else 0


@pytest.mark.parametrize(
    "row",
    ["[0,9.9,[1,2,3]]", "[0,9.9,[1,2],[1,2]]", '[0,9.9,["1",2,3],[1,2,3]]', "[5,9.9,[1]]", "[]",
     "[0,9.9,[true,2,3],[1,2,3]]", "[0,9.9,[NaN,2,3],[1,2,3]]", "[0,9.9,[1e999,2,3],[1,2,3]]",
     '[0,9.9,[1,2,3],[1,2,3]', "[0,null,[1,2,3],[1,2,3]]", "7", '{"span":"x"}', "\x00\x00",
     "[0,1e9,[1,2,3],[1,2,3]]", "[0,-1e9,[1,2,3],[1,2,3]]", '{"end":1e300}',
     '{"cost":1,"time":1e9}', '{"state":"lost","time":1e9,"device":"","metric":"","says":""}'],
)  # fmt: skip
def test_a_line_that_does_not_fit_is_damage_at_its_line(tmp_path, row):
    lines = lines_of()
    recording = read(written(tmp_path, [*lines[:10], row, *lines[10:]]))
    assert recording.damage.startswith("Line 11 ")
    assert sum(len(one.times) for one in recording.series) == 7


def test_two_halves_that_fit_together_are_still_two_damaged_lines(tmp_path):
    lines = lines_of(101)
    at = next(i for i, line in enumerate(lines) if ",[0,41" in line)  # both halves look like rows
    first, second = lines[at].split(",[0,41")
    recording = read(written(tmp_path, [*lines[:at], first, f"[0,41{second}", *lines[at + 1 :]]))
    assert recording.damage.startswith(f"Line {at + 1} ")


def test_a_source_that_is_named_again_may_have_other_devices(tmp_path):
    lines = lines_of(5)[:-1]
    lines.append(source_line("gpus", METRICS, GPUS[1:]))
    lines += [row_line(0, Row(0.6, ((99, 1, 1),)), 0.0), end_line(1.0)]
    recording = read(written(tmp_path, lines))
    assert recording.column("gpu1", "utilisation")[1].tolist() == [99]
    assert len(recording.column("gpu0", "utilisation")[0]) == 5


def test_what_a_newer_labkit_adds_is_passed_over(tmp_path):
    lines = lines_of()
    lines[1] = source_line("gpus", METRICS, [GPUS[0], dataclasses.replace(GPUS[1], sort="npu")])
    newer = ['{"weather":"fine"}', '{"state":"asleep","time":1,"device":"","metric":"","says":""}']
    recording = read(written(tmp_path, [*lines[:5], *newer, *lines[5:]]))
    assert recording.damage is None
    assert [one.key for one in recording.counted] == ["gpu0"]
    assert len(recording.column("gpu0", "energy")[0]) == 20
    assert recording.table().rows
    assert recording.figure().png


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b'{"nbformat": 4, "cells": []}\n', "not say that this is a recording"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "first line"),
        (b'{"labkit":"recording","format":2,"where":""}\n', "format 2"),
        (b'{"labkit":"recording","format":1,"where":"x"', "cut short"),
        (b'{"labkit":"recording","format":0,"where":""}\n', "format 0"),
        (b'{"labkit":"recording","format":true,"where":""}\n', "format True"),
        (gzip.compress(b'{"labkit":"recording","format":1}\n', mtime=0), "Unpack it first"),
        (b"[1,2]\n", "not say that this is a recording"),
        (b'{"labkit":"recording","format":1,"where":"x","when":"","every":0,"clock":1}\n', "0 s"),
    ],
)
def test_what_is_no_recording_is_named_as_such(tmp_path, content, says):
    file = tmp_path / "foreign"
    file.write_bytes(content)
    with pytest.raises(LabError, match=says) as fault:
        read(file)
    assert str(file) in str(fault.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(LabError, match="no file"):
        read(tmp_path / "nothing.jsonl")
    with pytest.raises(LabError, match="cannot be read"):
        read(tmp_path)


def test_a_recording_that_holds_nothing_is_still_one(tmp_path):
    recording = read(written(tmp_path, [header_line(HEADER)]))
    assert "no end" in recording.damage
    assert "No device was seen" in str(recording)
    assert recording.figure().alt.startswith("An empty recording")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    recording = dataclasses.replace(read(written(tmp_path, lines_of())), file=None)
    file = tmp_path / "r.jsonl"
    before = file.read_bytes()

    def full(self):
        yield "half"
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(type(recording), "lines", full)
    with pytest.raises(LabError, match="No space left"):
        recording.save(file)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["r.jsonl"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    recording = read(written(tmp_path, lines_of()))
    with pytest.raises(LabError, match="cannot be written"):
        recording.save(tmp_path / "no" / "r.jsonl")


def test_a_notebook_gets_text_a_picture_and_a_panel(tmp_path, monkeypatch):
    recording = read(written(tmp_path, lines_of()))
    monkeypatch.delenv("LABKIT_PICTURES", raising=False)
    data, metadata = recording._repr_mimebundle_()
    assert data.keys() == {"text/plain", "image/png", "text/html"}
    assert "recorded on NVIDIA H200" in data["text/html"]
    assert recording.stamp.endswith(" at 2026-11-21 10:00")
    assert metadata["image/png"]["alt"] in data["text/html"]
    monkeypatch.setenv("LABKIT_PICTURES", "still")
    assert recording._repr_mimebundle_()[0].keys() == {"text/plain", "image/png"}


def test_the_file_that_is_replayed_is_not_written_over(tmp_path):
    file = written(tmp_path, lines_of()[:-1], end='\n{"sour')
    before, recording = file.read_bytes(), read(file)
    (tmp_path / "link.jsonl").symlink_to(file)
    os.link(file, tmp_path / "same.jsonl")
    for name in ("r.jsonl", "link.jsonl", "same.jsonl"):
        with pytest.raises(LabError, match="is read from"):
            recording.save(tmp_path / name)
    assert file.read_bytes() == before
    recording.save(tmp_path / "other.jsonl")
    same(read(tmp_path / "other.jsonl"), recording)


@pytest.mark.parametrize("name", ["", ".", "/", "folder", "pipe", "socket"])
def test_only_a_file_is_written_to(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    recording = read(written(tmp_path, lines_of()))
    (tmp_path / "folder").mkdir()
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(LabError, match="cannot be written"):
            recording.save(name)
    assert Path("pipe").is_fifo()
    assert {one.name for one in tmp_path.iterdir()} == {"r.jsonl", "folder", "pipe", "socket"}


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    recording = read(written(tmp_path, lines_of()))
    (tmp_path / "far").mkdir()
    old = tmp_path / "far" / "old.jsonl"
    old.write_text("old")
    for name, behind in (("link", old), ("new", tmp_path / "far" / "new.jsonl")):
        (tmp_path / name).symlink_to(behind)
        recording.save(tmp_path / name)
        assert (tmp_path / name).is_symlink()
        same(read(behind), recording)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(LabError, match="cannot be written"):
        recording.save(tmp_path / "circle")


@pytest.mark.parametrize("name", ["r.jsonl/x.jsonl", "n" * 256, "null\0.jsonl", "no/x.jsonl"])
def test_a_name_that_cannot_be_is_a_sentence(tmp_path, name):
    recording = read(written(tmp_path, lines_of()))
    with pytest.raises(LabError, match="cannot be written"):
        recording.save(f"{tmp_path}/{name}")
    recording.save(tmp_path / ("n" * 250))  # as long as a name can be, nearly
    assert len(list(tmp_path.iterdir())) == 2


def test_a_blank_line_is_nothing(tmp_path):
    lines = lines_of()
    recording = read(written(tmp_path, [*lines[:10], "", "  ", *lines[10:]]))
    assert recording.damage is None
    assert len(recording.column("gpu0", "energy")[0]) == 20


def test_numbers_that_cannot_be_are_left_out_and_counted(tmp_path):
    lines = lines_of(20)
    odd = [[5000, -7, 2e6], [None, None, None]], [[-1, 41e9, -2], [None, None, None]]
    at = lines.index(next(line for line in lines if '"state"' in line))
    lines[at:at] = [json.dumps([0, 2 + k, *values]) for k, values in enumerate(odd)]
    recording = read(written(tmp_path, lines))
    assert recording.damage.startswith("4 of its numbers cannot be")
    assert recording.column("gpu0", "utilisation")[1].max() <= 100
    assert recording.column("gpu0", "memory")[1].min() >= 0
    assert recording.column("gpu0", "busy")[1][-1] < 2  # no sum has them in it
    assert recording.seconds == 3.0


def test_a_temperature_below_zero_can_be(tmp_path):
    lines = [header_line(HEADER), source_line("gpus", ["temperature"], GPUS[:1])]
    recording = read(written(tmp_path, [*lines, "[0,0.1,[-12]]", end_line(1.0)]))
    assert recording.damage is None
    assert recording.column("gpu0", "temperature")[1].tolist() == [-12]


def test_spans_that_cannot_be_are_left_out_and_counted(tmp_path):
    odd = [Span("backwards", 1.2, 0.4), Span("a century on", 3e9, 4e9), Span("ago", -1e12, 1.0)]
    lines = lines_of()
    recording = read(written(tmp_path, [*lines[:-1], *map(span_line, odd), lines[-1]]))
    assert [span.name for span in recording.spans] == ["earlier", "epoch 1"]
    assert recording.damage.startswith("3 of its spans cannot be")
    assert recording.seconds == 2.05


@pytest.mark.parametrize("images", [0, -5])
def test_no_images_are_no_number_of_images(tmp_path, images):
    lines = [header_line(HEADER), span_line(Span("epoch", 0.0, 1.0, images)), end_line(1.0)]
    (span,) = read(written(tmp_path, lines)).spans
    assert span.images is None


def test_half_a_character_can_be_read_and_saved(tmp_path):
    lines = lines_of()
    lines[0] = lines[0].replace("NVIDIA H200", "half \\ud83d of one")
    lines[1] = lines[1].replace("NVIDIA H200", "half \\ud83d").replace('"memory"', '"\\ud83d"')
    lines[-3] = lines[-3].replace("earlier", "half \\udcff")
    recording = read(written(tmp_path, lines))
    assert recording.damage is None
    for shown in (str(recording), repr(recording), recording.html(), recording.figure().alt):
        shown.encode()
    recording.save(tmp_path / "again.jsonl")
    assert read(tmp_path / "again.jsonl").spans == recording.spans


def test_a_span_that_is_told_when_it_begins_and_when_it_ends_is_one(tmp_path):
    told = [Span("epoch", 0.2, None, 10), Span("broken off", 0.3), Span("epoch", 0.2, 0.9, 10)]
    recording = read(written(tmp_path, [header_line(HEADER), *map(span_line, told), end_line(1.0)]))
    assert recording.spans == (told[2], told[1])
