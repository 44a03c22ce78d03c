"""Which rank has which role, and the TF_CONFIG that follows from it.

>>> tf_config(("chief", "worker"), ("a:1", "b:2"), 1)["task"]
{'type': 'worker', 'index': 0}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labkit.kinds import LabError

__all__ = ["indices", "roles_of", "tf_config"]

KNOWN = ("chief", "worker", "ps", "evaluator")
MOST = 64


def roles_of(ranks: int | None, roles: Mapping[str, int] | None) -> tuple[str, ...]:
    """The role of each rank, in the order in which they were given; else all are workers."""
    if roles is None:
        ranks = _whole("ranks", 2 if ranks is None else ranks)
        return ("worker",) * ranks
    if not isinstance(roles, Mapping) or not roles:
        raise LabError(
            f"roles={roles!r} does not say how many ranks have which role. "
            'Write it as roles={"chief": 1, "worker": 2, "ps": 1}.'
        )
    for role, count in roles.items():
        if role not in KNOWN:
            raise LabError(
                f"{role!r} is no role that TensorFlow knows. Choose among {', '.join(KNOWN)}."
            )
        if role == "chief" and count != 1:
            raise LabError(f"There is one chief, not {count!r}: write roles={{'chief': 1, ...}}.")
        _whole(f"roles[{role!r}]", count)
    found = tuple(role for role, count in roles.items() for _ in range(count))
    if ranks is not None and ranks != len(found):
        raise LabError(
            f"roles={dict(roles)} are {len(found)} ranks, but ranks={ranks}. "
            "Leave one of the two out."
        )
    return found


def indices(roles: Sequence[str]) -> tuple[int, ...]:
    """The number of each rank within its role.

    >>> indices(("chief", "worker", "worker", "ps"))
    (0, 0, 1, 0)
    """
    return tuple(list(roles[:rank]).count(role) for rank, role in enumerate(roles))


def tf_config(roles: Sequence[str], addresses: Sequence[str], rank: int) -> dict[str, Any]:
    """What TensorFlow reads from the environment of this rank."""
    cluster: dict[str, list[str]] = {}
    for role, address in zip(roles, addresses, strict=True):
        if role != "evaluator":  # it reads checkpoints and is no part of the cluster
            cluster.setdefault(role, []).append(address)
    return {"cluster": cluster, "task": {"type": roles[rank], "index": indices(roles)[rank]}}


def _whole(name: str, count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise LabError(f"{name}={count!r} must be a whole number from 1 to {MOST}.")
    return count
