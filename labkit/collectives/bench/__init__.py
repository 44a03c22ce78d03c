"""Real all-reduces on this machine: MPI, programs, TensorFlow, torch, all timed in the same way.

>>> from labkit import collectives
>>> bench = collectives.bench.measure(ranks=4, sizes="1k:16M")       # doctest: +SKIP
>>> bench.busbw("ring_all_reduce", 16 << 20) / 1e9                   # doctest: +SKIP
1.7

`measurement` starts processes, which time (`rank`); `results` keeps every sample, and finds α and
B. Bandwidths and checks are those of nccl-tests.
"""

from labkit.collectives.bench.measurement import measure
from labkit.collectives.bench.results import Bench, Fit, Timing, bus_bandwidth, bus_factor, load

__all__ = ["Bench", "Fit", "Timing", "bus_bandwidth", "bus_factor", "load", "measure"]
