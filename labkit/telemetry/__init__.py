"""What devices do while they train: sampled, marked with spans, shown live, recorded, replayed.

>>> with labkit.panel() as panel:                    # doctest: +SKIP
...     job.train(epochs=3)
>>> panel.table()                                    # doctest: +SKIP
>>> labkit.replay("recording.jsonl")                 # doctest: +SKIP

Names are loaded when they are first used: the sampler's process and the training room, which only
marks its epochs, need few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.telemetry.format import Span
    from labkit.telemetry.metrics import Device, State
    from labkit.telemetry.panel import Panel
    from labkit.telemetry.recording import Recording
    from labkit.telemetry.recording import read as replay
    from labkit.telemetry.spans import keras_callback, mark

# `labkit.panel` is the function `panel` of the module `panel`, which has its name here.
_NAMES = {
    "Device": "metrics",
    "Panel": "panel",
    "Recording": "recording",
    "Span": "format",
    "State": "metrics",
    "keras_callback": "spans",
    "mark": "spans",
    "replay": "recording",
}

__all__ = ["Device", "Panel", "Recording", "Span", "State", "keras_callback", "mark", "replay"]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.telemetry' has no attribute {name!r}")
    module = importlib.import_module(f"labkit.telemetry.{_NAMES[name]}")
    value = globals()[name] = getattr(module, "read" if name == "replay" else name)
    return value
