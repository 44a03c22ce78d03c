"""The breakdown puts the time of a step where it belongs, and its parts add up to the step."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.kinds import LabError, measured
from labkit.timing import judge
from labkit.training import Job, breakdown
from labkit.training.step_breakdown import Breakdown, step_time

VARIANTS = ("step", "no reduction", "compute")


def step(replicas=2, batch=64, **seconds):
    """A step whose variants took these seconds in each of twelve rounds."""
    times = {name.replace("_", " "): [value] * 12 for name, value in seconds.items()}
    return step_time(replicas, batch, times)


rounds = st.lists(st.floats(0.1, 10), min_size=12, max_size=12)


@settings(max_examples=30)
@given(st.tuples(rounds, rounds, rounds))
def test_the_parts_add_up_to_the_measured_step(seconds):
    """Whatever was measured: also where a part is lost in noise or a step got faster with it."""
    found = step_time(2, 64, dict(zip(VARIANTS, seconds, strict=True)))
    step = np.asarray(seconds[0])
    assert step.min() - 1e-9 <= found.seconds <= step.max() + 1e-9
    assert sum(part.seconds for part in found.parts) == found.seconds
    assert all(part.seconds >= 0 for part in found.parts[1:])


def test_the_table_and_the_bars_are_as_long_as_the_steps():
    """16 ms against 10 ms for 1000 images, in two replicas' half the compute."""
    one = step(1, 100, step=1.0e-3, no_reduction=1.0e-3, compute=1.0e-3)
    two = step(2, 100, step=1.6e-3, no_reduction=0.8e-3, compute=0.8e-3)
    verdict = judge("2 replicas", "one device", [np.log(1 / 1.6)] * 12)
    shown = str(Breakdown("a model", one, two, verdict, measured("two cores")))
    (whole,) = [line for line in shown.splitlines() if line.startswith("together: the step")]
    assert whole.split()[-4:] == ["10.0", "ms", "16.0", "ms"]
    assert "0.62" in shown
    assert "two cores" in shown


def test_a_part_that_cannot_be_told_from_zero_is_not_given_as_a_number():
    uneven = {name: [1.05e-3] * 12 for name in VARIANTS} | {"step": [1e-3, 1.1e-3] * 6}
    compute, fresh, reduction = step_time(2, 100, uneven).parts
    assert (compute.measurable, reduction.measurable) == (True, False)
    assert "not measurable" in reduction.text(10)
    assert reduction.seconds == 0
    assert fresh.text(10) == "none"


def test_the_throughput_of_weak_scaling_counts_its_larger_batch(data, two, monkeypatch):
    """A step on two replicas that takes as long as one on one device: twice the images."""
    same = SimpleNamespace(samples=lambda name: [1.0] * 8)
    monkeypatch.setitem(breakdown.__globals__, "compare", lambda *_, **__: same)
    monkeypatch.setitem(breakdown.__globals__, "CALL_SECONDS", 0.0)  # equally many steps a call
    job = Job("dense", data, replicas=two, batch=32, scaling="weak", images=640)
    assert breakdown(job).verdict.estimate.value == pytest.approx(2)


def test_a_real_breakdown_leaves_the_job_as_it_was(data, one, two):
    job = Job("dense", data, replicas=two, batch=64, images=640)
    before = job.weights()
    found = breakdown(job, rounds=1)
    assert (found.alone.replicas, found.together.replicas) == (1, 2)
    assert found.together.seconds > 0
    assert all(map(np.array_equal, job.weights(), before))
    shown = found._repr_mimebundle_()
    assert "measured on" in shown["text/plain"]
    assert "gradient reduction" in shown["text/html"]
    assert found.picture().png[:4] == b"\x89PNG"
    with pytest.raises(LabError, match="one replica"):
        breakdown(job.on(one))
