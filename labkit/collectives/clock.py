"""When each message of a run would start and end on given links: event by event, α-β-γ.

>>> from labkit.collectives import programs, run
>>> timed(run(programs.ring_all_reduce, ranks=4), latency=5e-6, bandwidth=10e9).seconds
30.0 µs, modelled: α = 5.00 µs, 10.0 GB/s between any two ranks
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Self

import numpy as np

from labkit.arguments import number
from labkit.collectives.records import Call, Record
from labkit.collectives.topology import Topology, fully_connected
from labkit.kinds import Kind, LabError, bytes_text, modelled, seconds_text
from labkit.plain import stored

__all__ = ["Bytes", "Seconds", "Span", "Timed", "model_text", "play", "timed", "topology_of"]

# Links that all messages together may cross where links are shared: under half a minute.
MOST_HOPS = 600_000


class _Quantity(float):
    kind: Kind

    def __new__(cls, value: float, kind: Kind) -> Self:
        made = super().__new__(cls, value)
        made.kind = kind
        return made

    def __getnewargs__(self) -> tuple[float, Kind]:  # type: ignore[override]
        return float(self), self.kind

    def __repr__(self) -> str:
        return f"{self}, {self.kind}"


class Seconds(_Quantity):
    """A modelled time with its formula; it computes like a float.

    >>> Seconds(0.00126, modelled("a ring"))
    1.26 ms, modelled: a ring
    >>> Seconds(0.00126, modelled("a ring")) / 2
    0.00063
    """

    unit = "s"

    def __str__(self) -> str:
        return seconds_text(self)


class Bytes(_Quantity):
    """A modelled size with its formula; it computes like a float."""

    def __str__(self) -> str:
        return bytes_text(self) if math.isfinite(self) else "no size"


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
    """When everything in a run would happen, in seconds from the start.

    `starts` and `ends` are of the messages, in the order of `record.messages`; `finished` is when
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


def timed(
    record: Record,
    latency: float | None = None,
    bandwidth: float | None = None,
    reduction: float = 0.0,
    topology: Topology | None = None,
) -> Timed:
    """The run on links of `latency` seconds and `bandwidth` bytes per second, or on a topology.

    A message starts when both ends have posted it and the sender's sending port, the receiver's
    receiving port and every link on its route are free; first come, first served. It lasts the
    latencies of its links plus its bytes over the narrowest; a link is taken for its own share of
    that. Bytes that came into scratch memory, and must be added in, cost `reduction` seconds each
    when the call that waited for them returns. Nothing else costs time: not a copy, and not the
    division at the end of a mean.
    """
    topology = topology_of(record.ranks, latency, bandwidth, topology)
    return play(record, topology, reduction, modelled(model_text(topology, reduction)))


def topology_of(
    ranks: int, latency: float | None, bandwidth: float | None, topology: Topology | None
) -> Topology:
    """The links that were asked for, in one of the two ways."""
    if topology is None:
        if latency is None or bandwidth is None:
            raise LabError(
                "A cost needs links. Give latency= in seconds and bandwidth= in bytes per second, "
                "or a topology=."
            )
        return fully_connected(ranks, latency, bandwidth)
    if latency is not None or bandwidth is not None:
        raise LabError(
            "A topology has latencies and bandwidths of its own. "
            "Leave out latency= and bandwidth=, or topology=."
        )
    if not isinstance(topology, Topology):
        raise LabError(
            "topology must be made by collectives.topology, such as "
            f"topology.ring(8, latency=1e-6, bandwidth=100e9), got {topology!r}."
        )
    if topology.ranks != ranks:
        raise LabError(
            f"The topology has {topology.ranks} ranks and the program {ranks}. "
            f"Make a topology of {ranks} ranks."
        )
    return topology


def model_text(topology: Topology, reduction: float) -> str:
    """The words behind "modelled:" for a time on these links."""
    reduction = number("reduction", reduction, at_least=0)
    text = str(topology)
    if topology.shape == "all" and not topology.slow and not topology.stragglers:
        link = topology.link
        text = f"α = {seconds_text(link.latency)}, {bytes_text(link.bandwidth)}/s"
        text += " between any two ranks"
    return text + (f", γ = {seconds_text(1e9 * reduction)}/GB" if reduction else "")


def play(
    record: Record, topology: Topology, reduction: float, kind: Kind, scale: float = 1.0
) -> Timed:
    """The run on these links, with every message `scale` times as long."""
    clock = _Clock(record, topology, reduction, scale)
    clock.run()
    return Timed(
        Seconds(max(clock.now, default=0.0), kind),
        tuple(clock.starts),
        tuple(clock.ends),
        tuple(sorted(clock.work, key=lambda span: (span.start, span.rank))),
        tuple(clock.now),
        kind,
    )


