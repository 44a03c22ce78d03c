"""How the parts of a machine are connected: processors, memory, GPUs and the links between them.

>>> labkit.hardware.topology()                  # doctest: +SKIP
>>> labkit.hardware.topology("DGX H100")        # doctest: +SKIP
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.arguments import one_of
from labkit.hardware.gpus import open_driver, read_gpus
from labkit.kinds import Kind, bytes_text, measured
from labkit.known_hardware import LINKS, MACHINES, Edge


@dataclass(frozen=True)
class MachineTopology:
    """The parts of a machine with what is known of each, and the links between them."""

    name: str
    parts: dict[str, str]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...]
    kind: Kind

    def __repr__(self) -> str:
        found: dict[str, list[str]] = {}  # the parts and links of each sort
        for part, what in self.parts.items():
            found.setdefault(what.replace("\n", ", "), []).append(part)
        for one in self.edges:
            what = f"{one.count} × " * (one.count > 1) + (one.link or "linked")
            if one.link in LINKS and self.kind.name == "recorded":  # not read on this machine
                what += f", {bytes_text(one.count * LINKS[one.link].bandwidth)}/s"
            found.setdefault(what, []).append(f"{one.a}–{one.b}")
        lines = [f"{what}: {', '.join(names)}." for what, names in found.items() if what]
        return "\n".join([f"{self.name}, {self.kind}.", *lines, *self.notes])

    def _repr_mimebundle_(self, **_: Any) -> Any:
        """The picture: processors above, devices below them, and the links between them."""
        from labkit.views.machine_figure import machine

        return machine(self)._repr_mimebundle_()


def topology(name: str | None = None) -> MachineTopology:
    """The topology of this machine, or of one of the registry by its name."""
    if name is None:
        return read_topology()
    known = MACHINES[one_of("name", name, MACHINES)]
    parts = {part: known.gpu if part[:3] in ("GPU", "TPU") else "" for part in known.nodes}
    return MachineTopology(name, parts, known.edges, (), known.kind)


def read_topology(root: Path = Path("/")) -> MachineTopology:
    """What Linux (/sys) and NVIDIA's driver report. `root` lets a test bring its own /sys."""
    system, driver = root / "sys/devices/system", read_gpus()
    notes = list(driver.notes)
    files = system.glob("cpu/cpu[0-9]*/topology/physical_package_id")
    sockets = {int(one.parts[-3][3:]): max(int(one.read_text()), 0) for one in files}
    if not sockets:
        notes.append("This system does not report its processors and memory nodes.")
    memory: Counter[int] = Counter()  # of each processor, which may have several memory nodes
    for node in system.glob("node/node[0-9]*"):
        total = re.search(r"MemTotal:\s*(\d+)", (node / "meminfo").read_text())
        cores = sockets.keys() & _numbers(node / "cpulist")
        if total and cores:
            memory[sockets[min(cores)]] += 1024 * int(total[1])
    parts = {
        f"CPU {socket}": f"{count} logical cores" + f"\n{bytes_text(memory[socket])} of memory"
        * (memory[socket] > 0)
        for socket, count in sorted(Counter(sockets.values()).items())
    }  # fmt: skip
    edges = [Edge(a, b, "") for a, b in pairwise(parts)]
    parts |= {f"GPU {gpu.index}": gpu.name for gpu in driver.gpus}
    if driver.gpus:
        edges += _gpu_links(root, sockets, [gpu.index for gpu in driver.gpus], notes)
        parts |= {"NVSwitch": ""} if any(one.b == "NVSwitch" for one in edges) else {}
    return MachineTopology(
        "This machine", parts, tuple(edges), tuple(notes), measured("this machine")
    )


def _gpu_links(
    root: Path, sockets: dict[int, int], indices: list[int], notes: list[str]
) -> Iterator[Edge]:
    """PCIe to the near processor, and NVLinks that are up, to another GPU or to a switch."""
    nvml, gpus = open_driver(), {}
    for index in indices:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpus[_slot(nvml.nvmlDeviceGetPciInfo(handle))] = index, handle
        except nvml.NVMLError as fault:
            notes.append(f"GPU {index} does not report its links: {fault}.")
    for slot, (index, handle) in gpus.items():
        folder = root / "sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.0".format(*slot)
        near = {sockets[core] for core in sockets.keys() & _numbers(folder / "local_cpulist")}
        near = near or set(sockets.values())
        with suppress(nvml.NVMLError):
            link = f"PCIe {nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)}"
            link += f" x{nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)}"
            if len(near) == 1:
                yield Edge(f"GPU {index}", f"CPU {min(near)}", link)
        found: Counter[str] = Counter()
        with suppress(nvml.NVMLError):  # no further link
            for number in range(nvml.NVML_NVLINK_MAX_LINKS):
                if nvml.nvmlDeviceGetNvLinkState(handle, number):
                    far = _slot(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number))
                    found[f"GPU {gpus[far][0]}" if far in gpus else "NVSwitch"] += 1
        for other, count in found.items():
            if other == "NVSwitch" or int(other[4:]) > index:
                yield Edge(f"GPU {index}", other, "NVLink", count)
    nvml.nvmlShutdown()


def _slot(pci: Any) -> tuple[int, int, int]:
    """Where it is on the PCIe bus: domain, bus, device."""
    return int(pci.domain), int(pci.bus), int(pci.device)


def _numbers(file: Path) -> set[int]:
    """The numbers of a list as Linux writes it, such as "0-2,8"."""
    text = file.read_text().strip() if file.exists() else ""
    ends = [part.split("-") for part in text.split(",") if part]
    return {number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)}
