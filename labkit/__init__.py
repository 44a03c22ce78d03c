"""labkit: the library behind the course. Its public names, each loaded when first used.

>>> import labkit
>>> labkit.replicas(2)                  # doctest: +SKIP
>>> data = labkit.datasets.mnist()      # doctest: +SKIP
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

__version__ = "1.0.0"

# TensorFlow reads these once, when it is loaded, and a notebook may load it right after labkit.
# Without the log level every notebook begins with lines in red. Without growth it takes all memory
# of every GPU at its first operation, and a kernel leaves none to ranks and other notebooks.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

# Public names that live in a room; a room itself is found by its name.
_NAMES = {
    "LabError": "kinds",
    "calibrate": "cluster.calibrate",
    "check": "exercises",
    "classroom": "kit.classroom",
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
    "choosing", "cluster", "collectives", "datasets", "exercises", "explain", "hardware", "kinds",
    "known_hardware", "limits", "memory", "pipelines", "profiles", "storage", "strategies", "study",
    "telemetry", "timing", "training", "updates",
)  # fmt: skip


def _find_spec(name: str, *more: Any) -> Any:
    """Import TensorFlow without its start-up messages; warnings and errors still show."""
    if name != "tensorflow" or os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        return None
    others = (one.find_spec(name, *more) for one in sys.meta_path if one is not _quiet)
    spec = next(filter(None, others), None)
    if spec is None or spec.loader is None:
        return None
    load = partial(_load_quietly, spec.loader.exec_module)
    spec.loader.exec_module = load  # type: ignore[method-assign]
    return spec


def _load_quietly(load: Callable[[Any], None], module: Any) -> None:
    import logging
    import tempfile

    # What TensorFlow logs before it knows its log level, it writes to the descriptor.
    stderr, collects = os.dup(2), gc.isenabled()
    gc.disable()  # it would take a fifth of the seconds of the import
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            load(module)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            log.seek(0)
            hidden = b"I0000 ", b"WARNING: All log messages before absl"
            os.write(2, b"".join(line for line in log if not line.startswith(hidden)))
            if collects:
                gc.enable()
    # In a notebook it chooses INFO: every strategy prints its devices, every reduction its plan.
    logging.getLogger("tensorflow").setLevel(logging.WARNING)


_quiet: Any = SimpleNamespace(find_spec=_find_spec)
sys.meta_path.insert(0, _quiet)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"labkit.{name}")
    if name not in _NAMES:
        hint = importlib.import_module("labkit.arguments").near(name, [*_NAMES, *_ROOMS])
        raise AttributeError(f"module 'labkit' has no attribute {name!r}.{hint}")
    value = getattr(importlib.import_module(f"labkit.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES, *_ROOMS])


if "IPython" in sys.modules:
    importlib.import_module("labkit.sections").install()
