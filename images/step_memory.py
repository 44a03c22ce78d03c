"""Bytes of a training step on one device, by convention of precision and optimizer."""

from __future__ import annotations

from labkit.memory import footprint
from labkit.memory.step_memory import board
from labkit.views.sketch import Sketch

ALT = (
    "Bytes on one device for 7.5 billion parameters, by convention, against a device of 80 GB. "
    "float32 SGD 60 GB: 30 weights, 30 gradients. float32 Adam 120 GB: 30, 30 and 60 optimizer. "
    "Mixed Adam 120 GB: 15, 15 and 90. bfloat16 Adam 90 GB: 15, 15 and 60. Only the first fits."
)
CONVENTIONS = ("float32 sgd", "float32 adam", "mixed adam 16", "bfloat16 adam 12")


def draw() -> Sketch:
    steps = {
        f"7.5 billion parameters, {name}": footprint(7.5e9, convention=name) for name in CONVENTIONS
    }
    return board(steps, 80e9)
