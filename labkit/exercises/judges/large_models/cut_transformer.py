"""Judges of a transformer's pieces that are cut among ranks: norm, gate, loss, tied weights, seeds.

What a rank returns is compared with the serial program, and with what each usual mistake returns:

>>> Known("loss", {"": np.array([1.0])}, mistakes={"It has the wrong sign.": np.array([-1.0])}
...       ).fault([-1.0])
'loss is wrong. It has the wrong sign.'
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labkit.exercises.judges.model_parallel import CLOSE, Array, Case, Piece
from labkit.exercises.task import Wrong

UNEVEN = np.array([3, 1, 4, 2, 5, 2, 6, 3])  # shares of the ranks
EPSILON = 1e-5


@dataclass(frozen=True)
class Known(Piece):
    """A piece that knows what usual mistakes make of it, by the sentence that each is told."""

    mistakes: Mapping[str, Array] = field(default_factory=dict)
    not_finite: str = ""  # what to do about inf and NaN

    def fault(self, found: Any) -> str:
        """What is wrong, with the sentence of the mistake that returns the same."""
        if text := super().fault(found):
            array = np.asarray(found)
            right = np.sum(list(self.parts.values()), axis=0)
            numbers = array.dtype.kind in "fiu" and array.shape == right.shape
            if numbers and not np.isfinite(array).all():
                return f"{self.name} has inf or NaN. {self.not_finite}".strip()
            for sentence, wrong in self.mistakes.items() if numbers else ():
                if np.allclose(array, wrong, rtol=0, atol=CLOSE * np.abs(wrong).max()):
                    return f"{self.name} is wrong. {sentence}"
        text = text.replace("the contribution of  is missing", "it is 0")
        if " in row" in text:  # any number is a multiple of another
            text = re.sub("the contribution of  counts .* times", "the numbers differ", text)
        return text.replace("the contribution of  counts", "it is the right one,")


def _cuts(ranks: int, scale: int = 1) -> Array:
    """Where the ranks' unequal shares begin, and where the last one ends."""
    return np.append(0, np.cumsum(scale * UNEVEN[:ranks]))


def _columns(array: Array, cuts: Array) -> list[Array]:
    return [array[..., one:two] for one, two in itertools.pairwise(cuts)]


def norm_cut(ranks: int) -> Case:
    """(comm, x, scale, dy, hidden) → y, dx, d_scale of an RMSNorm whose columns are sharded."""
    random, cuts, n = np.random.default_rng(ranks), _cuts(ranks, 40), 7
    h = int(cuts[-1])
    x, dy, scale = (random.normal(size=one) for one in ((n, h), (n, h), h))
    x *= np.linspace(0.5, 3, h)  # so that the mean square of a part is not that of the row
    xs, dys, scales = (_columns(one, cuts) for one in (x, dy, scale))

    def root(square: Array) -> Array:
        return 1 / np.sqrt(square + EPSILON)

    squares = [(one**2).sum(axis=1, keepdims=True) for one in xs]
    dots = [(a * b * c).sum(axis=1, keepdims=True) for a, b, c in zip(dys, scales, xs, strict=True)]
    r, dot = root(sum(squares) / h), sum(dots)
    unscaled = sum((a * b).sum(axis=1, keepdims=True) for a, b in zip(dys, xs, strict=True))
    of_means = root(sum(s / one.shape[1] for s, one in zip(squares, xs, strict=True)) / ranks)
    pieces, given = [], []
    for n_rank, (mine, my_scale, my_dy) in enumerate(zip(xs, scales, dys, strict=True)):
        own, width = squares[n_rank], mine.shape[1]
        g = my_scale * my_dy
        y = {
            "Each rank took the mean square of its own columns: all-reduce the sum of squares.":
                mine * root(own / width) * my_scale,
            "The sum of squares is of this rank alone, and it is divided by the whole width.":
                mine * root(own / h) * my_scale,
            "The parts have different widths, so a mean of their means is not the mean: all-reduce "
            "the sums, and divide by hidden.": mine * of_means * my_scale,
            "The sum of squares was divided by the width of a part: divide by hidden.":
                mine * root(sum(squares) / width) * my_scale,
            "That is a layer norm, without the root of the mean square: nothing is subtracted.":
                (mine - x.mean(axis=1, keepdims=True)) * r * my_scale,
        }  # fmt: skip
        dx = {
            "The sum of dy · scale · x runs over all columns: all-reduce it, too.":
                r * g - mine * r**3 * dots[n_rank] / h,
            "The root depends on x as well. Its term, x r³ · sum(dy · scale · x) / hidden, is "
            "missing.": r * g,
            "The sum of dy · scale · x is divided by hidden, not by the width of a part.":
                r * g - mine * r**3 * dot / width,
            "The scale is missing: the gradient of x / RMS is dy · scale.":
                r * my_dy - mine * r**3 * unscaled / h,
        }  # fmt: skip
        of_scale = {
            "It needs no communication: each rank owns its columns of the scale.":
                ranks * (my_dy * mine * r).sum(axis=0),
            "It is the gradient of y = x / RMS · scale, so x is divided by the RMS.":
                (my_dy * mine).sum(axis=0),
        }  # fmt: skip
        pieces.append([
            Known("y", {"": mine * r * my_scale}, "y = x * r * scale.", mistakes=y),
            Known("dx", {"": r * g - mine * r**3 * dot / h},
                  "With g = dy * scale, dx = r * g - x * r**3 * sum(g * x) / hidden.", mistakes=dx),
            Known("d_scale", {"": (my_dy * mine * r).sum(axis=0)},
                  "It is the sum of dy * x * r over the rows.", mistakes=of_scale),
        ])  # fmt: skip
        given.append((mine, my_scale, my_dy, h))
    saving = "Send the sums of each row, one number, and never the columns of x."
    return Case(given, pieces, 4 * (ranks - 1) * n * 8, saving)


