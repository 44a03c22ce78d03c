"""What our programs cost: closed forms where all links are alike, rounds in numpy where not.

>>> print(formula("ring_all_reduce"))
2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ
>>> formula("ring_all_reduce").terms(4)
Terms(messages=6, bytes=1.5, added=0.75)

P ranks, S bytes in each buffer, latency α, bandwidth B, and γ seconds to add in a byte. A rank
sends one message and receives one at a time. Every form is exact when the chunks are even. The
double binary tree has none.

Trees, doubling and halving: Thakur, Rabenseifner, Gropp (2005), Optimization of collective
communication operations in MPICH. Rings: Patarasuk, Yuan (2009), Bandwidth optimal all-reduce
algorithms for clusters of workstations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from labkit.collectives import programs
from labkit.collectives.programs.buffers import powers_of_two
from labkit.collectives.records import Array
from labkit.collectives.topology import Topology
from labkit.kinds import LabError

__all__ = [
    "FORMULAS",
    "SCHEDULES",
    "Formula",
    "Program",
    "Round",
    "Terms",
    "core_of",
    "duration",
    "find_program",
    "formula",
    "share_links",
]

Program: TypeAlias = str | Callable[..., Any]


class Terms(NamedTuple):
    """T = messages·α + bytes·S/B + added·S·γ: the longest chain, and shares of the buffer."""

    messages: float
    bytes: float
    added: float


@dataclass(frozen=True)
class Formula:
    """The closed form of one program; `terms(ranks, **options)` are its three numbers."""

    text: str
    terms: Callable[..., Terms]

    def __str__(self) -> str:
        return self.text


def formula(program: Program) -> Formula:
    """The closed form of one of our programs, by its name or by the function itself."""
    name, _ = find_program(program)
    if name not in FORMULAS:
        raise LabError(
            f"There is no formula for {name}. There is one for: {', '.join(FORMULAS)}. "
            "collectives.cost runs any other program: give it the function."
        )
    return FORMULAS[name]


def find_program(program: Program) -> tuple[str, Callable[..., Any]]:
    """The name and the function of a program; one of your own may be called like one of ours."""
    if isinstance(program, str):
        if program not in programs.MEANING:
            raise LabError(
                f"There is no program named {program!r}. There is: {', '.join(programs.MEANING)}. "
                "For a program of your own, give the function itself."
            )
        return program, getattr(programs, program)
    name = str(getattr(getattr(program, "func", program), "__name__", program))
    ours = name in programs.MEANING and getattr(programs, name) is not program
    return (f"your {name}" if ours else name), program


def _levels(ranks: int) -> int:
    """How often a group must double to hold all ranks: log2 P, rounded up."""
    return (ranks - 1).bit_length()


def core_of(ranks: int) -> int:
    """The largest power of two that is not above the number of ranks."""
    return 1 << (ranks.bit_length() - 1)


def _folded(ranks: int, core: int, inner: Terms) -> Terms:
    """Ranks beyond the core send everything in first, and get everything back at the end."""
    if ranks == core:
        return inner
    return Terms(inner.messages + 2, inner.bytes + 2, inner.added + 1)


def _chunks(ranks: int) -> Terms:
    return Terms(ranks - 1, (ranks - 1) / ranks, 0)


def _both_ways(ranks: int) -> Terms:
    share = (ranks - 1) / ranks
    return Terms(2 * (ranks - 1), 2 * share, share)


def _doubling(ranks: int) -> Terms:
    steps = _levels(core_of(ranks))
    return _folded(ranks, core_of(ranks), Terms(steps, steps, steps))


def _rabenseifner(ranks: int) -> Terms:
    core = core_of(ranks)
    share = (core - 1) / core
    return _folded(ranks, core, Terms(2 * _levels(core), 2 * share, share))


def _two_levels(ranks: int, per_node: int = 2) -> Terms:
    per_node = min(per_node, ranks)
    nodes = ranks // per_node
    share = (per_node - 1) / per_node + (nodes - 1) / nodes / per_node
    inner = Terms(2 * (per_node - 1 + nodes - 1), 2 * share, share)
    return _folded(ranks, nodes * per_node, inner)


_L = "⌈log2 P⌉"
_FOLD = "; unless P is a power of two, P is 2^⌊log2 P⌋ and 2α + 2·S/B + S·γ are added"
_CHUNKS = "(P-1)·α + (P-1)/P·S/B"
_BOTH_WAYS = "2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ"

FORMULAS: dict[str, Formula] = {
    "broadcast": Formula(f"{_L}·(α + S/B)", lambda ranks: Terms(_levels(ranks), _levels(ranks), 0)),
    "naive_broadcast": Formula("(P-1)·(α + S/B)", lambda ranks: Terms(ranks - 1, ranks - 1, 0)),
    "reduce": Formula(f"{_L}·(α + S/B + S·γ)", lambda ranks: Terms(*[_levels(ranks)] * 3)),
    "scatter": Formula(_CHUNKS, _chunks),
    "gather": Formula(_CHUNKS, _chunks),
    "all_gather": Formula(_CHUNKS, _chunks),
    "reduce_scatter": Formula(
        f"{_CHUNKS} + (P-1)/P·S·γ", lambda ranks: _chunks(ranks)._replace(added=1 - 1 / ranks)
    ),
    "all_to_all": Formula(_CHUNKS, _chunks),
    "barrier": Formula(f"{_L}·α", lambda ranks: Terms(_levels(ranks), 0, 0)),
    "naive_all_reduce": Formula(
        "2(P-1)·(α + S/B) + (P-1)·S·γ",
        lambda ranks: Terms(2 * (ranks - 1), 2 * (ranks - 1), ranks - 1),
    ),
    "parameter_server_all_reduce": Formula(_BOTH_WAYS, _both_ways),
    "tree_all_reduce": Formula(
        f"2{_L}·(α + S/B) + {_L}·S·γ",
        lambda ranks: Terms(2 * _levels(ranks), 2 * _levels(ranks), _levels(ranks)),
    ),
    "recursive_doubling_all_reduce": Formula(f"log2 P·(α + S/B + S·γ){_FOLD}", _doubling),
    "rabenseifner_all_reduce": Formula(
        f"2 log2 P·α + 2(P-1)/P·S/B + (P-1)/P·S·γ{_FOLD}", _rabenseifner
    ),
    "ring_all_reduce": Formula(_BOTH_WAYS, _both_ways),
    "hierarchical_all_reduce": Formula(
        "2(g-1 + N-1)·α + 2((g-1)/g + (N-1)/(N·g))·S/B + ((g-1)/g + (N-1)/(N·g))·S·γ with g ranks "
        "in each of N nodes; an incomplete node adds 2α + 2·S/B + S·γ", _two_levels,
    ),
}  # fmt: skip

# The clock in numpy, for many thousand ranks. In a round every rank sends at most one message and
# receives at most one; ranks do not wait for one another between rounds, only for the messages of
# their own. With `time` as the vector of the ranks' clocks, a round from src[i] to dst[i] gives
#     end = max(time[src], time[dst]) + duration,  time[src] = end,  time[dst] = end + work
# One shortcut: no clock can advance in a round by more than the slowest rank of that round needs,
# so a rank that is among the slowest in every round is the critical path, and its sum the answer.


class Round(NamedTuple):
    """Messages of a share of the buffer from `src[i]` to `dst[i]`, all at once, `times` times over.

    What is `added` costs the receiver local work.
    """

    src: Array
    dst: Array
    share: float
    added: bool = False
    times: int = 1


def duration(rounds: list[Round], nbytes: float, topology: Topology, reduction: float) -> float:
    """Seconds until the last rank is done, on links on which no two messages meet."""
    lasts = [topology.durations(one.src, one.dst, one.share * nbytes) for one in rounds]
    factors = reduction * nbytes * topology.factors()
    work = [one.share * one.added * factors[one.dst] for one in rounds]
    time, bound = topology.starts(), float(topology.starts().max())
    for one, sent, added in zip(rounds, lasts, work, strict=True):
        needed = np.zeros(topology.ranks)  # by each rank for its message out and its message in
        needed[one.src] = sent
        needed[one.dst] = np.maximum(needed[one.dst], sent) + added
        time += needed * one.times
        bound += float(needed.max()) * one.times
    if time.max() >= bound * (1 - 1e-12):
        return float(time.max())
    time = topology.starts()
    for one, sent, added in zip(rounds, lasts, work, strict=True):
        for _ in range(one.times):
            end = np.maximum(time[one.src], time[one.dst]) + sent
            time[one.src] = end
            time[one.dst] = np.maximum(time[one.dst], end) + added
    return float(time.max())


def share_links(rounds: list[Round], topology: Topology) -> bool:
    """Whether messages of several ranks may meet on a link: then their order matters."""
    return topology.is_ring and any((topology.hops(r.src, r.dst) > 1).any() for r in rounds)


def _circle(ranks: int, added: bool) -> Iterator[Round]:
    """Every chunk one rank further, until it has been everywhere."""
    here = np.arange(ranks)
    yield Round(here, (here + 1) % ranks, 1 / ranks, added, ranks - 1)


def _ring(ranks: int) -> Iterator[Round]:
    yield from _circle(ranks, added=True)
    yield from _circle(ranks, added=False)


def _tree(ranks: int, root: int = 0, up: bool = False) -> Iterator[Round]:
    powers = powers_of_two(ranks)
    for have in reversed(powers) if up else powers:
        near = np.arange(min(have, ranks - have))
        parent, child = (near + root) % ranks, (near + have + root) % ranks
        yield Round(child, parent, 1.0, added=True) if up else Round(parent, child, 1.0)


def _tree_all_reduce(ranks: int) -> Iterator[Round]:
    yield from _tree(ranks, up=True)
    yield from _tree(ranks)


def _levels_in_rounds(ranks: int, per_node: int = 2) -> Iterator[Round]:
    per_node = min(per_node, ranks)
    core = ranks - ranks % per_node
    here, nodes, extra = np.arange(core), core // per_node, np.arange(ranks - core)
    first = here - here % per_node
    inside = Round(here, first + (here - first + 1) % per_node, 1 / per_node, True, per_node - 1)
    across = Round(here, (here + per_node) % core, 1 / per_node / nodes, True, nodes - 1)
    # The ranks of an incomplete node send their data in first and get the total at the end.
    yield Round(extra + core, extra, 1.0, added=True)
    yield from (inside, across, across._replace(added=False), inside._replace(added=False))
    yield Round(extra, extra + core, 1.0)


SCHEDULES: dict[str, Callable[..., Iterable[Round]]] = {
    "broadcast": _tree,
    "reduce": partial(_tree, up=True),
    "all_gather": partial(_circle, added=False),
    "reduce_scatter": partial(_circle, added=True),
    "tree_all_reduce": _tree_all_reduce,
    "ring_all_reduce": _ring,
    "hierarchical_all_reduce": _levels_in_rounds,
}
