"""How long the headline job takes: labkit's loop, the plain Keras program, and Keras tuned.

Each candidate trains the dense model of the course with Adam, 5 epochs of 60,000 images in batches
of 32 on one device and of 2 × 32 on two replicas, and ends with the accuracy on the test images.
labkit and tuned Keras also train the convolutional model (CNN) on one device. All have TensorFlow's
default kernels (oneDNN's, where the CPU has instructions for them). What they do besides differs:

plain Keras   the seeds' program with its mistakes fixed (loss on logits, float32, shuffled, the
              global batch used), as a Keras user runs it: `model.fit` with its progress bar and
              the accuracy of every batch, float32 images, TensorFlow's own settings.
tuned Keras   `model.fit` as fast as it can be: verbose=0, no metric but the loss, cached and
              prefetched tf.data, steps_per_execution, labkit's number of threads, on replicas
              ReductionToOneDevice (the default reduction fails with steps_per_execution).
labkit        one TensorFlow function for many steps, images as bytes in memory, fused Adam.

On a machine without GPUs all share the job between 2 logical CPUs; labkit and tuned Keras give each
of them one core. Each candidate lives in a process of its own, so that imports and settings are not
mixed; in every round each does the whole job once, in an order drawn anew, while the others sleep.
A small first job, not counted, starts TensorFlow in each. A job begins with the images in memory
and ends with the accuracy: building, tracing and evaluation are inside. Last comes the share of the
machine's matrix-multiplication rate, measured here on the same devices, that each job's epochs use.
It is no promise: a step also gathers images, adds and updates 101,770 weights, which waits for
memory, so that the share falls where a CPU multiplies faster (26, 40 and 76 % on three CPUs).

Promises, in CPU seconds of a step, since other programs disturb a wall clock more: on one device
plain Keras takes at least 7 times as many as labkit and tuned Keras 1.7 times, for the CNN 1.2.
Measured on two busy cores: 7.2, 2.1 and 1.3 by the best of 12 (medians of rounds 7.3, 1.9 and 1.2).
jax 0.10.2 with `fori_loop` on one thread is faster: 227 µs a step, and 290 here on an idle core.
`training.account` shows where these go: half to the products, a fifth each to Adam and to the start
of operations.

With --quick two epochs of 12,000 images (CNN: 3,000) are timed, start and evaluation apart, and the
whole job is computed from these, for all alike.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Row, main

EPOCHS, BATCH, IMAGES = 5, 32, 60_000
QUICK_IMAGES = 12_000
# The results: labkit's job, and the peer with which it is compared.
PAIRS = {
    "single": ("labkit, one device", "plain Keras, one device"),
    "single, tuned": ("labkit, one device", "tuned Keras, one device"),
    "2 replicas": ("labkit, 2 replicas", "plain Keras, 2 replicas"),
    "2 replicas, tuned": ("labkit, 2 replicas", "tuned Keras, 2 replicas"),
    "CNN, tuned": ("labkit, CNN", "tuned Keras, CNN"),
}
# Multiplications and additions for an image: forward, weight gradients, and input gradients of all
# layers but the first.
FLOP_PER_IMAGE = {
    "dense": 4 * (784 * 128) + 6 * (128 * 10),
    "CNN": 4 * (26**2 * 9 * 16) + 6 * (11**2 * 9 * 16 * 32 + 800 * 10),
}
STEPS_PER_EXECUTION = 125


@dataclass(frozen=True)
class Done:
    """One job: its seconds, those of an epoch's image, and the accuracy that it reached."""

    seconds: float
    per_image: float
    accuracy: float


# --- in a worker process: three ways of doing the same job


def labkit_job(name: str, images: int, epochs: int, seed: int) -> dict[str, float]:
    import labkit
    from labkit.training import Job

    data = labkit.datasets.mnist()
    chosen, model = labkit.replicas(_replicas(name)), _model(name)
    began = time.perf_counter()
    job = Job(model, data, replicas=chosen, batch=BATCH, scaling="weak", images=images, seed=seed)
    started = time.perf_counter()
    for _ in range(epochs):
        job.epoch()
    trained = time.perf_counter()
    accuracy = job.evaluate().accuracy
    return _spans(began, started, trained, accuracy)


