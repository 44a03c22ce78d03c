"""Delayed gradient descent: how large a step may be before training diverges.

For a quadratic loss, where the gradient is curvature · x, a gradient of `delay` updates ago makes

    x[k+1] = x[k] - step · x[k - delay]                 (step: learning rate · curvature)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.arguments import number, whole
from labkit.kinds import Kind, modelled

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
PERIODS = 400  # of the oscillation, before its growth is judged
LONGEST_DELAY = 500  # for which bisection takes some seconds


def stability_limit(delay: int) -> float:
    """The step above which delayed gradient descent diverges: 2 sin(π / (2 (2 delay + 1))).

    >>> [round(stability_limit(delay), 5) for delay in range(4)]
    [2.0, 1.0, 0.61803, 0.44504]
    """
    return 2 * math.sin(math.pi / (2 * (2 * whole("delay", delay) + 1)))


def fastest_step(delay: int) -> float:
    """The largest step without oscillation: delay^delay / (delay + 1)^(delay + 1).

    >>> [round(fastest_step(delay), 5) for delay in range(4)]
    [1.0, 0.25, 0.14815, 0.10547]
    """
    delay = whole("delay", delay)
    return (delay / (delay + 1)) ** delay / (delay + 1)


def delayed(step: float, delay: int, updates: int = 100) -> list[float]:
    """Delayed gradient descent from 1: x after 0, 1, 2 … updates.

    >>> delayed(1.0, delay=1, updates=6)
    [1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 1.0]
    """
    step = number("step", step)
    delay, updates = whole("delay", delay), whole("updates", updates)
    x = [1.0]
    for k in range(updates):
        x.append(x[k] - step * x[max(0, k - delay)])
    return x


def measured_limit(delay: int) -> float:
    """The same limit without the formula: bisection on whether the oscillation grows.

    >>> round(measured_limit(1), 4)
    1.0
    """
    delay = whole("delay", delay, at_most=LONGEST_DELAY)
    low, high = 0.0, 2.5
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _diverges(middle, delay):
            high = middle
        else:
            low = middle
    return (low + high) / 2


def _diverges(step: float, delay: int) -> bool:
    """Whether the last quarter is larger than the second: the first one still holds the start."""
    updates = 2 * PERIODS * (2 * delay + 1)  # at the limit a period takes 4 delay + 2
    window = updates // 4
    x = [1.0] * (delay + 1)
    early = 0.0
    for k in range(updates):
        x.append(x[-1] - step * x[-1 - delay])
        if abs(x[-1]) > 1e9:
            return True
        if k == updates // 2:
            early = math.hypot(*x[-window:])
    return math.hypot(*x[-window:]) > early


@dataclass(frozen=True)
class Stability:
    """The limit for several delays, by the formula and by bisection."""

    delays: tuple[int, ...]
    formula: tuple[float, ...]
    bisection: tuple[float, ...]
    fastest: tuple[float, ...]
    kind: Kind

    def picture(self) -> Picture:
        """Both over the delay."""
        from labkit.views.updates_figure import limits

        return limits(self)

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        head = ("delay", "limit by the formula", "by bisection", "largest step, no oscillation")
        columns = zip(self.delays, self.formula, self.bisection, self.fastest, strict=True)
        return head, [(str(d), f"{f:.5f}", f"{b:.5f}", f"{q:.5f}") for d, f, b, q in columns]

    def __repr__(self) -> str:
        from labkit.views.table import text_table

        return text_table(*self._table(), f"{self.kind}.")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        html = table(*self._table(), caption="The largest stable step", footer=f"{self.kind}.")
        return {"text/plain": repr(self), "text/html": html}


def stability(delays: Iterable[int] = range(9)) -> Stability:
    """The limit of each delay, by the formula and by bisection, side by side."""
    delays = tuple(delays)
    return Stability(
        delays,
        tuple(map(stability_limit, delays)),
        tuple(map(measured_limit, delays)),
        tuple(map(fastest_step, delays)),
        modelled("2 sin(π/(2(2·delay+1))), and delayed gradient descent itself, step by step"),
    )
