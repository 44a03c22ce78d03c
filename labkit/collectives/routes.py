"""The ways through each shape of topology: one by one as links, or for many messages at once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from labkit.collectives.topologies import Link, Slow, Topology

__all__ = ["crosses", "has_link", "links", "ways"]

Array = np.ndarray[Any, np.dtype[Any]]


def ways(t: Topology, src: int, dst: int) -> list[tuple[str, str, Link, float]]:
    """(start, end, link, share of its latency) of each hop."""
    if t.shape == "all":
        return [(str(src), str(dst), t.link, 1.0)]
    if t.shape == "ring":
        ahead, back = (dst - src) % t.ranks, (src - dst) % t.ranks
        stride = 1 if ahead <= back else -1
        stops = [str((src + stride * i) % t.ranks) for i in range(min(ahead, back) + 1)]
        return [(a, b, t.link, 1.0) for a, b in pairwise(stops)]
    if t.shape == "switch":
        return [(str(src), "switch", t.link, 0.5), ("switch", str(dst), t.link, 0.5)]
    node, other = src // t.per_node, dst // t.per_node
    if node == other:
        middle = f"node {node}"
        return [(str(src), middle, t.link, 0.5), (middle, str(dst), t.link, 0.5)]
    assert t.between is not None
    up, down = (f"card {r // t.per_node}.{t.card_of(r) % t.cards}" for r in (src, dst))
    return [(up, "network", t.between, 0.5), ("network", down, t.between, 0.5)]


def links(t: Topology, src: Array, dst: Array) -> tuple[Array, Array]:
    """The whole latency and the narrowest bandwidth of each way, were no link slow."""
    even = np.ones(np.shape(src))
    if t.shape == "ring":
        return t.hops(src, dst) * t.link.latency, even * t.link.bandwidth
    if t.shape != "nodes":
        return even * t.link.latency, even * t.link.bandwidth
    assert t.between is not None
    inside = src // t.per_node == dst // t.per_node
    return (
        np.where(inside, t.link.latency, t.between.latency),
        np.where(inside, t.link.bandwidth, t.between.bandwidth),
    )


def crosses(t: Topology, slow: Slow, src: Array, dst: Array) -> tuple[Array, Link]:
    """Which ways lead over a link, and what the link costs when it is not slow."""
    a, b = slow.start, slow.end
    if t.shape == "all":
        return (src == int(a)) & (dst == int(b)), t.link
    if t.shape == "ring":
        ahead, back = (dst - src) % t.ranks, (src - dst) % t.ranks
        if (int(a) + 1) % t.ranks == int(b):
            return (ahead <= back) & ((int(a) - src) % t.ranks < ahead), t.link
        return (ahead > back) & ((src - int(a)) % t.ranks < back), t.link
    half = replace(t.link, latency=t.link.latency / 2)
    if t.shape == "switch":
        return (src == int(a) if b == "switch" else dst == int(b)), half
    inside = src // t.per_node == dst // t.per_node
    if "network" not in (a, b):
        return inside & (src == int(a) if b.startswith("node") else dst == int(b)), half
    assert t.between is not None
    rank, card = (src, a) if b == "network" else (dst, b)
    node, place = card.removeprefix("card ").split(".")
    mine = t.card_of(rank) == int(node) * t.cards + int(place)
    return ~inside & mine, replace(t.between, latency=t.between.latency / 2)


def has_link(t: Topology, slow: Slow) -> bool:
    """Whether some way leads over it: only ways that begin or end at it have to be looked at."""
    wanted = (slow.start, slow.end)
    ends = [int(end) for end in wanted if end.isdigit()]
    if any(end >= t.ranks for end in ends):
        return False
    if not ends and t.shape == "nodes":
        node = next((end[5:].split(".")[0] for end in wanted if end.startswith("card ")), "")
        ends = [int(node) * t.per_node + i for i in range(t.per_node)] if node.isdigit() else []
    near = {0, t.ranks - 1, *((end + away) % t.ranks for end in ends for away in (-1, 0, 1))}
    pairs = [(a, b) for a in near for b in near if a != b]
    return any(wanted == way[:2] for a, b in pairs for way in ways(t, a, b))
