"""Strong and weak scaling, and the batches and learning rates that follow from them.

>>> batches(32, replicas=4, scaling="strong"), batches(32, replicas=4, scaling="weak")
((32, 8), (128, 32))
>>> scaled_learning_rate(0.1, batch=8192, base_batch=256)
3.2
"""

from __future__ import annotations

from labkit.kinds import LabError
from labkit.training.asked import whole

__all__ = ["batches", "scaled_learning_rate"]


def batches(batch: int, replicas: int, scaling: str) -> tuple[int, int]:
    """Global batch and batch per replica.

    "strong": the same global batch for any number of replicas, so each gets a smaller share.
    "weak": the same batch per replica, so the global batch grows with their number.
    """
    batch = whole("batch", batch, 1, 32)
    if scaling == "weak":
        return batch * replicas, batch
    if scaling != "strong":
        raise LabError(
            f"There is no scaling called {scaling!r}. Take 'strong' (the same global batch) "
            "or 'weak' (the same batch on each replica)."
        )
    if batch % replicas:
        raise LabError(
            f"A global batch of {batch} cannot be shared evenly by {replicas} replicas. "
            f"Take a multiple of {replicas}, such as {replicas * max(1, round(batch / replicas))}."
        )
    return batch, batch // replicas


def scaled_learning_rate(rate: float, batch: int, base_batch: int) -> float:
    """The linear rule of Goyal et al. (2017): k times the batch, k times the rate.

    It holds for SGD, in a certain range, and after a warm-up; the lecture tests it.
    """
    if batch < 1 or base_batch < 1:
        raise LabError(f"Batches are from 1 on; these are {batch} and {base_batch}.")
    return rate * batch / base_batch
