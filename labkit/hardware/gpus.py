"""The NVIDIA GPUs of this machine, as their driver reports them. Only this file uses pynvml.

A GPU may fail (no memory counter, or it no longer answers): the failure becomes a sentence in
`notes`, and the other GPUs stay.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

# Why NVML does not start, by the name of its error.
_FAULTS = {
    "LIBRARY_NOT_FOUND": (
        "No NVIDIA driver is installed here, so there are no NVIDIA GPUs. Lessons run on CPUs."
    ),
    "DRIVER_NOT_LOADED": (
        "NVIDIA's library is installed, but its driver is not running. "
        "Restart the machine; in a container, start it with access to the GPUs."
    ),
    "LIB_RM_VERSION_MISMATCH": (
        "NVIDIA's driver and its library have different versions, which happens after an update. "
        "Restart the machine; in a container, start a new one."
    ),
    "NO_PERMISSION": (
        "You have no permission to use the NVIDIA driver. "
        "Ask your administrator for access to the GPUs (/dev/nvidia*)."
    ),
}
_SILENT = "The NVIDIA driver does not answer: {fault}. Run nvidia-smi and read its message."


@dataclass(frozen=True)
class Gpu:
    """One GPU; None where the driver gives no answer.

    `index` is the one of nvidia-smi. `visible`: whether CUDA, and so TensorFlow, may use it here.
    """

    index: int
    name: str = "unknown GPU"
    uuid: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    visible: bool = True


@dataclass(frozen=True)
class Driver:
    """What the driver reports, with a sentence for each thing that it does not report."""

    version: str | None
    state: Literal["working", "none", "broken"]
    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()


class NoDriver(Exception):
    """Raised where NVML does not start, with the name of its error and a sentence."""


def open_driver() -> Any:
    """Returns the module pynvml, initialised. The caller calls its `nvmlShutdown()` in the end."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as fault:
        for name, says in _FAULTS.items():
            if fault.value == getattr(pynvml, f"NVML_ERROR_{name}"):
                raise NoDriver(name, says) from fault
        raise NoDriver("UNKNOWN", _SILENT.format(fault=fault)) from fault
    return pynvml


def read_gpus() -> Driver:
    """Returns every GPU and what is known of it; without a driver none, at once."""
    try:
        pynvml = open_driver()
    except NoDriver as fault:
        name, says = fault.args
        return Driver(None, "none" if name == "LIBRARY_NOT_FOUND" else "broken", notes=(says,))
    notes: list[str] = []
    try:
        version = pynvml.nvmlSystemGetDriverVersion()
        gpus = tuple(_gpu(pynvml, index, notes) for index in range(pynvml.nvmlDeviceGetCount()))
        return Driver(version, "working", gpus, tuple(notes))
    except pynvml.NVMLError as fault:
        return Driver(None, "broken", notes=(_SILENT.format(fault=fault),))
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(pynvml: Any, index: int, notes: list[str]) -> Gpu:
    """Returns what the GPU answers, up to the first question that fails."""
    gpu = Gpu(index)
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = replace(gpu, name=pynvml.nvmlDeviceGetName(handle))
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        gpu = replace(gpu, uuid=uuid, visible=_is_visible(index, uuid))
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return replace(gpu, memory_total=int(memory.total), memory_used=int(memory.used))
    except pynvml.NVMLError as fault:
        notes.append(f"GPU {index} does not report all about itself: {fault}. Run nvidia-smi.")
        return gpu


def _is_visible(index: int, uuid: str) -> bool:
    """Returns whether CUDA_VISIBLE_DEVICES names it, by number or by the start of its UUID.

    Which GPU a MIG instance belongs to is not looked up: it lets all through.
    """
    value = os.environ.get("CUDA_VISIBLE_DEVICES", str(index))
    tokens = [token.strip() for token in value.split(",")]
    return any(
        token == str(index) or (token.startswith("GPU-") and uuid.startswith(token))
        or token.startswith("MIG-")
        for token in tokens
    )  # fmt: skip


def names_text(gpus: Sequence[Gpu]) -> str:
    """Returns the models, each with its number where there are several: "8 × NVIDIA H100"."""
    names = [gpu.name for gpu in gpus]
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{n} × {name}" if n > 1 else name for name, n in counts.items())
