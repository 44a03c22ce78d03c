"""Four cases of lecture 64: which number, changed by how much, changes the decision."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import NamedTuple

from labkit.choosing import Data, Machine, Model, choose
from labkit.kinds import bytes_text, modelled, seconds_text
from labkit.memory import activations_per_layer
from labkit.views.sketch import Sketch

PHOTOS = Data(1.28e6, 602_112, batch=64, epochs=90)
FEW_PHOTOS = Data(1.28e6, 602_112, batch=32, epochs=90)
RESNET = Model(25.6e6, 90e6, step_seconds=0.1)
SLOW_RESNET = Model(25.6e6, 90e6, step_seconds=0.4)
TEXT = Data(50_000, 8_192, batch=1, epochs=3)
KEPT_7B = 32 * activations_per_layer(
    hidden=4096, heads=32, sequence=2048, micro_batch=1, recompute="full"
)
KEPT_70B = 80 * activations_per_layer(
    hidden=8192, heads=64, sequence=4096, micro_batch=1, recompute="full"
)
LLAMA = {"layers": 80, "hidden": 8192, "heads": 64, "sequence": 4096, "vocabulary": 32_000}


class Row(NamedTuple):
    """A case, the number that changes, its value in the case, its range, and the decision."""

    case: str
    what: str
    value: float
    low: float
    high: float
    text: Callable[[float], str]
    decide: Callable[[float], str]


ROWS = (
    Row("ResNet-50, 8 GPUs", "the time that you may wait", 3600, 36, 3.6e6, seconds_text,
        lambda x: choose(RESNET, PHOTOS, Machine(40e9, 8, link=235e9), enough=x).choice),
    Row("ResNet-50, 20 unequal PCs", "network", 125e6, 1e7, 1e10, lambda x: f"{bytes_text(x)}/s",
        lambda x: choose(SLOW_RESNET, FEW_PHOTOS,
                         Machine(8e9, 1, 20, network=x, slowest=0.5)).choice),
    Row("7 billion, 4 GPUs", "memory of a GPU", 24e9, 8e9, 100e9, bytes_text,
        lambda x: choose(Model(6.74e9, KEPT_7B, "mixed adam 16", 1.5, recomputed=True), TEXT,
                         Machine(x, 4, link=31e9, host_memory=64e9)).choice),
    Row("70 billion, 512 GPUs", "network of a machine", 50e9, 1e10, 1e12,
        lambda x: f"{bytes_text(x)}/s",
        lambda x: choose(Model(70e9, KEPT_70B, "mixed adam 16", 4.3, LLAMA, recomputed=True), TEXT,
                         Machine(80e9, 8, 64, link=450e9, network=x)).choice),
)  # fmt: skip


def limit(row: Row) -> float:
    """Where the decision changes, to 0.1 %."""
    low, high = row.low, row.high
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if row.decide(middle) == row.decide(low) else (low, middle)
    return high


LIMITS = [limit(row) for row in ROWS]
ALT = "One number is changed in each of four cases. " + " ".join(
    f"{row.case}, {row.what}: below {row.text(at)} {row.decide(row.low)}, above it "
    f"{row.decide(row.high)}; the case has {row.text(row.value)}."
    for row, at in zip(ROWS, LIMITS, strict=True)
)


def draw() -> Sketch:
    board = Sketch(
        "Which number changes the decision?",
        490,
        "Each bar changes one number of a case, on a logarithmic scale. The arrow is the case.",
        kind=modelled("labkit.choosing.choose"),
    )
    left, width = 250.0, 520.0
    for index, (row, at) in enumerate(zip(ROWS, LIMITS, strict=True)):
        y = 100 + 96.0 * index

        def x(value: float, row: Row = row) -> float:
            return left + width * log(value / row.low) / log(row.high / row.low)

        board.text(24, y + 12, row.case, size=9.5, bold=True)
        board.text(24, y + 34, row.what, size=9, faint=True)
        for start, end, series in ((row.low, at, 0), (at, row.high, 2)):
            name = row.decide((start * end) ** 0.5)
            words = name.replace(", ", ",\n").replace(" (", "\n(")
            board.box(x(start), y, x(end) - x(start), 42, words, series=series, size=8.5)
        board.text(x(at), y + 56, row.text(at), size=8.5, align="center")
        board.arrow((x(row.value), y - 22), (x(row.value), y - 2), heavy=True)
        board.text(x(row.value) + 8, y - 14, row.text(row.value), size=8.5)
    return board
