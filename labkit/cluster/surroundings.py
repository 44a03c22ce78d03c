"""What a rank finds in its environment: who and where all are, which cores and GPUs it has."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from labkit.cluster.engine import Places
from labkit.cluster.rank import ThisRank
from labkit.cluster.roles import indices, tf_config
from labkit.kinds import LabError

__all__ = ["deal_gpus", "environments", "explain_environment", "share_of_cores"]

INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")


def environments(
    roles: Sequence[str],
    places: Places,
    engine: str,
    changed: Mapping[str, str | None],
    gpus: Sequence[str] = (),
    *,
    cores: int | None = None,
) -> tuple[dict[str, str], ...]:
    """The environment of each rank: yours, then what a rank needs, then what you asked for.

    `cores`: those of each rank, where all are on this machine. Without it, cores, GPUs and
    interfaces are the engine's affair.
    """
    return tuple(
        _environment(rank, roles, places, engine, changed, gpus, cores)
        for rank in range(len(roles))
    )


def explain_environment(changed: Mapping[str, str | None] | None) -> dict[str, str | None]:
    """The user's own variables, or a sentence: None takes a variable away."""
    found: dict[str, str | None] = {}
    for name, value in dict(changed or {}).items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise LabError(f"environment has {name!r}, which cannot be the name of a variable.")
        if not isinstance(value, (str, int, float, type(None))) or "\0" in str(value):
            raise LabError(f"environment[{name!r}]={value!r} must be a text, or None to remove it.")
        found[name] = value if value is None else str(value)
    return found


def share_of_cores(ranks: int) -> int:
    """Cores for each rank, so that all together have what this process has."""
    return max(1, _usable() // ranks)


@cache
def _usable() -> int:
    # Once: a container's limits are files, and reading them takes as long as starting ranks.
    from labkit.hardware.machine import read_cores

    return read_cores().usable


def deal_gpus(ranks: int) -> tuple[str, ...]:
    """CUDA_VISIBLE_DEVICES of each rank: GPUs are dealt out in turn; empty where there are none."""
    from labkit.hardware import gpus

    found = gpus.read_gpus().gpus
    names = [gpu.uuid for gpu in found if gpu.visible and gpu.uuid is not None]
    if not names or any(gpu.visible is not False and gpu.uuid is None for gpu in found):
        return ()
    if ranks >= len(names):
        return tuple(names[rank % len(names)] for rank in range(ranks))
    return tuple(",".join(names[rank::ranks]) for rank in range(ranks))


def _environment(
    rank: int,
    roles: Sequence[str],
    places: Places,
    engine: str,
    changed: Mapping[str, str | None],
    gpus: Sequence[str],
    cores: int | None,
) -> dict[str, str]:
    host, _, port = places.master.rpartition(":")
    me = ThisRank(
        rank, len(roles), roles[rank], indices(roles)[rank], tuple(places.addresses), engine
    )
    found: dict[str, Any] = {
        **os.environ,
        **me.as_variable(),
        "RANK": rank,
        "WORLD_SIZE": len(roles),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TF_CONFIG": json.dumps(tf_config(roles, places.addresses, rank)),
        # The port of a rank is held until its program takes it; so it may be shared with itself.
        "TF_GRPC_REUSE_PORT": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if cores is not None:
        found |= {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": len(roles)}
        found |= dict.fromkeys(INTERFACES, "lo")
        for name in (*THREADS, "TF_NUM_INTEROP_THREADS"):
            found.setdefault(name, cores)
        if gpus:
            found["CUDA_VISIBLE_DEVICES"] = gpus[rank]
            # Ranks that share a GPU must not each take all of its memory.
            found.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    for name, value in changed.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return {name: str(value) for name, value in found.items()}
