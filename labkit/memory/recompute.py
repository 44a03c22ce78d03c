"""A small transformer block in NumPy, three programs that train a stack of it, and their bytes.

>>> blocks, x = stack(layers=3, tokens=8, hidden=4)
>>> measured(keep_everything, blocks, x).forwards, measured(full, blocks, x).forwards
(3, 6)
"""

import itertools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Kept: TypeAlias = dict[str, Array]
Step: TypeAlias = Callable[..., Any]
RATE = 0.1  # of dropout
SQUARE = "weights", "mask", "dropped"  # what attention makes of size tokens × tokens


class SmallBlock:
    """Attention of one head with dropout, and an MLP with ReLU, each added to its input."""

    def __init__(self, hidden: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        shapes = [(hidden, hidden)] * 4 + [(hidden, 4 * hidden), (4 * hidden, hidden)]
        self.matrices = [random.normal(0, 0.5 / one[0] ** 0.5, one).astype("float32")
                         for one in shapes]  # fmt: skip

    def scores(self, q: Array, k: Array, seed: int) -> Kept:
        """What attention makes of size tokens × tokens; `seed` decides what dropout drops."""
        raw = q @ k.T / np.float32(q.shape[1] ** 0.5)
        weights = np.exp(raw - raw.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mask = np.random.default_rng(seed).random(weights.shape) >= RATE
        return {"weights": weights, "mask": mask, "dropped": weights * mask / np.float32(1 - RATE)}

    def forward(self, x: Array, seed: int) -> tuple[Array, Kept]:
        """The output, and all that `backward` needs."""
        wq, wk, wv, wo, w1, w2 = self.matrices
        kept = {"x": x, "q": x @ wq, "k": x @ wk, "v": x @ wv}
        kept |= self.scores(kept["q"], kept["k"], seed)
        kept["attended"] = kept["dropped"] @ kept["v"]
        kept["middle"] = x + kept["attended"] @ wo
        kept["relu"] = np.maximum(kept["middle"] @ w1, 0)
        return kept["middle"] + kept["relu"] @ w2, kept

    def backward(self, kept: Kept, dy: Array) -> tuple[Array, list[Array]]:
        """The gradient of the input, and those of the six matrices."""
        wq, wk, wv, wo, w1, w2 = self.matrices
        x, q, k, v, weights = (kept[name] for name in ("x", "q", "k", "v", "weights"))
        du = dy @ w2.T * (kept["relu"] > 0)
        dz = dy + du @ w1.T
        da = dz @ wo.T
        dw = da @ v.T * kept["mask"] / np.float32(1 - RATE)
        dr = weights * (dw - (dw * weights).sum(axis=1, keepdims=True))
        dr /= np.float32(q.shape[1] ** 0.5)
        dq, dk, dv = dr @ k, dr.T @ q, kept["dropped"].T @ da
        dx = dz + dq @ wq.T + dk @ wk.T + dv @ wv.T
        gradients = [x.T @ dq, x.T @ dk, x.T @ dv, kept["attended"].T @ dz,
                     kept["middle"].T @ du, kept["relu"].T @ dy]  # fmt: skip
        return dx, gradients


def stack(layers: int, tokens: int, hidden: int) -> tuple[list[SmallBlock], Array]:
    """Blocks, and an input."""
    x = np.random.default_rng(0).normal(size=(tokens, hidden)).astype("float32")
    return [SmallBlock(hidden, seed) for seed in range(layers)], x


def keep_everything(blocks: Sequence[Any], x: Array, gradient: Step, draw: Step) -> list[Any]:
    """Forward and backward; `draw()` is a new seed, `gradient(y)` that of the loss."""
    everything, found = [], []
    for block in blocks:
        x, kept = block.forward(x, draw())
        everything.append(kept)
    dy = gradient(x)
    for block in reversed(blocks):
        dy, own = block.backward(everything.pop(), dy)
        found.append(own)
    return found[::-1]


def full(blocks: Sequence[Any], x: Array, gradient: Step, draw: Step) -> list[Any]:
    """The same, but each block keeps its input and its seed only."""
    inputs, found = [], []
    for block in blocks:
        inputs.append((x, seed := draw()))
        x = block.forward(x, seed)[0]
    dy = gradient(x)
    for block in reversed(blocks):
        kept = block.forward(*inputs.pop())[1]
        dy, own = block.backward(kept, dy)
        del kept  # before the next block is recomputed
        found.append(own)
    return found[::-1]


def selective(blocks: Sequence[Any], x: Array, gradient: Step, draw: Step) -> list[Any]:
    """The same, but each block drops what attention makes of size tokens × tokens."""
    everything, found = [], []
    for block in blocks:
        x, kept = block.forward(x, seed := draw())
        everything.append((seed, {name: kept[name] for name in kept if name not in SQUARE}))
        del kept
    dy = gradient(x)
    for block in reversed(blocks):
        seed, kept = everything.pop()
        kept |= block.scores(kept["q"], kept["k"], seed)
        dy, own = block.backward(kept, dy)
        del kept
        found.append(own)
    return found[::-1]


@dataclass
class Counts:
    """What a step did: its result, the most bytes alive of what blocks made, and its calls."""

    result: Any = None
    peak: int = 0
    seconds: float = 0.0
    calls: list[tuple[str, int, Array, int]] = field(default_factory=list)
    """Of "forward" and "scores": the block, the first array that it was given, and the seed."""
    draws: int = 0
    held: int = 0

    @property
    def forwards(self) -> int:
        """How often a block ran forward."""
        return Counter(name for name, *_ in self.calls)["forward"]

    def watch(self, arrays: Sequence[Array]) -> None:
        """Counts the bytes of these arrays until nothing refers to them any more."""
        for array in arrays:
            self.held += array.nbytes
            weakref.finalize(array, self._release, array.nbytes)
        self.peak = max(self.peak, self.held)

    def _release(self, size: int) -> None:
        self.held -= size


class _Counted:
    def __init__(self, block: SmallBlock, number: int, counts: Counts, *, copies: bool) -> None:
        self.block, self.number, self.counts, self.copies = block, number, counts, copies

    def forward(self, x: Array, seed: int) -> tuple[Array, Kept]:
        self._call("forward", x, seed)
        y, kept = self.block.forward(x, seed)
        self.counts.watch([y, *(one for one in kept.values() if one is not x)])
        return y, kept

    def scores(self, q: Array, k: Array, seed: int) -> Kept:
        self._call("scores", q, seed)
        made = self.block.scores(q, k, seed)
        self.counts.watch([*made.values()])
        return made

    def backward(self, kept: Kept, dy: Array) -> tuple[Array, list[Array]]:
        return self.block.backward(kept, dy)

    def _call(self, name: str, given: Array, seed: int) -> None:
        given = given.copy() if self.copies else given[:0]
        self.counts.calls.append((name, self.number, given, seed))


def measured(step: Step, blocks: Sequence[SmallBlock], x: Array, *, copies: bool = False) -> Counts:
    """One step, with its bytes, calls and seconds; with `copies` of what the calls were given."""
    counts, seeds = Counts(), itertools.count(1000)

    def draw() -> int:
        counts.draws += 1
        return next(seeds)

    watched = [_Counted(one, n, counts, copies=copies) for n, one in enumerate(blocks)]
    began = time.perf_counter()
    counts.result = step(watched, x, lambda y: y, draw)
    counts.seconds = time.perf_counter() - began
    return counts