def silu(x: Array) -> Array:
    """x · sigmoid(x)."""
    return np.asarray(x / (1 + np.exp(-x)))


class Narrow(np.ndarray):
    """An array whose products tell how wide they are."""

    most = 0  # columns

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        plain = (np.asarray(one) for one in inputs)
        result = getattr(ufunc, method)(*plain, **keywords)
        if ufunc is np.matmul and np.shape(result)[-1] > self.most:
            raise Wrong(
                f"A rank has computed {np.shape(result)[-1]} columns, and {self.most} of gate and "
                "up are its part. Cut the matrices before the products, not after them."
            )
        return result


def swiglu_cut(ranks: int) -> Case:
    """(comm, x, gate_up, down) → y of a SwiGLU; every rank is given the whole matrices."""
    random, h, n = np.random.default_rng(ranks), 5, 6
    f = 2 * (30 * ranks + 1)  # not a multiple of the ranks
    x, gate_up, down = (random.normal(size=one) for one in ((n, h), (h, 2 * f), (f, h)))
    cuts = [part.tolist() for part in np.array_split(np.arange(f), ranks)]
    gate, up = np.split(x @ gate_up, 2, axis=1)
    even = f // ranks * ranks

    def parts(active: Array) -> dict[str, Array]:
        return {f"rank {n}": active[:, cut] @ down[cut] for n, cut in enumerate(cuts)}

    packed = np.zeros((n, h))
    for block, cut in zip(np.array_split(x @ gate_up, ranks, axis=1), cuts, strict=True):
        a, b = block[:, : len(cut)], block[:, len(cut) : 2 * len(cut)]
        if a.shape == b.shape == (n, len(cut)):
            packed = packed + silu(a) * b @ down[cut]
        else:
            packed = np.full((n, h), np.nan)
    mistakes = {
        "A rank took neighbouring columns of gate_up, so some have gates and no up: cut the "
        "gate's half and up's half each by itself.": packed,
        "The width is no multiple of the ranks, and the last columns are missing: "
        "np.array_split gives them to the first ranks.": (silu(gate) * up)[:, :even] @ down[:even],
        "silu is applied to the gate, the first half, not to up.": (gate * silu(up)) @ down,
        "That is a sigmoid. silu(a) is a · sigmoid(a).": (silu(gate) / gate * up) @ down,
        "The gate is multiplied with up, column by column, not added.": (silu(gate) + up) @ down,
    }  # fmt: skip
    advice = "Each rank's product with its rows of down is a part of a sum: all-reduce the parts."
    y = Known("y", parts(silu(gate) * up), advice, mistakes=mistakes)
    saving = "One all-reduce, of y, is all that it needs."

    def too_much(trace: Any) -> str:
        if ranks == 1 or max(trace.bytes_sent):
            return ""
        return "no rank sends anything: each has computed with all columns, and not with its part."

    def call(answer: Callable[..., Any], comm: Any, whole: Array, *matrices: Array) -> Any:
        watched = whole.view(Narrow)
        watched.most = 2 * -(-f // ranks)
        return answer(comm, watched, *matrices)

    most, given = 2 * (ranks - 1) * x.nbytes, [(x, gate_up, down)] * ranks
    return Case(given, [[y]] * ranks, most, saving, too_much, call=call)


# The loss of a vocabulary that is cut.

RANGE = (
    "exp of a large logit overflows, and a sum of very small ones is 0: subtract the largest logit "
    "of each position and of all ranks first, op='max'."
)
LOSS = (
    "loss = log(sum of exp(logit - top)) + top - the target's logit, with the largest logit and "
    "the sum of all ranks. The owner of a target has first <= target < first + width."
)
GRADIENT = "It is (softmax over all ranks - 1 at the target) / positions."


def _vocabulary(ranks: int, size: float) -> tuple[list[Array], Array, Array]:
    """Logits of each rank, where their tokens begin, and targets, some on each rank."""
    random, cuts, n = np.random.default_rng(ranks), _cuts(ranks, 16), 3 * ranks
    logits = size * random.normal(size=(n, cuts[-1]))
    # Of each rank its first token, its last one, and any.
    ends = [(one, two - 1, random.integers(one, two)) for one, two in itertools.pairwise(cuts)]
    targets = random.permutation(np.ravel(ends))
    return _columns(logits, cuts), cuts, targets


def _softmax_parts(logits: Sequence[Array]) -> dict[str, Any]:
    own = [one.max(axis=1) for one in logits]
    top = np.max(own, axis=0)
    return {
        "own": own, "top": top,
        "sums": [np.exp(one - m[:, None]).sum(axis=1) for one, m in zip(logits, own, strict=True)],
        "total": np.sum([np.exp(one - top[:, None]).sum(axis=1) for one in logits], axis=0),
    }  # fmt: skip


def _indices(cuts: Array, targets: Array, rank: int) -> dict[str, tuple[Array, Array]]:
    """Where a mistaken program finds a target that another rank has, and where it is right."""
    first, width = cuts[rank], cuts[rank + 1] - cuts[rank]
    local = targets - first
    inside = (local >= 0) & (local < width)
    return {
        "": (np.where(inside, local, 0), inside),
        "clipped": (np.clip(local, 0, width - 1), np.ones_like(inside)),
        "wrapped": (local % width, np.ones_like(inside)),
        "whole": (targets % width, np.ones_like(inside)),
    }


def cut_loss(ranks: int, size: float) -> Case:
    """(comm, logits, first, targets) → the loss of each position, on every rank."""
    logits, cuts, targets = _vocabulary(ranks, size)
    f, rows = _softmax_parts(logits), np.arange(len(targets))
    with np.errstate(divide="ignore"):  # of a mistake: no token of a rank is near the largest
        alone = [np.log(np.exp(one - f["top"][:, None]).sum(axis=1)) for one in logits]
    picked: dict[str, list[Array]] = {"": [], "clipped": [], "wrapped": [], "whole": []}
    for rank, one in enumerate(logits):
        for name, (index, counts) in _indices(cuts, targets, rank).items():
            picked[name].append(one[rows, index] * counts)
    whole, target = np.log(f["total"]) + f["top"], np.sum(picked[""], axis=0)
    masked = (
        "A rank that does not own a target must add 0 for it. Mask the positions whose target is "
        "not in first to first + width - 1."
    )
    each = (
        "Each rank has shifted by its own maximum, so the sums do not belong together: all-reduce "
        "the maximum, op='max', before exp."
    )
    pieces = []
    for rank in range(ranks):
        own = f["own"][rank]
        mistakes = {
            each: np.log(np.sum(f["sums"], axis=0)) + own - target,
            each + " ": np.log(np.sum(f["sums"], axis=0)) + f["top"] - target,
            "The sum of exp is of this rank's tokens alone: all-reduce it.":
                alone[rank] + f["top"] - target,
            "It is the loss of this rank's tokens alone: all-reduce the maximum, the sum of exp "
            "and the target's logit.": np.log(f["sums"][rank]) + own - picked[""][rank],
            "The target's logit is missing on the ranks that do not own it: all-reduce it.":
                whole - picked[""][rank],
            "The target's logit counts once for each rank: only its owner may add it to the sum.":
                whole - ranks * target,
            "The target's logit is missing.": whole,
            "The maximum was subtracted before exp, and must be added to the logarithm again.":
                np.log(f["total"]) - target,
            "The target's logit must be shifted by the maximum, too, or the maximum be added.":
                np.log(f["total"]) - target + 2 * f["top"],
            masked: whole - np.sum(picked["clipped"], axis=0),
            masked + " ": whole - np.sum(picked["wrapped"], axis=0),
            masked + "  ": whole - np.sum(picked["whole"], axis=0),
            "It has the wrong sign: the loss is the log-sum-exp minus the target's logit.":
                target - whole,
            "Return one loss for each position, not their mean.":
                np.full(len(targets), (whole - target).mean()),
        }  # fmt: skip
        pieces.append([Known("loss", {"": whole - target}, LOSS, mistakes=mistakes,
                             not_finite=RANGE)])  # fmt: skip
    given = [(one, int(cuts[rank]), targets) for rank, one in enumerate(logits)]
    saving = (
        "For each position send a maximum, a sum and the target's logit, and never the logits: "
        "three all-reduces of one number for each position."
    )
    return Case(given, pieces, 3 * 2 * (ranks - 1) * len(targets) * 8, saving)


def cut_gradient(ranks: int, size: float) -> Case:
    """(comm, logits, first, targets) → the gradient of the mean loss, of this rank's logits."""
    logits, cuts, targets = _vocabulary(ranks, size)
    f, n = _softmax_parts(logits), len(targets)
    pieces = []
    for rank, mine in enumerate(logits):
        hot = {}
        for name, (index, counts) in _indices(cuts, targets, rank).items():
            hot[name] = np.zeros_like(mine)
            hot[name][np.arange(n), index] = counts
        top, own = f["top"][:, None], f["own"][rank][:, None]
        chance = np.exp(mine - top) / f["total"][:, None]
        alone = np.exp(mine - own) / f["sums"][rank][:, None]
        shifted = np.exp(mine - own) / np.sum(f["sums"], axis=0)[:, None]
        owner = "Subtract 1 at the target on the rank that owns it, and on no other."
        each = (
            "The softmax is of this rank's tokens alone: all-reduce the maximum, op='max', and the "
            "sum of exp."
        )
        mistakes = {
            "The one-hot row of the target is missing. " + owner: chance / n,
            "A rank that does not own the target has subtracted 1 as well. " + owner:
                (chance - hot["clipped"]) / n,
            "A rank that does not own the target has subtracted 1 as well. " + owner + " ":
                (chance - hot["wrapped"]) / n,
            "A rank that does not own the target has subtracted 1 as well. " + owner + "  ":
                (chance - hot["whole"]) / n,
            "It is the gradient of the sum: the mean divides it by the number of positions.":
                chance - hot[""],
            "The mean is over the positions. Ranks and tokens do not count.":
                (chance - hot[""]) / (n * ranks),
            each: (alone - hot[""]) / n,
            "Each rank has shifted by its own maximum: all-reduce the maximum, op='max', before "
            "exp.": (shifted - hot[""]) / n,
            "It has the wrong sign: the softmax minus the one-hot row.": (hot[""] - chance) / n,
        }  # fmt: skip
        pieces.append([Known("d_logits", {"": (chance - hot[""]) / n}, GRADIENT, mistakes=mistakes,
                             not_finite=RANGE)])  # fmt: skip
    given = [(one, int(cuts[rank]), targets) for rank, one in enumerate(logits)]
    saving = "Two all-reduces, of a maximum and a sum for each position, are enough."
    return Case(given, pieces, 2 * 2 * (ranks - 1) * n * 8, saving)


def tied(ranks: int) -> Case:
    """(comm, of_embedding, of_head) → the gradient of the tied matrix on both ends of a pipeline.

    Each is None on the stages that do not have it, and such a stage returns None.
    """
    one, two = np.random.default_rng(ranks).normal(size=(2, 9, 4))
    advice = {
        "missing": "Both copies need the sum of both gradients: all-reduce it between the two "
        "stages that hold one.",
        "times": "The loss depends on the matrix in two places, so its gradient is the sum of "
        "both: neither their mean nor one of them twice.",
        "": "It is the sum of the gradients of both copies.",
    }
    parts = {"the embedding": one, "the head": two}

    def call(answer: Callable[..., Any], comm: Any, a: Any, b: Any) -> Any:
        found = answer(comm, a, b)
        if a is None is b:
            if found is not None and np.size(found) and np.any(np.asarray(found)):
                text = "holds neither the embedding nor the head: return None there."
                raise Wrong(f"A stage in the middle {text}")
            return np.zeros(1)
        return found

    def idle(trace: Any) -> str:
        busy = [n for n in range(1, ranks - 1) if trace.bytes_sent[n] > one.nbytes / 4]
        text = "sends the gradient, though it has neither: only the first and the last stage must."
        return f"stage {busy[0]} {text}" if busy else ""

    given = [(one if n == 0 else None, two if n == ranks - 1 else None) for n in range(ranks)]
    ends, middle = Piece("gradient", parts, advice), Piece("result", {"": np.zeros(1)})
    pieces = [[ends if n in (0, ranks - 1) else middle] for n in range(ranks)]
    saving = "Each of the two sends its gradient to the other, once."
    return Case(given, pieces, 2 * one.nbytes, saving, idle, call=call)


def dropout_seeds(my_seed: Callable[..., Any]) -> None:
    """(step, layer, data, tensor, divided) → a seed of np.random.default_rng."""

    def mask(*given: Any) -> bytes:
        shown = "my_seed({}, layer={}, data={}, tensor={}, divided={})".format(*given)
        seed = my_seed(*given)
        if seed is None:
            raise Wrong(f"{shown} is None: default_rng(None) draws a new mask in every run.")
        try:
            return np.random.default_rng(seed).random(4).tobytes()
        except (TypeError, ValueError) as fault:
            raise Wrong(f"{shown} is {seed!r}. np.random.default_rng says: {fault}.") from None

    again = 3, 2, 1, 1, True
    if mask(*again) != mask(*again):
        raise Wrong(
            "Called twice it gives two seeds. A layer that is recomputed in the backward pass must "
            "draw the same mask again."
        )
    for data in range(3):
        whole = {mask(5, 4, data, tensor, False) for tensor in range(4)}
        if len(whole) > 1:
            raise Wrong(
                "Where the activation is whole, the tensor ranks hold copies of one array, and "
                "must drop the same numbers: their seeds must be equal. They differ."
            )
    steps, layers = (0, 1, 2, 3, 10, 99, 100, 1000), (0, 1, 2, 10, 99)
    for divided in (True, False):
        seen: dict[bytes, tuple[Any, ...]] = {}
        tensors = range(8) if divided else [0]
        for given in itertools.product(steps, layers, (0, 1, 2, 3, 10, 64), tensors, [divided]):
            other = seen.setdefault(mask(*given), given)
            if other != given:
                names = "step", "layer", "data", "tensor", "divided"
                one, two = (", ".join(f"{k}={v}" for k, v in zip(names, each, strict=True))
                            for each in (other, given))  # fmt: skip
                different = [k for k, a, b in zip(names, other, given, strict=True) if a != b]
                why = {
                    "tensor": "Tensor ranks that hold different heads or positions must drop "
                    "different numbers.",
                    "data": "Replicas see different examples, and must drop different numbers.",
                    "step": "Each step draws a new mask.",
                    "layer": "Each layer draws its own mask.",
                }.get(" ".join(different), "A sum of the numbers is not enough: 1 + 0 is 0 + 1.")
                raise Wrong(f"The same mask for ({one}) and for ({two}). {why}")
