"""A measurement that nobody has made: its times follow the model, or are given."""

from labkit.collectives.bench import Bench, Timing, bus_factor
from labkit.collectives.formulas import FORMULAS, terms

NAMES = ("mpi", "ring_all_reduce", "tree_all_reduce")
SIZES = tuple(1 << power for power in range(10, 25, 2))


def made_up(latency=1e-5, bandwidth=1e9, sizes=SIZES, ranks=4, times=None, **changes):
    timings = []
    for name in NAMES:
        for size in times or sizes:
            messages, share = 1.0, bus_factor("all_reduce", ranks)
            if name in FORMULAS:
                messages, share, _ = terms(name, ranks)
            seconds = times[size] if times else messages * latency + share * size / bandwidth
            samples = (0.9 * seconds, seconds, 1.2 * seconds)
            timings.append(Timing(name, size, 2 * seconds, 1, samples, 0))
    fields = {
        "collective": "all_reduce", "ranks": ranks, "dtype": "float32", "timings": tuple(timings),
        "libraries": dict.fromkeys(NAMES, "a made-up MPI"), "left_out": {},
        "machine": "a made-up machine", "cores": 8, "when": "2026-11-21T12:00:00+00:00",
        "busy": 0.1,
    }  # fmt: skip
    return Bench(**{**fields, **changes})
