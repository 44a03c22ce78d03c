"""Closed forms of what a program costs when all links are alike: α a message, β = 1/B a byte.

>>> print(formula("ring_all_reduce"))
2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ
>>> terms("ring_all_reduce", 4)
Terms(messages=6, bytes=1.5, added=0.75)

P ranks, S bytes in each buffer, latency α, bandwidth B, and γ seconds to add in a byte. A rank
sends one message and receives one at a time. Every form is exact for our programs when the chunks
are even (tests hold them against traces); that of the double binary tree is an upper bound, and
`cost` simulates it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from labkit.collectives.quantities import is_whole
from labkit.kinds import LabError

__all__ = [
    "FORMULAS",
    "Formula",
    "Terms",
    "formula",
    "name_of",
    "options_of",
    "terms",
    "whole_ranks",
]


class Terms(NamedTuple):
    """T = messages·α + bytes·S/B + added·S·γ: the longest chain, and shares of the buffer."""

    messages: float
    bytes: float
    added: float

    def seconds(
        self, nbytes: float, latency: float, bandwidth: float, reduction: float = 0.0
    ) -> float:
        """The time for buffers of `nbytes`."""
        return (
            self.messages * latency
            + self.bytes * nbytes / bandwidth
            + self.added * nbytes * reduction
        )


@dataclass(frozen=True)
class Formula:
    """The closed form of one program, in words that a lecture can show, and where it is from."""

    name: str
    text: str
    source: str
    options: tuple[str, ...]
    exact: bool
    terms: Callable[..., Terms]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{self.name}: T {'=' if self.exact else '≤'} {self.text}"


def formula(program: str | Callable[..., Any]) -> Formula:
    """The closed form of a program, by its name or by the function itself."""
    name = name_of(program)
    if name not in FORMULAS:
        raise LabError(
            f"There is no formula for {name!r}. There is one for: {', '.join(FORMULAS)}. "
            "Any other program can be run and priced: collectives.run(…).cost(…)."
        )
    return FORMULAS[name]


def terms(program: str | Callable[..., Any], ranks: int, **options: Any) -> Terms:
    """The three numbers of the closed form for so many ranks."""
    form = formula(program)
    return form.terms(whole_ranks(ranks), **options_of(form, options))


def whole_ranks(ranks: int) -> int:
    """The number of ranks, also when numpy has counted them."""
    if not is_whole(ranks) or ranks < 1:
        raise LabError(f"ranks={ranks!r} is no number of ranks. Give ranks=1 or more.")
    return int(ranks)


def name_of(program: str | Callable[..., Any]) -> str:
    """A program's name; the function may stand for it."""
    return program if isinstance(program, str) else str(getattr(program, "__name__", program))


def options_of(form: Formula, options: dict[str, Any]) -> dict[str, Any]:
    """The options that change a cost. Any may name the reduction: it does not."""
    known = {*form.options, "op"}
    for name, value in options.items():
        if name not in known:
            has = f"Its options are: {', '.join(form.options)}." if form.options else "It has none."
            raise LabError(f"{form.name} has no option {name!r} that changes its cost. {has}")
        least = 0 if name == "root" else 1
        if name != "op" and (not is_whole(value) or value < least):
            raise LabError(f"{name}={value!r} cannot be. Give {name}={least} or more.")
    return {name: int(value) for name, value in options.items() if name != "op"}


def _levels(ranks: int) -> int:
    """How often a group must double to hold all ranks: log2 P, rounded up."""
    return (ranks - 1).bit_length()


def _core(ranks: int) -> int:
    """The largest power of two that is not above the number of ranks."""
    return int(1 << (ranks.bit_length() - 1))


def _folded(ranks: int, core: int, inner: Terms) -> Terms:
    """Ranks beyond the core hand everything in first, and get everything back at the end."""
    if ranks == core:
        return inner
    return Terms(inner.messages + 2, inner.bytes + 2, inner.added + 1)


def _star(ranks: int, root: int = 0) -> Terms:
    return Terms(ranks - 1, ranks - 1, 0)


def _tree(ranks: int, root: int = 0) -> Terms:
    return Terms(_levels(ranks), _levels(ranks), 0)


def _tree_up(ranks: int, root: int = 0) -> Terms:
    return Terms(_levels(ranks), _levels(ranks), _levels(ranks))


def _chunks(ranks: int, root: int = 0) -> Terms:
    return Terms(ranks - 1, (ranks - 1) / ranks, 0)


