"""What our programs cost: closed forms where all links are alike, and rings in numpy.

>>> print(formula("ring_all_reduce"))
2(P-1)·α + 2(P-1)/P·S/B
>>> formula("ring_all_reduce").terms(4)
Terms(messages=6, bytes=1.5)

P ranks, S bytes in each buffer, latency α, bandwidth B. A rank sends one message and receives one
at a time; adding up costs no time. Every form is exact when the chunks are even. The double binary
tree has none.

Trees, doubling and halving: Thakur, Rabenseifner, Gropp (2005), Optimization of collective
communication operations in MPICH. Rings: Patarasuk, Yuan (2009), Bandwidth optimal all-reduce
algorithms for clusters of workstations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from labkit.arguments import whole
from labkit.collectives import programs
from labkit.collectives.records import Array
from labkit.collectives.topology import Topology
from labkit.kinds import LabError

Program: TypeAlias = str | Callable[..., Any]


class Terms(NamedTuple):
    """T = messages·α + bytes·S/B: messages of the longest chain, and their share of the buffer."""

    messages: float
    bytes: float


@dataclass(frozen=True)
class Formula:
    """The closed form of one program; `terms(ranks, **options)` are its two numbers."""

    text: str
    terms: Callable[..., Terms]

    def __str__(self) -> str:
        return self.text


def formula(program: Program) -> Formula:
    """Returns the closed form of one of our programs, by its name or by the function itself."""
    name, _ = find_program(program)
    if name not in FORMULAS:
        raise LabError(
            f"There is no formula for {name}. There is one for: {', '.join(FORMULAS)}. "
            "collectives.cost runs any other program: give it the function."
        )
    return FORMULAS[name]


def find_program(program: Program) -> tuple[str, Callable[..., Any]]:
    """Returns the name and the function of a program; "your …" if one of ours has its name."""
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
    """Returns how often a group must double to hold all ranks: log2 P, rounded up."""
    return (ranks - 1).bit_length()


def core_of(ranks: int) -> int:
    """Returns the largest power of two that is not above the number of ranks."""
    return 1 << (ranks.bit_length() - 1)


def _tree(ranks: int) -> Terms:
    return Terms(_levels(ranks), _levels(ranks))


def _star(ranks: int) -> Terms:
    return Terms(ranks - 1, ranks - 1)


def _chunks(ranks: int) -> Terms:
    return Terms(ranks - 1, (ranks - 1) / ranks)


def _twice(terms: Terms) -> Terms:
    return Terms(2 * terms.messages, 2 * terms.bytes)


def _folded(ranks: int, core: int, inner: Terms) -> Terms:
    """Ranks beyond the core send everything in first, and get everything back at the end."""
    return inner if ranks == core else Terms(inner.messages + 2, inner.bytes + 2)


def _doubling(ranks: int) -> Terms:
    core = core_of(ranks)
    return _folded(ranks, core, _tree(core))


def _rabenseifner(ranks: int) -> Terms:
    core = core_of(ranks)
    return _folded(ranks, core, Terms(2 * _levels(core), 2 * (core - 1) / core))


def _two_levels(ranks: int, per_node: int = 2) -> Terms:
    per_node = min(whole("per_node", per_node, at_least=1), ranks)
    nodes = ranks // per_node
    share = (per_node - 1) / per_node + (nodes - 1) / nodes / per_node
    return _folded(ranks, nodes * per_node, Terms(2 * (per_node + nodes - 2), 2 * share))


_L = "⌈log2 P⌉"
_FOLD = "; unless P is a power of two, P is 2^⌊log2 P⌋ and 2α + 2·S/B are added"
_IN_CHUNKS = Formula("(P-1)·α + (P-1)/P·S/B", _chunks)
_ONE_WAY = ("scatter", "gather", "all_gather", "reduce_scatter", "all_to_all")
_BOTH_WAYS = Formula("2(P-1)·α + 2(P-1)/P·S/B", lambda ranks: _twice(_chunks(ranks)))

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(_ONE_WAY, _IN_CHUNKS),
    **dict.fromkeys(("ring_all_reduce", "parameter_server_all_reduce"), _BOTH_WAYS),
    **dict.fromkeys(("broadcast", "reduce"), Formula(f"{_L}·(α + S/B)", _tree)),
    "tree_all_reduce": Formula(f"2{_L}·(α + S/B)", lambda ranks: _twice(_tree(ranks))),
    "barrier": Formula(f"{_L}·α", lambda ranks: Terms(_levels(ranks), 0)),
    "naive_broadcast": Formula("(P-1)·(α + S/B)", _star),
    "naive_all_reduce": Formula("2(P-1)·(α + S/B)", lambda ranks: _twice(_star(ranks))),
    "recursive_doubling_all_reduce": Formula(f"log2 P·(α + S/B){_FOLD}", _doubling),
    "rabenseifner_all_reduce": Formula(f"2 log2 P·α + 2(P-1)/P·S/B{_FOLD}", _rabenseifner),
    "hierarchical_all_reduce": Formula(
        "2(g-1 + N-1)·α + 2((g-1)/g + (N-1)/(N·g))·S/B with g ranks in each of N nodes; an "
        "incomplete node adds 2α + 2·S/B", _two_levels,
    ),
}  # fmt: skip

# Rings on many thousand ranks. In a round every rank sends to its right neighbour; ranks do not
# wait for one another between rounds, only for the messages of their own. With `time` as the vector
# of the ranks' clocks, a round gives
#     end = max(time, time of the right) + duration,  time = max(end, end of the left)


class Phase(NamedTuple):
    """Rings that run side by side, one a row: their ranks, the bytes of a chunk, and rounds."""

    rings: Array
    chunk: float
    rounds: int


# How often every chunk goes round.
RINGS = {"all_gather": 1, "reduce_scatter": 1, "ring_all_reduce": 2}


def ring_phases(
    name: str, ranks: int, nbytes: float, per_node: int = 2, **_: object
) -> list[Phase] | None:
    """Returns the rings of a program, one phase after the other, or None if it has none."""
    everyone = np.arange(ranks)
    per_node = whole("per_node", per_node, at_least=1)
    if name in RINGS:
        return [Phase(everyone.reshape(1, -1), nbytes / ranks, RINGS[name] * (ranks - 1))]
    per_node = min(per_node, ranks)
    if name != "hierarchical_all_reduce" or ranks % per_node:
        return None
    nodes = everyone.reshape(-1, per_node)
    inside = Phase(nodes, nbytes / per_node, per_node - 1)
    between = Phase(nodes.T, nbytes / ranks, 2 * (len(nodes) - 1))
    return [inside, between, inside]


def ring_seconds(phases: list[Phase], topology: Topology) -> float:
    """Returns the seconds until the last rank of the rings is done, on any links."""
    sent = []
    for rings, chunk, _ in phases:
        rights = np.roll(rings, -1, axis=1)
        seconds = topology.durations(rings.ravel(), rights.ravel(), chunk)
        sent.append(seconds.reshape(rings.shape))
    # No clock can advance in a round by more than the slowest rank of that round needs: a rank that
    # is slowest in every round is the critical path, and its sum is the answer.
    time = topology.starts()
    least, most = time.copy(), float(time.max())
    for (rings, _, rounds), seconds in zip(phases, sent, strict=True):
        needed = rounds * np.maximum(seconds, np.roll(seconds, 1, axis=1))
        least[rings] += needed
        most += float(needed.max())
    if least.max() >= most * (1 - 1e-12):
        return float(least.max())
    for (rings, _, rounds), seconds in zip(phases, sent, strict=True):
        time[rings] = _ring_rounds(time[rings], rounds, seconds)
    return float(time.max())


def _ring_rounds(time: Array, rounds: int, sent: Array) -> Array:
    """Returns the clocks [ring, rank] after so many rounds; 16,384 ranks take 16 µs a round."""
    rows, ranks = time.shape
    clock, ends = np.empty((rows, ranks + 1)), np.empty((rows, ranks + 1))
    mine, right = clock[:, :-1], clock[:, 1:]  # one more at the end: the first again
    end, left = ends[:, 1:], ends[:, :-1]  # one more at the beginning: the last again
    mine[:] = time
    for _ in range(rounds):
        right[:, -1] = mine[:, 0]
        np.maximum(mine, right, out=end)
        end += sent
        left[:, 0] = end[:, -1]
        np.maximum(end, left, out=mine)
    return mine
