"""Judges of programs in which every rank holds a piece of a layer, an image or a training step.

What a rank returns is compared, piece by piece, with the serial program. A piece is a sum of
contributions, so a wrong one shows which of them are missing or counted twice:

>>> Piece("dx", {"rank 0": np.eye(2), "rank 1": np.ones((2, 2))}).fault(np.eye(2))
'dx is wrong: the contribution of rank 1 is missing.'
"""

import copy
import itertools
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from labkit import collectives
from labkit.collectives.records import listed
from labkit.exercises.judges.answers import TIME_LIMIT, judged, numbers_in
from labkit.exercises.task import Wrong
from labkit.kinds import LabError, bytes_text

Array: TypeAlias = npt.NDArray[Any]
CLOSE = 1e-6  # of the largest number of a piece


@dataclass(frozen=True)
class Piece:
    """An array that a rank must return: a sum of contributions."""

    name: str
    parts: Mapping[str, Array]
    advice: str = ""

    def fault(self, found: Any) -> str:
        """What is wrong with an array, or nothing."""
        right = np.sum(list(self.parts.values()), axis=0)
        if found is None:
            return f"{self.name} must be an array, and is None: is a `return` missing?"
        try:
            array = np.asarray(found, dtype=float)
        except (TypeError, ValueError):
            return f"{self.name} must be an array, and is {reprlib.repr(found)}."
        if array.shape != right.shape:
            return f"{self.name} has the shape {array.shape}; it must have {right.shape}."
        near = np.abs(array - right) <= CLOSE * np.abs(right).max()  # false for NaN
        wrong = np.flatnonzero(~near.reshape(len(near), -1).all(axis=1))
        if not wrong.size:
            return ""
        rows = f" in row{'s' * (len(wrong) > 1)} {listed(wrong.tolist())}"
        where = rows if len(wrong) < len(right) else ""
        parts = {who: part[wrong].ravel() for who, part in self.parts.items()}
        reason = _reason(np.nan_to_num(array[wrong].ravel()), parts)
        return f"{self.name} is wrong{where}: {reason}. {self.advice}".strip()


def _reason(found: Array, parts: Mapping[str, Array]) -> str:
    """Which contributions are missing or counted twice in these numbers."""
    parts = {who: part for who, part in parts.items() if part.any()}
    matrix = np.stack([np.zeros_like(found), *parts.values()], axis=1)
    factors = np.linalg.lstsq(matrix, found)[0].round(3)
    close = np.allclose(matrix @ factors, found, atol=1e-3 * np.abs(matrix).max())
    if len(found) < len(parts) or not close:
        return "the numbers are not those of the serial program"
    wrong = [(who, one) for who, one in zip(parts, factors[1:], strict=True) if one != 1]
    words = [(who, f"counts {one:g} times" if one else "is missing") for who, one in wrong]
    reasons = [f"the contribution of {who} {what}" for who, what in words]
    return ", and ".join(reasons) or "it differs by rounding: keep the dtype of what is given"


@dataclass(frozen=True)
class Case:
    """One run: what each rank is given, and what it must return."""

    given: Sequence[Sequence[Any]]  # after the communicator
    pieces: Sequence[Sequence[Piece]]
    most_bytes: float = np.inf  # that a rank may send
    colors: Sequence[Sequence[int]] = ()  # of each rank: a communicator for each color
    call: Callable[..., Any] = lambda answer, *given: answer(*given)


def on_ranks(case: Callable[..., Case], *cases: tuple[int, ...]) -> Callable[[Any], None]:
    """The judge of a program that must return its pieces in each of these cases."""

    def examine(answer: Any) -> None:
        for one in cases or ((2,), (3,), (4,), (1,)):
            _prove(answer, case(*one))

    return judged(examine, 6 * TIME_LIMIT)


def _prove(answer: Callable[..., Any], case: Case) -> None:
    ranks = len(case.given)
    on = f"On {ranks} rank{'s' * (ranks > 1)}"
    returned: list[list[Any]] = [[]] * ranks

    def program(comm: Any, buffer: Array) -> None:
        rank = comm.Get_rank()
        comms = [comm.Split(color) for color in case.colors[rank]] if case.colors else [comm]
        returned[rank] = _flat(case.call(answer, *comms, *copy.deepcopy(case.given[rank])))

    program.func = answer  # type: ignore[attr-defined]  # the lines that are named are its own
    try:
        trace = collectives.run(program, ranks=ranks, timeout=TIME_LIMIT)
    except LabError as fault:
        raise Wrong(f"{on}: {fault}") from None
    for rank, (pieces, results) in enumerate(zip(case.pieces, returned, strict=True)):
        if len(results) != len(pieces):
            names = ", ".join(one.name for one in pieces)
            raise Wrong(f"{on}, rank {rank} returned {reprlib.repr(results)}: return {names}.")
        for one, found in zip(pieces, results, strict=True):
            if text := one.fault(found):
                raise Wrong(f"{on}, rank {rank}'s {text}")
    if (most := max(trace.bytes_sent)) > case.most_bytes:
        enough = f"{bytes_text(case.most_bytes)} are enough"
        raise Wrong(f"It is correct. But {on.lower()} one sends {bytes_text(most)}; {enough}.")


