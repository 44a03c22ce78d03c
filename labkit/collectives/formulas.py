"""Closed forms of what our programs cost when all links are alike: α a message, β = 1/B a byte.

>>> print(formula("ring_all_reduce"))
2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ
>>> terms("ring_all_reduce", 4)
Terms(messages=6, bytes=1.5, added=0.75)

P ranks, S bytes in each buffer, latency α, bandwidth B, and γ seconds to add in a byte. A rank
sends one message and receives one at a time. Every form is exact when the chunks are even (tests
hold them against traces); that of the double binary tree is an upper bound.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from labkit.arguments import one_of, whole
from labkit.collectives import programs as our_programs
from labkit.kinds import LabError

__all__ = [
    "FORMULAS",
    "Formula",
    "Program",
    "Terms",
    "core_of",
    "formula",
    "program_name",
    "settings_of",
    "terms",
]

Program: TypeAlias = str | Callable[..., Any]


class Terms(NamedTuple):
    """T = messages·α + bytes·S/B + added·S·γ: the longest chain, and shares of the buffer."""

    messages: float
    bytes: float
    added: float

    def seconds(
        self, nbytes: float, latency: float, bandwidth: float, reduction: float = 0.0
    ) -> float:
        """The time for buffers of `nbytes`."""
        sent, added = self.bytes * nbytes, self.added * nbytes
        return self.messages * latency + sent / bandwidth + added * reduction


@dataclass(frozen=True)
class Formula:
    """The closed form of one program, exact for even chunks or an upper bound, and its source."""

    name: str
    text: str
    source: str
    terms: Callable[..., Terms]
    exact: bool = True

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the program that change its cost."""
        return tuple(inspect.signature(self.terms).parameters)[1:]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.name}: T {'=' if self.exact else '≤'} {self.text}"


def formula(program: Program) -> Formula:
    """The closed form of one of our programs, by its name or by the function itself."""
    name = program_name(program)
    if name not in FORMULAS:
        raise LabError(
            f"There is no formula for {name!r}. There is one for: {', '.join(FORMULAS)}. "
            "collectives.cost runs any other program: give it the function."
        )
    return FORMULAS[name]


def terms(program: Program, ranks: int, **options: Any) -> Terms:
    """The three numbers of the closed form for so many ranks."""
    form = formula(program)
    return form.terms(whole("ranks", ranks, at_least=1), **settings_of(form, options))


def program_name(program: Program) -> str:
    """The name of a program; a function of your own may be called like one of ours."""
    if isinstance(program, str):
        return program
    name = str(getattr(getattr(program, "func", program), "__name__", program))
    ours = name not in FORMULAS or getattr(our_programs, name) is program
    return name if ours else f"your {name}"


def settings_of(form: Formula, options: dict[str, Any]) -> dict[str, int]:
    """The options that change a cost. The reduction does not: any may be named."""
    for name in options:
        one_of(f"option of {form.name}", name, (*form.options, "op"))
    return {
        name: whole(name, value, at_least=0 if name == "root" else 1)
        for name, value in options.items()
        if name != "op"
    }


def _levels(ranks: int) -> int:
    """How often a group must double to hold all ranks: log2 P, rounded up."""
    return (ranks - 1).bit_length()


def core_of(ranks: int) -> int:
    """The largest power of two that is not above the number of ranks."""
    return int(1 << (ranks.bit_length() - 1))


def _folded(ranks: int, core: int, inner: Terms) -> Terms:
    """Ranks beyond the core hand everything in first, and get everything back at the end."""
    if ranks == core:
        return inner
    return Terms(inner.messages + 2, inner.bytes + 2, inner.added + 1)


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


def _two_trees(ranks: int, pieces: int = 4) -> Terms:
    if ranks == 1:
        return Terms(0, 0, 0)
    # Up and down the tree for the first piece; each of the others follows six messages behind,
    # for a rank receives two and sends one inside a tree, and as many again on the way down.
    steps, sums = 4 * _levels(ranks) + 6 * pieces - 8, 2 * _levels(ranks) + 2 * pieces - 3
    return Terms(steps, steps / (2 * pieces), sums / (2 * pieces))


