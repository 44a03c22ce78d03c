"""The simulator is exact: algebra, plain loops and counting by hand give the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.kinds import LabError
from labkit.updates import Quadratic, Softmax, delayed, simulate, staleness_bound

KEYWORDS = st.fixed_dictionaries(
    {
        "workers": st.integers(1, 6),
        "updates": st.integers(1, 60),
        "jitter": st.sampled_from([0.0, 0.3, 1.0]),
        "network": st.sampled_from([0.0, 0.1, 2.0]),
        "apply": st.sampled_from([0.0, 0.05, 1.0]),
        "seed": st.integers(0, 9),
    }
)
MODES = st.sampled_from([("async", {}), ("sync", {}), ("ssp", {"bound": 0}), ("ssp", {"bound": 2})])


def tick_by_tick(times, updates, bound):
    """In whole numbers: (worker, version read, version made) of each update."""
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


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
    st.integers(1, 80),
    st.sampled_from([None, 0, 1, 3]),
)
def test_it_agrees_with_counting_tick_by_tick(times, updates, bound):
    run = simulate(
        workers=len(times), slow=dict(enumerate(times)), updates=updates, bound=bound,
        mode="async" if bound is None else "ssp",
    )  # fmt: skip
    found = [(g.worker, g.read, g.written) for g in run.gradients]
    assert found == tick_by_tick(times, updates, bound)


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_equal_workers_are_gradient_descent_with_a_delay(workers):
    step = 0.9 / workers
    run = simulate(Quadratic(), workers=workers, mode="async", updates=60, learning_rate=step)
    expected = delayed(step, delay=workers - 1, updates=60)
    assert [one.loss for one in run.losses] == pytest.approx([x * x / 2 for x in expected])


def test_synchronous_workers_do_what_one_device_does_with_the_global_batch():
    problem, steps, rate = Softmax(batch=8), 20, 0.3
    run = simulate(problem, workers=4, mode="sync", updates=steps, learning_rate=rate, jitter=0.5)
    serial, weights = Softmax(batch=32), problem.start()
    for step in range(steps):
        weights = weights - rate * serial.gradient(weights, worker=0, workers=1, step=step)
    assert np.abs(run.weights - weights).max() < 1e-12
    assert run.losses[-1].loss == pytest.approx(problem.loss(weights))


@settings(max_examples=20)
@given(KEYWORDS, st.integers(1, 9))
def test_every_update_makes_the_gradients_of_all_other_workers_staler_by_one(keywords, factor):
    run = simulate(mode="async", slow={0: factor}, **keywords)
    last = {g.worker: g.written for g in run.gradients}  # with it, the next weights were read
    in_flight = sum(run.updates - last.get(worker, 0) for worker in range(run.workers))
    assert sum(run.staleness) + in_flight == (run.workers - 1) * run.updates
    assert run.mean_staleness == pytest.approx(np.mean(run.staleness))
    assert sum(run.staleness_counts().values()) == run.updates
    assert sum(run.staleness_counts(0).values()) == sum(one.worker == 0 for one in run.used)


@settings(max_examples=20)
@given(KEYWORDS, st.integers(0, 3), st.integers(1, 9))
def test_no_worker_gets_weights_beyond_the_bound(keywords, bound, factor):
    run = simulate(mode="ssp", bound=bound, slow={0: factor}, **keywords)
    assert run.max_staleness <= staleness_bound(run.workers, bound)
    steps = [0] * run.workers
    for one in run.gradients:
        assert steps[one.worker] - min(steps) <= bound
        steps[one.worker] += 1


def test_the_bound_on_staleness_is_reached():
    # Worker 0 reads when the other is two steps behind, and is slow when the other is ahead.
    run = simulate(workers=2, mode="ssp", bound=1, jitter=1.0, updates=3000)
    assert run.max_staleness == staleness_bound(2, 1)


@settings(max_examples=20)
@given(KEYWORDS, MODES, st.integers(1, 9))
def test_the_share_of_time_computing_and_waiting_is_at_most_one(keywords, mode, factor):
    run = simulate(mode=mode[0], slow={0: factor}, **keywords, **mode[1])
    assert 0 <= run.computing <= 1 + 1e-9
    assert 0 <= run.waiting <= 1 - run.computing + 1e-9


def test_a_synchronous_step_takes_as_long_as_its_slowest_worker():
    run = simulate(workers=4, mode="sync", slow={3: 4.0}, updates=10, network=0.5, apply=0.25)
    # The server has handled all other gradients while the slowest worker still computes.
    assert run.seconds == 10 * (0.5 + 4.0 + 0.5 + 0.25)
    assert set(run.staleness) == {0}
    assert run.waiting == pytest.approx(3 * 3.0 / (4 * 5.25))
    # Worker 0 waits for its second weights from 1 s to 3 s.
    run = simulate(workers=2, mode="ssp", bound=0, slow={1: 3.0}, updates=4)
    assert run.waiting == pytest.approx(2 / (4 + 6))
    # Equal workers: all gradients arrive at once, and the server handles them one by one.
    assert simulate(workers=4, mode="sync", updates=10, apply=0.25).seconds == 10 * (1 + 4 * 0.25)


def test_backup_workers_make_steps_short_and_drop_the_latest_gradients():
    run = simulate(workers=4, mode="sync", backups=1, slow={3: 4.0}, updates=20)
    assert run.seconds == 20.0
    assert {g.worker for g in run.gradients if g.written is None} == {3}
    assert run.dropped == len(run.of(3)) == 4
    assert len(run.used) == 3 * 20


def test_exponential_times_act_like_momentum_on_average():
    """Mitliagkas and others, 2016: momentum 1 - 1/workers, and a step of a share 1/workers."""
    workers, step, seeds = 4, 0.2, 300
    sums = np.zeros(31)
    for seed in range(seeds):
        run = simulate(workers=workers, jitter=1.0, updates=30, seed=seed)
        x = [1.0]
        for one in run.gradients:  # who read which version is all that a quadratic loss needs
            x.append(x[-1] - step * x[one.read])
        sums += x
    mean = sums / seeds
    momentum = 1 - 1 / workers
    # Before the start nothing moved but the weights that were read.
    now, before, expected = 1.0, 1.0 + step, [1.0]
    for _ in range(30):
        now, before = now + momentum * (now - before) - (1 - momentum) * step * now, now
        expected.append(now)
    assert np.abs(mean - expected).max() < 0.02
    assert np.abs(mean - delayed(step, 0, 30)).max() > 0.2, "without momentum it is another curve"


def test_a_run_can_be_limited_by_time_and_the_last_moment_counts():
    run = simulate(workers=2, mode="async", seconds=5.0)
    assert (run.updates, run.seconds) == (10, 5.0)
    # Eighteen times 0.03 s is a little more than 0.54 s in floating point.
    run = simulate(workers=4, compute=0.030, slow={3: 3.0}, seconds=0.54)
    assert run.updates == 3 * 18 + 6


def test_losses_of_a_long_run_are_thinned_and_keep_both_ends():
    problem, steps = Quadratic(), 5001
    run = simulate(problem, workers=1, updates=steps, learning_rate=0.001)
    versions = [one.version for one in run.losses]
    assert (versions[0], versions[-1]) == (0, steps)
    assert 100 < len(versions) <= 260
    expected = [0.5 * 0.999 ** (2 * version) for version in versions]
    assert [one.loss for one in run.losses] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"mode": "chaotic"}, "'chaotic'"),
        ({"mode": "ssp"}, "bound=None"),
        ({"backups": 1}, "mode='sync'"),
        ({"mode": "sync", "workers": 2, "backups": 2}, "backups .*got 2"),
        ({"updates": 5, "seconds": 2.0}, "not both"),
    ],
)
def test_a_wrong_argument_is_named_with_its_value(keywords, words, monkeypatch):
    monkeypatch.setattr("labkit.updates.simulator.MOST_GRADIENTS", 1000)
    with pytest.raises(LabError, match=words):
        simulate(**keywords)
