"""How calls are timed: in rounds, by all, checked before and after."""

import numpy as np
import pytest

from labkit.collectives.bench.rounds import Contender, Group, time_all

PLAN = {
    "collective": "all_reduce", "dtype": "float32", "sizes": [64, 128], "rounds": 6, "warmup": 2,
    "seconds_per_size": 60.0, "seed": 1,
}  # fmt: skip


def alone(log):
    """A group of one rank that notes when it meets."""
    return Group(0, 1, lambda: log.append("barrier"), lambda value: value)


def contender(name, log, buffer, work=lambda buffer: None):
    def fill(values):
        buffer[:] = values(0)

    def call():
        log.append((name, bool(buffer.any())))
        work(buffer)

    return Contender(fill, call, lambda: [(0, buffer)])


def timed(plan=PLAN, work=lambda buffer: None, names=("a", "b", "c")):
    log = []

    def ready(count):
        buffer = np.empty(count, "float32")
        return {name: contender(name, log, buffer, work) for name in names}

    return time_all(plan, ready, alone(log), lambda *_: None), log


def test_every_contender_has_a_record_for_every_size():
    records, _ = timed()
    assert [(r["contender"], r["nbytes"]) for r in records] == [
        (name, size) for size in (64, 128) for name in "abc"
    ]
    assert all(len(record["seconds"]) == 6 and record["wrong"] == 0 for record in records)
    assert all(second > 0 for record in records for second in record["seconds"])


def test_a_barrier_comes_before_each_sample_and_the_order_changes():
    records, log = timed({**PLAN, "sizes": [64], "rounds": 12})
    samples = [log[at + 1][0] for at, one in enumerate(log[:-1]) if one == "barrier"]
    # Three checked calls and two warm-ups each, then the rounds, then the last checks.
    rounds = [samples[at : at + 3] for at in range(9, 9 + 36, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len({tuple(one) for one in rounds}) > 2
    assert all(record["calls"] >= 1 for record in records)


def test_timed_calls_work_on_zeros_so_that_sums_stay_what_they_are():
    _, log = timed({**PLAN, "sizes": [64]}, names=("a",))
    held = [one[1] for one in log if one != "barrier"]
    assert held[0]
    assert held[-1]
    assert not any(held[1:-1])


def test_short_calls_are_timed_several_at_a_time():
    records, _ = timed({**PLAN, "sizes": [64]}, names=("a",))
    assert records[0]["calls"] > 1
    assert records[0]["seconds"][0] < 1e-3


@pytest.mark.parametrize("broken_from", [1, 5])
def test_a_wrong_result_is_counted_at_the_beginning_and_at_the_end(broken_from):
    calls = []

    def work(buffer):
        calls.append(1)
        if len(calls) >= broken_from:
            buffer[3] += 1

    records, _ = timed({**PLAN, "sizes": [64]}, work, names=("a",))
    assert records[0]["wrong"] == (2 if broken_from == 1 else 1)


def test_time_over_means_fewer_rounds_but_never_fewer_than_three():
    records, _ = timed({**PLAN, "seconds_per_size": 0.0, "rounds": 50})
    assert {len(record["seconds"]) for record in records} == {3}
