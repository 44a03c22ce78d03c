"""The simulator is exact: it agrees with algebra, with plain loops, and with counting by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import plain
from labkit.kinds import LabError
from labkit.updates import (
    Quadratic,
    Softmax,
    Updates,
    delayed,
    implicit_momentum,
    simulate,
    staleness_bound,
    usual_staleness,
)

TIMES = st.lists(st.integers(1, 7), min_size=1, max_size=5)
WISHES = st.fixed_dictionaries(
    {
        "workers": st.integers(1, 6),
        "updates": st.integers(1, 60),
        "jitter": st.sampled_from([0.0, 0.3, 1.0]),
        "network": st.sampled_from([0.0, 0.1, 2.0]),
        "apply": st.sampled_from([0.0, 0.05, 1.0]),
        "seed": st.integers(0, 9),
    }
)
WAYS = st.sampled_from(
    [("async", {}), ("sync", {}), ("bounded", {"bound": 0}), ("bounded", {"bound": 2})]
)


def with_times(times, **keywords):
    return simulate(workers=len(times), slow=dict(enumerate(times)), **keywords)


def naive(times, updates, bound):
    """Tick by tick, in whole numbers: (worker, version read, version made) of each update."""
    workers = range(len(times))
    version, out = 0, []
    read, done, steps = [0] * len(times), list(times), [0] * len(times)
    clock = 0
    while len(out) < updates:
        clock += 1
        for worker in workers:
            if done[worker] != clock:
                continue
            version += 1
            out.append((worker, read[worker], version))
            steps[worker] += 1
            done[worker] = None  # it wants weights
            for other in workers:
                if done[other] is None and (bound is None or steps[other] - min(steps) <= bound):
                    read[other], done[other] = version, clock + times[other]
    return out[:updates]


@settings(deadline=None)
@given(TIMES, st.integers(1, 80), st.sampled_from([None, 0, 1, 3]))
def test_it_agrees_with_counting_tick_by_tick(times, updates, bound):
    mode = "async" if bound is None else "bounded"
    run = with_times(times, mode=mode, bound=bound, updates=updates)
    assert [(g.worker, g.read, g.written) for g in run.gradients] == naive(times, updates, bound)


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_equal_workers_are_gradient_descent_with_a_delay(workers):
    step = 0.9 * 2 / (2 * workers)
    run = simulate(Quadratic(), workers=workers, mode="async", updates=60, learning_rate=step)
    expected = delayed(step, delay=workers - 1, updates=60)
    assert [one.loss for one in run.losses] == pytest.approx([x * x / 2 for x in expected])


def test_synchronous_workers_do_what_one_device_does_with_the_global_batch():
    problem, steps, rate = Softmax(batch=8), 20, 0.3
    run = simulate(problem, workers=4, mode="sync", updates=steps, learning_rate=rate, jitter=0.5)
    whole, weights = Softmax(batch=32), problem.start()
    for step in range(steps):
        weights = weights - rate * whole.gradient(weights, worker=0, workers=1, step=step)
    assert np.abs(run.weights() - weights).max() < 1e-12
    assert run.losses[-1].loss == pytest.approx(problem.loss(weights))


@settings(deadline=None)
@given(WISHES)
def test_every_update_makes_the_gradients_of_all_others_older_by_one(wishes):
    run = simulate(mode="async", **wishes)
    workers = run.workers
    last = {g.worker: g.written for g in run.gradients}  # with it, the next weights were read
    unfinished = sum(run.updates - last.get(worker, 0) for worker in range(workers))
    assert sum(run.staleness) + unfinished == usual_staleness(workers) * run.updates


@pytest.mark.parametrize("slow", [{}, {0: 3.0}, {0: 5.0, 1: 2.0}])
def test_the_mean_staleness_is_that_of_the_rule_also_with_stragglers(slow):
    run = simulate(workers=5, mode="async", slow=slow, jitter=0.4, updates=4000)
    assert run.mean_staleness == pytest.approx(usual_staleness(5), abs=0.02)


@settings(deadline=None)
@given(WISHES, st.integers(0, 3), st.integers(1, 9))
def test_a_bound_is_never_broken(wishes, bound, factor):
    run = simulate(mode="bounded", bound=bound, slow={0: factor}, **wishes)
    assert run.max_staleness <= staleness_bound(run.workers, bound)
    steps = [0] * run.workers
    for one in run.gradients:
        assert steps[one.worker] - min(steps) <= bound
        steps[one.worker] += 1


def test_the_bound_on_staleness_can_be_reached():
    # Worker 0 reads when the other is two steps behind, and is slow when the other is ahead.
    run = simulate(workers=2, mode="bounded", bound=1, jitter=1.0, updates=3000)
    assert run.max_staleness == staleness_bound(2, 1)


def test_a_wide_bound_holds_nobody_back():
    free = simulate(workers=4, mode="async", jitter=0.5, updates=100)
    wide = simulate(workers=4, mode="bounded", bound=100, jitter=0.5, updates=100)
    assert wide.gradients == free.gradients


@settings(deadline=None)
@given(WISHES, WAYS, st.integers(1, 9))
def test_time_runs_forward_and_nobody_does_two_things_at_once(wishes, way, factor):
    mode, more = way
    run = simulate(mode=mode, slow={0: factor}, **wishes, **more)
    for one in run.gradients:
        times = [one.asked, one.allowed, one.began, one.ended, one.arrived, one.ready, one.applied]
        assert times == sorted(times)
    for worker in range(run.workers):
        for before, after in itertools.pairwise(run.of(worker)):
            assert before.applied == after.asked
    assert sorted({g.written for g in run.used}) == list(range(1, run.updates + 1))
    assert 0 <= run.computing <= 1 + 1e-9
    assert 0 <= run.waiting <= 1 - run.computing + 1e-9


def test_a_synchronous_round_takes_as_long_as_its_slowest_worker():
    run = simulate(workers=4, mode="sync", slow={3: 4.0}, updates=10, network=0.5, apply=0.25)
    # All but the slowest are dealt with while it still computes.
    assert run.seconds == 10 * (0.5 + 4.0 + 0.5 + 0.25)
    assert set(run.staleness) == {0}
    assert run.waiting == pytest.approx(3 * 3.0 / (4 * 5.25))


def test_the_server_limits_how_many_updates_there_can_be():
    run = simulate(workers=20, mode="async", apply=0.1, updates=1000)
    assert run.updates_per_second == pytest.approx(10, rel=0.02)


def test_backups_make_rounds_short_and_the_latest_gradients_worthless():
    run = simulate(workers=4, mode="sync", backups=1, slow={3: 4.0}, updates=20)
    assert run.seconds == 20.0
    assert {g.worker for g in run.gradients if g.written is None} == {3}
    assert run.dropped == len(run.of(3)) == 4
    assert len(run.used) == 3 * 20
    assert run.name == "synchronous, 1 backup"


@settings(deadline=None)
@given(WISHES, st.integers(1, 5), st.floats(1, 3))
def test_no_synchronous_gradient_is_stale_whoever_is_left_out(wishes, backups, factor):
    backups = min(backups, wishes["workers"] - 1)
    run = simulate(mode="sync", backups=backups, slow={0: factor}, **wishes)
    assert set(run.staleness) == {0}
    assert len(run.used) == (run.workers - backups) * run.updates


def test_exponential_times_act_like_momentum_on_average():
    workers, step, seeds = 4, 0.2, 300
    sums = np.zeros(31)
    for seed in range(seeds):
        run = simulate(workers=workers, jitter=1.0, updates=30, seed=seed)
        x = [1.0]
        for one in run.gradients:  # the record of who read what is all that a bowl needs
            x.append(x[-1] - step * x[one.read])
        sums += x
    mean = sums / seeds
    momentum = implicit_momentum(workers)
    # Before the beginning everything stood still but the weights that were read.
    now, before, expected = 1.0, 1.0 + step, [1.0]
    for _ in range(30):
        now, before = now + momentum * (now - before) - (1 - momentum) * step * now, now
        expected.append(now)
    assert np.abs(mean - expected).max() < 0.02
    assert np.abs(mean - delayed(step, 0, 30)).max() > 0.2, "without momentum it is another curve"


def test_a_run_can_be_limited_by_time_and_the_last_moment_counts():
    run = simulate(workers=2, mode="async", seconds=5.0)
    assert (run.updates, run.seconds) == (10, 5.0)
    # Eighteen times 0.03 s is a little more than 0.54 s, in the computer.
    run = simulate(workers=4, compute=0.030, slow={3: 3.0}, seconds=0.54)
    assert run.updates == 3 * 18 + 6


def test_losses_of_a_long_run_are_thinned_and_keep_both_ends():
    run = simulate(Quadratic(noise=0.1), workers=3, updates=5001, learning_rate=0.1)
    versions = [one.version for one in run.losses]
    assert (versions[0], versions[-1]) == (0, 5001)
    assert len(versions) <= 260


def test_what_flies_apart_is_told_by_the_loss_and_not_by_warnings(recwarn):
    run = simulate(Quadratic(), workers=4, updates=3000, learning_rate=5.0)
    assert not np.isfinite(run.losses[-1].loss)
    assert run.time_to(0.1) is None
    assert list(recwarn) == []


def test_a_run_is_a_record_that_comes_back_from_json():
    run = simulate(Quadratic(), workers=3, mode="bounded", bound=1, updates=20, jitter=0.2)
    back = plain.load(plain.dump(run))
    assert isinstance(back, Updates)
    assert back == run
    assert hash(back) == hash(run)
    assert str(back) == str(run)


def test_it_says_what_it_is():
    run = simulate(Quadratic(), workers=4, mode="async", slow={3: 4.0}, network=0.1)
    assert run.kind.name == "modelled"
    text = run._repr_mimebundle_()
    assert "worker 3: 4.00 s" in text["text/plain"]
    assert f"mean {run.mean_staleness:.2f}, largest {run.max_staleness}" in text["text/html"]


def test_a_time_that_holds_too_many_gradients_is_refused_when_they_are_too_many(monkeypatch):
    monkeypatch.setattr("labkit.updates.simulator.MOST", 1000)
    with pytest.raises(LabError, match="more than 1,000 gradients"):
        simulate(seconds=1e7)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"mode": "chaotic"}, "'chaotic'.*'sync', 'async' or 'bounded'"),
        ({"workers": 0}, "workers=0"),
        ({"mode": "bounded"}, "bound=2"),
        ({"bound": 1}, "'async' with bound=1"),
        ({"backups": 1}, "only synchronous"),
        ({"mode": "sync", "workers": 2, "backups": 2}, "2 of 2 workers"),
        ({"mode": ["sync"]}, r"no mode \['sync'\]"),
        ({"workers": 10**9}, "from 1 to 1,000"),
        ({"seconds": 0.5}, "Not one update was made within seconds=0.5"),
        ({"jitter": 100.0}, "jitter=100.0 .* up to 3"),
        ({"learning_rate": 1e300}, r"up to 1e\+12"),
        ({"compute": 10**400}, "compute=10000.* up to"),
        ({"slow": {0: 0}}, r"slow\[0\]=0 is not a number above 0"),
        ({"mode": "sync", "workers": 1, "backups": 1}, "workers=2 or more"),
        ({"updates": 5, "seconds": 2.0}, "not both"),
        ({"slow": {4: 2.0}}, "no worker 4 .* 0 to 3"),
        ({"slow": 4.0}, r"slow=\{3: 4.0\}"),
        ({"slow": {1: -1}}, r"slow\[1\]=-1"),
        ({"learning_rate": 0}, "above 0"),
        ({"compute": 0}, "nothing takes any time"),
        ({"updates": 2_000_000}, "more than 100,000"),
        ({"problem": Quadratic}, "no problem to train on"),
    ],
)
def test_a_mistake_is_named_with_its_value(keywords, words):
    with pytest.raises(LabError, match=words):
        simulate(**keywords)
