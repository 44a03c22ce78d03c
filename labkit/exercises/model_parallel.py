"""Judges of programs in which every rank holds a piece of a layer, an image or a training step.

What a rank returns is compared, piece by piece, with the serial program. A piece is a sum of
contributions, so a wrong one shows which of them are missing or counted twice:

>>> Piece("dx", {"rank 0": np.eye(2), "rank 1": np.ones((2, 2))}).fault(np.eye(2))
'dx is wrong: the contribution of rank 1 is missing.'
"""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit import collectives
from labkit.exercises.judges import check_callable, has_blanks, raised, stopped
from labkit.exercises.task import Unanswered, Wrong
from labkit.kinds import LabError, bytes_text

__all__ = [
    "attention_heads", "backward", "column_parallel", "on_ranks", "row_parallel",
    "sequence_parallel",
]  # fmt: skip

Array: TypeAlias = npt.NDArray[Any]
CLOSE = 1e-6  # of the largest number of a piece
TIME_LIMIT = 10.0  # seconds of one run
RANKS = (2, 3, 4, 1)
ALL_REDUCE = "Each rank has computed its part of a sum: all-reduce it."
SKIP = "It is dy itself plus the sum of all ranks' parts: all-reduce the parts only."
OWN = "It is the gradient of this rank's own weights: it needs no communication."


@dataclass(frozen=True)
class Piece:
    """An array that a rank must return: the sum of the contributions that are `wanted`, or of all.

    `labels` are words for the rows of its first axis.
    """

    name: str
    parts: Mapping[str, Array]
    wanted: tuple[str, ...] | None = None
    labels: Sequence[str] = ()
    advice: str = ""

    def fault(self, found: Any) -> str:
        """What is wrong with an array, or nothing."""
        wanted = tuple(self.parts) if self.wanted is None else self.wanted
        right = sum((self.parts[who] for who in wanted[1:]), start=self.parts[wanted[0]])
        try:
            array = np.asarray(found, dtype=float)
        except (TypeError, ValueError):
            return f"{self.name} must be an array, and is {reprlib.repr(found)}."
        if array.shape != right.shape:
            return f"{self.name} has the shape {array.shape}; this rank's has {right.shape}."
        near = np.abs(array - right) <= CLOSE * np.abs(right).max()  # false for NaN
        wrong = np.flatnonzero(~near.reshape(len(near), -1).all(axis=1))
        if not wrong.size:
            return ""
        rows = ""
        if wrong.size < len(right) or self.labels:
            labels = self.labels or [f"row {row}" for row in range(len(right))]
            rows = f" in {_listed([labels[int(row)] for row in wrong])}"
        parts = {who: part[wrong].ravel() for who, part in self.parts.items()}
        reason = _reason(array[wrong].ravel(), parts, wanted)
        return f"{self.name} is wrong{rows}: {reason}. {self.advice}".strip()


def _reason(found: Array, parts: dict[str, Array], wanted: Sequence[str]) -> str:
    """Which contributions are missing, counted twice, or do not belong in these numbers."""
    if not np.isfinite(found).all():
        return "it holds numbers that are not finite"
    parts = {who: part for who, part in parts.items() if part.any()}
    if not parts:
        return "it must be 0 there"
    matrix = np.stack(list(parts.values()), axis=1)
    factors = np.linalg.lstsq(matrix, found)[0].round(3)
    off = np.abs(matrix @ factors - found).max()
    if off > 1e-3 * np.abs(matrix).max():
        return "the numbers are not those of the serial program"
    times = {who: float(factor) for who, factor in zip(parts, factors, strict=True)}
    inside = {factor for who, factor in times.items() if who in wanted}
    foreign = [who for who, factor in times.items() if who not in wanted and factor]
    if len(inside) == 1 and inside != {0.0} and not foreign:
        factor = inside.pop()
        size = f"{factor:g} times too large" if factor > 1 else f"{1 / factor:g} times too small"
        return f"it is {size}"
    reasons = []
    if missing := [who for who, factor in times.items() if who in wanted and not factor]:
        reasons.append(f"{_contributions(missing)} missing")
    reasons += [
        f"the contribution of {who} counts {factor:g} times"
        for who, factor in times.items()
        if who in wanted and factor not in (0.0, 1.0)
    ]
    if foreign:
        reasons.append(f"{_contributions(foreign)} in it, and must not be")
    return ", and ".join(reasons)


def _contributions(who: Sequence[str]) -> str:
    return f"the contribution{'s' * (len(who) > 1)} of {_listed(who)} {'are' if who[1:] else 'is'}"


def _listed(words: Sequence[str]) -> str:
    if len(words) > 4:
        return f"{words[0]}, {words[1]} … {words[-1]}"
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


