import gc
import json
import statistics
import sys
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from labkit.telemetry.looks import Watch
from labkit.telemetry.metrics import Reading, Row
from labkit.telemetry.process import UNWATCHED
from labkit.telemetry.sampling import Sampling
from tests.telemetry.simulated import Clock, Heard, Simulated, until


@pytest.fixture
def sampled():
    """Starts samplings, and ends them whatever the test does."""
    begun = []

    def start(sources, every=0.01, **more):
        heard = Heard()
        sampling = Sampling(sources, every, heard.texts, **more)
        begun.append(sampling)
        sampling.start()
        return sampling, heard

    yield start
    for sampling in begun:
        sampling.stop()


def looks_of(watch, clock, seconds):
    """All rows of some simulated seconds."""
    lines, end = [], clock.now + seconds
    while clock.now < end:
        clock.now = watch.look(clock.now)
        lines += map(json.loads, watch.rows)
    return lines


def test_ticks_do_not_drift_however_long_a_look_takes():
    clock = Clock(1000.0)
    watch = Watch(Simulated(clock=clock), 0.1, 1000.0)
    starts = []
    for k in range(36_000):
        starts.append(clock.now)
        watch.look(clock.now)
        # Each look takes a while, and one in a hundred takes longer than a tick.
        clock.now = watch.due(clock.now + (0.25 if k % 100 == 99 else 0.003 + 0.09 * (k % 2)))
    off = [abs((start - 1000.0) / 0.1 - round((start - 1000.0) / 0.1)) for start in starts]
    assert max(off) < 1e-4  # of a tick, after more than an hour
    gaps = [round((b - a) / 0.1) for a, b in pairwise(starts)]
    assert set(gaps) == {1, 3}  # late ticks are left out, none is made up for


@given(some.floats(0, 1e6), some.sampled_from([0.02, 0.1, 0.25, 1.0, 60.0]))
def test_the_next_tick_is_the_first_one_after_now(passed, every):
    due = Watch(Simulated(), every, 500.0).due(500.0 + passed)
    assert 500.0 + passed < due <= 500.0 + passed + every * 1.001
    assert (due - 500.0) / every == pytest.approx(round((due - 500.0) / every), abs=1e-4)


def test_a_source_that_raises_is_closed_and_tried_again_less_and_less_often():
    clock = Clock(0.0)
    source = Simulated(clock=clock)
    source.faults = [None] + [OSError("the bus is gone")] * 8
    watch = Watch(source, 0.1, 0.0)
    waits, says = [], []
    watch.look(clock.now)
    for _ in range(8):
        due = watch.look(clock.now)
        waits.append(due - clock.now)
        says += watch.states
        clock.now = due
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert says[0].why == "silent"
    assert "OSError: the bus is gone" in says[0].says
    assert source.closed == 8
    watch.look(clock.now)
    assert [state.why for state in watch.states] == ["fine"]
    assert len(watch.rows) == 1
    clock.now += 0.1
    watch.look(clock.now)
    assert watch.states == ()


def test_a_source_that_cannot_be_opened_is_a_source_that_fails():
    source = Simulated()
    source.open = lambda: 1 / 0
    watch = Watch(source, 0.1, 0.0)
    assert watch.look(0.0) == 1.0
    assert "ZeroDivisionError" in watch.states[0].says


def test_a_row_of_the_wrong_size_is_told_and_not_handed_on():
    source = Simulated(devices=2)
    source.read = lambda: Reading((Row(1.0, ((1.0,),)),))
    watch = Watch(source, 0.1, 0.0)
    watch.look(0.0)
    assert watch.rows == []
    assert watch.states[0].why == "silent"


def test_a_row_that_is_not_newer_than_the_last_is_left_out():
    source = Simulated()
    watch = Watch(source, 0.1, 0.0)
    times = []
    for batch in ((1.0, 1.1), (1.05, 1.1, 1.2), (0.9,)):
        source.read = lambda b=batch: Reading(tuple(Row(t, ((1.0,),)) for t in b))
        watch.look(0.0)
        times += [json.loads(line)[1] for line in watch.rows]
    assert times == [1.0, 1.1, 1.2]


