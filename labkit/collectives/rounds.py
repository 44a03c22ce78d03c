"""Programs as rounds, and how long rounds take, without looking at each message of a long ring.

In a round every rank sends at most one message and receives at most one; ranks do not wait for one
another between rounds, only for the messages of their own. With `time` as the vector of the ranks'
clocks, a round from rank s to rank d gives

    end = max(time[s], time[d]) + duration,  time[s] = end,  time[d] = max(time[d], end) + work

which is linear algebra with (max, +) in place of (+, ·). Two shortcuts follow. No clock can advance
in a round by more than the slowest rank of that round needs, so a rank that is among the slowest in
every round is the critical path, and its sum is the answer. And once a repeated round moves all
clocks by the same time, it will do so for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from labkit.collectives.events import Post, Transfer
from labkit.collectives.topologies import Array, Topology

__all__ = ["Round", "as_calls", "duration", "may_meet"]

# Rounding error of sums, relative to them.
NOISE = 1e-12


class Round(NamedTuple):
    """Messages from `src[i]` to `dst[i]`, all at once, `times` times over.

    `nbytes` is one size, or one for each; what is `added` costs the receiver local work.
    """

    src: Array
    dst: Array
    nbytes: Any
    added: bool = False
    times: int = 1


Rounds = Callable[[], Iterable[Round]]


def duration(rounds: Rounds, wires: Topology, reduction: float) -> float:
    """Seconds until the last rank is done, when no two messages meet on a link."""
    found = _critical(rounds, wires, reduction)
    return _stepped(rounds, wires, reduction) if found is None else found


def _prices(one: Round, wires: Topology, reduction: float) -> tuple[Array, Array | float]:
    """Seconds of each message, and of the local work after it."""
    lasts = wires.durations(one.src, one.dst, one.nbytes)
    if not one.added or not reduction:
        return lasts, 0.0
    work = np.broadcast_to(np.asarray(one.nbytes) * reduction, lasts.shape)
    return lasts, work * wires.factors()[one.dst] if wires.stragglers else work


def _critical(rounds: Rounds, wires: Topology, reduction: float) -> float | None:
    """The sum over one rank that is among the slowest in every round, if there is such a rank."""
    own = wires.begins()
    bound = float(own.max())
    sending = np.zeros(wires.ranks)
    for one in rounds():
        if not len(one.src):
            continue
        lasts, work = _prices(one, wires, reduction)
        sending[one.src] = lasts
        sends = sending[one.dst]
        both = np.maximum(sends, lasts) + work
        own[one.src] += lasts * one.times
        own[one.dst] += (both - sends) * one.times
        bound += float(both.max()) * one.times
        sending[one.src] = 0.0
    best = float(own.max())
    return best if best >= bound * (1 - NOISE) else None


def _stepped(rounds: Rounds, wires: Topology, reduction: float) -> float:
    """Every round after the other, for all ranks at once."""
    time = wires.begins()
    for one in rounds():
        if not len(one.src):
            continue
        lasts, work = _prices(one, wires, reduction)
        if one.times == 1:
            _step(time, one, lasts, work)
        else:
            _repeat(time, one, lasts, work)
    return float(time.max())


def _step(time: Array, one: Round, lasts: Array, work: Array | float) -> None:
    end = np.maximum(time[one.src], time[one.dst])
    end += lasts
    time[one.src] = end
    time[one.dst] = np.maximum(time[one.dst], end) + work


def _repeat(time: Array, one: Round, lasts: Array, work: Array | float) -> None:
    who = np.union1d(one.src, one.dst)
    for done in range(1, one.times + 1):
        before = time[who]
        _step(time, one, lasts, work)
        moved = time[who] - before
        least, most = float(moved.min()), float(moved.max())
        if most - least <= NOISE * float(time.max()):
            time[who] += most * (one.times - done)
            return


def may_meet(rounds: Rounds, wires: Topology) -> bool:
    """Whether messages of several ranks may want the same link: then their order matters."""
    if not wires.shares_links:
        return False
    if wires.shape == "ring":
        return any((wires.hops(one.src, one.dst) > 1).any() for one in rounds())
    # Who uses a network card: nobody yet, or one rank.
    users = {way: np.full(wires.ranks, -1) for way in ("out", "in")}
    for one in rounds():
        across = one.src // wires.per_node != one.dst // wires.per_node
        for way, ranks in (("out", one.src[across]), ("in", one.dst[across])):
            cards, user = wires.card_of(ranks), users[way]
            user[cards[user[cards] < 0]] = ranks[user[cards] < 0]
            if (user[cards] != ranks).any():
                return True
    return False


def as_calls(rounds: Rounds, ranks: int) -> tuple[list[Transfer], list[list[Post]]]:
    """The same messages one by one, as the calls that a program would make."""
    transfers: list[Transfer] = []
    calls: list[list[Post]] = [[] for _ in range(ranks)]
    number = 0
    for one in rounds():
        sizes = np.broadcast_to(np.asarray(one.nbytes, dtype=float), one.src.shape).tolist()
        pairs = list(zip(one.src.tolist(), one.dst.tolist(), sizes, strict=True))
        for _ in range(one.times):
            begun: dict[int, list[int]] = {}
            for src, dst, _size in pairs:
                for rank in (src, dst):
                    begun.setdefault(rank, [])
            numbers = {rank: number + i for i, rank in enumerate(begun)}
            for src, dst, size in pairs:
                for rank in (src, dst):
                    begun[rank].append(len(transfers))
                transfers.append(Transfer(src, dst, size, one.added, numbers[src], numbers[dst]))
            for rank, messages in begun.items():
                calls[rank].append(Post(numbers[rank], tuple(messages), tuple(messages), None))
            number += len(begun)
    return transfers, calls
