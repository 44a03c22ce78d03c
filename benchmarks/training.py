"""How long the headline job takes: labkit's loop beside the plain Keras program of the seeds.

The same work for both: the model of the lecture, Adam, 5 epochs of 60,000 images in batches of 32
on one device and of 2 × 32 on two replicas, then the accuracy on the test images. The peer is the
seeds' program with its mistakes mended (loss on logits, float32, shuffled, the global batch used),
as a Keras user runs it: `model.fit` with its progress bar, TensorFlow's own settings. On a machine
without GPUs both share the job between 2 logical CPUs; labkit gives each of them one core.

Each candidate lives in a process of its own, so that imports and settings are not mixed; in every
round each does the whole job once, in an order drawn anew, while the others sleep. A small first
job, not counted, starts TensorFlow in each. A job begins
with the images in memory and ends with the accuracy: building, tracing and evaluation are inside.
With --quick two epochs of 12,000 images are timed, start and evaluation apart, and the whole job is
computed from these, for both alike.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Row, main

EPOCHS, BATCH, IMAGES = 5, 32, 60_000
QUICK_IMAGES = 12_000
CANDIDATES = {
    "single": ("labkit, one device", "plain Keras, one device"),
    "2 replicas": ("labkit, 2 replicas", "plain Keras, 2 replicas"),
}


@dataclass(frozen=True)
class Done:
    """One job: its seconds, and the accuracy that it reached."""

    seconds: float
    accuracy: float


# --- in a worker process: two ways of doing the same job


def labkit_job(replicas: int, images: int, epochs: int, seed: int) -> dict[str, float]:
    import labkit
    from labkit.training import Job

    data = labkit.datasets.mnist()
    chosen = labkit.replicas(replicas)
    began = time.perf_counter()
    job = Job("dense", data, replicas=chosen, batch=BATCH, scaling="weak", images=images, seed=seed)
    started = time.perf_counter()
    for _ in range(epochs):
        job.epoch()
    trained = time.perf_counter()
    accuracy = job.evaluate().accuracy
    return _spans(began, started, trained, accuracy)


def keras_job(replicas: int, images: int, epochs: int, seed: int) -> dict[str, float]:
    """The seeds' program, mended; on replicas with the pipeline and the strategy that it names."""
    import contextlib

    import keras
    import tensorflow as tf

    import labkit

    data = labkit.datasets.mnist()
    began = time.perf_counter()
    keras.utils.set_random_seed(seed)
    x_train = data.x_train[:images].astype("float32") / 255
    x_test = data.x_test.astype("float32") / 255
    y_train, y_test = data.y_train[:images], data.y_test
    strategy = tf.distribute.MirroredStrategy(_devices(tf)) if replicas > 1 else None
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential(
            [
                keras.Input((28, 28)),
                keras.layers.Flatten(),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dropout(0.2),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    if strategy:
        batch = BATCH * strategy.num_replicas_in_sync
        train = tf.data.Dataset.from_tensor_slices((x_train, y_train))
        train = train.shuffle(images).batch(batch).prefetch(tf.data.AUTOTUNE)
        test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(batch)
        fit = lambda count: model.fit(train, epochs=count, shuffle=False)  # noqa: E731
        evaluate = lambda: model.evaluate(test)  # noqa: E731
    else:
        fit = lambda count: model.fit(x_train, y_train, batch_size=BATCH, epochs=count)  # noqa: E731
        evaluate = lambda: model.evaluate(x_test, y_test)  # noqa: E731
    started = time.perf_counter()
    if epochs > 1:
        first = time.perf_counter()
        fit(1)
        second = time.perf_counter()
        fit(epochs - 1)
        # Keras traces inside its first epoch; what that took beyond an epoch is start.
        started += max(0.0, (second - first) - (time.perf_counter() - second) / (epochs - 1))
    trained = time.perf_counter()
    return _spans(began, started, trained, evaluate()[1])


def _spans(began: float, started: float, trained: float, accuracy: float) -> dict[str, float]:
    return {
        "start": started - began,
        "train": trained - started,
        "evaluate": time.perf_counter() - trained,
        "accuracy": accuracy,
    }


def _devices(tf: Any) -> list[str]:
    gpus = len(tf.config.list_logical_devices("GPU"))
    return [f"/gpu:{i}" for i in range(2)] if gpus > 1 else ["/cpu:0", "/cpu:1"]


def work(name: str) -> None:
    """Answer each line of standard input (images, epochs, seed) with what the job took."""
    # Keras' progress bar writes where a notebook would show it; the answers go another way.
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  for as long as the process lives
    replicas = 2 if "2 replicas" in name else 1
    if name.startswith("labkit"):
        import labkit

        labkit.replicas(replicas)
        job = labkit_job
    else:
        import tensorflow as tf

        if replicas > 1 and len(tf.config.list_physical_devices("GPU")) < 2:
            cpu = tf.config.list_physical_devices("CPU")[0]
            half = tf.config.LogicalDeviceConfiguration()
            tf.config.set_logical_device_configuration(cpu, [half] * replicas)
        job = keras_job
    job(replicas, 640, 1, 0)  # not counted: it starts TensorFlow
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(job(replicas, *json.loads(line))), file=answers, flush=True)


# --- in the parent: rounds


class Worker:
    """A candidate in its own process; a job at a time."""

    def __init__(self, name: str) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        # labkit has set this in the process that is here; Keras' users have not.
        environment.pop("TF_ENABLE_ONEDNN_OPTS", None)
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--work", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment,
        )  # fmt: skip

    def ready(self) -> None:
        """Wait until it has imported everything."""
        self._answer()

    def do(self, images: int, epochs: int, seed: int) -> dict[str, float]:
        """One whole job; its spans in seconds, and its accuracy."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([images, epochs, seed]) + "\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self._answer())
        return found

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"A candidate ended by itself (code {self.process.wait()}).")
        return line

    def stop(self) -> None:
        """End this very process."""
        self.process.kill()
        self.process.wait()


def results(quick: bool) -> list[Row]:
    import labkit

    data = labkit.datasets.mnist()
    print(
        f"data: {data.label}; {'projected from short runs' if quick else 'whole jobs'}", flush=True
    )
    names = [name for pair in CANDIDATES.values() for name in pair]
    seen: dict[str, list[Done]] = {name: [] for name in names}
    workers: dict[str, Worker] = {}
    try:
        for name in names:
            workers[name] = Worker(name)
        for worker in workers.values():
            worker.ready()
        for number in range(3 if quick else 5):
            for name in random.sample(names, len(names)):
                done = _job(workers[name], quick, seed=number)
                seen[name].append(done)
                print(
                    f"round {number + 1}: {name:<26} {done.seconds:6.2f} s, "
                    f"accuracy {done.accuracy:.4f}",
                    flush=True,
                )
    finally:
        for worker in workers.values():
            worker.stop()
    rows = []
    for what, (ours, theirs) in CANDIDATES.items():
        _report_accuracy(what, seen[ours], seen[theirs], quick)
        rows.append(_row(what, theirs, seen[ours], seen[theirs]))
    return rows


def _job(worker: Worker, quick: bool, seed: int) -> Done:
    if not quick:
        spans = worker.do(IMAGES, EPOCHS, seed)
        return Done(spans["start"] + spans["train"] + spans["evaluate"], spans["accuracy"])
    spans = worker.do(QUICK_IMAGES, 2, seed)
    epochs = spans["train"] / 2 * EPOCHS * IMAGES / QUICK_IMAGES
    return Done(spans["start"] + epochs + spans["evaluate"], spans["accuracy"])


def _row(what: str, against: str, ours: list[Done], theirs: list[Done]) -> Row:
    """Ratios within rounds: their median, and the span of all (too few for a narrower interval)."""
    ratios = sorted(t.seconds / o.seconds for o, t in zip(ours, theirs, strict=True))
    middle = math.exp(sum(map(math.log, _middle(ratios))) / len(_middle(ratios)))
    return Row(what, against, middle, ratios[0], ratios[-1])


def _middle(values: list[float]) -> list[float]:
    half, odd = divmod(len(values), 2)
    return values[half : half + 1] if odd else values[half - 1 : half + 1]


def _report_accuracy(what: str, ours: list[Done], theirs: list[Done], quick: bool) -> None:
    mine, peer = (100 * sum(d.accuracy for d in side) / len(side) for side in (ours, theirs))
    note = " (after 2 short epochs)" if quick else ""
    print(f"{what}: mean accuracy {mine:.2f} % and {peer:.2f} %{note}", flush=True)
    if not quick and abs(mine - peer) > 0.3:
        raise SystemExit(
            f"{what}: the accuracies differ by more than 0.3 points: not the same work."
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    else:
        sys.exit(main(results, __doc__))
