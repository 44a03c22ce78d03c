"""Several processes train one model: what a program needs to know of its fellow workers.

>>> def train(rank):                                        # doctest: +SKIP
...     job = Job("dense", data, replicas=labkit.strategies.workers(), batch=64)
...     return job.train(epochs=1)
>>> with labkit.cluster(ranks=2) as c:                      # doctest: +SKIP
...     c.run(train)
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.hardware import survey
from labkit.hardware.devices import import_tensorflow, logical_gpus, use_memory_growth
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.training import Job

__all__ = ["Workers", "explain_patience", "save_once", "workers"]


@dataclass(frozen=True)
class Workers:
    """All workers of a MultiWorkerMirroredStrategy, seen from one of them; replicas for a Job."""

    count: int
    """Replicas of all workers together."""
    index: int
    """The number of this worker."""
    processes: int
    summary: str
    _strategy: Any = field(repr=False, compare=False)

    @property
    def chief(self) -> bool:
        """Whether this worker is the one that writes files: the first."""
        return self.index == 0

    def strategy(self, reduction: str | None = None) -> Any:
        """TensorFlow's strategy; workers have one way of adding up gradients."""
        if reduction is not None:
            raise LabError(
                f"Workers add up their gradients by collective operations; reduction={reduction!r} "
                "is for the replicas of one process. Leave it out."
            )
        return self._strategy

    def describe(self) -> str:
        """What a measurement was made on."""
        return self.summary

    def total(self, value: float) -> float:
        """The sum of everyone's value. All workers must call it, and each waits for the others.

        >>> right = me.total(right_here)                    # doctest: +SKIP
        """
        tf = import_tensorflow()
        mine = self._strategy.experimental_distribute_values_from_function(
            # The value of a worker counts once, however many devices it has.
            lambda context: tf.constant(
                float(value) if context.replica_id_in_sync_group % self._devices == 0 else 0.0,
                tf.float64,
            )
        )
        return float(self._strategy.reduce("sum", mine, axis=None))

    def wait(self) -> None:
        """Wait until all workers have come here."""
        self.total(0.0)

    @property
    def _devices(self) -> int:
        return self.count // self.processes

    def __str__(self) -> str:
        return f"worker {self.index} of {self.summary}"


def workers(patience: float | None = None) -> Workers:
    """The workers named in TF_CONFIG, joined by TensorFlow: call it first in a rank's program.

    It returns when all of them are there. With `patience`, an exchange that takes more seconds is
    an error. Without it, workers wait for ever for one whose program hangs; TensorFlow's heartbeats
    find only one whose whole process stands still.
    """
    if patience is not None:
        explain_patience(patience)
    return _joined(os.environ.get("TF_CONFIG", ""), patience)


def explain_patience(patience: float) -> float:
    """Seconds that somebody is ready to wait for an answer."""
    if isinstance(patience, bool) or not isinstance(patience, (int, float)) or not patience > 0:
        raise LabError(f"patience={patience!r} must be a number of seconds above 0, such as 20.")
    return float(patience)


@cache
def _joined(config: str, patience: float | None) -> Workers:
    cluster, index = _read(config)
    distribute = import_tensorflow().distribute
    use_memory_growth()  # workers may share a GPU, and the first would take all of its memory
    how = distribute.experimental.CommunicationImplementation
    options = distribute.experimental.CommunicationOptions(
        timeout_seconds=patience, implementation=how.RING if _share_a_gpu() else how.AUTO
    )
    try:
        strategy = distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except RuntimeError as fault:
        if "program startup" not in str(fault):
            raise
        raise LabError(
            "This program has used TensorFlow before it joined the other workers, and then it is "
            "too late. Make labkit.strategies.workers() the first line of the program."
        ) from fault
    count = strategy.num_replicas_in_sync
    each = count // cluster
    summary = f"{cluster} worker{'s' if cluster > 1 else ''}"
    if each > 1:
        summary += f" with {each} replicas each"
    return Workers(count, index, cluster, summary, strategy)


def _share_a_gpu() -> bool:
    """Whether ranks on this machine outnumber its GPUs: NCCL wants a GPU for each of them."""
    if not logical_gpus():
        return False
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > len(survey().gpus)


def _read(config: str) -> tuple[int, int]:
    """How many workers there are, and the number of this one; a chief counts as the first."""
    try:
        content = json.loads(config)
        roles, task = content["cluster"], content["task"]
        chiefs, others = len(roles.get("chief", [])), len(roles.get("worker", []))
        index = int(task["index"]) + (chiefs if task["type"] == "worker" else 0)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        said = "is not set" if not config else f"says {config!r}"
        raise LabError(
            f"TF_CONFIG {said}, so this program does not know its fellow workers. Run it in ranks: "
            "with labkit.cluster(ranks=2) as c: c.run(program)."
        ) from fault
    return chiefs + others, index


def save_once(job: Job, folder: str | Path) -> Path:
    """Write the model once, by the chief; the others wait until it is there. All must call it.

    Every worker holds the same weights, so one copy is enough, and two writers of one file would
    spoil it.
    """
    me, path = job.replicas, Path(folder) / "model.keras"
    if getattr(me, "chief", True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"draft.{os.getpid()}.keras")
            job.model.save(draft)
            draft.replace(path)  # whoever looks sees a whole file or none
        except OSError as fault:
            raise LabError(
                f"The model could not be written to {str(folder)!r}: {fault.strerror or fault}. "
                "Give a folder that you may write to, on a disk with room."
            ) from fault
    if isinstance(me, Workers):
        me.wait()
    return path
