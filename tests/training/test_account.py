"""The account of a step: its parts are measured alone, and what they do not explain is the rest."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.kinds import LabError, measured
from labkit.training import Job, account
from labkit.training.step_account import Account, step_parts

LOOPS = "input", "products", "random numbers", "optimizer", "step"
seconds = st.fixed_dictionaries(dict.fromkeys(LOOPS, st.floats(1e-6, 1e-2)))


@given(seconds, seconds)
def test_no_part_is_computed_from_the_step_and_the_rest_is_what_they_leave(whole, tiny):
    parts = step_parts(whole, tiny)
    assert parts == step_parts(whole | {"step": 1.0}, tiny)
    found = Account("a model", parts, whole["step"], measured("one core"))
    assert sum(parts.values()) + found.rest == pytest.approx(whole["step"])


def test_what_starts_in_every_part_counts_once():
    """Five loops that start for 1 ms each, and compute for 2, 3, 1 and 4 ms of a step."""
    whole = dict(zip(LOOPS, (3e-3, 6e-3, 7e-3, 5e-3, 11e-3), strict=True))
    parts = step_parts(whole, dict.fromkeys(LOOPS, 1e-3))
    assert list(parts.values()) == pytest.approx([2e-3, 3e-3, 1e-3, 4e-3, 1e-3])
    found = Account("a model", parts, whole["step"], measured("one core"))
    assert found.rest == pytest.approx(0, abs=1e-9)


def test_a_part_that_is_counted_twice_appears_as_a_negative_rest():
    found = Account("a model", {"products": 3e-3, "dispatch": 3e-3}, 5e-3, measured("one core"))
    (row,) = [line for line in str(found).splitlines() if line.startswith("rest")]
    assert row.split() == ["rest", "−1.00", "ms", "-20", "%"]


@pytest.mark.parametrize("model", ["dense", "convolutional", "transformer"])
def test_a_real_account_leaves_the_job_as_it_was(model, data, two):
    job = Job(model, data, replicas=two, batch=64, images=640)
    before = job.weights()
    found = account(job, rounds=1)
    assert list(found.parts) == ["input", "products", "random numbers", "optimizer", "dispatch"]
    assert found.step > 0
    assert found.parts["dispatch"] > 0
    assert all(map(np.array_equal, job.weights(), before))
    assert "measured on" in str(found)
    assert found.picture().png[:4] == b"\x89PNG"


def test_a_job_of_several_workers_is_refused():
    with pytest.raises(LabError, match="replicas of this process"):
        account(SimpleNamespace(replicas=SimpleNamespace(count=2)))
