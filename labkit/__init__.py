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

# Public names that live in a room; a room itself is found by its name.
_NAMES = {
    "LabError": "kinds",
    "check": "exercises",
    "compare": "timing",
    "hint": "exercises",
    "measure": "timing",
    "my_progress": "exercises",
    "panel": "telemetry.panel",
    "picture": "views",
    "predict": "timing",
    "replay": "telemetry",
    "replicas": "hardware",
    "solution": "exercises",
}
_ROOMS = (
    "cluster", "collectives", "datasets", "exercises", "hardware", "kinds", "known_hardware",
    "memory", "pipelines", "strategies", "telemetry", "timing", "training", "updates",
)  # fmt: skip

if TYPE_CHECKING:
    from labkit import cluster as cluster
    from labkit import collectives as collectives
    from labkit import datasets as datasets
    from labkit import exercises as exercises
    from labkit import hardware as hardware
    from labkit import known_hardware as known_hardware
    from labkit import memory as memory
    from labkit import pipelines as pipelines
    from labkit import strategies as strategies
    from labkit import telemetry as telemetry
    from labkit import timing as timing
    from labkit import training as training
    from labkit import updates as updates
    from labkit.exercises import check as check
    from labkit.exercises import hint as hint
    from labkit.exercises import my_progress as my_progress
    from labkit.exercises import solution as solution
    from labkit.hardware import replicas as replicas
    from labkit.kinds import LabError as LabError
    from labkit.telemetry import replay as replay
    from labkit.telemetry.panel import panel as panel
    from labkit.timing import compare as compare
    from labkit.timing import measure as measure
    from labkit.timing import predict as predict
    from labkit.views import picture as picture


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"labkit.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"labkit.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES, *_ROOMS])
