"""Problems: their gradients are those of their losses, and workers share out the data."""

import numpy as np
import pytest

from labkit.kinds import LabError
from labkit.updates import CourseModel, Quadratic, Softmax
from labkit.updates.problems import rows_of


@pytest.mark.parametrize("problem", [Quadratic((2.0, 0.5)), Softmax(images=40, batch=40)])
def test_the_gradient_is_the_slope_of_the_loss(problem):
    draw = np.random.default_rng(1)
    weights = problem.start() + 0.3 * draw.standard_normal(len(problem.start()))
    slope = problem.gradient(weights, worker=0, workers=1, step=0)
    for place in draw.choice(len(weights), size=min(12, len(weights)), replace=False):
        nudge = np.zeros(len(weights))
        nudge[place] = 1e-5
        expected = (problem.loss(weights + nudge) - problem.loss(weights - nudge)) / 2e-5
        assert slope[place] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("batch", "workers"), [(2, 3), (1, 6), (3, 2)])
def test_workers_together_take_every_example_once_an_epoch(batch, workers):
    steps = 24 // (batch * workers)
    taken = [
        rows_of(24, batch, worker, workers, step)
        for step in range(steps)
        for worker in range(workers)
    ]
    assert sorted(np.concatenate(taken)) == list(range(24))


def test_noise_is_the_same_for_the_same_step_and_averages_out():
    bowl = Quadratic(noise=0.5, seed=3)
    weights = bowl.start()
    one = bowl.gradient(weights, worker=1, workers=2, step=7)
    assert one == bowl.gradient(weights, worker=1, workers=2, step=7)
    assert one != bowl.gradient(weights, worker=0, workers=2, step=7)
    many = [bowl.gradient(weights, worker=0, workers=1, step=step)[0] for step in range(2000)]
    assert np.mean(many) == pytest.approx(1.0, abs=0.05)
    assert np.std(many) == pytest.approx(0.5, abs=0.05)


def test_softmax_learns_its_clouds():
    problem = Softmax()
    weights = problem.start()
    assert problem.loss(weights) == pytest.approx(np.log(10))
    for step in range(100):
        weights = weights - 0.3 * problem.gradient(weights, worker=0, workers=1, step=step)
    assert problem.accuracy(weights) > 0.9
    assert repr(problem) == "softmax regression on 2,000 points in 10 clouds, batch 32"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Quadratic(()), "needs a curvature"),
        (lambda: Quadratic(3.0), "in brackets"),
        (lambda: Quadratic((1.0, -2.0)), "curvature=-2.0"),
        (lambda: Softmax("digits"), "'digits' is no data set"),
        (lambda: Softmax(batch=0), "batch=0"),
        (lambda: Softmax(images=20), "batch=32 is more than all the 20 examples"),
        (lambda: CourseModel("digits"), "'digits' is no data set"),
    ],
)
def test_a_mistake_is_named_with_its_value(make, words):
    with pytest.raises(LabError, match=words):
        make()
