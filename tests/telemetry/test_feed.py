import contextlib
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import psutil
import pytest

from labkit.kinds import LabError
from labkit.telemetry import feed as feed_module
from labkit.telemetry.feed import Feed
from tests.telemetry.simulated import Heard, Simulated, until


@pytest.fixture
def fed():
    """Starts feeds, and ends them whatever the test does."""
    begun = []

    def start(sources=("host",), every=0.1, **more):
        feed, heard = Feed(every, sources, **more), Heard()
        begun.append(feed)
        feed.listen(heard.lists)
        feed.start()
        return feed, heard

    yield start
    for feed in begun:
        feed.stop()


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def running(pid):
    """Its own children would be zombies for nobody to reap: our own must be gone altogether."""
    return psutil.pid_exists(pid)


def test_the_header_comes_first_then_rows_and_at_the_end_the_end(fed):
    feed, heard = fed()
    assert until(lambda: len(heard.rows()) > 5)
    feed.stop()
    assert heard.lines[0]["labkit"] == "recording"
    assert heard.lines[0]["clock"] == feed.clock
    assert heard.lines[1]["source"] == "host"
    assert "end" in heard.lines[-1]
    assert heard.times() == sorted(set(heard.times()))
    assert not feed.alive


def test_the_memory_of_this_process_is_shown(fed):
    _, heard = fed()
    assert until(heard.rows)
    place = heard.lines[1]["metrics"].index("process_memory")
    told, true = heard.rows()[0][2][place], psutil.Process().memory_info().rss
    assert told == pytest.approx(true, rel=0.2)


def test_who_asks_is_told_of_now(fed):
    feed, heard = fed(every=60)
    assert until(heard.rows)
    seen = len(heard.rows())
    feed.tell()
    assert until(lambda: len(heard.rows()) > seen)
    assert heard.times()[-1] < 30


def test_a_mark_looks_now_and_is_told_of_later(fed):
    feed, heard = fed(every=0.4)
    assert until(lambda: len(heard.rows()) > 1)
    due = heard.times()[-1] + 0.4
    threading.Event().wait(0.1)  # sooner, the processor's counters have not moved
    moment = time.monotonic() - feed.clock
    feed.mark()
    assert until(lambda: heard.times()[-1] > due)
    between = [at for at in heard.times() if moment <= at < due - 0.01]
    assert moment >= due - 0.15 or len(between) == 1


def test_each_look_can_be_asked_for_by_itself(fed):
    feed, heard = fed(every=0.05)
    feed.each()
    assert until(lambda: len(heard.rows()) > 8)
    texts = []
    feed.listen(lambda lines: None, texts.append)
    assert until(lambda: len(texts) > 10)
    counts = [len(json.loads(f"[{text}]")) for text in texts[2:]]
    assert sorted(counts)[len(counts) // 2] == 1


def test_a_call_that_holds_the_lock_of_the_interpreter_loses_no_sample(fed):
    feed, heard = fed()
    assert until(lambda: len(heard.rows()) > 2)
    begun = time.monotonic() - feed.clock
    ctypes.PyDLL(None).usleep(3_000_000)  # PyDLL, unlike CDLL, keeps the lock
    ended = time.monotonic() - feed.clock
    assert ended - begun > 2.9
    assert until(lambda: heard.times()[-1] > ended)
    during = [t for t in heard.times() if begun - 0.1 < t < ended + 0.1]
    assert len(during) >= 25
    assert max(b - a for a, b in pairwise(during)) < 0.5


def test_samples_arrive_while_pure_python_computes(fed):
    feed, heard = fed()
    feed.live()
    assert until(lambda: len(heard.rows()) > 2)
    seen, end = len(heard.rows()), time.monotonic() + 2
    while time.monotonic() < end:
        sum(range(1000))
    assert len(heard.rows()) - seen >= 10


def test_ctrl_c_in_a_terminal_does_not_reach_the_sampler(fed):
    feed, heard = fed()
    assert until(heard.rows)
    assert os.getpgid(feed.pid) != os.getpgid(0)
    os.kill(feed.pid, signal.SIGINT)
    seen = len(heard.rows())
    assert until(lambda: len(heard.rows()) > seen + 3)


def open_files():
    """Pipes, which is all that a feed opens; other rooms keep files of their own."""
    found = 0
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():  # noqa: PTH112, PTH208
        with contextlib.suppress(OSError):  # the folder's own, closed by now
            found += os.readlink(f"/proc/self/fd/{number}").startswith("pipe:")  # noqa: PTH115
    return found


def test_two_hundred_starts_and_stops_leave_nothing(fed):
    fed()[0].stop()
    gc.collect()
    threads, files, children = threading.active_count(), open_files(), psutil.Process().children()
    for cycle in range(200):
        feed, heard = fed()
        if cycle % 20 == 0:
            assert until(heard.rows)
        pid = feed.pid
        feed.stop()
        assert not running(pid)
    assert threading.active_count() == threads
    assert open_files() == files
    assert psutil.Process().children() == children


KERNEL = """
import os, sys, time
from labkit.telemetry.feed import Feed
feed, heard = Feed(sources=("host",)), []
feed.listen(heard.extend)
feed.start()
while len(heard) < 3:
    time.sleep(0.01)
print(feed.pid, flush=True)
"""


@pytest.mark.parametrize(
    ("ending", "signum"),
    [
        ("time.sleep(60)", signal.SIGKILL),
        ("time.sleep(60)", signal.SIGTERM),
        ("pass", None),
        ("os._exit(0)", None),
        ("del feed; time.sleep(60)", None),
    ],
    ids=["killed", "terminated", "ended", "ended without a word", "feed forgotten"],
)
def test_however_a_kernel_ends_no_sampler_is_left(ending, signum):
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL + ending], stdout=subprocess.PIPE)
    try:
        sampler = int(kernel.stdout.readline())
        if signum:
            assert running(sampler)
            kernel.send_signal(signum)
        assert until(lambda: gone(sampler))
    finally:
        kernel.kill()
        kernel.communicate(timeout=20)


