"""A benchmark with the classic defects, as a program that runs: fix them one at a time.

>>> print(program().splitlines()[0])
import time
>>> run(fixed=["clock", "loss"])                     # doctest: +SKIP
>>> ablation()                                       # doctest: +SKIP

`run` runs the very text that `program` shows. Each defect has the name that
labkit.training.diagnose gives it. (It also finds "one run", which no edit of the text fixes.)
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import math
import random
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from labkit.arguments import one_of, whole
from labkit.kinds import Kind, count_text, measured, percent_text, ratio_text, seconds_text
from labkit.progress import progress
from labkit.timing.judge import judge

__all__ = ["DEFECTS", "Ablation", "AblationStep", "ablation", "program", "run"]

HALVES = {"one": "one device", "two": "two replicas"}
# A smaller change of a time, or of the accuracy on 1000 test images, is called none: trainings with
# other random numbers stay within the latter.
SMALL, SMALL_ACCURACY = 0.15, 0.04
# In the order in which the ablation fixes them, each with what is said when its fix changed nothing
# here. The first three concern what is timed.
DEFECTS = {
    "clock": "a process that waits, for a GPU or for its turn, uses no CPU",
    "first epoch": "tracing weighs less, the longer the training",
    "timed evaluation": "it takes longer with more test images",
    "loss": "the wrong loss needs more epochs to show",
    "pipeline": "shuffling matters for images that are sorted by class",
    "batch": "64 is the global batch of two replicas, not of four",
    "different batch": "larger batches make fewer updates an epoch",
    "float64": "60,000 images would take 376 MB",
}
TIMING_DEFECTS = 3

_PREPARATION = """\
import time
import keras
import tensorflow as tf
import labkit

strategy = labkit.replicas(2).strategy()
data = labkit.datasets.mnist()
BATCH = 32
GLOBAL_BATCH = BATCH * strategy.num_replicas_in_sync
x = data.x_train[:{images}]{scale}
x_test = data.x_test[:1000]{scale}
y, y_test = data.y_train[:{images}], data.y_test[:1000]

def build(loss):
    model = keras.Sequential([
        keras.Input((28, 28)),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10)])
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model
"""
_ONE = "one = build(keras.losses.SparseCategoricalCrossentropy(from_logits=True))\n"
_TWO = """\
labels = keras.utils.to_categorical(y, 10)
test_labels = keras.utils.to_categorical(y_test, 10)
train = tf.data.Dataset.from_tensor_slices((x, labels))
train = train{shuffle}.batch({batch}).prefetch(tf.data.AUTOTUNE)
test = tf.data.Dataset.from_tensor_slices((x_test, test_labels)).batch(500)
with strategy.scope():
    two = build({loss})