@settings(deadline=None)
@given(
    some.lists(
        some.sampled_from(
            [None, OSError("gone"), ValueError(""), UnicodeDecodeError("utf8", b"", 0, 1, "x")]
        ),
        max_size=40,
    )
)
def test_whatever_a_source_raises_rows_go_on_when_it_ends(faults):
    clock = Clock(100.0)
    source = Simulated(clock=clock)
    source.faults = list(faults)
    watch = Watch(source, 1.0, 100.0)
    rows = looks_of(watch, clock, 30.0 * (len(faults) + 2))
    assert source.faults == []
    assert watch.opened
    times = [row[1] for row in rows]
    assert times == sorted(set(times))
    assert rows[-1][2] == [source.looks]


def test_an_hour_at_ten_looks_a_second_keeps_memory_flat():
    clock = Clock()
    watch = Watch(Simulated(devices=2, clock=clock), 0.1, clock.now)

    def minutes(count):
        for _ in range(600 * count):
            clock.now = watch.look(clock.now)
        gc.collect()
        return sys.getallocatedblocks()

    early = minutes(5)
    assert minutes(55) - early < 1000  # of 33,000 looks that could each have left something
    assert watch.source.looks == 36_000


def test_a_source_that_hangs_holds_up_no_other_and_is_told(sampled):
    clock, free = Clock(), threading.Event()
    stuck, well = Simulated("stuck"), Simulated("well")
    stuck.during = lambda: free.wait(60) if stuck.looks == 3 else None
    sampling, heard = sampled([stuck, well], clock=lambda: clock.now + time.monotonic())
    assert until(lambda: stuck.looks == 3)
    clock.now += 0.6
    sampling.check()  # the others do not wait any longer
    before = well.looks
    assert until(lambda: well.looks > before + 5)
    assert heard.states() == []
    clock.now += 3.1
    sampling.check()
    sampling.check()
    (silent,) = heard.states("silent")
    assert silent["device"] == "stuck"
    free.set()
    assert until(lambda: heard.states("fine"))
    assert until(lambda: len(heard.rows(0)) > 8)
    assert len(heard.states("fine")) == 1


def test_stop_comes_back_at_once_although_a_source_hangs(sampled):
    free = threading.Event()
    stuck = Simulated("stuck")
    stuck.during = lambda: free.wait(60) if stuck.looks == 2 else None
    sampling, heard = sampled([stuck, Simulated("well")])
    assert until(lambda: stuck.looks == 2)
    begun = time.monotonic()
    sampling.stop()
    assert time.monotonic() - begun < 1.0
    assert "end" in heard.lines[-1]
    said = len(heard.lines)
    free.set()
    assert until(lambda: stuck.closed)
    assert len(heard.lines) == said


def test_stop_does_not_wait_for_the_next_tick_and_leaves_no_thread(sampled):
    before = threading.active_count()
    sampling, heard = sampled([Simulated("a"), Simulated("b")], every=3600)
    assert until(lambda: heard.rows(1) and heard.rows(0))
    begun = time.monotonic()
    sampling.stop()
    sampling.stop()
    assert time.monotonic() - begun < 1.0
    assert until(lambda: threading.active_count() == before)
    assert len(heard.dicts("end")) == 1


def test_a_mark_looks_at_once_and_leaves_the_schedule_alone(sampled):
    a, b = Simulated("a"), Simulated("b")
    sampling, heard = sampled([a, b], every=3600)
    assert until(lambda: a.looks == b.looks == 1)
    sampling.look_now()
    assert until(lambda: len(heard.rows(0)) == 2 and len(heard.rows(1)) == 2)


def test_after_each_mark_there_is_a_look_that_began_later(sampled):
    sampling, heard = sampled([Simulated()], every=3600)
    assert until(heard.rows)
    for _ in range(200):  # the end of a span, and right after it the beginning of the next
        sampling.look_now()
        sampling.look_now()
        moment = time.monotonic() - sampling.began
        sampling.look_now()
        assert until(lambda m=moment: heard.times()[-1] >= round(m, 4), deadline=5)


