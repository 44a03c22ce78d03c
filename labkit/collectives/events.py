"""The clock of a modelled run: every rank's calls in order, every message when its turn comes."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from labkit.collectives.quantities import Seconds
from labkit.collectives.topologies import Topology
from labkit.kinds import Kind, seconds_text
from labkit.plain import stored

__all__ = ["Post", "Span", "Timed", "Transfer", "play"]


@stored
@dataclass(frozen=True)
class Span:
    """A stretch of local work of one rank."""

    rank: int
    start: float
    end: float


@stored
@dataclass(frozen=True)
class Timed:
    """When everything in a trace would happen, in seconds from the start.

    `starts` and `ends` are of the messages, in the order of `trace.messages`; `finished` says when
    each rank came to its end.
    """

    seconds: Seconds
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    work: tuple[Span, ...]
    finished: tuple[float, ...]
    kind: Kind

    def __repr__(self) -> str:
        return f"Timed({seconds_text(self.seconds)}, {len(self.starts)} messages, {self.kind})"


class Transfer(NamedTuple):
    """A message as far as its price goes. What is `added` costs local work when it is there."""

    source: int
    dest: int
    nbytes: float
    added: bool
    sent_by: int
    received_by: int


class Post(NamedTuple):
    """A call as far as its price goes."""

    number: int
    begins: tuple[int, ...]
    awaits: tuple[int, ...]
    barrier: int | None


def play(
    transfers: list[Transfer],
    calls: list[list[Post]],
    wires: Topology,
    reduction: float,
    kind: Kind,
) -> Timed:
    """Every rank's calls in their order, every message when its turn comes."""
    clock = _Play(transfers, calls, wires, reduction)
    clock.run()
    return Timed(
        Seconds(max(clock.now, default=0.0), kind),
        tuple(clock.starts),
        tuple(clock.ends),
        tuple(sorted(clock.work, key=lambda span: (span.start, span.rank))),
        tuple(clock.now),
        kind,
    )


# What can happen at a moment, in the order in which it must be looked at.
ENDED, READY, FREED = 0, 1, 2


class _Play:
    """The state of one pass: ports, links, clocks, and the messages that wait."""

    def __init__(
        self, transfers: list[Transfer], calls: list[list[Post]], wires: Topology, reduction: float
    ) -> None:
        self.transfers, self.calls, self.reduction = transfers, calls, reduction
        self.factors = wires.factors().tolist()
        self.now: list[float] = wires.begins().tolist()
        self.next = [0] * len(calls)
        self.entered = [False] * len(calls)
        self.starts = [0.0] * len(transfers)
        self.ends = [0.0] * len(transfers)
        self.done = [False] * len(transfers)
        self.open = [1 if m.sent_by == m.received_by else 2 for m in transfers]
        self.posted = [0.0] * len(transfers)
        self.work: list[Span] = []
        self.added: set[int] = set()
        self.at_barrier: dict[int, list[int]] = {}
        self.expected: dict[int, int] = {}
        for of_rank in calls:
            for call in of_rank:
                if call.barrier is not None:
                    self.expected[call.barrier] = self.expected.get(call.barrier, 0) + 1
        self.events: list[tuple[float, int, int]] = []
        self.free: dict[object, float] = {}
        self.queues: dict[object, list[int]] = {}
        ends = np.array([(m.source, m.dest) for m in transfers], dtype=np.int64).reshape(-1, 2)
        sizes = np.array([m.nbytes for m in transfers], dtype=np.float64)
        self.lasts: list[float] = wires.durations(ends[:, 0], ends[:, 1], sizes).tolist()
        self.holds = [self._resources(wires, i) for i in range(len(transfers))]

    def _resources(self, wires: Topology, index: int) -> list[tuple[object, float]]:
        """What a message needs to itself, and for how long: two ports, and links that are shared.

        A link that only one rank sends over, or only one receives from, is no scarcer than
        that rank's port.
        """
        message, lasts = self.transfers[index], self.lasts[index]
        needs: list[tuple[object, float]] = [
            (("out", message.source), lasts),
            (("in", message.dest), lasts),
        ]
        if wires.shares_links:
            needs += [
                ((hop.start, hop.end), message.nbytes / hop.bandwidth)
                for hop in wires.route(message.source, message.dest)
            ]
        return needs

    def run(self) -> None:
        for rank in range(len(self.calls)):
            self._advance(rank)
        while self.events:
            moment = self.events[0][0]
            waiting = self._settle(moment)
            # First ready, first served; of those that are ready together, the lowest sender's,
            # and of one sender's that which it posted first.
            for index in sorted(waiting, key=self._turn):
                self._start(index, moment)

    def _turn(self, index: int) -> tuple[float, int, int]:
        message = self.transfers[index]
        return self.posted[index], message.source, message.sent_by

    def _settle(self, moment: float) -> list[int]:
        """All that ends or becomes ready now; gives the messages that may start."""
        waiting: list[int] = []
        while self.events and self.events[0][0] == moment:
            _, what, index = heappop(self.events)
            if what == READY:
                waiting.append(index)
                continue
            if what == ENDED and not self.done[index]:
                self.done[index] = True
                message = self.transfers[index]
                for rank in {message.source, message.dest}:
                    self._advance(rank)
            for resource, _ in self.holds[index]:
                if self.free.get(resource, 0.0) <= moment:
                    waiting += self.queues.pop(resource, ())
        return waiting

    def _start(self, index: int, moment: float) -> None:
        for resource, _ in self.holds[index]:
            if self.free.get(resource, -1.0) > moment:
                self.queues.setdefault(resource, []).append(index)
                return
        end = moment + self.lasts[index]
        self.starts[index], self.ends[index] = moment, end
        heappush(self.events, (end, ENDED, index))
        for resource, held in self.holds[index]:
            self.free[resource] = moment + held
            if moment + held != end:
                heappush(self.events, (moment + held, FREED, index))

    def _advance(self, rank: int) -> None:
        """As far as this rank gets with what has ended."""
        calls = self.calls[rank]
        while self.next[rank] < len(calls):
            call = calls[self.next[rank]]
            if not self.entered[rank]:
                self.entered[rank] = True
                self._enter(rank, call)
            if not all(self.done[m] for m in call.awaits):
                return
            if call.barrier is not None and not self._passes(call.barrier):
                return
            self._return(rank, call)
            self.next[rank] += 1
            self.entered[rank] = False

    def _enter(self, rank: int, call: Post) -> None:
        for index in call.begins:
            self.posted[index] = max(self.posted[index], self.now[rank])
            self.open[index] -= 1
            if not self.open[index]:
                heappush(self.events, (self.posted[index], READY, index))
        if call.barrier is not None:
            self.at_barrier.setdefault(call.barrier, []).append(rank)
            if self._passes(call.barrier):
                together = self.at_barrier[call.barrier]
                latest = max(self.now[other] for other in together)
                for other in together:
                    self.now[other] = latest
                for other in together:
                    if other != rank:
                        self._advance(other)

    def _passes(self, barrier: int) -> bool:
        return len(self.at_barrier[barrier]) == self.expected[barrier]

    def _return(self, rank: int, call: Post) -> None:
        added = 0.0
        for index in call.awaits:
            message = self.transfers[index]
            self.now[rank] = max(self.now[rank], self.ends[index])
            if message.added and message.dest == rank and index not in self.added:
                self.added.add(index)
                added += message.nbytes
        if added and self.reduction:
            begin = self.now[rank]
            self.now[rank] += added * self.reduction * self.factors[rank]
            self.work.append(Span(rank, begin, self.now[rank]))