def plain_job(name: str, images: int, epochs: int, seed: int) -> dict[str, float]:
    """The seeds' program, fixed; on replicas with the pipeline and the strategy that it names."""
    import keras
    import tensorflow as tf

    import labkit

    data = labkit.datasets.mnist()
    began = time.perf_counter()
    keras.utils.set_random_seed(seed)
    x_train = data.x_train[:images].astype("float32") / 255
    x_test = data.x_test.astype("float32") / 255
    y_train, y_test = data.y_train[:images], data.y_test
    strategy = tf.distribute.MirroredStrategy(_devices(tf)) if _replicas(name) > 1 else None
    model = _compiled(name, strategy, metrics=["accuracy"])
    if strategy:
        batch = BATCH * strategy.num_replicas_in_sync
        train = tf.data.Dataset.from_tensor_slices((x_train, y_train))
        train = train.shuffle(images).batch(batch).prefetch(tf.data.AUTOTUNE)
        test = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(batch)
        fit = lambda count: model.fit(train, epochs=count, shuffle=False)  # noqa: E731
        evaluate = lambda: model.evaluate(test)[1]  # noqa: E731
    else:
        fit = lambda count: model.fit(x_train, y_train, batch_size=BATCH, epochs=count)  # noqa: E731
        evaluate = lambda: model.evaluate(x_test, y_test)[1]  # noqa: E731
    return _trained(began, epochs, fit, evaluate)


def tuned_job(name: str, images: int, epochs: int, seed: int) -> dict[str, float]:
    """`fit` as fast as it can be; the accuracy from `predict`, so that no epoch tracks it."""
    import keras
    import tensorflow as tf

    import labkit

    data = labkit.datasets.mnist()
    began = time.perf_counter()
    keras.utils.set_random_seed(seed)
    reduction, replicas = tf.distribute.ReductionToOneDevice(), _replicas(name)
    strategy = tf.distribute.MirroredStrategy(_devices(tf), reduction) if replicas > 1 else None
    model = _compiled(name, strategy, steps_per_execution=STEPS_PER_EXECUTION)
    x_train = data.x_train[:images].astype("float32") / 255
    train = tf.data.Dataset.from_tensor_slices((x_train, data.y_train[:images])).cache()
    train = train.shuffle(images).batch(BATCH * replicas, drop_remainder=True)
    train = train.prefetch(tf.data.AUTOTUNE)
    x_test = data.x_test.astype("float32") / 255

    def accuracy() -> float:
        logits = model.predict(x_test, batch_size=1000, verbose=0)
        return float((logits.argmax(axis=1) == data.y_test).mean())

    fit = lambda count: model.fit(train, epochs=count, shuffle=False, verbose=0)  # noqa: E731
    return _trained(began, epochs, fit, accuracy)


def _replicas(name: str) -> int:
    return 2 if "2 replicas" in name else 1


def _model(name: str) -> str:
    return "convolutional" if "CNN" in name else "dense"


def _compiled(name: str, strategy: Any, **options: Any) -> Any:
    import keras
    from keras import layers

    with strategy.scope() if strategy else contextlib.nullcontext():
        hidden = {
            "dense": [layers.Flatten(), layers.Dense(128, activation="relu")],
            "convolutional": [
                layers.Reshape((28, 28, 1)),
                layers.Conv2D(16, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
            ],
        }
        ends = layers.Dropout(0.2), layers.Dense(10)
        model = keras.Sequential([keras.Input((28, 28)), *hidden[_model(name)], *ends])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss, **options)
    return model


def _trained(
    began: float, epochs: int, fit: Callable[[int], object], accuracy: Callable[[], float]
) -> dict[str, float]:
    started = time.perf_counter()
    if epochs > 1:
        first = time.perf_counter()
        fit(1)
        second = time.perf_counter()
        fit(epochs - 1)
        # Keras traces inside its first epoch; what that took beyond an epoch is start.
        started += max(0.0, (second - first) - (time.perf_counter() - second) / (epochs - 1))
    trained = time.perf_counter()
    return _spans(began, started, trained, accuracy())


