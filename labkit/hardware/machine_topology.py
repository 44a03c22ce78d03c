"""How the parts of a machine are connected: processors, memory, GPUs and the links between them.

>>> labkit.hardware.topology()                  # doctest: +SKIP
>>> labkit.hardware.topology("DGX H100")        # doctest: +SKIP
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.arguments import one_of
from labkit.hardware.gpus import gpu_text, open_driver, read_gpus
from labkit.kinds import Kind, bytes_text, measured
from labkit.known_hardware import LINKS, MACHINES, Edge

__all__ = ["MachineTopology", "topology"]

Slot = tuple[int, int, int]  # on the PCIe bus: domain, bus, device
# NVML's levels of the nearest common ancestor, in the words of `nvidia-smi topo -m`.
PATHS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
LEGEND = (
    "Paths: NV# over so many NVLinks, PIX one PCIe switch, PXB several, PHB through a processor, "
    "NODE within a memory node, SYS between processors."
)


@dataclass(frozen=True)
class MachineTopology:
    """The parts of a machine with what is known of each, and the links between them."""

    name: str
    parts: dict[str, str]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...]
    kind: Kind

    def links(self, part: str) -> list[str]:
        """The links of a part in words, with the bytes a second of each in one direction."""
        found: dict[str, list[str]] = {}
        for one in self.edges:
            if part in (one.a, one.b):
                rate = LINKS[one.link].bandwidth if one.link in LINKS else 0.0
                words = f"{one.count} × " * (one.count > 1) + (one.link or "linked")
                words += f", {bytes_text(one.count * rate)}/s" if rate else ""
                found.setdefault(words, []).append(one.b if one.a == part else one.a)
        return [f"{words}: {', '.join(others)}" for words, others in found.items()]

    def __repr__(self) -> str:
        from labkit.views.table import text_table

        rows = [
            (part, what.replace("\n", "; "), "; ".join(self.links(part)))
            for part, what in self.parts.items()
        ]
        footer = "\n".join([*self.notes, str(self.kind)])
        head = ("part", "what it is", "links")
        return f"{self.name}\n{text_table(head, rows, footer, prose=True)}"

    def figure(self) -> Any:
        """The picture: processors above, devices below them, and the links between them."""
        from labkit.views.machine_figure import machine

        return machine(self)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        data, metadata = self.figure()._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata


def topology(name: str | None = None) -> MachineTopology:
    """The topology of this machine, or of one of the registry by its name."""
    if name is None:
        return read_topology()
    known = MACHINES[one_of("name", name, MACHINES)]
    parts = {part: known.gpu if part[:3] in ("GPU", "TPU") else "" for part in known.nodes}
    return MachineTopology(name, parts, known.edges, (), known.kind)


def read_topology(root: Path = Path("/")) -> MachineTopology:
    """What Linux (/sys) and NVIDIA's driver report. `root` lets a test bring its own /sys."""
    notes: list[str] = []
    sockets: dict[int, int] = {}  # of each logical core
    for folder in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology")):
        socket = max(int(_text(folder / "physical_package_id") or 0), 0)
        sockets[int(folder.parent.name[3:])] = socket
    if not sockets:
        notes.append("This system does not report its processors and memory nodes.")
    parts = _processors(root, sockets, notes)
    edges = [Edge(a, b, "") for a, b in pairwise(parts)]
    driver = read_gpus()
    notes.extend(driver.notes)
    parts |= {f"GPU {gpu.index}": gpu_text(gpu) for gpu in driver.gpus}
    if driver.gpus:
        _add_links(root, sockets, parts, edges, notes)
    kind = measured("this machine")
    return MachineTopology("This machine", parts, tuple(edges), tuple(notes), kind)


