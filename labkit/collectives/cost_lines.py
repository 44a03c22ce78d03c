"""What several algorithms cost, by message size or by rank count, and where the fastest changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit.collectives.crossings import Program, chosen_for, meeting
from labkit.collectives.formulas import name_of
from labkit.collectives.pricing import model_of, wiring
from labkit.collectives.quantities import is_number, is_whole
from labkit.collectives.schedules import cost
from labkit.collectives.topologies import Topology
from labkit.kinds import Kind, LabError, bytes_text, count_text, modelled

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Costs", "Turn", "compare_costs"]

POINTS = 49


class Turn(NamedTuple):
    """A place along the axis from which another program is the fastest."""

    at: float
    seconds: float
    faster: str


@dataclass(frozen=True, repr=False)
class Costs:
    """The seconds of each program at each place `along` the axis. Name it to see the picture.

    `turns` are the places from which on another program is the fastest; the first is the begin.
    """

    by: str
    along: tuple[float, ...]
    seconds: dict[str, tuple[float, ...]]
    turns: tuple[Turn, ...]
    title: str
    kind: Kind

    def __repr__(self) -> str:
        first, *others = self.turns
        said = f"{self.title}: {first.faster} is the fastest"
        said += "".join(f" up to {self.place(t.at)}, then {t.faster}" for t in others)
        return f"{said}."

    def place(self, value: float) -> str:
        """A place along the axis in words."""
        return bytes_text(value) if self.by == "bytes" else f"{count_text(round(value))} ranks"

    def figure(self) -> Picture:
        """A line for each program, with a mark where the fastest changes."""
        from labkit.views.cost_figure import costs

        return costs(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return self.figure()._repr_mimebundle_(include=include, exclude=exclude)


def compare_costs(
    programs: Sequence[Program],
    ranks: int | Sequence[int],
    nbytes: float | Sequence[float],
    latency: float | None = None,
    bandwidth: float | None = None,
    reduction: float = 0.0,
    topology: Topology | None = None,
    **options: Any,
) -> Costs:
    """The costs of several programs, for many message sizes or for many rank counts.

    Give one of `ranks` and `nbytes` as a number, and the other as the two ends of the axis:

    >>> compare_costs(["ring_all_reduce", "tree_all_reduce"], 64, (1e3, 1e9), 1e-6, 100e9)
    Cost for 64 ranks: tree_all_reduce is the fastest up to 1.14 MB, then ring_all_reduce.
    """
    if isinstance(programs, str):
        programs = [programs]
    ranks = int(ranks) if is_whole(ranks) else ranks
    nbytes = float(nbytes) if is_number(nbytes) else nbytes
    names = tuple(dict.fromkeys(name_of(program) for program in programs))
    if not names:
        raise LabError('There is nothing to compare. Give names, such as ["ring_all_reduce"].')
    chosen = {name: chosen_for(name, options, names) for name in names}
    if isinstance(ranks, int) and not isinstance(nbytes, (int, float)):
        count, ends = ranks, _ends("nbytes", nbytes)
        wires = wiring(count, latency, bandwidth, topology)

        @cache
        def at(name: str, place: float) -> float:
            return float(
                cost(name, count, place, latency, bandwidth, reduction, topology, **chosen[name])
            )

        along = _spread(*ends)
        title, said = f"Cost for {count_text(count)} ranks", f"P = {count_text(count)}"
        turns = _turns(names, along, at, whole=False)
        by = "bytes"
    elif isinstance(nbytes, (int, float)) and not isinstance(ranks, int):
        if topology is not None:
            raise LabError(
                "A topology has one number of ranks. Give ranks= as that number and nbytes= as "
                "the two ends of the axis."
            )
        size, ends = float(nbytes), _ends("ranks", ranks)
        wires = wiring(1, latency, bandwidth, None)

        @cache
        def at(name: str, place: float) -> float:
            return float(
                cost(name, round(place), size, latency, bandwidth, reduction, **chosen[name])
            )

        # Between powers of two, trees jump: their costs would cross and cross again.
        along = tuple(2.0**i for i in range(31) if ends[0] <= 2**i <= ends[1])
        if len(along) < 2:
            raise LabError(f"ranks={ranks!r} holds fewer than two powers of two. Try (2, 512).")
        title, said = f"Cost for {bytes_text(size)}", f"S = {bytes_text(size)}"
        turns = _turns(names, along, at, whole=True)
        by = "ranks"
    else:
        raise LabError(
            "A picture has one axis along the bottom. Give one of ranks= and nbytes= as a number, "
            "and the other as its two ends, such as nbytes=(1e3, 1e9)."
        )
    seconds = {name: tuple(at(name, place) for place in along) for name in names}
    return Costs(
        by, along, seconds, turns, title, modelled(f"{said}, {model_of(wires, reduction)}")
    )


def _ends(name: str, given: Sequence[float]) -> tuple[float, float]:
    try:
        given = [float(end) for end in given]
    except (TypeError, ValueError):
        raise LabError(
            f"{name}={given!r} is no axis. Give its two ends, such as (2, 512)."
        ) from None
    if len(given) < 2 or not 1 <= min(given) < max(given) < math.inf:
        raise LabError(f"{name}={given!r} is no axis. Give its two ends, such as (2, 512).")
    return float(min(given)), float(max(given))


def _spread(low: float, high: float) -> tuple[float, ...]:
    """Places at equal ratios."""
    return tuple(low * (high / low) ** (i / (POINTS - 1)) for i in range(POINTS))


def _turns(
    names: tuple[str, ...],
    along: tuple[float, ...],
    at: Callable[[str, float], float],
    whole: bool,
) -> tuple[Turn, ...]:
    """Where another becomes the fastest: the place itself, or the first one on a whole axis."""

    def fastest(place: float) -> str:
        return min(names, key=lambda name: at(name, place))

    leader = fastest(along[0])
    turns = [Turn(along[0], at(leader, along[0]), leader)]
    for left, right in pairwise(along):
        follower = fastest(right)
        if at(follower, right) >= at(leader, right) * (1 - 1e-9):
            continue
        here, there = leader, follower

        def gap(place: float, here: str = here, there: str = there) -> float:
            return at(here, place) - at(there, place)

        place = right if whole else min(meeting(gap, left, right), right)
        turns.append(Turn(place, at(follower, place), follower))
        leader = follower
    return tuple(turns)
