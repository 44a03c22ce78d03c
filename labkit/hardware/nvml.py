"""What NVIDIA's driver says about the GPUs: the only file that talks to NVML.

Every question may fail by itself: a metric that this GPU does not have, a GPU that has fallen off
the bus, a driver that was updated under a running machine. Each failure becomes one plain sentence,
and the answers to the other questions stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

from labkit.hardware.parts import Gpu, Link, MigInstance
from labkit.hardware.questions import Questions, error_name
from labkit.hardware.visible import with_cuda_indices

__all__ = ["BROKEN", "Driver", "Opened", "open_driver", "read"]

_NO_DRIVER = (
    "No NVIDIA driver is installed here, so there are no NVIDIA GPUs to show. Lessons run on CPUs."
)
# What stops every question, by the name of NVML's error.
BROKEN = {
    "DRIVER_NOT_LOADED": (
        "NVIDIA's library is installed, but its driver is not running. "
        "Restart the machine; in a container, start it with access to the GPUs."
    ),
    "LIB_RM_VERSION_MISMATCH": (
        "NVIDIA's driver and its library have different versions, which happens after an update. "
        "Restart the machine; in a container, start a new one."
    ),
    "NO_PERMISSION": (
        "You have no permission to ask the NVIDIA driver. "
        "Ask your administrator for access to the GPUs (/dev/nvidia*)."
    ),
}
# NVML's levels of PCI topology, from near to far.
_PATHS = {
    0: "PCIe on one board",
    10: "PCIe, one switch",
    20: "PCIe, several switches",
    30: "PCIe through one CPU's host bridge",
    40: "PCIe between host bridges of one CPU",
    50: "between CPUs",
}


@dataclass(frozen=True)
class Driver:
    """What the driver answered, and the sentences about what it did not."""

    version: str | None
    state: Literal["working", "none", "broken"]
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """NVML's Python module, ready to be asked; or None, the error's name and a sentence."""

    pynvml: Any
    fault: str = ""
    says: str = ""


def read(environment: Mapping[str, str] | None = None) -> Driver:
    """Ask NVML once about everything. Without a driver this takes no time and is no error."""
    opened = open_driver()
    pynvml = opened.pynvml
    if pynvml is None:
        absent = opened.fault == "LIBRARY_NOT_FOUND"
        return Driver(None, "none" if absent else "broken", notes=(opened.says,))
    try:
        return _ask(pynvml, os.environ if environment is None else environment)
    finally:
        # The answers are already here.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def open_driver() -> Opened:
    """NVML, initialised; who opens it calls `pynvml.nvmlShutdown` in the end."""
    try:
        import pynvml
    except ImportError:
        note = "nvidia-ml-py is missing, so GPUs cannot be shown. Run `make lab` to install it."
        return Opened(None, "MISSING", note)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as fault:
        name = error_name(pynvml, fault)
        if name == "LIBRARY_NOT_FOUND":
            return Opened(None, name, _NO_DRIVER)
        return Opened(None, name, BROKEN.get(name, _unknown_fault(fault)))
    return Opened(pynvml)


def _ask(pynvml: Any, environment: Mapping[str, str]) -> Driver:
    asking = Questions(pynvml)
    version = asking.answer("the driver's version", None, pynvml.nvmlSystemGetDriverVersion)
    count = asking.answer("the number of GPUs", None, pynvml.nvmlDeviceGetCount) or 0
    handles: dict[int, Any] = {}
    for index in range(count):
        handle = asking.answer("anything", index, pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is not None:
            handles[index] = handle
    found = [_gpu(asking, index, handles.get(index)) for index in range(count)]
    nvlinks = _nvlinks(asking, found, handles)
    links = tuple(
        _link(asking, first, second, nvlinks) for first, second in combinations(handles.items(), 2)
    )
    gpus, doubts = with_cuda_indices(found, environment)
    return Driver(version, "working", gpus, links, (*asking.sentences(), *doubts))


def _gpu(asking: Questions, index: int, handle: Any) -> Gpu:
    if handle is None:
        return Gpu(index, None, None, None, None, None, "unknown", (), "unknown", None)
    nvml = asking.pynvml
    memory = asking.answer("memory", index, nvml.nvmlDeviceGetMemoryInfo, handle)
    pci = asking.answer("a slot", index, nvml.nvmlDeviceGetPciInfo, handle)
    # GeForce cards and older drivers know nothing of MIG or NVLink; that is no fault.
    modes = asking.answer(
        "whether MIG is on", index, nvml.nvmlDeviceGetMigMode, handle, quiet=_ABSENT, otherwise=()
    )
    mig: Literal["on", "off", "not supported", "unknown"] = "unknown"
    if modes is not None:
        mig = (
            ("on" if modes[0] == nvml.NVML_DEVICE_MIG_ENABLE else "off")
            if modes
            else "not supported"
        )
    name = asking.answer("a name", index, nvml.nvmlDeviceGetName, handle)
    uuid = asking.answer("a UUID", index, nvml.nvmlDeviceGetUUID, handle)
    instances = _instances(asking, index, handle) if mig == "on" else ()
    return Gpu(
        index=index,
        name=name,
        uuid=uuid,
        pci=_bus(pci),
        memory_total=None if memory is None else int(memory.total),
        memory_used=None if memory is None else int(memory.used),
        mig=mig,
        instances=instances,
        cuda="unknown",
        cuda_index=None,
    )


_ABSENT = "NOT_SUPPORTED FUNCTION_NOT_FOUND NOT_FOUND INVALID_ARGUMENT"
_NO_MORE_LINKS = -1


def _instances(asking: Questions, index: int, handle: Any) -> tuple[MigInstance, ...]:
    nvml = asking.pynvml
    places = asking.answer("MIG instances", index, nvml.nvmlDeviceGetMaxMigDeviceCount, handle)
    found = []
    for place in range(places or 0):
        part = asking.answer(
            "MIG instances",
            index,
            nvml.nvmlDeviceGetMigDeviceHandleByIndex,
            handle,
            place,
            quiet=_ABSENT,
        )
        if part is None:
            continue
        memory = asking.answer("a MIG instance's memory", index, nvml.nvmlDeviceGetMemoryInfo, part)
        found.append(
            MigInstance(
                asking.answer("a MIG instance's name", index, nvml.nvmlDeviceGetName, part),
                asking.answer("a MIG instance's UUID", index, nvml.nvmlDeviceGetUUID, part),
                None if memory is None else int(memory.total),
                "unknown",
                None,
            )
        )
    return tuple(found)


def _nvlinks(
    asking: Questions, gpus: list[Gpu], handles: Mapping[int, Any]
) -> dict[int, dict[int | str, int] | None]:
    """For each GPU, how many active NVLinks lead to each other GPU, or to the NVSwitch."""
    nvml = asking.pynvml
    by_bus = {gpu.pci: gpu.index for gpu in gpus if gpu.pci}
    found: dict[int, dict[int | str, int] | None] = {}
    for index, handle in handles.items():
        ends: dict[int | str, int] = {}
        found[index] = ends
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            state = asking.answer(
                "NVLinks",
                index,
                nvml.nvmlDeviceGetNvLinkState,
                handle,
                link,
                quiet=_ABSENT,
                otherwise=_NO_MORE_LINKS,
            )
            if state is None:
                found[index] = None  # refused, which is not the same as having none
            if state is None or state == _NO_MORE_LINKS:
                break
            if state != nvml.NVML_FEATURE_ENABLED:
                continue
            remote = asking.answer(
                "where NVLinks lead",
                index,
                nvml.nvmlDeviceGetNvLinkRemotePciInfo,
                handle,
                link,
                quiet=_ABSENT,
            )
            end: int | str | None = by_bus.get(_bus(remote) or "")
            if end is None:
                kind = asking.answer(
                    "where NVLinks lead",
                    index,
                    nvml.nvmlDeviceGetNvLinkRemoteDeviceType,
                    handle,
                    link,
                    quiet=_ABSENT,
                )
                end = "switch" if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH else "elsewhere"
            ends[end] = ends.get(end, 0) + 1
    return found


def _link(
    asking: Questions,
    first: tuple[int, Any],
    second: tuple[int, Any],
    nvlinks: Mapping[int, Mapping[int | str, int] | None],
) -> Link:
    nvml = asking.pynvml
    (a, handle_a), (b, handle_b) = first, second
    level = asking.answer(
        "the path to other GPUs",
        a,
        nvml.nvmlDeviceGetTopologyCommonAncestor,
        handle_a,
        handle_b,
        quiet=_ABSENT,
    )
    # The constant for reading is a tuple in nvidia-ml-py; its value is 0.
    status = asking.answer(
        "direct copies to other GPUs",
        a,
        nvml.nvmlDeviceGetP2PStatus,
        handle_a,
        handle_b,
        0,
        quiet=_ABSENT,
    )
    direct = None if status is None else status == nvml.NVML_P2P_STATUS_OK
    path = _PATHS.get(level, "path unknown")
    ends, other_ends = nvlinks[a], nvlinks[b]
    if ends is None or other_ends is None:
        return Link(a, b, path, None, direct)
    straight = ends.get(b, 0)
    count = straight or min(ends.get("switch", 0), other_ends.get("switch", 0))
    if count:
        path = f"{count} NVLink{'s' if count > 1 else ''}"
        path += "" if straight else " through NVSwitch"
    return Link(a, b, path, count, direct)


def _bus(pci: Any) -> str | None:
    if pci is None:
        return None
    return f"{pci.domain:08x}:{pci.bus:02x}:{pci.device:02x}"


def _unknown_fault(fault: Exception) -> str:
    reason = str(fault).rstrip(".")
    return f"The NVIDIA driver cannot be asked: {reason}. Run nvidia-smi and see what it says."
