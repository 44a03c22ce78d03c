"""The clock in numpy: programs as rounds of messages, for many thousand ranks.

In a round every rank sends at most one message and receives at most one; ranks do not wait for one
another between rounds, only for the messages of their own. With `time` as the vector of the ranks'
clocks, a round of messages from src[i] to dst[i] gives

    end = max(time[src], time[dst]) + duration,  time[src] = end,  time[dst] = end + work

Two shortcuts follow. No clock can advance in a round by more than the slowest rank of that round
needs, so a rank that is among the slowest in every round is the critical path, and its sum is the
answer. And once a repeated round moves all clocks by the same time, it will do so for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from labkit.collectives.programs.buffers import powers_of_two
from labkit.collectives.records import Array
from labkit.collectives.topology import Topology

__all__ = ["SCHEDULES", "Round", "Schedule", "duration", "may_meet"]

# Rounding error of sums, relative to them.
NOISE = 1e-12


class Round(NamedTuple):
    """Messages of `nbytes` from `src[i]` to `dst[i]`, all at once, `times` times over.

    What is `added` costs the receiver local work.
    """

    src: Array
    dst: Array
    nbytes: float
    added: bool = False
    times: int = 1


Schedule = Callable[..., Iterable[Round]]


def duration(schedule: Schedule, nbytes: float, topology: Topology, reduction: float) -> float:
    """Seconds until the last rank is done, on links on which no two messages meet."""
    rounds = [one for one in schedule(topology.ranks, nbytes) if len(one.src)]
    prices = [_prices(one, topology, reduction) for one in rounds]
    time, bound = topology.starts(), float(topology.starts().max())
    sending = np.zeros(topology.ranks)
    for one, (lasts, work) in zip(rounds, prices, strict=True):
        sending[one.src] = lasts
        sends = sending[one.dst]
        both = np.maximum(sends, lasts) + work
        time[one.src] += lasts * one.times
        time[one.dst] += (both - sends) * one.times
        bound += float(both.max()) * one.times
        sending[one.src] = 0.0
    longest = float(time.max())
    if longest >= bound * (1 - NOISE):  # this rank was among the slowest in every round
        return longest
    time = topology.starts()
    for one, (lasts, work) in zip(rounds, prices, strict=True):
        _repeat(time, one, lasts, work)
    return float(time.max())


def _prices(one: Round, topology: Topology, reduction: float) -> tuple[Array, Array]:
    """Seconds of each message, and of the local work after it."""
    work = one.nbytes * reduction * one.added * topology.factors()[one.dst]
    return topology.durations(one.src, one.dst, one.nbytes), work


def _repeat(time: Array, one: Round, lasts: Array, work: Array) -> None:
    ranks = np.union1d(one.src, one.dst)
    for done in range(1, one.times + 1):
        before = time[ranks]
        end = np.maximum(time[one.src], time[one.dst]) + lasts
        time[one.src] = end
        time[one.dst] = np.maximum(time[one.dst], end) + work
        moved = time[ranks] - before
        if float(np.ptp(moved)) <= NOISE * float(time.max()):
            time[ranks] += moved.max() * (one.times - done)
            return


def may_meet(schedule: Schedule, topology: Topology) -> bool:
    """Whether messages of several ranks may want the same link: then their order matters."""
    if topology.shape == "ring":
        rounds = schedule(topology.ranks, 1.0)
        return any((topology.hops(one.src, one.dst) > 1).any() for one in rounds)
    return topology.shares_links


def _circle(ranks: int, nbytes: float, added: bool) -> Iterator[Round]:
    """Every chunk one rank further, until it has been everywhere."""
    if ranks > 1:
        here = np.arange(ranks)
        yield Round(here, (here + 1) % ranks, nbytes / ranks, added, ranks - 1)


def _ring(ranks: int, nbytes: float) -> Iterator[Round]:
    yield from _circle(ranks, nbytes, added=True)
    yield from _circle(ranks, nbytes, added=False)


def _tree(ranks: int, nbytes: float, root: int = 0, up: bool = False) -> Iterator[Round]:
    powers = powers_of_two(ranks)
    for have in reversed(powers) if up else powers:
        near = np.arange(min(have, ranks - have))
        parent, child = (near + root) % ranks, (near + have + root) % ranks
        yield Round(child, parent, nbytes, added=True) if up else Round(parent, child, nbytes)


def _tree_all_reduce(ranks: int, nbytes: float) -> Iterator[Round]:
    yield from _tree(ranks, nbytes, up=True)
    yield from _tree(ranks, nbytes)


def _barrier(ranks: int, nbytes: float) -> Iterator[Round]:
    here = np.arange(ranks)
    for distance in powers_of_two(ranks):
        yield Round(here, (here + distance) % ranks, 0.0)


def _folded(ranks: int, core: int, nbytes: float, inner: Iterable[Round]) -> Iterator[Round]:
    """The ranks beyond the core hand their data in first and get the total at the end."""
    extra = np.arange(ranks - core)
    yield Round(extra + core, extra, nbytes, added=True)
    yield from inner
    yield Round(extra, extra + core, nbytes)


def _recursive_doubling(ranks: int, nbytes: float) -> Iterator[Round]:
    core = powers_of_two(ranks + 1)[-1]
    here = np.arange(core)
    inner = [Round(here, here ^ distance, nbytes, True) for distance in powers_of_two(core)]
    yield from _folded(ranks, core, nbytes, inner)


def _rabenseifner(ranks: int, nbytes: float) -> Iterator[Round]:
    core = powers_of_two(ranks + 1)[-1]
    here = np.arange(core)
    back = [Round(here, here ^ far, nbytes * far / core) for far in powers_of_two(core)]
    inner = [*(one._replace(added=True) for one in reversed(back)), *back]
    yield from _folded(ranks, core, nbytes, inner)


def _two_levels(ranks: int, nbytes: float, per_node: int = 2) -> Iterator[Round]:
    per_node = min(per_node, ranks)
    core = ranks - ranks % per_node
    here, nodes = np.arange(core), core // per_node
    first = here - here % per_node
    chunk = nbytes / per_node
    inside = Round(here, first + (here - first + 1) % per_node, chunk, True, per_node - 1)
    across = Round(here, (here + per_node) % core, chunk / nodes, True, nodes - 1)
    inner = [inside, across, across._replace(added=False), inside._replace(added=False)]
    yield from _folded(ranks, core, nbytes, [one for one in inner if one.times])


SCHEDULES: dict[str, Schedule] = {
    "broadcast": _tree,
    "reduce": partial(_tree, up=True),
    "all_gather": partial(_circle, added=False),
    "reduce_scatter": partial(_circle, added=True),
    "barrier": _barrier,
    "tree_all_reduce": _tree_all_reduce,
    "recursive_doubling_all_reduce": _recursive_doubling,
    "rabenseifner_all_reduce": _rabenseifner,
    "ring_all_reduce": _ring,
    "hierarchical_all_reduce": _two_levels,
}
