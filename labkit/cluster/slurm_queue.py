"""Slurm's own commands, asked with a deadline, and what the queue answers, in words.

Jobs are followed with squeue: sacct needs a database that small clusters do not have, and
`sbatch --wait` looks ever more seldom.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from labkit.kinds import LabError

__all__ = [
    "QueueState",
    "ask_slurm",
    "cancel",
    "hosts",
    "partitions",
    "slurm_environment",
    "slurm_version",
    "state_of",
    "submit",
    "why_no_slurm",
]

PATIENCE = 20.0  # seconds that a command of Slurm may take; a busy controller takes some
# Of Slurm's variables these are the user's, not a job's.
SETTINGS = ("SLURM_CONF", "SLURM_MPI_TYPE")
# Reasons to wait that end by themselves, and what each means.
WAITING = {
    "None": "Slurm has not looked at it yet",
    "Resources": "the nodes that it needs are busy",
    "Priority": "other jobs come first",
    "BeginTime": "it may begin later",
    "Dependency": "it waits for another job",
    "ReqNodeNotAvail": "nodes that it needs are reserved or down",
    "Reservation": "it waits for its reservation",
    "QOSMaxJobsPerUserLimit": "you have as many jobs running as you may",
    "AssocMaxJobsLimit": "your project has as many jobs running as it may",
}
# With these it would wait for ever.
NEVER = {
    "PartitionTimeLimit": "the partition allows no job so long: ask for less with time=",
    "PartitionNodeLimit": "the partition allows no job on so many nodes: ask for less with nodes=",
    "PartitionConfig": "the partition allows no such job: ask for less, or choose another; "
    "`sinfo -o '%R %l %c %m'` shows its longest time, cores and memory of a node",
    "PartitionDown": "the partition is down: choose another with partition=",
    "PartitionInactive": "the partition is closed: choose another with partition=",
    "BadConstraints": "no node has what it asks for: look at `sinfo -N -l`",
    "AccountNotAllowed": "the account may not use this partition: choose with account=",
    "InvalidAccount": "there is no such account: choose with account=",
    "InvalidQOS": "there is no such quality of service: look at extra=",
    "DependencyNeverSatisfied": "it waits for a job that has failed",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "it is held: scontrol release lets it go",
}
ENDS = {
    "TIMEOUT": "its time was over; ask for more with time=",
    "CANCELLED": "it was cancelled (scancel)",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "it needed more memory than it asked for; ask for more with memory=",
    "PREEMPTED": "a job of more importance needed its nodes",
    "FAILED": "its batch script failed",
    "COMPLETED": "it has ended",
    "BOOT_FAIL": "a node did not start",
    "DEADLINE": "its deadline had passed",
}


@dataclass(frozen=True)
class QueueState:
    """Where a job stands: Slurm's word for it, Slurm's reason, its nodes, when it may begin."""

    job: str
    state: str
    reason: str = "None"
    nodes: str = ""
    begins: str = ""

    @property
    def running(self) -> bool:
        """It has its nodes."""
        return self.state == "RUNNING"

    @property
    def waiting(self) -> bool:
        """It may yet get them."""
        return self.state in ("PENDING", "CONFIGURING", "REQUEUED", "RESIZING", "SUSPENDED")

    @property
    def hopeless(self) -> str:
        """Why it would wait for ever, and what to do; nothing if it would not."""
        return NEVER.get(self.reason, "") if self.state == "PENDING" else ""

    def __str__(self) -> str:
        if self.running:
            return f"Slurm job {self.job} runs on {self.nodes}."
        if self.waiting:
            why = NEVER.get(self.reason) or WAITING.get(self.reason, "Slurm's reason for it")
            soon = f"; it may begin at {self.begins}" if self.begins else ""
            return f"Slurm job {self.job} waits: {why} ({self.reason}){soon}."
        why = ENDS.get(self.state, "Slurm says no more")
        return f"Slurm job {self.job} has ended: {why} ({self.state})."


def slurm_environment() -> dict[str, str]:
    """The environment of this process without the job that it may itself be in.

    A notebook may run in a job of its own: its SLURM_NTASKS is not that of the new one.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name in SETTINGS or not name.startswith(("SLURM", "SBATCH_", "SRUN_", "PMI_", "PMIX_"))
    }


