"""How ranks are connected: which links lie between two ranks, and what a message over them costs.

>>> four = ring(4, latency=1e-6, bandwidth=100e9)
>>> [f"{hop.start}→{hop.end}" for hop in four.route(0, 2)]
['0→1', '1→2']
>>> print(slow_link(four, 2, 3, factor=10))
ring of 4 ranks, 1.00 µs and 100 GB/s a link, link 2→3 10 times slower
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from labkit.arguments import number, whole
from labkit.collectives.records import Array, counted
from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.plain import stored

__all__ = [
    "Hop",
    "Link",
    "SlowLink",
    "Straggler",
    "Topology",
    "fully_connected",
    "nodes",
    "ring",
    "slow_link",
    "straggler",
    "switch",
]


@stored
@dataclass(frozen=True)
class Link:
    """One direction of a link: seconds before the first byte arrives, and bytes per second."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", number("latency", self.latency, at_least=0))
        if self.bandwidth != math.inf:
            object.__setattr__(self, "bandwidth", number("bandwidth", self.bandwidth, above=0))

    def __str__(self) -> str:
        return f"{seconds_text(self.latency)} and {bytes_text(self.bandwidth)}/s"


class Hop(NamedTuple):
    """One link of a route: the names of its two ends, and what it costs."""

    start: str
    end: str
    latency: float
    bandwidth: float


@stored
@dataclass(frozen=True)
class SlowLink:
    """A link over which everything takes `factor` times as long."""

    start: str
    end: str
    factor: float


@stored
@dataclass(frozen=True)
class Straggler:
    """A rank whose messages and local work take `factor` times as long, or that starts late."""

    rank: int
    factor: float
    late: float