def matrix_rate(replicas: int) -> float:
    """Floating-point operations per second of a product of two matrices on each replica."""
    import tensorflow as tf

    import labkit

    size, strategy = 1024, labkit.replicas(replicas).strategy()

    @tf.function
    def product(matrix: Any) -> Any:
        return strategy.run(lambda: tf.reduce_sum(tf.matmul(matrix, matrix)))

    def seconds() -> float:
        matrix, began = tf.random.uniform((size, size)), time.perf_counter()
        for result in strategy.experimental_local_results(product(matrix)):
            result.numpy()
        return time.perf_counter() - began

    return float(replicas * 2 * size**3 / min(seconds() for _ in range(50)))


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


def _split(replicas: int, *, one_core_each: bool) -> None:
    """Logical CPUs for Keras, where there are not enough GPUs."""
    import tensorflow as tf

    if len(tf.config.list_physical_devices("GPU")) >= 2:
        return
    if replicas > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        half = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [half] * replicas)
    if one_core_each:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(replicas)


def work(name: str) -> None:
    """Answer each line of standard input (images, epochs, seed) with what the job took."""
    # Keras' progress bar writes where a notebook would show it; the answers go another way.
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  for as long as the process lives
    replicas = _replicas(name)
    if name.startswith("labkit"):
        import labkit

        labkit.replicas(replicas)
        job = labkit_job
    else:
        tuned = name.startswith("tuned")
        _split(replicas, one_core_each=tuned)
        job = tuned_job if tuned else plain_job
    job(name, 640, 1, 0)  # not counted: it starts TensorFlow
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        found = job(name, *asked) if asked else {"rate": matrix_rate(replicas)}
        print(json.dumps(found), file=answers, flush=True)


# --- in the parent: rounds


class Worker:
    """A candidate in its own process; a job at a time."""

    def __init__(self, name: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--work", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip

    def ready(self) -> None:
        """Wait until it has imported everything."""
        self._answer()

    def do(self, *job: int) -> dict[str, float]:
        """A job of (images, epochs, seed): its spans and accuracy. Without: the matrix rate."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(job) + "\n")
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
    names = list(dict.fromkeys(name for pair in PAIRS.values() for name in pair))
    seen: dict[str, list[Done]] = {name: [] for name in names}
    workers: dict[str, Worker] = {}
    try:
        for name in names:
            workers[name] = Worker(name)
        for worker in workers.values():
            worker.ready()
        for number in range(3 if quick else 5):
            for name in random.sample(names, len(names)):
                done = _job(name, workers[name], quick, seed=number)
                seen[name].append(done)
                print(
                    f"round {number + 1}: {name:<26} {done.seconds:6.2f} s, "
                    f"accuracy {done.accuracy:.4f}",
                    flush=True,
                )
        rates = {"single": workers["labkit, one device"].do()["rate"]}
        rates["2 replicas"] = workers["labkit, 2 replicas"].do()["rate"]
    finally:
        for worker in workers.values():
            worker.stop()
    for what, rate in rates.items():
        print(f"{what}: matrix multiplication reaches {rate / 1e9:.1f} GFLOP/s here (measured)")
        for name in (name for name in names if ("2" in what) == ("2" in name)):
            (per_image,) = _middle(sorted(done.per_image for done in seen[name]))
            share = FLOP_PER_IMAGE["CNN" if "CNN" in name else "dense"] / per_image / rate
            print(f"  {name:<26} {100 * share:5.1f} % of it in its epochs", flush=True)
    rows = []
    for what, (ours, theirs) in PAIRS.items():
        _report_accuracy(what, seen[ours], seen[theirs], quick)
        rows.append(_row(what, theirs, seen[ours], seen[theirs]))
    return rows


def _job(name: str, worker: Worker, quick: bool, seed: int) -> Done:
    quick_images = QUICK_IMAGES // 4 if "CNN" in name else QUICK_IMAGES  # a step takes ten times
    images, epochs = (quick_images, 2) if quick else (IMAGES, EPOCHS)
    spans = worker.do(images, epochs, seed)
    per_image = spans["train"] / (images * epochs)
    train = per_image * IMAGES * EPOCHS
    return Done(spans["start"] + train + spans["evaluate"], per_image, spans["accuracy"])


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
            f"{what}: the accuracies differ by more than 0.3 points: not the same training."
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    else:
        sys.exit(main(results, __doc__))
