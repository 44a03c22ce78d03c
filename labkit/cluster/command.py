"""`labkit slurm`: a batch script for a program, and what the script starts on every rank."""

from __future__ import annotations

import argparse

from labkit.cluster.batch import Ask
from labkit.cluster.scripts import script_of_file
from labkit.kinds import LabError

__all__ = ["main"]


def main(chosen: argparse.Namespace) -> int:
    """Write a script, or be a rank."""
    if chosen.slurm == "run":
        from labkit.cluster.slurm_run import run_target

        return run_target(chosen.target)
    asked = ("ranks", "nodes", "partition", "time", "account", "gpus", "memory", "cpus")
    ask = Ask(**{name: getattr(chosen, name) for name in asked}, name=chosen.program or "labkit")
    script = script_of_file(chosen.file, chosen.program, ask)
    if chosen.output is None:
        if script.program:
            raise LabError(
                f"{chosen.file.name} is a notebook: its program goes into a file of its own. Say "
                "with -o job.sh where the script shall be; the program is written too."
            )
        print(script.text, end="")
        return 0
    path = script.save(chosen.output)
    if script.program:
        print(f"Wrote {script.program_path}")
    print(f"Wrote {path}. Send it with: sbatch {path}")
    return 0
