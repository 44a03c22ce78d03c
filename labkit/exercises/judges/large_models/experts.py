"""Judges of mixtures of experts: tokens travel to the ranks of their experts, and back.

What a rank returns is compared with the serial layer, which goes through the tokens one by one. A
wrong array is also compared with what known mistakes give:

>>> Rows("y", {"": np.eye(2)}, mistakes={"It is negative.": -np.eye(2)}).fault(-np.eye(2))
'y is wrong. It is negative.'
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from labkit.exercises.judges.answers import judged
from labkit.exercises.judges.large_models.cut_transformer import Known
from labkit.exercises.judges.model_parallel import Array, Case, on_ranks
from labkit.exercises.task import Wrong

HIDDEN, WIDTH = 16, 6  # of a token, and of an expert's hidden layer
TOKENS = 9, 6, 0, 11, 8, 5, 10, 1  # of each rank
COUNTS = (
    "What a rank receives from another is what that one sends: exchange the counts first, for "
    "example with comm.Alltoall."
)
NUMBERS = (
    "Alltoallv counts numbers, not rows: multiply the counts of rows with the length of a row."
)


class Rows(Known):
    """A known piece that may have no rows, or be one number."""

    def fault(self, found: Any) -> str:
        """What is wrong with an array, or nothing."""
        shape = np.sum(list(self.parts.values()), axis=0).shape
        if shape == (1,) and np.ndim(found) == 0 and found is not None:
            found = [found]
        if 0 not in shape:
            return super().fault(found)
        if np.size(found) == 0:
            return ""
        return f"{self.name} has the shape {np.shape(found)}; it must have {shape}."


def _as_array(answer: Callable[..., Any], *given: Any) -> Any:
    """A list of rows, which may be empty, is one array."""
    result = answer(*given)
    return np.array(result, dtype=float) if isinstance(result, list) else result


def routed(case: Callable[..., Case], *cases: tuple[Any, ...]) -> Callable[[Any], None]:
    """The judge of a program on ranks; messages of a wrong size are explained."""
    judge = on_ranks(case, *cases)

    def examine(answer: Any) -> None:
        try:
            judge(answer)
        except Wrong as wrong:
            text = str(wrong).replace(": give all ranks the same counts", "")
            if "It is correct" in text or " elements" not in text:
                raise
            raise Wrong(f"{text} {COUNTS}") from None

    return judged(examine, judge.seconds)  # type: ignore[attr-defined]


class Batch:
    """Tokens on several ranks, their routing, and the serial layer."""

    def __init__(self, ranks: int, held: int, k: int, kind: str = "any") -> None:
        random = np.random.default_rng([ranks, held, k])
        self.ranks, self.held, self.k, self.experts = ranks, held, k, ranks * held
        ends = np.cumsum([0, *TOKENS[:ranks]])
        self.mine = [slice(*pair) for pair in pairwise(ends)]
        total = ends[-1]
        self.x, self.dy = random.normal(size=(2, total, HIDDEN))
        self.w1 = random.normal(size=(self.experts, HIDDEN, WIDTH))
        self.w2 = random.normal(size=(self.experts, WIDTH, HIDDEN))
        scores = random.random((total, self.experts))
        scores[:, -1] += kind == "hot"  # all tokens choose the last expert
        scores[:, 1::2] -= kind == "idle"  # every second expert is chosen by none
        self.chosen = np.argsort(-scores, axis=1)[:, :k]
        self.gates = random.uniform(0.2, 1, (total, k))
        self.out = self.through(self.chosen)

    def through(self, chosen: Array) -> Array:
        """What each choice's expert makes of the token."""
        pairs = [
            [np.maximum(x @ self.w1[e], 0) @ self.w2[e] for e in picked]
            for x, picked in zip(self.x, chosen, strict=True)
        ]
        return np.array(pairs).reshape(*chosen.shape, HIDDEN)

    def by_expert(self, values: Array, rank: int) -> dict[str, Array]:
        """The sum over the choices of this rank's tokens, by expert."""
        own, chosen = values[self.mine[rank]], self.chosen[self.mine[rank]]
        return {
            f"expert {e}": (own * (chosen == e)[:, :, None]).sum(axis=1)
            for e in range(self.experts)
        }

    def sorted_arrival(self) -> Array:
        """The experts that rows would get if they arrived in the order of the experts."""
        wrong = self.chosen.copy()
        for rank in range(self.ranks):
            places = [
                (t, j)
                for own in self.mine
                for e in range(rank * self.held, (rank + 1) * self.held)
                for t, j in np.argwhere(self.chosen == e)
                if own.start <= t < own.stop
            ]
            experts = sorted(self.chosen[t, j] for t, j in places)
            for (t, j), e in zip(places, experts, strict=True):
                wrong[t, j] = e
        return wrong

    def weights(self, rank: int) -> tuple[Array, Array]:
        """Those of this rank's experts."""
        own = slice(rank * self.held, (rank + 1) * self.held)
        return self.w1[own], self.w2[own]

    def most_bytes(self) -> float:
        """That a rank sends to other ranks: rows there and back, and counts."""
        home = np.repeat(np.arange(self.ranks), TOKENS[: self.ranks])[:, None]
        at = self.chosen // self.held
        away = at != home
        rows = [
            (away & (home == rank)).sum() + (away & (at == rank)).sum()
            for rank in range(self.ranks)
        ]
        return float(max(rows) * (HIDDEN + 3) * 8 + 3 * self.ranks * self.experts * 8)


