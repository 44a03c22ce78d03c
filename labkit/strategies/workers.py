"""Several processes that train a model together, as a program on one of them sees them.

>>> def train(rank):                                        # doctest: +SKIP
...     job = Job("dense", data, replicas=labkit.strategies.workers(), batch=64)
...     return job.train(epochs=1)
>>> with labkit.cluster(ranks=2) as c:                      # doctest: +SKIP
...     c.run(train)
"""

import os
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from labkit.arguments import number
from labkit.cluster import tf_config
from labkit.hardware import survey
from labkit.hardware.devices import import_tensorflow, logical_gpus
from labkit.kinds import LabError


@dataclass(frozen=True)
class Workers:
    """All workers of a MultiWorkerMirroredStrategy, seen from one of them; replicas for a Job."""

    count: int
    """Replicas of all workers together."""
    index: int
    """The number of this worker; 0 is the chief, which alone writes files."""
    processes: int
    _strategy: Any = field(repr=False, compare=False)
    shared_variables: ClassVar[bool] = False

    def strategy(self, reduction: str | None = None) -> Any:
        """Returns TensorFlow's strategy."""
        if reduction is not None:
            raise LabError(
                "Workers add up gradients by collective operations, got "
                f"reduction={reduction!r}: leave it out."
            )
        return self._strategy

    def describe(self) -> str:
        """Returns what a measurement was made on."""
        words = f"{self.processes} worker{'s' if self.processes > 1 else ''}"
        each = self.count // self.processes
        return f"{words} with {each} replicas each" if each > 1 else words

    def __str__(self) -> str:
        return f"worker {self.index} of {self.describe()}"


def workers(timeout: float | None = None) -> Workers:
    """Join the workers that TF_CONFIG names: the first line of a rank's program.

    It returns when all of them have joined. With `timeout`, a collective that takes more seconds
    fails. Without it, workers wait without end for one whose program hangs: TensorFlow's
    heartbeats find only a process that has stopped as a whole.
    """
    return _joined(None if timeout is None else number("timeout", timeout, above=0))


@cache
def _joined(timeout: float | None) -> Workers:
    config = tf_config.check()
    chiefs = len(config.cluster.get("chief", ()))
    processes = chiefs + len(config.cluster.get("worker", ()))
    index = config.index + (chiefs if config.role == "worker" else 0)
    distribute = import_tensorflow().distribute
    how = distribute.experimental.CommunicationImplementation
    options = distribute.experimental.CommunicationOptions(
        timeout_seconds=timeout, implementation=how.RING if _share_a_gpu() else how.AUTO
    )
    try:
        strategy = distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as fault:
        if "program startup" not in str(fault):
            raise
        raise LabError(
            "This program used TensorFlow before it joined the other workers. "
            "Make labkit.strategies.workers() the first line of the program."
        ) from fault
    return Workers(strategy.num_replicas_in_sync, index, processes, strategy)


def _share_a_gpu() -> bool:
    """Returns whether this machine has more ranks than GPUs: NCCL wants a GPU for each rank."""
    if not logical_gpus():
        return False
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > len(survey().gpus)
