"""When what was seen is handed on: at once to who asks, each by itself to a file, else together."""

import json
import math
import os
import signal
import statistics
import threading
import time

import pytest

import labkit
from labkit.telemetry import feed as feed_module
from labkit.telemetry.feed import Feed
from labkit.telemetry.gpu_calls import whole
from tests.telemetry.simulated import Heard, until


@pytest.fixture
def feed():
    found, heard = Feed(0.1, ("host",)), Heard()
    found.listen(heard.lists)
    found.start()
    yield found, heard
    found.stop()


def newest(panel):
    return max(float(series.times[-1]) for series in panel.recording.series)


def test_a_panel_that_nobody_watches_tells_of_now_when_it_is_asked():
    late = []
    with labkit.panel(sources=("host",)) as panel:
        for _ in range(6):
            threading.Event().wait(0.35)  # of the two seconds that looks would wait
            late.append(time.monotonic() - panel.recording.header.clock - newest(panel))
    assert statistics.median(late) < 0.2


def test_a_panel_that_records_writes_each_look_down_at_once(tmp_path):
    file = tmp_path / "each.jsonl"
    with labkit.panel(sources=("host",), record=file):
        sizes, end = set(), time.monotonic() + 3
        while time.monotonic() < end:
            sizes.add(file.stat().st_size)
            threading.Event().wait(0.01)
    assert len(sizes) > 15  # thirty looks; by fives there would be six


def test_a_sampler_that_is_started_again_hands_on_as_the_one_before(feed, monkeypatch):
    monkeypatch.setattr(feed_module, "PAUSES", (0.0, 0.0, 0.0))
    found, heard = feed
    found.each()
    assert until(heard.rows)
    os.kill(found.pid, signal.SIGKILL)
    assert until(lambda: heard.states("note"))
    texts = []
    found.listen(lambda lines: None, texts.append)
    assert until(lambda: len(texts) > 10)
    assert statistics.median(len(json.loads(f"[{text}]")) for text in texts[2:]) == 1


def test_rates_are_whole_and_what_is_no_number_stays_so():
    assert (whole(2.5e9 + 0.4), type(whole(1e10 / 3))) == (2_500_000_000, int)
    assert math.isnan(whole(math.nan))
    assert whole(math.inf) == math.inf
