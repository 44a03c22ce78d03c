"""How the parts of a machine are connected: processors, memory, GPUs and the links between them.

>>> labkit.hardware.topology()                  # doctest: +SKIP
>>> labkit.hardware.topology("DGX H100")        # doctest: +SKIP

This machine is read from Linux (/sys) and NVIDIA's driver; a known one is in the registry
(`labkit.known_hardware.MACHINES`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.arguments import one_of
from labkit.hardware.gpus import gpu_text, open_driver, read_gpus
from labkit.hardware.machine import read_cores, read_memory
from labkit.kinds import Kind, bytes_text, measured
from labkit.known_hardware import LINKS, MACHINES, Edge

__all__ = ["MachineTopology", "topology"]

# NVML's levels of a common ancestor, in the words of `nvidia-smi topo -m`.
_PATHS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_LEGEND = (
    "NV#: so many NVLinks. PIX: one PCIe switch, PXB: several, PHB: through a processor, NODE: "
    "within a memory node, SYS: between processors."
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
                known = LINKS.get(one.link)
                rate = f", {bytes_text(one.count * known.bandwidth)}/s" if known else ""
                words = f"{one.count} × " * (one.count > 1) + (one.link or "linked") + rate
                found.setdefault(words, []).append(one.b if one.a == part else one.a)
        return [f"{words}: {', '.join(_short(others))}" for words, others in found.items()]

    def _rows(self) -> list[tuple[str, str, str]]:
        return [
            (part, what.replace("\n", "; "), "; ".join(self.links(part)))
            for part, what in self.parts.items()
        ]

    def _footer(self) -> str:
        return "\n".join([*self.notes, str(self.kind)])

    def __repr__(self) -> str:
        from labkit.views.table import text_table

        head = ("part", "what it is", "linked to")
        return f"{self.name}\n{text_table(head, self._rows(), self._footer(), prose=True)}"

    def figure(self) -> Any:
        """The picture: processors above, devices below them, what links the devices at the end."""
        from labkit.views.machine_figure import machine

        return machine(self)

    def _repr_mimebundle_(self, **_: Any) -> Any:
        data, metadata = self.figure()._repr_mimebundle_()
        return {**data, "text/plain": repr(self)}, metadata


def topology(name: str | None = None) -> MachineTopology:
    """The topology of this machine, or one of the registry by its name."""
    if name is None:
        return read_topology()
    known = MACHINES[one_of("name", name, MACHINES)]
    parts = {part: known.gpu if part[:3] in ("GPU", "TPU") else "" for part in known.nodes}
    return MachineTopology(name, parts, known.edges, (), known.kind)


def read_topology(root: Path = Path("/")) -> MachineTopology:
    """The topology of this machine. `root` lets a test bring its own /sys."""
    notes: list[str] = []
    sockets = _sockets(root)
    parts = _processors(root, sockets, notes)
    processors = list(parts)
    edges = [Edge(a, b, "") for a, b in pairwise(processors)]
    parts |= _gpus(root, sockets, edges, notes)
    return MachineTopology(
        "This machine", parts, tuple(edges), tuple(notes), measured("this machine")
    )


def _sockets(root: Path) -> dict[int, int]:
    """The socket of each logical core."""
    found = {}
    for folder in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        with suppress(OSError, ValueError):
            socket = int((folder / "topology/physical_package_id").read_text())
            found[int(folder.name[3:])] = max(socket, 0)  # -1: the kernel does not know
    return dict(sorted(found.items()))


def _processors(root: Path, sockets: dict[int, int], notes: list[str]) -> dict[str, str]:
    """Each socket with its cores and memory."""
    if not sockets:
        notes.append("This system does not report sockets and memory nodes.")
        cores, memory = read_cores(), read_memory()
        return {"CPU 0": f"{cores.logical} logical cores\n{bytes_text(memory.total)} memory"}
    parts = {}
    for socket in sorted(set(sockets.values())):
        mine = [core for core, at in sockets.items() if at == socket]
        folder = root / "sys/devices/system/cpu"
        whole = {_text(folder / f"cpu{core}/topology/core_id") for core in mine}
        parts[f"CPU {socket}"] = f"{len(whole)} cores, {len(mine)} logical ({_ranges(mine)})"
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        total = next((line.split()[3] for line in _text(folder / "meminfo").splitlines()
                      if "MemTotal" in line), "0")  # fmt: skip
        size = f"memory node {folder.name[4:]}: {bytes_text(1024 * int(total))}"
        mine = [core for core in _numbers(_text(folder / "cpulist")) if core in sockets]
        if mine:
            parts[f"CPU {sockets[mine[0]]}"] += f"\n{size}"
        else:
            notes.append(f"{size}, without cores")
    return parts


def _gpus(
    root: Path, sockets: dict[int, int], edges: list[Edge], notes: list[str]
) -> dict[str, str]:
    """Each GPU. Adds its links to the edges, and what could not be seen to the notes."""
    driver = read_gpus()
    notes.extend(driver.notes)
    parts = {f"GPU {gpu.index}": gpu_text(gpu) for gpu in driver.gpus}
    if not parts:
        return {}
    pynvml = open_driver()
    handles, slots = {}, {}
    try:
        for gpu in driver.gpus:
            with _noted(pynvml, f"GPU {gpu.index} does not report its slot", notes):
                handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
                slots[gpu.index] = _slot(pynvml.nvmlDeviceGetPciInfo(handle))
                handles[gpu.index] = handle
        for index, handle in handles.items():
            with _noted(pynvml, f"GPU {index} does not report its PCIe link", notes):
                edges.extend(_pcie(pynvml, root, sockets, index, handle, slots[index]))
            edges.extend(_nvlinks(pynvml, index, handle, slots, notes))
        for index in handles if len(handles) > 1 else ():
            with _noted(pynvml, f"GPU {index} does not report its paths to the others", notes):
                parts[f"GPU {index}"] += f"\nto the others: {_paths(pynvml, index, handles, edges)}"
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    notes += [_LEGEND] if len(handles) > 1 else []
    if "NVSwitch" in {edge.b for edge in edges}:
        parts["NVSwitch"] = ""
    return parts


@contextmanager
def _noted(pynvml: Any, what: str, notes: list[str]) -> Iterator[None]:
    """What the driver cannot answer becomes a note."""
    try:
        yield
    except pynvml.NVMLError as fault:
        notes.append(f"{what}: {fault}.")


def _slot(pci: Any) -> tuple[int, int, int]:
    return int(pci.domain), int(pci.bus), int(pci.device)


def _pcie(
    pynvml: Any, root: Path, sockets: dict[int, int], index: int, handle: Any,
    slot: tuple[int, int, int],
) -> list[Edge]:  # fmt: skip
    """The link to the socket whose cores are near, or to the only one."""
    folder = "{:04x}:{:02x}:{:02x}.0".format(*slot)
    near = _numbers(_text(root / "sys/bus/pci/devices" / folder / "local_cpulist"))
    found = {sockets[core] for core in near if core in sockets}
    found = found if len(found) == 1 else set(sockets.values() or [0])
    if len(found) > 1:
        return []
    generation = pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
    lanes = pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    return [Edge(f"GPU {index}", f"CPU {found.pop()}", f"PCIe {generation} x{lanes}")]


def _nvlinks(
    pynvml: Any, index: int, handle: Any, slots: dict[int, tuple[int, int, int]], notes: list[str]
) -> list[Edge]:
    """NVLinks that are up: to other GPUs, counted at the lower number, or to a switch."""
    others = {slot: number for number, slot in slots.items()}
    found: Counter[str] = Counter()
    down = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if not pynvml.nvmlDeviceGetNvLinkState(handle, link):
                down += 1
                continue
            far = others.get(_slot(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)))
        except pynvml.NVMLError:  # no such link
            break
        if far is None or far > index:
            found["NVSwitch" if far is None else f"GPU {far}"] += 1
    if down:
        notes.append(f"{down} of the NVLinks of GPU {index} {'is' if down == 1 else 'are'} down.")
    return [Edge(f"GPU {index}", other, "NVLink", count) for other, count in found.items()]


def _paths(pynvml: Any, index: int, handles: dict[int, Any], edges: list[Edge]) -> str:
    """To each of the other GPUs, as `nvidia-smi topo -m` writes it."""
    direct = {frozenset((one.a, one.b)): one.count for one in edges if one.link == "NVLink"}
    words = []
    for other, handle in handles.items():
        if other != index:
            pair = frozenset((f"GPU {index}", f"GPU {other}"))
            level = pynvml.nvmlDeviceGetTopologyCommonAncestor(handles[index], handle)
            words.append(f"NV{direct[pair]}" if pair in direct else _PATHS.get(level, "?"))
    return " ".join(words)


def _short(parts: list[str]) -> list[str]:
    """The names; what follows another of its kind is a number.

    >>> _short(["GPU 0", "GPU 1", "CPU 0"])
    ['GPU 0', '1', 'CPU 0']
    """
    kinds = [part.rpartition(" ")[0] for part in parts]
    same = [False, *(one == other != "" for one, other in pairwise(kinds))]
    return [p.rpartition(" ")[2] if s else p for p, s in zip(parts, same, strict=True)]


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


def _ranges(numbers: list[int]) -> str:
    """The list as Linux writes it."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
