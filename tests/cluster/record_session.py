"""Record notebook 35's two sessions on a private Slurm: python -m tests.cluster.record_session

They run the programs of the notebook's own cells, so that what is shown where there is no Slurm is
what the cells do where there is one.
"""

from __future__ import annotations

import json
import linecache
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from labkit import cluster
from labkit.cluster import session
from labkit.cluster.slurm.queue import slurm_version
from labkit.kinds import recorded
from labkit.plain import write
from tests.cluster.private_slurm import PrivateSlurm, wait_for

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "35_on_a_cluster.ipynb"
REQUEUED = NOTEBOOK.parent / "recordings" / "35_under_slurm.txt"


def lecture_cell() -> str:
    """The cell of the notebook that calls slurm_session."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return next(text for text in texts if "slurm_session(" in text)


def requeued(slurm: PrivateSlurm, folder: Path, steps: int = 1000) -> str:
    """The lecture's plain program under its batch script: stopped by SIGTERM once, and requeued."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        magic, _, text = "".join(cell["source"]).partition("\n")
        if magic.startswith("%%writefile") and "under_slurm" in magic:
            with (folder / Path(magic.split()[-1]).name).open("a", encoding="utf-8") as file:
                file.write(text.replace("STEPS = 64, 1000", f"STEPS = 64, {steps}") + "\n\n")
    # A node of its own would need a port of its own: both nodes of this Slurm are one machine.
    variables = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    variables |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    slurm.environment |= variables
    log, script = folder / "under_slurm.log", folder / "under_slurm.sh"
    job = slurm.ask("sbatch", "--parsable", f"--chdir={folder}", str(script)).strip()

    def state(key: str) -> bool:
        return key in slurm.ask("scontrol", "show", "job", job)

    saved = folder / "checkpoints" / "checkpoint"
    wait_for(lambda: saved.exists() and log.read_text().count("begins") == 2, "100 steps", 300)
    slurm.ask("scancel", "--signal=TERM", job)
    wait_for(lambda: state("JobState=PENDING") and state("Restarts=1"), "the requeue", 300)
    # By itself it waits two minutes. A start in the same second is refused ("credential revoked").
    slurm.ask("scontrol", "update", f"JobId={job}", "StartTime=now+2")
    wait_for(lambda: state("JobState=COMPLETED"), "the end of the job", 300)
    return log.read_text()


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
        srun = ("salloc", "--nodes=2", "--ntasks=2", "--time=5", "srun", "--label")
        shown = slurm.ask(*srun, "printenv", "SLURMD_NODENAME")
        log = requeued(slurm, Path(tempfile.mkdtemp(dir=slurm.folder)))
        REQUEUED.write_text(
            f"recorded on {where}, {seen.when}\n\n$ {' '.join(srun)} printenv SLURMD_NODENAME\n"
            f"{shown}\n$ sbatch under_slurm.sh; cat under_slurm.log\n{log}",
            encoding="utf-8",
        )
    finally:
        slurm.stop()
        shutil.rmtree(slurm.folder, ignore_errors=True)
    write(session.RECORDING, replace(seen, kind=recorded(where, seen.when)))


if __name__ == "__main__":
    main()
