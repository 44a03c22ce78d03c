"""TF_CONFIG: which processes take part, at which addresses, and which of them is this process.

TensorFlow reads it from the environment, the same on every machine but for `task`. It checks
little: with a wrong index or a missing comma a program waits until it is stopped.

>>> config = from_hosts(["10.0.0.1", "10.0.0.2"], index=1)
>>> config.task, config.rank, config.ranks
('worker 1', 1, 2)
>>> check(config.text()) == config
True
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from labkit.arguments import one_of, whole
from labkit.kinds import LabError

ROLES = ("chief", "worker", "ps")  # of ranks
TASK_TYPES = (*ROLES, "evaluator")
SHAPE = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
# No scheme, blank or list; an address of IPv6 in brackets; 0.0.0.0 names no machine.
ADDRESS = re.compile(r"(?!0\.0\.0\.0:)([^\s,;/:\[\]]+|\[[\da-f:]+\]):(\d{1,5})", re.IGNORECASE)
BRACKET = re.compile(r"(\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])")
NODE = rf"(?:[\w.-]|{BRACKET.pattern})+"  # node[01-03,07].lan
PORT = 23450  # below those that systems give to outgoing connections, from 32768 on Linux
STEP_PORTS = 100  # of a step of a Slurm job: a port for each rank, and the last for MASTER_PORT
STEPS = 227  # blocks of ports, from 10000 to 32699


@dataclass(frozen=True, repr=False)
class TfConfig:
    """All tasks of a training with their addresses, and the task of this process."""

    cluster: dict[str, tuple[str, ...]]
    role: str
    index: int

    @property
    def task(self) -> str:
        """The task of this process, such as "worker 1"."""
        return f"{self.role} {self.index}"

    @property
    def by_task(self) -> dict[str, str]:
        """The address of each task, by rank: {"worker 0": "node1:23450"}."""
        return {
            f"{role} {index}": address
            for role, addresses in self.cluster.items()
            for index, address in enumerate(addresses)
        }

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of every task, by rank."""
        return tuple(self.by_task.values())

    @property
    def ranks(self) -> int:
        """The number of tasks."""
        return len(self.by_task)

    @property
    def rank(self) -> int:
        """The number of this task among all tasks. An evaluator comes last."""
        return [*self.by_task, self.task].index(self.task)

    def content(self) -> dict[str, Any]:
        """Returns the dictionary that TensorFlow expects."""
        cluster = {role: list(addresses) for role, addresses in self.cluster.items()}
        return {"cluster": cluster, "task": {"type": self.role, "index": self.index}}

    def text(self) -> str:
        """Returns the JSON text for the environment."""
        return json.dumps(self.content())

    def __repr__(self) -> str:
        rows = [f"{task:<11} {address}" for task, address in self.by_task.items()]
        return "\n".join([f"TF_CONFIG of {self.task}, of {self.ranks} tasks", *rows])


def this_rank() -> TfConfig:
    """Returns which rank this process is, of how many, and the addresses of all of them.

    >>> this_rank().rank, this_rank().ranks, this_rank().role          # doctest: +SKIP
    (2, 4, 'worker')
    """
    return check()


def check(config: Any = None) -> TfConfig:
    """Returns the checked TF_CONFIG of a dictionary or a JSON text, or else of this process."""
    if config is None:
        config = os.environ.get("TF_CONFIG", "").strip()
        if not config:
            raise LabError(
                "TF_CONFIG is not set in this process's environment. labkit.cluster sets it for "
                "its ranks; by hand, set it before the program starts TensorFlow."
            )
    content = config.content() if isinstance(config, TfConfig) else config
    if isinstance(content, str):
        content = _from_json(content)
    if not isinstance(content, Mapping):
        raise LabError(f"TF_CONFIG must be a dictionary of the form {SHAPE}, got {content!r}.")
    cluster = _checked_cluster(content.get("cluster"))
    return TfConfig(cluster, *_checked_task(content.get("task"), cluster))


