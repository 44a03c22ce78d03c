"""What our programs cost: closed forms where all links are alike, and rings in numpy.

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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from labkit.collectives import programs
from labkit.collectives.records import Array
from labkit.collectives.topology import Topology
from labkit.kinds import LabError

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

# Rings on many thousand ranks. In a round every rank sends to its right neighbour; ranks do not
# wait for one another between rounds, only for the messages of their own. With `time` as the vector
# of the ranks' clocks, a round gives
#     end = max(time, time of the right) + duration,  time = max(end, end of the left) + work


class Phase(NamedTuple):
    """Rings that run side by side, one a row: their ranks, the bytes of a chunk, what is added."""

    rings: Array
    chunk: float
    added: bool


def ring_phases(
    name: str, ranks: int, nbytes: float, per_node: int = 2, **_: object
) -> list[Phase] | None:
    """What a program does as rings, one phase after the other; None if it is not made of rings."""
    everyone = np.arange(ranks)
    if name == "hierarchical_all_reduce" and ranks % min(per_node, ranks) == 0:
        nodes = everyone.reshape(-1, min(per_node, ranks))
        mine = nbytes / nodes.shape[1]
        between = [Phase(nodes.T, mine / len(nodes), added) for added in (True, False)]
        return [Phase(nodes, mine, True), *between, Phase(nodes, mine, False)]
    halves = {"all_gather": [False], "reduce_scatter": [True], "ring_all_reduce": [True, False]}
    if name not in halves:
        return None
    return [Phase(everyone.reshape(1, -1), nbytes / ranks, added) for added in halves[name]]


def ring_seconds(phases: list[Phase], topology: Topology, reduction: float) -> float:
    """Seconds until the last rank of the rings is done, on any links."""
    time, rounds = topology.starts(), []
    # No clock can advance in a round by more than the slowest rank of that round needs: a rank that
    # is among the slowest in every round is the critical path, and its sum is the answer.
    least, most = time.copy(), float(time.max())
    for rings, chunk, added in phases:
        times, rights = rings.shape[1] - 1, np.roll(rings, -1, axis=1)
        sent = topology.durations(rings.ravel(), rights.ravel(), chunk).reshape(rings.shape)
        work = added * reduction * chunk * topology.factors()[rings]
        needed = times * (np.maximum(sent, np.roll(sent, 1, axis=1)) + work)
        least[rings] += needed
        most += float(needed.max())
        rounds.append((rings, times, sent, work))
    if least.max() >= most * (1 - 1e-12):
        return float(least.max())
    for rings, times, sent, work in rounds:
        time[rings] = _ring_rounds(time[rings], times, sent, work)
    return float(time.max())


def _ring_rounds(time: Array, times: int, sent: Array, work: Array) -> Array:
    """The clocks after so many rounds. In place and without a copy: a round of 16,384 is 20 µs."""
    rows, ranks = time.shape
    clock, ends = np.empty((rows, ranks + 1)), np.empty((rows, ranks + 1))
    mine, right = clock[:, :-1], clock[:, 1:]  # one more at the end: the first again
    end, left = ends[:, 1:], ends[:, :-1]  # one more at the beginning: the last again
    mine[:] = time
    for _ in range(times):
        right[:, -1] = mine[:, 0]
        np.maximum(mine, right, out=end)
        end += sent
        left[:, 0] = end[:, -1]
        np.maximum(end, left, out=mine)
        mine += work
    return mine
