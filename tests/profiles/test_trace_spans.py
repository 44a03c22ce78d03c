"""Spans: what a name is, unions, and what runs inside what."""

import random
from itertools import pairwise

import pytest

from labkit.kinds import measured
from labkit.profiles import Profile, covered, union
from labkit.profiles.trace_spans import KINDS, TraceSpan, inside, kind_of, nested


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "input"),
        ("Iterator::Root::Prefetch", "input"),
        ("gloo:all_reduce", "communication"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
        ("c10d::allreduce_", "other"),
        ("autograd::engine::evaluate_function: MmBackward0", "backward"),
        ("Optimizer.step#Adam.step", "optimizer"),
        ("gradient_tape/sequential/dense/MatMul/MatMul:MatMul", "backward"),
        ("adam/Pow:Pow", "optimizer"),
        ("sequential/dense/MatMul:MatMul", "forward"),
        ("aten::mm", "forward"),
        ("ProfilerStep#7", "step"),
        ("DistributedDataParallel.forward", "other"),
        ("StatefulPartitionedCall:PartitionedCall", ""),
        ("ExecutorState::Process", ""),
    ],
)
def test_a_span_is_what_its_name_says(name, kind):
    assert kind_of(name) == kind


def test_union_counts_on_a_grid_what_at_least_one_covers():
    draw = random.Random(0)
    for _ in range(300):
        spans = [
            (start, start + draw.randrange(5))
            for start in (draw.randrange(30) for _ in range(draw.randrange(12)))
        ]
        cells = {cell for start, end in spans for cell in range(start, end)}
        found = union(spans)
        assert covered(spans) == len(cells)
        assert {cell for start, end in found for cell in range(start, end)} == cells
        assert all(one[1] < other[0] for one, other in pairwise(found))
        parts = inside(spans, 10, 20)
        assert covered(parts) == len(cells & set(range(10, 20)))


def test_what_runs_inside_backward_is_backward_on_its_own_thread_only():
    spans = [
        TraceSpan(0, 10, "autograd::engine::evaluate_function: X", "a", "backward"),
        TraceSpan(2, 4, "aten::mm", "a", "forward"),
        TraceSpan(2, 4, "aten::mm", "b", "forward"),
        TraceSpan(10, 12, "aten::mm", "a", "forward"),
        TraceSpan(3, 4, "Iterator::Root::Map", "tf_data_map/7", "input"),
    ]
    found = {(one.start, one.track): one.kind for one in nested(reversed(spans))}
    assert found == {(0, "a"): "backward", (2, "a"): "backward", (2, "b"): "forward",
                     (10, "a"): "forward", (3, "tf_data_map/7"): "input thread"}  # fmt: skip


def test_the_parts_of_a_step_add_up_to_it_whatever_overlaps():
    draw = random.Random(1)
    for _ in range(60):
        kinds = [*KINDS, *KINDS[1:] * 5]
        times = [sorted(draw.uniform(0, 10) for _ in range(2)) for _ in kinds]
        spans = [TraceSpan(*two, "", "", kind) for two, kind in zip(times, kinds, strict=True)]
        spans.sort(key=lambda one: one.start)
        profile = Profile({0: spans}, {0: []}, measured("nothing"))
        for (start, end), parts in zip(profile.steps(), profile.breakdown(), strict=True):
            assert sum(parts.values()) == pytest.approx(end - start)
            assert min(parts.values()) > -1e-9
        assert -1e-9 < profile.exposed() < 1 + 1e-9
        assert -1e-9 < profile.input_share() < 1 + 1e-9
