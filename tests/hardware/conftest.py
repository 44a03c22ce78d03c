"""A driver built from C, for processes of their own."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nvml_library import built

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def in_scene(tmp_path_factory):
    """What a program has `found` in a fresh process in which the driver shows a scene."""
    library = built(tmp_path_factory.mktemp("nvml"))

    def in_scene(program, scene, **environment):
        code = f"import pickle, sys\n{program}\nsys.stdout.buffer.write(pickle.dumps(found))"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        seen = {"LD_LIBRARY_PATH": str(library), "NVML_SCENE": scene, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env={**kept, **seen, **environment}, capture_output=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return pickle.loads(done.stdout)

    return in_scene
