"""Measure the links of a cluster, and predict what programs take on these and on other links.

>>> with labkit.cluster(ranks=2, link="100 Mbit/s") as c:                    # doctest: +SKIP
...     links = labkit.calibrate(c)
>>> print(links.predict("ring_all_reduce", ranks=8, nbytes=8e6))             # doctest: +SKIP
1.23 s (90 % interval: 1.18–1.31 s)
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from labkit.cluster.cluster import Cluster
from labkit.cluster.in_rank import communicator
from labkit.cluster.links import CLASSES, Network, bits
from labkit.collectives.costs import cost
from labkit.collectives.formulas import Program
from labkit.kinds import Kind, LabError, measured, modelled
from labkit.shown import ShownAsTable
from labkit.timing.estimate import Estimate

ROUNDS = 7
SECONDS = (0.0, 0.01, 0.05, 0.2)  # that the messages take at the rate of their link
MACHINE = 8e9  # bit/s that are assumed of all ranks of a machine together, to choose the sizes
CONFIDENCE = 0.9
# The model leaves out that ranks share cores, and that a new connection begins slowly. Both cost
# time: such a share of it, as measured with 2 to 8 ranks on 2 cores (benchmarks/links.py).
LEFT_OUT = 0.1


@dataclass(frozen=True, repr=False)
class Calibration(ShownAsTable):
    """Latency and bandwidth of each class of links, measured between the ranks of a cluster."""

    network: Network
    latency: Mapping[str, Estimate]
    """Seconds, from an idle link (`low`) to one that all hosts use at once (`high`)."""
    bandwidth: Mapping[str, Estimate]
    """Bytes per second."""
    kind: Kind

    def predict(
        self, program: Program, nbytes: float, ranks: int | None = None, link: str | None = None
    ) -> Estimate:
        """Modelled seconds of a program with each rank on a host of its own, with an interval.

        `ranks` and `link` may be others than those that were calibrated: the latency stays, and
        the bandwidth is the same share of the rate.
        """
        if CLASSES[1] not in self.latency or len({*self.network.rates}) > 1:
            raise LabError(
                "A prediction needs hosts whose links are alike: calibrate "
                'labkit.cluster(ranks=2, link="100 Mbit/s").'
            )
        ranks = len(self.network.hosts) if ranks is None else ranks
        share = 1.0 if link is None else bits(link) / self.network.rates[0]
        latency, bandwidth = self.latency[CLASSES[1]], self.bandwidth[CLASSES[1]]

        def seconds(start: float, rate: float) -> float:
            return float(cost(program, ranks, nbytes, latency=start, bandwidth=rate * share))

        return Estimate(
            seconds(latency.value, bandwidth.value),
            seconds(latency.low, bandwidth.high) * (1 - LEFT_OUT / 3),
            seconds(latency.high, bandwidth.low) * (1 + LEFT_OUT),
            "s",
            CONFIDENCE,
            modelled(f"α-β model with latency and bandwidth {self.kind}"),
        )

    def table(self) -> Any:
        """Latency and bandwidth by class."""
        from labkit.views.table import Table

        rows = [[name, str(self.latency[name]), str(self.bandwidth[name])] for name in self.latency]
        footer = f"The latency is that of an idle link up to that of one in full use; {self.kind}."
        return Table(["links", "latency", "bandwidth"], rows, "Calibrated links", footer)


def calibrate(cluster: Cluster) -> Calibration:
    """Latency and bandwidth of each class of links of a cluster, in a few seconds."""
    network = cluster.links
    if network is None or cluster.ranks < 2:
        raise LabError(
            "Only links with a rate can be calibrated, between two ranks at least: "
            'with labkit.cluster(ranks=2, link="100 Mbit/s") as c: labkit.calibrate(c).'
        )
    if not cluster.has_links:
        return _assumed(network)
    kind = measured(f"this machine, {network}")
    latency, bandwidth = {}, {}
    for name in CLASSES:
        pairs = [
            (one, other)
            for one in range(cluster.ranks)
            for other in range(one + 1, cluster.ranks)
            if network.class_of(one, other) == name
        ]
        if not pairs:
            continue
        first, second = pairs[0]
        ring = [rank for rank in range(cluster.ranks) if network.class_of(0, rank) != CLASSES[0]]
        busy = [0, *ring] if name == CLASSES[1] else [first, second]
        rate = min(network.bandwidth(first, second), MACHINE / 8 / len(busy))
        sizes = [max(1, int(rate * seconds)) for seconds in SECONDS]
        rounds = cluster.run(_exchange, (first, second), busy, sizes, show=False)
        alone = [median(times) for times in rounds[first][0]]
        used = [  # by size and round: of the slowest rank
            [max(each) for each in zip(*(rounds[rank][1][size] for rank in busy), strict=True)]
            for size in range(len(sizes))
        ]
        slope = (median(used[-1]) - median(used[1])) / (sizes[-1] - sizes[1])
        start = max(alone[0], median(used[1]) - slope * sizes[1])
        late = [max(times) - slope * size for times, size in zip(used, sizes, strict=True)]
        latency[name] = Estimate(start, alone[0], max(start, *late), "s", CONFIDENCE, kind)
        speeds = [1 / slope, *(sizes[-1] / (seconds - start) for seconds in used[-1])]
        bandwidth[name] = Estimate(1 / slope, min(speeds), max(speeds), "B/s", CONFIDENCE, kind)
    return Calibration(network, latency, bandwidth, kind)


def _assumed(network: Network) -> Calibration:
    """Where links cannot be had: values of a calibration on 2 cores with links of 100 Mbit/s."""
    kind = modelled("rates less headers, and latencies as recorded on 2 cores, 2026-11-24")
    latency = Estimate(0.3e-3, 0.2e-3, 3e-3, "s", CONFIDENCE, kind)
    speed = 0.93 * network.rates[0] / 8
    bandwidth = Estimate(speed, 0.98 * speed, 1.01 * speed, "B/s", CONFIDENCE, kind)
    return Calibration(network, {CLASSES[1]: latency}, {CLASSES[1]: bandwidth}, kind)


def _exchange(
    rank: int, pair: tuple[int, int], ring: Sequence[int], sizes: Sequence[int]
) -> tuple[list[list[float]], list[list[float]]]:
    """Seconds of each message one way between a pair, and in a ring of ranks that all send."""
    comm = communicator()
    alone: list[list[float]] = []
    used: list[list[float]] = []
    for size in sizes:
        given, taken, note = (np.zeros(length, np.uint8) for length in (size, size, 1))
        alone.append([])
        for _ in range(ROUNDS if size == sizes[0] and rank in pair else 0):
            began = time.perf_counter()
            if rank == pair[0]:
                comm.Send(note, pair[1])
                comm.Recv(note, pair[1])
            else:
                comm.Recv(note, pair[0])
                comm.Send(note, pair[0])
            alone[-1].append((time.perf_counter() - began) / 2)
        used.append([])
        for _ in range(ROUNDS):
            comm.Barrier()
            if rank in ring:
                at = ring.index(rank)
                began = time.perf_counter()
                comm.Sendrecv(given, ring[(at + 1) % len(ring)], recvbuf=taken, source=ring[at - 1])
                used[-1].append(time.perf_counter() - began)
    return alone[:1], used
