"""What is called when: first calls, warm-up, rounds; and what is kept when it ends early."""

import asyncio
import gc
import itertools
import sys
from types import SimpleNamespace

import pytest

from labkit.kinds import LabError
from labkit.timing import clock as clock_file
from labkit.timing import compare, measure
from tests.timing.fake import World, then


@pytest.fixture
def world(monkeypatch):
    # No time is measured in this world, and collecting pytest's own garbage takes long.
    monkeypatch.setattr(gc, "collect", lambda generation=2: 0)
    return World()


def test_first_call_is_kept_apart(world):
    run = measure(world.work("f", then(5.0, rest=1.0)), rounds=8, _clock=world.clock)
    assert run.first == 5.0
    assert run.samples == (1.0,) * 8
    assert run.seconds().value == 1.0


def test_warm_up_ends_after_two_calls_that_are_not_faster(world):
    times = then(9.0, 5.0, 3.0, 2.0, rest=1.0)
    run = measure(world.work("f", times), rounds=3, _clock=world.clock)
    timed = run.log.timed[0]
    assert timed.warmup == (5.0, 3.0, 2.0, 1.0, 1.0, 1.0)
    assert timed.ending == "stable"


def test_a_slow_call_does_not_prolong_the_warm_up(world):
    run = measure(world.work("f", then(1.0, 1.0, 7.0, rest=1.0)), rounds=3, _clock=world.clock)
    assert run.log.timed[0].warmup == (1.0, 7.0)


def falling():
    return (0.9**n for n in itertools.count())


def test_warm_up_is_bounded_in_calls_and_forbids_a_verdict(world):
    works = {"a": world.work("a", 1.0), "b": world.work("b", falling())}
    result = compare(works, rounds=10, warmup=6, _clock=world.clock)
    assert len(result.log.of("b").warmup) == 6
    assert result.log.of("b").ending == "unstable"
    assert result.verdict().word == "cannot tell"
    assert "warming up after 6 calls" in str(result)


def test_warm_up_is_bounded_in_seconds(world):
    run = measure(world.work("f", (100 * t for t in falling())), rounds=1, warmup_seconds=150,
                  _clock=world.clock)  # fmt: skip
    assert run.log.timed[0].warmup == (90.0, 81.0)
    assert run.log.timed[0].ending == "unstable"


def test_warm_up_can_be_left_out(world):
    works = {"a": world.work("a", 1.0), "b": world.work("b", 2.0)}
    result = compare(works, rounds=8, warmup=0, _clock=world.clock)
    assert result.log.of("a").warmup == ()
    assert result.verdict().word == "slower"
    assert "warm-up skipped" in str(result)


def test_every_round_holds_every_candidate_once_in_an_order_drawn_anew(world):
    works = {name: world.work(name, 1.0) for name in "abc"}
    result = compare(works, rounds=40, seed=1, _clock=world.clock)
    rows = result.log.order
    assert all(sorted(row) == [0, 1, 2] for row in rows)
    assert len(set(rows)) == 6
    timed = "".join(world.calls[-120:])
    assert timed == "".join("abc"[i] for row in rows for i in row)


def test_a_seed_repeats_the_order_and_none_draws_one():
    def order(seed):
        world = World()
        works = {name: world.work(name, 1.0) for name in "abc"}
        log = compare(works, rounds=20, seed=seed, _clock=world.clock).log
        return log.order, log.seed

    assert order(4) == order(4)
    assert order(4)[0] != order(5)[0]
    drawn = order(None)
    assert order(drawn[1])[0] == drawn[0]


def test_deadline_lets_the_round_in_progress_end(world):
    works = {"a": world.work("a", 1.0), "b": world.work("b", 1.0)}
    # Six calls before the rounds, then two in each.
    result = compare(works, rounds=20, deadline=9.5, _clock=world.clock)
    assert result.rounds == 2
    assert result.log.stopped == "deadline"
    assert "Stopped at the deadline after 2 of 20 rounds" in str(result)