def test_a_sampler_that_dies_is_started_again_and_the_recording_goes_on(fed, monkeypatch):
    monkeypatch.setattr(feed_module, "PAUSES", (0.0, 0.0, 0.0))
    feed, heard = fed()
    for again in range(1, 4):
        seen = len(heard.rows())
        assert until(lambda before=seen: len(heard.rows()) > before + 2)
        os.kill(feed.pid, signal.SIGKILL)
        assert until(lambda count=again: len(heard.states("note")) == count)
    seen = len(heard.rows())
    assert until(lambda: len(heard.rows()) > seen + 2)
    assert "exit status -9" in heard.states("note")[0]["says"]
    assert len(heard.dicts("labkit")) == 1
    assert heard.times() == sorted(set(heard.times()))
    os.kill(feed.pid, signal.SIGKILL)
    assert until(lambda: heard.states("silent"))
    assert until(lambda: not feed.alive)
    assert heard.states("silent")[0]["device"] == "host"
    costs = [line["cost"] for line in heard.dicts("cost")]
    assert costs == sorted(costs)


def test_a_sampler_that_says_nothing_is_told_and_then_started_again(fed, monkeypatch):
    monkeypatch.setattr(feed_module, "LATE", 0.5)
    monkeypatch.setattr(feed_module, "STUCK", 1.5)
    monkeypatch.setattr(feed_module, "ROUND", 0.2)
    feed, heard = fed(every=0.05)
    feed.each()
    assert until(lambda: len(heard.rows()) > 2)
    stopped = feed.pid
    os.kill(stopped, signal.SIGSTOP)
    assert until(lambda: heard.states("silent"))
    assert until(lambda: heard.states("note"))
    assert not running(stopped)
    assert until(lambda: heard.states("fine"))


def test_a_listener_that_raises_is_dropped_and_the_others_are_told(fed):
    feed, heard = fed()
    calls = []
    feed.listen(lambda lines: (calls.append(lines), 1 / 0))
    assert until(lambda: heard.states("note"))
    assert "ZeroDivisionError" in heard.states("note")[0]["says"]
    seen = len(heard.rows())
    assert until(lambda: len(heard.rows()) > seen + 2)
    assert len(calls) == 1


def test_who_listens_late_gets_the_header_and_the_sources_first(fed):
    feed, heard = fed()
    assert until(lambda: len(heard.rows()) > 3)
    late = Heard()
    no_more = feed.listen(late.lists)
    assert until(lambda: len(late.rows()) > 2)
    assert late.lines[:2] == heard.lines[:2]
    assert len(late.dicts("labkit")) == 1
    no_more()
    seen = len(heard.rows())
    assert until(lambda: len(heard.rows()) > seen)  # what was on its way has arrived
    told, seen = len(late.lines), len(heard.rows())
    assert until(lambda: len(heard.rows()) > seen + 2)
    assert len(late.lines) == told


