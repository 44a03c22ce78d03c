"""Bytes of state on one device under ZeRO's stages."""

from __future__ import annotations

from labkit.memory import footprint
from labkit.memory.step_memory import board
from labkit.views.sketch import Sketch

ALT = (
    "Bytes on one device for 7.5 billion parameters on 64 devices, mixed precision with Adam, "
    "against a device of 80 GB. Data parallel 120 GB: 15 weights, 15 gradients, 90 optimizer. "
    "ZeRO-1 31.4 GB: 15, 15 and 1.4. ZeRO-2 16.6 GB: 15, 0.2 and 1.4. ZeRO-3 1.9 GB of state and "
    "0.8 GB for the layer that it has gathered and its gradient. All but the first fit."
)
NAMES = (
    "data parallel: all of it on every device",
    "ZeRO-1: the optimizer's state is sharded",
    "ZeRO-2: and the gradients",
    "ZeRO-3, FSDP: and the weights",
)


def draw() -> Sketch:
    steps = {
        name: footprint(7.5e9, convention="mixed adam 16", data=64, zero=zero, layers=36)
        for zero, name in enumerate(NAMES)
    }
    return board(steps, 80e9)
