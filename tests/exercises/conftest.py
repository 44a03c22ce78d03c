"""One warm fork server with TensorFlow for all judges that start processes; old iterators stay."""

from __future__ import annotations

import gc

import pytest

from labkit.cluster import fork_client


@pytest.fixture(scope="module")
def warm():
    """As in a kernel: only the first block waits for TensorFlow. Other rooms are in none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_client, "in_a_kernel", lambda: True)
        yield


@pytest.fixture(scope="module", autouse=True)
def _keep_the_garbage():
    """When an old iterator is deleted TensorFlow may wait for a minute: not in later tests."""
    yield
    gc.freeze()
