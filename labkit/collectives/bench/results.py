"""What was measured, raw, and what follows from it: bandwidths, a fit, a table, pictures, JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from labkit import plain
from labkit.collectives.bench.rates import algorithm_bandwidth, bus_bandwidth
from labkit.kinds import Kind, LabError, measured, recorded

if TYPE_CHECKING:
    from labkit.collectives.bench.fitting import Fit
    from labkit.views.figure import Picture

__all__ = ["Bench", "Timing", "load", "timings_of"]


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
    libraries: dict[str, str]  # contender -> who did it, with the version
    left_out: dict[str, str]  # contender -> why
    machine: str
    cores: int
    when: str
    busy: float | None  # the machine's load when it began

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who was timed, in the order asked for."""
        return tuple(dict.fromkeys(one.contender for one in self.timings))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The buffer of a rank, in bytes."""
        return tuple(sorted({one.nbytes for one in self.timings}))

    @property
    def kind(self) -> Kind:
        """Measured today on this machine; anything else was recorded, and says where and when."""
        from labkit.hardware.survey import machine_text

        day = self.when[:10]
        where = f"{self.ranks} ranks on {self.machine}"
        today = day == datetime.now().astimezone().date().isoformat()
        return measured(where) if today and self.machine == machine_text() else recorded(where, day)

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
        """Bytes per second on the busiest link, nccl-tests' way."""
        return bus_bandwidth(self.collective, self.ranks, nbytes, self.seconds(contender, nbytes))

    def fit(self, *contenders: str) -> Fit:
        """One α and one B for the contenders named, or for all of labkit's programs together."""
        from labkit.collectives.bench.fitting import fit_of

        return fit_of(self, contenders)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know."""
        from labkit.collectives.bench.showing import notes

        return notes(self)

    def figure(self) -> Picture:
        """Time by size: dots measured, lines modelled by each one's fit; residuals below."""
        from labkit.collectives.bench.showing import fit_picture

        return fit_picture(self)

    def bandwidth_figure(self) -> Picture:
        """Bus bandwidth by size."""
        from labkit.collectives.bench.showing import bandwidth_picture

        return bandwidth_picture(self)

    def save(self, path: str | Path) -> None:
        """Write everything, raw samples included, to a JSON file for `collectives.bench.load`."""
        plain.write(path, self)

    def __repr__(self) -> str:
        return (
            f"Bench({self.collective}, {self.ranks} ranks; {', '.join(self.contenders)}; "
            f"{len(self.sizes)} sizes)"
        )

    def __str__(self) -> str:
        from labkit.collectives.bench.showing import text

        return text(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.collectives.bench.showing import html

        return {"text/plain": str(self), "text/html": html(self)}


def load(path: str | Path) -> Bench:
    """What `save` wrote. On another machine, or another day, its numbers are *recorded*."""
    found: Bench = plain.read(path, (Bench,), "measured collectives")
    return found


def timings_of(records: Iterable[dict[str, object]]) -> tuple[Timing, ...]:
    """The records that a measuring process has sent."""
    made = []
    for record in records:
        seconds = record["seconds"]
        made.append(Timing(**{**record, "seconds": tuple(seconds)}))  # type: ignore[arg-type]
    return tuple(made)
