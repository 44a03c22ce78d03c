"""TF_CONFIG: who takes part, at which address, and which of them am I. Built, and checked.

TensorFlow reads it from the environment, the same on every machine but for `task`. It believes
what it finds: a wrong index or a missing comma shows as a program that waits for ever.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit import plain
from labkit.cluster.nodelist import counts_of, hosts_of
from labkit.cluster.outcome import explain_deadline
from labkit.cluster.reach import ask_all
from labkit.cluster.tf_config_text import ROLES, parsed
from labkit.kinds import LabError

__all__ = ["TfConfig", "check", "from_hosts", "from_slurm", "hosts_of"]

PORT = 23450  # below those that systems hand out by themselves, from 32768 on Linux


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
        """The number of this task among all; an evaluator is none of them, and comes after all."""
        here = (self.role, self.index)
        return self.tasks.index(here) if here in self.tasks else self.ranks

    @property
    def address(self) -> str:
        """Where the others reach this task; an evaluator needs no address."""
        return self.addresses[self.rank] if self.rank < self.ranks else ""

    @property
    def is_chief(self) -> bool:
        """Whether this task saves and logs for all: the chief, or worker 0 where there is none."""
        return (self.role, self.index) == ("chief" if "chief" in self.cluster else "worker", 0)

    def at(self, role: str | int, index: int = 0) -> TfConfig:
        """The same cluster, as another task must see it: `at("worker", 1)`, or `at(rank)`.

        >>> from_hosts(["a", "b"]).at(1).task
        'worker 1'
        """
        if isinstance(role, int):
            if not 0 <= role < self.ranks:
                raise LabError(f"There is no rank {role}: the ranks are 0 to {self.ranks - 1}.")
            role, index = self.tasks[role]
        return check({"cluster": self.cluster, "task": {"type": role, "index": index}})

    def content(self) -> dict[str, Any]:
        """As the dictionary that TensorFlow expects."""
        cluster = {role: list(those) for role, those in self.cluster.items()}
        return {"cluster": cluster, "task": {"type": self.role, "index": self.index}}

    def text(self) -> str:
        """As the JSON text that belongs into the environment."""
        return json.dumps(self.content())

    def environment(self) -> dict[str, str]:
        """What this task's process needs in its environment."""
        return {"TF_CONFIG": self.text()}

    def __str__(self) -> str:
        return json.dumps(self.content(), indent=2)

    def __repr__(self) -> str:
        rows = [f"{f'{role} {index}':<11} {address}" for role, index, address in self._rows()]
        return "\n".join([f"TF_CONFIG of {self.task}, of {self.ranks} tasks", *rows])

    def _rows(self) -> list[tuple[str, int, str]]:
        places = zip(self.tasks, self.addresses, strict=True)
        return [(role, index, address) for (role, index), address in places]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from labkit.views.table import table

        rows = [
            (f"{role} {index}", address, str(rank), "this process" * (rank == self.rank))
            for rank, (role, index, address) in enumerate(self._rows())
        ]
        head = ("task", "address", "rank", "")
        return {"text/plain": repr(self), "text/html": table(head, rows, f"TF_CONFIG: {self.task}")}


def check(config: Any = None, *, reach: bool = False, deadline: float = 3.0) -> TfConfig:
    """A TF_CONFIG (dictionary or JSON text; none: this process's own) if it can work.

    With `reach`, also asks the network, each host for at most `deadline` seconds: whether the
    others' machines answer, and whether this task's own port is free.
    """
    cluster, role, index = parsed(_given(config))
    checked = TfConfig(cluster, role, index)
    deadline = explain_deadline(deadline)
    if reach:
        others = {
            f"{name} {number}": address
            for name, number, address in checked._rows()
            if (name, number) != (role, index)
        }
        ask_all(checked.task, checked.address, others, deadline)
    return checked


def from_hosts(
    hosts: str | Sequence[str],
    role: str = "worker",
    index: int = 0,
    *,
    port: int = PORT,
    roles: Mapping[str, int] | None = None,
) -> TfConfig:
    """The TF_CONFIG of one task of a list of hosts, one task for each entry.

    A host that is named twice gets two tasks with different ports. `roles` says how many of which,
    in the order of the hosts; without it all are workers.

    >>> from_hosts("node[1-2],node2", "ps", 0, roles={"chief": 1, "worker": 1, "ps": 1})
    TF_CONFIG of ps 0, of 3 tasks
    chief 0     node1:23450
    worker 0    node2:23450
    ps 0        node2:23451
    """
    named = _named(hosts)
    if isinstance(port, bool) or not isinstance(port, int):
        raise LabError(f"port={port!r} is no port. Write a number from 1 to 65535, such as {PORT}.")
    roles = {"worker": len(named)} if roles is None else roles
    _counted(roles, len(named))
    used: dict[str, int] = {}
    addresses = []
    for host in named:
        # An address of IPv6 is full of colons, and stands in brackets.
        shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
        addresses.append(f"{shown}:{port + used.get(host, 0)}")
        used[host] = used.get(host, 0) + 1
    cluster: dict[str, list[str]] = {}
    first = 0
    for name, count in roles.items():
        cluster[name] = addresses[first : first + count]
        first += count
    return check({"cluster": cluster, "task": {"type": role, "index": index}})


