"""Every strategy of the lectures, run for real in processes of its own, with training's one step.

>>> import labkit
>>> labkit.strategies()                                         # doctest: +SKIP
>>> labkit.strategies(only="MultiWorkerMirrored")               # doctest: +SKIP

Names are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.strategies import checkpoints, parameter_server
    from labkit.strategies.drills import Drill, drill
    from labkit.strategies.many_workers import Workers, save_once, workers
    from labkit.strategies.shares import Sharing, sharing
    from labkit.strategies.works import Row, Works

# What the ranks of a cluster import before they start, if their program names this room.
PRELOAD = ("labkit.training", "labkit.training.job", "tensorflow", "keras")
# Where each name lives; a name alone is a module.
_NAMES = {
    "Drill": "drills",
    "Row": "works",
    "Sharing": "shares",
    "Workers": "many_workers",
    "Works": "works",
    "checkpoints": None,
    "drill": "drills",
    "parameter_server": None,
    "save_once": "many_workers",
    "sharing": "shares",
    "workers": "many_workers",
}

__all__ = [
    "Drill",
    "Row",
    "Sharing",
    "Workers",
    "Works",
    "checkpoints",
    "drill",
    "parameter_server",
    "save_once",
    "sharing",
    "workers",
]


class _Room(ModuleType):
    """A module that can be called: students write `labkit.strategies()`, and it keeps its name."""

    def __call__(self, *, only: str | None = None, deadline: float = 180.0) -> Works:
        """What works here: every strategy, or that of one name, run now and judged."""
        from labkit.strategies.running import run_cases

        return run_cases(only, deadline)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.strategies' has no attribute {name!r}")
    module = _NAMES[name]
    if module is None:
        return importlib.import_module(f"labkit.strategies.{name}")
    value = globals()[name] = getattr(importlib.import_module(f"labkit.strategies.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])


sys.modules[__name__].__class__ = _Room
