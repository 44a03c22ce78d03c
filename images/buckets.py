"""A backward pass and the all-reduce of its gradients, bucketed in three ways."""

from __future__ import annotations

from labkit.collectives import overlap
from labkit.collectives.page.charts import buckets_board
from labkit.views.sketch import Sketch

ALT = (
    "A backward pass of 12 layers and the all-reduce of its gradients, three schedules. All at "
    "the end: 21.8 ms. Every layer alone: 26.2 ms. Buckets of 16 MB, four layers each: 16.6 ms, "
    "for two of three buckets leave while the backward pass still runs."
)
LAYERS = [(1e-3, 4e6)] * 12  # seconds of the backward pass, bytes of the gradient
BUCKETS = {"All at the end": float("inf"), "Every layer alone": 0.0, "Buckets of 16 MB": 16e6}


def draw() -> Sketch:
    return buckets_board(
        {
            name: overlap(LAYERS, ranks=8, bucket=size, latency=100e-6, bandwidth=10e9)
            for name, size in BUCKETS.items()
        }
    )
