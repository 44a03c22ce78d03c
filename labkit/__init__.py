"""labkit: the library behind the course. Its public names, each loaded when first used.

>>> import labkit
>>> labkit.replicas(2)                  # doctest: +SKIP
>>> data = labkit.datasets.mnist()      # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Where each public name lives; a name alone is a room.
_NAMES = {
    "LabError": "labkit.kinds",
    "compare": "labkit.timing",
    "measure": "labkit.timing",
    "predict": "labkit.timing",
    "replicas": "labkit.hardware",
    "datasets": None,
    "exercises": None,
    "hardware": None,
    "kinds": None,
    "memory": None,
    "timing": None,
    "training": None,
}

__all__ = [
    "LabError",
    "compare",
    "datasets",
    "exercises",
    "hardware",
    "kinds",
    "measure",
    "memory",
    "predict",
    "replicas",
    "timing",
    "training",
]

if TYPE_CHECKING:
    from labkit import datasets, exercises, hardware, kinds, memory, timing, training
    from labkit.hardware import replicas
    from labkit.kinds import LabError
    from labkit.timing import compare, measure, predict


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    room = _NAMES[name]
    if room is None:
        return importlib.import_module(f"labkit.{name}")
    value = getattr(importlib.import_module(room), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
