"""The N devices that a lesson trains on: real GPUs, one GPU split, or logical CPUs.

>>> two = labkit.replicas(2)                              # doctest: +SKIP
>>> print(two)                                            # doctest: +SKIP
2 logical CPUs with one core each: /cpu:0, /cpu:1. Gradients are added by ...
>>> strategy = two.strategy()                             # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labkit.hardware import host, nvml, tensorflow, words
from labkit.hardware.request import Request, UnknownDeviceError, understand
from labkit.hardware.tensorflow import LogicalGpu
from labkit.kinds import LabError, bytes_text
from labkit.plain import stored

__all__ = ["Replicas", "replicas"]

Placement = Literal["gpus", "one gpu, split", "cpus"]

_MEMORY_OF_A_LOGICAL_CPU = 256 * 1000**2
# Below this, TensorFlow's own libraries leave a piece of a GPU no room for a model.
_SMALLEST_PIECE = 512 * 1000**2
# The rest is for the driver, the libraries and other programs.
_SHARE_FOR_PIECES = 0.8
_ROOM_WHEN_UNKNOWN = 4 * 1000**3


@stored
@dataclass(frozen=True)
class Replicas:
    """What a lesson trains on, and what can honestly be expected of it."""

    count: int
    placement: Placement
    devices: tuple[str, ...]
    names: tuple[str, ...]
    reduction: str
    expectation: str
    summary: str

    def strategy(self, reduction: str | None = None) -> Any:
        """TensorFlow's strategy over these replicas.

        >>> replicas(2).strategy("hierarchical copy")     # doctest: +SKIP
        """
        chosen = self.reduction if reduction is None else reduction
        if chosen not in self.reductions():
            fault = words.reduction_fault(chosen, self.reductions(), self.placement)
            raise LabError(fault)
        return tensorflow.make_strategy(self.devices, chosen)

    def reductions(self) -> tuple[str, ...]:
        """The cross-device reductions that work on these replicas; the first is the usual one."""
        return tensorflow.reductions_here(self.count, self.placement)

    def describe(self) -> str:
        """What a measurement was made on, such as "2 logical CPUs with one core each"."""
        return self.summary

    def __str__(self) -> str:
        added = (
            f" Gradients are added by {words.spelled(self.reduction)}." if self.count > 1 else ""
        )
        return f"{self.summary}: {', '.join(self.devices)}.{added} {self.expectation}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        rows = [
            (str(place), device, name)
            for place, (device, name) in enumerate(zip(self.devices, self.names, strict=True))
        ]
        added = (
            f"; gradients are added by {words.spelled(self.reduction)}" if self.count > 1 else ""
        )
        caption = f"{self.summary}{added}"
        html = table(
            ("replica", "device", "what it is"), rows, caption, self.expectation, prose=True
        )
        return {"text/plain": str(self), "text/html": html}


def replicas(n: int | None = None, devices: str | Sequence[str] | None = None) -> Replicas:
    """The devices to train on: 2 unless you say otherwise, the best kind that this machine has.

    >>> replicas(4)                                       # doctest: +SKIP
    >>> replicas(2, devices="cpu")                        # doctest: +SKIP
    >>> replicas(devices=["gpu:0", "gpu:1"])              # doctest: +SKIP

    Real GPUs come first; else one GPU is split into logical ones; else the CPU is. Call it before
    anything else uses TensorFlow: a running TensorFlow cannot be split.
    """
    try:
        request = understand(n, devices)
    except UnknownDeviceError as unknown:
        raise LabError(
            f"You asked for the device {unknown}, which labkit does not know. {_what_exists()}"
        ) from None
    gpus = tensorflow.logical_gpus() if request.kind != "cpu" else []
    if gpus:
        return _on_gpus(request, gpus)
    if request.kind == "gpu":
        raise LabError(
            f"You asked for {request.asked}, but TensorFlow sees no GPU here. {_what_exists()} "
            "`labkit doctor` tells whether a driver is missing."
        )
    return _on_cpus(request)


def _on_cpus(request: Request) -> Replicas:
    cores = host.read_cores().usable
    limit, why = _cpu_limit(cores)
    needed = request.highest + 1
    if needed > limit:
        raise LabError(
            f"You asked for {request.asked}, but this machine should not be split into more than "
            f"{limit} logical CPUs: {why}. Ask for {limit} or fewer: labkit.replicas({limit})."
        )
    have = tensorflow.logical_cpus()
    if have < needed and not tensorflow.split_cpu(needed):
        raise LabError(words.too_late_fault(request, have, "logical CPU"))
    count = request.count
    alone = tensorflow.one_core_each(needed, cores)
    return _finished(
        "cpus",
        [f"/cpu:{number}" for number in request.numbers],
        [f"logical CPU {number}" for number in request.numbers],
        words.cpu_summary(count, cores, alone),
        words.cpu_expectation(count, cores, alone),
    )


def _cpu_limit(cores: int) -> tuple[int, str]:
    """How many logical CPUs make sense here, and why not more.

    Four to a core already spend their time taking turns; eight are allowed anywhere, because
    lessons show eight. Each holds a copy of the model, its optimizer and its activations.
    """
    available = host.read_memory().available
    by_cores = max(8, 4 * cores)
    by_memory = max(1, available // _MEMORY_OF_A_LOGICAL_CPU)
    if by_memory < by_cores:
        size = bytes_text(_MEMORY_OF_A_LOGICAL_CPU)
        return by_memory, f"labkit keeps {size} for each, and {bytes_text(available)} are available"
    return by_cores, f"on {words.on_cores(cores)}, more of them would only take turns"


def _on_gpus(request: Request, gpus: list[LogicalGpu]) -> Replicas:
    if request.named:
        if request.highest >= len(gpus):
            raise LabError(f"You asked for {request.asked}. {_what_exists()}")
        return _on_chosen([(number, gpus[number]) for number in request.numbers])
    count = request.count
    placed = list(enumerate(gpus))
    whole = [(number, gpu) for number, gpu in placed if gpu.piece == 0]
    first = [(number, gpu) for number, gpu in placed if gpu.physical == gpus[0].physical]
    for fitting in (whole, first):
        if count <= len(fitting):
            return _on_chosen(fitting[:count])
    if not tensorflow.split_gpu(count, _megabytes_of_a_piece(request, len(whole))):
        raise LabError(words.too_late_fault(request, max(len(whole), len(first)), "GPU"))
    return _on_chosen(list(enumerate(tensorflow.logical_gpus()))[:count])


def _on_chosen(chosen: list[tuple[int, LogicalGpu]]) -> Replicas:
    tensorflow.use_memory_growth()
    count, gpus = len(chosen), [gpu for _, gpu in chosen]
    models = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    devices = [f"/gpu:{number}" for number, _ in chosen]
    names = [_gpu_text(gpu) for gpu in gpus]
    chips = len({gpu.physical for gpu in gpus})
    if chips == count:
        summary = f"{count} GPU{'s' if count > 1 else ''} ({models})"
        expectation = words.gpu_expectation(count, len({gpu.name for gpu in gpus}))
        return _finished("gpus", devices, names, summary, expectation)
    summary = f"{count} pieces of {f'{chips} GPUs' if chips > 1 else '1 GPU'} ({models})"
    return _finished("one gpu, split", devices, names, summary, words.split_expectation(count))


def _gpu_text(gpu: LogicalGpu) -> str:
    if gpu.pieces == 1:
        return f"{gpu.name} (GPU {gpu.physical})"
    size = "" if gpu.megabytes is None else f", {bytes_text(gpu.megabytes * 1024**2)}"
    return f"piece {gpu.piece + 1} of {gpu.pieces} of {gpu.name} (GPU {gpu.physical}){size}"


def _megabytes_of_a_piece(request: Request, chips: int) -> int:
    """The memory limit of each piece, with room left for the driver and other programs."""
    free = _free_memory(chips)
    pieces = request.count
    room = _ROOM_WHEN_UNKNOWN if free is None else int(free * _SHARE_FOR_PIECES)
    if room // pieces >= _SMALLEST_PIECE:
        return room // pieces // 1024**2
    most = room // _SMALLEST_PIECE
    have = "an unknown amount" if free is None else bytes_text(free)
    raise LabError(
        f"You asked for {request.asked}. The first of {chips} GPU{'s' if chips > 1 else ''} has "
        f"{have} of memory free, enough for {most} pieces of {bytes_text(_SMALLEST_PIECE)}. "
        f"Ask for {max(most, chips, 1)} or fewer, end other programs on that GPU, "
        'or take CPUs: devices="cpu".'
    )


def _free_memory(chips: int) -> int | None:
    """Bytes free on TensorFlow's first GPU, where NVML can tell which one that is."""
    known = nvml.read().gpus
    first = [gpu for gpu in known if gpu.cuda_index == 0 or len(known) == chips == 1]
    if len(first) != 1 or first[0].memory_total is None or first[0].memory_used is None:
        return None
    return first[0].memory_total - first[0].memory_used


def _what_exists() -> str:
    gpus = [f"gpu:{number}" for number in range(len(tensorflow.logical_gpus()))]
    limit, _ = _cpu_limit(host.read_cores().usable)
    listed = f"{', '.join(gpus)} and " if gpus else ""
    return f"You can choose among {listed}cpu:0 to cpu:{limit - 1} (logical CPUs)."


def _finished(
    placement: Placement, devices: list[str], names: list[str], summary: str, expectation: str
) -> Replicas:
    return Replicas(
        count=len(devices),
        placement=placement,
        devices=tuple(devices),
        names=tuple(names),
        reduction=tensorflow.reductions_here(len(devices), placement)[0],
        expectation=expectation,
        summary=summary,
    )