# What can happen at one moment, in the order in which it must be handled.
ENDED, READY, FREED = 0, 1, 2


class _Clock:
    """The state of one pass: ports, links, the ranks' times, and the messages that wait."""

    def __init__(self, record: Record, topology: Topology, reduction: float, scale: float) -> None:
        self.messages, self.reduction = record.messages, reduction
        self.index = {message.number: i for i, message in enumerate(record.messages)}
        self.calls: list[list[Call]] = [[] for _ in range(record.ranks)]
        self.expected: dict[int, int] = {}  # barrier -> how many ranks call it
        for call in record.calls:
            self.calls[call.rank].append(call)
            if call.barrier is not None:
                self.expected[call.barrier] = self.expected.get(call.barrier, 0) + 1
        self.at_barrier: dict[int, list[int]] = {}
        self.factors = topology.factors().tolist()
        self.now: list[float] = topology.starts().tolist()
        self.next = [0] * record.ranks
        self.entered = [False] * record.ranks
        count = len(record.messages)
        self.starts, self.ends, self.posted = [0.0] * count, [0.0] * count, [0.0] * count
        self.done = [False] * count
        self.added = [m.into is not None for m in record.messages]  # nothing left to add
        self.open = [1 if m.sent_by == m.received_by else 2 for m in record.messages]
        self.work: list[Span] = []
        self.events: list[tuple[float, int, int]] = []
        self.free: dict[object, float] = {}
        self.queues: dict[object, list[int]] = {}
        ends = np.array([(m.source, m.dest) for m in record.messages], np.int64).reshape(-1, 2)
        self.nbytes: list[float] = [scale * m.nbytes for m in record.messages]
        self.lasts: list[float] = topology.durations(
            ends[:, 0], ends[:, 1], np.array(self.nbytes)
        ).tolist()
        if topology.shape == "ring" and topology.hops(ends[:, 0], ends[:, 1]).sum() > MOST_HOPS:
            raise LabError(
                f"The {count:,} messages share the links of a ring of {record.ranks} ranks, too "
                "many to time one by one. Take fewer ranks, or links that ranks do not share."
            )
        self.needs = [self._resources(topology, i) for i in range(count)]

    def _resources(self, topology: Topology, index: int) -> list[tuple[object, float]]:
        """What a message needs to itself, and for how long: two ports, and links that are shared.

        A link that only one rank sends over, or only one receives from, is no scarcer than
        that rank's port.
        """
        message, lasts = self.messages[index], self.lasts[index]
        needs: list[tuple[object, float]] = [
            (("out", message.source), lasts),
            (("in", message.dest), lasts),
        ]
        if topology.shares_links:
            needs += [
                ((hop.start, hop.end), self.nbytes[index] / hop.bandwidth)
                for hop in topology.route(message.source, message.dest)
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
        message = self.messages[index]
        return self.posted[index], message.source, message.sent_by

    def _settle(self, moment: float) -> list[int]:
        """All that ends or becomes ready now; returns the messages that may start."""
        waiting: list[int] = []
        while self.events and self.events[0][0] == moment:
            _, what, index = heappop(self.events)
            if what == READY:
                waiting.append(index)
                continue
            if what == ENDED and not self.done[index]:
                self.done[index] = True
                for rank in {self.messages[index].source, self.messages[index].dest}:
                    self._advance(rank)
            for resource, _ in self.needs[index]:
                if self.free.get(resource, 0.0) <= moment:
                    waiting += self.queues.pop(resource, ())
        return waiting

    def _start(self, index: int, moment: float) -> None:
        for resource, _ in self.needs[index]:
            if self.free.get(resource, -1.0) > moment:
                self.queues.setdefault(resource, []).append(index)
                return
        end = moment + self.lasts[index]
        self.starts[index], self.ends[index] = moment, end
        heappush(self.events, (end, ENDED, index))
        for resource, held in self.needs[index]:
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
            if not all(self.done[self.index[number]] for number in call.awaits):
                return
            if call.barrier is not None and not self._passes(call.barrier):
                return
            self._return(rank, call)
            self.next[rank] += 1
            self.entered[rank] = False

    def _enter(self, rank: int, call: Call) -> None:
        for index in [self.index[message] for message in call.begins]:
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

    def _return(self, rank: int, call: Call) -> None:
        to_add = 0.0
        for index in [self.index[message] for message in call.awaits]:
            self.now[rank] = max(self.now[rank], self.ends[index])
            if self.messages[index].dest == rank and not self.added[index]:
                self.added[index] = True
                to_add += self.nbytes[index]
        if to_add and self.reduction:
            start = self.now[rank]
            self.now[rank] += to_add * self.reduction * self.factors[rank]
            self.work.append(Span(rank, start, self.now[rank]))
