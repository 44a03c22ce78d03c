"""labkit: the library behind the course. Its public names, each loaded when first used.

>>> import labkit
>>> labkit.replicas(2)                  # doctest: +SKIP
>>> data = labkit.datasets.mnist()      # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# TensorFlow reads these once, when it is loaded, and a notebook may load it right after labkit.
# oneDNN's kernels add numbers in another order, which makes equal programs differ in the last
# digits; without the log level every notebook begins with lines in red.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

# Where each public name lives; a name alone is a room.
_NAMES = {
    "LabError": "labkit.kinds",
    "check": "labkit.exercises",
    "compare": "labkit.timing",
    "hint": "labkit.exercises",
    "measure": "labkit.timing",
    "my_progress": "labkit.exercises",
    "picture": "labkit.views.images",
    "panel": "labkit.telemetry.panel",
    "predict": "labkit.timing",
    "replay": "labkit.telemetry",
    "replicas": "labkit.hardware",
    "solution": "labkit.exercises",
    "cluster": None,
    "collectives": None,
    "datasets": None,
    "exercises": None,
    "hardware": None,
    "kinds": None,
    "memory": None,
    "strategies": None,
    "telemetry": None,
    "timing": None,
    "training": None,
    "updates": None,
}

__all__ = [
    "LabError",
    "check",
    "cluster",
    "collectives",
    "compare",
    "datasets",
    "exercises",
    "hardware",
    "hint",
    "kinds",
    "measure",
    "memory",
    "my_progress",
    "panel",
    "picture",
    "predict",
    "replay",
    "replicas",
    "solution",
    "strategies",
    "telemetry",
    "timing",
    "training",
    "updates",
]

if TYPE_CHECKING:
    from labkit import (
        cluster,
        collectives,
        datasets,
        exercises,
        hardware,
        kinds,
        memory,
        strategies,
        telemetry,
        timing,
        training,
        updates,
    )
    from labkit.exercises import check, hint, my_progress, solution
    from labkit.hardware import replicas
    from labkit.kinds import LabError
    from labkit.telemetry import replay
    from labkit.telemetry.panel import panel
    from labkit.timing import compare, measure, predict
    from labkit.views.images import picture


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