def test_marks_that_come_together_are_one(sampled):
    source = Simulated()
    sampling, _ = sampled([source], every=3600)
    begun = time.monotonic()
    marks = 0
    while time.monotonic() < begun + 0.2:
        sampling.look_now()
        marks += 1
        threading.Event().wait(0.0002)  # let the other thread have its turn
    most = (time.monotonic() - begun) / 0.005 + 2
    sampling.stop()
    assert 2 < source.looks <= most < marks


def test_sources_that_are_looked_at_together_are_told_together():
    batches = []
    sampling = Sampling([Simulated("a"), Simulated("b")], 0.05, batches.append)
    sampling.start()
    try:
        assert until(lambda: len(batches) > 12)
    finally:
        sampling.stop()
    both = [batch for batch in batches[1:-1] if len(batch) == 2]
    assert len(both) >= len(batches) / 2


def test_the_header_and_all_sources_come_first_in_the_order_given(sampled):
    late = threading.Event()
    slow, quick = Simulated("slow"), Simulated("quick", devices=2)
    known = slow.open
    slow.open = lambda: late.wait(60) and known()
    clock = Clock()
    sampling, heard = sampled([slow, quick], clock=lambda: clock.now + time.monotonic())
    assert until(lambda: quick.looks == 1)
    clock.now += 0.6
    sampling.check()  # the others go on without it
    assert until(lambda: quick.looks > 3)
    assert heard.lines == []  # the names of the slow one's devices are still waited for
    clock.now += 1.1
    sampling.check()
    assert heard.lines[0]["labkit"] == "recording"
    assert [line["source"] for line in heard.lines[1:3]] == ["slow", "quick"]
    assert heard.lines[1]["devices"] == []
    assert isinstance(heard.lines[3], list)
    late.set()
    assert until(lambda: heard.rows(0))
    place = heard.lines.index(heard.rows(0)[0])
    named = [line for line in heard.lines[:place] if "source" in line and line["source"] == "slow"]
    assert [len(line["devices"]) for line in named] == [0, 1]


def test_a_recording_is_named_after_its_devices(sampled):
    source = Simulated("GPU", devices=3)
    source.devices = source.devices[:1] + source.devices[:1] + source.devices[2:]
    _, heard = sampled([source])
    assert until(lambda: heard.lines)
    assert heard.lines[0]["where"] == "2 × GPU 0, GPU 2"


def test_the_cost_is_told_every_few_seconds_and_at_the_end(sampled):
    clock = Clock()
    sampling, heard = sampled([Simulated()], clock=lambda: clock.now + time.monotonic())
    assert until(lambda: len(heard.rows()) > 3)
    assert heard.dicts("cost") == []
    clock.now += 5.5
    sampling.check()
    assert len(heard.dicts("cost")) == 1
    sampling.stop()
    assert heard.dicts("cost")[-1]["cost"] > 0


class Glanced(Simulated):
    """One that can be glanced at; the rows of all glances come with the next read."""

    can_be_glanced_at = True

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.kept, self.asked, self.marked = [], 0, []

    def glance(self, marked=False):
        self.marked.append(marked)
        if not self.can_be_glanced_at:
            return False
        self.asked += 1
        self.during()
        self.kept.append(self.clock())
        return True

    def recall(self):
        kept, self.kept = self.kept, []
        return Reading(tuple(Row(then, ((1.0,),) * len(self.devices)) for then in kept))

    def read(self):
        return Reading((*self.recall().rows, *super().read().rows))


