"""Real collectives on this machine: MPI, our own programs, TensorFlow, torch, with one ruler.

>>> from labkit import collectives
>>> bench = collectives.bench.measure(ranks=4, sizes="1k:16M")       # doctest: +SKIP
>>> bench.busbw("ring_all_reduce", 16 << 20) / 1e9                   # doctest: +SKIP
1.7

`asking` starts it, `rounds` times it in every library alike, `results` keeps it raw, `fitting`
finds α and B, `showing` makes the table. Bandwidths and checks are those of nccl-tests.
"""

from labkit.collectives.bench.asking import measure
from labkit.collectives.bench.fitting import Fit, Point
from labkit.collectives.bench.rates import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    sizes_of,
)
from labkit.collectives.bench.results import Bench, Timing, load

__all__ = [
    "Bench",
    "Fit",
    "Point",
    "Timing",
    "algorithm_bandwidth",
    "bus_bandwidth",
    "bus_factor",
    "load",
    "measure",
    "sizes_of",
]
