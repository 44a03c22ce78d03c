"""Links and measurements that others have published, each with its source and date.

>>> print(LINKS["NVLink 3, 8 A100"].link)
4.02 µs and 235 GB/s
>>> print(nccl_latency("ring", "Simple", ranks=8))
56.0 µs

For when you cannot measure yourself. They are recorded; a time computed from them is modelled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from labkit import known_hardware
from labkit.arguments import one_of, whole
from labkit.collectives.records import counted
from labkit.collectives.topology import Link
from labkit.kinds import Kind, Seconds, modelled, recorded
from labkit.known_hardware import READ


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


# Those of the registry whose latency is known: a time needs both.
LINKS = {
    name: KnownLink(Link(one.latency, one.bandwidth), one.about, one.kind)
    for name, one in known_hardware.LINKS.items()
    if one.latency is not None
}

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
