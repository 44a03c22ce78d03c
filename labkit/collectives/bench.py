"""Real all-reduces on this machine: the MPI library's own and programs, timed in the same way.

>>> bench = measure(ranks=4)                            # doctest: +SKIP
>>> bench.fit("ring_all_reduce")                        # doctest: +SKIP
ring_all_reduce: α = 30.4 µs, B = 3.18 GB/s. Half of the medians are within 12.2 % of the model; ...

The algorithm's bandwidth is S/t: how much of your data is done in a second. The bus bandwidth is
that times a factor, the share of S that the busiest link must carry: 2(n-1)/n for an all-reduce.
It can be compared with the link's own speed, whatever the number of ranks
(nccl-tests, doc/PERFORMANCE.md, read in 2026-11).
"""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit.arguments import number, one_of, whole
from labkit.collectives.bench_rank import MOST_RANKS, time_mpi
from labkit.collectives.formulas import FORMULAS, find_program
from labkit.collectives.programs import ALL_REDUCES
from labkit.collectives.trace import run_mpi
from labkit.hardware.machine import usable_cores
from labkit.kinds import (
    Kind,
    LabError,
    bytes_text,
    measured,
    modelled,
    percent_text,
    seconds_text,
)
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.table import Table

SIZES = tuple(1 << power for power in range(10, 25))  # 1 kB to 16 MB
KNOWN = ("mpi", *ALL_REDUCES)
USUAL = (
    *("mpi", "ring_all_reduce", "tree_all_reduce"),
    *("recursive_doubling_all_reduce", "rabenseifner_all_reduce"),
)


