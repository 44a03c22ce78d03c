import gc

import pytest

from labkit.timing import clock
from tests.timing.fake import World


@pytest.fixture(autouse=True)
def _all_rounds(monkeypatch):
    monkeypatch.delenv("LABKIT_ROUNDS", raising=False)


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(clock, "now", lambda: made.seconds)
    # Collecting pytest's own garbage takes long, and no time is measured in this world.
    monkeypatch.setattr(gc, "collect", lambda generation=2: 0)
    return made
