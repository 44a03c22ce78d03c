"""Problems: their gradients are those of their losses, and workers share out the data."""

import numpy as np
import pytest

from labkit.updates import Quadratic, Softmax


@pytest.mark.parametrize("problem", [Quadratic((2.0, 0.5)), Softmax(points=40, batch=40)])
def test_the_gradient_is_the_slope_of_the_loss(problem):
    draw = np.random.default_rng(1)
    weights = problem.start() + 0.3 * draw.standard_normal(len(problem.start()))
    gradient = problem.gradient(weights, worker=0, workers=1, step=0)
    for place in draw.choice(len(weights), size=min(12, len(weights)), replace=False):
        nudge = np.zeros(len(weights))
        nudge[place] = 1e-5
        expected = (problem.loss(weights + nudge) - problem.loss(weights - nudge)) / 2e-5
        assert gradient[place] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("batch", "workers"), [(2, 3), (1, 6), (3, 2)])
def test_workers_together_take_every_example_once_an_epoch(batch, workers):
    problem = Softmax(points=24, batch=batch)
    steps = 24 // (batch * workers)
    taken = [problem.rows(w, workers, step) for step in range(steps) for w in range(workers)]
    assert sorted(np.concatenate(taken)) == list(range(24))
