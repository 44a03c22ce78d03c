"""How ranks are wired: what lies between two ranks, and what a message over it costs.

>>> four = ring(4, latency=1e-6, bandwidth=100e9)
>>> [f"{hop.start}→{hop.end}" for hop in four.route(0, 2)]
['0→1', '1→2']
>>> print(slow_link(four, 2, 3, factor=10))
ring of 4 ranks, 1.00 µs and 100 GB/s a link, link 2→3 10 times slower
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives import routes
from labkit.collectives.quantities import is_number, is_whole
from labkit.kinds import LabError, bytes_text, seconds_text
from labkit.plain import stored

__all__ = [
    "Hop",
    "Link",
    "Slow",
    "Straggler",
    "Topology",
    "fully_connected",
    "nodes",
    "ring",
    "slow_link",
    "straggler",
    "switch",
]

Array = np.ndarray[Any, np.dtype[Any]]


@stored
@dataclass(frozen=True)
class Link:
    """A way in one direction: seconds before the first byte arrives, and bytes per second."""

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (is_number(self.latency) and 0 <= self.latency < math.inf):
            raise LabError(
                f"A latency of {self.latency!r} is none. Give seconds, such as latency=5e-6."
            )
        if not (is_number(self.bandwidth) and self.bandwidth > 0):
            raise LabError(
                f"A bandwidth of {self.bandwidth!r} is none. "
                "Give bytes per second, such as bandwidth=10e9."
            )
        object.__setattr__(self, "latency", float(self.latency))
        object.__setattr__(self, "bandwidth", float(self.bandwidth))

    def __str__(self) -> str:
        return f"{seconds_text(self.latency)} and {bytes_text(self.bandwidth)}/s"


class Hop(NamedTuple):
    """One link on a way: the names of its two ends, and what it costs."""

    start: str
    end: str
    latency: float
    bandwidth: float


@stored
@dataclass(frozen=True)
class Slow:
    """A link over which everything takes `factor` times as long."""

    start: str
    end: str
    factor: float


@stored
@dataclass(frozen=True)
class Straggler:
    """A rank whose messages and local work take `factor` times as long, or that begins late."""

    rank: int
    factor: float
    late: float


@stored
@dataclass(frozen=True)
class Topology:
    """Ranks and the links between them; made by `ring`, `switch` and the others of this file."""

    shape: str
    ranks: int
    link: Link
    per_node: int
    cards: int
    between: Link | None
    slow: tuple[Slow, ...] = ()
    stragglers: tuple[Straggler, ...] = ()

    def __str__(self) -> str:
        said = [_WORDS[self.shape](self)]
        said += [f"link {s.start}→{s.end} {s.factor:g} times slower" for s in self.slow]
        said += [
            f"rank {s.rank}"
            + (f" {s.factor:g} times slower" if s.factor != 1 else "")
            + (f" {seconds_text(s.late)} late" if s.late else "")
            for s in self.stragglers
        ]
        return ", ".join(said)

    @property
    def shares_links(self) -> bool:
        """Whether messages of several ranks to several others can meet on a link."""
        return self.shape == "ring" or self.cards < self.per_node

    def route(self, src: int, dst: int) -> tuple[Hop, ...]:
        """The links from one rank to another, in order; none from a rank to itself."""
        if src == dst:
            return ()
        slower = {(s.start, s.end): s.factor for s in self.slow}
        hops = []
        for start, end, link, share in routes.ways(self, src, dst):
            factor = slower.get((start, end), 1.0)
            hops.append(Hop(start, end, link.latency * share * factor, link.bandwidth / factor))
        return tuple(hops)

    def durations(self, src: Array, dst: Array, nbytes: Array | float) -> Array:
        """Seconds of each message alone on its way: all latencies, and the narrowest link."""
        latency, bandwidth = routes.links(self, src, dst)
        for one in self.slow:
            crosses, base = routes.crosses(self, one, src, dst)
            latency = latency + np.where(crosses, base.latency * (one.factor - 1), 0.0)
            narrow = np.minimum(bandwidth, base.bandwidth / one.factor)
            bandwidth = np.where(crosses, narrow, bandwidth)
        alone = np.where(src == dst, 0.0, latency + nbytes / bandwidth)
        if not self.stragglers:
            return alone
        factors = self.factors()
        return np.asarray(alone * np.maximum(factors[src], factors[dst]))

    def hops(self, src: Array, dst: Array) -> Array:
        """How many links the shorter way around a ring has."""
        ahead: Array = (dst - src) % self.ranks
        shorter: Array = np.minimum(ahead, (src - dst) % self.ranks)
        return shorter

    def card_of(self, rank: Any) -> Any:
        """A number for the network card of a rank; neighbours share one when cards are few."""
        node, place = rank // self.per_node, rank % self.per_node
        return node * self.cards + place * self.cards // self.per_node

    def factors(self) -> Array:
        """How many times slower than it should be each rank is."""
        factors = np.ones(self.ranks)
        for one in self.stragglers:
            factors[one.rank] *= one.factor
        return factors

    def begins(self) -> Array:
        """When each rank begins."""
        begins = np.zeros(self.ranks)
        for one in self.stragglers:
            begins[one.rank] += one.late
        return begins


def fully_connected(ranks: int, latency: float, bandwidth: float) -> Topology:
    """A link of its own between any two ranks, in each direction."""
    return Topology("all", _count("ranks", ranks), Link(latency, bandwidth), 0, 0, None)


def ring(ranks: int, latency: float, bandwidth: float) -> Topology:
    """Links to the two neighbours only; other messages take the shorter way around."""
    return Topology("ring", _count("ranks", ranks), Link(latency, bandwidth), 0, 0, None)


def switch(ranks: int, latency: float, bandwidth: float) -> Topology:
    """One link from each rank to a switch and one back; `latency` is from rank to rank."""
    return Topology("switch", _count("ranks", ranks), Link(latency, bandwidth), 0, 0, None)


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
    nodes, per_node = _count("nodes", nodes), _count("per_node", per_node)
    for name, link in (("inside", inside), ("between", between)):
        if not isinstance(link, Link):
            raise LabError(f"{name}={link!r} is no link. Give {name}=Link(latency, bandwidth).")
    cards = per_node if cards is None else _count("cards", cards)
    if cards > per_node:
        raise LabError(
            f"{cards} network cards for the {per_node} ranks of a node: the rest would idle. "
            f"Give cards between 1 and {per_node}."
        )
    return Topology("nodes", nodes * per_node, inside, per_node, cards, between)


def slow_link(topology: Topology, src: int | str, dst: int | str, factor: float) -> Topology:
    """The same wiring with one link, in one direction, `factor` times slower.

    Ends are rank numbers, or the names that `route` gives: "switch", "node 0", "card 0.1".
    """
    slow = Slow(str(src), str(dst), _factor(factor))
    if not routes.has_link(topology, slow):
        raise LabError(f"There is no link {src}→{dst} here: {topology}. {_ADVICE[topology.shape]}")
    already = {(one.start, one.end): one.factor for one in topology.slow}
    already[slow.start, slow.end] = already.get((slow.start, slow.end), 1.0) * slow.factor
    return replace(topology, slow=tuple(Slow(*ends, by) for ends, by in already.items()))


def straggler(topology: Topology, rank: int, factor: float = 1.0, late: float = 0.0) -> Topology:
    """The same wiring with one rank `factor` times slower, or beginning `late` seconds late."""
    if not is_whole(rank) or not 0 <= rank < topology.ranks:
        raise LabError(
            f"There is no rank {rank!r} among {topology.ranks}. "
            f"Give a rank between 0 and {topology.ranks - 1}."
        )
    if not is_number(late) or not 0 <= late < math.inf:
        raise LabError(f"A rank cannot begin {late!r} seconds late. Give late=0 or more.")
    one = Straggler(int(rank), _factor(factor), float(late))
    return replace(topology, stragglers=(*topology.stragglers, one))


def _count(name: str, value: int) -> int:
    if not is_whole(value) or value < 1:
        raise LabError(f"{name}={value!r} is no number of things. Give {name}=1 or more.")
    return int(value)


def _factor(factor: float) -> float:
    if not is_number(factor) or not 1 <= factor < math.inf:
        raise LabError(f"{factor!r} times slower is not slower. Give a factor of 1 or more.")
    return float(factor)


_WORDS = {
    "all": lambda t: f"{t.ranks} ranks, {t.link} between any two",
    "ring": lambda t: f"ring of {t.ranks} ranks, {t.link} a link",
    "switch": lambda t: f"{t.ranks} ranks on a switch, {t.link} from rank to rank",
    "nodes": lambda t: (
        f"{t.ranks // t.per_node} nodes of {t.per_node} ranks, {t.link} inside, "
        f"{t.between} between, {t.cards} network card{'' if t.cards == 1 else 's'} a node"
    ),
}
_ADVICE = {
    "all": "Name two different ranks.",
    "ring": "Name two neighbours.",
    "switch": 'Name a rank and "switch", such as (0, "switch") or ("switch", 0).',
    "nodes": (
        'Name a rank and its node, such as (0, "node 0") or ("node 0", 0), or a network card, '
        'such as ("card 0.1", "network") or ("network", "card 0.1").'
    ),
}
