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
import io
import math
import random
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from labkit import plain
from labkit.arguments import one_of, whole
from labkit.hardware.tensorflow import import_tensorflow
from labkit.kinds import Kind, count_text, measured, percent_text, ratio_text, seconds_text
from labkit.progress import progress
from labkit.timing.intervals import least_rounds, shift

__all__ = [
    "DEFECTS",
    "Ablation",
    "AblationStep",
    "BenchmarkResult",
    "Cost",
    "ablation",
    "program",
    "run",
]

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
# With all defects before it fixed, each of these changes one half of the program alone.
CHANGES_HALF = {
    "loss": ("two",),
    "pipeline": ("two",),
    "batch": ("two",),
    "different batch": ("one",),
}
HALVES = {"one": "one device", "two": "two replicas"}
# A smaller change of a time, or of the accuracy on 1000 test images, is called none: trainings that
# differ in their random numbers alone stay within the latter.
SMALL, SMALL_ACCURACY = 0.15, 0.04
CONFIDENCE = 0.98
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
    for name in fixed:
        one_of("fixed", name, DEFECTS)

    def either(defect: str, right: str, wrong: str) -> str:
        return right if defect in fixed else wrong

    clock = either("clock", "time.perf_counter()", "time.process_time()")
    scale = either("float64", '.astype("float32") / 255', " / 255.0")
    right_loss = "keras.losses.CategoricalCrossentropy(from_logits=True)"
    loss = either("loss", right_loss, '"categorical_crossentropy"')
    shuffle = either("pipeline", ".shuffle(len(y))", "")
    batch = either("batch", "GLOBAL_BATCH", "64")
    one_batch = either("different batch", batch, "BATCH")

    def half(model: str, data: str, few: str, test: str) -> list[str]:
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

    lines = [
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
        "",
        "one = build(keras.losses.SparseCategoricalCrossentropy(from_logits=True))",
        *half("one", f"x, y, batch_size={one_batch}", "x[:64], y[:64]", "x_test, y_test"),
        "",
        "labels = keras.utils.to_categorical(y, 10)",
        "test_labels = keras.utils.to_categorical(y_test, 10)",
        "train = tf.data.Dataset.from_tensor_slices((x, labels))",
        f"train = train{shuffle}.batch({batch}).prefetch(tf.data.AUTOTUNE)",
        "test = tf.data.Dataset.from_tensor_slices((x_test, test_labels)).batch(500)",
        "with strategy.scope():",
        f"    two = build({loss})",
        *half("two", "train", "train.take(2)", "test"),
    ]
    return "\n".join(lines) + "\n"


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

    def cost(self, what: str) -> Cost:
        """What one statement took, such as "two fit"."""
        return next(cost for cost in self.costs if cost.what == what)

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
    return _execute(tuple(fixed), images, epochs)[0]


def _execute(
    fixed: tuple[str, ...], images: int, epochs: int, before: Sequence[BenchmarkResult] = ()
) -> tuple[BenchmarkResult, dict[str, Callable[[], object]]]:
    """The result of the program, and by half what trains its model once more.

    With the result `before` the last fix, only what the fix changes is run.
    """
    from labkit import datasets, replicas

    images = whole("images", images, at_least=256)
    epochs = whole("epochs", epochs, at_least=1)
    text = program(fixed, images=images, epochs=epochs)
    two = replicas(2)
    import_tensorflow()
    import keras

    keras.utils.set_random_seed(0)
    needed = CHANGES_HALF.get(fixed[-1], tuple(HALVES)) if before else tuple(HALVES)
    names: dict[str, Any] = {}
    costs: list[Cost] = []
    fits: dict[str, Callable[[], object]] = {}
    half = ""
    # Statement by statement, so that both clocks can time each without a change of the text.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for statement in ast.parse(text).body:
            source = ast.unparse(statement)
            half = {"one": "one", "labels": "two"}.get(source.partition(" = ")[0], half)
            if half and half not in needed:
                continue
            code = compile(ast.Module([statement], []), "classic benchmark", "exec")
            wall, cpu = time.perf_counter(), time.process_time()
            exec(code, names)  # noqa: S102 (the text is that of `program`)
            spent = time.perf_counter() - wall, time.process_time() - cpu
            if ".evaluate(" in source:
                costs.append(Cost(f"{half} evaluate", *spent))
            elif ".fit(" in source and "epochs=" in source:
                costs.append(Cost(f"{half} fit", *spent))
                fits[half] = lambda code=code: exec(code, names)  # type: ignore[misc] # noqa: S102

    def value(name: str) -> float:
        return float(names[name] if name in names else getattr(before[-1], name))

    data = datasets.mnist()
    result = BenchmarkResult(
        fixed,
        value("one_seconds"), value("two_seconds"),
        value("one_accuracy"), value("two_accuracy"),
        min(images, len(data.y_train)), epochs, tuple(costs), data.label,
        measured(two.describe()),
    )  # fmt: skip
    return result, fits


