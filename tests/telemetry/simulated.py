"""Sources whose devices, faults and time are made up, for tests of what looks at them."""

from __future__ import annotations

import json
import time

from labkit.telemetry.metrics import Device, Reading, Row

DEADLINE = 20.0  # seconds; far more than anything here takes


class Simulated:
    """`devices` devices that show the number of looks; `faults` are raised, one at a look."""

    def __init__(self, name="made", devices=1, metrics=("utilisation",), clock=time.monotonic):
        self.name, self.metrics, self.clock = name, metrics, clock
        self.devices = tuple(Device(f"{name}{i}", f"{name} {i}", "gpu") for i in range(devices))
        self.faults = []  # None is no fault
        self.looks = self.opened = self.closed = 0
        self.during = lambda: None  # what happens while it is looked at

    def open(self):
        self.opened += 1
        return self.devices, ()

    def read(self):
        self.looks += 1
        self.during()
        if self.faults and (fault := self.faults.pop(0)):
            raise fault
        values = tuple(float(self.looks) for _ in self.metrics)
        return Reading((Row(self.clock(), tuple(values for _ in self.devices)),))

    def close(self):
        self.closed += 1


class Clock:
    """Time that passes when the test says so."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


class Heard:
    """What was said, as lists and dicts, to be asked from another thread."""

    def __init__(self):
        self.lines = []

    def lists(self, lines):
        """For a Feed, which hands on what is parsed."""
        self.lines.extend(lines)

    def texts(self, lines):
        """For a Sampling, which hands on text."""
        self.lines.extend(map(json.loads, lines))

    def rows(self, number=0):
        return [line for line in list(self.lines) if isinstance(line, list) and line[0] == number]

    def times(self, number=0):
        return [row[1] for row in self.rows(number)]

    def states(self, why=None):
        return [
            line
            for line in list(self.lines)
            if "state" in line and isinstance(line, dict) and why in (None, line["state"])
        ]

    def dicts(self, key):
        return [line for line in list(self.lines) if isinstance(line, dict) and key in line]


def until(condition, deadline=DEADLINE):
    """Wait for it; the last answer, so that a test can assert it."""
    end = time.monotonic() + deadline
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.005)
    return answer