_THAKUR = (
    "Thakur, Rabenseifner, Gropp (2005), Optimization of collective communication operations in "
    "MPICH"
)
_COUNTED = "counted from the program: each step is one message"
_TREE = "binomial tree, " + _THAKUR
_RING = (
    "Patarasuk, Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations; "
    "nccl-tests, doc/PERFORMANCE.md"
)
_L, _C = "⌈log2 P⌉", "2^⌊log2 P⌋"
_FOLD = f"; unless P is a power of two, P is {_C} and 2α + 2·S/B + S·γ are added"
_CHUNKS = "(P-1)·α + (P-1)/P·S/B"
_BOTH_WAYS = "2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ"


def _chunks(ranks: int) -> Terms:
    return Terms(ranks - 1, (ranks - 1) / ranks, 0)


def _both_ways(ranks: int) -> Terms:
    share = (ranks - 1) / ranks
    return Terms(2 * (ranks - 1), 2 * share, share)


FORMULAS: dict[str, Formula] = {
    form.name: form
    for form in (
        Formula(
            "broadcast", f"{_L}·(α + S/B)", _TREE,
            lambda ranks, root=0: Terms(_levels(ranks), _levels(ranks), 0),
        ),
        Formula(
            "naive_broadcast", "(P-1)·(α + S/B)", _COUNTED,
            lambda ranks, root=0: Terms(ranks - 1, ranks - 1, 0),
        ),
        Formula(
            "reduce", f"{_L}·(α + S/B + S·γ)", _TREE,
            lambda ranks, root=0: Terms(*[_levels(ranks)] * 3),
        ),
        Formula("scatter", _CHUNKS, _COUNTED, lambda ranks, root=0: _chunks(ranks)),
        Formula("gather", _CHUNKS, _COUNTED, lambda ranks, root=0: _chunks(ranks)),
        Formula("all_gather", _CHUNKS, _RING, _chunks),
        Formula(
            "reduce_scatter", f"{_CHUNKS} + (P-1)/P·S·γ", _RING,
            lambda ranks: _chunks(ranks)._replace(added=(ranks - 1) / ranks),
        ),
        Formula("all_to_all", _CHUNKS, _THAKUR, _chunks),
        Formula(
            "barrier", f"{_L}·α", "Hensgen, Finkel, Manber (1988), Two algorithms for barrier "
            "synchronization", lambda ranks: Terms(_levels(ranks), 0, 0),
        ),
        Formula(
            "naive_all_reduce", "2(P-1)·(α + S/B) + (P-1)·S·γ", _COUNTED,
            lambda ranks: Terms(2 * (ranks - 1), 2 * (ranks - 1), ranks - 1),
        ),
        Formula("parameter_server_all_reduce", _BOTH_WAYS, _COUNTED, _both_ways),
        Formula(
            "tree_all_reduce", f"2{_L}·(α + S/B) + {_L}·S·γ", _TREE,
            lambda ranks: Terms(2 * _levels(ranks), 2 * _levels(ranks), _levels(ranks)),
        ),
        Formula(
            "recursive_doubling_all_reduce", f"log2 P·(α + S/B + S·γ){_FOLD}", _THAKUR, _doubling
        ),
        Formula(
            "rabenseifner_all_reduce", f"2 log2 P·α + 2(P-1)/P·S/B + (P-1)/P·S·γ{_FOLD}", _THAKUR,
            _rabenseifner,
        ),
        Formula("ring_all_reduce", _BOTH_WAYS, _RING, _both_ways),
        Formula(
            "hierarchical_all_reduce",
            "2(g-1 + N-1)·α + 2((g-1)/g + (N-1)/(N·g))·S/B + ((g-1)/g + (N-1)/(N·g))·S·γ "
            "with g ranks in each of N nodes, the ring's formula inside, then across; an "
            "incomplete node adds 2α + 2·S/B + S·γ",
            _COUNTED, _two_levels,
        ),
        Formula(
            "double_binary_tree_all_reduce",
            f"(4{_L} + 6k - 8)·(α + S/(2k·B)) + (2{_L} + 2k - 3)·S·γ/(2k) in k pieces",
            "Sanders, Speck, Träff (2009), Two-tree algorithms for full bandwidth broadcast, "
            "reduction and scan; the bound is ours, counted from the program",
            _two_trees, exact=False,
        ),
    )
}  # fmt: skip
