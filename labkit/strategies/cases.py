"""What every strategy is asked to do, so that its weights can be held against those of one device.

The dense model without dropout, SGD, the same seed, the same batches in the same order: whoever
places this step rightly ends with the weights of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "BATCH",
    "RATE",
    "SEED",
    "STEPS",
    "Case",
    "What",
    "practice",
    "practice_batches",
    "practice_job",
]

STEPS, BATCH, RATE, SEED = 20, 120, 0.1, 0  # 120 can be shared by 2, 3 and 4
What = Literal["one step", "model.train_step", "model.fit"]


@dataclass(frozen=True)
class Case:
    """One row of the table, before it has run.

    `program(rank, *arguments)` runs on every rank and returns this rank's copy of the weights; a
    rank that holds none returns None. `roles`, `until` and `environment` are those of
    `labkit.cluster`.
    """

    strategy: str
    placed: str
    what: What
    program: Callable[..., list[Any] | None]
    arguments: tuple[Any, ...] = ()
    processes: int = 1
    roles: Mapping[str, int] | None = None
    until: frozenset[int] | None = None
    environment: Mapping[str, str] | None = None
    serial: bool = True
    """Whether its weights should be those of one device."""


@cache
def practice() -> Any:
    """A small data set in the shapes of MNIST, the same in every process: ten patterns in noise."""
    import numpy as np

    random = np.random.default_rng(7)
    patterns = random.integers(0, 256, (10, 28, 28))

    def split(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        labels = random.integers(0, 10, count).astype(np.uint8)
        noise = random.integers(0, 256, (count, 28, 28))
        return (0.4 * patterns[labels] + 0.6 * noise).astype(np.uint8), labels

    x_train, y_train = split(STEPS * BATCH)
    x_test, y_test = split(1000)
    return SimpleNamespace(
        name="patterns", label="patterns in noise", classes=10,
        x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test,
    )  # fmt: skip


def practice_job(replicas: Any, **changed: Any) -> Any:
    """The job that every case runs, on these replicas."""
    from labkit.training import Job

    asked = {"batch": BATCH, "optimizer": "sgd", "learning_rate": RATE, "dropout": 0.0}
    return Job("dense", practice(), replicas=replicas, seed=SEED, **{**asked, **changed})


def practice_batches() -> tuple[Any, Any]:
    """All images and labels in the order in which the job's first epoch takes them.

    For those who bring their own loop, as `model.fit` does: batch after batch, no shuffling.
    """
    import numpy as np

    from labkit.training.inputs import epoch_order

    data = practice()
    order = np.asarray(epoch_order(len(data.y_train), 0, SEED))
    images = (data.x_train[order] * np.float32(1 / 255)).astype(np.float32)
    return images, data.y_train[order].astype("int32")
