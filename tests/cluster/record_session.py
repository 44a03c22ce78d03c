"""Record notebook 16's session on a private Slurm: python -m tests.cluster.record_session

It runs the program of the notebook's own cell, so that what is shown where there is no Slurm is
what the cell does where there is one.
"""

from __future__ import annotations

import json
import linecache
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from labkit import cluster
from labkit.cluster.slurm import session
from labkit.cluster.slurm.queue import slurm_version
from labkit.kinds import recorded
from labkit.plain import write
from tests.cluster.private_slurm import PrivateSlurm

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "16_on_a_cluster.ipynb"


def lecture_cell() -> str:
    """The cell of the notebook that calls slurm_session."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return next(text for text in texts if "slurm_session(" in text)


def main() -> None:
    text, name = lecture_cell(), "<the lecture's cell>"
    made = {"__name__": "__main__", "cluster": cluster}
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    *before, last = text.rstrip().split("\n\n")
    slurm = PrivateSlurm(Path(tempfile.mkdtemp(prefix="labkit-slurm-")))
    try:
        slurm.start()
        os.environ.update(slurm.environment)
        exec(compile("\n\n".join(before), name, "exec"), made)
        seen = eval(last, made)
        where = f"a one-host Slurm {slurm_version()}"
    finally:
        slurm.stop()
        shutil.rmtree(slurm.folder, ignore_errors=True)
    write(session.RECORDING, replace(seen, kind=recorded(where, seen.when)))


if __name__ == "__main__":
    main()
