"""Judges of programs in which every rank holds a piece of a layer, an image or a training step.

What a rank returns is compared, piece by piece, with the serial program. A piece is a sum of
contributions, so a wrong one shows which of them are missing or counted twice:

>>> Piece("dx", {"rank 0": np.eye(2), "rank 1": np.ones((2, 2))}).fault(np.eye(2))
'dx is wrong: the contribution of rank 1 is missing.'
"""

from __future__ import annotations

import copy
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit import collectives
from labkit.collectives.records import listed
from labkit.exercises.judges import check_callable, has_blanks, stopped
from labkit.exercises.task import Unanswered, Wrong
from labkit.kinds import LabError, bytes_text

__all__ = [
    "attention_heads", "backward", "check_colors", "column_parallel", "halo", "halo_backward",
    "hybrid_step", "on_ranks", "sequence_parallel",
]  # fmt: skip

Array: TypeAlias = npt.NDArray[Any]
CLOSE = 1e-6  # of the largest number of a piece
TIME_LIMIT = 10.0  # seconds of one run
ALL_REDUCE = "Each rank has computed its part of a sum: all-reduce it."
SKIP = "It is dy itself plus the sum of all ranks' parts: all-reduce the parts only."
MEAN = "Sum it over all micro-batches and replicas, and divide by the number of all their examples."
OWN = "It is the gradient of this rank's own weights: it needs no communication."


@dataclass(frozen=True)
class Piece:
    """An array that a rank must return: the sum of the contributions that are `wanted`, or of all.

    `labels` are words for the rows of its first axis.
    """

    name: str
    parts: Mapping[str, Array]
    wanted: Sequence[str] = ()
    labels: Sequence[str] = ()
    advice: str = ""

    def fault(self, found: Any) -> str:
        """What is wrong with an array, or nothing."""
        wanted = self.wanted or list(self.parts)
        right = np.sum([self.parts[who] for who in wanted], axis=0)
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
        labels = self.labels or ["" if len(wrong) == len(right) else f"row {r}" for r in range(99)]
        rows = [labels[row] for row in wrong.tolist()]
        where = f" in {listed(rows if len(rows) < 5 else [*rows[:2], '…', rows[-1]])}"
        parts = {who: part[wrong].ravel() for who, part in self.parts.items()}
        reason = _reason(array[wrong].ravel(), parts, wanted)
        return f"{self.name} is wrong{where if rows[0] else ''}: {reason}. {self.advice}".strip()


def _reason(found: Array, parts: dict[str, Array], wanted: Sequence[str]) -> str:
    """Which contributions are missing, counted twice, or do not belong in these numbers."""
    parts = {who: part for who, part in parts.items() if part.any()}
    matrix = np.stack([np.zeros_like(found), *parts.values()], axis=1)
    factors = np.linalg.lstsq(matrix, np.nan_to_num(found))[0].round(3)
    if not np.allclose(matrix @ factors, found, atol=1e-3 * np.abs(matrix).max()):
        return "the numbers are not those of the serial program"

    def words(who: str, factor: float) -> str:
        if who not in wanted:
            return "must not be in it"
        return f"counts {factor:g} times" if factor else "is missing"

    times = zip(parts, factors[1:].tolist(), strict=True)
    wrong = [(who, factor) for who, factor in times if factor != (who in wanted)]
    reasons = [f"the contribution of {who} {words(who, factor)}" for who, factor in wrong]
    return ", and ".join(reasons) or "it differs by rounding: keep the dtype of what is given"


@dataclass(frozen=True)
class Case:
    """One run: what each rank is given, and what it must return."""

    ranks: int
    arguments: Callable[[int], Sequence[Any]]  # after the communicator
    pieces: Callable[[int], Sequence[Piece]]
    most_bytes: float = np.inf  # that a rank may send
    communicators: Callable[[Any], Sequence[Any]] = lambda comm: (comm,)


def on_ranks(case: Callable[..., Case], *cases: tuple[int, ...]) -> Callable[[Any], None]:
    """The judge of a program that must return its pieces in each of these cases."""

    def judge(answer: Any) -> None:
        check_callable(answer)
        with stopped(6 * TIME_LIMIT):
            for one in cases or ((2,), (3,), (4,), (1,)):
                _prove(answer, case(*one))

    return judge


