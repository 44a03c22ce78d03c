"""Recorders that were given known lines, for tests of what comes out of them."""

from __future__ import annotations

import json

from labkit.kinds import measured
from labkit.telemetry.format import Header
from labkit.telemetry.recording import Recorder

HEADER = Header("a formula", "2026-11-21T10:00:00+01:00", 0.1, 0.0)


def gpus(count=1, metrics=("utilisation", "power", "energy"), **about):
    """The line that names GPUs."""
    about = {"name": "a GPU", "sort": "gpu", **about}
    devices = [{"key": f"gpu{i}", **about} for i in range(count)]
    return {"source": "gpus", "metrics": list(metrics), "devices": devices}


def cpu(*metrics):
    """The line that names a processor."""
    device = {"key": "cpu", "name": "a CPU", "sort": "cpu"}
    return {"source": "host", "metrics": list(metrics), "devices": [device]}


def recorder(*lines, capacity=None):
    """A recorder that has taken these."""
    made = Recorder(HEADER, capacity)
    take(made, *lines)
    return made


def take(recorder, *lines):
    """Give lines to a recorder as the sampler does: as text, several at a time."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    for start in range(0, len(texts), 10):
        recorder.take("\n".join(texts[start : start + 10]))


def recording(recorder):
    return recorder.recording(measured("a formula"))
