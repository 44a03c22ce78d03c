"""Gradients in buckets: when each leaves, what is hidden behind the backward pass, what is not."""

import pytest

from labkit.collectives import cost, overlap
from labkit.kinds import LabError

LAYERS = [(1e-3, 4e6)] * 12
LINK = {"ranks": 8, "latency": 100e-6, "bandwidth": 10e9}


def test_all_at_the_end_is_the_backward_pass_and_one_whole_all_reduce():
    plan = overlap(LAYERS, bucket=float("inf"), **LINK)
    whole = cost("ring_all_reduce", nbytes=48e6, **LINK)
    assert plan.seconds == pytest.approx(12e-3 + whole)
    assert plan.exposed == pytest.approx(whole)


def test_buckets_of_four_layers_start_when_their_last_gradient_is_there():
    plan = overlap(LAYERS, bucket=16e6, **LINK)
    assert [(one.first, one.last) for one in plan.buckets] == [(0, 3), (4, 7), (8, 11)]
    assert plan.buckets[0].start == pytest.approx(4e-3)


def test_only_one_bucket_travels_at_a_time():
    plan = overlap(LAYERS, bucket=0, **LINK)
    assert len(plan.buckets) == 12
    for before, after in zip(plan.buckets, plan.buckets[1:], strict=False):
        assert after.start == max(1e-3 * (after.last + 1), before.end)


def test_the_gradients_of_all_layers_travel_once():
    for bucket in (0, 7e6, 16e6, 30e6, float("inf")):
        plan = overlap(LAYERS, bucket=bucket, **LINK)
        assert sum(one.nbytes for one in plan.buckets) == 48e6
        carried = [i for one in plan.buckets for i in range(one.first, one.last + 1)]
        assert carried == list(range(12))


def test_a_plan_is_drawn_and_says_its_kind():
    plan = overlap(LAYERS, bucket=16e6, **LINK)
    data, _ = plan._repr_mimebundle_()
    assert "3 all-reduces" in data["text/plain"]
    assert plan.kind.name == "modelled"


def test_no_layers_is_one_sentence():
    with pytest.raises(LabError, match="layers"):
        overlap([], bucket=1, **LINK)
