"""The strategies of one process: one device, Mirrored with each of its reductions, CentralStorage.

Each program is run by one rank of a cluster, for a process of its own: collective operations of
two replicas and then of four do not go together in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from labkit.strategies.cases import STEPS, Case, practice_job
from labkit.strategies.keras_fit import fitted
from labkit.strategies.placements import Placed, central_storage, mirrored

__all__ = ["cases", "one_device"]

_MIRRORED = (
    (2, "reduction to one device"),
    (2, "hierarchical copy"),
    (2, "collective"),
    (4, "collective"),
    (2, "nccl"),
)
_DROPOUT = "2 replicas, Dropout"


def one_device() -> Case:
    """What all others are compared with."""
    return Case("one device", "1 logical CPU", "one step", _one_device)


def cases() -> list[Case]:
    """Mirrored and central storage, in the order of the table."""
    steps = [
        Case("Mirrored", f"{n} replicas, {_spelled(how)}", "one step", _step, (mirrored, (n, how)))
        for n, how in _MIRRORED
    ]
    central = (central_storage, (2,))
    return [
        *steps,
        Case("Mirrored", "2 replicas", "model.fit", _fit, (mirrored, (2, "collective"))),
        Case("CentralStorage", "2 replicas", "one step", _step, central),
        Case("CentralStorage", "2 replicas", "model.fit", _fit, central),
        Case(
            "CentralStorage",
            "2 replicas, Dropout",
            "model.fit",
            _fit,
            (*central, 0.2),
            serial=False,
        ),
    ]


def _spelled(operations: str) -> str:
    return {"nccl": "NCCL", "collective": "collective operations"}.get(operations, operations)


def _one_device(rank: int) -> list[Any]:
    from labkit.hardware import replicas

    return _trained(replicas(1, devices="cpu"))


def _step(rank: int, placed: Callable[..., Placed], arguments: tuple[Any, ...]) -> list[Any]:
    return _trained(placed(*arguments))


def _trained(replicas: Any) -> list[Any]:
    job = practice_job(replicas)
    job.steps(STEPS)
    weights: list[Any] = job.weights()
    return weights


def _fit(
    rank: int, placed: Callable[..., Placed], arguments: tuple[Any, ...], dropout: float = 0.0
) -> list[Any]:
    return fitted(placed(*arguments).strategy(), dropout)
