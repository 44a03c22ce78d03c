"""How ranks are connected: the links between them, and what a message over them costs.

>>> four = ring(4, latency=1e-6, bandwidth=100e9)
>>> four.route(0, 2)
[(0, 1), (1, 2)]
>>> print(slow_link(four, 2, 3, factor=10))
ring of 4 ranks, 1.00 µs and 100 GB/s a link, link 2→3 10 times slower
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from labkit.arguments import bytes_per_second, number, numbers, whole
from labkit.collectives.records import Array
from labkit.kinds import LabError, bytes_text, counted, seconds_text

MOST_NAMED = 3  # stragglers that are named one by one


@dataclass(frozen=True)
class Link:
    """One direction of a link: seconds before the first byte arrives, and bytes per second.

    >>> Link(1e-3, "100 Mbit/s").bandwidth
    12500000.0
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        number("latency", self.latency, at_least=0)
        bandwidth = bytes_per_second("bandwidth", self.bandwidth, infinite=True)
        object.__setattr__(self, "bandwidth", bandwidth)

    def __str__(self) -> str:
        return f"{seconds_text(self.latency)} and {bytes_text(self.bandwidth)}/s"


class SlowLink(NamedTuple):
    """A link over which everything takes `factor` times as long."""

    src: int
    dst: int
    factor: float


class Straggler(NamedTuple):
    """A rank whose messages take `factor` times as long, or that starts late."""

    rank: int
    factor: float
    late: float


