"""A benchmark with the classic defects, as a program that runs: fix them one at a time.

>>> print(program().splitlines()[0])
import time
>>> run()                                            # doctest: +SKIP
>>> ablation()                                       # doctest: +SKIP

Each defect has the name that labkit.training.diagnose gives it. (It also finds "one run", which no
edit of the text fixes.)
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from labkit.arguments import one_of
from labkit.datasets import mnist
from labkit.hardware import replicas
from labkit.kinds import Kind, measured, percent_text, ratio_text, seconds_text
from labkit.progress import progress
from labkit.timing import compare, judge

HALVES = {"one": "one device", "two": "two replicas"}
# A smaller change of a time, or of the accuracy on 1000 test images, is called none: trainings with
# other random numbers stay within the latter.
SMALL, SMALL_ACCURACY = 0.15, 0.04

PREPARATION = """\
import time
import keras
import tensorflow as tf
import labkit

strategy = labkit.replicas(2).strategy()
data = labkit.datasets.mnist()
BATCH = 32
GLOBAL_BATCH = BATCH * strategy.num_replicas_in_sync
x = data.x_train[:2048] / 255.0
x_test = data.x_test[:1000] / 255.0
y, y_test = data.y_train[:2048], data.y_test[:1000]

def build():
    return keras.Sequential([
        keras.Input((28, 28)),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(10)])

"""
ONE = """\
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
one = build()
one.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
start = time.process_time()
one.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
one_accuracy = one.evaluate(x_test, y_test, verbose=0)[1]
one_seconds = time.process_time() - start
print(f"one device: {one_seconds:.2f} seconds, accuracy {one_accuracy:.3f}")

"""
TWO = """\
labels = keras.utils.to_categorical(y, 10)
test_labels = keras.utils.to_categorical(y_test, 10)
train = tf.data.Dataset.from_tensor_slices((x, labels))
train = train.batch(64).prefetch(tf.data.AUTOTUNE)
test = tf.data.Dataset.from_tensor_slices((x_test, test_labels)).batch(500)
with strategy.scope():
    two = build()
    two.compile(optimizer="adam", metrics=["accuracy"],
                loss="categorical_crossentropy")
start = time.process_time()
two.fit(train, epochs=1, verbose=0)
two_accuracy = two.evaluate(test, verbose=0)[1]
two_seconds = time.process_time() - start
print(f"two replicas: {two_seconds:.2f} seconds, accuracy {two_accuracy:.3f}")
"""
COMPILED_ONE, COMPILED_TWO = '["accuracy"])\n', 'loss="categorical_crossentropy")\n'
EVALUATE = [line for line in (ONE + TWO).splitlines(keepends=True) if ".evaluate(" in line]


class Defect(NamedTuple):
    """What is said when its fix changed nothing here, and what to write instead of what."""

    unchanged: str
    fix: dict[str, str]


# In the order in which they are fixed. The first three concern what is timed.
DEFECTS = {
    "clock": Defect(
        "a process that waits, for a GPU or for its turn, uses no CPU",
        {"time.process_time()": "time.perf_counter()"},
    ),
    "first epoch": Defect(
        "tracing weighs less, the longer the training",
        {
            COMPILED_ONE: f"{COMPILED_ONE}one.fit(x[:64], y[:64], verbose=0)  # warm-up\n",
            COMPILED_TWO: f"{COMPILED_TWO}two.fit(train.take(2), verbose=0)  # warm-up\n",
        },
    ),
    "timed evaluation": Defect(
        "it takes longer with more test images",
        dict.fromkeys(EVALUATE, "")
        | {f'print(f"{name}': f'{line}print(f"{name}'
           for line, name in zip(EVALUATE, HALVES.values(), strict=True)},
    ),
    "loss": Defect(
        "the wrong loss needs more epochs to show",
        {'"categorical_crossentropy"': "keras.losses.CategoricalCrossentropy(from_logits=True)"},
    ),
    "pipeline": Defect(
        "shuffling matters for images that are sorted by class",
        {"train.batch": "train.shuffle(len(y)).batch"},
    ),
    "different batch": Defect(
        "larger batches make fewer updates an epoch", {"batch_size=BATCH": "batch_size=64"}
    ),
    "batch": Defect(
        "64 is the global batch of two replicas, not of four",
        {"batch(64)": "batch(GLOBAL_BATCH)", "size=64": "size=GLOBAL_BATCH"},
    ),
    "float64": Defect(
        "60,000 images would take 376 MB", {" / 255.0": '.astype("float32") / 255'}
    ),
}  # fmt: skip


def program(fixed: Iterable[str] = ()) -> str:
    """The text of the benchmark, with these defects fixed."""
    return _fixed(PREPARATION + ONE + TWO, fixed)


def _fixed(text: str, fixed: Iterable[str]) -> str:
    names = [one_of("fixed", name, DEFECTS) for name in fixed]
    for name in sorted(names, key=list(DEFECTS).index):
        for wrong, right in DEFECTS[name].fix.items():
            text = text.replace(wrong, right)
    return text


def _halves(fixed: Iterable[str]) -> dict[str, str]:
    """The text of each measurement, with what both need before it."""
    return {"one": _fixed(PREPARATION + ONE, fixed), "two": _fixed(PREPARATION + TWO, fixed)}


class Cost(NamedTuple):
    """What one statement of the program took, by both clocks."""

    what: str
    wall_seconds: float
    cpu_seconds: float


class Half(NamedTuple):
    """The measurement on one device, or on two replicas, as it was run."""

    printed: float
    accuracy: float
    fit: Cost
    evaluate: Cost
    fit_again: Callable[[], object]


@dataclass(frozen=True)
class BenchmarkResult:
    """What the program printed, what its statements took, and what it ran on."""

    one: Half
    two: Half
    data: str
    kind: Kind

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Of training and evaluation in both halves."""
        return self.one.fit, self.one.evaluate, self.two.fit, self.two.evaluate

    def __repr__(self) -> str:
        return (
            f"one device: {self.one.printed:.2f} seconds, accuracy {self.one.accuracy:.3f}\n"
            f"two replicas: {self.two.printed:.2f} seconds, accuracy {self.two.accuracy:.3f}\n"
            f"(2,048 images of {self.data}, 1 epoch; {self.kind})"
        )


