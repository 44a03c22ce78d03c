"""Every other rank of a real training: take weights, compute a gradient, send it, again."""

from __future__ import annotations

import time
from typing import Any

from labkit.updates.asked import Plan
from labkit.updates.channel import connect

__all__ = ["work"]

PATIENCE = 600.0  # for the server to load what it needs; the cluster's deadline ends it before


def work(plan: Plan, problem: Any, worker: int, address: str, key: bytes) -> int:
    """Go on until the server says that it is over; returns how many gradients were sent."""
    # The first call of anything loads and traces: that is no part of a training's speed.
    problem.gradient(problem.start(), worker, plan.workers, 0)
    server, step = connect(address, key, PATIENCE), 0
    try:
        server.send(worker)
        while (weights := server.recv()) is not None:
            began = time.monotonic()
            slope = problem.gradient(weights, worker, plan.workers, step)
            # What this lesson's gradient lacks in size it makes up by waiting, so that a small
            # machine can be many, and one of them slow. Word from the server now means the end.
            rest = plan.work(worker, step) - (time.monotonic() - began)
            if server.poll(max(0.0, rest)):
                break
            server.send((began, time.monotonic(), slope))
            step += 1
    finally:
        server.close()
    return step
