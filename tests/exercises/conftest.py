"""One warm fork server for all judges that start processes."""

from __future__ import annotations

import pytest

from labkit.cluster.here import fork_client


@pytest.fixture(scope="module", autouse=True)
def warm():
    """It is kept for the next test, as in a kernel. Without TensorFlow its ranks start sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_client, "in_a_kernel", lambda: True)
        yield
