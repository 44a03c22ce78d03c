"""Slurm's own commands with a time limit, and what the queue reports of a job, in words.

Jobs are followed with squeue: sacct needs a database that small clusters do not have.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from labkit.kinds import LabError

TIMEOUT = 20.0  # seconds that a command of Slurm may take; a busy controller takes some
# Of Slurm's variables these are the user's, not a job's.
SETTINGS = ("SLURM_CONF", "SLURM_MPI_TYPE")
# Reasons to wait that end by themselves, and what each means.
WAITING = {
    "None": "Slurm has not looked at it yet",
    "Resources": "the nodes that it needs are busy",
    "Priority": "other jobs come first",
    "ReqNodeNotAvail": "nodes that it needs are reserved or down",
}
# With these it never starts.
NEVER = {
    "PartitionTimeLimit": "the partition allows no job so long: ask for less with time=",
    "PartitionNodeLimit": "the partition allows no job on so many nodes: ask for less with nodes=",
    "PartitionConfig": "the partition allows no such job: ask for less, or choose another; "
    "`sinfo -o '%R %l %c %m'` shows its longest time, cores and memory of a node",
    "BadConstraints": "no node has what it asks for: look at `sinfo -N -l`",
    "AccountNotAllowed": "the account may not use this partition: choose with account=",
}
ENDS = {
    "TIMEOUT": "its time was over; ask for more with time=",
    "CANCELLED": "it was cancelled (scancel)",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "it needed more memory than it asked for; ask for more with memory=",
    "PREEMPTED": "a job of higher priority needed its nodes",
    "FAILED": "its batch script failed",
    "COMPLETED": "it has ended",
}


@dataclass(frozen=True)
class QueueState:
    """A job in the queue: Slurm's word for its state, the reason, its nodes, when it may begin."""

    job: str
    state: str
    reason: str = "None"
    nodes: str = ""
    begins: str = ""

    @property
    def running(self) -> bool:
        """Whether the job has its nodes."""
        return self.state == "RUNNING"

    @property
    def waiting(self) -> bool:
        """Whether the job may still get its nodes."""
        return self.state in ("PENDING", "CONFIGURING", "REQUEUED", "RESIZING", "SUSPENDED")

    @property
    def hopeless(self) -> str:
        """Why the job can never start and what to do, or "" if it may start."""
        return NEVER.get(self.reason, "") if self.state == "PENDING" else ""

    def __str__(self) -> str:
        if self.running:
            return f"Slurm job {self.job} runs on {self.nodes}."
        if self.waiting:
            why = self.hopeless or WAITING.get(self.reason, "Slurm's reason for it")
            soon = f"; it may begin at {self.begins}" if self.begins else ""
            return f"Slurm job {self.job} waits: {why} ({self.reason}){soon}."
        why = ENDS.get(self.state, "Slurm gives no reason")
        return f"Slurm job {self.job} has ended: {why} ({self.state})."


def slurm_environment() -> dict[str, str]:
    """Returns this process's environment without the variables of a job that it runs in.

    A notebook may run in a job of its own, whose SLURM_NTASKS is not that of the new job.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in SETTINGS or not name.startswith(("SLURM", "SBATCH_", "SRUN_", "PMI_", "PMIX_"))
    }


def run_slurm(*command: str, text: str = "") -> str:
    """Returns what a command of Slurm prints. Raises LabError with its error message."""
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            env=slurm_environment(),
        )
    except FileNotFoundError:
        raise LabError(
            f"There is no {command[0]} on this machine: Slurm is used from a login node of the "
            'cluster, or from a job on it. Everything runs with engine="local" too.'
        ) from None
    except subprocess.TimeoutExpired:
        raise LabError(
            f"{command[0]} has not answered for {TIMEOUT:g} s: Slurm's controller is down or "
            "very busy. Try `sinfo` in a terminal, and again later."
        ) from None
    if done.returncode:
        # The last line of the error message, without the name of the command.
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it did not say why"]
        why = re.sub(r"^\w+: (error: |fatal: )?", "", lines[-1]).rstrip(".")
        raise LabError(f"{command[0]} failed: {why}.")
    return done.stdout


def why_no_slurm() -> str:
    """Returns why Slurm cannot be used here, or ""."""
    if shutil.which("sbatch") is None:
        return "there is no sbatch on this machine"
    try:
        partitions()
    except LabError as fault:
        return f"its commands are on this machine, but no cluster answers ({fault})"
    return ""


def slurm_version() -> str:
    """Returns Slurm's version, such as "22.05.8"."""
    return run_slurm("sinfo", "--version").split()[-1]


def submit(script: str) -> str:
    """Submit a batch script. Returns the number of its job."""
    try:
        answer = run_slurm("sbatch", "--parsable", text=script)
    except LabError as fault:
        options = ", ".join(re.findall(r"^#SBATCH --(\S+)", script, re.MULTILINE))
        there = partitions("%R (%D nodes with %c cores, %m MB and %G for at most %l)")
        why = str(fault).removeprefix("sbatch failed: ")
        raise LabError(
            f"Slurm refuses the job: {why} It asks for {options}. The partitions are {there}."
        ) from None
    return answer.strip().splitlines()[-1].partition(";")[0]


def state_of(job: str) -> QueueState:
    """Returns the state of a job. Slurm forgets jobs some minutes after their end."""
    form = "%T|%r|%N|%S"
    try:
        answer = run_slurm("squeue", "--noheader", "--states=all", f"--jobs={job}", "-o", form)
    except LabError as fault:
        if "Invalid job id" not in str(fault):
            raise
        answer = ""
    if not answer.strip():
        return QueueState(job, "COMPLETED")
    state, reason, nodes, begins = answer.splitlines()[0].split("|")
    waiting = state == "PENDING" and begins not in ("N/A", "")
    return QueueState(job, state, reason.partition(",")[0], nodes, begins if waiting else "")


def pause_after(waited: float) -> float:
    """Returns the seconds until the queue is asked again, after `waited` seconds.

    One controller answers all users. `sbatch --wait` asks every 32 s, this function more seldom.

    >>> pause_after(0), pause_after(10), pause_after(3600)
    (0.2, 1.5, 60.0)
    """
    return min(max(0.2, 0.15 * waited), 60.0)


def cancel(job: str) -> None:
    """Cancel a job, which may have ended already."""
    try:
        run_slurm("scancel", job)
    except LabError as fault:
        if "Invalid job id" not in str(fault):
            raise


def partitions(form: str = "%R") -> str:
    """Returns what `sinfo` lists, in one line."""
    lines = run_slurm("sinfo", "--noheader", "-o", form).splitlines()
    return ", ".join(sorted({line.strip() for line in lines}))
