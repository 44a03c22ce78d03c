"""Who updates the weights, and when: synchronous and asynchronous training, modelled and measured.

The same questions, with the same keywords, to a simulator and to real processes:

>>> import labkit
>>> model = labkit.updates.simulate(workers=4, mode="async", slow={3: 4.0})
>>> model.mean_staleness
2.88
>>> labkit.updates.train(workers=3, mode="async", slow={2: 4.0})        # doctest: +SKIP

Both give an `Updates`: every gradient with the version of the weights that it was computed from.

`simulate(problem=None, *, workers=4, mode="async", updates=None, seconds=None, compute=1.0,
slow=None, jitter=0.0, network=0.0, apply=0.0, bound=None, backups=0, learning_rate=0.1, seed=0)`
`train(problem=None, *, workers=3, mode="async", updates=None, seconds=None, compute=0.01,
slow=None, jitter=0.0, bound=None, backups=0, learning_rate=0.1, seed=0, deadline=60.0)`
`compare(*runs, names=(), target=None)` puts runs side by side, over updates and over seconds.
`stability_limit(delay)`, `fastest_step(delay)`, `measured_limit(delay)`, `delayed(step, delay,
updates)` and `stability(delays)` are about gradients that come late.
`Quadratic`, `Softmax` and `CourseModel` are problems to train on.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES = {
    "CourseModel": "course_model",
    "Gradient": "record",
    "Quadratic": "problems",
    "Softmax": "problems",
    "Updates": "record",
    "compare": "side_by_side",
    "delayed": "delays",
    "fastest_step": "delays",
    "measured_limit": "delays",
    "implicit_momentum": "rules",
    "stability": "delays",
    "stability_limit": "delays",
    "staleness_bound": "rules",
    "simulate": "simulator",
    "train": "processes",
    "usual_staleness": "rules",
}

__all__ = [
    "CourseModel",
    "Gradient",
    "Quadratic",
    "Softmax",
    "Updates",
    "compare",
    "delayed",
    "fastest_step",
    "implicit_momentum",
    "measured_limit",
    "simulate",
    "stability",
    "stability_limit",
    "staleness_bound",
    "train",
    "usual_staleness",
]

if TYPE_CHECKING:
    from labkit.updates.course_model import CourseModel
    from labkit.updates.delays import (
        delayed,
        fastest_step,
        measured_limit,
        stability,
        stability_limit,
    )
    from labkit.updates.problems import Quadratic, Softmax
    from labkit.updates.processes import train
    from labkit.updates.record import Gradient, Updates
    from labkit.updates.rules import implicit_momentum, staleness_bound, usual_staleness
    from labkit.updates.side_by_side import compare
    from labkit.updates.simulator import simulate


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.updates' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"labkit.updates.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
