"""The breakdown puts the time of a step where it belongs, and its parts add up to the step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import plain
from labkit.kinds import LabError, measured
from labkit.training import Job, breakdown
from labkit.training.breakdown import Breakdown, StepTime

VARIANTS = ("step", "no reduction", "compute")


def step(replicas=2, batch=64, **seconds):
    """A step whose variants took these seconds in each of twelve rounds."""
    times = {name.replace("_", " "): [value] * 12 for name, value in seconds.items()}
    return StepTime.of(replicas, batch, times)


def test_each_part_is_what_its_removal_saves():
    found = step(step=10.0, no_reduction=7.0, compute=6.0)
    parts = {part.name: part.seconds for part in found.parts}
    assert parts == pytest.approx({"compute": 6.0, "input": 1.0, "gradient reduction": 3.0})


rounds = st.lists(st.floats(0.1, 10), min_size=12, max_size=12)


@given(st.tuples(rounds, rounds, rounds))
def test_the_parts_add_up_to_the_measured_step(seconds):
    """Whatever was measured: also where a part is lost in noise or a step got faster with it."""
    found = StepTime.of(2, 64, dict(zip(VARIANTS, seconds, strict=True)))
    step = np.asarray(seconds[0])
    assert step.min() - 1e-9 <= found.seconds <= step.max() + 1e-9
    assert sum(part.seconds for part in found.parts) == found.seconds
    assert all(part.seconds >= 0 for part in found.parts[1:])


def result(alone, together, faster, low, high):
    return Breakdown("a model", alone, together, faster, low, high, 0.95, measured("two cores"))


ONE = step(1, 100, step=1.0e-3, no_reduction=1.0e-3, compute=1.0e-3)
TWO = step(2, 100, step=1.6e-3, no_reduction=0.8e-3, compute=0.8e-3)


@pytest.mark.parametrize(
    ("low", "high", "word"), [(0.6, 0.7, "lost"), (1.2, 1.3, "gained"), (0.9, 1.1, "neither")]
)
def test_the_sentence_gives_the_verdict_of_the_interval_and_the_parts_as_measured(low, high, word):
    reason = result(ONE, TWO, 0.65, low, high).reason
    assert word in reason
    assert "compute 10.0 ms on one device, 8.00 ms on 2 replicas" in reason
    assert "gradient reduction" in reason
    assert "input" not in reason  # it was not measurable on either


def test_the_bars_are_as_long_as_the_steps_and_survive_json():
    """The figure stacks the parts: 16 ms against 10 ms."""
    found = result(ONE, TWO, 1 / 1.6, 0.6, 0.7)
    bars = [1e6 * sum(p.seconds for p in s.parts) / s.global_batch for s in (ONE, TWO)]
    assert bars == pytest.approx([10.0, 16.0])
    assert found.plot().png[:4] == b"\x89PNG"
    assert plain.load(plain.dump(found)) == found


def test_a_part_that_cannot_be_told_from_zero_is_not_given_as_a_number():
    uneven = {name: [1.05e-3] * 12 for name in VARIANTS} | {"step": [1e-3, 1.1e-3] * 6}
    unsure = StepTime.of(2, 100, uneven)
    _, fresh, reduction = unsure.parts
    assert "not measurable" in reduction.text(10)
    assert reduction.seconds == 0
    assert fresh.text(10) == "none"


def test_a_real_breakdown_leaves_the_job_as_it_was(data, two):
    """Timing trains, and without reduction the replicas differ: afterwards all is as before."""
    job = Job("dense", data, replicas=two, batch=64, images=1280)
    job.epoch()
    before = job.weights()
    found = breakdown(job, rounds=3)
    assert (found.alone.replicas, found.together.replicas) == (1, 2)
    assert found.together.parts[0].seconds > 0
    for variable, value in zip(job.model.trainable_variables, before, strict=True):
        copies = job.strategy.experimental_local_results(variable.value)
        assert all(np.array_equal(copy.numpy(), value) for copy in copies)
    shown = found._repr_mimebundle_()
    assert "measured on" in shown["text/plain"]
    assert "gradient reduction" in shown["text/html"]


def test_what_cannot_be_broken_down_is_refused(data, one):
    job = Job("dense", data, replicas=one, images=1280)
    with pytest.raises(LabError, match="one replica"):
        breakdown(job)
