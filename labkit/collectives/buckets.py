"""Overlap of gradient communication with the backward pass: all at the end, or in buckets.

The backward pass makes gradients from the last layer to the first. A bucket is sent as soon as
its last gradient is there and the bucket before it has gone:

>>> plan = overlap([(1e-3, 4e6)] * 12, ranks=8, bucket=16e6, latency=100e-6, bandwidth=10e9)
>>> plan
Overlap(16.6 ms, 3 buckets, 4.60 ms after the backward pass)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from labkit.collectives.costs import cost
from labkit.collectives.records import counted
from labkit.kinds import Kind, LabError, bytes_text, modelled, seconds_text

__all__ = ["Bucket", "Overlap", "overlap"]


class Bucket(NamedTuple):
    """Gradients that travel together: layers as they come out of the backward pass, from 0."""

    first: int
    last: int
    nbytes: float
    start: float
    end: float


@dataclass(frozen=True, repr=False)
class Overlap:
    """One backward pass with its all-reduces, in seconds from its start."""

    backward: tuple[tuple[float, float], ...]  # start and end of each layer, last layer first
    buckets: tuple[Bucket, ...]
    seconds: float
    kind: Kind

    @property
    def exposed(self) -> float:
        """Seconds of communication after the backward pass, when nothing hides them."""
        return self.seconds - self.backward[-1][1]

    def __repr__(self) -> str:
        count = counted(len(self.buckets), "bucket")
        after = f"{seconds_text(self.exposed)} after the backward pass"
        return f"Overlap({seconds_text(self.seconds)}, {count}, {after})"

    def _repr_mimebundle_(self, **_: object) -> Any:
        from labkit.views.cost_figure import buckets

        return buckets(self)._repr_mimebundle_()


def overlap(
    layers: Sequence[tuple[float, float]],
    ranks: int,
    bucket: float,
    latency: float,
    bandwidth: float,
) -> Overlap:
    """The ring all-reduces for layers of (seconds of the backward pass, bytes of gradient).

    `layers` are in the order of the backward pass. A bucket is closed as soon as it holds
    `bucket` bytes: 0 sends every layer alone, `float("inf")` sends all of them at the end.
    """
    if not layers:
        raise LabError("layers must hold (seconds, bytes) of at least one layer, got none.")
    ends = list(accumulate(seconds for seconds, _ in layers))
    buckets: list[Bucket] = []
    first, held, free = 0, 0.0, 0.0
    for layer, (_, nbytes) in enumerate(layers):
        held += nbytes
        if held < bucket and layer < len(layers) - 1:
            continue
        start = max(ends[layer], free)
        free = start + cost("ring_all_reduce", ranks, held, latency=latency, bandwidth=bandwidth)
        buckets.append(Bucket(first, layer, held, start, free))
        first, held = layer + 1, 0.0
    link = f"α = {seconds_text(latency)}, {bytes_text(bandwidth)}/s"
    kind = modelled(f"ring on {ranks} ranks, {link}; the backward pass is not slowed by it")
    backward = tuple(zip([0.0, *ends[:-1]], ends, strict=True))
    return Overlap(backward, tuple(buckets), max(ends[-1], free), kind)
