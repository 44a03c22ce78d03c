"""Backfill: small jobs may go before a large one that waits."""

from __future__ import annotations

from labkit.choosing.queue_model import JobRequest, queue
from labkit.views.sketch import Sketch

ALT = (
    "Eight devices over 13 hours, modelled. Job A runs on five of them from hour 0 to 4. B, "
    "first in the queue, needs all eight and runs from 4 to 7. C, asked for later, needs two "
    "for three hours and runs from 1 to 4, before B and without delaying it. D needs one for "
    "six hours, would delay B, and runs after it, from 7 to 13."
)

# A large job waits; a small one runs before it and delays nobody.
LINE = (
    JobRequest("A", 0, devices=5, limit=4),
    JobRequest("B\nfirst in the queue", 0.5, devices=8, limit=3),
    JobRequest("C", 1, devices=2, limit=3),
    JobRequest("D", 1.5, devices=1, limit=6),
)


def draw() -> Sketch:
    return queue(LINE, devices=8).board(
        "Backfill: a small job runs before a large one",
        "B needs all eight devices and waits for A. C fits into the gap: it ends before B can "
        "begin. D takes too long.",
    )
