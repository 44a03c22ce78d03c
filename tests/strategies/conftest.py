"""One warm process for the tests of the room, as for all cells of a notebook."""

from __future__ import annotations

import pytest

from labkit.cluster.here import fork_client
from tests.warm_kernel import WarmSubprocess


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Every cluster block here finds TensorFlow loaded.

    Tests of other rooms in this process are in no kernel. The fork server is kept warm for the next
    file of this one, and ends with pytest.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_client, "in_a_kernel", lambda: True)
        patch.setattr(fork_client, "subprocess", WarmSubprocess())
        yield
