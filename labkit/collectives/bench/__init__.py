"""Real collectives on this machine: MPI, programs, TensorFlow, torch, all timed in the same way.

>>> from labkit import collectives
>>> bench = collectives.bench.measure(ranks=4, sizes="1k:16M")       # doctest: +SKIP
>>> bench.busbw("ring_all_reduce", 16 << 20) / 1e9                   # doctest: +SKIP
1.7

`measurement` starts the ranks (`rank`), which run the timing `loop`; `results` keeps every sample,
`fitting` finds α and B. Bandwidths and checks are those of nccl-tests.
"""

from labkit.collectives.bench.bandwidth import (
    algorithm_bandwidth,
    bus_bandwidth,
    bus_factor,
    sizes_of,
)
from labkit.collectives.bench.fitting import Fit, Point
from labkit.collectives.bench.measurement import measure
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
