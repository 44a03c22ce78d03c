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
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from labkit import plain
from labkit.arguments import one_of, whole
from labkit.kinds import Kind, count_text, measured, percent_text, ratio_text, seconds_text
from labkit.progress import progress
from labkit.timing.intervals import shift

__all__ = ["DEFECTS", "Ablation", "BenchmarkResult", "ablation", "program", "run"]

# In the order in which the ablation fixes them: first those that change what is timed.
DEFECTS = (
    "clock",
    "first epoch",
    "timed evaluation",
    "loss",
    "pipeline",
    "batch",
    "different batch",
    "float64",
)
TIMING_DEFECTS = 3
HALVES = {"one": "one device", "two": "two replicas"}
# A smaller change of a time, or of the accuracy on 1000 test images, is called none: trainings that
# differ in their random numbers alone stay within the latter.
SMALL, SMALL_ACCURACY = 0.15, 0.04
CONFIDENCE = 0.95
# What is said of a fix that changed nothing here: why the defect is one all the same.
ELSEWHERE = {
    "nothing": "this is what it prints",
    "clock": "no change measured; a process that waits, for a GPU or for its turn, uses no CPU",
    "first epoch": "no change measured; tracing weighs less, the longer the training",
    "timed evaluation": "no change measured; it takes longer with more test images",
    "loss": "no change measured; the wrong loss needs more epochs to show",
    "pipeline": "no change measured; shuffling matters for images that are sorted by class",
    "batch": "no change measured; 64 is the global batch of two replicas, not of four",
    "different batch": "no change measured; larger batches make fewer updates an epoch",
    "float64": "no change measured; 60,000 images would take 376 MB",
}


def program(fixed: Sequence[str] = (), *, images: int = 2048, epochs: int = 1) -> str:
    """The text of the benchmark, with these defects fixed."""
    preparation, halves = _pieces(fixed, images, epochs)
    return "\n".join([preparation, *halves.values()])


def _pieces(fixed: Sequence[str], images: int, epochs: int) -> tuple[str, dict[str, str]]:
    """What both measurements need, and the text of each of them."""
    for name in fixed:
        one_of("fixed", name, DEFECTS)
    images = whole("images", images, at_least=256)
    epochs = whole("epochs", epochs, at_least=1)

    def either(defect: str, right: str, wrong: str) -> str:
        return right if defect in fixed else wrong

    clock = either("clock", "time.perf_counter()", "time.process_time()")
    scale = either("float64", '.astype("float32") / 255', " / 255.0")
    right_loss = "keras.losses.CategoricalCrossentropy(from_logits=True)"
    loss = either("loss", right_loss, '"categorical_crossentropy"')
    shuffle = either("pipeline", ".shuffle(len(y))", "")
    batch = either("batch", "GLOBAL_BATCH", "64")
    one_batch = either("different batch", batch, "BATCH")

    def timed(model: str, data: str, few: str, test: str) -> list[str]:
        stop = f"{model}_seconds = {clock} - start"
        score = f"{model}_accuracy = {model}.evaluate({test}, verbose=0)[1]"
        return [
            *([f"{model}.fit({few}, verbose=0)  # warm-up"] if "first epoch" in fixed else []),
            f"start = {clock}",
            f"{model}.fit({data}, epochs={epochs}, verbose=0)",
            *([stop, score] if "timed evaluation" in fixed else [score, stop]),
            f'print(f"{HALVES[model]}: {{{model}_seconds:.2f}} seconds, "',
            f'      f"accuracy {{{model}_accuracy:.3f}}")',
        ]

    preparation = [
        "import time",
        "import keras",
        "import tensorflow as tf",
        "import labkit",
        "",
        "strategy = labkit.replicas(2).strategy()",
        "data = labkit.datasets.mnist()",
        "BATCH = 32",
        "GLOBAL_BATCH = BATCH * strategy.num_replicas_in_sync",
        f"x = data.x_train[:{images}]{scale}",
        f"x_test = data.x_test[:1000]{scale}",
        f"y, y_test = data.y_train[:{images}], data.y_test[:1000]",
        "",
        "def build(loss):",
        "    model = keras.Sequential([",
        "        keras.Input((28, 28)),",
        "        keras.layers.Flatten(),",
        '        keras.layers.Dense(128, activation="relu"),',
        "        keras.layers.Dropout(0.2),",
        "        keras.layers.Dense(10)])",
        '    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])',
        "    return model",
    ]
    one = [
        "one = build(keras.losses.SparseCategoricalCrossentropy(from_logits=True))",
        *timed("one", f"x, y, batch_size={one_batch}", "x[:64], y[:64]", "x_test, y_test"),
    ]
    two = [
        "labels = keras.utils.to_categorical(y, 10)",
        "test_labels = keras.utils.to_categorical(y_test, 10)",
        "train = tf.data.Dataset.from_tensor_slices((x, labels))",
        f"train = train{shuffle}.batch({batch}).prefetch(tf.data.AUTOTUNE)",
        "test = tf.data.Dataset.from_tensor_slices((x_test, test_labels)).batch(500)",
        "with strategy.scope():",
        f"    two = build({loss})",
        *timed("two", "train", "train.take(2)", "test"),
    ]
    texts = ["\n".join(lines) + "\n" for lines in (preparation, one, two)]
    return texts[0], {"one": texts[1], "two": texts[2]}


