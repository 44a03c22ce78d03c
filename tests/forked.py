"""Scripts as a user would start them, each in a fork of the process that has loaded TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.warm_kernel import Forked


class Ended(NamedTuple):
    """What a script has left."""

    code: int | None
    out: str
    err: str


def run(script: Path, **environment: str) -> Ended:
    """Run a script in its folder."""
    env, folder = {**os.environ, **environment}, str(script.parent)
    out, err = (script.with_suffix(f".{stream}") for stream in ("out", "err"))
    with out.open("wb") as its_out, err.open("wb") as its_err:
        if sys.platform == "linux":
            files = its_out.fileno(), its_err.fileno()
            process = Forked("script", files, script=str(script), cwd=folder, env=env)
        else:
            command = [sys.executable, script]
            process = subprocess.Popen(command, cwd=folder, env=env, stdout=its_out, stderr=its_err)
        try:
            code = process.wait(900)
        finally:
            process.kill()
    return Ended(code, out.read_text(), err.read_text())