def _prove(answer: Callable[..., Any], case: Case) -> None:
    on = f"On {case.ranks} rank{'s' * (case.ranks > 1)}"
    program = Program(answer, case)
    try:
        trace = collectives.run(program, ranks=case.ranks, timeout=TIME_LIMIT)
    except LabError as fault:
        if fault.__cause__ is not None and has_blanks(answer):
            raise Unanswered from None
        raise Wrong(f"{on}: {fault}") from None
    if all(result is None for result in program.returned) and has_blanks(answer):
        raise Unanswered
    for rank, result in enumerate(program.returned):
        expected, results = case.pieces(rank), _flat(result)
        if any(one is ... for one in results):
            raise Unanswered
        if len(results) != len(expected):
            names = ", ".join(one.name for one in expected)
            raise Wrong(f"{on}, rank {rank} returned {reprlib.repr(result)}: return {names}.")
        for number, (one, found) in enumerate(zip(expected, results, strict=True)):
            if text := one.fault(found):
                others = [each for each in range(case.ranks) if each != rank]
                whose = [each for each in others if not case.pieces(each)[number].fault(found)]
                text = f"{one.name} is that of rank {whose[0]}." if whose else text
                raise Wrong(f"{on}, rank {rank}'s {text}")
    if (most := max(trace.bytes_sent)) > case.most_bytes:
        enough = f"{bytes_text(case.most_bytes)} are enough"
        raise Wrong(f"It is correct. But {on.lower()} one sends {bytes_text(most)}; {enough}.")


def _flat(result: Any) -> list[Any]:
    """What a rank returned: an array, or several, some of them in a list."""
    many = isinstance(result, (tuple, list))
    return [one for each in result for one in _flat(each)] if many else [result]


class Program:
    """An answer as a program of (comm, buffer): the lines that are named are those of `func`."""

    def __init__(self, func: Callable[..., Any], case: Case) -> None:
        self.func = func
        self.case = case
        self.returned: list[Any] = [None] * case.ranks

    def __call__(self, comm: Any, buffer: Array) -> None:
        rank = comm.Get_rank()
        given = copy.deepcopy(self.case.arguments(rank))
        self.returned[rank] = self.func(*self.case.communicators(comm), *given)