@plain.stored
@dataclass(frozen=True)
class Cost:
    """What one statement of the program took, by both clocks."""

    what: str
    wall_seconds: float
    cpu_seconds: float


@plain.stored
@dataclass(frozen=True)
class BenchmarkResult:
    """What the program printed, what it ran on, and what its statements took."""

    fixed: tuple[str, ...]
    one_seconds: float
    two_seconds: float
    one_accuracy: float
    two_accuracy: float
    images: int
    epochs: int
    costs: tuple[Cost, ...]
    """Of "one fit", "one evaluate", "two fit" and "two evaluate"."""
    data: str
    kind: Kind

    def __str__(self) -> str:
        return (
            f"one device: {self.one_seconds:.2f} seconds, accuracy {self.one_accuracy:.3f}\n"
            f"two replicas: {self.two_seconds:.2f} seconds, accuracy {self.two_accuracy:.3f}\n"
            f"({count_text(self.images)} images of {self.data}, {self.epochs} "
            f"epoch{'' if self.epochs == 1 else 's'}; {self.kind})"
        )

    __repr__ = __str__


def run(fixed: Sequence[str] = (), *, images: int = 2048, epochs: int = 1) -> BenchmarkResult:
    """Run the program with these defects fixed, in this process."""
    from labkit import datasets

    one, two = _run(fixed, images, epochs, {}).values()
    return BenchmarkResult(
        fixed=tuple(fixed),
        one_seconds=one.printed,
        two_seconds=two.printed,
        one_accuracy=one.accuracy,
        two_accuracy=two.accuracy,
        images=images,
        epochs=epochs,
        costs=(one.fit, one.evaluate, two.fit, two.evaluate),
        data=datasets.mnist().label,
        kind=_kind(),
    )


def _kind() -> Kind:
    from labkit.hardware import replicas

    return measured(replicas(2).describe())


@dataclass(frozen=True)
class _Half:
    """The measurement on one device, or on two replicas, as it was run."""

    printed: float
    accuracy: float
    fit: Cost
    evaluate: Cost
    fit_again: Callable[[], object]


def _run(
    fixed: Sequence[str], images: int, epochs: int, known: dict[str, _Half]
) -> dict[str, _Half]:
    """Run the program, but for a half that was run with the very same text; both are `known` then.

    Statement by statement, so that both clocks can time each without a change of the text.
    """
    from labkit.hardware import replicas

    preparation, texts = _pieces(fixed, images, epochs)
    replicas(2)  # before anything else uses TensorFlow
    import keras

    for half, text in texts.items():
        if preparation + text in known:
            continue
        keras.utils.set_random_seed(0)
        names: dict[str, Any] = {}
        spent: dict[str, tuple[Cost, Callable[[], object]]] = {}
        with _quiet():
            for statement in ast.parse(preparation + text).body:
                source = ast.unparse(statement)
                code = compile(ast.Module([statement], []), "classic benchmark", "exec")
                execute = functools.partial(exec, code, names)
                wall, cpu = time.perf_counter(), time.process_time()
                execute()
                seconds = time.perf_counter() - wall, time.process_time() - cpu
                for what in ("fit", "evaluate"):
                    if f"{half}.{what}(" in source:  # the last fit is no warm-up
                        spent[what] = Cost(f"{half} {what}", *seconds), execute
        known[preparation + text] = _Half(
            float(names[f"{half}_seconds"]),
            float(names[f"{half}_accuracy"]),
            spent["fit"][0],
            spent["evaluate"][0],
            spent["fit"][1],
        )
    return {half: known[preparation + text] for half, text in texts.items()}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the program prints, and Keras' warning of a pipeline that is not shuffled."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Version:
    """The program with some defects fixed; by half, its seconds round by round and its accuracy."""

    fixed: str
    seconds: dict[str, list[float]]
    accuracy: dict[str, float]


