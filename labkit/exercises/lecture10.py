"""The exercises of lecture 10, on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.exercises.batch_header import Wanted, unmet
from labkit.exercises.function_task import FunctionTask
from labkit.exercises.task import Task
from labkit.exercises.written_task import WrittenTask
from labkit.kinds import LabError

__all__ = ["TASKS"]

ALPHA = Wanted(nodes=2, ranks=2, gpus=1, cpus=14, memory=64, hours=1, partition="alpha")
NIGHT = Wanted(nodes=4, ranks=8, gpus=2, cpus=6, memory=100, hours=8, partition="ml")
# Who is there before you (name, hour, devices, limit), and the device hours that you need.
TONIGHT = (("A", 0.0, 4, 8.0), ("B", 0.5, 8, 12.0))
WORK = 24.0
NODES = "node[01-03,07],gpu5"
# What srun tells the third of four tasks, and another machine's first of three.
TOLD = (
    {
        "SLURM_JOB_NODELIST": "node[01-02]", "SLURM_STEP_NODELIST": "node[01-02]",
        "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_NODEID": "1",
    },
    {
        "SLURM_JOB_NODELIST": "gpu5,gpu[8-9]", "SLURM_STEP_NODELIST": "gpu5,gpu[8-9]",
        "SLURM_TASKS_PER_NODE": "1(x3)", "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
        "SLURM_PROCID": "0", "SLURM_NTASKS": "3", "SLURM_NODEID": "0",
    },
)  # fmt: skip


def _hosts_are(answer: Any) -> str:
    from labkit.cluster.tf_config import hosts_of

    if isinstance(answer, str) or not isinstance(answer, list | tuple):
        raise LabError(f"{answer!r} is no list. Write answer = ['node01', ...].")
    truth, given = hosts_of(NODES), tuple(map(str, answer))
    if given == truth:
        return ""
    strange = [host for host in given if host not in truth]
    if strange:
        return f"{strange[0]!r} is not in {NODES}."
    if len(set(given)) < len(given):
        return "One machine stands there twice."
    missing = len(set(truth) - set(given))
    return f"{missing} of the machines are missing." if missing else "The order is another one."


def _config_from_slurm(my_config: Callable[[dict[str, str]], Any]) -> str:
    from labkit.cluster import tf_config

    for told in TOLD:
        who = f"For task {told['SLURM_PROCID']} of {told['SLURM_NTASKS']} on "
        who += told["SLURM_JOB_NODELIST"]
        made = my_config(dict(told))
        if made is None:
            return "It returns nothing: it ends without return."
        given, truth = tf_config.check(made), tf_config.from_slurm(told, port=23450)
        if given.ranks != truth.ranks:
            return f"{who} it names {given.ranks} tasks."
        if given.rank != truth.rank:
            return f"{who} it says that this is {given.task}."
        hosts = [[at.rpartition(":")[0] for at in one.addresses] for one in (given, truth)]
        if hosts[0] != hosts[1]:
            return (
                f"{who} the workers are on {', '.join(hosts[0])}. Slurm puts them there in blocks."
            )
    return ""


def _script_asks(wanted: Wanted) -> Any:
    return lambda answer: unmet(answer, wanted)


def _soonest() -> float:
    from labkit.cluster.queue_model import Request, queue

    def done(devices: int) -> float:
        line = [Request(*one) for one in TONIGHT]
        yours = Request("you", 1.0, devices, WORK / devices)
        placed = queue([*line, yours], devices=8).started
        return next(one.end for one in placed if one.request is yours)

    return float(min((1, 2, 3, 4, 6, 8), key=done))


TASKS = {
    "10.ranks": Task(
        "A job asks for --nodes=3 and --ntasks-per-node=4. How many processes does srun start?",
        lambda: 3 * 4,
        0.0,
        "One for each task, on each node.",
        "processes",
        "12 processes run the same program; SLURM_PROCID tells them apart.",
    ),
    "10.rank_on_node": Task(
        "The same job. Slurm deals out its tasks in blocks. Which SLURM_PROCID has the first task "
        "on the third node?",
        lambda: 2 * 4,
        0.0,
        "How many tasks are on the two nodes before it? Ranks begin with 0.",
        "",
        "8, and its SLURM_LOCALID is 0: that is the one which says which GPU of the node is whose.",
    ),
    "10.memory": Task(
        "Two ranks run on each node, and each needs 24 GB. Which number belongs into --mem=...G?",
        lambda: 48.0,
        0.0,
        "--mem is for a whole node, not for a rank.",
        "GB",
        "48 GB for each node. --mem-per-cpu is per core: another classic confusion.",
    ),
    "10.cpus": Task(
        "A node has 64 cores and 4 GPUs. One rank for each GPU, and nobody else on the node's "
        "GPUs. How many cores may a rank take without being unfair?",
        lambda: 64 / 4,
        0.0,
        "Whoever takes one of four GPUs leaves three for others, and they need cores, too.",
        "cores",
        "--cpus-per-task=16. Take all 64 with one GPU, and three GPUs idle for want of cores.",
    ),
    "10.time": Task(
        "How many seconds does --time=2:30 give you?",
        lambda: 150.0,
        0.0,
        "Two numbers are minutes and seconds.",
        "seconds",
        "Two and a half minutes. For hours write 2:30:00.",
    ),
    "10.hosts": WrittenTask(
        f"Slurm says {NODES}. Write the list of the machines.",
        _hosts_are,
        "A bracket stands for several names; zeros in front stay.",
        "In a terminal `scontrol show hostnames` does it, in Python tf_config.hosts_of.",
    ),
    "10.my_config": FunctionTask(
        "Write my_config(environ): the TF_CONFIG (a dictionary) of the task whose environment that "
        "is. Every task is a worker, on port 23450; a second task on one machine takes the next "
        "port.",
        _config_from_slurm,
        "hosts_of(environ['SLURM_JOB_NODELIST']) are the machines, and SLURM_NTASKS the tasks; as "
        "many tasks of each machine follow each other. The index is int(environ['SLURM_PROCID']).",
        "The same program on every machine, and each finds out who it is.",
    ),
    "10.header": WrittenTask(
        "Write a batch script: 2 nodes of the partition alpha for 1 hour; on each node one rank "
        "with 1 GPU, 14 cores and 64 GB. It starts python train.py on every rank.",
        _script_asks(ALPHA),
        "Nodes, ntasks, cpus-per-task, gres, mem, time, partition: a #SBATCH line each. What "
        "starts a program once for every rank?",
        "Everything that it asks for, and not more.",
    ),
    "10.mend": WrittenTask(
        "The script shall run 8 ranks on 4 nodes of the partition ml for 8 hours: on each node 2 "
        "GPUs and 100 GB, for each rank 6 cores. It has four mistakes. Mend it.",
        _script_asks(NIGHT),
        "Read each line as sbatch does: where does it stop looking for options, and how long is "
        "8:00?",
        "Four mistakes that Slurm accepts without a word.",
    ),
    "10.first_cause": Task(
        "Three ranks have failed. Rank 0: UnavailableError, Connection reset by peer. Rank 1: "
        "DeadlineExceededError, waited for rank 2. Rank 2: ResourceExhaustedError, out of memory. "
        "Which rank is the cause?",
        lambda: 2.0,
        0.0,
        "Two of them complain about somebody else.",
        "",
        "The others' errors are consequences, and often they stand at the end of the log.",
    ),
    "10.gpu_hours": Task(
        "2 nodes with 4 GPUs each for 3.5 hours. How many GPU hours are charged?",
        lambda: 2 * 4 * 3.5,
        0.0,
        "What you hold is charged, whether you use it or not.",
        "GPU hours",
        "Also if TF_CONFIG was not set, and eight processes trained the same model eight times.",
    ),
    "10.done_after": Task(
        "On one GPU a training runs 8 hours and need not wait. Four GPUs wait 3 hours and run at "
        "an efficiency of 90 %. After how many hours are you done with four?",
        lambda: 3 + 8 / (4 * 0.9),
        0.01,
        "Waiting plus running. Four at 90 % are as good as how many?",
        "hours",
        "Sooner than one GPU by almost three hours, for 8.9 GPU hours instead of 8.",
    ),
    "10.longest_wait": Task(
        "The same training. From how many hours of waiting on is one GPU, at once, the better "
        "choice?",
        lambda: 8 - 8 / (4 * 0.9),
        0.01,
        "When waiting eats up all that running gains.",
        "hours",
        "5.8 hours. What you gain by devices you may lose at the door.",
    ),
    "10.soonest": Task(
        "Of 8 devices A holds 4 until hour 8, and B, first in the line, wants all 8 for 12 hours. "
        f"You come at hour 1, with a training of {WORK:g} device hours that shares out without "
        "loss. With how many devices (1, 2, 3, 4, 6 or 8) are you done first?",
        _soonest,
        0.0,
        "There is a hole until hour 8. Let queue_model.queue try all six, n devices for 24 / n h.",
        "devices",
        "Four fit into the hole, and six hours of them end before B may begin. Three are too slow "
        "for it, six too many; both wait for 20 hours.",
    ),
}
