"""What names mean: those that a program binds, those that it imports, those that everybody uses."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from labkit.training.defects.values import Const, Dotted, Number, Text, Unknown

__all__ = ["Names", "canonical", "from_outside", "imported"]

# One cell often relies on the imports of another. These names mean the same in nearly every one.
_USUAL = {
    "K": "keras.backend",
    "datetime": "datetime.datetime",
    "keras": "keras",
    "labkit": "labkit",
    "layers": "keras.layers",
    "losses": "keras.losses",
    "models": "keras.models",
    "np": "numpy",
    "optimizers": "keras.optimizers",
    "os": "os",
    "perf_counter": "time.perf_counter",
    "process_time": "time.process_time",
    "tf": "tensorflow",
    "thread_time": "time.thread_time",
    "time": "time",
    "timeit": "timeit",
    "to_categorical": "keras.utils.to_categorical",
    "utils": "keras.utils",
}
_LAYERS = frozenset(
    {"Activation", "BatchNormalization", "Conv1D", "Conv2D", "Dense", "Dropout", "Embedding"}
    | {"Flatten", "GlobalAveragePooling2D", "Input", "LSTM", "MaxPooling2D", "Reshape", "Softmax"}
    | {"Rescaling"}
)
_LOSSES = frozenset(
    {"BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy"}
)
_SAME = (
    (r"tensorflow\.(compat\.v[12]|python|_api\.v2)(?=\.)", "tensorflow"),
    (r"(tensorflow\.keras|tf_keras|keras\.(src|api)(\.v[123])?)(?=\.|$)", "keras"),
    (r"tensorflow\.data\.experimental\.AUTOTUNE$", "tensorflow.data.AUTOTUNE"),
    (r"tensorflow\.distribute\.experimental\.", "tensorflow.distribute."),
)


class Names:
    """The names of a function or a module, and behind them those around it."""

    def __init__(self, around: Names | None = None) -> None:
        self.values: dict[str, Any] = {}
        self.around = around
        self.shared: set[str] = set()
        """Declared global or nonlocal: they belong to those around."""

    def get(self, name: str) -> Any:
        place: Names | None = self
        while place is not None:
            if name in place.values:
                return place.values[name]
            place = place.around
        return usual(name)

    def set(self, name: str, value: Any) -> None:
        if name in self.shared and self.around is not None:
            self.around.set(name, value)
        else:
            self.values[name] = value


def usual(name: str) -> Any:
    """The meaning of a name that nothing here binds."""
    if name in _USUAL:
        return Dotted(_USUAL[name])
    if name in ("Model", "Sequential"):
        return Dotted(f"keras.{name}")
    if name in _LAYERS:
        return Dotted(f"keras.layers.{name}")
    if name in _LOSSES:
        return Dotted(f"keras.losses.{name}")
    return Unknown(name)


def canonical(path: str) -> str:
    """One path for everything that has several.

    >>> canonical("tensorflow.keras.layers.Dense")
    'keras.layers.Dense'
    """
    for pattern, plain in _SAME:
        path = re.sub(pattern, plain, path)
    return path


def imported(path: str) -> Dotted:
    """What an import brings."""
    return Dotted(canonical(path))


def from_outside(name: str, value: Any) -> Any:
    """What a function sees in the module around it, as far as it is plain."""
    if isinstance(value, ModuleType):
        return imported(value.__name__)
    if value is None or isinstance(value, bool):
        return Const(value)
    if isinstance(value, (int, float)):
        return Number(value)
    if isinstance(value, str):
        return Text(value)
    module, inner = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    library = isinstance(module, str) and module.partition(".")[0] in (
        "keras", "labkit", "numpy", "tensorflow", "time", "timeit",
    )  # fmt: skip
    if library and isinstance(inner, str):
        return imported(f"{module}.{inner}")
    return usual(name)