def _processors(root: Path, sockets: dict[int, int], notes: list[str]) -> dict[str, str]:
    """Each processor with its cores and its memory."""
    folder, parts = root / "sys/devices/system", {}
    for socket in sorted(set(sockets.values())):
        mine = [core for core, at in sockets.items() if at == socket]
        whole = {_text(folder / f"cpu/cpu{core}/topology/core_id") for core in mine}
        parts[f"CPU {socket}"] = f"{len(whole)} cores, {len(mine)} logical"
    for node in sorted((folder / "node").glob("node[0-9]*")):
        lines = [line.split() for line in _text(node / "meminfo").splitlines()]
        total = next((1024 * int(line[3]) for line in lines if line[2] == "MemTotal:"), 0)
        size = f"memory node {node.name[4:]}: {bytes_text(total)}"
        near = [core for core in _numbers(_text(node / "cpulist")) if core in sockets]
        if near:
            parts[f"CPU {sockets[near[0]]}"] += f"\n{size}"
        else:
            notes.append(f"{size}, without cores")
    return parts


def _add_links(
    root: Path, sockets: dict[int, int], parts: dict[str, str], edges: list[Edge], notes: list[str]
) -> None:
    """The links of the GPUs; what the driver does not answer becomes a note."""
    pynvml = open_driver()
    handles: dict[int, Any] = {}
    slots: dict[Slot, int] = {}
    try:
        for index in [int(part[4:]) for part in parts if part.startswith("GPU")]:
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                slots[_slot(pynvml.nvmlDeviceGetPciInfo(handle))] = index
                handles[index] = handle
            except pynvml.NVMLError as fault:
                notes.append(f"GPU {index} does not report its links: {fault}.")
        for slot, index in slots.items():
            edges.extend(_pcie(pynvml, root, sockets, handles[index], slot, index))
            edges.extend(_nvlinks(pynvml, handles[index], slots, index, notes))
        direct = {
            frozenset((one.a, one.b)): f"NV{one.count}" for one in edges if one.link[:2] == "NV"
        }
        for index, handle in handles.items() if len(handles) > 1 else ():
            words = []
            for other in handles.keys() - {index}:
                level = pynvml.nvmlDeviceGetTopologyCommonAncestor(handle, handles[other])
                pair = frozenset((f"GPU {index}", f"GPU {other}"))
                words.append(f"{other} {direct.get(pair) or PATHS.get(level, '?')}")
            parts[f"GPU {index}"] += f"\npaths to {', '.join(words)}"
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    notes += [LEGEND] if len(handles) > 1 else []
    parts |= {"NVSwitch": ""} if any(one.b == "NVSwitch" for one in edges) else {}


def _pcie(
    pynvml: Any, root: Path, sockets: dict[int, int], handle: Any, slot: Slot, index: int
) -> list[Edge]:
    """The link to the processor whose cores are near, or to the only one."""
    folder = root / "sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0".format(*slot)
    near = {sockets[core] for core in _numbers(_text(folder / "local_cpulist")) if core in sockets}
    if len(near) != 1:
        near = set(sockets.values())
    with suppress(pynvml.NVMLError):
        generation = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        link = f"PCIe {generation} x{pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)}"
        return [Edge(f"GPU {index}", f"CPU {at}", link) for at in near if len(near) == 1]
    return []


def _nvlinks(
    pynvml: Any, handle: Any, slots: dict[Slot, int], index: int, notes: list[str]
) -> list[Edge]:
    """NVLinks that are up: to GPUs with a higher number, or to a switch."""
    found: Counter[str] = Counter()
    down = 0
    with suppress(pynvml.NVMLError):  # no further link
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if not pynvml.nvmlDeviceGetNvLinkState(handle, link):
                down += 1
                continue
            far = slots.get(_slot(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
            if far is None or far > index:
                found["NVSwitch" if far is None else f"GPU {far}"] += 1
    notes += [f"NVLinks of GPU {index} that are down: {down}."] if down else []
    return [Edge(f"GPU {index}", other, "NVLink", count) for other, count in found.items()]


def _slot(pci: Any) -> Slot:
    return int(pci.domain), int(pci.bus), int(pci.device)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _numbers(text: str) -> list[int]:
    """The numbers of a list as Linux writes it.

    >>> _numbers("0-2,8")
    [0, 1, 2, 8]
    """
    ends = [part.split("-") for part in text.split(",") if part]
    return [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]
