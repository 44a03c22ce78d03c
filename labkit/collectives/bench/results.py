"""What was measured, raw, and what follows from it: bandwidths, a fit, a table, figures, JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from labkit import plain
from labkit.collectives.bench.bandwidth import algorithm_bandwidth, bus_bandwidth
from labkit.collectives.bench.fitting import Fit, fit
from labkit.collectives.formulas import FORMULAS
from labkit.kinds import (
    Kind,
    LabError,
    bytes_text,
    measured,
    percent_text,
    recorded,
    seconds_text,
)

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Bench", "Timing", "label", "load"]


@dataclass(frozen=True)
class Timing:
    """One contender at one size: seconds of a call on the slowest rank, one for each round.

    `calls` were timed at a time; `first` is the first call of all; `wrong` counts elements that
    were not what they must be, in one check before the rounds and one after them.
    """

    contender: str
    nbytes: int
    first: float
    calls: int
    seconds: tuple[float, ...]
    wrong: int


@plain.stored
@dataclass(frozen=True, repr=False)
class Bench:
    """Collectives timed on this machine. Name it in a cell to see its table."""

    collective: str
    ranks: int
    dtype: str
    timings: tuple[Timing, ...]
    libraries: dict[str, str]  # contender -> the library that ran it, with the version
    left_out: dict[str, str]  # contender -> why
    machine: str
    cores: int
    when: str
    load: float | None  # of the machine at the start
    # The process that measured it, 0 after loading from a file. Private fields are not stored.
    _process: int = field(default=0, compare=False, repr=False)

    @property
    def contenders(self) -> tuple[str, ...]:
        """The contenders that were timed, in the order asked for."""
        return tuple(dict.fromkeys(one.contender for one in self.timings))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The buffer of a rank, in bytes."""
        return tuple(sorted({one.nbytes for one in self.timings}))

    @property
    def kind(self) -> Kind:
        """Measured, if this process has measured it; otherwise recorded, with where and when."""
        where = f"{self.ranks} ranks on {self.machine}"
        mine = self._process == os.getpid()
        return measured(where) if mine else recorded(where, self.when[:10])

    @property
    def correct(self) -> bool:
        """Whether every contender gave the right numbers at every size."""
        return not any(one.wrong for one in self.timings)

    def timing(self, contender: str, nbytes: int) -> Timing:
        """The raw seconds of one contender at one size."""
        for one in self.timings:
            if (one.contender, one.nbytes) == (contender, nbytes):
                return one
        raise LabError(
            f"{contender!r} was not timed with {nbytes:,} bytes. "
            f"There is: {', '.join(self.contenders)}; sizes {', '.join(map(str, self.sizes))}."
        )

    def seconds(self, contender: str, nbytes: int) -> float:
        """The median of a call."""
        return median(self.timing(contender, nbytes).seconds)

    def algbw(self, contender: str, nbytes: int) -> float:
        """S/t, in bytes per second."""
        return algorithm_bandwidth(nbytes, self.seconds(contender, nbytes))

    def busbw(self, contender: str, nbytes: int) -> float:
        """Bytes per second on the busiest link, as nccl-tests counts."""
        return bus_bandwidth(self.collective, self.ranks, nbytes, self.seconds(contender, nbytes))

    def fit(self, *contenders: str) -> Fit:
        """One α and one B for the contenders named, or for all of labkit's programs together."""
        names = contenders or self._programs() or self.contenders[:1]
        missing = sorted(set(names) - set(self.contenders))
        if missing:
            raise LabError(
                f"{', '.join(missing)} was not timed. There is: {', '.join(self.contenders)}."
            )
        medians = [(t.contender, t.nbytes, median(t.seconds)) for t in self.timings]
        chosen = [one for name in names for one in medians if one[0] == name]
        return fit(self.collective, self.ranks, chosen, self.kind)

    def _programs(self) -> tuple[str, ...]:
        return tuple(name for name in self.contenders if name in FORMULAS)

    def figure(self) -> Picture:
        """Time by size: dots measured, lines modelled by each one's fit; residuals below."""
        from labkit.views import bench_figure

        fits = {name: self.fit(name) for name in self.contenders}
        return bench_figure.times(self, fits, {name: label(name) for name in fits})

    def bandwidth_figure(self) -> Picture:
        """Bus bandwidth by size."""
        from labkit.views import bench_figure

        return bench_figure.bandwidths(self, {name: label(name) for name in self.contenders})

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples included, to a JSON file for `collectives.bench.load`."""
        plain.write(path, self)

    def notes(self) -> tuple[str, ...]:
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
        if any(name.startswith("tensorflow") for name in self.contenders):
            notes.append(
                "TensorFlow's replicas are in one process. Only its ring copies; its other ways "
                "give all replicas one shared total."
            )
        if self.load is not None and self.load > 0.5 * self.cores:
            notes.append(
                f"The machine was busy at the start (load {self.load:.1f} on {self.cores} cores). "
                "Stop other programs for steadier numbers."
            )
        notes += [f"Left out: {label(name)}. {why}" for name, why in self.left_out.items()]
        return tuple(notes)

    def __repr__(self) -> str:
        return (
            f"Bench({self.collective}, {self.ranks} ranks; {', '.join(self.contenders)}; "
            f"{len(self.sizes)} sizes)"
        )

    def __str__(self) -> str:
        lines = self._cells()
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        table = [
            "  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join((self._caption(), *table, *self._under()))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        head, *rows = self._cells()
        shown = table(head, rows, self._caption(), " ".join(self._under()))
        return {"text/plain": str(self), "text/html": shown}

    def _caption(self) -> str:
        return (
            f"{self.collective}, {self.ranks} ranks, {self.dtype}: median time of a call on the "
            "slowest rank, and bus bandwidth in GB/s"
        )

    def _cells(self) -> list[Sequence[str]]:
        names = self.contenders
        lines: list[Sequence[str]] = [["buffer", *(label(name) for name in names)]]
        for nbytes in self.sizes:
            row = [bytes_text(nbytes)]
            for name in names:
                speed = self.busbw(name, nbytes) / 1e9
                text = f"{speed:.2f}" if speed >= 0.1 else f"{speed:.1g}"
                row.append(f"{seconds_text(self.seconds(name, nbytes))} · {text}")
            lines.append(row)
        if len(self.sizes) > 1:
            fits = [self.fit(name) for name in names]
            lines.append(["fitted α", *(seconds_text(one.latency) for one in fits)])
            lines.append(["fitted B", *(one.bandwidth_text for one in fits)])
            lines.append(["half within", *(percent_text(one.typical) for one in fits)])
        return lines

    def _under(self) -> list[str]:
        lines = ["Every result was checked, and is right."] if self.correct else []
        if len(self.sizes) > 1:
            lines.append(
                "α and B are fitted to each column: T = messages·α + bytes·S/B of the program's "
                "closed form; for a library, whose algorithm is unknown, T = α + bus factor·S/B."
            )
            if len(self._programs()) > 1:
                lines.append(f"One link for all programs: {self.fit(*self._programs())}")
        kind = str(self.kind)
        return [*lines, *self.notes(), f"{kind[0].upper()}{kind[1:]}."]


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
    return found
