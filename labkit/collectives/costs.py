"""What a program costs by size and number of ranks, which one is cheapest, and where that changes.

>>> cost("ring_all_reduce", ranks=64, nbytes=1e6, latency=1e-6, bandwidth=100e9)
146 µs, modelled: 2(P-1)·α + 2(P-1)/P·S/B; P = 64, S = 1.00 MB, α = 1.00 µs, \
100 GB/s between any two ranks
>>> crossover("ring_all_reduce", "tree_all_reduce", ranks=64, latency=1e-6, bandwidth=100e9)
1.14 MB, modelled: tree_all_reduce is faster below, ring_all_reduce above

Three ways lead to a cost: a closed form where all links are alike; `rounds` for our programs on
other links; and for every other program, a run on small buffers whose messages are then made
longer, and timed by the clock.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from labkit.arguments import number, numbers, whole
from labkit.collectives.clock import Bytes, play, topology_of
from labkit.collectives.formulas import (
    FORMULAS,
    Program,
    core_of,
    find_program,
    ring_phases,
    ring_seconds,
)
from labkit.collectives.topology import Topology
from labkit.collectives.trace import MOST_RANKS, check_program, simulate
from labkit.kinds import Kind, LabError, Seconds, bytes_text, counted, modelled, seconds_text

SMALLEST, LARGEST = 1.0, 1e15  # sizes between which a crossover is searched
SAME = 1e-9  # costs that differ by a smaller share are the same


def cost(
    program: Program, ranks: int, nbytes: float, latency: float | None = None,
    bandwidth: float | str | None = None, topology: Topology | None = None, **options: Any,
) -> Seconds:  # fmt: skip
    """Returns the seconds of a program on buffers of `nbytes`: one of ours by name, or your own.

    Where all links are alike, the cost of our programs is a closed form. Your own is run once on
    small buffers, and its messages are made longer in proportion.
    """
    nbytes = number("nbytes", nbytes, at_least=0)
    price = _priced(program, ranks, latency, bandwidth, topology, **options)
    text = f"{price.how}; P = {ranks:,}, S = {bytes_text(nbytes)}, {price.links}"
    return Seconds(price.seconds(nbytes), modelled(text))


class _Price(NamedTuple):
    """A program's seconds as a function of bytes, how they are found, and on which links."""

    seconds: Callable[[float], float]
    how: str
    links: str


def _priced(
    program: Program, ranks: int, latency: float | None = None,
    bandwidth: float | str | None = None, topology: Topology | None = None, **options: Any,
) -> _Price:  # fmt: skip
    ranks = whole("ranks", ranks, at_least=1, at_most=10**6)
    links = topology_of(ranks, latency, bandwidth, topology)
    text = f"{links}"
    name, function = find_program(program)
    check_program(function, options)
    if name in FORMULAS and links == Topology(ranks, links.link):
        # The reduction, for one, changes no cost.
        terms = FORMULAS[name].terms
        known = inspect.signature(terms).parameters
        accepted = {option: value for option, value in options.items() if option in known}
        messages, share = terms(ranks, **accepted)
        start, per_byte = messages * links.link.latency, share / links.link.bandwidth
        return _Price(lambda nbytes: start + nbytes * per_byte, FORMULAS[name].text, text)
    if ring_phases(name, ranks, 0.0, **options) is not None:

        def by_rounds(nbytes: float) -> float:
            phases = ring_phases(name, ranks, nbytes, **options) or []
            return ring_seconds(phases, links)

        return _Price(by_rounds, f"the rounds of {name}", text)
    whole("ranks of a program that is run", ranks, at_most=MOST_RANKS)
    elements = _even_elements(ranks, options)
    record = simulate(function, [np.ones(elements) for _ in range(ranks)], options)

    def by_messages(nbytes: float) -> float:
        return play(record, links, modelled(text), nbytes / (8 * elements)).seconds

    return _Price(by_messages, f"{name}, run on small buffers, timed message by message", text)