def test_rows_are_handed_on_as_they_came_to_who_can_read_them_so(fed):
    feed, heard = fed()
    raw, parsed = [], []
    feed.listen(parsed.extend, raw.append)
    feed.live()
    assert until(lambda: len(raw) > 5)
    feed.stop()
    rows = [row for text in raw for row in json.loads(f"[{text}]")]
    rows += [line for line in parsed if isinstance(line, list)]
    assert parsed[0]["labkit"] == "recording"
    assert sorted(rows) == sorted(heard.rows()[-len(rows) :])


@pytest.mark.parametrize("between", [b"WARNING: x\n", b"[NVML] slow\n", b"[0,1.5,[2]]x\n"])
def test_what_a_library_prints_in_between_is_no_row(between):
    rows = b"[0,1.5,[2,null]]\n[1,1.5,[1e-05],[3]]\n"
    assert feed_module._ROWS.fullmatch(rows)
    assert not feed_module._ROWS.fullmatch(rows + between)


def test_a_listener_may_stop_the_feed(fed):
    feed, _ = fed()
    feed.listen(lambda _: feed.stop())
    assert until(lambda: not feed.alive)


def test_a_listener_that_hangs_does_not_hold_up_the_stop(fed):
    feed, heard = fed()
    free = threading.Event()
    assert until(heard.rows)
    pid, hanging = feed.pid, threading.Event()
    feed.listen(lambda _: (hanging.set(), free.wait(60)))
    assert hanging.wait(20)
    begun = time.monotonic()
    feed.stop(deadline=0.5)
    assert time.monotonic() - begun < 2
    assert until(lambda: gone(pid))
    free.set()
    assert until(lambda: not feed.alive)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_of_the_kernel_has_no_part_in_the_feed(fed):
    files = open_files()
    feed, heard = fed()
    assert until(heard.rows)
    child = os.fork()
    if child == 0:
        feed.mark()
        feed.stop()
        # What a fork holds open would keep the sampler from seeing that the kernel has ended.
        os._exit(7 if feed.alive or open_files() != files else 0)
    assert os.waitpid(child, 0)[1] == 0
    seen = len(heard.rows())
    assert until(lambda: len(heard.rows()) > seen + 3)
    assert heard.states("note") == []


def test_objects_are_looked_at_in_this_process(fed):
    source = Simulated("made", devices=2)
    feed, heard = fed(sources=[source], every=0.02)
    assert until(lambda: len(heard.rows()) > 5)
    feed.mark()
    feed.stop()
    assert heard.lines[0]["where"] == "made 0, made 1"
    assert "end" in heard.lines[-1]
    assert feed.pid is None
    assert source.closed
    assert until(lambda: not feed.alive)


def test_an_object_that_hangs_holds_up_neither_the_others_nor_the_stop(fed):
    free = threading.Event()
    stuck, well = Simulated("stuck"), Simulated("well")
    stuck.during = lambda: free.wait(60)
    feed, heard = fed(sources=[stuck, well], every=0.02)
    assert until(lambda: len(heard.rows(1)) > 5)
    assert until(lambda: heard.states("silent"))
    assert heard.states("silent")[0]["device"] == "stuck"
    begun = time.monotonic()
    feed.stop()
    assert time.monotonic() - begun < 1
    free.set()


def test_the_cost_of_watching_is_known(fed):
    feed, heard = fed()
    assert until(lambda: len(heard.rows()) > 5)
    feed.stop()
    cost = feed.cost
    assert 0 < cost.reader < cost.seconds
    assert 0 < cost.sampler < 20


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"every": 0}, "every=0"),
        ({"every": float("nan")}, "nan"),
        ({"every": "fast"}, "'fast'"),
        ({"sources": ("fan",)}, "'fan'"),
        ({"sources": ()}, "()"),
        ({"sources": ("host", Simulated())}, "sources="),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_started(asked, named):
    with pytest.raises(LabError, match=named.replace("(", r"\(").replace(")", r"\)")):
        Feed(**asked)


def test_a_feed_is_for_one_time(fed):
    feed, _ = fed()
    with pytest.raises(LabError):
        feed.start()