def _numbers(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


def _by_rank(ranks: int, part: Callable[[int], Array]) -> dict[str, Array]:
    return {f"rank {rank}": part(rank) for rank in range(ranks)}


def _checked(piece: Piece, rank: int, block: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """A block that refuses another argument than this piece."""

    def of_rank(argument: Array) -> Any:
        if fault := piece.fault(argument):
            raise Wrong(f"rank {rank}'s {fault}")
        return block(argument)

    return of_rank


# Lecture 19: a layer on several ranks.


def column_parallel(ranks: int) -> Case:
    """(comm, x, w, dy) → y, dx, dw of a linear layer whose columns are sharded."""
    x, whole, whole_dy = _numbers(ranks, (5, 7), (7, 12), (5, 12))
    w, dy = np.split(whole, ranks, axis=1), np.split(whole_dy, ranks, axis=1)
    dx = _by_rank(ranks, lambda rank: dy[rank] @ w[rank].T)
    dw = _by_rank(ranks, lambda rank: x.T @ dy[rank])

    def pieces(rank: int) -> list[Piece]:
        y = Piece("y", {"it": x @ w[rank]}, advice="It is x @ w, of this rank's columns.")
        of_w = Piece("dw", dw, [f"rank {rank}"], advice=OWN)
        return [y, Piece("dx", dx, advice=ALL_REDUCE), of_w]

    return Case(ranks, lambda rank: (x, w[rank], dy[rank]), pieces)


def attention_heads(ranks: int, heads: int) -> Case:
    """(comm, qkv, heads) → the rows of this rank's heads: first of q, then of k, then of v."""
    qkv = _numbers(ranks, (3, heads, 2, 4))[0]

    def pieces(rank: int) -> list[Piece]:
        mine = np.split(np.arange(heads), ranks)[rank]
        labels = [
            f"a row of {kind} of head {head}" for kind in "qkv" for head in mine for _ in "12"
        ]
        return [Piece("shard", {"it": qkv[:, mine].reshape(-1, 4)}, labels=labels)]

    return Case(ranks, lambda rank: (qkv.reshape(-1, 4), heads), pieces)


def backward(ranks: int) -> Case:
    """(comm, dy, blocks) → dx and the gradients of layers x = x + all_reduce(block(x)).

    Each of `blocks` is a backward pass: dy → this rank's part of dx, gradient of its weights.
    """
    layers = range(3)
    dy, into, inputs = _numbers(ranks, (5, 6), (3, ranks, 6, 6), (3, ranks, 5, 6))
    given = [dy]  # to the backward pass of each layer, the last layer first
    for layer in reversed(layers):
        given.insert(0, given[0] + (given[0] @ into[layer]).sum(axis=0))

    def sums(name: str, layer: int) -> Piece:
        """The gradient of the input of a layer; of no layer, that of the output."""
        if layer == len(layers):
            return Piece(name, {"dy": dy}, advice="The last block comes first, with dy.")
        after = given[layer + 1]
        parts = _by_rank(ranks, lambda rank: after @ into[layer, rank])
        return Piece(name, {"dy itself": after, **parts}, advice=SKIP)

    def block(rank: int, layer: int) -> Callable[[Array], Any]:
        piece = sums(f"argument of blocks[{layer}]", layer + 1)
        w, x = into[layer, rank], inputs[layer, rank]
        return _checked(piece, rank, lambda grad: (grad @ w, x.T @ grad))

    def pieces(rank: int) -> list[Piece]:
        weights = [inputs[layer, rank].T @ given[layer + 1] for layer in layers]
        return [sums("dx", 0), *(Piece(f"gradients[{n}]", {"it": weights[n]}) for n in layers)]

    return Case(ranks, lambda rank: (dy, [block(rank, layer) for layer in layers]), pieces)


def sequence_parallel(ranks: int) -> Case:
    """(comm, x, block) → this rank's positions of x + (the sum of all ranks' block(whole x))."""
    x, weights = _numbers(ranks, (12, 5), (ranks, 5, 5))
    owner = np.arange(12) // (12 // ranks)
    labels = [f"position {number}" for number in range(12)]

    def block(rank: int) -> Callable[[Array], Any]:
        parts = _by_rank(ranks, lambda other: x * (owner == other)[:, None])
        advice = "The block needs all positions in order: all-gather them."
        piece = Piece("argument of block", parts, labels=labels, advice=advice)
        return _checked(piece, rank, lambda whole: np.cumsum(whole @ weights[rank], axis=0))

    def pieces(rank: int) -> list[Piece]:
        mine = np.flatnonzero(owner == rank)
        sums = _by_rank(ranks, lambda other: np.cumsum(x @ weights[other], axis=0)[mine])
        advice = "Sum the partial results over the ranks, and add this rank's own x."
        names = [labels[position] for position in mine]
        return [Piece("y", {"x": x[mine], **sums}, labels=names, advice=advice)]

    most = 2 * (ranks - 1) / ranks * x.nbytes  # an all-gather and a reduce-scatter
    return Case(ranks, lambda rank: (np.split(x, ranks)[rank], block(rank)), pieces, most)


# Lecture 20: an image on several ranks; several kinds of parallelism.


def halo(ranks: int, width: int) -> Case:
    """(comm, rows, width) → this rank's rows of an image with `width` more above and below."""
    [image] = _numbers(ranks, (12, 3, 2))
    size = 12 // ranks
    outside = np.pad(image, ((width, width), (0, 0), (0, 0)))

    def pieces(rank: int) -> list[Piece]:
        rows = np.arange(-width, size + width) + rank * size  # of the image
        window = outside[rows + width]
        parts = _by_rank(ranks, lambda other: window * (rows // size == other)[:, None, None])
        labels = [f"row {n} (image row {row})" for n, row in enumerate(rows)]
        advice = "Neighbours exchange their outer rows; outside the image are zeros."
        return [Piece("padded", parts, labels=labels, advice=advice)]

    return Case(ranks, lambda rank: (np.split(image, ranks)[rank], width), pieces)


def halo_backward(ranks: int, width: int) -> Case:
    """(comm, d_padded, width) → the gradient of this rank's rows."""
    size = 12 // ranks
    [given] = _numbers(ranks, (ranks, size + 2 * width, 3, 2))

    def pieces(rank: int) -> list[Piece]:
        def part(other: int) -> Array:
            whole = np.zeros((12 + 2 * width, 3, 2))
            whole[other * size :][: size + 2 * width] = given[other]
            return whole[width + rank * size :][:size]

        advice = "The gradient of a halo row belongs to the rank that owns the row, which adds it."
        labels = [f"row {row}" for row in range(size)]
        return [Piece("d_rows", _by_rank(ranks, part), labels=labels, advice=advice)]

    return Case(ranks, lambda rank: (given[rank], width), pieces)


def check_colors(my_colors: Callable[..., Any]) -> None:
    """(rank, tensor, stages) → the colors of a rank's tensor, pipeline and data group."""
    for replicas, stages, tensor in ((2, 2, 2), (2, 3, 1), (3, 1, 4), (1, 4, 2)):
        numbers = np.arange(replicas * stages * tensor).reshape(replicas, stages, tensor)
        colors = [my_colors(rank, tensor, stages) for rank in range(numbers.size)]
        for rank, mine in enumerate(colors):
            whole = [isinstance(one, (int, np.integer)) and one >= 0 for one in _flat(mine)]
            if whole != [True] * 3:
                text = f"Of rank {rank} it returned {reprlib.repr(mine)}"
                raise Wrong(f"{text}: return 3 colors, whole numbers ≥ 0.")
            replica, stage, part = np.argwhere(numbers == rank)[0]
            groups = (numbers[replica, stage], numbers[replica, :, part], numbers[:, stage, part])
            for n, right in enumerate(groups):
                found = [other for other, one in enumerate(colors) if one[n] == mine[n]]
                if found != right.tolist():
                    kind = ("tensor", "pipeline", "data")[n]
                    raise Wrong(
                        f"On {numbers.size} ranks, tensor={tensor}, stages={stages}: rank {rank}'s "
                        f"{kind} group is {listed(found)}, and must be {listed(right.tolist())}."
                    )


def hybrid_step(replicas: int, stages: int, tensor: int) -> Case:
    """(tensor, pipeline, data, micro_batches, targets, w1, w2) → the gradients of w1 and w2."""
    shape = (replicas, stages, tensor)
    xs, target = _numbers(1, *[(replicas, 2, 3, 4)] * 2)  # two micro-batches of three examples
    w1, w2 = _numbers(2, (stages, 4, 12), (stages, 12, 4))
    x, kept, found = xs, [], {}
    for stage in range(stages):
        kept.append((x, active := np.maximum(x @ w1[stage], 0)))
        x = x + active @ w2[stage]
    dy = (x - target) / (replicas * 2 * 3)
    for stage in reversed(range(stages)):
        x, active = kept[stage]
        d_hidden = dy @ w2[stage].T * (active > 0)
        found[stage] = x.swapaxes(-1, -2) @ d_hidden, active.swapaxes(-1, -2) @ dy
        dy = dy + d_hidden @ w1[stage].T

    def arguments(rank: int) -> tuple[Any, ...]:
        replica, stage, part = np.unravel_index(rank, shape)
        first, last = stage == 0, stage == stages - 1
        shards = np.split(w1[stage], tensor, axis=1)[part], np.split(w2[stage], tensor)[part]
        return xs[replica] * first, target[replica] * last, *shards

    def pieces(rank: int) -> list[Piece]:
        _, stage, part = map(int, np.unravel_index(rank, shape))
        dw1, dw2 = {}, {}
        for replica, n in np.ndindex(replicas, 2):
            who, one = f"micro-batch {n} of replica {replica}", (replica, n)
            dw1[who] = np.split(found[stage][0][one], tensor, axis=1)[part]
            dw2[who] = np.split(found[stage][1][one], tensor)[part]
        return [Piece("dw1", dw1, advice=MEAN), Piece("dw2", dw2, advice=MEAN)]

    def split(comm: Any) -> list[Any]:
        replica, stage, part = np.unravel_index(comm.Get_rank(), shape)
        colors = (replica * stages + stage, replica * tensor + part, stage * tensor + part)
        return [comm.Split(int(color)) for color in colors]

    return Case(replicas * stages * tensor, arguments, pieces, communicators=split)