def _even_elements(ranks: int, options: dict[str, Any]) -> int:
    """Returns a small number of elements that the usual numbers of chunks divide evenly."""
    counts = [value for value in options.values() if isinstance(value, int) and 0 < value <= 1000]
    parts = [2 * count * max(1, ranks // count) for count in counts]
    even = math.lcm(ranks, core_of(ranks), *parts)
    return math.lcm(even, 240) if even < 10_000 else even


def crossover(
    first: Program, second: Program, ranks: int, latency: float | None = None,
    bandwidth: float | str | None = None, topology: Topology | None = None, **options: Any,
) -> Bytes:  # fmt: skip
    """Returns the size of a buffer from which on the other of two programs is the faster one.

    Links are given as for `cost`. When one of them is faster for every size, or none for any, the
    answer is infinite.
    """
    gap = _gap(
        *(
            _priced(program, ranks, latency, bandwidth, topology, **options).seconds
            for program in (first, second)
        )
    )
    size, below, above = _meeting(gap, SMALLEST, LARGEST), gap(SMALLEST), gap(LARGEST)
    a, b = find_program(first)[0], find_program(second)[0]
    if math.isfinite(size):
        small, large = (a, b) if below < 0 else (b, a)
        return Bytes(size, modelled(f"{small} is faster below, {large} above"))
    winner = {-1: a, 0: "neither", 1: b}[int(np.sign(below or above))]
    return Bytes(size, modelled(f"{winner} is faster at any size"))


def _gap(
    one: Callable[[float], float], other: Callable[[float], float]
) -> Callable[[float], float]:
    """Returns a function of size: positive if the first is slower, negative if the second is."""

    @cache
    def gap(size: float) -> float:
        a, b = one(size), other(size)
        return 0.0 if abs(a - b) <= SAME * max(a, b) else a - b

    return gap


def _meeting(gap: Callable[[float], float], low: float, high: float) -> float:
    """Returns where the gap changes its sign: searched in 15 steps, then by bisection."""
    sizes = [low * (high / low) ** (i / 15) for i in range(16)]
    known = [size for size in sizes if gap(size)]
    change = [ends for ends in pairwise(known) if gap(ends[0]) * gap(ends[1]) < 0]
    if not change:
        return math.inf
    left, right = change[0]
    while right > left * (1 + SAME):
        middle = math.sqrt(left * right)
        left, right = (left, middle) if gap(left) * gap(middle) <= 0 else (middle, right)
    return float(right)


class Bucket(NamedTuple):
    """Gradients that travel together: layers as they come out of the backward pass, from 0."""

    first: int
    last: int
    nbytes: float
    start: float
    end: float


@dataclass(frozen=True, repr=False)
class Overlap:
    """One backward pass with its all-reduces, in seconds from its start."""

    backward: tuple[tuple[float, float], ...]  # start and end of each layer, last layer first
    buckets: tuple[Bucket, ...]
    seconds: float
    kind: Kind

    @property
    def exposed(self) -> float:
        """Seconds of communication after the backward pass, when nothing hides them."""
        return self.seconds - self.backward[-1][1]

    def __repr__(self) -> str:
        count = counted(len(self.buckets), "bucket")
        after = f"{seconds_text(self.exposed)} after the backward pass"
        return f"Overlap({seconds_text(self.seconds)}, {count}, {after})"

    def _repr_mimebundle_(self, **_: object) -> Any:
        from labkit.collectives.page.charts import buckets

        return buckets(self)._repr_mimebundle_()


def overlap(
    layers: Sequence[tuple[float, float]], ranks: int, bucket: float, latency: float,
    bandwidth: float | str,
) -> Overlap:  # fmt: skip
    """Returns the ring all-reduces for layers of (seconds of backward pass, bytes of gradient).

    The backward pass makes gradients from the last layer to the first, and `layers` are in that
    order. A bucket is closed as soon as it holds `bucket` bytes, and sent when its last gradient is
    there and the bucket before it has gone: 0 sends every layer alone, `float("inf")` sends all of
    them at the end.

    >>> overlap([(1e-3, 4e6)] * 12, ranks=8, bucket=16e6, latency=100e-6, bandwidth=10e9)
    Overlap(16.6 ms, 3 buckets, 4.60 ms after the backward pass)
    """
    number("bucket", bucket, at_least=0, infinite=True)
    pairs = [numbers("seconds and bytes of a layer", one, at_least=0) for one in layers]
    last = max((layer for layer, (_, *nbytes) in enumerate(pairs) if any(nbytes)), default=None)
    if last is None or any(len(one) != 2 for one in pairs):
        raise LabError(f"layers must be pairs of (seconds, bytes of gradient), got {layers!r}.")
    price = _priced("ring_all_reduce", ranks, latency, bandwidth)
    ends = list(accumulate(seconds for seconds, _ in pairs))
    buckets: list[Bucket] = []
    first, held, free = 0, 0.0, 0.0
    for layer, (_, nbytes) in enumerate(pairs):
        held += nbytes
        if not nbytes or (held < bucket and layer < last):
            continue
        start = max(ends[layer], free)
        free = start + price.seconds(held)
        buckets.append(Bucket(first, layer, held, start, free))
        first, held = layer + 1, 0.0
    link = price.links.removesuffix(" between any two ranks")
    kind = modelled(f"ring on {ranks} ranks, {link}; the backward pass is not slowed by it")
    backward = tuple(zip([0.0, *ends[:-1]], ends, strict=True))
    return Overlap(backward, tuple(buckets), max(free, ends[-1]), kind)
