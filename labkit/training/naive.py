"""The classic naive benchmark, as a program that runs: mend its defects one at a time.

>>> print(program().splitlines()[0])
import time
>>> run(mended=("clock", "loss"))                    # doctest: +SKIP
>>> ladder()                                         # doctest: +SKIP

What `run` runs is the very text that `program` shows. Each defect has the name that
labkit.training.diagnose gives it. (It also finds "one run", which no edit of the text mends.)
"""

from __future__ import annotations

import ast
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from labkit import plain
from labkit.kinds import Kind, LabError, count_text, measured

__all__ = ["DEFECTS", "Cost", "NaiveResult", "execute", "ladder", "program", "ran", "run"]

# In the order in which the ladder mends them: those that change what is timed first.
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
IMAGES, EPOCHS = 2048, 1


def program(mended: Sequence[str] = (), *, images: int = IMAGES, epochs: int = EPOCHS) -> str:
    """The text of the benchmark, with these defects mended."""
    done = _checked(mended)

    def either(defect: str, mended_text: str, naive_text: str) -> str:
        return mended_text if defect in done else naive_text

    clock = either("clock", "time.perf_counter()", "time.process_time()")
    scale = either("float64", '.astype("float32") / 255', " / 255.0")
    loss = either(
        "loss",
        "keras.losses.CategoricalCrossentropy(from_logits=True)",
        '"categorical_crossentropy"',
    )
    shuffle = either("pipeline", ".shuffle(len(y))", "")
    batch = either("batch", "GLOBAL_BATCH", "64")
    one_batch = "BATCH" if "different batch" not in done else batch

    def timed(name: str, model: str, data: str, test: str) -> list[str]:
        fit = f"{model}.fit({data}, epochs={epochs}, verbose=0)"
        few = {"one": "x[:64], y[:64]", "two": "train.take(2)"}[model]
        stop = f"{model}_seconds = {clock} - start"
        score = f"{model}_accuracy = {model}.evaluate({test}, verbose=0)[1]"
        late = "timed evaluation" in done
        return [
            *([f"{model}.fit({few}, verbose=0)  # warm-up"] if "first epoch" in done else []),
            f"start = {clock}",
            fit,
            *([stop, score] if late else [score, stop]),
            f'print(f"{name}: {{{model}_seconds:.2f}} seconds, "',
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
        *timed("one device", "one", f"x, y, batch_size={one_batch}", "x_test, y_test"),
        "",
        "labels = keras.utils.to_categorical(y, 10)",
        "test_labels = keras.utils.to_categorical(y_test, 10)",
        "train = tf.data.Dataset.from_tensor_slices((x, labels))",
        f"train = train{shuffle}.batch({batch}).prefetch(tf.data.AUTOTUNE)",
        "test = tf.data.Dataset.from_tensor_slices((x_test, test_labels)).batch(500)",
        "with strategy.scope():",
        f"    two = build({loss})",
        *timed("two replicas", "two", "train", "test"),
    ]
    return "\n".join(lines) + "\n"


@plain.stored
@dataclass(frozen=True)
class Cost:
    """What one statement of the program cost, by both clocks."""

    what: str
    wall_seconds: float
    cpu_seconds: float


@plain.stored
@dataclass(frozen=True)
class NaiveResult:
    """What the program printed, what it ran on, and what its statements really cost."""

    mended: tuple[str, ...]
    one_seconds: float
    two_seconds: float
    one_accuracy: float
    two_accuracy: float
    images: int
    epochs: int
    costs: tuple[Cost, ...]
    """Of "one warm-up", "one fit", "one evaluate", and the same for "two"."""
    data: str
    kind: Kind

    @property
    def ratio(self) -> float:
        """How many times as long two replicas took, by what the program printed."""
        return self.two_seconds / self.one_seconds if self.one_seconds else float("nan")

    def cost(self, what: str) -> Cost:
        """Of one statement, such as "two fit"; nothing for one that the program does not have."""
        found = [cost for cost in self.costs if cost.what == what]
        return found[0] if found else Cost(what, 0.0, 0.0)

    def __str__(self) -> str:
        return (
            f"one device: {self.one_seconds:.2f} seconds, accuracy {self.one_accuracy:.3f}\n"
            f"two replicas: {self.two_seconds:.2f} seconds, accuracy {self.two_accuracy:.3f}\n"
            f"({count_text(self.images)} images of {self.data}, {self.epochs} "
            f"epoch{'' if self.epochs == 1 else 's'}; {self.kind})"
        )

    __repr__ = __str__


