"""The clock in numpy: programs as rounds of messages, for many thousand ranks.

In a round every rank sends at most one message and receives at most one; ranks do not wait for one
another between rounds, only for the messages of their own. With `time` as the vector of the ranks'
clocks, a round of messages from src[i] to dst[i] gives

    end = max(time[src], time[dst]) + duration,  time[src] = end,  time[dst] = end + work

One shortcut: no clock can advance in a round by more than the slowest rank of that round needs, so
a rank that is among the slowest in every round is the critical path, and its sum is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from labkit.collectives.programs.buffers import powers_of_two
from labkit.collectives.records import Array
from labkit.collectives.topology import Topology

__all__ = ["SCHEDULES", "Round", "Schedule", "duration", "share_links"]


class Round(NamedTuple):
    """Messages of a share of the buffer from `src[i]` to `dst[i]`, all at once, `times` times over.

    What is `added` costs the receiver local work.
    """

    src: Array
    dst: Array
    share: float
    added: bool = False
    times: int = 1


Schedule = Callable[..., Iterable[Round]]


def duration(rounds: list[Round], nbytes: float, topology: Topology, reduction: float) -> float:
    """Seconds until the last rank is done, on links on which no two messages meet."""
    lasts = [topology.durations(one.src, one.dst, one.share * nbytes) for one in rounds]
    factors = reduction * nbytes * topology.factors()
    work = [one.share * one.added * factors[one.dst] for one in rounds]
    time, bound = topology.starts(), float(topology.starts().max())
    for one, sent, added in zip(rounds, lasts, work, strict=True):
        needed = np.zeros(topology.ranks)  # by each rank for its message out and its message in
        needed[one.src] = sent
        needed[one.dst] = np.maximum(needed[one.dst], sent) + added
        time += needed * one.times
        bound += float(needed.max()) * one.times
    if time.max() >= bound * (1 - 1e-12):
        return float(time.max())
    time = topology.starts()
    for one, sent, added in zip(rounds, lasts, work, strict=True):
        for _ in range(one.times):
            end = np.maximum(time[one.src], time[one.dst]) + sent
            time[one.src] = end
            time[one.dst] = np.maximum(time[one.dst], end) + added
    return float(time.max())


def share_links(rounds: list[Round], topology: Topology) -> bool:
    """Whether messages of several ranks may meet on a link: then their order matters."""
    return topology.is_ring and any((topology.hops(r.src, r.dst) > 1).any() for r in rounds)


def _circle(ranks: int, added: bool) -> Iterator[Round]:
    """Every chunk one rank further, until it has been everywhere."""
    here = np.arange(ranks)
    yield Round(here, (here + 1) % ranks, 1 / ranks, added, ranks - 1)


def _ring(ranks: int) -> Iterator[Round]:
    yield from _circle(ranks, added=True)
    yield from _circle(ranks, added=False)


def _tree(ranks: int, root: int = 0, up: bool = False) -> Iterator[Round]:
    powers = powers_of_two(ranks)
    for have in reversed(powers) if up else powers:
        near = np.arange(min(have, ranks - have))
        parent, child = (near + root) % ranks, (near + have + root) % ranks
        yield Round(child, parent, 1.0, added=True) if up else Round(parent, child, 1.0)


def _tree_all_reduce(ranks: int) -> Iterator[Round]:
    yield from _tree(ranks, up=True)
    yield from _tree(ranks)


def _two_levels(ranks: int, per_node: int = 2) -> Iterator[Round]:
    per_node = min(per_node, ranks)
    core = ranks - ranks % per_node
    here, nodes, extra = np.arange(core), core // per_node, np.arange(ranks - core)
    first = here - here % per_node
    inside = Round(here, first + (here - first + 1) % per_node, 1 / per_node, True, per_node - 1)
    across = Round(here, (here + per_node) % core, 1 / per_node / nodes, True, nodes - 1)
    # The ranks of an incomplete node send their data in first and get the total at the end.
    yield Round(extra + core, extra, 1.0, added=True)
    yield from (inside, across, across._replace(added=False), inside._replace(added=False))
    yield Round(extra, extra + core, 1.0)


SCHEDULES: dict[str, Schedule] = {
    "broadcast": _tree,
    "reduce": partial(_tree, up=True),
    "all_gather": partial(_circle, added=False),
    "reduce_scatter": partial(_circle, added=True),
    "tree_all_reduce": _tree_all_reduce,
    "ring_all_reduce": _ring,
    "hierarchical_all_reduce": _two_levels,
}
