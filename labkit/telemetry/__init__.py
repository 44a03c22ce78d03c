"""What devices do while they train: watched, marked with spans, shown live, recorded, replayed.

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
    from labkit.telemetry.lines import Span
    from labkit.telemetry.metrics import Device, Reading, Row, Source, State
    from labkit.telemetry.reading_files import read as replay
    from labkit.telemetry.recording import Recording
    from labkit.telemetry.spans import keras_callback, mark
    from labkit.telemetry.watch import Panel, panel

_NAMES = {
    "Device": "metrics",
    "Panel": "watch",
    "Reading": "metrics",
    "Recording": "recording",
    "Row": "metrics",
    "Source": "metrics",
    "Span": "lines",
    "State": "metrics",
    "keras_callback": "spans",
    "mark": "spans",
    "panel": "watch",
    "replay": "reading_files",
}

__all__ = [
    "Device",
    "Panel",
    "Reading",
    "Recording",
    "Row",
    "Source",
    "Span",
    "State",
    "keras_callback",
    "mark",
    "panel",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'labkit.telemetry' has no attribute {name!r}")
    module = importlib.import_module(f"labkit.telemetry.{_NAMES[name]}")
    value = globals()[name] = getattr(module, "read" if name == "replay" else name)
    return value