@dataclass(frozen=True)
class Topology:
    """Ranks and the links between them.

    In a ring there are links between neighbours only. Otherwise there is one between any two
    ranks: `between` for those in different nodes of `per_node` ranks, `link` for all others.
    """

    ranks: int
    link: Link
    is_ring: bool = False
    per_node: int = 0
    between: Link | None = None
    slow: tuple[SlowLink, ...] = ()
    stragglers: tuple[Straggler, ...] = ()

    def __str__(self) -> str:
        if self.is_ring:
            parts = [f"ring of {counted(self.ranks, 'rank')}, {self.link} a link"]
        elif self.between is not None:
            count = counted(self.ranks // self.per_node, "node")
            parts = [
                f"{count} of {counted(self.per_node, 'rank')}, {self.link} inside, "
                f"{self.between} between"
            ]
        else:
            link = f"α = {seconds_text(self.link.latency)}, {bytes_text(self.link.bandwidth)}/s"
            parts = [f"{link} between any two ranks"]
        parts += [f"link {s.src}→{s.dst} {s.factor:g} times slower" for s in self.slow]
        for rank, factor, late in self.stragglers[:MOST_NAMED]:
            parts += [f"rank {rank} {factor:g} times slower"] if factor != 1 else []
            parts += [f"rank {rank} {seconds_text(late)} late"] if late else []
        more = len(self.stragglers) - MOST_NAMED
        parts += [f"and {counted(more, 'more straggler')}"] if more > 0 else []
        return ", ".join(parts)

    def route(self, src: int, dst: int) -> list[tuple[int, int]]:
        """Returns the links from one rank to another; in a ring, the shorter way around."""
        if not self.is_ring:
            return [(src, dst)] if src != dst else []
        ahead, back = (dst - src) % self.ranks, (src - dst) % self.ranks
        way = 1 if ahead <= back else -1
        stops = [(src + way * hop) % self.ranks for hop in range(min(ahead, back) + 1)]
        return list(pairwise(stops))

    def durations(self, src: Array, dst: Array, nbytes: Array | float) -> Array:
        """Returns the seconds of each message alone on its route, all arrays [message].

        All latencies count, and the bandwidth of the narrowest link.
        """
        slower = {(slow.src, slow.dst): slow.factor for slow in self.slow}
        pairs = zip(src.tolist(), dst.tolist(), strict=True)
        routes = [[slower.get(link, 1.0) for link in self.route(*pair)] for pair in pairs]
        latency = np.full(src.shape, self.link.latency)
        bandwidth = np.full(src.shape, self.link.bandwidth)
        if self.between is not None:
            across = src // self.per_node != dst // self.per_node
            latency[across], bandwidth[across] = self.between.latency, self.between.bandwidth
        slowest = np.array([max(route, default=0.0) for route in routes])
        seconds: Array = latency * [sum(route) for route in routes] + nbytes * slowest / bandwidth
        factors = self.factors()
        return seconds * np.maximum(factors[src], factors[dst])

    def factors(self) -> Array:
        """Returns how many times slower each rank is."""
        factors = np.ones(self.ranks)
        for one in self.stragglers:
            factors[one.rank] *= one.factor
        return factors

    def starts(self) -> Array:
        """Returns when each rank starts, in seconds."""
        starts = np.zeros(self.ranks)
        for one in self.stragglers:
            starts[one.rank] += one.late
        return starts


def fully_connected(ranks: int, latency: float, bandwidth: float | str) -> Topology:
    """Returns a topology with a link between any two ranks, in each direction."""
    link = Link(latency, bytes_per_second("bandwidth", bandwidth, infinite=True))
    return Topology(whole("ranks", ranks, at_least=1), link)


def ring(ranks: int, latency: float, bandwidth: float | str) -> Topology:
    """Returns links to the two neighbours only. Other messages take the shorter way around."""
    return replace(fully_connected(ranks, latency, bandwidth), is_ring=True)


def nodes(nodes: int, per_node: int, inside: Link, between: Link) -> Topology:
    """Returns machines with fast links `inside`, and a network card for each rank `between` them.

    >>> print(nodes(8, 8, inside=Link(1e-6, 600e9), between=Link(5e-6, 100e9)))
    8 nodes of 8 ranks, 1.00 µs and 600 GB/s inside, 5.00 µs and 100 GB/s between
    """
    for name, link in (("inside", inside), ("between", between)):
        if not isinstance(link, Link):
            raise LabError(f"{name} must be a Link(latency, bandwidth), got {link!r}.")
    per_node = whole("per_node", per_node, at_least=1)
    ranks = whole("nodes", nodes, at_least=1) * per_node
    return Topology(ranks, inside, per_node=per_node, between=between)


def slow_link(topology: Topology, src: int, dst: int, factor: float) -> Topology:
    """Returns the topology with one link, in one direction, `factor` times slower."""
    for name, rank in (("src", src), ("dst", dst)):
        whole(name, rank, at_most=topology.ranks - 1)
    if topology.route(src, dst) != [(src, dst)]:
        advice = "Name two neighbours." if topology.is_ring else "Name two different ranks."
        raise LabError(f"There is no link {src}→{dst} in this topology: {topology}. {advice}")
    factors = {(one.src, one.dst): one.factor for one in topology.slow}
    before = factors.get((src, dst), 1.0)
    factors[src, dst] = before * number("factor", factor, at_least=1)
    return replace(topology, slow=tuple(SlowLink(*ends, by) for ends, by in factors.items()))


def straggler(topology: Topology, rank: int, factor: float = 1.0, late: float = 0.0) -> Topology:
    """Returns the topology with a rank `factor` times slower, or that starts so late."""
    one = Straggler(
        whole("rank", rank, at_most=topology.ranks - 1),
        number("factor", factor, at_least=1),
        number("late", late, at_least=0),
    )
    return replace(topology, stragglers=(*topology.stragglers, one))


def late_starts(topology: Topology, seconds: Sequence[float]) -> Topology:
    """Returns the topology with each rank starting so many seconds late, after computing its step.

    >>> print(late_starts(ring(3, latency=1e-6, bandwidth=100e9), [0.0, 0.25, 0.125]))
    ring of 3 ranks, 1.00 µs and 100 GB/s a link, rank 1 250 ms late, rank 2 125 ms late
    """
    late = numbers("seconds", seconds, at_least=0)
    if len(late) != topology.ranks:
        raise LabError(f"seconds must be one for each of {topology.ranks} ranks: {len(late)}.")
    added = tuple(Straggler(rank, 1.0, one) for rank, one in enumerate(late) if one)
    return replace(topology, stragglers=(*topology.stragglers, *added))
