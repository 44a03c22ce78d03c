"""Known hardware as data: GPUs and links, each with its source and the day it was read.

>>> GPUS["A100 80 GB"].flops, GPUS["A100 80 GB"].link_bandwidth
(312000000000000.0, 300000000000.0)

All numbers are recorded; what is computed from them is modelled. Memory is in bytes as data sheets
print it (80 GB are 80e9), bandwidth in bytes per second and one direction, FLOP/s are dense and
16-bit with float32 sums: advertisements print twice as much, which holds for sparse matrices only.
"""

from dataclasses import dataclass
from typing import NamedTuple

from labkit.kinds import Kind, recorded

# The day on which a page without a date of its own was read.
READ = "read 2026-11"
_NETWORK = "Bekman, ml-engineering, network/README.md"
_D2L = "Dive into Deep Learning, parameterserver.md"
_NCCL = "NCCL src/graph/tuning.cc"
_TPU = "TPU v5e (scaling-book, tpus.md)"


@dataclass(frozen=True)
class KnownLink:
    """What one link carries in one direction; the latency where it was measured."""

    bandwidth: float
    about: str
    kind: Kind
    latency: float | None = None


def _link(
    gigabytes: float, about: str, where: str, microseconds: float | None = None, when: str = READ
) -> KnownLink:
    latency = None if microseconds is None else microseconds * 1e-6
    return KnownLink(gigabytes * 1e9, about, recorded(where, when), latency)


