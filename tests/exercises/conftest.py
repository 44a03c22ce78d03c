"""One warm fork server with TensorFlow for all judges that start processes."""

from __future__ import annotations

import pytest

from labkit.cluster import fork_client


@pytest.fixture(scope="module", autouse=True)
def warm():
    """As in a kernel: only the first block waits for TensorFlow. Other rooms are in none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_client, "in_a_kernel", lambda: True)
        yield