def run(mended: Sequence[str] = (), *, images: int = IMAGES, epochs: int = EPOCHS) -> NaiveResult:
    """Run the program with these defects mended, in this process."""
    return execute(mended, images=images, epochs=epochs)[0]


def execute(
    mended: Sequence[str] = (),
    *,
    images: int = IMAGES,
    epochs: int = EPOCHS,
    before: NaiveResult | None = None,
) -> tuple[NaiveResult, dict[str, Callable[[], object]]]:
    """Run the program; besides its result, what trains its two models once more.

    With the result of the program `before` the last mending, only the half that it touches is run.
    """
    import contextlib
    import io
    import warnings

    import labkit
    from labkit.hardware.devices import import_tensorflow

    done, images, epochs = _checked(mended), _size("images", images), _size("epochs", epochs)
    halves = _TOUCHES.get(done[-1], BOTH) if before is not None else BOTH
    replicas = labkit.replicas(2)
    import_tensorflow()
    import keras

    data = labkit.datasets.mnist()
    keras.utils.set_random_seed(0)
    names: dict[str, Any] = {"__name__": "naive"}
    costs: list[Cost] = []
    again: dict[str, Callable[[], object]] = {}
    half = ""
    # Statement by statement, so that each can be timed by both clocks without changing the text.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for statement in ast.parse(program(done, images=images, epochs=epochs)).body:
            text = ast.unparse(statement)
            half = next((who for begin, who in _BEGINS.items() if text.startswith(begin)), half)
            if half and half not in halves:
                continue
            code = compile(ast.Module([statement], []), "naive benchmark", "exec")
            repeat = functools.partial(exec, code, names)
            wall, cpu = time.perf_counter(), time.process_time()
            repeat()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            what = _what(text, done, costs)
            if what:
                costs.append(Cost(what, *spent))
            if what.endswith(" fit"):
                again[half] = repeat
    _ran.append(done)

    def of(name: str) -> float:
        return float(names[name] if name in names else getattr(before, name))

    result = NaiveResult(
        mended=done,
        one_seconds=of("one_seconds"),
        two_seconds=of("two_seconds"),
        one_accuracy=of("one_accuracy"),
        two_accuracy=of("two_accuracy"),
        images=min(images, len(data.y_train)),
        epochs=epochs,
        costs=tuple(costs),
        data=data.label,
        kind=measured(replicas.describe()),
    )
    return result, again


BOTH = ("one", "two")
# With all defects before it mended, each of these touches one half of the program alone.
_TOUCHES = {"loss": ("two",), "pipeline": ("two",), "batch": ("two",), "different batch": ("one",)}
_BEGINS = {"one = ": "one", "labels = ": "", "with strategy": "two"}


def ran() -> bool:
    """Whether this process has run the program before, and so has paid for TensorFlow's start."""
    return bool(_ran)


_ran: list[tuple[str, ...]] = []


def _what(statement: str, done: Sequence[str], costs: Sequence[Cost]) -> str:
    """The name of a statement that is worth timing, or nothing."""
    for who in ("one", "two"):
        if statement.startswith(f"{who}.fit("):
            warm = any(cost.what == f"{who} warm-up" for cost in costs)
            return f"{who} fit" if warm or "first epoch" not in done else f"{who} warm-up"
        if f"{who}.evaluate(" in statement:
            return f"{who} evaluate"
    return ""


def ladder(*, images: int = IMAGES, epochs: int = EPOCHS, rounds: int = 7) -> Any:
    """Mend the defects one after the other, and tell for each whether it mattered here.

    >>> ladder()                                         # doctest: +SKIP
    """
    from labkit.training.naive_ladder import climb

    return climb(images=_size("images", images), epochs=_size("epochs", epochs), rounds=rounds)


def _checked(names: Iterable[str]) -> tuple[str, ...]:
    given = (names,) if isinstance(names, str) else tuple(names)
    for name in given:
        if name == "one run":
            raise LabError(
                "No edit of this program mends 'one run': it has to be run again and again. "
                "labkit.compare does that."
            )
        if name not in DEFECTS:
            raise LabError(f"{name!r} is no defect of this program. It has: {', '.join(DEFECTS)}.")
    return tuple(dict.fromkeys(given))


def _size(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LabError(f"{what}={value!r} is not a whole number from 1 on.")
    if what == "images" and value < 256:
        raise LabError(f"images={value} are too few to train on. Take 256 or more.")
    return value
