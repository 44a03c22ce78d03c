"""Real all-reduces on this machine: MPI, programs, TensorFlow, torch, all timed in the same way.

>>> bench = measure(ranks=4, sizes="1k:16M")            # doctest: +SKIP
>>> bench.fit("ring_all_reduce")                        # doctest: +SKIP
ring_all_reduce: α = 30.4 µs, B = 3.18 GB/s. Half of the medians are within 12.2 % of the model; ...

The algorithm's bandwidth is S/t: how much of your data is done in a second. The bus bandwidth is
that times a factor, the share of S that the busiest link must carry: 2(n-1)/n for an all-reduce.
It can be compared with the link's own speed, whatever the number of ranks
(nccl-tests, doc/PERFORMANCE.md, read in 2026-11).
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from labkit import plain
from labkit.arguments import number, one_of, whole
from labkit.collectives.bench_rank import MARK, MOST_RANKS, time_mpi, time_tensorflow, time_torch
from labkit.collectives.formulas import FORMULAS, find_program
from labkit.collectives.programs import ALL_REDUCES
from labkit.collectives.trace import run_mpi
from labkit.kinds import (
    Kind,
    LabError,
    bytes_text,
    measured,
    modelled,
    percent_text,
    recorded,
    seconds_text,
)
from labkit.mpi.run import mpiexec
from labkit.progress import progress

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Bench", "Fit", "Timing", "bus_bandwidth", "bus_factor", "load", "main", "measure"]

# What is not named here is a program, or MPI's own.
LIBRARIES = {"tensorflow_ring": "tensorflow", "gloo": "torch"}
PROGRAMS = {"mpi4py": time_mpi, "tensorflow": time_tensorflow, "torch": time_torch}
USUAL = (
    *("mpi", "ring_all_reduce", "tree_all_reduce"),
    *("recursive_doubling_all_reduce", "rabenseifner_all_reduce", *LIBRARIES),
)


def measure(
    *,
    ranks: int = 4,
    sizes: str | Sequence[int] = "1k:16M",
    contenders: Sequence[str | Callable[..., Any]] = USUAL,
    rounds: int = 10,
    seconds_per_size: float = 2.0,
    timeout: float = 300.0,
) -> Bench:
    """Time the all-reduce of float32 buffers on this machine, as nccl-tests does.

    Contenders: `"mpi"` (the MPI library's own), labkit's programs by their name, your own
    `program(comm, buffer)`, `"tensorflow_ring"` and `"gloo"` (torch.distributed). Those of MPI are
    interleaved in one mpiexec. What is not installed is left out, and the result
    says so. Each library has `timeout` seconds.
    """
    plan = {
        "ranks": whole("ranks", ranks, at_least=2, at_most=MOST_RANKS),
        "sizes": sizes_of(sizes),
        "rounds": whole("rounds", rounds, at_least=1),
        "seconds_per_size": number("seconds_per_size", seconds_per_size, at_least=0),
    }
    own: dict[str, Callable[..., Any]] = {}
    groups: dict[str, list[str]] = {}
    left_out: dict[str, str] = {}
    for one in contenders:
        name = one if isinstance(one, str) else find_program(one)[0]
        if callable(one) and name not in ALL_REDUCES:
            own[name] = one
        else:
            one_of("contender", name, ("mpi", *ALL_REDUCES, *LIBRARIES))
        library = LIBRARIES.get(name, "mpi4py")
        if why := _reason_missing(library):
            left_out[name] = why
        else:
            groups.setdefault(library, []).append(name)
    if not groups:
        reasons = dict.fromkeys(left_out.values())
        raise LabError(f"No contender can be timed here. {' '.join(reasons)}")
    timings: list[Timing] = []
    libraries: dict[str, str] = {}
    with progress("timing all-reduces", total=len(groups)) as advance:
        for done, (library, names) in enumerate(groups.items()):
            advance(done)
            found = _run(library, {**plan, "contenders": names}, own, timeout)
            timings += [Timing(name, n, c, tuple(s), w) for name, n, c, s, w in found["timings"]]
            libraries |= dict.fromkeys(names, found["library"])
    from labkit.hardware.survey import machine_text

    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    when = datetime.now().astimezone().isoformat(timespec="seconds")
    kind = measured(f"{ranks} ranks on {machine_text()}")
    return Bench(ranks, tuple(timings), libraries, left_out, cores, when, kind)


def _reason_missing(library: str) -> str:
    """Why it cannot be timed here, in a sentence; nothing if it can."""
    try:
        mpiexec()  # it starts the ranks of all libraries
    except LabError as fault:
        return str(fault)
    if importlib.util.find_spec(library) is None:
        return f"{library} is not installed here: pip install {library}."
    return ""


def _run(
    library: str, plan: dict[str, Any], own: dict[str, Callable[..., Any]], timeout: float
) -> dict[str, Any]:
    """Time the contenders of one library, in processes that are gone afterwards."""
    ranks = 1 if library == "tensorflow" else plan["ranks"]  # its replicas are in one process
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            run_mpi(PROGRAMS[library], ranks=ranks, timeout=timeout, plan=plan, own=own)
    except LabError as fault:
        names = ", ".join(plan["contenders"])
        raise LabError(
            f"{names}: {fault} Try programs of your own with collectives.run first."
        ) from None
    text = printed.getvalue().partition(MARK)[2]
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]
    return found


def sizes_of(sizes: str | Sequence[int]) -> list[int]:
    """Bytes: several numbers, or a range as text that doubles; as in nccl-tests, 1k is 1024.

    >>> sizes_of("1k:8k")
    [1024, 2048, 4096, 8192]
    """
    if isinstance(sizes, str):
        found = re.findall(r"(\d+)([kmg]?)", sizes.lower())
        if not re.fullmatch(r"\d+[kmg]?(:\d+[kmg]?)?", sizes.lower()):
            raise LabError(
                "sizes must be a size or a range with k, M or G (1k is 1024 bytes), such as "
                f"'1k:16M', got {sizes!r}."
            )
        ends = [int(count) << {"": 0, "k": 10, "m": 20, "g": 30}[unit] for count, unit in found]
        sizes = [ends[0] << i for i in range(40) if ends[0] << i <= ends[-1]]
    # Whole elements of 4 bytes.
    checked = {whole("sizes", size, at_least=4, at_most=4 << 30) // 4 * 4 for size in sizes}
    if not checked:
        raise LabError('sizes must name at least one, such as sizes="1k:16M", got none.')
    return sorted(checked)


def main(arguments: Any) -> int:
    """`labkit bench collectives`: measure, print the table, write the file; 1 if it was wrong."""
    path: Path | None = arguments.json
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        # Before the minutes are spent.
        raise LabError(f"--json must be a file in a folder that exists, got {str(path)!r}.")
    named = arguments.contenders
    bench = measure(
        ranks=arguments.ranks,
        sizes=arguments.sizes or ("1k:1M" if arguments.quick else "1k:16M"),
        contenders=named.replace(" ", "").split(",") if named else USUAL,
        rounds=5 if arguments.quick else 20,
        seconds_per_size=0.5 if arguments.quick else 4.0,
        timeout=60.0 if arguments.quick else 600.0,
    )
    if path is not None:
        bench.save(path)
    print(bench)
    return 0 if bench.correct else 1


def bus_factor(collective: str, ranks: int) -> float:
    """How many times S the busiest link carries.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    share = (ranks - 1) / ranks
    factors = {
        "all_reduce": 2 * share, "broadcast": 1.0, "reduce": 1.0,
        "all_gather": share, "reduce_scatter": share, "all_to_all": share,
    }  # fmt: skip
    return factors[one_of("collective", collective, factors)]


def bus_bandwidth(collective: str, ranks: int, nbytes: float, seconds: float) -> float:
    """Bytes per second on the busiest link. For all-gather and the like S is the whole buffer."""
    return nbytes / seconds * bus_factor(collective, ranks)


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
    """The latency in seconds and the bandwidth in bytes per second that explain medians best.

    `times` are (bytes, seconds measured, seconds modelled).
    """

    contender: str
    latency: float
    bandwidth: float
    times: tuple[tuple[int, float, float], ...]
    kind: Kind

    @property
    def typical(self) -> float:
        """Half of the medians are closer to the model than this share."""
        return median(abs(model / measured - 1) for _, measured, model in self.times)

    @property
    def numbers(self) -> tuple[str, str]:
        """α and B with their units; where time does not grow with size, nothing is known of B."""
        bandwidth = f"{bytes_text(self.bandwidth)}/s" if self.bandwidth < math.inf else "not seen"
        return seconds_text(self.latency), bandwidth

    def __repr__(self) -> str:
        latency, bandwidth = self.numbers
        nbytes, measured, model = max(self.times, key=lambda t: abs(math.log(t[2] / t[1])))
        return (
            f"{self.contender}: α = {latency}, B = {bandwidth}. Half of the medians are within "
            f"{percent_text(self.typical)} of the model; the worst is {bytes_text(nbytes)}, "
            f"modelled {seconds_text(model)}, measured {seconds_text(measured)}; {self.kind}."
        )


def fit_link(
    messages: float, share: float, nbytes: Sequence[float], seconds: Sequence[float]
) -> tuple[float, float]:
    """α and B of T = messages·α + share·S/B for which the squares of log(model/T) are smallest.

    A microsecond matters at 1 kB as ten milliseconds do at 16 MB, and twice too much counts as half
    too little. For each ratio of 1/B to α the best α is a mean; the ratio is searched.

    >>> fit_link(2, 1, [1000, 100_000], [3e-6, 102e-6])
    (1e-06, 1000000000.0)
    """
    sent, logs = share * np.asarray(nbytes, float), np.log(seconds)
    # From where the bytes do not count to where the messages do not.
    first, last = 1e-6 * messages / sent.max(), 1e6 * messages / sent.min()
    low, high = first, last
    for _ in range(8):
        ratios = np.geomspace(low, high, 201)
        gaps = logs - np.log(messages + ratios[:, None] * sent)
        best = int(np.argmin(gaps.var(axis=1)))
        low, high = ratios[max(best - 1, 0)], ratios[min(best + 1, 200)]
    ratio, latency = float(ratios[best]), float(np.exp(gaps[best].mean()))
    per_byte = latency * ratio
    latency = 0.0 if ratio > 0.99 * last else float(f"{latency:.7g}")
    return latency, math.inf if ratio < 1.01 * first else float(f"{1 / per_byte:.7g}")


@plain.stored
@dataclass(frozen=True, repr=False)
class Bench:
    """All-reduces timed on this machine. Name it in a cell to see its table."""

    ranks: int
    timings: tuple[Timing, ...]
    libraries: dict[str, str]  # contender -> the library that ran it, with the version
    left_out: dict[str, str]  # contender -> why
    cores: int
    when: str
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
        """The raw seconds of one contender at one size."""
        one_of("contender", contender, self.contenders)
        one_of("nbytes", nbytes, self.sizes)
        return next(t for t in self.timings if (t.contender, t.nbytes) == (contender, nbytes))

    def seconds(self, contender: str, nbytes: int) -> float:
        """The median of a call."""
        return median(self.timing(contender, nbytes).seconds)

    def busbw(self, contender: str, nbytes: int) -> float:
        """Bytes per second on the busiest link, as nccl-tests counts."""
        return bus_bandwidth("all_reduce", self.ranks, nbytes, self.seconds(contender, nbytes))

    def fit(self, contender: str) -> Fit:
        """The α and the B that explain its times best."""
        times = {nbytes: self.seconds(contender, nbytes) for nbytes in self.sizes}
        if len(times) < 2:
            raise LabError(
                "A fit of latency and bandwidth needs at least two sizes. "
                'Measure several, such as sizes="1k:16M".'
            )
        messages, share = 1.0, bus_factor("all_reduce", self.ranks)
        form = "T = α + bus factor·S/B, α being the whole call's"
        if contender in FORMULAS:
            messages, share, _ = FORMULAS[contender].terms(self.ranks)
            form = "T = messages·α + bytes·S/B of its closed form, adding up inside B"
        latency, bandwidth = fit_link(messages, share, list(times), list(times.values()))
        modelled_times = tuple(
            (nbytes, seconds, messages * latency + share * nbytes / bandwidth)
            for nbytes, seconds in times.items()
        )
        kind = modelled(f"{form}, fitted to medians {self.kind}")
        return Fit(contender, latency, bandwidth, modelled_times, kind)

    def figure(self) -> Picture:
        """Time by size: dots measured, lines modelled by each one's fit; residuals below."""
        from labkit.views.bench_figure import times

        return times(self, {label(name): self.fit(name) for name in self.contenders})

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples included, to a JSON file for `collectives.bench.load`."""
        plain.write(path, self)

    def notes(self) -> list[str]:
        """What a reader of the numbers must know, most important first."""
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
        return notes + [f"Left out: {label(name)}. {why}" for name, why in self.left_out.items()]

    def __repr__(self) -> str:
        from labkit.views.table import text_table

        caption, (head, *rows), footer = self._table()
        return "\n".join([caption, text_table(head, rows), *footer])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        caption, (head, *rows), footer = self._table()
        return {"text/plain": repr(self), "text/html": table(head, rows, caption, " ".join(footer))}

    def _table(self) -> tuple[str, list[list[str]], list[str]]:
        caption = (
            f"all-reduce, {self.ranks} ranks, float32: median time of a call on the slowest rank, "
            "and bus bandwidth in GB/s"
        )
        lines = [["buffer", *map(label, self.contenders)]]
        for nbytes in self.sizes:
            times = [self.seconds(name, nbytes) for name in self.contenders]
            speeds = [self.busbw(name, nbytes) / 1e9 for name in self.contenders]
            cells = [
                f"{seconds_text(time)} · {speed:.{2 if speed >= 0.1 else 3}f}"
                for time, speed in zip(times, speeds, strict=True)
            ]
            lines.append([bytes_text(nbytes), *cells])
        footer = ["Every result was checked, and is right."] if self.correct else []
        if len(self.sizes) > 1:
            fits = [self.fit(name) for name in self.contenders]
            lines.append(["fitted α", *(one.numbers[0] for one in fits)])
            lines.append(["fitted B", *(one.numbers[1] for one in fits)])
            lines.append(["half within", *(percent_text(one.typical) for one in fits)])
            footer.append(
                "α and B are fitted to each column: T = messages·α + bytes·S/B of the program's "
                "closed form; for a library, whose algorithm is unknown, T = α + bus factor·S/B."
            )
        return caption, lines, [*footer, *self.notes(), f"The times were {self.kind}."]


def label(contender: str) -> str:
    """A name for a column: the collective is in the title.

    >>> label("recursive_doubling_all_reduce"), label("mpi")
    ('recursive doubling', 'MPI library')
    """
    if contender == "mpi":
        return "MPI library"
    return contender.removesuffix("_all_reduce").replace("_", " ")


def load(path: str | Path) -> Bench:
    """What `save` wrote; its numbers are *recorded*."""
    found: Bench = plain.read(path, (Bench,), "measured collectives")
    return replace(found, kind=recorded(found.kind.source, found.when[:10]))
