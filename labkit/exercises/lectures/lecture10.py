"""The exercises of lecture 10, on a cluster."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

from labkit.exercises.batch_script import batch_script
from labkit.exercises.judges import function, number
from labkit.exercises.task import Task, Wrong

NODES = "node[01-03,07],gpu5"
# Nodes, tasks on each, task, node of the task; and the machine of each task.
STEPS = (
    ("node[01-02]", "2(x2)", "2", "1", ["node01", "node01", "node02", "node02"]),
    ("gpu5,gpu[8-9]", "1(x3)", "0", "0", ["gpu5", "gpu8", "gpu9"]),
)


def _hosts(answer: Any) -> None:
    hosts = ["node01", "node02", "node03", "node07", "gpu5"]
    if not isinstance(answer, list | tuple):
        raise Wrong(f"{reprlib.repr(answer)} is not a list. Write my_hosts = ['node01', ...].")
    if strange := [host for host in answer if host not in hosts]:
        raise Wrong(f"{strange[0]!r} is not in {NODES}.")
    if list(answer) != hosts:
        raise Wrong(f"There are {len(hosts)} machines, in the order of Slurm's list.")


def _examine_config(my_config: Callable[..., Any]) -> None:
    from labkit.cluster import tf_config

    for nodes, each, task, node, hosts in STEPS:
        environ = {
            "SLURM_JOB_NODELIST": nodes, "SLURM_STEP_NODELIST": nodes,
            "SLURM_TASKS_PER_NODE": each, "SLURM_STEP_TASKS_PER_NODE": each,
            "SLURM_NTASKS": str(len(hosts)), "SLURM_PROCID": task, "SLURM_NODEID": node,
        }  # fmt: skip
        case = f"For task {task} of {len(hosts)} on {nodes}"
        given = tf_config.check(my_config(environ) or {})
        placed = [address.rpartition(":")[0] for address in given.addresses]
        if len(placed) != len(hosts):
            raise Wrong(f"{case} it names {len(placed)} tasks.")
        if given.task != f"worker {task}":
            raise Wrong(f"{case} it says that this is {given.task}.")
        if placed != hosts:
            raise Wrong(f"{case} the workers are on {', '.join(placed)}. Slurm assigns in blocks.")


TASKS = {
    "10.ranks": Task(
        "A job asks for --nodes=3 and --ntasks-per-node=4. How many processes does srun start?",
        number(3 * 4, "processes"),
        "One for each task, on each node.",
        "12 processes run the same program; SLURM_PROCID tells them apart.",
    ),
    "10.rank_on_node": Task(
        "The same job, ranks in blocks. Which SLURM_PROCID has the first task on the third node?",
        number(2 * 4),
        "How many tasks are on the two nodes before it? Ranks begin with 0.",
        "8, and its SLURM_LOCALID is 0: the rank within the node, which selects the GPU.",
    ),
    "10.memory": Task(
        "Two ranks run on each node, and each needs 24 GB. Which number belongs into --mem=...G?",
        number(2 * 24, "GB"),
        "--mem is for a whole node, not for a rank.",
        "48 GB for each node. --mem-per-cpu is per core: another classic confusion.",
    ),
    "10.cpus": Task(
        "A node has 64 cores and 4 GPUs, and each GPU one rank. How many cores are the fair share "
        "of a rank?",
        number(64 / 4, "cores"),
        "A job on one of four GPUs leaves three for others, and they need cores, too.",
        "--cpus-per-task=16. A job with 1 GPU and all 64 cores leaves three GPUs unusable.",
    ),
    "10.time": Task(
        "How many seconds does --time=2:30 give you?",
        number(2 * 60 + 30, "s"),
        "Two numbers are minutes and seconds.",
        "Two and a half minutes. For hours write 2:30:00.",
    ),
    "10.hosts": Task(
        f"Slurm says {NODES}. Write the list of the machines.",
        _hosts,
        "A bracket stands for several names; zeros in front stay.",
        "In a terminal `scontrol show hostnames` does it, in Python tf_config.hosts_of.",
    ),
    "10.my_config": Task(
        "Write my_config(environ): the TF_CONFIG (a dictionary) of the task with that environment. "
        "All are workers, on port 23450; a second task on one machine takes the next port.",
        function(_examine_config),
        "hosts_of(environ['SLURM_JOB_NODELIST']) are the machines, and SLURM_NTASKS the tasks; as "
        "many tasks of each machine follow each other. The index is int(environ['SLURM_PROCID']).",
        "The same program runs on every machine, and each process finds its own rank.",
    ),
    "10.header": Task(
        "Write a batch script: 2 nodes of the partition alpha for 1 hour; on each node one rank "
        "with 1 GPU, 14 cores and 64 GB. It starts python train.py on every rank.",
        batch_script(nodes=2, ranks=2, gpus=1, cores=14, memory=64, minutes=60, partition="alpha"),
        "Seven options, a #SBATCH line each. Which command starts a program once for every rank? "
        "Since Slurm 22.05 it needs its own --cpus-per-task.",
        "It requests what the ranks need, and srun passes the cores on to them.",
    ),
    "10.fix": Task(
        "The script must run 8 ranks on 4 nodes of the partition ml for 8 hours: on each node 2 "
        "GPUs and 100 GB, for each rank 6 cores. It has four mistakes. Fix them.",
        batch_script(nodes=4, ranks=8, gpus=2, cores=6, memory=100, minutes=480, partition="ml"),
        "Read each line as sbatch does: where do the options end, and how long is 8:00? "
        "Since Slurm 22.05 srun needs its own --cpus-per-task.",
        "Four mistakes that Slurm accepts without an error.",
    ),
    "10.first_cause": Task(
        "Three ranks have failed. Rank 0: UnavailableError, Connection reset by peer. Rank 1: "
        "DeadlineExceededError, waited for rank 2. Rank 2: ResourceExhaustedError, out of memory. "
        "Which rank is the cause?",
        number(2),
        "Two of them report another rank's failure.",
        "The errors of the other ranks are consequences, and often they are the last in the log.",
    ),
    "10.gpu_hours": Task(
        "2 nodes with 4 GPUs each for 3.5 hours. How many GPU hours are charged?",
        number(2 * 4 * 3.5, "GPU hours"),
        "An allocation is charged, whether you use it or not.",
        "Also if TF_CONFIG was not set, and eight processes trained the same model eight times.",
    ),
    "10.done_after": Task(
        "On one GPU a training runs 8 hours and need not wait. Four GPUs wait 3 hours and run at "
        "an efficiency of 90 %. After how many hours are you done with four?",
        number(3 + 8 / (4 * 0.9), "hours", within=0.01),
        "Waiting plus running. Four at 90 % are as good as how many?",
        "Sooner than one GPU by almost three hours, for 8.9 GPU hours instead of 8.",
    ),
    "10.longest_wait": Task(
        "The same training. From how many hours of waiting on is one GPU the better choice?",
        number(8 - 8 / (4 * 0.9), "hours", within=0.01),
        "Which wait is as long as the time that four GPUs save?",
        "5.8 hours. A longer wait in the queue costs more than the devices save.",
    ),
    "10.soonest": Task(
        "Of 8 devices A holds 4 until hour 8, and B, first in the queue, wants all 8 for 12 hours. "
        "You come at hour 1, with a training of 24 device hours at an efficiency of 100 %. "
        "With how many devices (1, 2, 3, 4, 6 or 8) are you done first?",
        number(4, "devices"),
        "4 devices are free until hour 8. Let queue_model.queue try all six, n devices for 24/n h.",
        "Backfilling: on four free devices you end before B can begin; on three you would not.",
    ),
}
