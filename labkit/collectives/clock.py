"""When each message of a run would start and end on given links: event by event.

>>> from labkit.collectives import programs, run
>>> timed(run(programs.ring_all_reduce, ranks=4), latency=5e-6, bandwidth=10e9).seconds
30.0 µs, modelled: α = 5.00 µs, 10.0 GB/s between any two ranks
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from labkit.collectives.records import Call, Record
from labkit.collectives.topology import Topology, fully_connected
from labkit.kinds import (
    Kind,
    LabError,
    Quantity,
    Seconds,
    bytes_text,
    modelled,
)


class Bytes(Quantity):
    """A modelled size with its formula; it computes like a float."""

    def __str__(self) -> str:
        return bytes_text(self) if math.isfinite(self) else "no size"


@dataclass(frozen=True)
class TimedRun:
    """When everything in a run would happen, in seconds from the start.

    `starts` and `ends` are of the messages, in the order of `record.messages`; `finished` is when
    each rank came to its end, `returned` when each call did.
    """

    seconds: Seconds
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    finished: tuple[float, ...]
    returned: tuple[float, ...]
    kind: Kind

    def __repr__(self) -> str:
        return f"TimedRun({self.seconds}, {len(self.starts)} messages, {self.kind})"


def timed(
    record: Record, latency: float | None = None, bandwidth: float | str | None = None,
    topology: Topology | None = None,
) -> TimedRun:  # fmt: skip
    """Returns the run on links of `latency` seconds and a bandwidth (in bytes per second, or
    "100 Mbit/s"), or on a topology.

    A message starts when both ends have posted it and the sender's sending port and the receiver's
    receiving port are free; first come, first served. It lasts the latencies of the links on its
    route plus its bytes over the narrowest; messages that meet on a link do not slow each other.
    Nothing else costs time.
    """
    topology = topology_of(record.ranks, latency, bandwidth, topology)
    return play(record, topology, modelled(f"{topology}"))


def topology_of(
    ranks: int, latency: float | None, bandwidth: float | str | None, topology: Topology | None
) -> Topology:
    """Returns the topology, or one whose links all have this latency and bandwidth."""
    if topology is None and latency is not None and bandwidth is not None:
        return fully_connected(ranks, latency, bandwidth)
    if not isinstance(topology, Topology) or not (latency is bandwidth is None):
        raise LabError(
            "A cost needs links. Give latency= in seconds and bandwidth= in bytes per second, or "
            "topology= alone, such as topology.ring(8, latency=1e-6, bandwidth=100e9)."
        )
    if topology.ranks != ranks:
        raise LabError(f"The topology has {topology.ranks} ranks and the program {ranks}.")
    return topology


def play(record: Record, topology: Topology, kind: Kind, scale: float = 1.0) -> TimedRun:
    """Returns the run on these links, with every message `scale` times as long."""
    src, dst = np.array([(m.source, m.dest) for m in record.messages], int).reshape(-1, 2).T
    nbytes = scale * np.array([m.nbytes for m in record.messages], float)
    lasts = topology.durations(src, dst, nbytes).tolist()
    return _Clock(record, topology, lasts).run(kind)


def ticks(record: Record) -> TimedRun:
    """Returns the run on a clock on which each message takes one tick, whatever its size."""
    alike = fully_connected(record.ranks, 1.0, math.inf)
    return _Clock(record, alike, [1.0] * len(record.messages)).run(modelled("steps"))


class _Clock:
    """The messages of a run, started in the order of time."""

    def __init__(self, record: Record, topology: Topology, lasts: list[float]) -> None:
        self.messages, self.lasts = record.messages, lasts
        self.index = {message.number: i for i, message in enumerate(record.messages)}
        self.now: list[float] = topology.starts().tolist()
        count = len(record.messages)
        self.starts, self.ends, self.posted = [0.0] * count, [math.inf] * count, [0.0] * count
        self.posts = [1 if m.sent_by == m.received_by else 2 for m in record.messages]  # missing
        self.returned = [0.0] * len(record.calls)
        self.ready: list[tuple[float, float, int, int, int]] = []
        # When each rank's ports are free, to send and to receive.
        self.out, self.into = [0.0] * record.ranks, [0.0] * record.ranks
        calls: list[list[Call]] = [[] for _ in self.now]
        self.members: dict[int, list[int]] = {}  # of each Barrier and Split
        for call in record.calls:
            calls[call.rank].append(call)
            if call.barrier is not None:
                self.members.setdefault(call.barrier, []).append(call.rank)
        self.missing = {barrier: len(ranks) for barrier, ranks in self.members.items()}
        self.woken: list[int] = []  # ranks that can go on
        self.ranks = [self._rank(rank, calls[rank]) for rank in range(record.ranks)]

    def run(self, kind: Kind) -> TimedRun:
        """Start what can start first, until nothing is left.

        A message that is not posted yet starts no sooner: its rank waits for the end of another.
        """
        self._go_on(range(len(self.ranks)))
        while self.ready:
            start, *_, index = heappop(self.ready)
            if self._possible(index) > start:  # another message has taken a port
                self._queue(index)
                continue
            source, dest = self.messages[index].source, self.messages[index].dest
            end = start + self.lasts[index]
            self.starts[index], self.ends[index] = start, end
            self.out[source] = self.into[dest] = end
            self._go_on({source, dest})
        return TimedRun(
            Seconds(max(self.now), kind), tuple(self.starts), tuple(self.ends), tuple(self.now),
            tuple(self.returned), kind,
        )  # fmt: skip

    def _possible(self, index: int) -> float:
        """Returns when a posted message can start."""
        message = self.messages[index]
        return max(self.posted[index], self.out[message.source], self.into[message.dest])

    def _queue(self, index: int) -> None:
        """First ready, first served; then by sender, and by what the sender posted first."""
        message, posted = self.messages[index], self.posted[index]
        entry = self._possible(index), posted, message.source, message.sent_by, index
        heappush(self.ready, entry)

    def _rank(self, rank: int, calls: list[Call]) -> Iterator[None]:
        """Run a rank: it stops at each call until all that the call waits for has an end."""
        for call in calls:
            for index in [self.index[message] for message in call.begins]:
                self.posted[index] = max(self.posted[index], self.now[rank])
                self.posts[index] -= 1
                if not self.posts[index]:
                    self._queue(index)
            awaited = [self.index[message] for message in call.awaits]
            while (last := max([self.ends[i] for i in awaited], default=0.0)) == math.inf:
                yield
            if call.barrier is not None:
                self._arrive(call.barrier)
                while self.missing[call.barrier]:
                    yield
            self.now[rank] = self.returned[call.number] = max(self.now[rank], last)

    def _arrive(self, barrier: int) -> None:
        """A rank is at a barrier. The last one lets all go on."""
        self.missing[barrier] -= 1
        if not self.missing[barrier]:
            members = self.members[barrier]
            last = max(self.now[rank] for rank in members)
            for rank in members:
                self.now[rank] = last
            self.woken += members

    def _go_on(self, ranks: Iterable[int]) -> None:
        """Let ranks go on, and then those that waited for them at a barrier."""
        self.woken += ranks
        while self.woken:
            next(self.ranks[self.woken.pop()], None)