def measure(
    *, ranks: int = 4, sizes: Sequence[int] = SIZES,
    contenders: Sequence[str | Callable[..., Any]] = USUAL, rounds: int = 10,
    seconds_per_size: float = 2.0, timeout: float = 300.0,
) -> Bench:  # fmt: skip
    """Time the all-reduce of float32 buffers on this machine, as nccl-tests does.

    Contenders: `"mpi"` (the MPI library's own), labkit's programs by their name, and your own
    `program(comm, buffer)`. They are interleaved in one mpiexec.
    """
    own = {find_program(one)[0]: one for one in contenders if callable(one)}
    names = [
        find_program(one)[0] if callable(one) else one_of("contender", one, KNOWN)
        for one in contenders
    ]
    if twice := [name for name in names if names.count(name) > 1]:
        raise LabError(f"Two contenders are called {twice[0]!r}: give each its own name.")
    plan = {
        "ranks": whole("ranks", ranks, at_least=2, at_most=MOST_RANKS),
        # Whole elements of 4 bytes.
        "sizes": sorted({whole("sizes", n, at_least=4, at_most=4 << 30) // 4 * 4 for n in sizes}),
        "rounds": whole("rounds", rounds, at_least=1),
        "seconds_per_size": number("seconds_per_size", seconds_per_size, at_least=0),
        "contenders": names,
    }
    return time_in_ranks(time_mpi, plan, ranks, timeout, own=own)


def time_in_ranks(
    program: Callable[..., Any], plan: dict[str, Any], processes: int, timeout: float, **more: Any
) -> Bench:
    """Run a program that ends with `bench_rank.time_all` in processes. Returns what it measured."""
    with tempfile.TemporaryDirectory(prefix="labkit-bench-") as folder:
        plan = {**plan, "file": f"{folder}/result"}
        try:
            # What the ranks print is not shown.
            with redirect_stdout(io.StringIO()):
                run_mpi(program, ranks=processes, timeout=timeout, plan=plan, **more)
        except LabError as fault:
            names = ", ".join(plan["contenders"])
            raise LabError(
                f"{names}: {fault} Try programs of your own with collectives.run first."
            ) from None
        found: dict[str, Any] = json.loads(Path(plan["file"]).read_text(encoding="utf-8"))
    from labkit.hardware.survey import machine_text

    timings = tuple(Timing(name, n, c, tuple(s), w) for name, n, c, s, w in found["timings"])
    ranks, cores = plan["ranks"], len(usable_cores())
    kind = measured(f"{ranks} ranks on {machine_text()}")
    return Bench(ranks, timings, found["library"], cores, kind)


def bus_factor(ranks: int) -> float:
    """Returns how many times S the busiest link of an all-reduce carries."""
    return 2 * (ranks - 1) / ranks


def bus_bandwidth(ranks: int, nbytes: float, seconds: float) -> float:
    """Returns bytes per second on the busiest link of an all-reduce."""
    return nbytes / seconds * bus_factor(ranks)


@dataclass(frozen=True)
class Timing:
    """One contender at one size: seconds of a call on the slowest rank, one for each round.

    `calls` were timed at a time; `wrong` counts elements that were not the sum, in one check
    before the rounds and one after them.
    """

    contender: str
    nbytes: int
    calls: int
    seconds: tuple[float, ...]
    wrong: int


@dataclass(frozen=True, repr=False)
class Fit:
    """The latency in seconds and the bandwidth in bytes per second that fit the medians best.

    `times` are (bytes, seconds measured, seconds modelled).
    """

    contender: str
    latency: float
    bandwidth: float
    times: tuple[tuple[int, float, float], ...]
    kind: Kind

    @property
    def typical(self) -> float:
        """Returns the median of |model/measured - 1|."""
        return median(abs(model / measured - 1) for _, measured, model in self.times)

    @property
    def numbers(self) -> tuple[str, str]:
        """Returns α and B with their units, or "not seen" for B if time does not grow with size."""
        bandwidth = f"{bytes_text(self.bandwidth)}/s" if self.bandwidth < math.inf else "not seen"
        return seconds_text(self.latency), bandwidth

    def __repr__(self) -> str:
        latency, bandwidth = self.numbers
        return (
            f"{self.contender}: α = {latency}, B = {bandwidth}. Half of the medians are within "
            f"{percent_text(self.typical)} of the model; {self.kind}."
        )


def fit_link(
    messages: float, share: float, nbytes: Sequence[float], seconds: Sequence[float]
) -> tuple[float, float]:
    """Returns α and B of T = messages·α + share·S/B that minimise the squares of model/T - 1.

    A microsecond matters at 1 kB as ten milliseconds do at 16 MB.

    >>> fit_link(2, 1, [1000, 100_000], [3e-6, 102e-6]), fit_link(2, 1, [1000, 2000], [4e-6, 3e-6])
    ((1e-06, 1000000000.0), (1.68e-06, inf))
    """
    parts = np.array([np.full(len(nbytes), messages), share * np.asarray(nbytes, float)])
    parts /= seconds
    latency, per_byte = np.linalg.lstsq(parts.T, np.ones(len(nbytes)))[0]
    if min(latency, per_byte) < 0:  # then it is all one of them
        latency, per_byte = parts.sum(axis=1) / np.square(parts).sum(axis=1)
        latency, per_byte = (0.0, per_byte) if seconds[-1] > seconds[0] else (latency, 0.0)
    return float(f"{latency:.7g}"), float(f"{1 / per_byte:.7g}") if per_byte else math.inf


@dataclass(frozen=True, repr=False)
class Bench(ShownAsTable):
    """All-reduces timed on this machine. Name it in a cell to see its table."""

    ranks: int
    timings: tuple[Timing, ...]
    library: str  # that ran it, with its version
    cores: int
    kind: Kind

    @property
    def contenders(self) -> tuple[str, ...]:
        """The contenders that were timed, in the order given."""
        return tuple(dict.fromkeys(one.contender for one in self.timings))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The buffer of a rank, in bytes."""
        return tuple(sorted({one.nbytes for one in self.timings}))

    @property
    def correct(self) -> bool:
        """Whether every contender gave the right numbers at every size."""
        return not any(one.wrong for one in self.timings)

    def timing(self, contender: str, nbytes: int) -> Timing:
        """Returns the raw seconds of one contender at one size."""
        one_of("contender", contender, self.contenders)
        return next(t for t in self.timings if (t.contender, t.nbytes) == (contender, nbytes))

    def seconds(self, contender: str, nbytes: int) -> float:
        """Returns the median of a call."""
        return median(self.timing(contender, nbytes).seconds)

    def busbw(self, contender: str, nbytes: int) -> float:
        """Bytes per second on the busiest link, as nccl-tests counts."""
        return bus_bandwidth(self.ranks, nbytes, self.seconds(contender, nbytes))

    def fit(self, contender: str) -> Fit:
        """Returns the α and the B with the best fit to its times."""
        times = {nbytes: self.seconds(contender, nbytes) for nbytes in self.sizes}
        if len(times) < 2:
            raise LabError("A fit of latency and bandwidth needs at least two sizes.")
        messages, share = 1.0, bus_factor(self.ranks)
        form = "T = α + bus factor·S/B, α being the whole call's"
        if contender in FORMULAS:
            messages, share = FORMULAS[contender].terms(self.ranks)
            form = "T = messages·α + bytes·S/B of its closed form, adding up inside B"
        latency, bandwidth = fit_link(messages, share, list(times), list(times.values()))
        modelled_times = tuple(
            (nbytes, seconds, messages * latency + share * nbytes / bandwidth)
            for nbytes, seconds in times.items()
        )
        kind = modelled(f"{form}, fitted to medians {self.kind}")
        return Fit(contender, latency, bandwidth, modelled_times, kind)

    def picture(self) -> Picture:
        """Returns a picture of time by size: dots measured, lines fitted, and residuals below."""
        from labkit.collectives.page.charts import times

        return times(self, {label(name): self.fit(name) for name in self.contenders})

    def notes(self) -> list[str]:
        """Returns what a reader of the numbers must know, most important first."""
        notes = [
            f"WRONG: {label(one.contender)} left {one.wrong:,} wrong elements on a rank "
            f"at {bytes_text(one.nbytes)}. Its time says nothing."
            for one in self.timings
            if one.wrong
        ]
        if self.ranks > self.cores:
            notes.append(
                f"{self.ranks} ranks share {self.cores} cores and take turns: a latency contains "
                "the wait for a turn, and a bandwidth is what the cores can copy. Compare the "
                "columns with each other, not with a cluster."
            )
        notes.append("All ranks are on this machine: messages go through its memory, no network.")
        return notes

    def table(self) -> Table:
        """Returns a table with a row for each size and a column for each contender."""
        from labkit.views.table import Table

        caption = (
            f"all-reduce, {self.ranks} ranks, float32: median time of a call on the slowest rank, "
            "and bus bandwidth in GB/s"
        )
        rows = []
        for nbytes in self.sizes:
            times = [self.seconds(name, nbytes) for name in self.contenders]
            speeds = [self.busbw(name, nbytes) / 1e9 for name in self.contenders]
            cells = [
                f"{seconds_text(time)} · {speed:.{2 if speed >= 0.1 else 3}f}"
                for time, speed in zip(times, speeds, strict=True)
            ]
            rows.append([bytes_text(nbytes), *cells])
        right = ["Every result was checked, and is right."] if self.correct else []
        notes = [*right, *self.notes(), f"The times were {self.kind}."]
        return Table(["buffer", *map(label, self.contenders)], rows, caption, "\n".join(notes))


def label(contender: str) -> str:
    """Returns a name for a column: the collective is in the title.

    >>> label("recursive_doubling_all_reduce"), label("mpi")
    ('recursive doubling', 'MPI library')
    """
    if contender == "mpi":
        return "MPI library"
    return contender.removesuffix("_all_reduce").replace("_", " ")