def _moved(batch: Batch, rank: int) -> Iterator[tuple[str, Array]]:
    """What usual mistakes of the way there and back leave in y."""
    own = batch.mine[rank]
    gates, out, x = batch.gates[own], batch.out[own], batch.x[own]
    order = np.argsort(batch.chosen[own].ravel(), kind="stable")
    token = np.repeat(np.arange(len(x)), batch.k)
    flat, g = out.reshape(-1, HIDDEN), gates.reshape(-1, 1)

    def placed(rows: Array, at: Array) -> Array:
        y: Array = np.zeros_like(x)
        np.add.at(y, at, rows)
        return y

    back = "Its rows are still in the order of the experts. Put each result back at its token."
    other = (
        "Each result is multiplied with the gate of another choice: gates and results must be in "
        "the same order."
    )
    yield back, placed((g * flat)[order], token)
    yield f"{back} And multiply it with its own gate.", placed(g * flat[order], token)
    yield other, placed(g[order] * flat, token)
    yield f"{other} The results are sorted by expert.", placed(g * flat[order], token[order])
    yield "The results are not multiplied with their gates.", out.sum(axis=1)
    yield "The gates are multiplied twice.", (gates[:, :, None] ** 2 * out).sum(axis=1)
    if batch.k > 1:
        yield "Only the first choice of each token counts.", gates[:, :1] * out[:, 0]
    first = batch.chosen // batch.held * batch.held
    several = (
        "All rows of a rank go through the same expert. It has several: find that of each row."
    )
    for why, chosen in (
        (several, first),
        (several, first + batch.held - 1),
        (
            "The tokens stay where they are. Expert e is on rank e // len(w1).",
            rank * batch.held + batch.chosen % batch.held,
        ),
        (
            "Rows arrive by sender, and those of each sender by expert. Find the expert of each.",
            batch.sorted_arrival(),
        ),
    ):
        yield why, (batch.gates[:, :, None] * batch.through(chosen)).sum(axis=1)[own]


def expert_layer(ranks: int, held: int, k: int, kind: str = "any") -> Case:
    """(comm, x, chosen, gates, w1, w2) → y of this rank's tokens."""
    batch = Batch(ranks, held, k, kind)
    advice = "y is the sum over a token's choices of gate · expert(x)."
    pieces, given = [], []
    for rank, own in enumerate(batch.mine):
        parts = batch.by_expert(batch.gates[:, :, None] * batch.out, rank)
        wrong = dict(_moved(batch, rank))
        pieces.append([Rows("y", parts, advice, mistakes=wrong, not_finite=NUMBERS)])
        sent = batch.x[own], batch.chosen[own], batch.gates[own]
        given.append((*sent, *batch.weights(rank)))
    saving = "Send each token only to the ranks of its experts, and its results back."
    return Case(given, pieces, batch.most_bytes(), saving, call=_as_array)


def _exchange(comm: Any, rows: Array, sent: Array, received: Array) -> Array:
    size = rows.shape[1]
    found = np.empty((received.sum(), size))
    comm.Alltoallv([np.ascontiguousarray(rows), sent * size], [found, received * size])
    return found


def moves(comm: Any, chosen: Array, held: int) -> tuple[Any, Any]:
    """dispatch(rows) → the rows that arrive, each with its expert; combine(rows), the way back."""
    ranks, order = comm.Get_size(), np.argsort(chosen.ravel(), kind="stable")
    counts = np.bincount(chosen.ravel(), minlength=ranks * held).reshape(ranks, held)
    arrive = np.empty_like(counts)
    comm.Alltoall(counts, arrive)
    sent, received = counts.sum(axis=1), arrive.sum(axis=1)
    which = np.repeat(np.tile(np.arange(held), ranks), arrive.ravel())

    def dispatch(rows: Array) -> tuple[Array, Array]:
        if len(rows) != len(order) or np.ndim(rows) != 2:
            text = f"dispatch(rows) needs a row for each choice, {len(order)} rows of numbers"
            raise ValueError(f"{text}, got the shape {np.shape(rows)}")
        return _exchange(comm, np.asarray(rows)[order], sent, received), which

    def combine(rows: Array) -> Array:
        if len(rows) != len(which) or np.ndim(rows) != 2:
            text = f"combine(rows) needs a row for each that arrived, {len(which)} rows of numbers"
            raise ValueError(f"{text}, got the shape {np.shape(rows)}")
        back = np.empty((len(order), np.shape(rows)[1]))
        back[order] = _exchange(comm, np.asarray(rows), received, sent)
        return back

    return dispatch, combine


