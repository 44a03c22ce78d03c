"""What devices do while they train: sampled, marked with spans, shown live, recorded, replayed.

>>> with labkit.panel() as panel:                    # doctest: +SKIP
...     job.train(epochs=3)
>>> panel.table()                                    # doctest: +SKIP
>>> labkit.replay("recording.jsonl")                 # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.telemetry.recording import read as replay
    from labkit.telemetry.spans import keras_callback, mark

__all__ = ["keras_callback", "mark", "replay"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: the sampler's process and the training room need little of it.
    if name not in __all__:
        raise AttributeError(f"module 'labkit.telemetry' has no attribute {name!r}")
    if name == "replay":
        return importlib.import_module("labkit.telemetry.recording").read
    return getattr(importlib.import_module("labkit.telemetry.spans"), name)
