"""A world without real time: its clock moves only when a program says how long it took."""

import gc
import itertools

import pytest

from labkit.timing import wall_clock


class World:
    """Seconds that pass only in `work`."""

    def __init__(self):
        self.seconds = 0.0
        self.calls = []

    def work(self, name, seconds):
        """A program that takes the given seconds, call by call."""
        times = itertools.repeat(seconds) if isinstance(seconds, float) else iter(seconds)

        def call():
            self.calls.append(name)
            self.seconds += next(times)

        return call


@pytest.fixture(autouse=True)
def _all_rounds(monkeypatch):
    monkeypatch.delenv("LABKIT_ROUNDS", raising=False)


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(wall_clock, "now", lambda: made.seconds)
    # Collecting pytest's own garbage takes long, and no time is measured in this world.
    monkeypatch.setattr(gc, "collect", lambda generation=2: 0)
    return made