def expert_backward(ranks: int, held: int, k: int, kind: str = "any") -> Case:
    """(dispatch, combine, x, gates, w1, w2, dy) → dx, d_gates, dw1, dw2."""
    batch = Batch(ranks, held, k, kind)
    w1, w2 = batch.w1[batch.chosen], batch.w2[batch.chosen]  # of each choice
    hidden = np.einsum("th,tkhw->tkw", batch.x, w1)
    d_out = batch.gates[:, :, None] * batch.dy[:, None]

    def back(d: Array) -> tuple[Array, Array]:
        d_hidden = np.einsum("tkh,tkwh->tkw", d, w2) * (hidden > 0)
        return d_hidden, np.einsum("tkw,tkhw->tkh", d_hidden, w1)

    def of_weights(e: int, who: slice, d: Array) -> tuple[Array, Array]:
        """The gradients of an expert's two matrices, from the tokens of a rank."""
        at = (batch.chosen == e)[:, :, None]
        d_hidden, active = back(d)[0] * at, np.maximum(hidden, 0) * at
        return (
            np.einsum("th,tkw->hw", batch.x[who], d_hidden[who]),
            np.einsum("tkw,tkh->wh", active[who], d[who]),
        )

    plain = np.broadcast_to(batch.dy[:, None], d_out.shape)
    inner = (batch.out * batch.dy[:, None]).sum(axis=2)
    gateless = "dy reaches an expert multiplied with the gate of the choice."
    pieces, given = [], []
    for rank, own in enumerate(batch.mine):
        wrong = {gateless: back(plain)[1][own].sum(axis=1)}
        dx = Rows("dx", batch.by_expert(back(d_out)[1], rank), mistakes=wrong)
        wrong = {
            "It is 0, so the router learns nothing. The gate is multiplied with the result of its "
            "expert, which is its gradient.": np.zeros_like(inner[own]),
            "The gradient of a gate is the product of dy and the expert's result, without the "
            "gate.": (inner * batch.gates)[own],
        }
        d_gates = Rows("d_gates", {"dy · expert(x)": inner[own]}, mistakes=wrong)
        found = []
        for n, name in enumerate(("dw1", "dw2")):
            experts = range(rank * held, (rank + 1) * held)
            parts = {
                f"rank {r}'s tokens": np.stack([of_weights(e, who, d_out)[n] for e in experts])
                for r, who in enumerate(batch.mine)
            }
            every = slice(None)
            wrong = {gateless: np.stack([of_weights(e, every, plain)[n] for e in experts])}
            advice = "It is a sum over all tokens that came to the expert: do not divide it."
            found.append(Rows(name, parts, advice, mistakes=wrong))
        pieces.append([dx, d_gates, *found])
        sizes = batch.chosen[own], batch.x[own], batch.gates[own]
        given.append((*sizes, *batch.weights(rank), batch.dy[own]))

    def call(answer: Any, comm: Any, chosen: Array, *others: Array) -> Any:
        return answer(*moves(comm, chosen, held), *others)

    most = 2 * batch.most_bytes()
    saving = "Two dispatches and two combines are enough."
    return Case(given, pieces, most, saving, call=call)


