"""From which message size on another algorithm is the better one.

>>> crossover("ring_all_reduce", "tree_all_reduce", ranks=64, latency=1e-6, bandwidth=100e9)
1.14 MB, modelled: where the closed forms of ring_all_reduce and tree_all_reduce meet: \
tree_all_reduce is faster below, ring_all_reduce above
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

from labkit.collectives.formulas import formula, name_of, options_of
from labkit.collectives.quantities import Bytes
from labkit.collectives.schedules import cost
from labkit.collectives.topologies import Topology
from labkit.kinds import modelled

__all__ = ["Program", "chosen_for", "crossover", "meeting"]

Program: TypeAlias = str | Callable[..., Any]
# Sizes between which two costs are looked at when there is no closed form for where they meet.
SMALLEST, LARGEST = 1.0, 1e15
# Two costs that differ by less than this share are the same.
SAME = 1e-9


def crossover(
    first: Program,
    second: Program,
    ranks: int,
    latency: float | None = None,
    bandwidth: float | None = None,
    reduction: float = 0.0,
    topology: Topology | None = None,
    **options: Any,
) -> Bytes:
    """The size of a buffer for which two algorithms cost the same; its kind says who wins where.

    When one of them is faster for every size they never meet, and the answer is infinite: what
    is better for the smallest message stays better. When they differ for none, or from the first
    byte on, the answer is 0.
    """
    a, b = name_of(first), name_of(second)

    def at(name: str) -> Callable[[float], float]:
        chosen = chosen_for(name, options, (a, b))
        return lambda size: cost(
            name, ranks, size, latency, bandwidth, reduction, topology, **chosen
        )

    gap = _gap(at(a), at(b))
    straight = topology is None and formula(a).exact and formula(b).exact
    size = _lines_meet(at(a), at(b)) if straight else meeting(gap, SMALLEST, LARGEST)
    forms = "closed forms" if straight else "costs"
    return Bytes(
        size, modelled(f"where the {forms} of {a} and {b} meet: {_who_wins(a, b, size, gap)}")
    )


def chosen_for(name: str, options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Each program gets the options that it knows; one that nobody knows is named as such."""
    for option, value in options.items():
        if all(option not in formula(one).options for one in names):
            options_of(formula(name), {option: value})
    return {key: value for key, value in options.items() if key in formula(name).options}


def _gap(
    one: Callable[[float], float], other: Callable[[float], float]
) -> Callable[[float], float]:
    """Positive where the first is slower, negative where the second is, 0 where they are equal."""

    @cache
    def gap(size: float) -> float:
        a, b = float(one(size)), float(other(size))
        return 0.0 if abs(a - b) <= SAME * max(a, b) else a - b

    return gap


def _lines_meet(one: Callable[[float], float], other: Callable[[float], float]) -> float:
    """Closed forms are straight lines in the size: where they begin, and how steep they are."""
    far = 1e15
    begins, rises = (one(0) - other(0)), (one(far) - one(0)) - (other(far) - other(0))
    if abs(begins) <= SAME * max(one(0), other(0)):
        return 0.0
    if abs(rises) <= SAME * max(one(far), other(far)) or begins * rises > 0:
        return math.inf
    return -far * begins / rises


def meeting(gap: Callable[[float], float], low: float, high: float) -> float:
    """The first place between two at which the gap changes its sign; costs are straight in parts.

    Infinite if it keeps its sign, and 0 if there is no gap at all.
    """
    places: list[float] = [low * (high / low) ** (i / 15) for i in range(16)]
    before = gap(low)
    for left, right in pairwise(places):
        after = gap(right)
        if before * after < 0:
            return _zero(gap, (left, gap(left) or before), (right, after))
        before = after or before
    return math.inf if before else 0.0


def _zero(
    gap: Callable[[float], float], left: tuple[float, float], right: tuple[float, float]
) -> float:
    """Where a straight line would cross, until it does; an end that stays weighs less and less."""
    for _ in range(60):
        (x, a), (y, b) = left, right
        place = (x * b - y * a) / (b - a)
        here = gap(place)
        if not here or y - x <= SAME * y:
            return place
        if here * b > 0:
            left, right = (x, a / 2), (place, here)
        else:
            left, right = (place, here), (y, b / 2)
    return place


def _who_wins(a: str, b: str, size: float, gap: Callable[[float], float]) -> str:
    turn = max(size, SMALLEST)
    below, above = (gap(turn / 2), gap(turn * 2)) if math.isfinite(size) else (0.0, gap(LARGEST))
    if not below and not above:
        below = above = gap(SMALLEST)
    if not below and not above:
        return "they cost the same at every size"
    earlier, later = (b if sign > 0 else a for sign in (below or above, above or below))
    if earlier == later:
        return f"they do not; {later} is faster at every size"
    return f"{earlier} is faster below, {later} above"