@dataclass(frozen=True)
class Case:
    """One run: what each rank is given after `comm`, and what it must return."""

    ranks: int
    arguments: Callable[[int], Sequence[Any]]
    pieces: Callable[[int], Sequence[Piece]]
    most_bytes: float = np.inf  # that a rank may send
    enough: str = ""  # how these are enough


def on_ranks(case: Callable[..., Case], cases: Iterable[Any] = RANKS) -> Callable[[Any], None]:
    """The judge of a program of (comm, …) that must return its pieces in each of these cases."""

    def judge(answer: Any) -> None:
        check_callable(answer)
        with stopped(6 * TIME_LIMIT):
            for one in cases:
                _prove(answer, case(*one) if isinstance(one, tuple) else case(one))

    return judge


def _prove(answer: Callable[..., Any], case: Case) -> None:
    on = f"On {case.ranks} rank{'s' * (case.ranks > 1)}"
    trace, returned = _run(answer, case, on)
    for rank, result in enumerate(returned):
        expected = case.pieces(rank)
        results = _flat(result)
        if len(results) != len(expected):
            names = ", ".join(one.name for one in expected)
            raise Wrong(f"{on}, rank {rank} returned {reprlib.repr(result)}: return {names}.")
        if any(one is ... for one in results):
            raise Unanswered
        for number, (one, found) in enumerate(zip(expected, results, strict=True)):
            if text := one.fault(found):
                others = [each for each in range(case.ranks) if each != rank]
                whose = [each for each in others if not case.pieces(each)[number].fault(found)]
                text = f"{one.name} is that of rank {whose[0]}." if whose else text
                raise Wrong(f"{on}, rank {rank}'s {text}")
    if (most := max(trace.bytes_sent)) > case.most_bytes:
        enough = f"{bytes_text(case.most_bytes)} are enough{case.enough}"
        raise Wrong(f"It is correct. But {on.lower()} one sends {bytes_text(most)}; {enough}.")


def _flat(result: Any) -> list[Any]:
    """What a rank returned: an array, or several, some of them in a list."""
    many = isinstance(result, (tuple, list))
    return [one for each in result for one in _flat(each)] if many else [result]


def _run(answer: Callable[..., Any], case: Case, on: str) -> tuple[collectives.Trace, list[Any]]:
    """The run, and what each rank returned."""
    returned: list[Any] = [None] * case.ranks

    def program(comm: Any, buffer: Array) -> None:
        rank = comm.Get_rank()
        try:
            returned[rank] = answer(comm, *copy.deepcopy(case.arguments(rank)))
        except LabError:
            raise
        except (Exception, SystemExit) as fault:
            raise Wrong(f"rank {rank} raised {raised(fault, answer)}") from fault

    try:
        trace = collectives.run(program, ranks=case.ranks, timeout=TIME_LIMIT)
    except LabError as fault:
        if fault.__cause__ is not None and has_blanks(answer):
            raise Unanswered from None
        raise Wrong(f"{on}: {fault}") from None
    if all(result is None for result in returned) and has_blanks(answer):
        raise Unanswered
    return trace, returned


