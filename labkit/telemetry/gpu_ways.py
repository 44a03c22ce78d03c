"""Which devices there are when the driver is opened, and the ways to ask each for its metrics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from labkit.telemetry.gpu_calls import Ask, Energies, Memory, Number, Rates, Temperature, Traffic
from labkit.telemetry.gpu_faults import raised
from labkit.telemetry.gpu_lists import Activity, Processes, Samples
from labkit.telemetry.metrics import Device

__all__ = ["Found", "found_devices", "ways"]

# Bytes a second that one lane of PCIe carries in one direction, by generation.
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9, 7: 15.13e9}


@dataclass
class Found:
    """A device, and how to find it again after the driver has lost it."""

    device: Device
    label: str  # "GPU 1", as a sentence names it
    index: int
    uuid: str | None
    part: int | None = None  # which MIG instance
    mig: str = ""  # "instance", "whole" (of instances), or ""
    handle: Any = None
    code: int = 0  # of the attempt to get a handle
    _of: Found | None = field(default=None, repr=False)

    def reach(self, nvml: Any) -> int:
        """Get the handle; the code of the attempt."""
        try:
            if self._of is not None and self.part is not None:
                code = self._of.reach(nvml)
                if code:
                    return code
                whole = self._of.handle
                self.handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, self.part)
            else:
                self.handle = _handle(nvml, self.index, self.uuid)
        except nvml.NVMLError as fault:
            self.code = int(fault.value)
            raised(self.code)
            return self.code
        self.code = 0
        return 0

    def counters(self, nvml: Any) -> tuple[Any, int | None]:
        """The handle for SM counters, and the MIG instance that they are to be of."""
        if self._of is None:
            return self.handle, None
        return self._of.handle, answered(nvml, nvml.nvmlDeviceGetGpuInstanceId, self.handle)


def _handle(nvml: Any, index: int, uuid: str | None) -> Any:
    # When one GPU falls off the bus the others may be numbered anew; the UUID stays.
    try:
        if uuid is not None:
            return nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError as fault:
        if fault.value not in (nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_NOT_FOUND):
            raise
        if fault.value == nvml.NVML_ERROR_NOT_FOUND:
            raise nvml.NVMLError(nvml.NVML_ERROR_GPU_IS_LOST) from fault
    return nvml.nvmlDeviceGetHandleByIndex(index)


def answered(nvml: Any, ask: Callable[..., Any], *arguments: Any) -> Any:
    """The answer to what may well be refused, or None."""
    try:
        return ask(*arguments)
    except (nvml.NVMLError, UnicodeDecodeError, AttributeError):
        return None


def found_devices(nvml: Any) -> list[Found]:
    """All GPUs, each followed by its MIG instances."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = _found_gpu(nvml, index)
        found.append(gpu)
        found.extend(_instances(nvml, gpu))
    return found


def _found_gpu(nvml: Any, index: int) -> Found:
    code, handle = 0, None
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as fault:
        code = int(fault.value)
    name = uuid = mig = None
    if handle is not None:
        name = answered(nvml, nvml.nvmlDeviceGetName, handle)
        uuid = answered(nvml, nvml.nvmlDeviceGetUUID, handle)
        mig = answered(nvml, nvml.nvmlDeviceGetMigMode, handle)
    device = Device(
        f"gpu{index}",
        name or f"GPU {index}",
        "gpu",
        _memory_total(nvml, handle),
        _power_limit(nvml, handle),
    )
    cut = mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE
    label = f"GPU {index}"
    return Found(device, label, index, uuid, mig="whole" if cut else "", handle=handle, code=code)


def _instances(nvml: Any, gpu: Found) -> list[Found]:
    if gpu.mig != "whole":
        return []
    found = []
    for part in range(answered(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle) or 0):
        handle = answered(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, part)
        if handle is None:
            continue  # this place is free
        key, label = f"{gpu.device.key}.mig{part}", f"MIG instance {part} of GPU {gpu.index}"
        name = answered(nvml, nvml.nvmlDeviceGetName, handle) or label
        total = _memory_total(nvml, handle)
        device = Device(key, name, "mig", total, part_of=gpu.device.key)
        uuid = answered(nvml, nvml.nvmlDeviceGetUUID, handle)
        found.append(Found(device, label, gpu.index, uuid, part, "instance", handle, 0, gpu))
    return found


def _memory_total(nvml: Any, handle: Any) -> float | None:
    memory = handle and answered(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return float(memory.total) if memory and memory.total else None


def _power_limit(nvml: Any, handle: Any) -> float | None:
    milliwatts = handle and answered(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return milliwatts / 1e3 if milliwatts else None


def ways(
    nvml: Any, found: Found, pid: int | None, wall: Callable[[], float]
) -> tuple[dict[str, Ask], dict[str, tuple[str, ...]]]:
    """The questions to a device, and for each metric which of them, from the best to the last."""
    handle = found.handle
    memory = Memory(nvml, handle)
    clock = "nvmlDeviceGetClockInfo"
    asks: dict[str, Ask] = {
        "energies": Energies(nvml, handle),
        "power": Number(nvml, handle, "power", "nvmlDeviceGetPowerUsage", parts=1000),
        "energy": Number(
            nvml, handle, "energy", "nvmlDeviceGetTotalEnergyConsumption", wide=True, parts=1000
        ),
        "memory": memory,
        "rates": Rates(nvml, handle),
        "temperature v": Temperature(nvml, handle),
        "temperature": Number(
            nvml, handle, "temperature", "nvmlDeviceGetTemperature", choice=0, every=0.5
        ),
        "clock": Number(nvml, handle, "clock", clock, choice=1, every=0.5),  # of the SMs
        "traffic": Traffic(nvml, handle, _pcie_limit(nvml, handle)),
        "activity": Activity(nvml, *found.counters(nvml)),
    }
    if pid is not None:
        for version in (3, 2):
            asks[f"processes {version}"] = Processes(nvml, handle, version, pid, memory)
    samples = Samples(nvml, handle, wall)
    fine = samples.worth_it()
    if fine:
        asks["samples"] = samples
    linked = found.mig != "instance" and _has_nvlink(nvml, handle)
    plan: dict[str, tuple[str, ...]] = {
        "utilisation": ("samples", "rates") if fine else ("rates",),
        "sm_activity": ("activity",),
        "memory_activity": ("rates",),
        "memory": ("memory",),
        "process_memory": ("processes 3", "processes 2") if pid is not None else (),
        "power": ("energies", "power"),
        "temperature": ("temperature", "temperature v"),
        "clock": ("clock",),
        "pcie": ("activity", "traffic"),
        "nvlink": ("activity", "traffic") if linked else (),
        "energy": ("energies", "energy"),
    }
    return asks, plan


def _pcie_limit(nvml: Any, handle: Any) -> float | None:
    generation = answered(nvml, nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
    width = answered(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
    return _LANE[generation] * width if generation in _LANE and width else None


def _has_nvlink(nvml: Any, handle: Any) -> bool:
    """Whether any link is up. A question that is refused leaves it to the counters to say no."""
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED:
                return True
        except nvml.NVMLError as fault:
            known_as_none = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT)
            return fault.value not in known_as_none
    return False
