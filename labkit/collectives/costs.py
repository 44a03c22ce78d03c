"""What a program costs by size and number of ranks, which one is cheapest, and where that changes.

>>> cost("ring_all_reduce", ranks=64, nbytes=1e6, latency=1e-6, bandwidth=100e9)
146 µs, modelled: 2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ; P = 64, S = 1.00 MB, α = 1.00 µs, \
100 GB/s between any two ranks
>>> crossover("ring_all_reduce", "tree_all_reduce", ranks=64, latency=1e-6, bandwidth=100e9)
1.14 MB, modelled: where the costs of ring_all_reduce and tree_all_reduce meet: \
tree_all_reduce is faster below, ring_all_reduce above

P ranks, S bytes in each buffer, latency α, bandwidth B, and γ seconds to add in a byte; a rank
sends one message and receives one at a time. Three ways lead to a cost: a closed form where all
links are alike; `rounds` for our programs on other links; and for every other program, a run on
small buffers whose messages are then made longer, and timed by the clock.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labkit.arguments import number, one_of, whole
from labkit.collectives import programs as our_programs
from labkit.collectives.clock import Bytes, Seconds, model_text, play, topology_of
from labkit.collectives.formulas import (
    FORMULAS,
    Program,
    core_of,
    formula,
    program_name,
    settings_of,
)
from labkit.collectives.records import counted
from labkit.collectives.rounds import SCHEDULES, duration, may_meet
from labkit.collectives.simulator import MOST_RANKS, simulate
from labkit.collectives.topology import Topology
from labkit.collectives.trace import check_program
from labkit.kinds import Kind, LabError, bytes_text, modelled

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = [
    "Costs",
    "Crossover",
    "compare_costs",
    "cost",
    "crossover",
]

POINTS = 49  # sizes of a figure
SMALLEST, LARGEST = 1.0, 1e15  # sizes between which a crossover is searched
SAME = 1e-9  # costs that differ by a smaller share are the same


class _Model(NamedTuple):
    """Seconds by bytes, in words, and whether they are a straight line."""

    seconds: Callable[[float], float]
    text: str
    straight: bool = False


def cost(
    program: Program,
    ranks: int,
    nbytes: float,
    latency: float | None = None,
    bandwidth: float | None = None,
    reduction: float = 0.0,
    topology: Topology | None = None,
    **options: Any,
) -> Seconds:
    """Seconds that a program takes on buffers of `nbytes`; one of ours by name, or your own.

    On links that are all alike, that of our programs is a closed form. Your own is run once on
    small buffers, and its messages are made longer in proportion. `reduction` is in seconds a byte.
    """
    ranks = whole("ranks", ranks, at_least=1)
    nbytes = number("nbytes", nbytes, at_least=0)
    links = topology_of(ranks, latency, bandwidth, topology)
    text = f"P = {ranks:,}, S = {bytes_text(nbytes)}, {model_text(links, reduction)}"
    model = _model(program, links, reduction, options, alike=topology is None)
    return Seconds(model.seconds(nbytes), modelled(f"{model.text}; {text}"))


def _model(
    program: Program, links: Topology, reduction: float, options: dict[str, Any], alike: bool
) -> _Model:
    name, ranks = program_name(program), links.ranks
    form = formula(program) if isinstance(program, str) else FORMULAS.get(name)
    if form is not None:
        options = settings_of(form, options)
        if "root" in options:
            whole("root", options["root"], at_most=ranks - 1)
        if alike and (form.exact or ranks > MOST_RANKS):
            found = form.terms(ranks, **options)
            at = {"latency": links.link.latency, "bandwidth": links.link.bandwidth}
            return _Model(
                lambda nbytes: found.seconds(nbytes, reduction=reduction, **at),
                form.text if form.exact else f"at most {form.text}",
                straight=True,
            )
        if name in SCHEDULES:
            schedule = partial(SCHEDULES[name], **options)
            if not may_meet(schedule, links):
                return _Model(
                    lambda nbytes: duration(schedule, nbytes, links, reduction),
                    f"the rounds of {name}",
                )
    function: Any = program if form is None else getattr(our_programs, form.name)
    check_program(function, options)
    whole("ranks of a program that is run", ranks, at_most=MOST_RANKS)
    elements = _even_elements(ranks, options)
    record = simulate(function, [np.ones(elements) for _ in range(ranks)], options)
    kind = modelled("")
    return _Model(
        lambda nbytes: float(play(record, links, reduction, kind, nbytes / (8 * elements)).seconds),
        f"{name}, run on small buffers and timed message by message",
    )


def _even_elements(ranks: int, options: dict[str, Any]) -> int:
    """Elements of a small buffer whose chunks are even, for the usual ways to cut it."""
    counts = [value for value in options.values() if isinstance(value, int) and 0 < value <= 1000]
    parts = [2 * count * max(1, ranks // count) for count in counts]
    even = math.lcm(ranks, core_of(ranks), *parts)
    return math.lcm(even, 240) if even < 10_000 else even


# --- where two programs cost the same


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
    """The size of a buffer for which two programs cost the same; its kind says who wins where.

    When one of them is faster for every size they never meet, and the answer is infinite: what
    is better for the smallest message stays better. When they differ for none, or from the first
    byte on, the answer is 0.
    """
    links = topology_of(whole("ranks", ranks, at_least=1), latency, bandwidth, topology)
    model_text(links, reduction)
    chosen = _options_of_each((first, second), options)
    one, other = (
        _model(program, links, reduction, each, alike=topology is None)
        for program, each in zip((first, second), chosen, strict=True)
    )
    gap = _gap(one.seconds, other.seconds)
    if one.straight and other.straight:
        size = _lines_meet(one.seconds, other.seconds)
    else:
        size = _meeting(gap, SMALLEST, LARGEST)
    a, b = program_name(first), program_name(second)
    winners = _who_wins(a, b, size, gap)
    return Bytes(size, modelled(f"where the costs of {a} and {b} meet: {winners}"))


def _options_of_each(programs: Sequence[Program], options: dict[str, Any]) -> list[dict[str, Any]]:
    """Each program gets the options that it knows."""
    known = [_option_names(program) for program in programs]
    for name in options:
        one_of("option", name, dict.fromkeys(one for names in known for one in names))
    return [{name: options[name] for name in names if name in options} for names in known]


def _option_names(program: Program) -> tuple[str, ...]:
    if isinstance(program, str) or program_name(program) in FORMULAS:
        return (*formula(program).options, "op")
    return tuple(inspect.signature(program).parameters)[2:]


def _gap(
    one: Callable[[float], float], other: Callable[[float], float]
) -> Callable[[float], float]:
    """Positive where the first is slower, negative where the second is, 0 where they are equal."""

    @cache
    def gap(size: float) -> float:
        a, b = one(size), other(size)
        return 0.0 if abs(a - b) <= SAME * max(a, b) else a - b

    return gap


def _lines_meet(one: Callable[[float], float], other: Callable[[float], float]) -> float:
    """Closed forms are straight lines in the size: where they start, and how steep they are."""
    starts = one(0) - other(0)
    rises = (one(LARGEST) - one(0)) - (other(LARGEST) - other(0))
    if abs(starts) <= SAME * max(one(0), other(0)):
        return 0.0
    if abs(rises) <= SAME * max(one(LARGEST), other(LARGEST)) or starts * rises > 0:
        return math.inf
    return -LARGEST * starts / rises


def _meeting(gap: Callable[[float], float], low: float, high: float) -> float:
    """The first place between two at which the gap changes its sign; costs are straight in parts.

    Infinite if it keeps its sign, and 0 if there is no gap at all.
    """
    before = gap(low)
    left = low
    for i in range(1, 16):
        right = low * (high / low) ** (i / 15)
        after = gap(right)
        if before * after < 0:
            return _zero(gap, (left, before), (right, after))
        left, before = right, after or before
    return math.inf if before else 0.0


def _zero(
    gap: Callable[[float], float], left: tuple[float, float], right: tuple[float, float]
) -> float:
    """Regula falsi: where a straight line would cross; an end that stays weighs less and less."""
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
    below = below or above or gap(SMALLEST)
    above = above or below
    if not below:
        return "they cost the same at every size"
    earlier, later = (b if sign > 0 else a for sign in (below, above))
    if earlier == later:
        return f"they do not; {later} is faster at every size"
    return f"{earlier} is faster below, {later} above"


# --- several programs


class Crossover(NamedTuple):
    """A place along the axis from which on another program is the fastest."""

    at: float
    seconds: float
    faster: str


@dataclass(frozen=True, repr=False)
class Costs:
    """The seconds of each program at each place `along` the axis. Name it to see the picture.

    `fastest` is the fastest program at the left end, `crossovers` where another becomes it.
    """

    by: str
    along: tuple[float, ...]
    seconds: dict[str, tuple[float, ...]]
    fastest: str
    crossovers: tuple[Crossover, ...]
    title: str
    kind: Kind

    def __repr__(self) -> str:
        text = f"{self.title}: {self.fastest} is the fastest"
        return (
            text
            + "".join(f" up to {self.place(c.at)}, then {c.faster}" for c in self.crossovers)
            + "."
        )

    def place(self, value: float) -> str:
        """A place along the axis in words."""
        return bytes_text(value) if self.by == "bytes" else counted(round(value), "rank")

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
    by_size = np.ndim(nbytes) == 1
    if by_size == (np.ndim(ranks) == 1):
        raise LabError(
            "A figure has one axis along the bottom. Give one of ranks= and nbytes= as a number, "
            "and the other as its two ends, such as nbytes=(1e3, 1e9)."
        )
    if topology is not None and not by_size:
        raise LabError("A topology has one number of ranks. Give ranks= as that number.")
    if not programs:
        raise LabError('programs must name at least one, such as ["ring_all_reduce"], got none.')
    chosen = _options_of_each(programs, options)
    each = {program_name(p): (p, o) for p, o in zip(programs, chosen, strict=True)}

    @cache
    def model(name: str, count: int) -> _Model:
        links = topology_of(count, latency, bandwidth, topology)
        return _model(each[name][0], links, reduction, each[name][1], alike=topology is None)

    @cache
    def at(name: str, place: float) -> float:
        return (
            model(name, fixed).seconds(place)
            if by_size
            else model(name, round(place)).seconds(size)
        )

    if by_size:
        fixed = whole("ranks", ranks, at_least=1)
        low, high = _ends("nbytes", nbytes)
        along = tuple(low * (high / low) ** (i / (POINTS - 1)) for i in range(POINTS))
        title, text = f"Cost for {counted(fixed, 'rank')}", f"P = {fixed:,}"
    else:
        size = number("nbytes", nbytes, at_least=0)
        low, high = _ends("ranks", ranks)
        # Between powers of two, trees jump: their costs would cross and cross again.
        along = tuple(2.0**i for i in range(31) if low <= 2**i <= high)
        if len(along) < 2:
            raise LabError(f"ranks must span two powers of two, such as (2, 512), got {ranks!r}.")
        title, text = f"Cost for {bytes_text(size)}", f"S = {bytes_text(size)}"
    links = topology_of(fixed if by_size else 1, latency, bandwidth, topology)
    kind = modelled(f"{text}, {model_text(links, reduction)}")
    seconds = {name: tuple(at(name, place) for place in along) for name in each}
    fastest = min(each, key=lambda name: at(name, along[0]))
    return Costs(
        "bytes" if by_size else "ranks", along, seconds, fastest,
        _crossovers(fastest, tuple(each), along, at, whole=not by_size), title, kind,
    )  # fmt: skip


def _ends(name: str, given: Any) -> tuple[float, float]:
    ends = [number(name, end, at_least=1) for end in given]
    if not ends or min(ends) == max(ends):
        raise LabError(f"{name} must be the two ends of an axis, such as (2, 512), got {given!r}.")
    return min(ends), max(ends)


def _crossovers(
    leader: str,
    names: tuple[str, ...],
    along: tuple[float, ...],
    at: Callable[[str, float], float],
    whole: bool,
) -> tuple[Crossover, ...]:
    """Where another becomes the fastest: the place itself, or the first one on a whole axis."""
    found = []
    for left, right in pairwise(along):
        follower = min(names, key=lambda name: at(name, right))
        if at(follower, right) >= at(leader, right) * (1 - SAME):
            continue
        gap = _gap(partial(at, leader), partial(at, follower))
        place = right if whole else min(_meeting(gap, left, right), right)
        found.append(Crossover(place, at(follower, place), follower))
        leader = follower
    return tuple(found)