"""


def program(fixed: Sequence[str] = (), *, images: int = 2048) -> str:
    """The text of the benchmark, with these defects fixed."""
    preparation, halves = _pieces(fixed, images)
    return "\n".join([preparation, *halves.values()])


def _pieces(fixed: Sequence[str], images: int) -> tuple[str, dict[str, str]]:
    """What both measurements need, and the text of each of them."""
    for name in fixed:
        one_of("fixed", name, DEFECTS)
    images = whole("images", images, at_least=256)

    def either(defect: str, right: str, wrong: str) -> str:
        return right if defect in fixed else wrong

    clock = either("clock", "time.perf_counter()", "time.process_time()")
    scale = either("float64", '.astype("float32") / 255', " / 255.0")
    right_loss = "keras.losses.CategoricalCrossentropy(from_logits=True)"
    loss = either("loss", right_loss, '"categorical_crossentropy"')
    shuffle = either("pipeline", ".shuffle(len(y))", "")
    batch = either("batch", "GLOBAL_BATCH", "64")
    one_batch = either("different batch", batch, "BATCH")

    def timed(model: str, data: str, few: str, test: str) -> str:
        stop = f"{model}_seconds = {clock} - start\n"
        score = f"{model}_accuracy = {model}.evaluate({test}, verbose=0)[1]\n"
        return (
            either("first epoch", f"{model}.fit({few}, verbose=0)  # warm-up\n", "")
            + f"start = {clock}\n"
            + f"{model}.fit({data}, epochs=1, verbose=0)\n"
            + either("timed evaluation", stop + score, score + stop)
            + f'print(f"{HALVES[model]}: {{{model}_seconds:.2f}} seconds, "\n'
            + f'      f"accuracy {{{model}_accuracy:.3f}}")\n'
        )

    one = _ONE + timed("one", f"x, y, batch_size={one_batch}", "x[:64], y[:64]", "x_test, y_test")
    two = _TWO.format(shuffle=shuffle, batch=batch, loss=loss)
    two += timed("two", "train", "train.take(2)", "test")
    return _PREPARATION.format(images=images, scale=scale), {"one": one, "two": two}


class Cost(NamedTuple):
    """What one statement of the program took, by both clocks."""

    what: str
    wall_seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class BenchmarkResult:
    """What the program printed, what its statements took, and what it ran on."""

    one_seconds: float
    two_seconds: float
    one_accuracy: float
    two_accuracy: float
    costs: tuple[Cost, ...]  # of "one fit", "one evaluate", "two fit" and "two evaluate"
    images: int
    data: str
    kind: Kind

    def __repr__(self) -> str:
        return (
            f"one device: {self.one_seconds:.2f} seconds, accuracy {self.one_accuracy:.3f}\n"
            f"two replicas: {self.two_seconds:.2f} seconds, accuracy {self.two_accuracy:.3f}\n"
            f"({count_text(self.images)} images of {self.data}, 1 epoch; {self.kind})"
        )


def run(fixed: Sequence[str] = (), *, images: int = 2048) -> BenchmarkResult:
    """Run the program with these defects fixed, in this process."""
    preparation, texts = _pieces(fixed, images)
    one, two = (_run(preparation + text, half) for half, text in texts.items())
    return BenchmarkResult(
        one.printed, two.printed, one.accuracy, two.accuracy,
        (one.fit, one.evaluate, two.fit, two.evaluate), images, *_data_and_kind(),
    )  # fmt: skip


def _data_and_kind() -> tuple[str, Kind]:
    from labkit.datasets import mnist
    from labkit.hardware import replicas

    return mnist().label, measured(replicas(2).describe())


class _Half(NamedTuple):
    """The measurement on one device, or on two replicas, as it was run."""

    printed: float
    accuracy: float
    fit: Cost
    evaluate: Cost
    fit_again: Callable[[], object]


def _run(text: str, half: str) -> _Half:
    """Run one half of the program, statement by statement, to time its training and evaluation."""
    from labkit.hardware import replicas

    replicas(2)  # before anything else uses TensorFlow
    import keras

    keras.utils.set_random_seed(0)
    names: dict[str, Any] = {}
    spent: dict[str, tuple[Cost, Callable[[], object]]] = {}
    for statement in ast.parse(text).body:
        code = compile(ast.Module([statement], []), "classic benchmark", "exec")
        execute = functools.partial(_quietly, functools.partial(exec, code, names))
        wall, cpu = time.perf_counter(), time.process_time()
        execute()
        seconds = time.perf_counter() - wall, time.process_time() - cpu
        for what in ("fit", "evaluate"):
            if f"{half}.{what}(" in ast.unparse(statement):  # the last fit is no warm-up
                spent[what] = Cost(f"{half} {what}", *seconds), execute
    (fit, fit_again), (evaluate, _) = spent["fit"], spent["evaluate"]
    accuracy = float(names[f"{half}_accuracy"])
    return _Half(names[f"{half}_seconds"], accuracy, fit, evaluate, fit_again)


def _quietly(execute: Callable[[], object]) -> None:
    """Without what the program prints, and without Keras' warning of unshuffled inputs."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        execute()


@dataclass(frozen=True)
class AblationStep:
    """The program with one more defect fixed: seconds by round and accuracy of each half."""

    fixed: str
    seconds: dict[str, list[float]]
    accuracy: dict[str, float]

    @property
    def ratio(self) -> float:
        """How many times as long two replicas take."""
        return median(self.seconds["two"]) / median(self.seconds["one"])

    def changed(self, before: AblationStep) -> list[str]:
        """What the fix certainly changed, in words; nothing is said of what it did not."""
        words = []
        for half, name in HALVES.items():
            pairs = list(zip(before.seconds[half], self.seconds[half], strict=True))
            verdict = judge(name, "", [math.log(b / a) for b, a in pairs], same_within=SMALL)
            if verdict.word in ("faster", "slower"):
                words.append(f"{name}: {ratio_text(1 / verdict.estimate.value)} the time")
            points = self.accuracy[half] - before.accuracy[half]
            if abs(points) > SMALL_ACCURACY:
                words.append(f"{name}: {100 * points:+.0f} points of accuracy")
        return words