# What was fixed, its result, and by half its seconds, round by round.
Version = tuple[str, BenchmarkResult, dict[str, list[float]]]


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

    def step(self, defect: str) -> AblationStep:
        """The step that fixed a defect."""
        steps = {step.fixed: step for step in self.steps}
        return steps[one_of("defect", defect, steps)]

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
        rows = [self.head, *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.footer])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from labkit.views.table import table

        html = table(self.head, self.rows, "The classic benchmark, fixed", self.footer)
        return {"text/plain": str(self), "text/html": html}


def ablation(*, images: int = 2048, epochs: int = 1, rounds: int = 7) -> Ablation:
    """Fix the defects one after the other, and measure for each whether it mattered here.

    Two runs in different minutes of a busy machine cannot be compared. So what the clock, the first
    epoch and the evaluation add is read from the statements of one run; for each other fix, the
    models before and after it are trained in turn, round after round.
    """
    rounds = whole("rounds", rounds, at_least=least_rounds(CONFIDENCE))
    with progress("classic benchmark", len(DEFECTS) + rounds) as advance:
        _execute((), 256, 1)  # TensorFlow's own start belongs to no step
        printed, _ = _execute((), images, epochs)
        results: list[BenchmarkResult] = []
        fits: dict[tuple[int, str], Callable[[], object]] = {}
        for count in range(TIMING_DEFECTS, len(DEFECTS) + 1):
            result, again = _execute(DEFECTS[:count], images, epochs, results[-1:])
            results.append(result)
            fits |= {(count, half): fit for half, fit in again.items()}
            advance(count)
        seconds: dict[tuple[int, str], list[float]] = {key: [] for key in fits}
        order, draw = list(fits), random.Random(0)
        for number in range(1, rounds + 1):
            draw.shuffle(order)  # so that a machine that drifts favours no version
            for key in order:
                seconds[key].append(_seconds(fits[key]))
            advance(len(DEFECTS) + number)
    # The half that a fix does not change is the half before it.
    epoch = [{half: seconds[TIMING_DEFECTS, half] for half in HALVES}]
    for count in range(TIMING_DEFECTS + 1, len(DEFECTS) + 1):
        epoch.append({half: seconds.get((count, half), epoch[-1][half]) for half in HALVES})

    def repeated(what: str, result: BenchmarkResult) -> dict[str, list[float]]:
        return {half: [result.cost(f"{half} {what}").wall_seconds] * rounds for half in HALVES}

    def added(*terms: dict[str, list[float]]) -> dict[str, list[float]]:
        return {h: [sum(v) for v in zip(*(t[h] for t in terms), strict=True)] for h in HALVES}

    prints = {"one": [printed.one_seconds] * rounds, "two": [printed.two_seconds] * rounds}
    versions = [
        ("nothing", printed, prints),
        ("clock", printed, added(repeated("fit", printed), repeated("evaluate", printed))),
        ("first epoch", results[0], added(epoch[0], repeated("evaluate", results[0]))),
        *zip(DEFECTS[TIMING_DEFECTS - 1 :], results, epoch, strict=True),
    ]
    steps = [_step(before, after) for before, after in pairwise([versions[0], *versions])]
    return Ablation(
        tuple(steps), results[0].images, epochs, rounds, results[0].data, results[0].kind
    )


def _seconds(fit: Callable[[], object]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of a pipeline that is not shuffled
        began = time.perf_counter()
        fit()
        return time.perf_counter() - began


def _step(before: Version, after: Version) -> AblationStep:
    """What the last fix changed, from the seconds and the accuracy before and after it."""
    (_, old, old_seconds), (fixed, new, new_seconds) = before, after
    changed, words = [], []
    for half, name in HALVES.items():
        pairs = zip(old_seconds[half], new_seconds[half], strict=True)
        found = shift([math.log(b / a) for a, b in pairs], CONFIDENCE)
        certain, band = found.low > 0 or found.high < 0, math.log(1 + SMALL)
        if certain and abs(found.value) > band:
            changed.append("time")
            words.append(f"{name}: {ratio_text(math.exp(found.value))} the time")
        elif not certain and max(-found.low, found.high) > band:
            words.append(f"{name}: cannot tell, the times vary too much")
        points = getattr(new, f"{half}_accuracy") - getattr(old, f"{half}_accuracy")
        if abs(points) > SMALL_ACCURACY:
            changed.append("accuracy")
            words.append(f"{name}: {100 * points:+.0f} points of accuracy")
    return AblationStep(
        fixed,
        statistics.median(new_seconds["one"]),
        statistics.median(new_seconds["two"]),
        new.one_accuracy,
        new.two_accuracy,
        tuple(dict.fromkeys(changed)),
        "; ".join(words) or ELSEWHERE[fixed],
    )
