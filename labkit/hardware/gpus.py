"""The NVIDIA GPUs of this machine, as their driver reports them. Only this file uses pynvml.

A GPU may fail (no memory counter, or it no longer answers): the failure becomes a sentence in
`notes`, and the other GPUs stay.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = ["Driver", "Gpu", "Opened", "open_driver", "read_gpus"]

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
    visible: bool | None = None


@dataclass(frozen=True)
class Driver:
    """What the driver reports, and a sentence for each thing that it does not."""

    version: str | None
    state: Literal["working", "none", "broken"]
    gpus: tuple[Gpu, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """The module pynvml, initialised; or None, the name of NVML's error and a sentence."""

    pynvml: Any
    fault: str = ""
    says: str = ""


def open_driver() -> Opened:
    """NVML, initialised. Whoever opens it calls `pynvml.nvmlShutdown()` in the end."""
    try:
        import pynvml
    except ImportError:
        note = "nvidia-ml-py is missing, so GPUs cannot be shown. Run `make lab` to install it."
        return Opened(None, "MISSING", note)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as fault:
        for name, says in _FAULTS.items():
            if fault.value == getattr(pynvml, f"NVML_ERROR_{name}"):
                return Opened(None, name, says)
        return Opened(None, "UNKNOWN", _SILENT.format(fault=fault))
    return Opened(pynvml)


def read_gpus() -> Driver:
    """Every GPU and what is known of it. Without a driver this takes no time and is no error."""
    opened = open_driver()
    pynvml = opened.pynvml
    if pynvml is None:
        absent = opened.fault == "LIBRARY_NOT_FOUND"
        return Driver(None, "none" if absent else "broken", notes=(opened.says,))
    try:
        version = pynvml.nvmlSystemGetDriverVersion()
        notes: list[str] = []
        gpus = [_gpu(pynvml, index, notes) for index in range(pynvml.nvmlDeviceGetCount())]
        return Driver(version, "working", _with_visible(gpus), tuple(notes))
    except pynvml.NVMLError as fault:
        return Driver(None, "broken", notes=(_SILENT.format(fault=fault),))
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(pynvml: Any, index: int, notes: list[str]) -> Gpu:
    """What the GPU answers, up to the first question that fails."""
    gpu = Gpu(index)
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = replace(gpu, name=pynvml.nvmlDeviceGetName(handle))
        gpu = replace(gpu, uuid=pynvml.nvmlDeviceGetUUID(handle))
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return replace(gpu, memory_total=int(memory.total), memory_used=int(memory.used))
    except pynvml.NVMLError as fault:
        notes.append(f"GPU {index} does not report all about itself: {fault}. Run nvidia-smi.")
        return gpu


def _with_visible(gpus: list[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES lets through: by the start of a UUID, or by number.

    CUDA may number different GPUs in another order than nvidia-smi, unless CUDA_DEVICE_ORDER says
    otherwise; then, and where MIG instances are named, it is not known which GPU is meant.
    """
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return tuple(replace(gpu, visible=True) for gpu in gpus)
    tokens = [token.strip() for token in value.split(",")]
    if tokens[0] in ("", "-1"):
        return tuple(replace(gpu, visible=False) for gpu in gpus)
    alike = len({gpu.name for gpu in gpus}) == 1
    numbered = alike or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not all(token.startswith("GPU-") or (token.isdecimal() and numbered) for token in tokens):
        return tuple(gpus)

    def visible(gpu: Gpu) -> bool:
        return any(t == str(gpu.index) or (gpu.uuid or "?").startswith(t) for t in tokens)

    return tuple(replace(gpu, visible=visible(gpu)) for gpu in gpus)
