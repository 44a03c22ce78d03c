"""Model parallelism with and without micro-batches."""

from __future__ import annotations

from labkit.pipelines import Schedule, schedule
from labkit.pipelines.page.pipeline import lanes
from labkit.views.sketch import Sketch

ALT = (
    "A model in four stages on four ranks, modelled. Above, the whole batch goes through all "
    "stages at once: one rank computes at a time, and the step takes 24. Below, three "
    "micro-batches follow each other: several ranks compute at the same time, and the step takes "
    "12. Grey is the bubble, the time in which a rank waits."
)


def draw() -> Sketch:
    whole = Schedule([[("F", 0), ("B", 0)]] * 4, name="whole batch").timeline(3.0, 3.0)
    pipeline = schedule("gpipe", stages=4, micro_batches=3)
    parts = Schedule(pipeline.rows, name="3 micro-batches").timeline(1.0, 1.0)
    return lanes((whole, parts), "One model on four ranks").board