def _numbers(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


def _by_rank(ranks: int, part: Callable[[int], Array]) -> dict[str, Array]:
    return {f"rank {rank}": part(rank) for rank in range(ranks)}


# Lecture 19: a layer on several ranks.


def column_parallel(ranks: int) -> Case:
    """(comm, x, w, dy) → y, dx, dw of a linear layer whose columns are sharded."""
    x, whole, whole_dy = _numbers(ranks, (5, 7), (7, 12), (5, 12))
    w, dy = np.split(whole, ranks, axis=1), np.split(whole_dy, ranks, axis=1)
    dx = _by_rank(ranks, lambda rank: dy[rank] @ w[rank].T)
    dw = _by_rank(ranks, lambda rank: x.T @ dy[rank])

    def pieces(rank: int) -> list[Piece]:
        y = Piece("y", {f"rank {rank}": x @ w[rank]}, advice="It is x @ w, of this rank's columns.")
        own = Piece("dw", dw, (f"rank {rank}",), advice=OWN)
        return [y, Piece("dx", dx, advice=ALL_REDUCE), own]

    return Case(ranks, lambda rank: (x, w[rank], dy[rank]), pieces)


def row_parallel(ranks: int) -> Case:
    """(comm, x, w, dy) → y, dx, dw of a linear layer whose rows are sharded, as x's columns are."""
    whole_x, whole, dy = _numbers(ranks, (5, 12), (12, 7), (5, 7))
    x, w = np.split(whole_x, ranks, axis=1), np.split(whole, ranks)
    y = _by_rank(ranks, lambda rank: x[rank] @ w[rank])
    dx = _by_rank(ranks, lambda rank: dy @ w[rank].T)
    dw = _by_rank(ranks, lambda rank: x[rank].T @ dy)

    def pieces(rank: int) -> list[Piece]:
        mine = (f"rank {rank}",)
        of_x = Piece("dx", dx, mine, advice="It belongs to this rank's own columns of x.")
        return [Piece("y", y, advice=ALL_REDUCE), of_x, Piece("dw", dw, mine, advice=OWN)]

    return Case(ranks, lambda rank: (x[rank], w[rank], dy), pieces)


def attention_heads(ranks: int, heads: int) -> Case:
    """(comm, qkv, heads) → the rows of this rank's heads: first of q, then of k, then of v."""
    qkv = _numbers(ranks, (3, heads, 2, 4))[0]

    def pieces(rank: int) -> list[Piece]:
        mine = np.split(np.arange(heads), ranks)[rank]
        labels = [
            f"a row of {kind} of head {head}" for kind in "qkv" for head in mine for _ in "12"
        ]
        shard = qkv[:, mine].reshape(-1, 4)
        return [Piece("shard", {f"rank {rank}": shard}, labels=labels)]

    return Case(ranks, lambda rank: (qkv.reshape(-1, 4), heads), pieces)


def backward(ranks: int) -> Case:
    """(comm, dy, blocks) → dx and the gradients of layers x = x + all_reduce(block(x)).

    Each of `blocks` is a backward pass, dy → this rank's part of dx, gradient of its weights.
    """
    shape, layers = (5, 6), 3
    dy, *numbers = _numbers(ranks, shape, *[(ranks, 6, 6), (ranks, *shape)] * layers)
    into, inputs = numbers[::2], numbers[1::2]  # of each layer and rank
    given = [dy]  # to the backward pass of each layer, the last layer first
    for layer in reversed(range(layers)):
        given.append(given[-1] + (given[-1] @ into[layer]).sum(axis=0))
    given.reverse()

    def sums(name: str, layer: int) -> Piece:
        after = given[layer + 1]
        parts = _by_rank(ranks, lambda rank: after @ into[layer][rank])
        return Piece(name, {"dy itself": after, **parts}, advice=SKIP)

    def arguments(rank: int) -> tuple[Any, ...]:
        def make(layer: int) -> Callable[[Array], tuple[Array, Array]]:
            def block(grad: Array) -> tuple[Array, Array]:
                name = f"argument of blocks[{layer}]"
                last = Piece(name, {"dy": dy}, advice="The last block comes first, with dy.")
                expected = last if layer + 1 == layers else sums(name, layer + 1)
                if fault := expected.fault(grad):
                    raise Wrong(f"rank {rank}'s {fault}")
                return grad @ into[layer][rank], inputs[layer][rank].T @ grad

            return block

        return dy, [make(layer) for layer in range(layers)]

    def pieces(rank: int) -> list[Piece]:
        return [
            sums("dx", 0),
            *(
                Piece(f"gradients[{layer}]", {"it": inputs[layer][rank].T @ given[layer + 1]})
                for layer in range(layers)
            ),
        ]

    return Case(ranks, arguments, pieces)


def sequence_parallel(ranks: int) -> Case:
    """(comm, x, block) → this rank's positions of x + (the sum of all ranks' block(whole x))."""
    positions, width = 12, 5
    x, weights = _numbers(ranks, (positions, width), (ranks, width, width))
    shards = np.split(x, ranks)
    size = positions // ranks
    labels = [f"position {number}" for number in range(positions)]

    def arguments(rank: int) -> tuple[Any, ...]:
        def block(whole: Array) -> Array:
            parts = {f"rank {q}": np.zeros_like(x) for q in range(ranks)}
            for q, part in enumerate(parts.values()):
                part[q * size : (q + 1) * size] = shards[q]
            advice = "The block needs all positions in order: all-gather them."
            if fault := Piece("argument of block", parts, labels=labels, advice=advice).fault(
                whole
            ):
                raise Wrong(f"rank {rank}'s {fault}")
            partial: Array = np.cumsum(x, axis=0) @ weights[rank]
            return partial

        return shards[rank], block

    def pieces(rank: int) -> list[Piece]:
        rows = slice(rank * size, (rank + 1) * size)
        sums = _by_rank(ranks, lambda other: (np.cumsum(x, axis=0) @ weights[other])[rows])
        advice = "Sum the partial results over the ranks, and add this rank's own x."
        return [Piece("y", {"x": shards[rank], **sums}, labels=labels[rows], advice=advice)]

    most = 2 * (ranks - 1) / ranks * x.nbytes
    enough = " for an all-gather and a reduce-scatter"
    return Case(ranks, arguments, pieces, most, enough)