def test_ctrl_c_keeps_the_complete_rounds(world, capsys):
    def stop():
        raise KeyboardInterrupt

    calls = itertools.count()
    counted = world.work("b", 1.0)

    def b():
        return stop() if next(calls) == 12 else counted()

    result = compare({"a": world.work("a", 1.0), "b": b}, rounds=20, _clock=world.clock)
    assert result.rounds == 9
    assert result.log.stopped == "interrupted"
    assert "Interrupted after 9 of 20 rounds" in str(result)
    assert "9 complete rounds are kept" in capsys.readouterr().err
    assert result.verdict().rounds == 9


def test_ctrl_c_before_the_first_round_is_raised_on(world):
    def b():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare({"a": world.work("a", 1.0), "b": b}, _clock=world.clock)


def test_a_candidates_own_error_stays_visible_and_what_was_timed_reachable(world):
    calls = itertools.count()
    counted = world.work("b", 1.0)

    def b():
        if next(calls) == 8:
            raise ZeroDivisionError("the student's own")
        counted()

    works = {"a": world.work("a", 1.0), "two replicas": b}
    with pytest.raises(ZeroDivisionError, match="the student's own") as caught:
        compare(works, rounds=20, _clock=world.clock)
    notes = "\n".join(caught.value.__notes__)
    assert "'two replicas' in round 6 of 20" in notes
    assert caught.value.labkit_measured.rounds == 5
    assert "Ended by an error" in str(caught.value.labkit_measured)


def test_an_error_in_the_first_call_names_it(world):
    def work():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        measure(work, _clock=world.clock)
    assert caught.value.__notes__ == ["labkit: raised by 'work' in its first call."]


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_collection_is_off_while_timing_and_then_as_before(enabled):
    seen = []
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        measure(lambda: seen.append(gc.isenabled()), rounds=2)
        after = gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
    assert not any(seen)
    assert after is enabled


def test_garbage_collection_comes_back_after_an_error():
    def fails():
        raise RuntimeError

    assert gc.isenabled()
    with pytest.raises(RuntimeError):
        measure(fails)
    assert gc.isenabled()


def fake_tensorflow(events, gpus):
    return SimpleNamespace(
        config=SimpleNamespace(list_physical_devices=lambda _: gpus),
        test=SimpleNamespace(
            experimental=SimpleNamespace(sync_devices=lambda: events.append("sync"))
        ),
    )


@pytest.mark.parametrize(("gpus", "waits"), [(["GPU:0"], ["sync", "work", "sync"]), ([], ["work"])])
def test_tensorflow_is_waited_for_where_there_is_a_gpu(monkeypatch, gpus, waits):
    events = []
    clock_file._has_gpu.cache_clear()

    class Hashable(SimpleNamespace):
        __hash__ = object.__hash__

    module = Hashable(**vars(fake_tensorflow(events, gpus)))
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    monkeypatch.delitem(sys.modules, "tensorflow.python.eager.context", raising=False)
    clock_file.seconds_of("f", lambda: events.append("work"))
    clock_file._has_gpu.cache_clear()
    assert events == waits


def test_torch_is_waited_for_on_the_gpus_in_use(monkeypatch):
    waited = []
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 3,
        current_device=lambda: 0,
        memory_allocated=lambda index: 10 if index == 2 else 0,
        synchronize=waited.append,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    clock_file.wait_for_devices(None)
    assert waited == [0, 2]


def test_returned_values_are_waited_for():
    waited = []
    leaf = SimpleNamespace(block_until_ready=lambda: waited.append(1))
    clock_file.wait_for_devices({"loss": leaf, "rest": [leaf, (leaf, 3)]})
    assert len(waited) == 3


def test_a_coroutine_that_slips_through_is_refused():
    async def later():
        return 1

    with pytest.raises(LabError, match="gave back a coroutine"):
        measure(lambda: later())  # noqa: PLW0108 - hidden on purpose
    asyncio.run(later())


def test_time_left_is_what_the_remaining_rounds_will_take(world, monkeypatch):
    from labkit import progress

    said = []
    monkeypatch.setattr(progress.Line, "show", lambda self, text: said.append(text))
    works = {"a": world.work("a", 1.0), "b": world.work("b", 2.0)}
    compare(works, rounds=10, _clock=world.clock)
    assert said[-1] == "round 10 of 10, about 3.00 s left"
    assert "round 1 of 10, about 30.0 s left" in said
