"""What rooms share: the CPU is split once in a process of pytest, and progress is its own."""

from __future__ import annotations

import gc

import cloudpickle
import hypothesis
import pytest
import wrapt

import labkit
import tests
from labkit.exercises import attempts

hypothesis.settings.register_profile("labkit", deadline=None)  # a slow machine is slow, never red
hypothesis.settings.load_profile("labkit")

# Ranks get the functions of a test themselves, as those of a cell. By name, each rank of each run
# would import the test and all that it imports, for up to 0.6 s.
cloudpickle.register_pickle_by_value(tests)


@wrapt.when_imported("tensorflow")
def _prepare(tensorflow):
    """Whichever test is the first to import TensorFlow: once it runs, the CPU cannot be split."""
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
