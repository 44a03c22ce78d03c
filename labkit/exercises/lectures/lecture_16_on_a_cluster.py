"""The tasks of lecture 16: on a cluster."""

from collections.abc import Callable
from typing import Any

from labkit.exercises.judges.answers import function, number
from labkit.exercises.judges.batch_script import batch_script
from labkit.exercises.task import Task, Wrong

NODES = "node[01-03,07],gpu5"

# Nodes, tasks on each, task, node of the task; and the machine of each task.
STEPS = (
    ("node[01-02]", "2(x2)", "2", "1", ["node01", "node01", "node02", "node02"]),
    ("gpu5,gpu[8-9]", "1(x3)", "0", "0", ["gpu5", "gpu8", "gpu9"]),
)

FIX = """#!/bin/bash
#SBATCH --partition=ml
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
# SBATCH --cpus-per-task=6
#SBATCH --mem=100G
#SBATCH --time=8:00
module load Python
#SBATCH --gres=gpu:2
python train.py
"""


def _hosts(answer: Any) -> None:
    hosts = ["node01", "node02", "node03", "node07", "gpu5"]
    if answer != hosts:
        raise Wrong(f"There are {len(hosts)} machines: write a list, in the order of Slurm's.")


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
        if len(given.addresses) != len(hosts):
            raise Wrong(f"{case} it names {len(given.addresses)} tasks.")
        if given.task != f"worker {task}":
            raise Wrong(f"{case} it says that this is {given.task}.")
        right = [f"{host}:{23450 + hosts[:rank].count(host)}" for rank, host in enumerate(hosts)]
        for found, address in zip(given.addresses, right, strict=True):
            if found != address:
                raise Wrong(f"{case} a worker is {found}, and should be {address}.")


TASKS = {
    "16.ranks": Task(
        "A job asks for --nodes=3 and --ntasks-per-node=4. How many processes does srun start?",
        number(12, "processes"),
        ("One for each task, on each node.",),
        "answer = 3 * 4",
        "12 processes run the same program; SLURM_PROCID tells them apart.",
    ),
    "16.rank_on_node": Task(
        "The same job, ranks in blocks. Which SLURM_PROCID has the first task on the third node?",
        number(8),
        ("How many tasks are on the two nodes before it?", "Ranks begin with 0."),
        "answer = 2 * 4  # ranks 0 to 7 are on the first two nodes",
        "8, and its SLURM_LOCALID is 0: the rank within the node, which selects the GPU.",
    ),
    "16.memory": Task(
        "Two ranks run on each node, and each needs 24 GB. Which number belongs into --mem=...G?",
        number(48, "GB"),
        ("--mem is for a whole node, not for a rank.",),
        "answer = 2 * 24",
        "48 GB for each node. --mem-per-cpu is per core: do not confuse the two.",
    ),
    "16.cpus": Task(
        "A node has 64 cores and 4 GPUs, and each GPU one rank. How many cores are the fair share "
        "of a rank?",
        number(16, "cores"),
        ("A job on one of four GPUs leaves three for others, and they need cores, too.",),
        "answer = 64 / 4",
        "--cpus-per-task=16. A job with 1 GPU and all 64 cores leaves three GPUs unusable.",
    ),
    "16.time": Task(
        "How many seconds does --time=2:30 give you?",
        number(150, "s"),
        ("Two numbers are minutes and seconds.",),
        "answer = 2 * 60 + 30",
        "Two and a half minutes. For hours write 2:30:00.",
    ),
    "16.hosts": Task(
        f"Slurm says {NODES}. Write the list of the machines.",
        _hosts,
        ("A bracket stands for several names; zeros in front stay.", "01-03 are three machines."),
        'my_hosts = ["node01", "node02", "node03", "node07", "gpu5"]',
        "In a terminal `scontrol show hostnames` does it, in Python tf_config.hosts_of.",
    ),
    "16.my_config": Task(
        "Write my_config(environ): the TF_CONFIG (a dictionary) of the task with that environment. "
        "All are workers, on port 23450; a second task on one machine takes the next port.",
        function(_examine_config),
        (
            "hosts_of(environ['SLURM_JOB_NODELIST']) are the machines; environ['SLURM_NTASKS'] is "
            "the number of tasks, as text.",
            "Each machine has as many tasks as the others, and they follow each other: first all "
            "of machine 0, then all of machine 1.",
            "The index of this task is int(environ['SLURM_PROCID']).",
        ),
        """
from labkit.cluster.tf_config import hosts_of

def my_config(environ):
    machines = hosts_of(environ["SLURM_JOB_NODELIST"])
    each = int(environ["SLURM_NTASKS"]) // len(machines)
    workers = [f"{machine}:{23450 + task}" for machine in machines for task in range(each)]
    task = {"type": "worker", "index": int(environ["SLURM_PROCID"])}
    return {"cluster": {"worker": workers}, "task": task}
""",
        "The same program runs on every machine, and each process finds its own rank.",
        difficulty=2,
    ),
    "16.header": Task(
        "Write a batch script: 2 nodes of the partition alpha for 1 hour; on each node one rank "
        "with 1 GPU, 14 cores and 64 GB. It starts python train.py on every rank.",
        batch_script(nodes=2, ranks=2, gpus=1, cores=14, memory=64, minutes=60, partition="alpha"),
        (
            "The first line is #!/bin/bash. Then seven options, a #SBATCH line each: partition, "
            "nodes, ntasks-per-node, gres, cpus-per-task, mem, time.",
            "srun starts a program once for every rank.",
            "Since Slurm 22.05 srun needs its own --cpus-per-task=$SLURM_CPUS_PER_TASK.",
        ),
        '''
my_script = """#!/bin/bash
#SBATCH --partition=alpha
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=14
#SBATCH --mem=64G
#SBATCH --time=1:00:00

srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py
"""
''',
        "It requests what the ranks need, and srun passes the cores on to them.",
        difficulty=2,
    ),
    "16.fix": Task(
        "The script must run 8 ranks on 4 nodes of the partition ml for 8 hours: on each node 2 "
        "GPUs and 100 GB, for each rank 6 cores. It has four mistakes. Fix them.",
        batch_script(nodes=4, ranks=8, gpus=2, cores=6, memory=100, minutes=480, partition="ml"),
        (
            "Read each line as sbatch does: which begin with #SBATCH, and where do the options "
            "end?",
            "How long is 8:00?",
            "Without srun the program runs once. Since Slurm 22.05 srun needs its own "
            "--cpus-per-task.",
        ),
        '''
my_fixed_script = """#!/bin/bash
#SBATCH --partition=ml
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=6
#SBATCH --mem=100G
#SBATCH --time=8:00:00
#SBATCH --gres=gpu:2
module load Python
srun --cpus-per-task=$SLURM_CPUS_PER_TASK python train.py
"""
''',
        "A blank after # makes an option a comment. 8:00 is eight minutes. sbatch reads no option "
        "after the first command. Without srun the program runs once, on the first node; without "
        "its own --cpus-per-task srun requests one core for each rank.",
        difficulty=2,
        given=FIX,
    ),
    "16.first_cause": Task(
        "Three ranks have failed. Rank 0: UnavailableError, Connection reset by peer. Rank 1: "
        "DeadlineExceededError, waited for rank 2. Rank 2: ResourceExhaustedError, out of memory. "
        "Which rank is the cause?",
        number(2),
        ("Two of them report another rank's failure.",),
        "answer = 2  # ranks 0 and 1 lost rank 2; it alone failed by itself",
        "The errors of the other ranks are consequences, and often they are the last in the log.",
    ),
}
