"""The devices that a lecture trains on: real GPUs, a GPU that is split, or logical CPUs.

>>> two = labkit.replicas(2)                              # doctest: +SKIP
>>> print(two)                                            # doctest: +SKIP
2 logical CPUs with one core each: /cpu:0, /cpu:1. strategy() adds gradients by ...
>>> strategy = two.strategy()                             # doctest: +SKIP
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from labkit.arguments import one_of, whole
from labkit.hardware import devices as tf_devices
from labkit.hardware.devices import LogicalGpu
from labkit.hardware.machine import read_cores
from labkit.kinds import LabError

Placement = Literal["gpus", "one gpu, split", "cpus"]

_PIECE_MEGABYTES = 2048  # of a split GPU, for each replica: the models of the lessons need less
_BASELINE = "One device: the baseline that more replicas are compared with."


@dataclass(frozen=True)
class Replicas:
    """The devices that a lecture trains on, and the speed to expect of them."""

    placement: Placement
    devices: tuple[str, ...]
    names: tuple[str, ...]
    summary: str
    expectation: str
    index: ClassVar[int] = 0  # of this process: the only one, and so the chief
    shared_variables: ClassVar[bool] = False  # each replica has its copy of the weights

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return len(self.devices)

    def strategy(self, reduction: str | None = None) -> Any:
        """Returns TensorFlow's strategy over these replicas; `reduction` is one of `reductions()`.

        Or it is "collective operations", the default of MirroredStrategy: NCCL between whole GPUs,
        otherwise a ring. There all groups of a process must have one size: a group of four after a
        group of two fails, so it is not among those that labkit chooses from.
        """
        options = self.reductions()
        if self.count > 1:
            options += (tf_devices.DEFAULT_REDUCTION,)
        chosen = one_of(f"reduction for {self.summary}", reduction or options[0], options)
        return tf_devices.make_strategy(self.devices, chosen)

    def reductions(self) -> tuple[str, ...]:
        """Returns the ways of adding up gradients that work on these replicas, the best first.

        NCCL needs a whole GPU for each replica.
        """
        if self.count == 1:
            return ("none",)
        if self.placement == "gpus":
            return ("nccl", "hierarchical copy", "reduction to one device")
        return ("reduction to one device", "hierarchical copy")

    def describe(self) -> str:
        """Returns what a measurement was made on, such as "2 logical CPUs with one core each"."""
        return self.summary

    def __str__(self) -> str:
        added = f" strategy() adds gradients by {self.reductions()[0]}." if self.count > 1 else ""
        return f"{self.summary}: {', '.join(self.devices)}.{added} {self.expectation}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        rows = [
            (str(number), device, name)
            for number, (device, name) in enumerate(zip(self.devices, self.names, strict=True))
        ]
        heads = ("replica", "device", "what it is")
        html = table(heads, rows, self.summary, self.expectation, prose=True)
        return {"text/plain": str(self), "text/html": html}


def replicas(n: int | None = None, devices: Sequence[str] | None = None) -> Replicas:
    """Returns the devices to train on, the best kind that this machine has.

    >>> replicas(2, devices="cpu")                        # doctest: +SKIP
    >>> replicas(devices=["gpu:0", "gpu:1"])              # doctest: +SKIP

    Two, if neither says how many. Real GPUs come first; else one GPU is split into logical ones;
    else the CPU is. Call it before anything else uses TensorFlow: a running one cannot be split.
    """
    if devices is None or devices == "cpu":
        count = whole("n", 2 if n is None else n, at_least=1, at_most=1000)
        gpus = [] if devices else tf_devices.logical_gpus()
        return _on_gpus(count, gpus) if gpus else _on_cpus(list(range(count)))
    kind, numbers = _named(devices)
    if n not in (None, len(numbers)):
        raise LabError(f"You asked for {n} replicas on {len(numbers)} devices: leave out n.")
    return _on_cpus(numbers) if kind == "cpu" else _on_chosen(numbers, tf_devices.logical_gpus())


def _named(devices: Any) -> tuple[str, list[int]]:
    """Returns the kind and the numbers of named devices, such as "gpu:0" or "/cpu:1"."""
    names = list(devices) if isinstance(devices, (list, tuple)) else [devices]
    found = [re.fullmatch(r"/?(cpu|gpu):(\d+)", str(name).lower()) for name in names]
    pairs = {(match[1], int(match[2])): None for match in found if match}
    if len({kind for kind, _ in pairs}) != 1 or len(pairs) < len(names):
        raise LabError(
            "devices must name different devices, all GPUs or all CPUs, such as "
            f"['gpu:0', 'gpu:1'], got {names!r}."
        )
    return next(iter(pairs))[0], [number for _, number in pairs]


def _on_cpus(numbers: list[int]) -> Replicas:
    cores, count = read_cores().usable, len(numbers)
    # Four to a core already take turns; eight are allowed anywhere, because lessons show eight.
    needed = whole("number of logical CPUs", max(numbers) + 1, at_most=max(8, 4 * cores))
    have = tf_devices.logical_cpus()
    if have < needed and not tf_devices.split("CPU", needed):
        raise _too_late(needed, have, "logical CPU")
    summary = f"{count} logical CPU{'s' if count > 1 else ''}"
    if tf_devices.one_core_each(needed, cores) and count <= cores:
        summary += f" with one core{' each' if count > 1 else ''}"
        expectation = (
            f"Expect up to {count} times the speed of one core where a step computes much for each "
            "byte of gradients, and a loss where it computes little."
        )
    else:
        summary += f" sharing {cores} core{'s' if cores > 1 else ''}"
        expectation = "Logical CPUs teach correctness, not speed: expect no speed-up here."
    devices = tuple(f"/cpu:{number}" for number in numbers)
    names = tuple(f"logical CPU {number}" for number in numbers)
    return Replicas("cpus", devices, names, summary, expectation if count > 1 else _BASELINE)


def _on_gpus(count: int, gpus: list[LogicalGpu]) -> Replicas:
    """Returns whole GPUs, or else the first one split."""
    chips = [number for number, gpu in enumerate(gpus) if gpu.piece == 0]
    pieces = [number for number, gpu in enumerate(gpus) if gpu.physical == 0]
    for fitting in (chips, pieces):
        if count <= len(fitting):
            return _on_chosen(fitting[:count], gpus)
    if not tf_devices.split("GPU", count, _PIECE_MEGABYTES):
        raise _too_late(count, max(len(chips), len(pieces)), "GPU")
    return _on_chosen(list(range(count)), tf_devices.logical_gpus())


def _on_chosen(numbers: list[int], gpus: list[LogicalGpu]) -> Replicas:
    if max(numbers) >= len(gpus):
        known = ", ".join(f"gpu:{number}" for number in range(len(gpus)))
        known = known or "no GPU here: `labkit doctor` checks the driver"
        raise LabError(f"You asked for gpu:{max(numbers)}. TensorFlow has {known}.")
    count, chosen = len(numbers), [gpus[number] for number in numbers]
    models = ", ".join(dict.fromkeys(gpu.name for gpu in chosen))
    placement: Placement = "gpus"
    summary = f"{count} GPU{'s' if count > 1 else ''} ({models})"
    expectation = (
        f"At most {count} times as fast as one GPU. How much of that you get depends on how much a "
        "step computes for each byte of gradients it exchanges: measure it."
    )
    if len({gpu.physical for gpu in chosen}) < count:
        placement = "one gpu, split"
        summary = f"{count} pieces of 1 GPU ({models})"
        expectation = (
            "The pieces share one chip, so expect no speed-up: they show that training on "
            f"{count} replicas gives the right result."
        )
    devices = tuple(f"/gpu:{number}" for number in numbers)
    expectation = expectation if count > 1 else _BASELINE
    return Replicas(placement, devices, tuple(map(str, chosen)), summary, expectation)


def _too_late(count: int, have: int, device: str) -> LabError:
    return LabError(
        f"You asked for {count} {device}s, but TensorFlow is already running with {have}, and a "
        "running TensorFlow cannot be split. Choose Kernel → Restart and call labkit.replicas "
        f"before anything else uses TensorFlow; or go on with labkit.replicas({have})."
    )