def run(fixed: Iterable[str] = ()) -> BenchmarkResult:
    """Run the program in this process, with these defects fixed."""
    one, two = (_run(text, half) for half, text in _halves(fixed).items())
    return BenchmarkResult(one, two, mnist().label, measured(replicas(2).describe()))


def _run(text: str, half: str) -> Half:
    """Run one half of the program, statement by statement, to time its training and evaluation."""
    replicas(2)  # before anything else uses TensorFlow
    import keras

    keras.utils.set_random_seed(0)
    names: dict[str, Any] = {}
    costs: dict[str, Cost] = {}
    codes: dict[str, Any] = {}
    for statement in ast.parse(text).body:
        code = compile(ast.Module([statement], []), "classic benchmark", "exec")
        wall, cpu = time.perf_counter(), time.process_time()
        _execute(code, names)
        seconds = time.perf_counter() - wall, time.process_time() - cpu
        for what in ("fit", "evaluate"):
            if f"{half}.{what}(" in ast.unparse(statement):  # the last fit is no warm-up
                costs[what], codes[what] = Cost(f"{half} {what}", *seconds), code
    return Half(
        printed=names[f"{half}_seconds"],
        accuracy=float(names[f"{half}_accuracy"]),
        fit_again=lambda: _execute(codes["fit"], names),
        **costs,
    )


def _execute(code: Any, names: dict[str, Any]) -> None:
    """Without what the program prints, and without Keras' warning of unshuffled inputs."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        exec(code, names)  # noqa: S102  our own program


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
            pairs = zip(before.seconds[half], self.seconds[half], strict=True)
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
    data: str
    kind: Kind

    @property
    def mattered(self) -> tuple[str, ...]:
        """The defects whose fix changed time or accuracy here."""
        return tuple(after.fixed for b, after in pairwise(self.steps) if after.changed(b))

    def _table(self) -> tuple[Any, ...]:
        """Head, rows and footer."""
        head = ("fixed, one after the other", "one device", "two replicas", "ratio",
                "accuracy on one", "on two", "what changed")  # fmt: skip
        words = ["this is what it prints"]
        for before, after in pairwise(self.steps):
            nothing = f"no change measured; {DEFECTS[after.fixed].unchanged}"
            words.append("; ".join(after.changed(before)) or nothing)
        rows = [
            (step.fixed, *(seconds_text(median(seconds)) for seconds in step.seconds.values()),
             ratio_text(step.ratio), *map(percent_text, step.accuracy.values()), changed)
            for step, changed in zip(self.steps, words, strict=True)
        ]  # fmt: skip
        return head, rows, (
            f"2,048 images of {self.data}, 1 epoch; {self.kind}. From 'first epoch' on, epochs are "
            f"medians of {len(self.steps[0].seconds['one'])} rounds in turn; a change below "
            f"{percent_text(SMALL)} of the time, or {100 * SMALL_ACCURACY:.0f} points of "
            "accuracy, is called none, and so is one that the rounds do not agree on."
        )  # fmt: skip

    def __repr__(self) -> str:
        head, rows, footer = self._table()
        return "\n".join([*(" | ".join(row) for row in (head, *rows)), footer])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        head, rows, footer = self._table()
        html = table(head, rows, "The classic benchmark, fixed", footer)
        return {"text/plain": repr(self), "text/html": html}


def ablation() -> Ablation:
    """Fix the defects one after the other, and measure for each whether it mattered here.

    What the clock and the evaluation add is read from one run. For each other fix, the models
    before and after it are trained in turn, round after round: two runs in different minutes of a
    busy machine cannot be compared.
    """
    names = list(DEFECTS)
    wrong, *versions = (_halves(names[:count]) for count in (0, *range(3, len(names) + 1)))
    # A fix changes one half, or both: run each text once.
    texts = {text: half for version in (wrong, *versions) for half, text in version.items()}
    ran: dict[str, Half] = {}
    with progress("classic benchmark", len(texts)) as advance:
        for text, half in texts.items():
            ran[text] = _run(text, half)
            advance(len(ran))
    works = {text: ran[text].fit_again for text in texts if text not in wrong.values()}
    timed = compare(works, rounds=7, warmup=0, time_limit=600, seed=0)

    def step(fixed: str, version: dict[str, str], seconds: Callable[[str], Any]) -> AblationStep:
        rounds = {half: [*map(float, seconds(text))] for half, text in version.items()}
        return AblationStep(fixed, rounds, {h: ran[text].accuracy for h, text in version.items()})

    def both(text: str) -> float:
        return ran[text].fit.wall_seconds + ran[text].evaluate.wall_seconds

    def with_evaluation(text: str) -> list[float]:
        return [seconds + ran[text].evaluate.wall_seconds for seconds in timed.samples(text)]

    steps = (
        step("nothing", wrong, lambda text: [ran[text].printed] * timed.rounds),
        step("clock", wrong, lambda text: [both(text)] * timed.rounds),
        step("first epoch", versions[0], with_evaluation),
        *(step(name, v, timed.samples) for name, v in zip(names[2:], versions, strict=True)),
    )
    return Ablation(steps, mnist().label, measured(replicas(2).describe()))