def from_slurm(
    environ: Mapping[str, str] | None = None,
    *,
    port: int | None = None,
    roles: Mapping[str, int] | None = None,
) -> TfConfig:
    """The TF_CONFIG of this task, from what srun has put into its environment.

    Nobody is asked: hosts, tasks per host and the task's own number are all there. Without a port,
    one is derived from the numbers of job and step, so that two steps on a machine do not meet.
    """
    have = dict(os.environ if environ is None else environ)
    hosts = hosts_of(_from_srun(have, "NODELIST"))
    counts = counts_of(_from_srun(have, "TASKS_PER_NODE"))
    rank, ranks = _number(have, "SLURM_PROCID"), sum(counts)
    if len(counts) != len(hosts):
        raise LabError(
            f"Slurm names {len(hosts)} machines and tasks for {len(counts)}. Start the program "
            "with srun, which sets both for its own step."
        )
    if not 0 <= rank < ranks:
        raise LabError(
            f"Slurm says that this is task {rank}, of {ranks}. Start the program with srun."
        )
    named = [host for host, count in zip(hosts, counts, strict=True) for _ in range(count)]
    node = have.get("SLURM_NODEID", "")
    if node.isdigit() and int(node) < len(hosts) and hosts[int(node)] != named[rank]:
        raise LabError(
            f"Slurm has put task {rank} on {hosts[int(node)]}, where tasks dealt out in blocks "
            f"would have it on {named[rank]}. Start the program with srun --distribution=block."
        )
    config = from_hosts(named, port=_port_of(have) if port is None else port, roles=roles)
    return config.at(rank)


def _given(config: Any) -> Any:
    if isinstance(config, TfConfig):
        return config.content()
    if config is not None:
        return config
    text = os.environ.get("TF_CONFIG", "")
    if not text.strip():
        raise LabError(
            "TF_CONFIG is not set in this process's environment. labkit.cluster sets it for its "
            "ranks; by hand, set it before the program starts TensorFlow."
        )
    return text


def _named(hosts: Any) -> list[str]:
    """One machine for each entry of what somebody calls hosts."""
    if isinstance(hosts, str):
        hosts = hosts_of(hosts)
    if not isinstance(hosts, Sequence) or not hosts:
        said = "There are no hosts." if hosts in ((), []) else f"{hosts!r} are no hosts."
        raise LabError(f'{said} Give a list such as ["10.0.0.1", "10.0.0.2"].')
    for host in map(str, hosts):
        name, _, port = host.rpartition(":")
        if port.isdigit() and name and (":" not in name or name.endswith("]")):
            raise LabError(
                f"The host {host!r} has a port already. Write {name!r}, and port={port}."
            )
    return [str(host) for host in hosts]


def _counted(roles: Mapping[str, int], hosts: int) -> None:
    if not isinstance(roles, Mapping):
        raise LabError(
            f'roles={roles!r} are no roles. Write them as {{"chief": 1, "worker": 2, "ps": 1}}.'
        )
    for role, count in roles.items():
        if role not in ROLES or isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise LabError(
                f"roles={dict(roles)!r} cannot be dealt out. Give a number from 1 on for each of "
                f'{", ".join(ROLES)} that you need, such as {{"chief": 1, "worker": 2, "ps": 1}}.'
            )
    if sum(roles.values()) != hosts:
        raise LabError(
            f"{dict(roles)!r} are {sum(roles.values())} tasks, and there are {hosts} hosts. Name a "
            "host for each task; a host may be named more than once."
        )


def _from_srun(environ: Mapping[str, str], what: str) -> str:
    """A step may have fewer machines than its job: what srun says comes first."""
    job = "SLURM_JOB_NODELIST" if what == "NODELIST" else f"SLURM_{what}"
    return environ.get(f"SLURM_STEP_{what}") or _slurm(environ, job)


def _slurm(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise LabError(
            f"{name} is not set: this process was not started by Slurm. Start it with srun, or "
            "name the hosts: tf_config.from_hosts([...])."
        )
    return value


def _number(environ: Mapping[str, str], name: str) -> int:
    value = _slurm(environ, name)
    if not re.fullmatch(r"-?[0-9]+", value):
        raise LabError(f"{name} is {value!r}, which is no number. Start the program with srun.")
    return int(value)


def _port_of(environ: Mapping[str, str]) -> int:
    name = "SLURM_JOB_ID" if environ.get("SLURM_JOB_ID") else "SLURM_JOBID"
    job = _number(environ, name) if environ.get(name) else 0
    step = environ.get("SLURM_STEP_ID", "")
    # 16 apart, for so many tasks on one machine, and never from 32768 on.
    return 16_000 + 16 * ((7 * job + (int(step) if step.isdigit() else 0)) % 1000)
