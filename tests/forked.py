"""Scripts as a user would start them, each in a fork of one process that has loaded TensorFlow.

Loading it takes seconds of CPU for every script; here it takes them once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

RUNNER = """
import os, runpy, sys
import keras, tensorflow
for number, script in enumerate(sys.argv[1:]):
    if os.fork() == 0:
        for descriptor, stream in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{number}.{stream}", os.O_CREAT | os.O_WRONLY), descriptor)
        sys.argv[:] = [script]
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    with open(f"{number}.code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.wait()[1])))
"""

SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}  # as labkit sets them


class Ended(NamedTuple):
    """What a script has left."""

    code: int
    out: str
    err: str


def run(scripts: list[Path], folder: Path, **environment: str) -> dict[str, Ended]:
    """Each script's end by the stem of its file. They run in this folder, one after the other."""
    subprocess.run(
        [sys.executable, "-c", RUNNER, *map(str, scripts)],
        cwd=folder, env={**os.environ, **SETTINGS, **environment}, check=True, timeout=900,
    )  # fmt: skip
    return {
        script.stem: Ended(
            int((folder / f"{number}.code").read_text()),
            *((folder / f"{number}.{stream}").read_text() for stream in ("out", "err")),
        )
        for number, script in enumerate(scripts)
    }
