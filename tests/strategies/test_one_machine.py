"""Placements in one process: what they cannot do is said before TensorFlow is loaded."""

from __future__ import annotations

import pytest

from labkit.kinds import LabError
from labkit.strategies import one_machine
from labkit.strategies.placements import Placed, mirrored


def test_an_unknown_cross_device_operation_is_refused_with_those_there_are():
    with pytest.raises(LabError, match=r"'ring'.*'collective', 'reduction to one device'"):
        mirrored(2, "ring")


def test_a_placement_has_chosen_its_reduction_already():
    placed = Placed(2, "2 logical CPUs, collective", made="a strategy")
    assert placed.strategy() == "a strategy"
    with pytest.raises(LabError, match=r"reduction='nccl'.*labkit\.replicas\(2\)"):
        placed.strategy("nccl")


def test_each_row_has_a_name_of_its_own():
    cases = [one_machine.one_device(), *one_machine.cases()]
    names = [(case.strategy, case.placed, case.what) for case in cases]
    assert len(set(names)) == len(names)
