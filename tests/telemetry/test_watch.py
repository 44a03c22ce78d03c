"""The panel as a program uses it: started, marked, stopped, recorded, and nothing left behind."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import labkit
from labkit import LabError
from labkit.telemetry import Device, Reading, Row, mark
from labkit.telemetry.notebook import cell_name
from tests.telemetry.simulated import Simulated

ROOT = Path(__file__).parent.parent.parent


def wait_for(condition, what, seconds=20):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.01)
    return found


def rows_of(panel):
    return sum(len(series.times) for series in panel.recording.series)


def samplers():
    mine = psutil.Process().children(recursive=True)
    return [child for child in mine if "labkit.telemetry.process" in " ".join(child.cmdline())]


@pytest.fixture
def host():
    with labkit.panel(sources=("host",)) as panel:
        wait_for(lambda: rows_of(panel) >= 2, "the first rows")
        yield panel


def test_a_panel_sees_the_processor_and_each_core(host):
    keys = [device.key for device in host.recording.devices]
    assert keys[0] == "cpu"
    assert len(keys) == 1 + labkit.hardware().cores.affinity
    times, busy = host.recording.column("cpu", "utilisation")
    wait_for(lambda: len(host.recording.column("cpu", "utilisation")[0]) > len(times), "new rows")
    assert all(0 <= value <= 100 for value in busy)
    assert host.recording.kind.name == "measured"


def test_nothing_is_left_when_the_block_ends(host):
    process = wait_for(samplers, "the sampler's process")[0]
    threads = {thread.name for thread in threading.enumerate()}
    assert "labkit feed" in threads
    host.stop()
    host.stop()
    assert not host.live
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert samplers() == []
    assert "labkit feed" not in {thread.name for thread in threading.enumerate()}


def test_an_exception_in_the_block_stops_the_panel_and_comes_through():
    with pytest.raises(ZeroDivisionError), labkit.panel(sources=("host",)) as panel:
        1 / 0  # noqa: B018
    assert not panel.live
    assert samplers() == []


def test_spans_are_kept_with_their_images(host):
    with host.span("outer"), host.span("inner", images=600):
        reached = rows_of(host) + 3
        wait_for(lambda: rows_of(host) >= reached, "rows inside the span")
    inner, outer = sorted(host.recording.spans, key=lambda span: span.name)
    assert (inner.name, inner.images, outer.images) == ("inner", 600, None)
    assert outer.start <= inner.start < inner.end <= outer.end
    table = str(host.table())
    assert "outer" in table
    assert "inner" in table


def test_a_span_marked_elsewhere_in_the_program_reaches_every_panel(host):
    with labkit.panel(sources=("host",)) as other:
        with mark("epoch 1", images=10, by="training"):
            pass
        for panel in (host, other):
            assert [span.name for span in panel.recording.spans] == ["epoch 1"]
    with mark("epoch 2"):
        pass
    assert [span.name for span in other.recording.spans] == ["epoch 1"]


def test_numbers_of_this_moment_are_not_waited_for_when_they_have_come(monkeypatch):
    with labkit.panel(every=60, sources=(Simulated(),)) as panel:
        tell = panel._feed.tell

        def tell_slowly():  # another thread holds the interpreter's lock for a while
            tell()
            time.sleep(0.05)

        monkeypatch.setattr(panel._feed, "tell", tell_slowly)
        began = time.monotonic()
        assert len(panel.recording.series[0].times) >= 2
        assert time.monotonic() - began < 0.25


def test_a_table_waits_for_each_source_that_is_alive():
    slow, quick = Simulated("slow"), Simulated("quick")
    with labkit.panel(sources=(slow, quick)) as panel:
        slow.during = lambda: time.sleep(0.08)
        wait_for(lambda: len(panel.recording.series[0].times) > 6, "looks by its own thread")
        for number in range(5):
            with panel.span(f"span {number}"):
                time.sleep(0.02 * number)
            recording = panel.recording
            end = recording.spans[-1].end
            assert all(series.times[-1] >= end for series in recording.series)


def test_a_source_that_hangs_is_not_waited_for_by_what_a_new_page_is_sent():
    source = Simulated()
    with labkit.panel(sources=(source,)) as panel:
        panel._connect()
        source.during = lambda: time.sleep(0.6)
        time.sleep(0.2)  # it is at it
        began = time.monotonic()
        # This may be asked by the very thread by which rows arrive.
        assert panel._bridge._history().series
        assert time.monotonic() - began < 0.2
        source.during = lambda: None


def test_a_stopped_panel_takes_no_spans(host):
    host.stop()
    with pytest.raises(LabError, match="was stopped before the span 'late'"):
        host.span("late")


def test_a_span_that_is_open_when_the_panel_stops_ends_there(host):
    span = host.span("for ever")
    host.stop()
    kept = host.recording.spans[0]
    assert kept.name == "for ever"
    assert kept.end is not None
    span.end()
    assert host.recording.spans == (kept,)


@pytest.mark.parametrize("every", [0, -1, "often", float("nan"), 1e9, None])
def test_an_impossible_pace_is_refused(every):
    with pytest.raises(LabError, match="every="):
        labkit.panel(every=every)
    assert samplers() == []


@pytest.mark.parametrize(
    ("name", "images"), [("", None), (3, None), ("a", 0), ("a", "many"), ("a", True)]
)
def test_a_span_without_a_name_or_with_odd_images_is_refused(host, name, images):
    with pytest.raises(LabError):
        host.span(name, images)
    assert host.recording.spans == ()


def test_what_is_saved_is_shown_again_as_recorded(host, tmp_path):
    with host.span("a while", images=5):
        reached = rows_of(host) + 5
        wait_for(lambda: rows_of(host) >= reached, "rows")
    host.stop()
    host.save(tmp_path / "here.jsonl")
    again = labkit.replay(tmp_path / "here.jsonl")
    assert again.kind.name == "recorded"
    assert again.header.when[:10] in str(again.kind)
    assert [span.name for span in again.spans] == ["a while"]
    assert rows_of_recording(again) == rows_of(host)
    assert again.damage is None


def rows_of_recording(recording):
    return sum(len(series.times) for series in recording.series)


def test_a_record_survives_the_death_of_the_program(tmp_path):
    file = tmp_path / "crash.jsonl"
    program = (
        "import sys, time, labkit\n"
        "panel = labkit.panel(record=sys.argv[1], sources=('host',))\n"
        "with panel.span('before the crash'):\n"
        "    time.sleep(0.5)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, file], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as dying:
        assert dying.stdout.readline() == "ready\n"
        sampler = wait_for(lambda: psutil.Process(dying.pid).children(), "its sampler")[0]
        os.kill(dying.pid, signal.SIGKILL)
    wait_for(lambda: not sampler.is_running(), "the end of the sampler of a dead program")
    found = labkit.replay(file)
    assert "cut" in found.damage or "not ended" in found.damage or found.damage
    assert [span.name for span in found.spans] == ["before the crash"]
    assert rows_of_recording(found) >= 3


def test_a_recording_never_writes_over_another_file(tmp_path):
    file = tmp_path / "taken.jsonl"
    file.write_text("mine")
    with pytest.raises(LabError, match=r"taken\.jsonl' is there already"):
        labkit.panel(record=file)
    assert file.read_text() == "mine"
    assert samplers() == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    with pytest.raises(LabError, match="nowhere"):
        labkit.panel(record=tmp_path / "nowhere" / "x.jsonl")
    assert samplers() == []


def test_a_full_disk_ends_the_file_and_is_told(tmp_path):
    """The file may grow to 2 kB only: as a full disk would, the system then refuses."""
    file = tmp_path / "full.jsonl"
    program = (
        "import resource, signal, sys, time, labkit\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))\n"
        "with labkit.panel(every=0.02, record=sys.argv[1], sources=('host',)) as panel:\n"
        "    with panel.span('all of it'):\n"
        "        time.sleep(1.5)\n"
        "print(panel.table())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, file], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stderr
    assert "panel.save(path)" in done.stderr
    assert "all of it" in done.stdout
    assert labkit.replay(file).damage


def test_the_span_that_a_crash_broke_off_is_in_the_file(tmp_path):
    file = tmp_path / "crash.jsonl"
    with labkit.panel(record=file, sources=("host",)) as panel, panel.span("running", images=10):
        found = labkit.replay(file)
    assert [(span.name, span.end) for span in found.spans] == [("running", None)]
    assert [(span.name, span.end is None) for span in labkit.replay(file).spans] == [
        ("running", False)
    ]


def test_a_script_that_ends_without_stop_leaves_a_whole_recording(tmp_path):
    file = tmp_path / "left.jsonl"
    program = "import sys, labkit; panel = labkit.panel(record=sys.argv[1], sources=('host',))"
    subprocess.run([sys.executable, "-c", program, file], cwd=ROOT, timeout=60, check=True)
    assert labkit.replay(file).damage is None


def test_the_file_of_a_running_record_is_not_written_over(tmp_path):
    file = tmp_path / "mine.jsonl"
    with labkit.panel(record=file, sources=("host",)) as panel:
        with pytest.raises(LabError, match="is the file that this panel records to"):
            panel.save(file)
        panel.save(tmp_path / "other.jsonl")
    assert labkit.replay(file).damage is None


def test_a_panel_that_nobody_holds_ends():
    panel = labkit.panel(sources=("host",))
    assert samplers()
    del panel
    gc.collect()
    wait_for(lambda: not samplers(), "the end of a forgotten panel")
    with mark("nobody hears"):
        pass


def test_a_stopped_panel_cannot_be_entered_again(host):
    host.stop()
    with pytest.raises(LabError, match="Start another"), host:
        pass


def test_spans_that_follow_at_once_are_all_kept(host):
    for _ in range(500):
        with host.span("step"):
            pass
    assert len(host.recording.spans) == 500


def test_a_span_that_an_exception_leaves_has_no_images(host):
    with pytest.raises(ZeroDivisionError), host.span("broken", images=60_000):
        1 / 0  # noqa: B018
    (span,) = host.recording.spans
    assert span.end is not None
    assert span.images is None


def test_a_fork_has_no_part_in_the_panel_of_its_parent(tmp_path):
    file = tmp_path / "forked.jsonl"
    with labkit.panel(record=file, sources=("host",)) as panel, panel.span("parent"):
        child = os.fork()
        if child == 0:
            try:
                with mark("in the child"):
                    assert not panel.live
                    panel.stop()
                    str(panel.table())
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert panel.live
    found = labkit.replay(file)
    assert found.damage is None
    assert [span.name for span in found.spans] == ["parent"]


@pytest.mark.parametrize("every", [np.float32(0.1), 1])
def test_any_real_number_is_a_pace(every):
    with labkit.panel(every=every, sources="host") as panel:
        assert panel.recording.header.every == pytest.approx(float(every))


class Lamp:
    """A source of the test's own: one device, on or off."""

    name = "lamp"
    metrics = ("utilisation",)

    def open(self):
        return (Device("gpu0", "a lamp", "gpu"),), ()

    def read(self):
        return Reading((Row(time.monotonic(), ((100.0,),)),))

    def close(self):
        pass


def test_any_source_can_be_watched():
    with labkit.panel(sources=[Lamp()]) as panel:
        wait_for(lambda: rows_of(panel) >= 5, "rows of the lamp")
    assert set(panel.recording.column("gpu0", "utilisation")[1]) == {100.0}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import labkit\n\n# three\njob.train(epochs=3)", "[4] job.train(epochs=3)"),
        ("%time x = 1\ny = 2", "[4] y = 2"),
        ("# only a remark", "[4] # only a remark"),
        ("", "[4]"),
        ("x" * 60, "[4] " + "x" * 39 + "…"),
    ],
)
def test_a_cell_is_named_by_the_line_that_says_most(source, name):
    assert cell_name(source, 4) == name
