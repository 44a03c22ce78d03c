"""What rooms share: the CPU is split once in a process of pytest, and progress is its own."""

from __future__ import annotations

import gc

import pytest
import wrapt

import labkit
from labkit.exercises import attempts


@wrapt.when_imported("tensorflow")
def _split_the_cpu(_):
    """Whichever test is the first to import TensorFlow: once it runs, it cannot be split."""
    labkit.replicas(4, devices="cpu")
    gc.freeze()  # what the import has made is never garbage


@pytest.fixture(scope="session")
def four():
    return labkit.replicas(4, devices="cpu")


@pytest.fixture(scope="session", autouse=True)
def _progress_of_the_tests(tmp_path_factory):
    """Where a test answers a task, nobody's progress changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "FILE", tmp_path_factory.mktemp("progress") / "progress.json")
        yield