LINKS = {
    "NVLink 2": _link(25, "one link of 6 of a V100", f"NVLink 2 ({_NETWORK})"),
    "NVLink 3": _link(25, "one link of 12 of an A100", f"NVLink 3 ({_NETWORK})"),
    "NVLink 4": _link(25, "one link of 18 of an H100", f"NVLink 4 ({_NETWORK})"),
    "NVLink 5": _link(50, "one link of 18 of a B200", f"NVLink 5 ({_NETWORK})"),
    "NVLink 3, 8 A100": _link(
        234.89,
        "all-reduce of 16 GiB, 78 % of 300 GB/s; latency fitted as a ring's 14 steps, and a "
        "straight line is up to 36 % off between",
        f"8 A100 ({_NETWORK})", 56.3 / 14,
    ),
    "NVLink 4, 8 H200": _link(
        482.26,
        "all-reduce of 16 GiB with the switch adding up (NVLS), 107 % of 450 GB/s; latency "
        "fitted as a ring's 14 steps, up to 21 % off between",
        f"8 H200, NCCL 2.27.7 ({_NETWORK})", 41.4 / 14,
    ),
    "NVSwitch, HGX H100": _link(
        400, "validated input of a simulator, with ring collectives",
        "HGX H100 (astra-sim, HGX-H100-validated.yml)", 0.93625,
    ),
    "Infinity Fabric": _link(64, "one link of 7 of an MI300X (xGMI)", f"MI300X ({_NETWORK})"),
    "TPU v5e, one axis": _link(
        45, "about 1 µs a hop: below 45 kB a message is latency",
        "TPU v5e (scaling-book, TPU v5e)", 1,
    ),
    "TPU v5e to host": _link(15, "PCIe, for each chip", _TPU),
    "PCIe 3 x16": _link(
        16, "16 GB/s; the latency is NCCL's Simple ring step over PCIe",
        f"PCIe 3 ({_D2L}; {_NCCL})", 5.7, "2026-06",
    ),
    "PCIe 4 x16": _link(31, "16 lanes", f"PCIe 4 ({_NETWORK})"),
    "PCIe 5 x16": _link(63, "16 lanes; measured to an H200: 55 GB/s", f"PCIe 5 ({_NETWORK})"),
    "InfiniBand EDR": _link(12.5, "4 lanes, 100 Gbit/s", f"EDR ({_NETWORK})"),
    "InfiniBand HDR": _link(25, "4 lanes, 200 Gbit/s", f"HDR ({_NETWORK})"),
    "InfiniBand NDR": _link(50, "4 lanes, 400 Gbit/s", f"NDR ({_NETWORK})"),
    "Ethernet 25 Gbit/s": _link(
        3.125, "the cable's rate; the latency is NCCL's Simple step over a network",
        f"25 Gbit/s Ethernet ({_NCCL})", 14, "2026-06",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class KnownGpu:
    """One device: bytes, bytes per second of its memory, FLOP/s, and its links to other devices."""

    memory: float
    bandwidth: float
    flops: float
    links: int
    link: str
    kind: Kind

    @property
    def link_bandwidth(self) -> float:
        """Bytes per second to other devices over all links together, one direction."""
        return self.links * LINKS[self.link].bandwidth


def _gpu(
    gigabytes: float, gigabytes_per_s: float, teraflops: float, links: int, link: str,
    where: str = "Bekman, ml-engineering, compute/accelerator/README.md",
) -> KnownGpu:  # fmt: skip
    kind = recorded(f"a data sheet ({where})", READ)
    numbers = (gigabytes * 1e9, gigabytes_per_s * 1e9, teraflops * 1e12)
    return KnownGpu(*numbers, links, link, kind)


GPUS = {
    "V100 16 GB": _gpu(16, 900, 125, 6, "NVLink 2", "NVIDIA, Tesla V100 white paper"),
    "V100 32 GB": _gpu(32, 900, 125, 6, "NVLink 2", "NVIDIA, by microway.com on DGX-1"),
    "T4": _gpu(16, 320, 65, 1, "PCIe 3 x16", "cloudgputracker.com, L4 and T4"),
    "A100 40 GB": _gpu(40, 1555, 312, 12, "NVLink 3", "NVIDIA, by glennklockwood.com"),
    "A100 80 GB": _gpu(80, 2000, 312, 12, "NVLink 3"),
    "RTX 4090": _gpu(24, 1008, 165, 1, "PCIe 4 x16", "NVIDIA, by waredb.com"),
    "L4": _gpu(24, 300, 121, 1, "PCIe 4 x16", "cloudgputracker.com, L4 and T4"),
    "H100 SXM": _gpu(80, 3350, 989, 18, "NVLink 4"),
    "H200 SXM": _gpu(141, 4800, 989, 18, "NVLink 4"),
    "B200 SXM": _gpu(180, 8000, 2250, 18, "NVLink 5"),
    "MI300X": _gpu(192, 5300, 1300, 7, "Infinity Fabric"),
    "TPU v5e": _gpu(16, 820, 197, 4, "TPU v5e, one axis"),
}


class Protocol(NamedTuple):
    """What NCCL expects of a ring on one node over NVLink: seconds to begin, and for each step."""

    start: float
    step: float
    kind: Kind


_MODEL = recorded("NCCL's own cost model (src/graph/tuning.cc)", "2026-06")
NCCL_RING = {
    "LL": Protocol(6.6e-6, 0.6e-6, _MODEL),
    "LL128": Protocol(14.0e-6, 1.9e-6, _MODEL),
    "Simple": Protocol(8.4e-6, 3.4e-6, _MODEL),
}


class Measured(NamedTuple):
    """A published timing of a collective: bytes of each buffer, and seconds."""

    collective: str
    ranks: int
    nbytes: float
    seconds: float
    kind: Kind


_H100 = recorded("nodes of 8 H100 (Ultra-Scale Playbook, pp_comm_bandwidth)", READ)
_ETHERNET = recorded(
    "a cluster on Ethernet, 100,000 ints (mpitutorial.com, MPI broadcast and collective "
    "communication)", READ,
)  # fmt: skip
# Published as bus bandwidth in GB/s on 8 to 512 GPUs: 2(P-1)/P of the bytes over the seconds.
_BUS = {8: 436.0, 16: 361.7, 32: 160.1, 64: 99.6, 128: 84.7, 256: 64.9, 512: 32.9}
H100_NODES = tuple(
    Measured("all_reduce", gpus, 256e6, 2 * (gpus - 1) / gpus * 256e6 / (rate * 1e9), _H100)
    for gpus, rate in _BUS.items()
)
# A loop of sends, and MPI_Bcast.
BROADCASTS = tuple(
    Measured(collective, ranks, 400_000, seconds, _ETHERNET)
    for collective, times in (
        ("naive_broadcast", (0.0344, 0.1025, 0.2385, 0.5109)),
        ("broadcast", (0.0344, 0.0817, 0.1084, 0.1296)),
    )
    for ranks, seconds in zip((2, 4, 8, 16), times, strict=True)
)
