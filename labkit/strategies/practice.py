"""The small training that every strategy runs, so that its weights can be compared.

The dense model without dropout, SGD, one seed, the same batches in the same order: a strategy that
is right ends with the weights of one device.
"""

from functools import cache
from typing import Any

from labkit.datasets.dataset import Dataset
from labkit.datasets.synthetic import synthetic_images
from labkit.training.inputs import epoch_order
from labkit.training.job import Job

STEPS, BATCH, RATE, SEED = 20, 120, 0.1, 0  # 120 divides evenly among 2, 3 and 4
CPU_ONLY = {"CUDA_VISIBLE_DEVICES": ""}  # the question is what is computed, not how fast


@cache
def practice_data() -> Dataset:
    """Returns the images of an epoch of `STEPS` steps, the same in every process."""
    train = synthetic_images(STEPS * BATCH, test=False)
    test = synthetic_images(1000, test=True)
    return Dataset("MNIST", "synthetic", *train, *test)


def practice_job(replicas: Any, **changed: Any) -> Job:
    """Returns the training as a job on these replicas; keywords as for Job change it."""
    settings: dict[str, Any] = {
        "batch": BATCH, "optimizer": "sgd", "learning_rate": RATE, "dropout": 0.0, "seed": SEED
    }  # fmt: skip
    return Job("dense", practice_data(), replicas=replicas, **{**settings, **changed})


def practice_batches() -> tuple[Any, Any]:
    """Returns scaled images and labels in the order of the job's first epoch, for `fit`."""
    import numpy as np

    data = practice_data()
    order = np.asarray(epoch_order(len(data.y_train), 0, SEED))
    return data.x_train[order] * np.float32(1 / 255), data.y_train[order].astype("int32")
