"""What the reader knows of a value without running the program: as much as the rules need."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = [
    "Array",
    "Clock",
    "Const",
    "Dotted",
    "Function",
    "Instance",
    "Klass",
    "Layer",
    "Loss",
    "Method",
    "Model",
    "Number",
    "Output",
    "Partial",
    "Pipeline",
    "Scope",
    "Seq",
    "Spot",
    "Strategy",
    "Table",
    "Text",
    "Unknown",
    "product",
]

Activation = Literal["logits", "probabilities", "unknown", "passes"]


@dataclass(frozen=True)
class Unknown:
    """A value of which nothing is known but, perhaps, its name."""

    name: str = ""


@dataclass(frozen=True)
class Dotted:
    """Something imported: `keras.layers.Dense`, by whatever name the program calls it."""

    path: str

    @property
    def last(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def root(self) -> str:
        return self.path.partition(".")[0]


@dataclass(frozen=True)
class Spot:
    """A place in the program: its name for the student, and what is written there."""

    where: str
    wrote: str


@dataclass(frozen=True)
class Text:
    """A string, and where it is written."""

    value: str
    spot: Spot | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Const:
    """True, False or None."""

    value: bool | None


@dataclass(frozen=True)
class Number:
    """A constant times named unknowns, such as 32 × replicas."""

    value: float
    factors: tuple[str, ...] = ()

    @property
    def grows(self) -> bool:
        """Whether it grows with the number of replicas."""
        return "replicas" in self.factors

    def __str__(self) -> str:
        return " × ".join([f"{self.value:g}", *self.factors])


def product(left: Number, right: Number, power: int) -> Number | None:
    """left × right, or left / right with power -1; None when it is no longer so simple."""
    factors = list(left.factors)
    if power == 1:
        for factor in right.factors:
            inverse = factor[2:] if factor.startswith("1/") else f"1/{factor}"
            if inverse in factors:
                factors.remove(inverse)
            else:
                factors.append(factor)
        return Number(left.value * right.value, tuple(sorted(factors)))
    if not right.value:
        return None
    inverted = tuple(f[2:] if f.startswith("1/") else f"1/{f}" for f in right.factors)
    return product(left, Number(1 / right.value, inverted), 1)


@dataclass(frozen=True)
class Seq:
    """A tuple or list whose items are known."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A dictionary whose entries are known."""

    items: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class Clock:
    """A reading of a clock: which, and where in the story."""

    path: str
    at: int
    spot: Spot
    loops: int


@dataclass(eq=False)
class Array:
    """Images or labels in memory."""

    name: str = ""
    dtype: str = ""
    one_hot: bool | None = None
    made: Spot | None = None
    """Where it became float64."""
    asked: bool = False
    """The program asks for float64 by name, which is a defect only where it feeds a model."""
    used: bool = False
    mended: bool = False


@dataclass(frozen=True)
class Pipeline:
    """A tf.data pipeline: what was chained to it, in order."""

    ops: tuple[tuple[str, Any, Spot], ...] = ()
    labels: bool | None = None
    whole: bool = True
    """Whether all of it is known, from its source on."""

    def then(self, name: str, argument: Any, spot: Spot) -> Pipeline:
        return replace(self, ops=(*self.ops, (name, argument, spot)))

    def places_of(self, name: str) -> list[int]:
        return [place for place, (op, _, _) in enumerate(self.ops) if op == name]


@dataclass(frozen=True)
class Layer:
    """A layer or activation, and what its outputs are."""

    kind: str
    gives: Activation


@dataclass(frozen=True)
class Output:
    """What a layer gave when it was called (functional style)."""

    layer: Layer


@dataclass(frozen=True)
class Loss:
    """A loss: which labels it wants, and whether it takes logits."""

    kind: Literal["categorical", "sparse", "binary", "other"]
    from_logits: bool | None
    spot: Spot


@dataclass(eq=False)
class Strategy:
    """A strategy of TensorFlow."""

    count: int | None
    spot: Spot
    made: bool = True
    """False when the program only names it, and makes it elsewhere."""


@dataclass(frozen=True)
class Scope:
    """`strategy.scope()`, for a with statement."""

    strategy: Strategy


@dataclass(eq=False)
class Model:
    """A Keras model as the program builds it."""

    spot: Spot
    layers: list[Layer] | None = None
    built_in: Strategy | None = None
    built_here: bool = True
    """False when it was made where the reader cannot see it."""
    loops: int = 0
    loss: Loss | None = None
    compiled: Spot | None = None
    compiled_in: Strategy | None = None
    warm: bool = False

    @property
    def gives(self) -> Activation:
        """What comes out at the end."""
        for layer in reversed(self.layers or []):
            if layer.gives != "passes":
                return layer.gives
        return "unknown"


@dataclass(eq=False)
class Function:
    """A function of the program, which is followed where it is called."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    names: Any
    program: Any
    defaults: dict[str, Any] = field(default_factory=dict)
    owner: Any = None
    traced: bool = False
    warm: bool = False
    called: bool = False
    manager: bool = False


@dataclass(frozen=True)
class Partial:
    """A function with some of its arguments."""

    function: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(eq=False)
class Klass:
    """A class of the program."""

    members: dict[str, Any] = field(default_factory=dict)
    bases: tuple[Any, ...] = ()


@dataclass(eq=False)
class Instance:
    """An object of such a class."""

    klass: Klass
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A method of something known, before it is called."""

    owner: Any
    name: str
