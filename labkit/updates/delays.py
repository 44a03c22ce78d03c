"""Gradients that come late: how large a step may be before training flies apart.

In a bowl, where the gradient is curvature · x, a gradient that is `delay` updates old makes

    x[k+1] = x[k] - step · x[k - delay]                 (step: learning rate · curvature)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit import plain
from labkit.kinds import Kind, LabError, modelled
from labkit.updates.asked import number, whole

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = [
    "Stability",
    "delayed",
    "fastest_step",
    "measured_limit",
    "stability",
    "stability_limit",
]

BISECTIONS = 24  # from an interval of 2.5: to 2e-7
LONGEST = 10**9  # a delay for which the formulas can be worked out
TRIED = 500  # a delay for which trying takes some seconds
ROUNDS = 800  # half as many swings before growth is judged


def stability_limit(delay: int) -> float:
    """The step at which delayed gradient descent stops to settle: 2 sin(π / (2 (2 delay + 1))).

    >>> [round(stability_limit(delay), 5) for delay in range(4)]
    [2.0, 1.0, 0.61803, 0.44504]
    """
    return 2 * math.sin(math.pi / (2 * (2 * whole("delay", delay, 0, 3, LONGEST) + 1)))


def fastest_step(delay: int) -> float:
    """The largest step that still settles without swinging: delay^delay / (delay + 1)^(delay + 1).

    >>> [round(fastest_step(delay), 5) for delay in range(4)]
    [1.0, 0.25, 0.14815, 0.10547]
    """
    delay = whole("delay", delay, 0, 3, LONGEST)
    # As a product, so that it neither overflows nor is rounded away for long delays.
    return (delay / (delay + 1)) ** delay / (delay + 1)


def delayed(step: float, delay: int, updates: int = 100) -> list[float]:
    """Delayed gradient descent from 1, really done: x after 0, 1, 2 ... updates.

    >>> delayed(1.0, delay=1, updates=6)
    [1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 1.0]
    """
    step = number("step", step, 0.5)
    delay, updates = whole("delay", delay, 0, 3), whole("updates", updates, 1, 100, 10**6)
    x = [1.0]
    for k in range(updates):
        x.append(x[k] - step * x[max(0, k - delay)])
    return x


def measured_limit(delay: int) -> float:
    """The same limit without the formula: try a step, look whether x grows, halve the interval.

    >>> round(measured_limit(1), 4)
    1.0
    """
    delay = whole("delay", delay, 0, 3, TRIED)
    low, high = 0.0, 2.5
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _grows(middle, delay):
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _grows(step: float, delay: int) -> bool:
    """Whether late swings are larger than earlier ones; the first ones are a start, no trend."""
    updates = ROUNDS * (2 * delay + 1)
    window = updates // 4  # at the limit a swing takes 4 delay + 2 updates: this is a hundred
    x = [1.0] * (delay + 1)
    early = 0.0
    for k in range(updates):
        x.append(x[-1] - step * x[-1 - delay])
        if abs(x[-1]) > 1e9:
            return True
        if k == updates // 2:
            early = _size(x[-window:])
    return _size(x[-window:]) > early


def _size(x: list[float]) -> float:
    """The mean size of many swings: single values depend on where in a swing they were taken."""
    return math.sqrt(sum(one * one for one in x) / len(x))


@plain.stored
@dataclass(frozen=True)
class Stability:
    """The limit for several delays, by the formula and by trying."""

    delays: tuple[int, ...]
    formula: tuple[float, ...]
    tried: tuple[float, ...]
    fastest: tuple[float, ...]
    kind: Kind

    @property
    def difference(self) -> float:
        """The largest, between the formula and trying."""
        pairs = zip(self.formula, self.tried, strict=True)
        return max(abs(one - two) for one, two in pairs)

    def picture(self) -> Picture:
        """Both over the delay: a curve by the formula, a mark for each delay that was tried."""
        from labkit.views.updates_figure import limits

        return limits(self)

    def rows(self) -> list[tuple[str, ...]]:
        """Delay, formula, tried, fastest without swinging."""
        columns = zip(self.delays, self.formula, self.tried, self.fastest, strict=True)
        return [(str(d), f"{f:.5f}", f"{t:.5f}", f"{q:.5f}") for d, f, t, q in columns]

    def __str__(self) -> str:
        head = "delay   limit by the formula   limit by trying   largest step without swinging"
        lines = [f"{d:>5}   {f:>20}   {t:>15}   {q:>29}" for d, f, t, q in self.rows()]
        return "\n".join([head, *lines, f"{self.kind}."])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from labkit.views.table import table

        head = ("delay", "limit by the formula", "limit by trying", "largest step without swinging")
        html = table(head, self.rows(), caption="How large a step may be", footer=f"{self.kind}.")
        return {"text/plain": str(self), "text/html": html}


def stability(delays: Iterable[int] = range(9)) -> Stability:
    """The limit of each delay, by the formula and by trying, side by side.

    >>> stability([0, 1]).difference < 1e-4
    True
    """
    if not isinstance(delays, Iterable):
        raise LabError(f"stability takes some delays, not {delays!r}. Write stability(range(9)).")
    chosen = tuple(whole("delay", delay, 0, 3, TRIED) for delay in delays)
    if not chosen:
        raise LabError("There is no delay to try. Write stability(range(9)).")
    return Stability(
        chosen,
        tuple(stability_limit(delay) for delay in chosen),
        tuple(measured_limit(delay) for delay in chosen),
        tuple(fastest_step(delay) for delay in chosen),
        modelled(
            "2 sin(π/(2(2·delay+1))), beside delayed gradient descent itself, done step by step"
        ),
    )
