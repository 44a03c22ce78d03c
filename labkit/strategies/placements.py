"""A strategy that has been made already, in the shape in which a Job takes its replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.hardware import replicas
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError

__all__ = ["Placed", "central_storage", "mirrored"]


@dataclass(frozen=True)
class Placed:
    """A TensorFlow strategy with the words for it.

    >>> Job("dense", data, replicas=central_storage(2))       # doctest: +SKIP
    """

    count: int
    summary: str
    shared_variables: bool = False
    """One copy of the weights for all replicas: an update must be made once, not by each."""
    made: Any = field(default=None, repr=False, compare=False)

    def strategy(self, reduction: str | None = None) -> Any:
        """The strategy; its way of adding up gradients was chosen when it was made."""
        if reduction is not None:
            raise LabError(
                f"{self.summary} has its own way of adding up gradients. Leave out reduction="
                f"{reduction!r}, or take labkit.replicas({self.count})."
            )
        return self.made

    def describe(self) -> str:
        """What a measurement was made on."""
        return self.summary

    def __str__(self) -> str:
        return self.summary


def mirrored(count: int, operations: str = "collective") -> Placed:
    """MirroredStrategy on logical CPUs with any of TensorFlow's cross-device operations.

    "collective" is TensorFlow's own choice on CPUs. Once a group of two has met in a process, a
    group of four breaks every collective in it: so this is for processes with one such strategy.
    """
    known = ("collective", "reduction to one device", "hierarchical copy", "nccl")
    if operations not in known:
        choices = ", ".join(map(repr, known))
        raise LabError(f"There is no cross-device operation {operations!r}; take one of {choices}.")
    here = replicas(count, devices="cpu")
    distribute = import_tensorflow().distribute
    chosen = {
        "reduction to one device": distribute.ReductionToOneDevice,
        "hierarchical copy": distribute.HierarchicalCopyAllReduce,
        "nccl": distribute.NcclAllReduce,
    }.get(operations)
    made = distribute.MirroredStrategy(
        list(here.devices), cross_device_ops=None if chosen is None else chosen()
    )
    return Placed(count, f"{here.summary}, {operations}", made=made)


def central_storage(count: int = 2) -> Placed:
    """CentralStorageStrategy: one copy of the weights, on the CPU; the replicas fetch them.

    TensorFlow still calls it experimental, and it computes on one machine only.
    """
    here = replicas(count, devices="cpu")
    strategy = import_tensorflow().distribute.experimental.CentralStorageStrategy(
        compute_devices=list(here.devices), parameter_device=here.devices[0]
    )
    return Placed(
        count, f"{here.summary}, one copy of the weights", shared_variables=True, made=strategy
    )