def test_rows_come_as_seldom_as_they_may_and_all_of_them(sampled):
    batches, sources = [], [Glanced("a"), Glanced("b")]
    sampling = Sampling(sources, 0.02, batches.append, together=0.95)
    sampling.start()
    try:
        assert until(lambda: len(batches) == 4)
        assert until(lambda: all(len(source.kept) > 3 for source in sources))
    finally:
        sampling.stop()
    rows = [[json.loads(line) for line in batch if line[0] == "["] for batch in batches]
    for batch in rows[1:3]:  # the first is that of the opening
        for number in (0, 1):  # both come together
            times = [row[1] for row in batch if row[0] == number]
            assert 20 <= len(times) <= 52
            assert 0.8 <= times[-1] - times[0] <= 1.1
    for number, source in enumerate(sources):
        times = [row[1] for batch in rows for row in batch if row[0] == number]
        assert times == sorted(set(times))
        # Nothing is lost at the end, either.
        assert len(times) == source.asked + source.looks
        assert source.kept == []


def test_who_asks_for_it_gets_at_once_what_was_glanced_at(sampled):
    source = Glanced()
    sampling, heard = sampled([source], together=UNWATCHED)
    assert until(lambda: source.looks == 1)
    assert until(lambda: source.asked > 3)
    asked = source.asked
    sampling.look_now(hand_over=True)
    moment = time.monotonic()
    assert until(lambda: source.looks >= 2)
    assert time.monotonic() - moment < 0.5  # well before the second is over
    assert until(lambda: len(heard.rows()) >= asked + 2)


@pytest.mark.parametrize("kind", [Simulated, Glanced])
def test_a_mark_is_looked_at_at_once_and_handed_over_with_the_others(sampled, kind):
    source = kind()
    sampling, heard = sampled([source], every=1000, together=3600.0)
    looks = lambda: source.looks + getattr(source, "asked", 0)  # noqa: E731
    assert until(heard.rows)
    for seen in range(looks() + 1, looks() + 4):
        sampling.look_now()
        assert until(lambda n=seen: looks() == n)
    assert len(heard.rows()) == 1
    sampling.look_now(hand_over=True)
    assert until(lambda: len(heard.rows()) == looks() == 5)
    times = heard.times()
    assert times == sorted(set(times))


def test_a_source_is_told_that_a_glance_is_at_a_mark(sampled):
    source = Glanced()
    sampling, heard = sampled([source], every=0.05, together=3600.0)
    assert until(heard.rows)
    assert until(lambda: len(source.marked) > 2)
    assert not any(source.marked)
    sampling.look_now()
    assert until(lambda: source.marked.count(True) == 1)
    asked = source.asked
    assert until(lambda: source.asked > asked + 2)
    assert source.marked.count(True) == 1


def test_a_mark_that_cannot_be_glanced_at_is_read(sampled):
    source = Glanced()
    sampling, heard = sampled([source], every=1000, together=3600.0)
    assert until(heard.rows)
    sampling.look_now()
    assert until(lambda: source.asked == 1)
    source.can_be_glanced_at = False
    sampling.look_now()
    assert until(lambda: source.looks == 2)


def rows_in(batches):
    """The times in each batch that has rows."""
    found = [[json.loads(line)[1] for line in batch if line[0] == "["] for batch in batches]
    return [times for times in found if times]


def test_where_looks_are_not_to_wait_each_is_handed_over(sampled):
    source = Glanced()
    sampling, heard = sampled([source], together=UNWATCHED)
    assert until(lambda: source.asked > 3)
    sampling.together = 0.0
    for _ in range(12):  # each by itself, before the next is taken
        asked = source.asked
        assert until(lambda n=asked: source.asked > n)
        assert until(lambda n=asked: len(heard.rows()) > n)
    assert len(source.kept) < 2


@pytest.mark.parametrize("kind", [Simulated, Glanced])
def test_looks_wait_for_others_as_long_as_they_may_and_none_is_lost(kind):
    batches, source = [], kind()
    sampling = Sampling([source], 0.04, batches.append, together=0.06)
    sampling.start()
    try:
        assert until(lambda: len(batches) == 12)
    finally:
        sampling.stop()
    rows = rows_in(batches)
    assert statistics.median(map(len, rows[1:-1])) == 2
    times = [time for batch in rows for time in batch]
    assert times == sorted(set(times))
    assert len(times) == source.looks + getattr(source, "asked", 0)


