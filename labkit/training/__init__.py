"""One model, one step, every strategy: what the comparisons of the course compare."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_NAMES = {
    "Job": "job",
    "Training": "history",
    "breakdown": "anatomy",
    "diagnose": "diagnosis",
    "load": "saving",
    "save": "saving",
    "scaled_learning_rate": "scaling",
    "training_step": "step",
}

__all__ = [
    "Job",
    "Training",
    "breakdown",
    "diagnose",
    "load",
    "save",
    "scaled_learning_rate",
    "training_step",
]

if TYPE_CHECKING:
    from labkit.training.anatomy import breakdown
    from labkit.training.diagnosis import diagnose
    from labkit.training.history import Training
    from labkit.training.job import Job
    from labkit.training.saving import load, save
    from labkit.training.scaling import scaled_learning_rate
    from labkit.training.step import training_step


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.training' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"labkit.training.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