def ask_slurm(
    *command: str, told: str | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """What a command of Slurm prints; a LabError with what it complains about."""
    try:
        done = subprocess.run(
            command,
            input=told,
            stdin=subprocess.DEVNULL if told is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=slurm_environment() if environment is None else environment,
        )
    except FileNotFoundError:
        raise LabError(
            f"There is no {command[0]} on this machine: Slurm is used from a login node of the "
            'cluster, or from a job on it. Everything runs with engine="local" too.'
        ) from None
    except subprocess.TimeoutExpired:
        raise LabError(
            f"{command[0]} has not answered for {PATIENCE:g} s: Slurm's controller is down or "
            "very busy. Try `sinfo` in a terminal, and again later."
        ) from None
    if done.returncode:
        raise LabError(f"{command[0]} failed: {_complaint(done.stderr or done.stdout)}")
    return done.stdout


def why_no_slurm() -> str:
    """Why Slurm cannot be used here, or nothing."""
    missing = [name for name in ("sbatch", "srun", "squeue", "sinfo") if not shutil.which(name)]
    if missing:
        return f"there is no {missing[0]} on this machine"
    try:
        ask_slurm("sinfo", "-h", "-o", "%R")
    except LabError as fault:
        said = str(fault).removeprefix("sinfo failed: ")
        return f"its commands are on this machine, but no cluster answers ({said.rstrip('.')})"
    return ""


def slurm_version() -> str:
    """Such as "22.05.8"."""
    return ask_slurm("sinfo", "--version").split()[-1]


def submit(script: str) -> str:
    """Send a batch script; the number of its job."""
    try:
        said = ask_slurm("sbatch", "--parsable", told=script)
    except LabError as fault:
        raise _refusal(str(fault), script) from None
    return said.strip().splitlines()[-1].partition(";")[0]


def state_of(job: str) -> QueueState:
    """Where the job stands now. Slurm forgets jobs some minutes after their end."""
    form = "%T|%r|%N|%S"
    try:
        said = ask_slurm("squeue", "--noheader", "--states=all", f"--jobs={job}", "-o", form)
    except LabError as fault:
        if "Invalid job id" in str(fault):
            return QueueState(job, "COMPLETED")
        raise
    if not said.strip():
        return QueueState(job, "COMPLETED")
    state, reason, nodes, begins = said.splitlines()[0].split("|")
    waiting = state == "PENDING" and begins not in ("N/A", "")
    return QueueState(job, state, reason.partition(",")[0], nodes, begins if waiting else "")


def hosts(nodes: str) -> tuple[str, ...]:
    """The single names of a list such as node[1-3]."""
    return tuple(ask_slurm("scontrol", "show", "hostnames", nodes).split())


def cancel(job: str) -> None:
    """End the job, also if it has ended already."""
    try:
        ask_slurm("scancel", job)
    except LabError as fault:
        if "Invalid job id" not in str(fault):
            raise


def _complaint(said: str) -> str:
    """The last line that says something, without the name of the command."""
    lines = [re.sub(r"^\w+: (error: |fatal: )?", "", line) for line in said.splitlines()]
    told = [line.strip() for line in lines if line.strip()]
    return f"{told[-1].rstrip('.')}." if told else "it did not say why."


def _refusal(fault: str, script: str) -> LabError:
    """Slurm's refusal with what was asked for, and what there is."""
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", script, re.MULTILINE))
    said = fault.removeprefix("sbatch failed: ").removeprefix("Batch job submission failed: ")
    if "partition" in said.lower() and "name" in said.lower():
        return LabError(
            f"Slurm has no partition {asked.get('partition', '')!r}. There are: {partitions()}."
        )
    if "time limit" in said.lower():
        return LabError(
            f"Slurm refuses time={asked.get('time', 'none')!r}: {said} "
            f"The longest per partition: {partitions('%R %l')}."
        )
    if "node configuration" in said.lower() or "processors" in said.lower():
        return LabError(
            f"Slurm refuses the job: {said} No node has what it asks for "
            f"({', '.join(f'{name}={value}' for name, value in asked.items())}); there are: "
            f"{partitions('%R: %D nodes with %c cores, %m MB and %G')}."
        )
    if fault.startswith("sbatch failed: "):
        return LabError(f"Slurm refuses the job: {said} Ask for something else.")
    return LabError(fault)


def partitions(form: str = "%R") -> str:
    """What `sinfo` lists, in one line."""
    said = ask_slurm("sinfo", "--noheader", "-o", form).splitlines()
    return ", ".join(sorted({line.strip() for line in said}))
