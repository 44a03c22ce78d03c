"""Delayed gradient descent: how large a step may be before training diverges.

For a quadratic loss, where the gradient is curvature · x, a gradient of `delay` updates ago makes

    x[k+1] = x[k] - step · x[k - delay]                 (step: learning rate · curvature)
"""

import math

from labkit.arguments import number, whole


def stability_limit(delay: int) -> float:
    """Returns the step above which delayed gradient descent diverges: 2 sin(π / (2 (2 delay + 1))).

    >>> [round(stability_limit(delay), 5) for delay in range(4)]
    [2.0, 1.0, 0.61803, 0.44504]
    """
    return 2 * math.sin(math.pi / (2 * (2 * whole("delay", delay) + 1)))


def delayed(step: float, delay: int, updates: int = 100) -> list[float]:
    """Returns x after 0, 1, 2 … updates of delayed gradient descent from 1.

    >>> delayed(1.0, delay=1, updates=6)
    [1.0, 0.0, -1.0, -1.0, 0.0, 1.0, 1.0]
    """
    step = number("step", step)
    delay, updates = whole("delay", delay), whole("updates", updates)
    x = [1.0]
    for k in range(updates):
        x.append(x[k] - step * x[max(0, k - delay)])
    return x
