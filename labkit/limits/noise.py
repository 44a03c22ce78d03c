"""How large a batch pays: the gradient noise scale, and what a batch costs in steps and examples.

The gradient of one example differs from the mean gradient G by noise with covariance Σ. The noise
scale is tr(Σ)/|G|². To reach the same loss, a batch of B needs S·(1 + N/B) steps, where N is about
the noise scale and S the steps of a very large batch (McCandlish et al., 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from labkit.kinds import LabError


class Noise(NamedTuple):
    """Unbiased estimates from the same gradients; either may fall below 0 by chance."""

    squared_norm: float
    """|G|² of the mean gradient."""
    trace: float
    """tr(Σ): the variance of the gradient of one example, added up over all parameters."""

    @property
    def scale(self) -> float:
        """The noise scale, in examples; not a number where |G|² cannot be told from 0."""
        return self.trace / self.squared_norm if self.squared_norm > 0 else float("nan")


def noise_scale(gradients: Sequence[Any], batch: int) -> Noise:
    """Returns the noise from gradients of equal batches: of replicas, or of micro-batches.

    Each of `gradients` is an array, the mean gradient over `batch` examples, at the same weights.
    The squared norm of their mean is too large by tr(Σ)/(n·batch), which the spread between them
    tells.
    """
    import numpy as np

    rows = np.array([np.ravel(one) for one in gradients], dtype=float)
    if len(rows) < 2:
        raise LabError("The noise scale needs at least two gradients, of different examples.")
    mean = rows.mean(0)
    between = float(((rows - mean) ** 2).sum() / (len(rows) - 1))  # tr(Σ)/batch
    return Noise(float(mean @ mean) - between / len(rows), between * batch)
