"""The parts of a machine as plain values, and how they are shown.

>>> hardware = labkit.hardware()                        # doctest: +SKIP
>>> hardware.cores.usable, hardware.gpus                # doctest: +SKIP
(2, ())
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from labkit.kinds import Kind, bytes_text
from labkit.plain import stored

__all__ = ["Cores", "Gpu", "Hardware", "Link", "Memory", "MigInstance"]

Visibility = Literal["visible", "hidden", "unknown"]


@stored
@dataclass(frozen=True)
class Cores:
    """Processor cores: those of the machine, and those that this process may use."""

    name: str
    physical: int | None
    logical: int
    affinity: int
    quota: float | None  # cores' worth of time that a container allows, where it limits it

    @property
    def usable(self) -> int:
        """Whole cores that this process can keep busy."""
        return max(1, int(min(self.affinity, self.quota or self.affinity)))


@stored
@dataclass(frozen=True)
class Memory:
    """Main memory in bytes; `limit` is what a container allows, where it allows less than all."""

    total: int
    available: int
    limit: int | None


@stored
@dataclass(frozen=True)
class MigInstance:
    """A slice of a GPU that its owner has cut off with MIG."""

    name: str | None
    uuid: str | None
    memory_total: int | None
    cuda: Visibility
    cuda_index: int | None


@stored
@dataclass(frozen=True)
class Gpu:
    """One GPU. `index` is NVML's (as nvidia-smi shows it), `cuda_index` what CUDA calls it here."""

    index: int
    name: str | None
    uuid: str | None
    pci: str | None
    memory_total: int | None
    memory_used: int | None
    mig: Literal["on", "off", "not supported", "unknown"]
    instances: tuple[MigInstance, ...]
    cuda: Visibility
    cuda_index: int | None


@stored
@dataclass(frozen=True)
class Link:
    """How two GPUs reach each other. `nvlinks` counts NVLinks; `direct` is whether they may copy
    into each other's memory without passing through the host. None means that NVML did not say.
    """

    first: int
    second: int
    path: str
    nvlinks: int | None
    direct: bool | None


@stored
@dataclass(frozen=True)
class Hardware:
    """What this machine has and what this process may use of it."""

    system: str
    cores: Cores
    memory: Memory
    driver: str | None
    driver_state: Literal["working", "none", "broken"]
    gpus: tuple[Gpu, ...]
    links: tuple[Link, ...]
    notes: tuple[str, ...]
    kind: Kind

    def __str__(self) -> str:
        width = max(len(title) for title, _ in _rows(self))
        lines = [f"{title:<{width}}  {value}" for title, value in _rows(self)]
        return "\n".join([*lines, *self.notes, str(self.kind)])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        page = table((), _rows(self), caption="This machine", footer=str(self.kind), prose=True)
        if self.gpus:
            page += table(_GPU_HEADS, _gpu_rows(self), caption="GPUs", footer=str(self.kind))
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return {"text/plain": str(self), "text/html": page + notes}


def _rows(hardware: Hardware) -> list[tuple[str, str]]:
    rows = [
        ("System", hardware.system),
        ("Processor", hardware.cores.name),
        ("Cores", _cores_text(hardware.cores)),
        ("Memory", _memory_text(hardware.memory)),
    ]
    if hardware.driver:
        rows.append(("NVIDIA driver", hardware.driver))
    for gpu in hardware.gpus:
        rows.append((f"GPU {gpu.index}", _gpu_text(gpu)))
        for place, instance in enumerate(gpu.instances):
            size = _size(instance.memory_total)
            index = _cuda_text(instance.cuda, instance.cuda_index)
            name = instance.name or "name unknown"
            rows.append((f"GPU {gpu.index} MIG {place}", f"{name}, {size}, {index}"))
    if not hardware.gpus:
        rows.append(("GPUs", "none"))
    rows.extend(("Between GPUs", text) for text in _links_text(hardware.links))
    return rows


def _cores_text(cores: Cores) -> str:
    parts = [f"{cores.logical} logical"]
    if cores.physical is not None:
        parts.insert(0, f"{cores.physical} physical")
    text = f"{', '.join(parts)}; this process may use {cores.usable}"
    return f"{text} (time for {cores.quota:g})" if cores.quota is not None else text


def _memory_text(memory: Memory) -> str:
    text = f"{bytes_text(memory.total)}, {bytes_text(memory.available)} available"
    return f"{text}, limited to {bytes_text(memory.limit)}" if memory.limit is not None else text


def _gpu_text(gpu: Gpu) -> str:
    used = "" if gpu.memory_used is None else f", {bytes_text(gpu.memory_used)} used"
    mig = ", MIG on" if gpu.mig == "on" else ""
    size = _size(gpu.memory_total)
    return (
        f"{gpu.name or 'name unknown'}, {size}{used}{mig}, {_cuda_text(gpu.cuda, gpu.cuda_index)}"
    )


def _size(count: int | None) -> str:
    return "memory unknown" if count is None else bytes_text(count)


def _cuda_text(cuda: Visibility, index: int | None) -> str:
    words = {"hidden": "hidden from CUDA", "unknown": "CUDA index unknown"}
    return words.get(cuda, f"CUDA index {index}")


def _links_text(links: tuple[Link, ...]) -> list[str]:
    """One line per kind of path: eight GPUs have 28 pairs, and most are alike."""
    groups: dict[tuple[str, bool | None], list[str]] = {}
    for link in links:
        groups.setdefault((link.path, link.direct), []).append(f"{link.first}-{link.second}")
    direct = {True: "direct copies", False: "no direct copies", None: "direct copies unknown"}
    return [
        f"{'every pair' if len(groups) == 1 else ', '.join(pairs)}: {path}; {direct[peer]}"
        for (path, peer), pairs in groups.items()
    ]


_GPU_HEADS = ("GPU", "name", "CUDA index", "memory", "used", "MIG", "UUID")


def _gpu_rows(hardware: Hardware) -> list[tuple[str, ...]]:
    return [
        (
            str(gpu.index),
            gpu.name or "unknown",
            str(gpu.cuda_index) if gpu.cuda == "visible" else gpu.cuda,
            "unknown" if gpu.memory_total is None else bytes_text(gpu.memory_total),
            "unknown" if gpu.memory_used is None else bytes_text(gpu.memory_used),
            gpu.mig,
            gpu.uuid or "unknown",
        )
        for gpu in hardware.gpus
    ]
