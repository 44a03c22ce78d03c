"""Reads the text of a TF_CONFIG, and says in one sentence what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from labkit.kinds import LabError

__all__ = ["ROLES", "parsed"]

ROLES = ("chief", "worker", "ps", "evaluator")
_MEANT = {
    "master": "chief", "coordinator": "chief", "parameter_server": "ps", "parameterserver": "ps",
    "param_server": "ps", "server": "ps", "eval": "evaluator", "evaluators": "evaluator",
    "workers": "worker", "chiefs": "chief",
}  # fmt: skip
_SHAPE = '{"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'
CURLY = tuple("“”„‘’‚«»")  # what a word processor makes of quotes
Cluster = dict[str, tuple[str, ...]]


def parsed(config: Any) -> tuple[Cluster, str, int]:
    """The cluster, and the role and index of this task."""
    if isinstance(config, (str, bytes)):
        config = _from_json(config if isinstance(config, str) else config.decode(errors="replace"))
    if not isinstance(config, Mapping):
        raise LabError(f"TF_CONFIG is {_shown(config)}, not a dictionary. It has the form {_SHAPE}")
    strange = [key for key in config if key not in ("cluster", "task", "environment", "rpc_layer")]
    if strange:
        raise LabError(
            f"TF_CONFIG has an entry {strange[0]!r} that nobody reads. It has two, in the form "
            f"{_SHAPE}"
        )
    cluster = _cluster(config)
    role, index = _task(config, cluster)
    return cluster, role, index


def _from_json(text: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise LabError(
                    f"TF_CONFIG has two entries {name!r}, and only the last would count. Write "
                    "all addresses of a role into one list."
                )
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as fault:
        raise LabError(_not_json(text, fault)) from fault


def _not_json(text: str, fault: ValueError | RecursionError) -> str:
    start = text.lstrip()
    if not start:
        return f"TF_CONFIG is empty. It has the form {_SHAPE}"
    if re.match(r"(export\s+)?TF_CONFIG\s*=", start):
        return (
            "TF_CONFIG begins with its own name: the text before the first { belongs to the shell. "
            "Leave it out of the value."
        )
    place = getattr(fault, "pos", 0)
    line, column = getattr(fault, "lineno", 1), getattr(fault, "colno", 1)
    near = text[max(0, place - 12) : place + 12].strip() or text.strip()[-24:]
    where = f"column {column}" if "\n" not in text.strip() else f"line {line}, column {column}"
    said = f"TF_CONFIG is not JSON: at {where}, near {near!r}, {_wrong(text, place, fault)}"
    return f"{said} In Python, make the text with json.dumps(...)."


def _wrong(text: str, place: int, fault: ValueError | RecursionError) -> str:
    here = text[place : place + 1]
    if here == "'":
        return "there is a single quote, and JSON has double quotes."
    if here in CURLY:
        return f"there is {here}, and JSON has straight quotes."
    # Python 3.13 points at the comma, older ones at the bracket after it.
    around = text[:place].rstrip()[-1:] + text[place:].replace(" ", "").replace("\n", "")[:2]
    if re.search(r",[\]}]", around):
        return "there is a comma with nothing after it."
    if not text[place:].strip():
        return "the text ends too early: a bracket is not closed."
    return f"{str(getattr(fault, 'msg', fault)).lower()}."


def _cluster(config: Mapping[str, Any]) -> Cluster:
    given = config.get("cluster")
    if not isinstance(given, Mapping) or not given:
        what = "no cluster" if given in (None, {}) else f"a cluster that is {_shown(given)}"
        raise LabError(
            f'TF_CONFIG has {what}. List the addresses by role: {{"cluster": '
            '{"worker": ["10.0.0.1:23450", "10.0.0.2:23450"]}, ...}'
        )
    cluster: Cluster = {}
    for role, those in given.items():
        _known(role, "The cluster")
        if isinstance(those, (str, bytes)) or not isinstance(those, Sequence):
            raise LabError(
                f"The addresses of {role!r} are {_shown(those)}, not a list. Write them as "
                f'["10.0.0.1:23450"], also when there is only one.'
            )
        if not those:
            raise LabError(f"The role {role!r} is empty. Give it an address, or leave it out.")
        cluster[role] = tuple(_address(a, f"{role} {i}") for i, a in enumerate(those))
    _together(cluster)
    return cluster


def _together(cluster: Cluster) -> None:
    """What no address alone can show."""
    seen: dict[str, str] = {}
    for role, those in cluster.items():
        for index, address in enumerate(those):
            task = f"{role} {index}"
            host, _, port = address.lower().rpartition(":")
            where = f"{host}:{int(port)}"
            if where in seen:
                raise LabError(
                    f"{address} stands in TF_CONFIG twice: for {seen[where]} and for {task}. "
                    "Each task needs an address of its own; on one machine, other ports."
                )
            seen[where] = task
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
    if not {"chief", "worker"} & set(cluster):
        raise LabError(
            f"TF_CONFIG has only {', '.join(cluster)}, and nobody who trains: add "
            '"worker": ["host:port"].'
        )
    if "ps" in cluster and "worker" not in cluster:
        raise LabError(
            "TF_CONFIG has parameter servers (ps) and no worker to compute for them: add "
            '"worker": ["host:port"].'
        )


def _address(address: Any, task: str) -> str:
    """One host:port, as TensorFlow wants it: no scheme, no blank, a port from 1 to 65535."""
    if not isinstance(address, str):
        raise LabError(
            f'The address of {task} is {_shown(address)}, not a text such as "10.0.0.1:23450".'
        )
    host, colon, port = address.rpartition(":")
    wrong = ""
    if "://" in address:
        wrong = f"begins with {address.partition('://')[0]}://; leave that out"
    elif address != address.strip() or any(letter.isspace() for letter in address):
        wrong = "has a blank in it; take it out"
    elif not colon or address.endswith("]"):
        wrong = f"has no port; write {address}:23450"
    elif set(host) & set(",;/") or re.search(r"\w\[", host):
        wrong = "is not one machine; write an address for each into the list"
    elif not host:
        wrong = f"has no host before the port; write 127.0.0.1:{port}"
    elif not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        wrong = f"has the port {port!r}; a port is a number from 1 to 65535"
    elif host == "0.0.0.0" or host == "[::]":  # noqa: S104
        wrong = "names no machine, so nobody can reach it; write the machine's own address"
    elif ":" in host and not (host.startswith("[") and host.endswith("]")):
        wrong = f"has several colons; an address of IPv6 stands in brackets, [{host}]:{port}"
    if wrong:
        raise LabError(f"The address of {task}, {address!r}, {wrong}.")
    return address


def _task(config: Mapping[str, Any], cluster: Cluster) -> tuple[str, int]:
    task = config.get("task")
    if not isinstance(task, Mapping) or not task:
        what = "no task" if task in (None, {}) else f"a task that is {_shown(task)}"
        raise LabError(
            f"TF_CONFIG has {what}, so this process does not know which one it is. "
            'Add "task": {"type": "worker", "index": 0}.'
        )
    missing = [key for key in ("type", "index") if key not in task]
    if missing:
        raise LabError(
            f"The task in TF_CONFIG has no {missing[0]!r}. It needs both: "
            '{"type": "worker", "index": 0}.'
        )
    role, index = task["type"], task["index"]
    _known(role, "The task")
    if isinstance(index, str) and index.isascii() and index.isdigit():
        index = int(index)  # TensorFlow takes it, too
    if isinstance(index, bool) or not isinstance(index, int):
        raise LabError(
            f"The task's index is {_shown(index)}, not a whole number. The first {role} is 0."
        )
    if role == "evaluator" and role not in cluster and index >= 0:
        return role, index  # an evaluator only reads checkpoints: nobody needs to reach it
    if role not in cluster:
        have = ", ".join(cluster)
        raise LabError(
            f"The task is {role} {index}, and the cluster has no {role}: it has {have}. "
            "Correct the task's type, or add its address to the cluster."
        )
    count = len(cluster[role])
    if not 0 <= index < count:
        have = f"one {role}, with index 0" if count == 1 else f"{role} 0 to {role} {count - 1}"
        raise LabError(
            f"The task is {role} {index}, and the cluster has {have}. Counting begins at 0; each "
            "process has an index of its own."
        )
    return role, index


def _known(role: Any, where: str) -> None:
    if role in ROLES:
        return
    meant = _MEANT.get(str(role).lower(), str(role).lower())
    hint = f" Write {meant!r}." if meant in ROLES else ""
    raise LabError(
        f"{where} in TF_CONFIG has the role {role!r}, which TensorFlow does not know.{hint} "
        f"The roles are {', '.join(ROLES)}."
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
