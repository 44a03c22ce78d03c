"""Versions of the weights, kept so that their losses can be worked out when nobody is waiting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from labkit.updates.record import Loss

__all__ = ["Snapshots", "overflowing"]

KEPT = 256  # versions; of more, every second is let go, again and again


class Snapshots:
    """The first version, the last one, and evenly spaced ones between them."""

    def __init__(self, weights: Any) -> None:
        self._stride = 1
        self._kept: list[tuple[int, float, Any]] = [(0, 0.0, weights)]
        self._last = self._kept[0]

    def add(self, version: int, seconds: float, weights: Any) -> None:
        """Keep this version, or be able to: the caller never changes these weights in place."""
        self._last = (version, seconds, weights)
        if version % self._stride == 0:
            self._kept.append(self._last)
            if len(self._kept) > KEPT:
                self._stride *= 2
                self._kept = [one for one in self._kept if one[0] % self._stride == 0]

    @property
    def weights(self) -> Any:
        """Of the last version."""
        return self._last[2]

    def losses(self, problem: Any) -> tuple[Loss, ...]:
        """The loss of each version that was kept."""
        kept = self._kept if self._kept[-1] is self._last else [*self._kept, self._last]
        with overflowing():
            return tuple(Loss(version, at, problem.loss(weights)) for version, at, weights in kept)


@contextmanager
def overflowing() -> Iterator[None]:
    """Training that flies apart is a lesson here: the loss says so, and not warnings of NumPy."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        yield
