"""labkit: the library behind the course. Its public names, each loaded when first used.

>>> import labkit
>>> labkit.replicas(2)                  # doctest: +SKIP
>>> data = labkit.datasets.mnist()      # doctest: +SKIP
"""

import importlib
import os
import sys
from typing import Any

__version__ = "1.0.0"

# TensorFlow reads these once, when it is loaded, and a notebook may load it right after labkit.
# oneDNN's kernels add numbers in another order, which makes equal programs differ in the last
# digits; without the log level every notebook begins with lines in red. Without growth it takes all
# memory of every GPU at its first operation, and a kernel leaves none to ranks and other notebooks.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

# Public names that live in a room; a room itself is found by its name.
_NAMES = {
    "LabError": "kinds",
    "calibrate": "cluster.calibrate",
    "check": "exercises",
    "compare": "timing",
    "course": "exercises.course",
    "explore": "views",
    "hint": "exercises",
    "join": "timing.guesses",
    "measure": "timing",
    "my_progress": "exercises",
    "panel": "telemetry.panel",
    "picture": "views",
    "predict": "timing",
    "replay": "telemetry",
    "replicas": "hardware",
    "solution": "exercises",
    "source": "shown",
    "student": "exercises",
}
_ROOMS = (
    "choosing", "cluster", "collectives", "datasets", "exercises", "hardware", "kinds",
    "known_hardware", "memory", "pipelines", "strategies", "telemetry", "timing", "training",
    "updates",
)  # fmt: skip


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


if "IPython" in sys.modules:
    importlib.import_module("labkit.sections").install()
