"""Links and measurements that others have published, each with its source and date.

>>> print(LINKS["NVLink 3, 8 A100"].link)
4.02 µs and 235 GB/s
>>> print(nccl_latency("ring", "Simple", ranks=8))
56.0 µs

For when you cannot measure yourself. They are recorded; a time computed from them is modelled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from labkit.arguments import one_of, whole
from labkit.collectives.clock import Seconds
from labkit.collectives.records import counted
from labkit.collectives.topology import Link
from labkit.kinds import Kind, modelled, recorded

# The day on which a page without a date of its own was read.
READ = "read 2026-11"
_D2L = "Dive into Deep Learning, parameterserver.md"
_ML_ENGINEERING = "Bekman, ml-engineering, network/README.md"


class KnownLink(NamedTuple):
    """What one rank can send in one direction, and where that is from."""

    link: Link
    about: str
    kind: Kind


class Measured(NamedTuple):
    """A published timing of a collective: bytes of each buffer, and seconds."""

    what: str
    collective: str
    ranks: int
    nbytes: float
    seconds: float
    kind: Kind


LINKS = {
    "NVLink 3, 8 A100": KnownLink(
        Link(56.3e-6 / 14, 234.89e9),
        "all-reduce of 16 GiB, 78 % of 300 GB/s; latency fitted as a ring's 14 steps, and a "
        "straight line is up to 36 % off between",
        recorded(f"8 A100 ({_ML_ENGINEERING})", READ),
    ),
    "NVLink 4, 8 H200": KnownLink(
        Link(41.4e-6 / 14, 482.26e9),
        "all-reduce of 16 GiB with the switch adding up (NVLS), 107 % of 450 GB/s; latency "
        "fitted as a ring's 14 steps, up to 21 % off between",
        recorded(f"8 H200, NCCL 2.27.7 ({_ML_ENGINEERING})", READ),
    ),
    "NVSwitch, HGX H100": KnownLink(
        Link(936.25e-9, 400e9),
        "validated input of a simulator, with ring collectives",
        recorded("HGX H100 (astra-sim, HGX-H100-validated.yml)", READ),
    ),
    "TPU v5e, one axis": KnownLink(
        Link(1e-6, 45e9),
        "about 1 µs a hop: below 45 kB a message is latency",
        recorded("TPU v5e (scaling-book, TPU v5e)", READ),
    ),
    "PCIe 3 x16": KnownLink(
        Link(5.7e-6, 16e9),
        "16 GB/s; the latency is NCCL's Simple ring step over PCIe",
        recorded(f"PCIe 3 ({_D2L}; NCCL src/graph/tuning.cc)", "2026-06"),
    ),
    "Ethernet 25 Gbit/s": KnownLink(
        Link(14e-6, 3.125e9),
        "the cable's rate; the latency is NCCL's Simple step over a network",
        recorded("25 Gbit/s Ethernet (NCCL src/graph/tuning.cc)", "2026-06"),
    ),
}  # fmt: skip

# For a ring on one node over NVLink: microseconds before anything moves, and for each step.
_NCCL = {"LL": (6.6, 0.6), "LL128": (14.0, 1.9), "Simple": (8.4, 3.4)}


def nccl_latency(algorithm: str, protocol: str, ranks: int) -> Seconds:
    """What NCCL takes a ring all-reduce to cost on one node before the first byte counts.

    >>> [str(nccl_latency("ring", name, ranks=8)) for name in ("LL", "LL128", "Simple")]
    ['15.0 µs', '40.6 µs', '56.0 µs']
    """
    one_of("algorithm", algorithm, ["ring"])  # the tree's needs a number of nodes
    base, step = _NCCL[one_of("protocol", protocol, _NCCL)]
    steps = 2 * (whole("ranks", ranks, at_least=1) - 1)
    source = f"NCCL's own cost model (src/graph/tuning.cc, 2026-06), {steps} steps over NVLink"
    return Seconds(1e-6 * (base + steps * step), modelled(source))


_H100 = recorded("nodes of 8 H100 (Ultra-Scale Playbook, pp_comm_bandwidth)", READ)
_ETHERNET = recorded(
    "a cluster on Ethernet, 100,000 ints (mpitutorial.com, MPI broadcast and collective "
    "communication)", READ,
)  # fmt: skip

MEASURED: tuple[Measured, ...] = (
    *(
        # Published as bus bandwidth in GB/s, 2(P-1)/P of the bytes over the seconds.
        Measured(
            f"{counted(nodes, 'node')} of 8 H100", "all_reduce", 8 * nodes, 256e6,
            2 * (8 * nodes - 1) / (8 * nodes) * 256e6 / (rate * 1e9), _H100,
        )
        for nodes, rate in (
            (1, 436.0), (2, 361.7), (4, 160.1), (8, 99.6), (16, 84.7), (32, 64.9), (64, 32.9)
        )
    ),
    *(
        Measured(what, collective, ranks, 400_000, seconds, _ETHERNET)
        for what, collective, times in (
            ("a loop of sends", "naive_broadcast", (0.0344, 0.1025, 0.2385, 0.5109)),
            ("MPI_Bcast", "broadcast", (0.0344, 0.0817, 0.1084, 0.1296)),
        )
        for ranks, seconds in zip((2, 4, 8, 16), times, strict=True)
    ),
)  # fmt: skip


class _Table:
    """The known links with their sources, for a notebook to show."""

    def __repr__(self) -> str:
        lines = [f"{name}: {one.link}; {one.about}; {one.kind}" for name, one in LINKS.items()]
        return "\n".join(lines)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        rows = [
            (name, *str(one.link).split(" and "), one.about, str(one.kind))
            for name, one in LINKS.items()
        ]
        head = ("link", "latency", "bandwidth", "what it is", "kind")
        shown = table(head, rows, "Known links, one direction", prose=True)
        return {"text/plain": repr(self), "text/html": shown}


def table() -> Any:
    """The known links with their sources, for a notebook to show."""
    return _Table()
