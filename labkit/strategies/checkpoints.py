"""Training that can begin again where it was: a checkpoint every so many steps, read at the start.

What Keras' BackupAndRestore does for `fit`, for the course's one step. A checkpoint holds all that
the next step depends on: the weights, the optimizer's own variables, and the number of the step,
from which follow the epoch, its order, and the place in it.

>>> def program(rank):                                               # doctest: +SKIP
...     job = Job("dense", data, replicas=workers(), batch=128, dropout=0.0)
...     return checkpoints.train(job, folder, steps=60, every=10)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.arguments import whole
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError

if TYPE_CHECKING:
    from labkit.training import Job

__all__ = ["Continued", "read", "restore", "save", "train", "write"]

_FILE = "checkpoint.npz"


@dataclass(frozen=True)
class Continued:
    """Where a training began, where it ended, and how many checkpoints it wrote on the way."""

    first: int
    last: int
    written: int

    def __str__(self) -> str:
        began = f"from the checkpoint after step {self.first}" if self.first else "from step 0"
        return f"trained {began} to step {self.last}, with {self.written} checkpoints"


def train(
    job: Job,
    folder: str | Path,
    *,
    steps: int,
    every: int = 50,
    after_step: Callable[[int], None] | None = None,
) -> Continued:
    """Train up to this step, from the last checkpoint in the folder if there is one.

    All workers call it, and all read; the chief writes. The folder must be the same for all. What
    dropout drops is not in a checkpoint: with it, the result is as good, and not the same.
    `after_step` is called with the number of steps done, after each.
    """
    steps, every = whole("steps", steps, at_least=1), whole("every", every, at_least=1)
    if not job.inputs.resumable:
        raise LabError(
            "A streamed data set cannot be begun again in the middle of an epoch. Leave out "
            "streamed=True: then the data are resident, and their order follows from the step."
        )
    tf = import_tensorflow()
    began = step = restore(job, folder)
    writes = getattr(job.replicas, "chief", True)
    written = 0
    while step < steps:
        epoch, first = divmod(step, job.steps_per_epoch)
        # Many steps in one call cost little more than one; who wants to hear of each gets each.
        count = min(every - step % every, job.steps_per_epoch - first, steps - step)
        count = count if after_step is None else 1
        job.run_steps(job.order(epoch), tf.constant(first), tf.constant(count))
        job.synchronize()
        step += count
        if writes and (step % every == 0 or step == steps):
            save(job, folder, step)
            written += 1
        if after_step is not None:
            after_step(step)
    return Continued(began, step, written)


def save(job: Job, folder: str | Path, step: int) -> Path:
    """Write a checkpoint: all of it, or none."""
    values = [variable.numpy() for variable in _variables(job)]
    return write(folder, step, values, _identity(job))


def restore(job: Job, folder: str | Path) -> int:
    """Take the state from the folder's checkpoint; the step after which it was written, or 0."""
    step, values = read(folder, _identity(job))
    for variable, value in zip(_variables(job), values, strict=bool(step)):
        variable.assign(value)
    return step


def write(folder: str | Path, step: int, values: list[Any], identity: str) -> Path:
    """Arrays into the folder's checkpoint. A process killed in the middle leaves the old one."""
    import numpy as np

    place = Path(folder)
    draft = place / f".{_FILE}.{os.getpid()}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            arrays = {f"value_{number}": value for number, value in enumerate(values)}
            np.savez(file, allow_pickle=False, step=step, identity=identity, **arrays)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(place / _FILE)
    except OSError as fault:
        draft.unlink(missing_ok=True)
        raise LabError(
            f"The checkpoint after step {step} could not be written to {str(folder)!r}: "
            f"{fault.strerror or fault}. Give a folder that you may write to, on a disk with room."
        ) from fault
    return place / _FILE


def read(folder: str | Path, identity: str) -> tuple[int, list[Any]]:
    """Step and arrays of the folder's checkpoint; 0 and none where there is no checkpoint."""
    import zipfile

    import numpy as np

    path = Path(folder) / _FILE
    if not path.exists():
        return 0, []
    try:
        with np.load(path, allow_pickle=False) as file:
            step, theirs = int(file["step"]), str(file["identity"])
            values = [file[f"value_{number}"] for number in range(len(file.files) - 2)]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise LabError(
            f"{str(path)!r} is no checkpoint that can be read ({fault}). Delete it to begin anew, "
            "or give another folder."
        ) from fault
    if theirs != identity:
        raise LabError(
            f"The checkpoint in {str(folder)!r} is of another training: {theirs}; this one is "
            f"{identity}. Give another folder, or delete the file to begin anew."
        )
    return step, values


def _variables(job: Job) -> list[Any]:
    return [*job.model.weights, *job.optimizer.variables()]


def _identity(job: Job) -> str:
    """What must be the same for a training to be continued; the number of workers need not be."""
    rule = job.optimizer
    return (
        f"{job.model.name} with {job.model.count_params()} parameters, {job.images} images of "
        f"{job.data.label} in batches of {job.global_batch}, {rule.rule} with rate "
        f"{rule.learning_rate:g}, seed {job.seed}"
    )
