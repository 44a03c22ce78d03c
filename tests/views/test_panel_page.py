"""The panel as HTML: its code and its data are inside, whole, small and harmless."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import struct
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.views.panel_data import COUNTERS, MOST_ROWS, packed
from labkit.views.panel_page import MODULES, STATIC, bundle, document, page, style
from tests.views.panel_recordings import METRICS, made

HERE = Path(__file__).parent
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="There is no node here to run JavaScript.")
UNPACK = """
import { readFileSync } from "node:fs";
import { unpack } from "%s";
const about = await unpack(readFileSync(0, "utf8"));
const sources = about.sources.map((one) => ({ ...one, times: [...one.times],
  columns: one.columns.map((column) => [...column.make()].map((x) => (x === x ? x : null))) }));
process.stdout.write(JSON.stringify({ ...about, sources }));
"""


def unpacked(recording):
    """What the page's own code makes of it."""
    program = UNPACK % (STATIC / "panel_unpack.mjs").as_uri()
    answer = subprocess.run(
        [NODE, "--input-type=module", "-e", program],
        input=packed(recording),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@needs_node
def test_the_modules_do_what_they_promise():
    answer = subprocess.run(
        [NODE, "--test", *sorted(map(str, HERE.glob("*.test.mjs")))],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stdout[-5000:]
    assert "# skipped 0" in answer.stdout
    assert int(re.search(r"# pass (\d+)", answer.stdout)[1]) >= 42


@needs_node
@pytest.mark.parametrize("seconds", [30, 6000])
def test_what_is_packed_is_unpacked_in_the_page(seconds):
    recording = made(gpus=2, seconds=seconds)
    found = unpacked(recording)
    (series,) = recording.series
    (source,) = found["sources"]
    kept = [name for name in METRICS if name not in COUNTERS]
    assert source["metrics"] == kept
    np.testing.assert_allclose(
        source["times"][:1] + source["times"][-1:], series.times[[0, -1]], atol=1
    )
    few = len(series.times) <= MOST_ROWS
    assert len(source["times"]) <= MOST_ROWS + 2
    for number, column in enumerate(source["columns"]):
        was = series.values[:, number // len(kept), METRICS.index(kept[number % len(kept)])]
        now = np.array([np.nan if one is None else one for one in column])
        if np.isnan(was).all():
            assert np.isnan(now).all()
            continue
        step = (was.max() - was.min()) / 250
        assert abs(now.max() - was.max()) <= step
        assert abs(now.min() - was.min()) <= step
        if few:
            np.testing.assert_allclose(now, was, atol=step)
    assert [one["name"] for one in found["spans"]] == [one.name for one in recording.spans]
    assert {one["why"] for one in found["states"]} == {"not supported"}


@needs_node
@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.floats(-(2.0**40), 2.0**40, width=32)), min_size=1, max_size=60
    )
)
def test_any_column_comes_back_with_its_gaps(column):
    recording = made(gpus=1, seconds=len(column) * 0.1)
    (series,) = recording.series
    values = np.full((len(column), 1, len(METRICS)), np.nan)
    values[:, 0, 0] = [np.nan if one is None else one for one in column]
    times = np.arange(len(column)) * 0.1
    changed = replace(series, times=times, values=values)
    (source,) = unpacked(replace(recording, series=(changed,)))["sources"]
    numbers = [one for one in column if one is not None]
    within = (max(numbers) - min(numbers)) / 4000 + 1e-6 * max(map(abs, numbers)) if numbers else 0
    for was, now in zip(column, source["columns"][0], strict=True):
        assert (was is None) == (now is None)
        assert was is None or abs(was - now) <= within


def test_more_rows_than_a_page_can_use_are_thinned_and_every_extreme_stays():
    recording = made(gpus=1, seconds=9000)
    (series,) = recording.series
    series.values[12_345, 0, 0] = 100.0
    text = gzip.decompress(base64.b64decode(packed(recording)))
    about = json.loads(text[4 : 4 + struct.unpack("<I", text[:4])[0]])
    (source,) = about["sources"]
    assert source["rows"] <= MOST_ROWS + 2
    assert source["ranges"][0][1] == 100.0
    assert source["ranges"][0][0] == np.nanmin(series.values[:, 0, 0])


