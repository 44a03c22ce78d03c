"""The panel as HTML: its code and its data are inside, whole, small and harmless."""

from __future__ import annotations

import base64
import gc
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.views import live
from labkit.views.embed import STATIC, bundle, style
from labkit.views.live import Bridge
from labkit.views.panel_page import MODULES, MOST_ROWS, document, packed, page
from tests.views.panel_recordings import METRICS, made

HERE = Path(__file__).parent
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="There is no node here to run JavaScript.")
UNPACK = f"""
import {{ readFileSync }} from "node:fs";
import {{ unpack }} from "{(STATIC / "panel_data.mjs").as_uri()}";
const about = await unpack(readFileSync(0, "utf8"));
const sources = about.sources.map((one) => ({{ ...one, times: [...one.times],
  columns: one.columns.map(({{ values }}) => values?.map((x) => (x === x ? x : null))) }}));
process.stdout.write(JSON.stringify({{ ...about, sources }}));
"""


def node(*arguments, said=None):
    answer = subprocess.run(
        [NODE, *map(str, arguments)], input=said, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stdout[-5000:] + answer.stderr
    return answer.stdout


def unpacked(recording):
    """What the page's own code makes of it."""
    return json.loads(node("--input-type=module", "-e", UNPACK, said=packed(recording)))


def with_column(column):
    """One GPU whose first metric has these values."""
    recording = made(gpus=1, seconds=len(column) * 0.1)
    (series,) = recording.series
    values = np.full((len(column), 1, len(METRICS)), np.nan)
    values[:, 0, 0] = [np.nan if one is None else one for one in column]
    times = np.arange(len(column)) * 0.1
    return replace(recording, series=(replace(series, times=times, values=values),))


@needs_node
def test_the_modules_do_what_they_promise():
    assert "# fail 0" in node("--test", *sorted(HERE.glob("*.test.mjs")))


@needs_node
def test_what_is_packed_is_unpacked_in_the_page():
    recording = made(gpus=2, seconds=30)
    (series,) = recording.series
    assert unpacked(replace(recording, series=(), spans=()))["seconds"] == recording.seconds
    found = unpacked(recording)
    (source,) = found["sources"]
    assert source["metrics"] == list(METRICS)  # the live rows that follow have all of them
    np.testing.assert_allclose(source["times"], series.times, atol=1e-4)
    temperature = METRICS.index("temperature")
    np.testing.assert_allclose(
        source["columns"][len(METRICS) + temperature],
        series.values[:, 1, temperature], atol=0.01,
    )  # fmt: skip
    assert [one["name"] for one in found["spans"]] == [one.name for one in recording.spans]
    assert {one["why"] for one in found["states"]} == {"not supported"}


@needs_node
@settings(max_examples=6, deadline=None)
@given(st.lists(st.none() | st.floats(-(2.0**40), 2.0**40, width=32), min_size=1, max_size=60))
def test_any_column_comes_back_with_its_gaps(column):
    (source,) = unpacked(with_column(column))["sources"]
    numbers = [one for one in column if one is not None]
    within = (max(numbers) - min(numbers)) / 4000 + 1e-6 * max(map(abs, numbers)) if numbers else 0
    for was, now in zip(column, source["columns"][0] or [None] * len(column), strict=True):
        assert (was is None) == (now is None)
        assert was is None or abs(was - now) <= within


@needs_node
def test_more_rows_than_a_page_can_use_are_thinned_and_every_extreme_stays():
    column = np.full(90_000, 50.0)
    column[[12_345, 23_456]] = 100.0, 1.0
    (source,) = unpacked(with_column(column))["sources"]
    shown = np.array(source["columns"][0])
    assert len(shown) <= MOST_ROWS + 2
    assert (shown.max(), shown.min()) == pytest.approx((100, 1))
    assert source["times"][int(shown.argmax())] == pytest.approx(1234.5, abs=1)
    assert source["times"][-1] == pytest.approx(8999.9, abs=1)


def test_it_is_small_always_the_same_and_makes_no_request():
    same = {page(made(), key="k", live=False, alt="GPUs.", stamp="recorded") for _ in range(2)}
    assert len(same) == 1
    hour = page(made(8, 3600), key="k", live=False, alt="GPUs.", stamp="recorded")
    assert len(hour) < 3_100_000
    fragment = page(None, key="k", live=True, alt="A panel.", stamp="measured here")
    assert len(fragment) < 40_000
    code = bundle(MODULES) + style("panel") + fragment
    assert not re.findall(r"https?://|\bfetch\(|XMLHttpRequest|@import|\beval\(|new Function", code)


@needs_node
def test_the_joined_modules_are_one_program(tmp_path):
    # A second function of a name would silently replace the first.
    names = re.findall(
        r"^(?:async )?(?:function|const|let|class) (\w+)", bundle(MODULES), re.MULTILINE
    )
    assert sorted(names) == sorted(set(names))
    script = tmp_path / "panel.js"
    script.write_text(f"(() => {{ 'use strict';\n{bundle(MODULES)}\n}})();")
    node("--check", script)


def test_words_stay_words_and_without_javascript_there_is_a_picture_or_a_sentence():
    evil = '</script><img src=x onerror="alert(1)"> <!-- "'
    fragment = page(None, key='a"b', live=True, alt=evil, stamp=evil, ended=evil)
    assert fragment.count("</script>") == 1
    assert fragment.endswith("</script>")
    assert "<img" not in fragment.split("<script>")[0]
    assert "<!--" not in fragment
    assert "<title>&lt;b&gt;</title>" in document(fragment, "<b>")
    shown = page(None, key="k", live=True, alt="Two GPUs, 60 s.", png=b"PNG", stamp="here")
    picture = base64.b64encode(b"PNG").decode()
    assert 'alt="Two GPUs, 60 s."' in shown.split("<script>")[0]
    assert f"base64,{picture}" in shown.split("<script>")[0]


class FrontEnd:
    """Takes the messages of every comm that is opened."""

    def __init__(self, monkeypatch):
        import comm
        from comm.base_comm import BaseComm

        self.said = said = []

        class Comm(BaseComm):
            def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **_):
                said.append((msg_type, data))

        monkeypatch.setattr(comm, "create_comm", Comm)

    def messages(self, word):
        return [data["content"][word] for _, data in self.said if word in data.get("content", {})]

    def states(self, word):
        return [data["state"][word] for _, data in self.said if word in data.get("state", {})]