def _ring_up(ranks: int) -> Terms:
    return Terms(ranks - 1, (ranks - 1) / ranks, (ranks - 1) / ranks)


def _naive(ranks: int) -> Terms:
    return Terms(2 * (ranks - 1), 2 * (ranks - 1), ranks - 1)


def _both_ways(ranks: int) -> Terms:
    return Terms(2 * (ranks - 1), 2 * (ranks - 1) / ranks, (ranks - 1) / ranks)


def _tree_all(ranks: int) -> Terms:
    return Terms(2 * _levels(ranks), 2 * _levels(ranks), _levels(ranks))


def _doubling(ranks: int) -> Terms:
    steps = _levels(_core(ranks))
    return _folded(ranks, _core(ranks), Terms(steps, steps, steps))


def _rabenseifner(ranks: int) -> Terms:
    core = _core(ranks)
    share = (core - 1) / core
    return _folded(ranks, core, Terms(2 * _levels(core), 2 * share, share))


def _two_levels(ranks: int, per_node: int = 2) -> Terms:
    per_node = min(per_node, ranks)
    nodes = ranks // per_node
    inside, across = (per_node - 1) / per_node, (nodes - 1) / nodes / per_node
    inner = Terms(2 * (per_node - 1 + nodes - 1), 2 * (inside + across), inside + across)
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

FORMULAS: dict[str, Formula] = {
    form.name: form
    for form in (
        Formula("broadcast", f"{_L}·(α + S/B)", _TREE, ("root",), True, _tree),
        Formula("naive_broadcast", "(P-1)·(α + S/B)", _COUNTED, ("root",), True, _star),
        Formula("reduce", f"{_L}·(α + S/B + S·γ)", _TREE, ("root",), True, _tree_up),
        Formula("scatter", "(P-1)·α + (P-1)/P·S/B", _COUNTED, ("root",), True, _chunks),
        Formula("gather", "(P-1)·α + (P-1)/P·S/B", _COUNTED, ("root",), True, _chunks),
        Formula("all_gather", "(P-1)·α + (P-1)/P·S/B", _RING, (), True, _chunks),
        Formula(
            "reduce_scatter", "(P-1)·α + (P-1)/P·S/B + (P-1)/P·S·γ", _RING, (), True, _ring_up
        ),
        Formula("all_to_all", "(P-1)·α + (P-1)/P·S/B", _THAKUR, (), True, _chunks),
        Formula(
            "barrier", f"{_L}·α", "Hensgen, Finkel, Manber (1988), Two algorithms for barrier "
            "synchronization", (), True, lambda ranks: Terms(_levels(ranks), 0, 0),
        ),
        Formula("naive_all_reduce", "2(P-1)·(α + S/B) + (P-1)·S·γ", _COUNTED, (), True, _naive),
        Formula(
            "parameter_server_all_reduce", "2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ", _COUNTED,
            (), True, _both_ways,
        ),
        Formula(
            "tree_all_reduce", f"2{_L}·(α + S/B) + {_L}·S·γ", _TREE, (), True, _tree_all
        ),
        Formula(
            "recursive_doubling_all_reduce", f"log2 P·(α + S/B + S·γ){_FOLD}", _THAKUR, (), True,
            _doubling,
        ),
        Formula(
            "rabenseifner_all_reduce",
            f"2 log2 P·α + 2(P-1)/P·S/B + (P-1)/P·S·γ{_FOLD}", _THAKUR, (), True, _rabenseifner,
        ),
        Formula(
            "ring_all_reduce", "2(P-1)·α + 2(P-1)/P·S/B + (P-1)/P·S·γ", _RING, (), True,
            _both_ways,
        ),
        Formula(
            "hierarchical_all_reduce",
            "2(g-1 + N-1)·α + 2((g-1)/g + (N-1)/(N·g))·S/B + ((g-1)/g + (N-1)/(N·g))·S·γ "
            "with g ranks in each of N nodes, the ring's formula inside, then across; an "
            "incomplete node adds 2α + 2·S/B + S·γ",
            _COUNTED, ("per_node",), True, _two_levels,
        ),
        Formula(
            "double_binary_tree_all_reduce",
            f"(4{_L} + 6k - 8)·(α + S/(2k·B)) + (2{_L} + 2k - 3)·S·γ/(2k) in k pieces",
            "Sanders, Speck, Träff (2009), Two-tree algorithms for full bandwidth broadcast, "
            "reduction and scan; the bound is ours, counted from the program",
            ("pieces",), False, _two_trees,
        ),
    )
}  # fmt: skip