def test_an_empty_recording_can_be_shown():
    recording = made()
    (series,) = recording.series
    empty = replace(series, times=series.times[:0], values=series.values[:0])
    assert "<script>" in page(
        replace(recording, series=(empty,), spans=(), seconds=0.0),
        key="k", live=True, alt="Nothing yet.", stamp="measured here",
    )  # fmt: skip


def test_the_same_recording_is_the_same_html():
    both = {
        page(made(), key="k", live=False, alt="Two GPUs.", png=b"png", stamp="recorded")
        for _ in range(2)
    }
    assert len(both) == 1


def test_an_hour_of_eight_gpus_is_not_above_three_megabytes():
    fragment = page(made(8, 3600), key="k", live=False, alt="Eight GPUs.", stamp="recorded")
    assert len(fragment) < 3_100_000


def test_the_code_is_small_and_asks_nobody():
    fragment = page(None, key="k", live=True, alt="A panel.", stamp="measured here")
    assert len(fragment) < 45_000
    everything = bundle() + style() + fragment
    assert (
        re.findall(r"https?://|\bfetch\(|XMLHttpRequest|@import|\beval\(|new Function", everything)
        == []
    )


def test_no_two_modules_use_the_same_name():
    # Joined they are one program: a second function of a name would silently replace the first.
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", bundle(), re.MULTILINE)
    assert sorted(names) == sorted(set(names))
    assert {f"{name}.mjs" for name in MODULES} >= {path.name for path in STATIC.glob("panel*.mjs")}
    assert not re.search(r"^(import|export) ", bundle(), re.MULTILINE)


@needs_node
def test_the_joined_modules_are_a_program(tmp_path):
    script = tmp_path / "panel.js"
    script.write_text(f"(() => {{ 'use strict';\n{bundle()}\n}})();")
    answer = subprocess.run([NODE, "--check", script], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr


def test_words_of_a_reader_stay_words():
    evil = '</script><img src=x onerror="alert(1)"> <!-- "'
    fragment = page(None, key='a"b', live=True, alt=evil, stamp=evil)
    assert fragment.count("</script>") == 1
    assert fragment.endswith("</script>")
    assert "<img" not in fragment.split("<script>")[0]
    assert "<!--" not in fragment
    assert "<title>&lt;b&gt;</title>" in document(fragment, "<b>")


def test_without_javascript_there_is_a_picture_or_a_sentence():
    shown = page(None, key="k", live=True, alt="Two GPUs, 60 s.", png=b"PNG", stamp="here")
    still = shown.split("<script>")[0]
    assert 'alt="Two GPUs, 60 s."' in still
    assert base64.b64encode(b"PNG").decode() in still
    assert "Two GPUs, 60 s." in page(None, key="k", live=True, alt="Two GPUs, 60 s.", stamp="here")


def test_a_bridge_without_a_kernel_says_so_and_breaks_nothing():
    from labkit.views.live import Bridge

    bridge = Bridge("k")
    bridge.send(['{"end":1}', [0, 1.0, [2.0]]])
    bridge.close("stopped")
    bridge.send([[0, 2.0, [2.0]]])
    assert "kernel" in bridge.fault
    assert bridge.messages == 0


def test_a_span_goes_with_the_next_looks_unless_there_are_none(monkeypatch):
    from labkit.views import live

    now, sent = [100.0], []
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now[0]))
    bridge = live.Bridge("k")
    sent_to = SimpleNamespace(send=lambda said: sent.append(said.get("lines")), close=lambda: None)
    bridge._models = [sent_to]
    span, looks = '{"span":"a"}', "[0,1,[2]]"
    bridge.send([looks])
    now[0] += 0.3
    bridge.send([span], wait=True)
    assert sent == [f"[{looks}]"]
    now[0] += 0.2
    bridge.send([looks])
    assert sent[1:] == [f"[{span},{looks}]"]
    now[0] += 0.7  # no looks come
    bridge.send([span], wait=True)
    assert sent[2:] == [f"[{span}]"]
    now[0] += 0.1
    bridge.send([span], wait=True)
    bridge.close("stopped")
    assert sent[3:] == [f"[{span}]", None]


def test_the_modules_are_in_the_wheel(tmp_path):
    hatchling = pytest.importorskip("hatchling.builders.wheel")
    root = HERE.parents[1]
    (wheel,) = hatchling.WheelBuilder(str(root)).build(
        directory=str(tmp_path), versions=["standard"]
    )
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"labkit/views/static/{path.name}" for path in STATIC.iterdir()} <= names