@stored
@dataclass(frozen=True)
class Topology:
    """Ranks and the links between them; made by `ring`, `switch` and the others of this module."""

    shape: str
    ranks: int
    link: Link
    per_node: int
    cards: int
    between: Link | None
    slow: tuple[SlowLink, ...] = ()
    stragglers: tuple[Straggler, ...] = ()

    def __str__(self) -> str:
        nodes = counted(self.ranks // (self.per_node or 1), "node")
        cards = counted(self.cards, "network card")
        parts = [_SHAPES[self.shape].text.format(t=self, nodes=nodes, cards=cards)]
        parts += [f"link {s.start}→{s.end} {s.factor:g} times slower" for s in self.slow]
        parts += [
            f"rank {s.rank}"
            + (f" {s.factor:g} times slower" if s.factor != 1 else "")
            + (f" {seconds_text(s.late)} late" if s.late else "")
            for s in self.stragglers
        ]
        return ", ".join(parts)

    @property
    def shares_links(self) -> bool:
        """Whether messages of several ranks to several others can meet on a link."""
        return self.shape == "ring" or self.cards < self.per_node

    def route(self, src: int, dst: int) -> tuple[Hop, ...]:
        """The links from one rank to another, in order; none from a rank to itself."""
        if src == dst:
            return ()
        slower = {(s.start, s.end): s.factor for s in self.slow}
        link, stops = self._stops(src, dst)
        share = 1.0 if self.shape in ("all", "ring") else 0.5  # of the latency, for each of 2 hops
        hops = []
        for ends in pairwise(stops):
            factor = slower.get(ends, 1.0)
            hops.append(Hop(*ends, link.latency * share * factor, link.bandwidth / factor))
        return tuple(hops)

    def _stops(self, src: int, dst: int) -> tuple[Link, list[str]]:
        if self.shape == "all":
            return self.link, [str(src), str(dst)]
        if self.shape == "ring":
            ahead, back = (dst - src) % self.ranks, (src - dst) % self.ranks
            stride = 1 if ahead <= back else -1
            places = range(min(ahead, back) + 1)
            return self.link, [str((src + stride * place) % self.ranks) for place in places]
        if self.shape == "switch":
            return self.link, [str(src), "switch", str(dst)]
        node = src // self.per_node
        if node == dst // self.per_node or self.between is None:
            return self.link, [str(src), f"node {node}", str(dst)]
        return self.between, [self._card(src), "network", self._card(dst)]

    def _card(self, rank: int) -> str:
        """The network card of a rank; neighbours share one when cards are few."""
        node, place = divmod(rank, self.per_node)
        return f"card {node}.{place * self.cards // self.per_node}"

    def durations(self, src: Array, dst: Array, nbytes: Array | float) -> Array:
        """Seconds of each message alone on its route: all latencies, and the narrowest link."""
        latency = np.full(src.shape, self.link.latency)
        bandwidth = np.full(src.shape, self.link.bandwidth)
        if self.shape == "ring":
            latency *= self.hops(src, dst)
        elif self.between is not None:
            across = src // self.per_node != dst // self.per_node
            latency[across], bandwidth[across] = self.between.latency, self.between.bandwidth
        for i in np.flatnonzero(self._near_slow_links(src, dst)):
            route = self.route(int(src[i]), int(dst[i]))
            latency[i] = sum(hop.latency for hop in route)
            bandwidth[i] = min((hop.bandwidth for hop in route), default=math.inf)
        seconds = np.where(src == dst, 0.0, latency + nbytes / bandwidth)
        if self.stragglers:
            factors = self.factors()
            seconds = seconds * np.maximum(factors[src], factors[dst])
        return seconds

    def _near_slow_links(self, src: Array, dst: Array) -> Array:
        """Messages that may cross a slow link: their routes have to be followed."""
        touched = np.zeros(self.ranks, dtype=bool)
        for one in self.slow:
            touched[self._ranks_at(one)] = True
        near = touched[src] | touched[dst]
        if self.slow and self.shape == "ring":
            near |= self.hops(src, dst) > 1
        return near

    def _ranks_at(self, link: SlowLink) -> list[int]:
        """The ranks at the ends of a link, or those of the node whose network card is an end."""
        found: list[int] = []
        for end in (link.start, link.end):
            if end.isdigit():
                found.append(int(end))
            elif end.startswith("card ") and end[5:].partition(".")[0].isdigit():
                first = int(end[5:].partition(".")[0]) * self.per_node
                found += range(first, first + self.per_node)
        return [rank for rank in found if rank < self.ranks]

    def has_link(self, link: SlowLink) -> bool:
        """Whether some route leads over this link."""
        at = self._ranks_at(link)
        near = {
            0,
            self.ranks - 1,
            *((rank + away) % self.ranks for rank in at for away in (-1, 0, 1)),
        }
        routes = (self.route(a, b) for a in near for b in near)
        return any((link.start, link.end) == hop[:2] for route in routes for hop in route)

    def hops(self, src: Array, dst: Array) -> Array:
        """How many links the shorter way around a ring has."""
        shorter: Array = np.minimum((dst - src) % self.ranks, (src - dst) % self.ranks)
        return shorter

    def factors(self) -> Array:
        """How many times slower each rank is."""
        factors = np.ones(self.ranks)
        for one in self.stragglers:
            factors[one.rank] *= one.factor
        return factors

    def starts(self) -> Array:
        """When each rank starts."""
        starts = np.zeros(self.ranks)
        for one in self.stragglers:
            starts[one.rank] += one.late
        return starts


def fully_connected(ranks: int, latency: float, bandwidth: float) -> Topology:
    """A link of its own between any two ranks, in each direction."""
    return _simple("all", ranks, latency, bandwidth)


def ring(ranks: int, latency: float, bandwidth: float) -> Topology:
    """Links to the two neighbours only; other messages take the shorter way around."""
    return _simple("ring", ranks, latency, bandwidth)


def switch(ranks: int, latency: float, bandwidth: float) -> Topology:
    """One link from each rank to a switch and one back; `latency` is from rank to rank."""
    return _simple("switch", ranks, latency, bandwidth)


def _simple(shape: str, ranks: int, latency: float, bandwidth: float) -> Topology:
    return Topology(shape, whole("ranks", ranks, at_least=1), Link(latency, bandwidth), 0, 0, None)


def nodes(
    nodes: int, per_node: int, inside: Link, between: Link, cards: int | None = None
) -> Topology:
    """Machines with a switch `inside` and network cards `between` them.

    Ranks 0 … per_node-1 are in node 0, and so on. Every rank has a network card of its own, as in
    a GPU server; with `cards=1` the ranks of a node share one. Latencies are from rank to rank.

    >>> print(nodes(8, 8, inside=Link(1e-6, 600e9), between=Link(5e-6, 100e9)))
    8 nodes of 8 ranks, 1.00 µs and 600 GB/s inside, 5.00 µs and 100 GB/s between, \
8 network cards a node
    """
    nodes = whole("nodes", nodes, at_least=1)
    per_node = whole("per_node", per_node, at_least=1)
    cards = per_node if cards is None else whole("cards", cards, at_least=1, at_most=per_node)
    for name, link in (("inside", inside), ("between", between)):
        if not isinstance(link, Link):
            raise LabError(f"{name} must be a Link(latency, bandwidth), got {link!r}.")
    return Topology("nodes", nodes * per_node, inside, per_node, cards, between)


def slow_link(topology: Topology, src: int | str, dst: int | str, factor: float) -> Topology:
    """The same topology with one link, in one direction, `factor` times slower.

    Ends are rank numbers, or the names that `route` gives: "switch", "node 0", "card 0.1".
    """
    slow = SlowLink(str(src), str(dst), number("factor", factor, at_least=1))
    if not topology.has_link(slow):
        raise LabError(
            f"There is no link {src}→{dst} in this topology: {topology}. "
            f"{_SHAPES[topology.shape].advice}"
        )
    factors = {(one.start, one.end): one.factor for one in topology.slow}
    factors[slow.start, slow.end] = factors.get((slow.start, slow.end), 1.0) * slow.factor
    return replace(topology, slow=tuple(SlowLink(*ends, by) for ends, by in factors.items()))


def straggler(topology: Topology, rank: int, factor: float = 1.0, late: float = 0.0) -> Topology:
    """The same topology with one rank `factor` times slower, or that starts `late` seconds late."""
    one = Straggler(
        whole("rank", rank, at_most=topology.ranks - 1),
        number("factor", factor, at_least=1),
        number("late", late, at_least=0),
    )
    return replace(topology, stragglers=(*topology.stragglers, one))


class _Shape(NamedTuple):
    text: str
    advice: str


_SHAPES = {
    "all": _Shape("{t.ranks} ranks, {t.link} between any two", "Name two different ranks."),
    "ring": _Shape("ring of {t.ranks} ranks, {t.link} a link", "Name two neighbours."),
    "switch": _Shape(
        "{t.ranks} ranks on a switch, {t.link} from rank to rank",
        'Name a rank and "switch", such as (0, "switch") or ("switch", 0).',
    ),
    "nodes": _Shape(
        "{nodes} of {t.per_node} ranks, {t.link} inside, {t.between} between, {cards} a node",
        'Name a rank and its node, such as (0, "node 0") or ("node 0", 0), or a network card, '
        'such as ("card 0.1", "network") or ("network", "card 0.1").',
    ),
}  # fmt: skip