def capacity(ranks: int, experts: int, most: int) -> Case:
    """(comm, chosen, experts, capacity) → for each token of this rank whether it is kept."""
    random = np.random.default_rng([ranks, experts])
    chosen = [random.integers(0, experts, n) // 2 for n in TOKENS[:ranks]]

    def kept(
        groups: Sequence[Array], room: int, place: Callable[[int], int] = int,
        taken: Sequence[int] = (),
    ) -> Array:  # fmt: skip
        used = dict(enumerate(taken))
        found = []
        for e in np.concatenate(groups):
            used[place(e)] = used.get(place(e), 0) + 1
            found.append(used[place(e)] <= room)
        return np.array(found, dtype=float)

    ends = np.cumsum([len(one) for one in chosen])[:-1]
    right = np.split(kept(chosen, most), ends)
    pieces = []
    for rank, own in enumerate(chosen):
        by_expert = {f"expert {e}": right[rank] * (own == e) for e in range(experts)}
        wrong = {
            "An expert takes tokens of all ranks: count those of the ranks before yours, too.": (
                kept([own], most)
            ),
            "It counts all tokens of the rank. The capacity is that of each expert.": (
                kept([own], most, lambda e: 0)
            ),
            "Your own tokens take places one after the other. Start with those that ranks before "
            "yours have taken.": kept(
                [own], most, taken=np.bincount(np.concatenate(chosen[: rank + 1])).tolist()
            ),
            f"An expert takes {most} tokens, and here it takes {most + 1}.": (
                np.split(kept(chosen, most + 1), ends)[rank]
            ),
        }
        pieces.append([Rows("kept", by_expert, "Go through the tokens in order.", {},
                             wrong)])  # fmt: skip
    return Case([(own, experts, most) for own in chosen], pieces, call=_as_array)


def balance(ranks: int, k: int) -> Case:
    """(comm, p, chosen) → E Σ f P over the tokens of all ranks."""
    random, experts = np.random.default_rng([ranks, k]), 4
    counts = [n + 1 for n in TOKENS[:ranks]]
    p = [one / one.sum(axis=1, keepdims=True) for one in
         (random.random((n, experts)) ** (2 + r) for r, n in enumerate(counts))]  # fmt: skip
    chosen = [np.argsort(-one, axis=1)[:, :k] for one in p]

    def shares(p: Array, chosen: Array) -> Array:
        f = np.bincount(chosen.ravel(), minlength=experts) / chosen.size
        return np.stack([f, p.mean(axis=0)])

    each = np.stack([shares(*one) for one in zip(p, chosen, strict=True)])
    f, mean = shares(np.concatenate(p), np.concatenate(chosen))
    right = experts * f @ mean
    losses = experts * (each[:, 0] * each[:, 1]).sum(axis=1)
    by_rank = each.mean(axis=0)
    both = "Sum f and P over the ranks first, and multiply then: the loss of the batch is not the "
    wrong = {
        f"{both}mean of the ranks' losses.": losses.mean(),
        f"{both}mean of the ranks' losses, with weights or without.": np.average(
            losses, weights=counts
        ),
        "The ranks have unequal numbers of tokens. Sum over all tokens, and divide by their "
        "number.": experts * by_rank[0] @ by_rank[1],
        "It lacks the factor E, the number of experts.": right / experts,
        "f is a share of all choices, of which each token makes k: all f add up to 1.": right * k,
    }
    by_expert = {f"expert {e}": np.array([experts * f[e] * mean[e]]) for e in range(experts)}
    pieces = []
    for own in losses:
        mistakes = {why: np.array([one]) for why, one in wrong.items()}
        mistakes["It is the loss of this rank's tokens alone."] = np.array([own])
        pieces.append([Rows("loss", by_expert, mistakes=mistakes)])
    return Case([*zip(p, chosen, strict=True)], pieces)


def expert_groups(replicas: int, size: int) -> Case:
    """(comm, size, d_router, d_expert, tokens) → both as means over the global batch."""
    ranks = replicas * size
    random = np.random.default_rng([replicas, size])
    tokens = np.array([n + 1 for n in TOKENS[:ranks]])
    d_router, d_expert = random.normal(size=(2, ranks, 5, 4))
    total = tokens.sum()
    pieces = []
    for rank in range(ranks):
        group = [other for other in range(ranks) if other % size == rank % size]
        own = tokens[group].sum()
        part, world = d_expert[group].sum(axis=0), d_router.sum(axis=0)
        few = "The loss is a mean over all tokens of the global batch: divide by their number"
        local = np.stack([d_expert[r] / tokens[r] for r in group]).mean(axis=0)
        of_expert = {
            "It is summed over all ranks, also those with other experts. Only the ranks with the "
            "same expert have the same weights.": d_expert.sum(axis=0) / total,
            f"{few}, not by that of these replicas' tokens.": part / own,
            f"{few}. A mean of the ranks' means counts tokens of small ranks more.": local,
            f"{few}, not by the number of ranks.": part / len(group),
            "It is summed over the ranks with the other experts: rank r has expert r % size.": (
                d_expert[rank // size * size :][:size].sum(axis=0) / total
            ),
        }
        local = (d_router / tokens[:, None, None]).mean(axis=0)
        of_router = {
            f"{few}. A mean of the ranks' means counts tokens of small ranks more.": local,
            f"{few}, not by the number of ranks.": world / ranks,
            "All ranks have the router: sum over all of them, not only over your replicas.": (
                d_router[group].sum(axis=0) / total
            ),
        }
        routers = {f"rank {r}": d_router[r] / total for r in range(ranks)}
        experts = {f"rank {r}": d_expert[r] / total for r in group}
        pieces.append([Rows("d_router", routers, mistakes=of_router),
                       Rows("d_expert", experts, mistakes=of_expert)])  # fmt: skip
    given = [(size, d_router[r], d_expert[r], int(tokens[r])) for r in range(ranks)]
    return Case(given, pieces)
