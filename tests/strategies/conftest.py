"""One warm process for all tests of the room, as for all cells of a notebook."""

from __future__ import annotations

import pytest

from labkit.cluster import cool, resting


@pytest.fixture(scope="session", autouse=True)
def warm():
    """Every cluster block here finds TensorFlow loaded; only the first waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resting, "in_a_kernel", lambda: True)
        yield
        cool()
