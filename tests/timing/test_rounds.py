"""What is called when: first calls, warm-up, rounds; what is kept when it ends early; misuse."""

import gc
import itertools
import sys
import weakref
from types import SimpleNamespace

import pytest

from labkit.kinds import LabError
from labkit.timing import compare, measure, wall_clock


def test_first_call_and_warm_up_are_kept_apart(world):
    times = itertools.chain([5.0, 3.0, 2.0], itertools.repeat(1.0))
    run = measure(world.work("f", times), rounds=8)
    assert run.timed[0].first == 5.0
    assert run.samples() == (1.0,) * 8
    measure(world.work("g", 1.0), rounds=2, warmup=0)
    assert world.calls.count("g") == 3


def test_every_round_holds_every_program_once_in_an_order_drawn_anew(world):
    def orders(seed):
        works = {name: world.work(name, 0.1) for name in "abc"}
        compare(works, rounds=40, seed=seed)
        calls = "".join(world.calls[-120:])
        return [calls[at : at + 3] for at in range(0, 120, 3)]

    drawn = orders(1)
    assert all(sorted(row) == ["a", "b", "c"] for row in drawn)
    assert len(set(drawn)) == 6
    assert orders(1) == drawn != orders(None)


def test_at_the_time_limit_the_round_in_progress_is_the_last(world):
    works = {"a": world.work("a", 1.0), "b": world.work("b", 1.0)}
    # Six calls before the rounds, then two in each.
    result = compare(works, rounds=20, time_limit=9.5)
    assert result.rounds == 2
    assert "after 2 of 20 rounds" in str(result)


def test_a_call_longer_than_the_time_limit_is_still_timed_once(world):
    works = {"a": world.work("a", 100.0), "b": world.work("b", 100.0)}
    result = compare(works, time_limit=5)
    assert world.calls[:2] == ["a", "b"]  # the first calls; no warm-up
    assert (len(world.calls), result.rounds) == (4, 1)


def test_ctrl_c_keeps_the_complete_rounds(world):
    def interrupt():
        raise KeyboardInterrupt

    calls, counted = itertools.count(), world.work("b", 1.0)

    def b():
        return interrupt() if next(calls) == 12 else counted()

    result = compare({1: world.work("a", 1.0), "b": b}, items={1: 2, "b": 2}, rounds=20)
    assert result.rounds == len(result.samples("1")) == len(result.samples("b")) == 9
    assert "Ctrl-C after 9 of 20 rounds" in str(result)
    with pytest.raises(KeyboardInterrupt):  # before the first round there is nothing to keep
        compare({"a": world.work("a", 1.0), "b": interrupt})


def test_a_candidates_own_error_says_where(world):
    calls = itertools.count()

    def b():
        if next(calls) == 8:
            raise ZeroDivisionError("the student's own")

    with pytest.raises(ZeroDivisionError, match="the student's own") as caught:
        compare({"a": world.work("a", 1.0), "two replicas": b}, rounds=20)
    assert "'two replicas' in round 6 of 20" in caught.value.__notes__[0]


def test_garbage_collection_is_off_while_timing_and_then_on_again():
    seen = []

    def work():
        seen.append(gc.isenabled())
        if len(seen) == 5:
            raise RuntimeError

    assert gc.isenabled()
    measure(work, rounds=1)
    assert gc.isenabled()
    with pytest.raises(RuntimeError):
        measure(work)
    assert gc.isenabled()
    assert not any(seen)


def test_the_garbage_of_a_call_is_collected_before_the_next_one():
    class Garbage:
        pass

    left = []

    def work():
        alive = [one() is not None for one in left]
        garbage = Garbage()
        garbage.itself = garbage
        left.append(weakref.ref(garbage))
        assert not any(alive)

    measure(work, rounds=5)


@pytest.mark.parametrize(
    ("started", "gpus", "waits"),
    [
        (True, 1, ["sync", "work", "sync"]),
        (True, 0, ["work"]),
        # To ask for its GPUs would start it, and a device could no longer be split.
        (False, None, ["work"]),
    ],
)
def test_tensorflow_is_waited_for_where_it_runs_on_a_gpu(monkeypatch, started, gpus, waits):
    events = []

    def num_gpus():
        assert started
        return gpus

    runtime = SimpleNamespace(_initialized=started, num_gpus=num_gpus)
    sync = SimpleNamespace(sync_devices=lambda: events.append("sync"))
    tensorflow = SimpleNamespace(test=SimpleNamespace(experimental=sync))
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    eager = SimpleNamespace(context=lambda: runtime)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", eager)
    wall_clock.seconds_of(lambda: events.append("work"))
    assert events == waits


@pytest.mark.parametrize("started", [True, False])
def test_pytorch_is_waited_for_where_it_has_put_a_tensor_on_a_gpu(monkeypatch, started):
    """The GPUs of other ranks are left alone: to wait for one takes memory there."""
    events = []
    cuda = SimpleNamespace(
        is_initialized=lambda: started, device_count=lambda: 3, synchronize=events.append,
        memory_reserved=lambda index: 2**21 * (index > 0),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    wall_clock.seconds_of(lambda: events.append("work"))
    assert events == ([1, 2, "work", 1, 2] if started else ["work"])


def f():
    return None


AB, DEVICES = {"a": f, "b": f}, {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: compare({"a": f}), "two or more functions"),
        (lambda: measure(f), "LABKIT_ROUNDS .*got 'x'"),
        (lambda: compare(AB, scaling="strong", devices=DEVICES, items=DEVICES), "same work"),
        (lambda: compare(AB, scaling="weak", devices=DEVICES, items=64), "same work per device"),
    ],
)
def test_misuse(ask, said, monkeypatch):
    monkeypatch.setenv("LABKIT_ROUNDS", "x")
    with pytest.raises(LabError, match=said):
        ask()
