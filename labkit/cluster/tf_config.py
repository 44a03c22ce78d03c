"""TF_CONFIG: which processes take part, at which addresses, and which of them this one is.

TensorFlow reads it from the environment, the same on every machine but for `task`. It checks
little: a wrong index or a missing comma shows as a program that waits for ever.

>>> config = from_hosts(["10.0.0.1", "10.0.0.2"], index=1)
>>> config.task, config.address, config.rank, config.ranks
('worker 1', '10.0.0.2:23450', 1, 2)
>>> check(config.text()) == config
True
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit import plain
from labkit.arguments import number, whole
from labkit.cluster.network import is_free
from labkit.kinds import LabError, seconds_text

__all__ = ["TfConfig", "check", "counts_of", "from_hosts", "from_slurm", "hosts_of", "step_ports"]

ROLES = ("chief", "worker", "ps", "evaluator")
SHAPE = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
CURLY = tuple("“”„‘’‚«»")  # what a word processor makes of quotes
PORT = 23450  # below those that systems give to outgoing connections, from 32768 on Linux
STEP_PORTS = 100  # of each step of a Slurm job: one a rank, and the last for MASTER_PORT
STEPS = 227  # so many blocks of ports, from 10000 to 32699
MOST_HOSTS = 65_536  # in one node list: more is a mistake in a bracket


@plain.stored
@dataclass(frozen=True, repr=False)
class TfConfig:
    """All tasks of a training by role, with their addresses, and the one that this process is."""

    cluster: dict[str, tuple[str, ...]]
    role: str
    index: int

    @property
    def task(self) -> str:
        """Which one this process is, in words: "worker 1"."""
        return f"{self.role} {self.index}"

    @property
    def tasks(self) -> tuple[tuple[str, int], ...]:
        """Every task of the cluster, by rank."""
        return tuple((role, i) for role, those in self.cluster.items() for i in range(len(those)))

    @property
    def addresses(self) -> tuple[str, ...]:
        """The address of every task, by rank."""
        return tuple(address for those in self.cluster.values() for address in those)

    @property
    def ranks(self) -> int:
        """How many tasks there are."""
        return len(self.addresses)

    @property
    def rank(self) -> int:
        """The number of this task among all; an evaluator comes after all of them."""
        here = (self.role, self.index)
        return self.tasks.index(here) if here in self.tasks else self.ranks

    @property
    def address(self) -> str:
        """Where the others reach this task; an evaluator needs no address."""
        return self.addresses[self.rank] if self.rank < self.ranks else ""

    def content(self) -> dict[str, Any]:
        """As the dictionary that TensorFlow expects."""
        cluster = {role: list(those) for role, those in self.cluster.items()}
        return {"cluster": cluster, "task": {"type": self.role, "index": self.index}}

    def text(self) -> str:
        """As the JSON text for the environment."""
        return json.dumps(self.content())

    def __str__(self) -> str:
        return json.dumps(self.content(), indent=2)

    def __repr__(self) -> str:
        rows = [f"{name:<11} {address}" for name, address in self.named().items()]
        return "\n".join([f"TF_CONFIG of {self.task}, of {self.ranks} tasks", *rows])

    def named(self) -> dict[str, str]:
        """The address of each task: {"worker 0": "node1:23450"}."""
        names = (f"{role} {index}" for role, index in self.tasks)
        return dict(zip(names, self.addresses, strict=True))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from labkit.views.table import table

        rows = [
            (name, address, str(rank), "this process" * (rank == self.rank))
            for rank, (name, address) in enumerate(self.named().items())
        ]
        head = ("task", "address", "rank", "")
        return {"text/plain": repr(self), "text/html": table(head, rows, f"TF_CONFIG: {self.task}")}


def check(config: Any = None, *, reach: bool = False, deadline: float = 3.0) -> TfConfig:
    """A TF_CONFIG (dictionary or JSON text; without one, this process's own), if it can work.

    With `reach`, also ask the network, each host for at most `deadline` seconds: do the others'
    machines answer, and is this task's own port free?
    """
    if config is None:
        config = os.environ.get("TF_CONFIG", "").strip()
        if not config:
            raise LabError(
                "TF_CONFIG is not set in this process's environment. labkit.cluster sets it for "
                "its ranks; by hand, set it before the program starts TensorFlow."
            )
    content = config.content() if isinstance(config, TfConfig) else config
    if isinstance(content, (str, bytes)):
        content = _from_json(content if isinstance(content, str) else content.decode())
    if not isinstance(content, Mapping):
        raise LabError(f"TF_CONFIG is {_short(content)}, not a dictionary. It has the form {SHAPE}")
    for key in content:
        if key not in ("cluster", "task", "environment", "rpc_layer"):
            raise LabError(
                f"TF_CONFIG has an entry {key!r}, which TensorFlow does not read. It has two, in "
                f"the form {SHAPE}"
            )
    cluster = _checked_cluster(content.get("cluster"))
    checked = TfConfig(cluster, *_checked_task(content.get("task"), cluster))
    deadline = number("deadline", deadline, above=0)
    if reach:
        _check_network(checked, deadline)
    return checked


def from_hosts(hosts: str | Sequence[str], index: int = 0, *, port: int = PORT) -> TfConfig:
    """The TF_CONFIG of one worker of a list of hosts, one worker for each entry.

    A host that is named twice has two workers with different ports.

    >>> from_hosts("node[1-2],node2", index=2)
    TF_CONFIG of worker 2, of 3 tasks
    worker 0    node1:23450
    worker 1    node2:23450
    worker 2    node2:23451
    """
    if isinstance(hosts, str):
        hosts = hosts_of(hosts)
    if not isinstance(hosts, Sequence) or not hosts:
        raise LabError(f'hosts must be a list such as ["10.0.0.1", "10.0.0.2"], got {hosts!r}.')
    port = whole("port", port, at_least=1, at_most=65_535)
    names = [str(host) for host in hosts]
    addresses = [f"{name}:{port + names[:i].count(name)}" for i, name in enumerate(names)]
    return check({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def from_slurm(environ: Mapping[str, str] | None = None, *, port: int | None = None) -> TfConfig:
    """The TF_CONFIG of this task, from the variables that srun has set.

    Without `port`, one is derived from the numbers of job and step, so that two steps on a machine
    have different ports: see `step_ports`.
    """
    have = os.environ if environ is None else environ
    # A step may have fewer machines than its job: what srun says of it comes first.
    nodes = have.get("SLURM_STEP_NODELIST") or _variable(have, "SLURM_JOB_NODELIST")
    tasks = have.get("SLURM_STEP_TASKS_PER_NODE") or _variable(have, "SLURM_TASKS_PER_NODE")
    hosts, counts = hosts_of(nodes), counts_of(tasks)
    rank = int(_variable(have, "SLURM_PROCID"))
    if len(counts) != len(hosts) or not 0 <= rank < sum(counts):
        raise LabError(
            f"Slurm names the machines {nodes}, {tasks} tasks on each, and this as task {rank}: "
            "that does not fit. Start the program with srun, which sets all of these."
        )
    placed = [host for host, count in zip(hosts, counts, strict=True) for _ in range(count)]
    node = have.get("SLURM_NODEID", "")
    if node.isdigit() and int(node) < len(hosts) and hosts[int(node)] != placed[rank]:
        raise LabError(
            f"Slurm has put task {rank} on {hosts[int(node)]}; distributed in blocks it would be "
            f"on {placed[rank]}. Start the program with srun --distribution=block."
        )
    if port is None:
        job, step = have.get("SLURM_JOB_ID") or "0", have.get("SLURM_STEP_ID", "")
        ports = step_ports(int(job), int(step) if step.isdigit() else 0)
        if max(counts) >= len(ports):
            raise LabError(f"Give port= with more than {len(ports) - 1} tasks on a node.")
        port = ports.start
    return from_hosts(placed, rank, port=port)


def step_ports(job: int, step: int) -> range:
    """The ports of one step of a Slurm job: no other step of the job has one of them.

    >>> step_ports(job=4711, step=0)
    range(16200, 16300)
    """
    first = 10_000 + STEP_PORTS * ((7 * job + step) % STEPS)
    return range(first, first + STEP_PORTS)


def hosts_of(text: str) -> tuple[str, ...]:
    """Every machine of a node list, as `scontrol show hostnames` prints them.

    >>> hosts_of("node[01-03,07],gpu5")
    ('node01', 'node02', 'node03', 'node07', 'gpu5')
    """
    hosts: list[str] = []
    try:
        for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+|[\[\]]", text):
            hosts += _expanded(part.strip())
    except ValueError:
        hosts = []
    if not hosts:
        raise LabError(
            f"The node list {text!r} cannot be read. Write it as node[01-03,07],gpu5: a bracket "
            "holds numbers and spans."
        )
    return tuple(hosts)


def _expanded(part: str) -> list[str]:
    """node[1-2]a[3-4] is node1a3, node1a4, node2a3, node2a4: the last bracket runs fastest."""
    head, bracket, rest = part.partition("[")
    if not bracket:
        if not part or "]" in part:
            raise ValueError(part)
        return [part]
    inside, _, tail = rest.partition("]")
    numbers: list[str] = []
    for span in inside.split(","):
        first, _, last = span.strip().partition("-")
        if not 0 <= int(last or first) - int(first) < MOST_HOSTS:
            raise ValueError(span)
        # 08, 09, 10: the zeros in front belong to the name.
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last or first) + 1)]
    tails = _expanded(tail) if tail else [""]
    return [f"{head}{n}{end}" for n in numbers for end in tails]


def counts_of(text: str) -> tuple[int, ...]:
    """How many tasks each machine has, from Slurm's short form.

    >>> counts_of("2(x3),1")
    (2, 2, 2, 1)
    """
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,5})(?:\(x(\d{1,5})\))?", part.strip())
        if found is None:
            raise LabError(f"The tasks per node are {text!r}. Slurm writes them as 2(x3),1.")
        counts += [int(found[1])] * int(found[2] or 1)
    return tuple(counts)


def _variable(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value or (name == "SLURM_PROCID" and not value.isdigit()):
        raise LabError(
            f"{name} is {value!r}: srun did not start this process. Start it with srun, or name "
            "the hosts: tf_config.from_hosts([...])."
        )
    return value


def _from_json(text: str) -> Any:
    if re.match(r"\s*(export\s+)?TF_CONFIG\s*=", text):
        raise LabError(
            "TF_CONFIG begins with its own name: the text before the first { belongs to the shell. "
            "Leave it out of the value."
        )
    try:
        return json.loads(text)
    except RecursionError:
        raise LabError(f"TF_CONFIG has too many brackets. It has the form {SHAPE}") from None
    except json.JSONDecodeError as fault:
        near = text[max(0, fault.pos - 12) : fault.pos + 12].strip() or text.strip()[-24:]
        line = f"line {fault.lineno}, " if "\n" in text.strip() else ""
        raise LabError(
            f"TF_CONFIG is not JSON: at {line}column {fault.colno}, near {near!r}, "
            f"{_why_not_json(text, fault)} In Python, make the text with json.dumps(...)."
        ) from fault


def _why_not_json(text: str, fault: json.JSONDecodeError) -> str:
    here = text[fault.pos : fault.pos + 1]
    if here == "'":
        return "there is a single quote, and JSON has double quotes."
    if here in CURLY:
        return f"there is {here}, and JSON has straight quotes."
    # Python 3.13 points at the comma, older ones at the bracket after it.
    if re.search(r",\s*[\]}]", text[: fault.pos].rstrip()[-1:] + text[fault.pos :][:3]):
        return "there is a comma with nothing after it."
    if not text[fault.pos :].strip():
        return "the text ends too early: a bracket is not closed."
    return f"{fault.msg.lower()}."


def _checked_cluster(given: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(given, Mapping) or not given:
        what = "no cluster" if given in (None, {}) else f"a cluster that is {_short(given)}"
        raise LabError(
            f'TF_CONFIG has {what}. List the addresses by role: {{"cluster": '
            '{"worker": ["10.0.0.1:23450", "10.0.0.2:23450"]}, ...}'
        )
    cluster: dict[str, tuple[str, ...]] = {}
    task_at: dict[str, str] = {}
    for role, those in given.items():
        _check_role(role, "The cluster")
        if isinstance(those, (str, bytes)) or not isinstance(those, Sequence) or not those:
            raise LabError(
                f"The addresses of {role!r} are {_short(those)}. Write a list, also for one: "
                '["10.0.0.1:23450"].'
            )
        for index, address in enumerate(those):
            task = f"{role} {index}"
            if wrong := _wrong_address(address):
                raise LabError(f"The address of {task}, {address!r}, {wrong}.")
            host, _, port = address.lower().rpartition(":")
            if (there := f"{host}:{int(port)}") in task_at:
                raise LabError(
                    f"{address} stands in TF_CONFIG twice: for {task_at[there]} and for {task}. "
                    "Each task needs an address of its own; on one machine, other ports."
                )
            task_at[there] = task
        cluster[role] = tuple(those)
    if len(cluster.get("chief", ())) > 1:
        raise LabError(
            f"TF_CONFIG has {len(cluster['chief'])} chiefs ({', '.join(cluster['chief'])}). "
            "There is one; make the others workers."
        )
    if "ps" in cluster and "chief" not in cluster:
        raise LabError(
            "TF_CONFIG has parameter servers (ps) and no chief. With parameter servers the chief "
            'hands out the work: add "chief": ["host:port"].'
        )
    if "worker" not in cluster and ("ps" in cluster or "chief" not in cluster):
        raise LabError(
            f"TF_CONFIG has only {', '.join(cluster)}, and no worker to train: add "
            '"worker": ["host:port"].'
        )
    return cluster


def _wrong_address(address: Any) -> str:
    """What is wrong with a host:port, or "". TensorFlow wants no scheme and no blank."""
    if not isinstance(address, str):
        return 'must be a text such as "10.0.0.1:23450"'
    host, colon, port = address.rpartition(":")
    if "://" in address:
        return f"begins with {address.partition('://')[0]}://; leave that out"
    if re.search(r"\s", address):
        return "has a blank in it; take it out"
    if not colon:
        return f"has no port; write {address}:23450"
    if set(host) & set(",;/") or re.search(r"\w\[", host):
        return "is not one machine; write an address for each into the list"
    if not host:
        return f"has no host before the port; write 127.0.0.1:{port}"
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        return f"has the port {port!r}; a port is a number from 1 to 65535"
    if host == "0.0.0.0":  # noqa: S104
        return "names no machine, so other tasks cannot reach it; write the machine's own address"
    if ":" in host and not re.fullmatch(r"\[.*\]", host):
        return f"has two ports, or is an address of IPv6: then write [{host}]:{port}"
    return ""


def _checked_task(task: Any, cluster: Mapping[str, tuple[str, ...]]) -> tuple[str, int]:
    if not isinstance(task, Mapping) or not task:
        what = "no task" if task in (None, {}) else f"a task that is {_short(task)}"
        raise LabError(
            f"TF_CONFIG has {what}, so this process does not know which one it is. "
            'Add "task": {"type": "worker", "index": 0}.'
        )
    for key in ("type", "index"):
        if key not in task:
            raise LabError(
                f"The task in TF_CONFIG has no {key!r}. It needs both: "
                '{"type": "worker", "index": 0}.'
            )
    role, index = task["type"], task["index"]
    _check_role(role, "The task")
    if isinstance(index, str) and re.fullmatch(r"[0-9]+", index):
        index = int(index)  # TensorFlow takes it, too
    if isinstance(index, bool) or not isinstance(index, int):
        raise LabError(
            f"The task's index is {_short(index)}, not a whole number. The first {role} is 0."
        )
    if role == "evaluator" and role not in cluster and index >= 0:
        return role, index  # it only reads checkpoints: the others need not reach it
    if role not in cluster:
        raise LabError(
            f"The task is {role} {index}, and the cluster has no {role}: it has "
            f"{', '.join(cluster)}. Correct the task's type, or add its address to the cluster."
        )
    count = len(cluster[role])
    if not 0 <= index < count:
        have = f"one {role}, with index 0" if count == 1 else f"{role} 0 to {role} {count - 1}"
        raise LabError(
            f"The task is {role} {index}, and the cluster has {have}. Counting begins at 0; each "
            "process has an index of its own."
        )
    return role, index


def _check_role(role: Any, where: str) -> None:
    if role in ROLES:
        return
    known = {
        "master": "chief",
        "coordinator": "chief",
        "parameter_server": "ps",
        "workers": "worker",
    }
    meant = known.get(str(role).lower(), str(role).lower())
    hint = f" Write {meant!r}." if meant in ROLES else ""
    raise LabError(
        f"{where} in TF_CONFIG has the role {role!r}, which TensorFlow does not know.{hint} "
        f"The roles are {', '.join(ROLES)}."
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- What only the network can tell


def _check_network(config: TfConfig, timeout: float) -> None:
    """Raise the first thing that would keep this task from meeting the others."""
    for name, address in config.named().items():
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        if name == config.task:
            _check_own_port(name, address, host, int(port))
        elif why := _why_unreachable(host, int(port), timeout):
            raise LabError(
                f"{name[0].upper()}{name[1:]} is said to be at {address}, and that machine cannot "
                f"be reached: {why}. Correct the address, or see that the machine is up."
            )


def _why_unreachable(host: str, port: int, timeout: float) -> str:
    try:
        socket.create_connection((host, port), timeout).close()
    except ConnectionRefusedError:
        return ""  # the machine is there; its task may just not have started
    except TimeoutError:
        return f"no answer within {seconds_text(timeout)}"
    except (socket.gaierror, UnicodeError) as fault:
        return f"its name {host!r} is not known here ({getattr(fault, 'strerror', '') or fault})"
    except OSError as fault:
        return os.strerror(fault.errno or 0)
    return ""


def _check_own_port(task: str, address: str, host: str, port: int) -> None:
    wrong = ""
    try:
        socket.create_server((host, 0)).close()
    except socket.gaierror as fault:
        wrong = f"and the name {host!r} is not known here ({fault.strerror})."
    except OSError:
        wrong = "which is no address of this machine. Is the index right?"
    # TensorFlow listens on every address of the machine, whatever TF_CONFIG says.
    if not wrong and not is_free(port, ""):
        wrong = (
            f"and port {port} is taken (address already in use). Choose another port for it in "
            "every TF_CONFIG, or end what listens there."
        )
    if wrong:
        raise LabError(f"This process is {task} at {address}, {wrong}")
