"""Four ranks for all tests that need no cluster of their own; a private Slurm, started once."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

import labkit
from tests.cluster.private_slurm import PrivateSlurm, why_not


@pytest.fixture(scope="session")
def four():
    with labkit.cluster(ranks=4) as c:
        yield c


@pytest.fixture(scope="session")
def one_slurm():
    reason = why_not()
    if reason and os.environ.get("LABKIT_REQUIRE_SLURM") == "1":
        pytest.fail(f"No Slurm could be started: {reason}")
    if reason:
        pytest.skip(f"No Slurm was started, so nothing was run under it: {reason}.")
    # Sockets have short paths, and pytest's own folders have long ones.
    folder = Path(tempfile.mkdtemp(prefix="labkit-slurm-"))
    private = PrivateSlurm(folder)
    try:
        private.start()
        yield private
    finally:
        private.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm(one_slurm, monkeypatch):
    """A Slurm with two idle nodes, which the commands of this test find."""
    for name, value in one_slurm.environment.items():
        monkeypatch.setenv(name, value)
    yield one_slurm
    left = one_slurm.jobs()
    one_slurm.cancel_all()
    assert left == [], "the test has left jobs in the queue"
