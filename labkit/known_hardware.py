"""Known hardware as data: GPUs, links and machines, each with its source and the day it was read.

>>> GPUS["A100 80 GB"].flops, GPUS["A100 80 GB"].link_bandwidth
(312000000000000.0, 300000000000.0)
>>> MACHINES["DGX H100"].gpus, MACHINES["DGX H100"].edges[0]
(8, Edge(a='GPU 0', b='NVSwitch', link='NVLink 4', count=18))

All numbers are recorded; what is computed from them is modelled. Memory is in bytes as data sheets
print it (80 GB are 80e9), bandwidth in bytes per second and one direction, FLOP/s are dense and
16-bit with float32 sums: advertisements print twice as much, which holds for sparse matrices only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from labkit.kinds import Kind, recorded

__all__ = ["GPUS", "LINKS", "MACHINES", "READ", "Edge", "KnownGpu", "KnownLink", "KnownMachine"]

# The day on which a page without a date of its own was read.
READ = "read 2026-11"
_BEKMAN = "Bekman, ml-engineering, {}/README.md, version of 2026-08-22"
_BEKMAN_GPU = _BEKMAN.format("compute/accelerator")
_BEKMAN_NETWORK = _BEKMAN.format("network")
_D2L = "Dive into Deep Learning, parameterserver.md"
_TPU = "TPU v5e (scaling-book, tpus.md)"


@dataclass(frozen=True)
class KnownLink:
    """What one link carries in one direction; the latency where somebody has measured it."""

    bandwidth: float
    about: str
    kind: Kind
    latency: float | None = None


def _ib(name: str, gbit: int) -> KnownLink:
    about = f"a port of four lanes, {gbit} Gbit/s"
    return KnownLink(gbit / 8 * 1e9, about, recorded(f"{name} ({_BEKMAN_NETWORK})", READ))


def _nvlink(generation: int, each: float, links: int, gpu: str) -> KnownLink:
    about = f"one link; {gpu} has {links}, {each * links / 1e9:g} GB/s together"
    return KnownLink(each, about, recorded(f"NVLink {generation} ({_BEKMAN_NETWORK})", READ))


LINKS = {
    "NVLink 1": _nvlink(1, 20e9, 4, "P100"),
    "NVLink 2": _nvlink(2, 25e9, 6, "V100"),
    "NVLink 3": _nvlink(3, 25e9, 12, "A100"),
    "NVLink 4": _nvlink(4, 25e9, 18, "H100"),
    "NVLink 5": _nvlink(5, 50e9, 18, "B200"),
    "NVLink 3, 8 A100": KnownLink(
        234.89e9,
        "all-reduce of 16 GiB, 78 % of 300 GB/s; latency fitted as a ring's 14 steps, and a "
        "straight line is up to 36 % off between",
        recorded("8 A100 (Bekman, ml-engineering, network/README.md)", READ),
        56.3e-6 / 14,
    ),
    "NVLink 4, 8 H200": KnownLink(
        482.26e9,
        "all-reduce of 16 GiB with the switch adding up (NVLS), 107 % of 450 GB/s; latency "
        "fitted as a ring's 14 steps, up to 21 % off between",
        recorded("8 H200, NCCL 2.27.7 (Bekman, ml-engineering, network/README.md)", READ),
        41.4e-6 / 14,
    ),
    "NVSwitch, HGX H100": KnownLink(
        400e9,
        "validated input of a simulator, with ring collectives",
        recorded("HGX H100 (astra-sim, HGX-H100-validated.yml)", READ),
        936.25e-9,
    ),
    "Infinity Fabric, MI300X": KnownLink(
        64e9,
        "one link (xGMI); MI300X has 7, 448 GB/s together",
        recorded(f"MI300X ({_BEKMAN_NETWORK})", READ),
    ),
    "TPU v5e, one axis": KnownLink(
        45e9,
        "about 1 µs a hop: below 45 kB a message is latency",
        recorded("TPU v5e (scaling-book, TPU v5e)", READ),
        1e-6,
    ),
    "TPU v5e to host": KnownLink(15e9, "PCIe, for each chip", recorded(_TPU, READ)),
    "PCIe 3 x16": KnownLink(
        16e9,
        "16 GB/s; the latency is NCCL's Simple ring step over PCIe",
        recorded(f"PCIe 3 ({_D2L}; NCCL src/graph/tuning.cc)", "2026-06"),
        5.7e-6,
    ),
    "PCIe 4 x16": KnownLink(31e9, "16 lanes", recorded(f"PCIe 4 ({_BEKMAN_NETWORK})", READ)),
    "PCIe 5 x16": KnownLink(
        63e9,
        "16 lanes; 55 GB/s were measured between host and H200",
        recorded(f"PCIe 5 ({_BEKMAN_NETWORK})", READ),
    ),
    "InfiniBand EDR": _ib("EDR", 100),
    "InfiniBand HDR": _ib("HDR", 200),
    "InfiniBand NDR": _ib("NDR", 400),
    "InfiniBand XDR": _ib("XDR", 800),
    "Ethernet 25 Gbit/s": KnownLink(
        3.125e9,
        "the cable's rate; the latency is NCCL's Simple step over a network",
        recorded("25 Gbit/s Ethernet (NCCL src/graph/tuning.cc)", "2026-06"),
        14e-6,
    ),
}


@dataclass(frozen=True)
class KnownGpu:
    """One device: bytes, bytes per second of its memory, FLOP/s, and its links to other devices."""

    memory: float
    bandwidth: float
    flops: float
    link: str
    links: int
    kind: Kind

    @property
    def link_bandwidth(self) -> float:
        """Bytes per second to other devices over all links together, one direction."""
        return self.links * LINKS[self.link].bandwidth


def _gpu(
    gigabytes: float, terabytes_per_s: float, teraflops: float, links: tuple[int, str],
    where: str = _BEKMAN_GPU,
) -> KnownGpu:  # fmt: skip
    count, link = links
    numbers = (gigabytes * 1e9, terabytes_per_s * 1e12, teraflops * 1e12)
    return KnownGpu(*numbers, link, count, recorded(f"a data sheet ({where})", READ))


GPUS = {
    "V100 16 GB": _gpu(16, 0.9, 125, (6, "NVLink 2"), "NVIDIA, Tesla V100 white paper"),
    "V100 32 GB": _gpu(32, 0.9, 125, (6, "NVLink 2"), "NVIDIA V100; microway.com on DGX-1"),
    "T4": _gpu(16, 0.32, 65, (1, "PCIe 3 x16"), "cloudgputracker.com, L4 and T4"),
    "A100 40 GB": _gpu(40, 1.555, 312, (12, "NVLink 3"), "NVIDIA, by glennklockwood.com"),
    "A100 80 GB": _gpu(80, 2.0, 312, (12, "NVLink 3")),
    "RTX 4090": _gpu(24, 1.008, 165, (1, "PCIe 4 x16"), "NVIDIA, by waredb.com"),
    "L4": _gpu(24, 0.3, 121, (1, "PCIe 4 x16"), "cloudgputracker.com, L4 and T4"),
    "L40S": _gpu(48, 0.86, 362, (1, "PCIe 4 x16")),
    "H100 SXM": _gpu(80, 3.35, 989, (18, "NVLink 4")),
    "H200 SXM": _gpu(141, 4.8, 989, (18, "NVLink 4")),
    "B200 SXM": _gpu(180, 8.0, 2250, (18, "NVLink 5")),
    "MI300X": _gpu(192, 5.3, 1300, (7, "Infinity Fabric, MI300X")),
    "TPU v5e": _gpu(16, 0.82, 197, (4, "TPU v5e, one axis")),
}


@dataclass(frozen=True)
class Edge:
    """`count` links between two nodes; `link` is a name in LINKS, or "" where none is recorded."""

    a: str
    b: str
    link: str
    count: int = 1


@dataclass(frozen=True)
class KnownMachine:
    """Named nodes ("GPU 0", "CPU 1", "NVSwitch", "PCIe switch 0", "network card 3") and edges."""

    gpu: str  # a name in GPUS, or "" where the source names none
    gpus: int
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    kind: Kind


def _machine(gpu: str, gpus: int, edges: list[Edge], where: str) -> KnownMachine:
    nodes = dict.fromkeys(end for edge in edges for end in (edge.a, edge.b))
    return KnownMachine(gpu, gpus, tuple(sorted(nodes)), tuple(edges), recorded(where, READ))


def _switched(nvlink: str, links: int, pcie: str, network: str) -> list[Edge]:
    """Eight GPUs on an NVSwitch, a network card of its own for each, four to a processor."""
    edges = [Edge(f"GPU {r}", "NVSwitch", nvlink, links) for r in range(8)]
    edges += [Edge(f"GPU {r}", f"CPU {r // 4}", pcie) for r in range(8)]
    edges += [Edge(f"network card {r}", "network", network) for r in range(8)]
    edges += [Edge(f"CPU {r // 4}", f"network card {r}", pcie) for r in range(8)]
    return [*edges, Edge("CPU 0", "CPU 1", "")]


def _dgx_1() -> list[Edge]:
    """The hybrid cube mesh: two squares with diagonals, joined corner by corner."""
    square = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    joined = {(0, 4): 2, (1, 5): 2, (2, 6): 1, (3, 7): 1}
    links = square | {(a + 4, b + 4): count for (a, b), count in square.items()} | joined
    edges = [Edge(f"GPU {a}", f"GPU {b}", "NVLink 2", count) for (a, b), count in links.items()]
    for switch in range(4):
        pcie = f"PCIe switch {switch}"
        ends = [f"GPU {2 * switch}", f"GPU {2 * switch + 1}", f"network card {switch}"]
        edges += [Edge(end, pcie, "PCIe 3 x16") for end in [*ends, f"CPU {switch // 2}"]]
        edges += [Edge(f"network card {switch}", "network", "InfiniBand EDR")]
    return [*edges, Edge("CPU 0", "CPU 1", "")]


def _pcie_server() -> list[Edge]:
    ends = [*(f"GPU {r}" for r in range(4)), "CPU 0"]
    return [Edge(end, "PCIe switch 0", "PCIe 3 x16") for end in ends]


def _tpu_host() -> list[Edge]:
    """4 × 2 chips, each linked to its neighbours; the edges lead on to other hosts."""
    at = {chip: divmod(chip, 2) for chip in range(8)}
    edges = [
        Edge(f"TPU {a}", f"TPU {b}", "TPU v5e, one axis")
        for a, b in combinations(range(8), 2)
        if abs(at[a][0] - at[b][0]) + abs(at[a][1] - at[b][1]) == 1
    ]
    return [*edges, *(Edge(f"TPU {chip}", "CPU 0", "TPU v5e to host") for chip in range(8))]


MACHINES = {
    "DGX-1 V100": _machine(
        "V100 32 GB", 8, _dgx_1(), "a DGX-1 (nvidia-smi topo -m, in microway.com's guide to it)"
    ),
    "DGX A100": _machine(
        "A100 80 GB", 8, _switched("NVLink 3", 12, "PCIe 4 x16", "InfiniBand HDR"),
        f"DGX A100, 6 NVSwitch chips as one, PCIe switches left out (NVIDIA's data sheet; {_BEKMAN_NETWORK})",
    ),
    "DGX H100": _machine(
        "H100 SXM", 8, _switched("NVLink 4", 18, "PCIe 5 x16", "InfiniBand NDR"),
        f"DGX H100, 4 NVSwitch chips as one, PCIe switches left out ({_BEKMAN_NETWORK})",
    ),
    "PCIe server, 4 GPUs": _machine("", 4, _pcie_server(), f"a 4-way GPU server ({_D2L})"),
    "TPU v5e host": _machine("TPU v5e", 8, _tpu_host(), f"{_TPU}: 4 × 2 chips, none wraps around"),
}  # fmt: skip