def from_hosts(hosts: str | Sequence[str], index: int = 0, *, port: int = PORT) -> TfConfig:
    """Returns the TF_CONFIG of a worker on a list of hosts, each of which has one worker.

    A host that is listed twice has two workers with different ports.

    >>> from_hosts("node[1-2],node2", index=2)
    TF_CONFIG of worker 2, of 3 tasks
    worker 0    node1:23450
    worker 1    node2:23450
    worker 2    node2:23451
    """
    names = hosts_of(hosts) if isinstance(hosts, str) else hosts
    addresses = [f"{name}:{port + names[:i].count(name)}" for i, name in enumerate(names)]
    return check({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def from_slurm(environ: Mapping[str, str] | None = None) -> TfConfig:
    """Returns the TF_CONFIG of this task, from the variables that srun has set.

    Ports follow from the numbers of job and step, so that two steps on a machine have different
    ports: see `step_ports`.
    """
    have = os.environ if environ is None else environ
    if not have.get("SLURM_PROCID", "").isdigit():
        raise LabError(
            "SLURM_PROCID is not set: srun did not start this process. Start it with srun, or name "
            "the hosts: tf_config.from_hosts([...])."
        )
    # A step may have fewer machines than its job: what srun says of it comes first.
    nodes = have.get("SLURM_STEP_NODELIST") or have["SLURM_JOB_NODELIST"]
    tasks = have.get("SLURM_STEP_TASKS_PER_NODE") or have["SLURM_TASKS_PER_NODE"]
    hosts, counts, rank = hosts_of(nodes), counts_of(tasks), int(have["SLURM_PROCID"])
    placed = [host for host, count in zip(hosts, counts, strict=False) for _ in range(count)]
    node = hosts[int(have.get("SLURM_NODEID") or hosts.index(placed[rank]))]
    if node != placed[rank]:
        raise LabError(
            f"Slurm has put task {rank} on {node}; distributed in blocks it would be on "
            f"{placed[rank]}. Start the program with srun --distribution=block."
        )
    step = have.get("SLURM_STEP_ID", "")  # a batch script's is not a number
    ports = step_ports(int(have["SLURM_JOB_ID"]), int(step) if step.isdigit() else 0)
    return from_hosts(placed, rank, port=ports.start)


def step_ports(job: int, step: int) -> range:
    """Returns the ports of a step of a Slurm job. No other step of the job has any of them.

    >>> step_ports(job=4711, step=0)
    range(16200, 16300)
    """
    first = 10_000 + STEP_PORTS * ((7 * job + step) % STEPS)
    return range(first, first + STEP_PORTS)


def hosts_of(text: str) -> tuple[str, ...]:
    """Returns the machines of a node list, as `scontrol show hostnames` prints them.

    >>> hosts_of("node[01-03,07],gpu5")
    ('node01', 'node02', 'node03', 'node07', 'gpu5')
    """
    hosts: tuple[str, ...] = ()
    if re.fullmatch(f"{NODE}(,{NODE})*", text):
        names = [m[0] for m in re.finditer(NODE, text)]
        choices = ([_choices(part) for part in BRACKET.split(name)] for name in names)
        hosts = tuple("".join(parts) for choice in choices for parts in product(*choice))
    if not hosts:
        raise LabError(
            f"The node list {text!r} cannot be read. Write it as node[01-03,07],gpu5: a bracket "
            "holds numbers and spans."
        )
    return hosts


def _choices(part: str) -> list[str]:
    """[08-10,12] stands for 08, 09, 10 and 12. Zeros in front belong to the name."""
    if not part.startswith("["):
        return [part]
    spans = (span.partition("-") for span in part[1:-1].split(","))
    return [
        str(number).zfill(len(first))
        for first, _, last in spans
        for number in range(int(first), int(last or first) + 1)
    ]


def counts_of(text: str) -> tuple[int, ...]:
    """Returns how many tasks each machine has, from Slurm's short form.

    >>> counts_of("2(x3),1")
    (2, 2, 2, 1)
    """
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?(?:,|$)", text):
        counts += [int(count)] * int(times or 1)
    return tuple(counts)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as fault:
        why = fault.msg.lower()
        if text[fault.pos : fault.pos + 1] == "'":
            why = "there is a single quote, and JSON has double quotes"
        near = text[max(0, fault.pos - 12) : fault.pos + 12].strip() or text.strip()[-24:]
        raise LabError(
            f"TF_CONFIG is not JSON: at line {fault.lineno}, column {fault.colno}, near {near!r}, "
            f"{why}. In Python, make the text with json.dumps(...)."
        ) from fault


def _checked_cluster(given: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping) or not given:
        raise LabError(f"TF_CONFIG needs a cluster, which lists the addresses by role: {SHAPE}")
    cluster: dict[str, tuple[str, ...]] = {}
    task_at: dict[str, str] = {}
    for role, addresses in given.items():
        one_of("A role in TF_CONFIG", role, TASK_TYPES)
        for index, address in enumerate(addresses):
            task = f"{role} {index}"
            found = ADDRESS.fullmatch(str(address))
            if not found or not 1 <= int(found[2]) <= 65_535:
                raise LabError(
                    f"The address of {task}, {address!r}, must be a host and a port, such as "
                    f'"10.0.0.1:{PORT}".'
                )
            if address in task_at:
                raise LabError(
                    f"{address} stands in TF_CONFIG twice: for {task_at[address]} and for "
                    f"{task}. Each task needs an address of its own; on one machine, other ports."
                )
            task_at[address] = task
        cluster[role] = tuple(addresses)
    if "ps" in cluster and not {"chief", "worker"} <= set(cluster):
        raise LabError(
            "TF_CONFIG has parameter servers (ps), which need a chief and workers: the chief hands "
            'out the work to workers. Add the missing one, as "chief": ["host:port"].'
        )
    return cluster


def _checked_task(task: Any, cluster: Mapping[str, tuple[str, ...]]) -> tuple[str, int]:
    if not isinstance(task, Mapping) or not {"type", "index"} <= set(task):
        raise LabError(
            "TF_CONFIG needs a task with type and index: without it this process does not know "
            'which one it is. Add "task": {"type": "worker", "index": 0}.'
        )
    role = one_of("The type of the task in TF_CONFIG", task["type"], TASK_TYPES)
    index = whole("The task's index", task["index"])
    if role == "evaluator" and role not in cluster:
        return role, index  # it only reads checkpoints: the others need not reach it
    if index not in range(count := len(cluster.get(role, ()))):
        have = f"{role} 0 to {role} {count - 1}" if count > 1 else f"{count} {role}"
        raise LabError(
            f"The task is {role} {index}, and the cluster has {have}. Counting begins at 0; each "
            "process has an index of its own."
        )
    return role, index
