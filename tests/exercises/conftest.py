"""What the judges' tests share: a warm fork server, and ranks that import no test."""

from __future__ import annotations

import cloudpickle
import pytest

from tests.strategies.conftest import warm

__all__ = ["warm"]


@pytest.fixture(scope="module", autouse=True)
def _sent_by_value(request):
    """Ranks get the functions of a test themselves, as those of a cell.

    By name, each rank of each run would import the test and what it imports, for 0.6 s.
    """
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
