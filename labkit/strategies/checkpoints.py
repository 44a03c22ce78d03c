"""Training that continues where it was: a checkpoint every so many steps, read at the start.

What Keras' BackupAndRestore does for `fit`, for the course's one step. A checkpoint holds all that
the next step depends on: the weights, the optimizer's own variables, and the number of the step,
from which follow the epoch, its order, and the place in it.

>>> def program(rank):                                               # doctest: +SKIP
...     job = Job("dense", data, replicas=workers(), batch=128, dropout=0.0)
...     return checkpoints.train(job, folder, steps=60, every=10)
"""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from labkit import plain
from labkit.arguments import whole
from labkit.hardware.devices import import_tensorflow
from labkit.kinds import LabError
from labkit.training.job import Job

FILE = "checkpoint.npz"


def train(
    job: Job,
    folder: str | Path,
    *,
    steps: int,
    every: int = 50,
    after_step: Callable[[int], None] | None = None,
) -> int:
    """Train up to this step, from the last checkpoint in the folder if there is one.

    Returns the step of that checkpoint, or 0. All workers call it and all read; the chief writes.
    The folder must be the same for all. Dropout's random state is not in a checkpoint.
    `after_step` is called with the number of steps done, after each.
    """
    steps, every = whole("steps", steps, at_least=1), whole("every", every, at_least=1)
    tf = import_tensorflow()
    began = step = restore(job, folder)
    while step < steps:
        epoch, first = divmod(step, job.steps_per_epoch)
        # Many steps in one call cost little more than one.
        count = min(every - step % every, job.steps_per_epoch - first, steps - step)
        count = 1 if after_step else count
        job.run_steps(job.order(epoch), tf.constant(first), tf.constant(count))
        job.synchronize()
        step += count
        if job.replicas.index == 0 and (step % every == 0 or step == steps):
            save(job, folder, step)
        if after_step:
            after_step(step)
    return began


def save(job: Job, folder: str | Path, step: int) -> Path:
    """Write a checkpoint. A process that is killed meanwhile leaves the old one."""
    import numpy as np

    path, file = Path(folder) / FILE, io.BytesIO()
    values = {f"value_{n}": variable.numpy() for n, variable in enumerate(_variables(job))}
    np.savez(file, allow_pickle=False, step=step, training=_identity(job), **values)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain.atomic_write(path, file.getvalue())
    return path


def restore(job: Job, folder: str | Path) -> int:
    """Load the folder's checkpoint into the job; the step after which it was written, or 0."""
    import numpy as np

    path = Path(folder) / FILE
    if not path.exists():
        return 0
    try:
        with np.load(path, allow_pickle=False) as file:
            step, training = int(file["step"]), str(file["training"])
            values = [file[f"value_{n}"] for n in range(len(file.files) - 2)]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as fault:
        raise LabError(
            f"{str(path)!r} cannot be read as a checkpoint ({fault}). Delete it to start from the "
            "beginning, or give another folder."
        ) from fault
    if training != _identity(job):
        raise LabError(
            f"The checkpoint in {str(folder)!r} is of another training: {training}; this one is "
            f"{_identity(job)}. Give another folder, or delete the file."
        )
    for variable, value in zip(_variables(job), values, strict=True):
        variable.assign(value)
    return step


def _variables(job: Job) -> list[Any]:
    return [*job.model.weights, *job.optimizer.variables()]


def _identity(job: Job) -> str:
    """What must be the same for a training to be continued; the number of workers need not be."""
    return (
        f"{job.model.name} with {job.model.count_params()} parameters, {job.images} images of "
        f"{job.data.label} in batches of {job.global_batch}, {job.optimizer.rule} with rate "
        f"{job.optimizer.learning_rate:g}, seed {job.seed}"
    )