def test_a_look_that_no_other_follows_soon_does_not_wait(sampled):
    _, heard = sampled([Simulated()], every=0.2, together=0.15)
    for seen in range(1, 5):
        assert until(lambda n=seen: len(heard.rows()) == n)


@pytest.mark.parametrize("kind", [Simulated, Glanced])
def test_what_waits_goes_with_what_is_asked_for_and_with_the_end(sampled, kind):
    source = kind()
    sampling, heard = sampled([source], every=0.02, together=3600.0)
    looks = lambda: source.looks + getattr(source, "asked", 0)  # noqa: E731
    assert until(lambda: looks() > 4)
    seen = looks()
    sampling.look_now(hand_over=True)
    assert until(lambda: len(heard.rows()) > seen)
    assert until(lambda: looks() > seen + 4)
    sampling.stop()
    assert len(heard.rows()) == looks()


def test_a_source_that_is_read_each_time_keeps_no_glance_of_another_waiting(sampled):
    glanced, read = Glanced("glanced"), Simulated("read")
    _, heard = sampled([glanced, read], every=0.02, together=0.05)
    assert until(lambda: glanced.asked > 3)
    for _ in range(5):
        asked = glanced.asked
        assert until(lambda n=asked: len(heard.rows(0)) >= n, deadline=5)
    assert glanced.looks < 3 + glanced.asked / 10


def test_what_goes_wrong_when_a_glance_is_worked_out_is_told(sampled):
    source = Glanced()
    _, heard = sampled([source])
    assert until(lambda: source.asked > 3)
    source.recall = lambda: 1 / 0
    assert until(lambda: heard.states("silent"))
    assert "ZeroDivisionError" in heard.states("silent")[0]["says"]
    del source.recall
    assert until(lambda: heard.states("fine"))


def test_a_glance_that_fails_is_read_and_told(sampled):
    source = Glanced()
    _, heard = sampled([source], together=UNWATCHED)
    assert until(lambda: source.asked > 3)
    source.faults = [OSError("gone")]
    source.glance = lambda: 1 / 0
    assert until(lambda: heard.states("silent"))
    assert "OSError: gone" in heard.states("silent")[0]["says"]


def test_a_source_without_devices_is_looked_at_once_and_keeps_nobody_awake(sampled):
    nothing, busy = Glanced("nothing", devices=0), Glanced("busy")
    sampling, _ = sampled([nothing, busy], together=UNWATCHED)
    assert until(lambda: busy.asked > 5)
    for _ in range(5):  # marks make no difference
        looks = busy.looks
        sampling.look_now()
        assert until(lambda n=looks: busy.looks > n)
    asked = busy.asked
    assert until(lambda: busy.asked > asked + 5)  # it is still only glanced at
    assert (nothing.opened, nothing.looks, nothing.asked) == (1, 1, 0)


def test_a_thread_with_nothing_to_look_at_sleeps(sampled):
    calls = []

    def clock():
        calls.append(None)
        return time.monotonic()

    source = Simulated(devices=0)
    sampling, heard = sampled([source], together=UNWATCHED, clock=clock)
    assert until(lambda: heard.lines)
    sampling.look_now()
    assert until(sampling._workers[0]._asleep.locked)
    before = len(calls)
    threading.Event().wait(0.3)  # thirty ticks
    assert len(calls) - before < 8
    assert source.looks == 1


@pytest.mark.parametrize("together", [0.0, 0.015, UNWATCHED])
def test_a_source_that_is_slow_gets_a_thread_of_its_own(sampled, together):
    slow, quick = Glanced("slow"), Glanced("quick")
    free = threading.Event()
    slow.during = lambda: free.wait(0.2)
    sampling, _ = sampled([slow, quick], together=together)

    def looks():
        return quick.looks + quick.asked

    assert until(lambda: len(sampling._workers) == 2)
    assert 3 <= slow.looks + slow.asked <= 5
    before, began = looks(), time.monotonic()
    assert until(lambda: looks() > before + 40)
    assert time.monotonic() - began < 3  # 40 looks at 10 ms; in one thread they would take 8 s
    free.set()