@dataclass(frozen=True)
class Ablation:
    """The classic benchmark, fixed defect by defect; the first step has nothing fixed."""

    steps: tuple[AblationStep, ...]
    images: int
    rounds: int
    data: str
    kind: Kind

    @property
    def mattered(self) -> tuple[str, ...]:
        """The defects whose fix changed time or accuracy here."""
        return tuple(after.fixed for b, after in pairwise(self.steps) if after.changed(b))

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        head = ("fixed, one after the other", "one device", "two replicas", "ratio",
                "accuracy on one", "on two", "what changed")  # fmt: skip
        words = ["this is what it prints"]
        for before, after in pairwise(self.steps):
            nothing = f"no change measured; {DEFECTS[after.fixed]}"
            words.append("; ".join(after.changed(before)) or nothing)
        rows = [
            (
                step.fixed,
                *(seconds_text(median(seconds)) for seconds in step.seconds.values()),
                ratio_text(step.ratio),
                *map(percent_text, step.accuracy.values()),
                changed,
            )
            for step, changed in zip(self.steps, words, strict=True)
        ]
        return head, rows

    def _footer(self) -> str:
        return (
            f"{count_text(self.images)} images of {self.data}, 1 epoch; {self.kind}. "
            f"From 'first epoch' on, epochs are medians of {self.rounds} rounds in turn; a change "
            f"below {percent_text(SMALL)} of the time, or {100 * SMALL_ACCURACY:.0f} points of "
            "accuracy, is called none, and so is one that the rounds do not agree on."
        )

    def __repr__(self) -> str:
        head, rows = self._table()
        return "\n".join([*(" | ".join(row) for row in (head, *rows)), self._footer()])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        html = table(*self._table(), "The classic benchmark, fixed", self._footer())
        return {"text/plain": repr(self), "text/html": html}


def ablation(*, images: int = 2048, rounds: int = 7) -> Ablation:
    """Fix the defects one after the other, and measure for each whether it mattered here.

    Two runs in different minutes of a busy machine cannot be compared. So what the clock and
    the evaluation add is read from the statements of one run, and what the first epoch adds is its
    time over that of later epochs; for each other fix, the models before and after it are trained
    in turn, round after round.
    """
    rounds = whole("rounds", rounds, at_least=1)
    names = list(DEFECTS)
    run_once = functools.cache(_run)  # a fix changes one half, or both: run each text once

    def halves(count: int) -> dict[str, _Half]:
        preparation, texts = _pieces(names[:count], images)
        return {half: run_once(preparation + text, half) for half, text in texts.items()}

    with progress("classic benchmark", len(names) + rounds) as advance:
        run(images=256)  # TensorFlow's own start belongs to no step
        first, runs = halves(0), []
        for count in range(TIMING_DEFECTS, len(names) + 1):
            runs.append(halves(count))
            advance(count)
        epochs: dict[_Half, list[float]] = {half: [] for ran in runs for half in ran.values()}
        order, draw = list(epochs), random.Random(0)
        for number in range(1, rounds + 1):
            draw.shuffle(order)  # so that a machine that drifts favours no version
            for half in order:
                began = time.perf_counter()
                half.fit_again()
                epochs[half].append(time.perf_counter() - began)
            advance(len(names) + number)

    def step(fixed: str, ran: dict[str, _Half], seconds: Callable[[_Half], Any]) -> AblationStep:
        return AblationStep(
            fixed,
            {name: seconds(half) for name, half in ran.items()},
            {name: half.accuracy for name, half in ran.items()},
        )

    def wall(half: _Half) -> list[float]:
        return [half.fit.wall_seconds + half.evaluate.wall_seconds] * rounds

    def with_evaluation(half: _Half) -> list[float]:
        return [seconds + half.evaluate.wall_seconds for seconds in epochs[half]]

    steps = [
        step("nothing", first, lambda half: [half.printed] * rounds),
        step(
            "clock",
            first,
            lambda half: [half.fit.wall_seconds + half.evaluate.wall_seconds] * rounds,
        ),
        step(
            "first epoch",
            runs[0],
            lambda half: [s + half.evaluate.wall_seconds for s in epochs[half]],
        ),
        *(
            step(fixed, ran, epochs.__getitem__)
            for fixed, ran in zip(names[TIMING_DEFECTS - 1 :], runs, strict=True)
        ),
    ]
    return Ablation(tuple(steps), images, rounds, *_data_and_kind())