def _flat(result: Any) -> list[Any]:
    """What a rank returned: an array, or several, some of them in a list."""
    many = isinstance(result, (tuple, list))
    return [one for each in result for one in _flat(each)] if many else [result]


def _numbers(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


def _sum(name: str, parts: Iterable[Array], advice: str = "All-reduce the parts.") -> Piece:
    """A sum over the ranks."""
    return Piece(name, {f"rank {rank}": part for rank, part in enumerate(parts)}, advice)


def column_parallel(ranks: int) -> Case:
    """(comm, x, w, dy) → y, dx, dw of a linear layer whose columns are sharded."""
    x, *whole = _numbers(ranks, (5, 7), (7, 12), (5, 12))
    w, dy = (np.split(one, ranks, axis=1) for one in whole)
    own, each = "It needs no communication.", range(ranks)
    y = [Piece("y", {"this rank": x @ w[n]}, own) for n in each]
    dx = _sum("dx", [dy[n] @ w[n].T for n in each])
    dw = [Piece("dw", {"this rank": x.T @ dy[n]}, own) for n in each]
    return Case([(x, w[n], dy[n]) for n in each], [(y[n], dx, dw[n]) for n in each])


def gated_mlp(ranks: int) -> Case:
    """(comm, x, gate, up, down, dy) → y and dx of (relu(x @ gate) * (x @ up)) @ down."""
    x, dy, gate, up, down = _numbers(ranks, (6, 4), (6, 4), (4, 12), (4, 12), (12, 4))
    a, b, d_active = np.maximum(x @ gate, 0), x @ up, dy @ down.T
    columns = (gate, up, down.T, a * b, d_active * b * (a > 0), d_active * a)
    shards = list(zip(*(np.split(one, ranks, axis=1) for one in columns), strict=True))
    y = _sum("y", [active @ w.T for _, _, w, active, _, _ in shards])
    dx = _sum("dx", [d_a @ w_a.T + d_b @ w_b.T for w_a, w_b, _, _, d_a, d_b in shards])
    given = [(x, w_a, w_b, w.T, dy) for w_a, w_b, w, *_ in shards]
    return Case(given, [(y, dx)] * ranks, 2 * (ranks - 1) * x.nbytes)  # of any two all-reduces


def attention_heads(ranks: int, heads: int) -> Case:
    """(comm, qkv, heads) → the rows of this rank's heads: first of q, then of k, then of v."""
    [qkv] = _numbers(ranks, (3, heads, 2, 4))
    shards = [{"this rank": one.reshape(-1, 4)} for one in np.split(qkv, ranks, axis=1)]
    pieces = [[Piece("shard", one, "It has the same heads of q, k and v.")] for one in shards]
    return Case([(qkv.reshape(-1, 4), heads)] * ranks, pieces)


def sequence_parallel(ranks: int) -> Case:
    """(comm, x, block) → this rank's positions of x + (the sum of all ranks' block(whole x))."""
    x, weights = _numbers(ranks, (12, 8), (ranks, 8, 8))
    positions = np.split(np.arange(12), ranks)
    parts = {"x": x}
    for one, two in np.ndindex(ranks, ranks):
        of_two = x * np.isin(np.arange(12), positions[two])[:, None]
        parts[f"rank {two}'s positions in rank {one}'s block"] = np.cumsum(of_two @ weights[one], 0)
    blocks = [lambda whole, w=w: np.cumsum(whole @ w, axis=0) for w in weights]
    advice = "All-gather x in front of the block, sum its results over the ranks, and add x."
    pieces = [[Piece("y", {w: p[mine] for w, p in parts.items()}, advice)] for mine in positions]
    given = [(x[mine], block) for mine, block in zip(positions, blocks, strict=True)]
    return Case(given, pieces, 2 * (ranks - 1) / ranks * x.nbytes)  # of one ring all-reduce


def _placed(arrays: list[Array], width: int, first: int) -> Array:
    """For each rank its rows at their place in the image, with `width` rows above and below it."""
    size = 12 // len(arrays)
    whole = np.zeros((len(arrays), 12 + 2 * width, 3, 2))
    for rank, rows in enumerate(arrays):
        whole[rank, first + rank * size :][: len(rows)] = rows
    return whole


def halo(ranks: int, width: int) -> Case:
    """(comm, rows, width) → this rank's rows of an image with `width` more above and below."""
    shares = np.split(_numbers(ranks, (12, 3, 2))[0], ranks)
    whole, size = _placed(shares, width, width), 12 // ranks
    windows = [whole[:, rank * size :][:, : size + 2 * width] for rank in range(ranks)]
    advice = "Neighbours exchange their outer rows; outside the image are zeros."
    return Case([(rows, width) for rows in shares], [[_sum("padded", w, advice)] for w in windows])


def halo_backward(ranks: int, width: int) -> Case:
    """(comm, d_padded, width) → the gradient of this rank's rows."""
    given = _numbers(ranks, *[(12 // ranks + 2 * width, 3, 2)] * ranks)
    shares = np.split(_placed(given, width, 0)[:, width:-width], ranks, axis=1)
    advice = "The gradient of a halo row belongs to the rank that owns the row, which adds it."
    return Case([(one, width) for one in given], [[_sum("d_rows", s, advice)] for s in shares])


def _colors(shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Colors of each rank's tensor, pipeline and data group: the first rank of the group."""
    first = np.arange(np.prod(shape)).reshape(shape).tolist()
    return [(first[r][s][0], first[r][0][p], first[0][s][p]) for r, s, p in np.ndindex(shape)]


def check_colors(my_colors: Callable[..., Any]) -> None:
    """(rank, tensor, stages) → the colors of a rank's tensor, pipeline and data group."""
    for shape in ((2, 2, 2), (2, 3, 1), (3, 1, 4), (1, 4, 2)):
        right, (_, stages, tensor) = _colors(shape), shape
        ranks = range(len(right))
        colors = [numbers_in(my_colors(rank, tensor, stages), "three colors") for rank in ranks]
        for rank, (n, kind) in itertools.product(ranks, enumerate(("tensor", "pipeline", "data"))):
            if len(colors[rank]) != 3:
                raise Wrong(f"For rank {rank} it returned {colors[rank]}: return three colors.")
            groups = [[i for i in ranks if one[i][n] == one[rank][n]] for one in (colors, right)]
            if groups[0] != groups[1]:
                on = (
                    f"On {len(ranks)} ranks, tensor={tensor}, stages={stages}: rank {rank}'s {kind}"
                )
                raise Wrong("{} group is {}, and must be {}.".format(on, *map(listed, groups)))


def hybrid_step(replicas: int, stages: int, tensor: int) -> Case:
    """(tensor, pipeline, data, micro_batches, targets, w1, w2) → the gradients of w1 and w2."""
    xs, targets = _numbers(1, *[(replicas, 2, 3, 4)] * 2)  # two micro-batches of three examples
    w1, w2 = _numbers(2, (stages, 4, 12), (stages, 12, 4))
    x, kept, found = xs, [], {}
    for stage in range(stages):
        kept.append((x, active := np.maximum(x @ w1[stage], 0)))
        x = x + active @ w2[stage]
    dy = (x - targets) / (replicas * 2 * 3)
    for stage in reversed(range(stages)):
        x, active = kept[stage]
        d_hidden = dy @ w2[stage].T * (active > 0)
        dw1, dw2 = x.swapaxes(-1, -2) @ d_hidden, active.swapaxes(-1, -2) @ dy
        found[stage] = ("dw1", np.split(dw1, tensor, -1)), ("dw2", np.split(dw2, tensor, -2))
        dy = dy + d_hidden @ w1[stage].T
    advice = "Sum over all micro-batches and replicas, and divide by the number of all examples."
    names = {f"micro-batch {n} of replica {r}": (r, n) for r, n in np.ndindex(replicas, 2)}
    given, pieces = [], []
    for replica, stage, part in np.ndindex(replicas, stages, tensor):
        x, target = xs[replica] * (stage == 0), targets[replica] * (stage == stages - 1)
        shards = np.split(w1[stage], tensor, axis=1)[part], np.split(w2[stage], tensor)[part]
        given.append((x, target, *shards))
        sums = {name: {who: dw[part][n] for who, n in names.items()} for name, dw in found[stage]}
        pieces.append([Piece(name, parts, advice) for name, parts in sums.items()])
    return Case(given, pieces, colors=_colors((replicas, stages, tensor)))


# Sharded state.

RATE, KEPT = 0.25, 0.5
SIZE, LAYERS, LAYER = 29, 3, 24  # a piece has more weights than there are contributions
OWN = "Reduce-scatter the gradients, divide once, and update in place."


class Momentum:
    """An optimizer that is linear in the gradient: what it was given shows in the weights."""

    def __init__(self) -> None:
        self.state: Array = np.zeros(0)

    def update(self, weights: Array, gradient: Array) -> None:
        """Change the weights in place; the state is that of the first call's part."""
        if not self.state.size:
            self.state = np.zeros(np.shape(gradient))
        if not np.shape(weights) == np.shape(gradient) == self.state.shape:
            raise ValueError(
                f"update() got {np.size(weights)} weights, {np.size(gradient)} gradients and has "
                f"the state of {self.state.size}: call it once a step, with the same part of each"
            )
        self.state = KEPT * self.state + gradient
        weights -= RATE * self.state


def _updated(name: str, old: Array, gradients: Array, advice: str = OWN) -> Piece:
    """The old weights after a step with the mean of the gradients, one of each rank."""
    parts = {f"rank {rank}": -RATE * one / len(gradients) for rank, one in enumerate(gradients)}
    return Piece(name, {"the old weights": old, **parts}, advice)


def zero_1(ranks: int) -> Case:
    """(comm, weights, gradient, optimizer), twice → the weights after both, and its state."""
    rng, cut = np.random.default_rng(ranks), np.array_split(np.arange(SIZE), ranks)
    start, gradients = rng.normal(size=SIZE), rng.normal(size=(2, ranks, SIZE))
    # In the second step the momentum is that of the mean gradient of the first.
    pushes = gradients[0], KEPT * gradients[0].mean(axis=0) + gradients[1]

    def two_steps(my_step: Any, comm: Any, weights: Array, first: Array, second: Array) -> Any:
        optimizer = Momentum()
        my_step(comm, weights, first, optimizer)
        before = weights.copy()
        my_step(comm, weights, second, optimizer)
        return [each[piece] for each in (before, weights) for piece in cut] + [optimizer.state]

    def pieces(rank: int) -> list[Piece]:
        found = []
        for step, old in ((0, start), (1, start - RATE * pushes[0].mean(axis=0))):
            for n, piece in enumerate(cut):
                name = f"piece {n} (weights {piece[0]} to {piece[-1]}) after step {step + 1}"
                other = f"Only rank {n} updates it, and sends it to the others."
                advice = OWN if n == rank else other
                found.append(_updated(name, old[piece], pushes[step][:, piece], advice))
        return [*found, Piece("optimizer's state", {"": pushes[1].mean(axis=0)[cut[rank]]})]

    most = 2 * 2 * (ranks - 1) * -(-SIZE // ranks) * 8  # a reduce-scatter and an all-gather a step
    given = [(start, *gradients[:, rank]) for rank in range(ranks)]
    return Case(given, [pieces(rank) for rank in range(ranks)], most, call=two_steps)


def zero_3(ranks: int) -> Case:
    """(comm, parts, gradient_of, optimizers) → this rank's part of each layer."""
    rng, cut = np.random.default_rng(ranks), np.array_split(np.arange(LAYER), ranks)
    layers, noise = rng.normal(size=(LAYERS, LAYER)), rng.normal(size=(ranks, LAYERS, LAYER))
    own = np.arange(1, ranks + 1)[:, None, None] * layers + noise

    def gradient_of(rank: int, n: int, layer: Array) -> Array:
        if np.shape(layer) != (LAYER,):
            raise ValueError(f"layer {n} has {LAYER} weights, got shape {np.shape(layer)}")
        gradient: Array = (rank + 1) * np.asarray(layer) + noise[rank, n]
        return gradient

    def one_step(my_step: Any, comm: Any, parts: Array, gradient: Callable[..., Array]) -> Any:
        my_step(comm, parts, gradient, [Momentum() for _ in range(LAYERS)])
        return list(parts)

    given = [(layers[:, part], partial(gradient_of, rank)) for rank, part in enumerate(cut)]
    pieces = [
        [_updated(f"part of layer {n}", layers[n, p], own[:, n, p]) for n in range(LAYERS)]
        for p in cut
    ]
    most = 2 * (ranks - 1) / ranks * layers.nbytes  # an all-gather and a reduce-scatter a layer
    return Case(given, pieces, most, call=one_step)