def test_lines_are_repeated_while_the_page_loads_and_spans_wait_for_samples(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now[0]))
    front = FrontEnd(monkeypatch)
    bridge = Bridge("k", lambda: made(1, 1))
    span, first, second = '{"span":"a"}', "[0,1,[2]]", "[0,2,[3]]"
    bridge.send(first)
    bridge.send(second)
    now[0] += 10
    bridge.send(first)
    bridge.add(span)
    bridge.send(second)
    expected = [[first], [first, second], [first, second, first], [span, second]]
    assert front.messages("lines") == [f"[{','.join(lines)}]" for lines in expected]


def test_a_page_that_is_opened_later_is_given_the_recording_and_why_it_ended(monkeypatch):
    front = FrontEnd(monkeypatch)
    bridge = Bridge("k", lambda: made(gpus=1, seconds=12))
    assert front.states("history") == [packed(made(gpus=1, seconds=12))]
    bridge.close("another panel was started in this cell")
    bridge.send("[0,13,[2]]")
    assert front.messages("ended") == ["another panel was started in this cell"]
    assert front.states("ended")[-1] == "another panel was started in this cell"
    assert front.messages("lines") == []
    assert not any(kind == "comm_close" for kind, _ in front.said)
    del bridge
    gc.collect()
    assert any(kind == "comm_close" for kind, _ in front.said)
