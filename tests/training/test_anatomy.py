"""The breakdown puts the time of a step where it belongs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from labkit import plain
from labkit.kinds import LabError, measured
from labkit.training import Job, anatomy, breakdown
from labkit.training.parts import Breakdown, Part, Step


def timed(**seconds):
    """A comparison in which every round took exactly so long."""
    return SimpleNamespace(
        log=SimpleNamespace(samples=lambda name: [seconds[name.split(", ")[1]]] * 12)
    )


def test_the_parts_are_the_differences():
    """10 steps: 1.0 s whole, 0.9 with held input, 0.7 without reduction, 1.5 called one by one."""
    job = SimpleNamespace(replicas=SimpleNamespace(count=2), global_batch=64)
    found = anatomy._step(
        job, timed(whole=1.0, held=0.9, apart=0.7, called=1.5), {"x, whole": 10}, "x"
    )
    seconds = {part.name: part.seconds for part in found.parts}
    assert seconds == pytest.approx(
        {"compute": 0.06, "input": 0.01, "gradient reduction": 0.03, "host dispatch": 0.05}
    )
    assert found.in_loop == pytest.approx(0.1 / 64)


def step(replicas, batch, compute, reduction):
    def part(name, seconds):
        return Part(name, seconds, seconds * 0.9, seconds * 1.1)

    return Step(
        replicas,
        batch,
        (
            part("compute", compute),
            part("input", 0.0),
            part("gradient reduction", reduction),
            part("host dispatch", 0.001),
        ),
    )


def found(alone, together, faster, low, high):
    return Breakdown("a model", alone, together, faster, low, high, measured("two cores"))


def test_the_sentence_names_a_loss_and_its_price():
    """Replicas that saved 5 ms of computing and paid 10 ms for the sum have lost."""
    lost = found(step(1, 100, 0.001, 0), step(2, 100, 0.0005, 0.001), 0.66, 0.6, 0.7)
    assert "2 replicas lost: 0.66×" in lost.reason
    assert "saved 5.00 ms" in lost.reason
    assert "cost 10.0 ms" in lost.reason


def test_the_sentence_names_a_gain():
    gained = found(step(1, 100, 0.01, 0), step(2, 200, 0.011, 0.0001), 1.8, 1.7, 1.9)
    assert "2 replicas gained: 1.80×" in gained.reason


def test_the_sentence_does_not_decide_what_was_not_measured():
    unsure = found(step(1, 100, 0.01, 0), step(2, 200, 0.02, 0.0001), 1.0, 0.9, 1.1)
    assert "neither gained nor lost for certain" in unsure.reason


def test_the_sentence_names_the_input_when_that_is_what_grew():
    """A pipeline that feeds two replicas worse than one is the reason, and is said to be."""

    def fed(replicas, seconds):
        compute, _, *rest = step(replicas, 100, 0.01, 0.001).parts
        return Step(
            replicas, 100, (compute, Part("input", seconds, seconds / 2, seconds * 2), *rest)
        )

    lost = found(fed(1, 0.001), fed(2, 0.006), 0.7, 0.6, 0.8)
    assert "input took 50.0 ms more" in lost.reason
    assert "computing took about as long" in lost.reason


def test_a_part_around_zero_is_not_given_as_a_number():
    assert str(Part("input", 1e-5, -2e-5, 4e-5)) == "too small to tell (below 40.0 µs)"


def test_a_breakdown_survives_json():
    one = found(step(1, 100, 0.01, 0), step(2, 200, 0.011, 0.0001), 1.8, 1.7, 1.9)
    assert plain.load(plain.dump(one)) == one


def test_a_real_breakdown_leaves_the_job_as_it_was(data, two):
    """Timing trains, and without reduction the replicas part: afterwards all is as before."""
    job = Job("dense", data, replicas=two, batch=64, images=1280)
    job.epoch()
    before = job.weights()
    result = breakdown(job, rounds=6)
    assert (result.alone.replicas, result.together.replicas) == (1, 2)
    assert result.together.part("compute").seconds > 0
    for variable, value in zip(job.model.trainable_variables, before, strict=True):
        copies = job.strategy.experimental_local_results(variable.value)
        assert all(np.array_equal(copy.numpy(), value) for copy in copies)
    assert result.plot().png[:4] == b"\x89PNG"
    assert "measured on" in str(result)


def test_a_job_on_one_device_has_nothing_to_compare(data, one):
    with pytest.raises(LabError, match="one replica"):
        breakdown(Job("dense", data, replicas=one, images=1280))