@plain.stored
@dataclass(frozen=True)
class AblationStep:
    """What was fixed, what the program then prints, and what that changed."""

    fixed: str
    one_seconds: float
    two_seconds: float
    one_accuracy: float
    two_accuracy: float
    changed: tuple[str, ...]
    """ "time", "accuracy", both or neither."""
    words: str

    @staticmethod
    def of(before: Version, after: Version) -> AblationStep:
        """What the fix between these two versions changed."""
        changed, words = [], []
        for half, name in HALVES.items():
            pairs = zip(before.seconds[half], after.seconds[half], strict=True)
            found = shift([math.log(b / a) for a, b in pairs], CONFIDENCE)
            certain = (found.confidence or 0) >= CONFIDENCE and (found.low > 0 or found.high < 0)
            if certain and abs(found.value) > math.log(1 + SMALL):
                changed.append("time")
                words.append(f"{name}: {ratio_text(math.exp(found.value))} the time")
            elif not certain and max(-found.low, found.high) > math.log(1 + SMALL):
                words.append(f"{name}: cannot tell, rounds too few or too uneven")
            points = after.accuracy[half] - before.accuracy[half]
            if abs(points) > SMALL_ACCURACY:
                changed.append("accuracy")
                words.append(f"{name}: {100 * points:+.0f} points of accuracy")
        return AblationStep(
            fixed=after.fixed,
            one_seconds=statistics.median(after.seconds["one"]),
            two_seconds=statistics.median(after.seconds["two"]),
            one_accuracy=after.accuracy["one"],
            two_accuracy=after.accuracy["two"],
            changed=tuple(dict.fromkeys(changed)),
            words="; ".join(words) or ELSEWHERE[after.fixed],
        )

    @property
    def ratio(self) -> float:
        """How many times as long two replicas take."""
        return self.two_seconds / self.one_seconds


@plain.stored
@dataclass(frozen=True)
class Ablation:
    """The classic benchmark, fixed defect by defect."""

    steps: tuple[AblationStep, ...]
    images: int
    epochs: int
    rounds: int
    data: str
    kind: Kind

    @property
    def mattered(self) -> tuple[str, ...]:
        """The defects that changed time or accuracy here."""
        return tuple(step.fixed for step in self.steps if step.changed)

    @property
    def head(self) -> tuple[str, ...]:
        """The columns."""
        times = ("one device", "two replicas", "ratio")
        return ("fixed, one after the other", *times, "accuracy on one", "on two", "what changed")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A row for each step."""
        return [
            (
                step.fixed,
                *map(seconds_text, (step.one_seconds, step.two_seconds)),
                ratio_text(step.ratio),
                *map(percent_text, (step.one_accuracy, step.two_accuracy)),
                step.words,
            )
            for step in self.steps
        ]

    @property
    def footer(self) -> str:
        """How it was measured."""
        return (
            f"{count_text(self.images)} images of {self.data}, epochs: {self.epochs}; {self.kind}. "
            f"From 'first epoch' on, epochs are medians of {self.rounds} rounds in turn; a change "
            f"below {percent_text(SMALL)} of the time, or {100 * SMALL_ACCURACY:.0f} points of "
            "accuracy, is called none."
        )

    def __str__(self) -> str:
        lines = [" | ".join(row) for row in (self.head, *self.rows)]
        return "\n".join([*lines, self.footer])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from labkit.views.table import table

        html = table(self.head, self.rows, "The classic benchmark, fixed", self.footer)
        return {"text/plain": str(self), "text/html": html}


def ablation(*, images: int = 2048, epochs: int = 1, rounds: int = 7) -> Ablation:
    """Fix the defects one after the other, and measure for each whether it mattered here.

    Two runs in different minutes of a busy machine cannot be compared. So what the clock and
    the evaluation add is read from the statements of one run, and what the first epoch adds is its
    time over that of later epochs; for each other fix, the models before and after it are trained
    in turn, round after round.
    """
    from labkit import datasets

    rounds = whole("rounds", rounds, at_least=1)
    with progress("classic benchmark", len(DEFECTS) + rounds) as advance:
        _run((), 256, 1, {})  # TensorFlow's own start belongs to no step
        known: dict[str, _Half] = {}
        first = _run((), images, epochs, known)
        runs = []
        for count in range(TIMING_DEFECTS, len(DEFECTS) + 1):
            runs.append(_run(DEFECTS[:count], images, epochs, known))
            advance(count)
        epoch: dict[_Half, list[float]] = {half: [] for run in runs for half in run.values()}
        order, draw = list(epoch), random.Random(0)
        for number in range(1, rounds + 1):
            draw.shuffle(order)  # so that a machine that drifts favours no version
            for half in order:
                began = time.perf_counter()
                with _quiet():
                    half.fit_again()
                epoch[half].append(time.perf_counter() - began)
            advance(len(DEFECTS) + number)

    def version(
        fixed: str, run: dict[str, _Half], seconds: Callable[[_Half], list[float]]
    ) -> Version:
        return Version(
            fixed,
            {name: seconds(half) for name, half in run.items()},
            {name: half.accuracy for name, half in run.items()},
        )

    def wall(half: _Half) -> list[float]:
        return [half.fit.wall_seconds + half.evaluate.wall_seconds] * rounds

    def with_evaluation(half: _Half) -> list[float]:
        return [second + half.evaluate.wall_seconds for second in epoch[half]]

    versions = [
        version("nothing", first, lambda half: [half.printed] * rounds),
        version("clock", first, wall),
        version("first epoch", runs[0], with_evaluation),
    ]
    for fixed, run in zip(DEFECTS[TIMING_DEFECTS - 1 :], runs, strict=True):
        versions.append(version(fixed, run, epoch.__getitem__))
    steps = tuple(AblationStep.of(*pair) for pair in pairwise([versions[0], *versions]))
    return Ablation(steps, images, epochs, rounds, datasets.mnist().label, _kind())
