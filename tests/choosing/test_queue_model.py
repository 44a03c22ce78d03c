"""The model of a queue obeys the queue's own rules, whatever is asked of it."""

import random
from itertools import pairwise

import pytest

from labkit.choosing.queue_model import DEVICES, JobRequest, crowd, queue, usual_wait
from labkit.kinds import LabError


def requests(seed, count=40, devices=8):
    dice = random.Random(seed)
    return [
        JobRequest(str(number), dice.uniform(0, 20), dice.choice((1, 1, 2, 4, devices)), limit,
                limit * dice.uniform(0.2, 1.2))
        for number, limit in enumerate(dice.uniform(0.5, 6) for _ in range(count))
    ]  # fmt: skip


@pytest.mark.parametrize("backfill", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_no_device_has_two_jobs_and_every_job_runs_once(seed, backfill):
    jobs = requests(seed)
    done = queue(jobs, 8, backfill=backfill).started
    assert sorted(one.request.name for one in done) == sorted(job.name for job in jobs)
    for device in range(8):
        here = sorted((one.start, one.end) for one in done if device in one.on_devices)
        assert all(end <= start for (_, end), (start, _) in pairwise(here))
    for one in done:
        assert one.start >= one.request.submitted
        assert len(set(one.on_devices)) == one.request.devices
        assert one.end - one.start <= one.request.limit + 1e-9


@pytest.mark.parametrize("seed", range(2))
def test_the_first_in_the_line_is_not_delayed_by_those_who_go_before(seed):
    """Of those who ask at once, the first that does not fit begins when it would have anyhow."""
    dice = random.Random(seed)
    jobs = [JobRequest(str(n), 0.0, dice.choice((2, 3, 5)), dice.uniform(1, 5)) for n in range(12)]
    plain = {one.request.name: one.start for one in queue(jobs, 8, backfill=False).started}
    filled = {one.request.name: one.start for one in queue(jobs, 8).started}
    first = next(job.name for job in jobs if plain[job.name] > 0)
    assert filled[first] == plain[first]


def test_a_small_job_goes_before_a_large_one_if_it_ends_in_time_or_leaves_its_devices():
    line = [JobRequest("a", 0, 6, 4), JobRequest("b", 0, 8, 2)]
    assert queue([*line, JobRequest("c", 0, 2, 4)], 8).wait("c") == 0
    assert queue([*line, JobRequest("c", 0, 2, 4.1)], 8).wait("c") == 6
    line = [JobRequest("a", 0, 6, 4), JobRequest("b", 0, 7, 2)]
    assert queue([*line, JobRequest("c", 0, 1, 100)], 8).wait("c") == 0


def test_devices_that_the_first_in_the_line_leaves_are_used_up():
    """One of 8 is left beside b: c takes it for long, and d would make b wait."""
    line = [JobRequest("a", 0, 6, 4), JobRequest("b", 0, 7, 2)]
    done = queue([*line, JobRequest("c", 0, 1, 100), JobRequest("d", 0, 1, 100)], 8)
    assert [done.wait(name) for name in "bcd"] == [4, 0, 6]


def test_jobs_that_end_together_free_the_devices_of_all():
    line = [JobRequest("a", 0, 4, 4), JobRequest("b", 0, 4, 4), JobRequest("c", 0, 5, 2)]
    assert queue([*line, JobRequest("d", 0, 1, 100)], 9).wait("d") == 0


def test_a_job_that_ends_before_its_limit_frees_its_devices_and_was_planned_with_its_limit():
    """a may last until 4, and c ends by then; b begins as soon as both have ended, at 3."""
    line = [JobRequest("a", 0, 6, 4, runs=1), JobRequest("b", 0.5, 8, 2)]
    done = queue([*line, JobRequest("c", 0.5, 2, 3.5, runs=2.5), JobRequest("d", 0.5, 2, 3.6)], 8)
    assert [done.wait(name) for name in "abcd"] == [0, 2.5, 0, 4.5]


def test_the_usual_wait_is_the_mean_over_crowds_and_shorter_for_who_asks_for_less_time():
    you = JobRequest("you", 48.0, 1, 24)
    waits = [queue((*crowd(seed), you), DEVICES).wait("you") for seed in range(9)]
    assert usual_wait(1, 24, times=9) == pytest.approx(sum(waits) / 9)
    assert usual_wait(1, 1, times=9) < usual_wait(1, 24, times=9)


@pytest.mark.parametrize("arguments", [{"devices": 33, "limit": 1}, {"devices": 1, "limit": 0}])
def test_a_request_that_no_queue_can_serve_is_refused(arguments):
    with pytest.raises(LabError, match="must be"):
        usual_wait(**arguments)
