"""Measure the links of a cluster, and predict what programs take on these and on other links.

>>> with labkit.cluster(ranks=2, link="100 Mbit/s") as c:                    # doctest: +SKIP
...     links = labkit.calibrate(c)
>>> print(links.estimate("ring_all_reduce", ranks=8, nbytes=8e6))             # doctest: +SKIP
1.23 s (90 % interval: 1.18–1.31 s)
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np

from labkit.cluster.cluster import Cluster
from labkit.cluster.links.namespaces import PACE
from labkit.cluster.links.network import CLASSES, Network, bits
from labkit.cluster.ranks.in_rank import communicator
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

    def estimate(
        self, program: Program, nbytes: float, ranks: int | None = None, link: str | None = None
    ) -> Estimate:
        """Returns the modelled seconds, with an interval, of a program with one rank on each host.

        `ranks` and `link` may differ from those that were calibrated: the latency stays, and the
        bandwidth is the same share of the rate.
        """
        if {*self.latency} - {CLASSES[0]} != {CLASSES[1]} or len({*self.network.rates}) > 1:
            raise LabError(
                "A prediction needs hosts whose links are alike, at one switch: calibrate "
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
        """Returns latency and bandwidth of each class of links."""
        from labkit.views.table import Table

        rows = [[name, str(self.latency[name]), str(self.bandwidth[name])] for name in self.latency]
        footer = f"The latency is that of an idle link up to that of one in full use; {self.kind}."
        return Table(["links", "latency", "bandwidth"], rows, "Calibrated links", footer)


def calibrate(cluster: Cluster) -> Calibration:
    """Measure latency and bandwidth of each class of links of a cluster, in a few seconds."""
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
    for name, (first, second) in _pairs(network).items():
        others = [rank for rank in range(cluster.ranks) if network.class_of(first, rank) == name]
        busy = [first, *others] if name == CLASSES[1] else [first, second]
        rate = min(network.bandwidth(first, second), MACHINE / 8 / len(busy))
        sizes = [max(1, int(rate * seconds)) for seconds in SECONDS]
        rounds = cluster.run(_exchange, (first, second), busy, sizes, show=False)
        alone = median(rounds[first][0])
        used = [  # by size and round: of the slowest rank
            [max(times) for times in zip(*(rounds[rank][1][size] for rank in busy), strict=True)]
            for size in range(len(sizes))
        ]
        slope = (median(used[-1]) - median(used[1])) / (sizes[-1] - sizes[1])
        start = max(alone, median(used[1]) - slope * sizes[1])
        late = [max(times) - slope * size for times, size in zip(used, sizes, strict=True)]
        latency[name] = Estimate(start, alone, max(start, *late), "s", CONFIDENCE, kind)
        speeds = [1 / slope, *(sizes[-1] / (seconds - start) for seconds in used[-1])]
        bandwidth[name] = Estimate(1 / slope, min(speeds), max(speeds), "B/s", CONFIDENCE, kind)
    return Calibration(network, latency, bandwidth, kind)


def _assumed(network: Network) -> Calibration:
    """Returns values of a calibration on 2 cores, for machines where links cannot be had."""
    kind = modelled("paced rates, and latencies as recorded on 2 cores, 2026-11-24")
    latency = Estimate(0.3e-3, 0.2e-3, 3e-3, "s", CONFIDENCE, kind)
    bandwidth = {}
    for name, pair in _pairs(network).items():
        if name != CLASSES[0]:
            speed = PACE * network.bandwidth(*pair)
            bandwidth[name] = Estimate(speed, 0.98 * speed, 1.01 * speed, "B/s", CONFIDENCE, kind)
    return Calibration(network, dict.fromkeys(bandwidth, latency), bandwidth, kind)


def _pairs(network: Network) -> dict[str, tuple[int, int]]:
    """Returns, for each class of links, the first two ranks that have such a link."""
    found: dict[str, tuple[int, int]] = {}
    for pair in combinations(range(len(network.hosts)), 2):
        found.setdefault(network.class_of(*pair), pair)
    return found


def _exchange(
    rank: int, pair: tuple[int, int], ring: Sequence[int], sizes: Sequence[int]
) -> tuple[list[float], list[list[float]]]:
    """Returns the seconds of a byte between a pair, and those of each size in a ring of ranks."""
    comm, note = communicator(), np.zeros(1, np.uint8)
    alone: list[float] = []
    for _ in range(ROUNDS if rank in pair else 0):
        began = time.perf_counter()
        if rank == pair[0]:
            comm.Send(note, pair[1])
            comm.Recv(note, pair[1])
        else:
            comm.Recv(note, pair[0])
            comm.Send(note, pair[0])
        alone.append((time.perf_counter() - began) / 2)
    used: list[list[float]] = []
    for size in sizes:
        given, taken = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        used.append([])
        for _ in range(ROUNDS):
            comm.Barrier()
            if rank in ring:
                at = ring.index(rank)
                began = time.perf_counter()
                comm.Sendrecv(given, ring[(at + 1) % len(ring)], recvbuf=taken, source=ring[at - 1])
                used[-1].append(time.perf_counter() - began)
    return alone, used
