"""Bytes on one device during a training step, by what holds them.

>>> small = footprint(101_770, batch=64, convention="float32 adam")
>>> small["weights"], small.total
(407080, 1628320)
>>> footprint(7.5e9, convention="mixed adam 16").total
120000000000
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labkit.kinds import Kind, LabError, bytes_text, count_text, modelled, percent_text
from labkit.plain import stored

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["CONVENTIONS", "Convention", "Footprint", "Part", "footprint", "whole"]


@dataclass(frozen=True)
class Convention:
    """How many bytes each parameter costs, and why people disagree about it."""

    weights: int
    gradients: int
    optimizer: int
    note: str

    @property
    def per_parameter(self) -> int:
        """All bytes that one parameter costs."""
        return self.weights + self.gradients + self.optimizer


# Publications give 10, 12, 16 or 18 bytes per parameter for "Adam". They count different things;
# with the breakdown beside it, each of them is right.
CONVENTIONS = {
    "float32 sgd": Convention(4, 4, 0, "float32 throughout, plain SGD keeps nothing"),
    "float32 adam": Convention(4, 4, 8, "float32 throughout, Adam keeps two moments"),
    "mixed adam 16": Convention(
        2, 2, 12, "16-bit weights and gradients; Adam keeps a float32 copy and two moments (ZeRO)"
    ),
    "mixed adam 18": Convention(
        6, 4, 8, "weights in 16 and 32 bits, float32 gradients, two float32 moments"
    ),
    "bfloat16 adam 12": Convention(
        2, 2, 8, "bfloat16 weights and gradients, two float32 moments, no float32 copy"
    ),
    "bfloat16 adam 10": Convention(
        2, 0, 8, "bfloat16 weights, two float32 moments; gradients are used up at once, not kept"
    ),
}


@dataclass(frozen=True)
class Part:
    """One holder of bytes: its name, its bytes on one device, and how they were counted."""

    name: str
    bytes: int
    formula: str


@stored
@dataclass(frozen=True)
class Footprint:
    """What one device holds in a training step. `scheme` says how it shares with the others."""

    scheme: str
    convention: str
    parameters: int
    parts: tuple[Part, ...]
    kind: Kind

    def __getitem__(self, name: str) -> int:
        for part in self.parts:
            if part.name == name:
                return part.bytes
        raise LabError(
            f"A footprint has no part {name!r}. Ask for one of "
            f"{', '.join(part.name for part in self.parts)}."
        )

    @property
    def total(self) -> int:
        """All bytes on one device."""
        return sum(part.bytes for part in self.parts)

    @property
    def state(self) -> int:
        """Weights, gradients and optimizer state: the bytes that do not depend on the batch."""
        return self["weights"] + self["gradients"] + self["optimizer"]

    def shared_out(self, devices: int, names: Sequence[str], scheme: str) -> Footprint:
        """The same step with the named parts cut into `devices` equal shares, one kept here."""
        share = whole("devices", devices, least=1)
        parts = tuple(
            replace(part, bytes=-(-part.bytes // share), formula=f"({part.formula}) / {share}")
            if part.name in names
            else part
            for part in self.parts
        )
        kind = modelled(f"{self.kind.source}; {', '.join(names)} divided by {share}")
        return replace(self, scheme=scheme, parts=parts, kind=kind)

    def picture(self, device_memory: float | None = None) -> Picture:
        """One stacked bar, against the memory of a device if you name it."""
        from labkit.memory.pictures import bars

        return bars({self.scheme: self}, device_memory=device_memory)

    def _rows(self) -> list[tuple[str, str, str, str]]:
        total = self.total or 1
        rows = [
            (part.name, bytes_text(part.bytes), percent_text(part.bytes / total), part.formula)
            for part in self.parts
        ]
        return [*rows, ("together", bytes_text(self.total), percent_text(1.0), "")]

    def _title(self) -> str:
        return (
            f"{count_text(self.parameters)} parameters, {self.scheme}, {self.convention}: "
            "bytes on one device"
        )

    def __str__(self) -> str:
        rows = self._rows()
        wide = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            f"{row[0]:<{wide[0]}}  {row[1]:>{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]}".rstrip()
            for row in rows
        ]
        return "\n".join([self._title(), *lines, str(self.kind)])

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from labkit.views.table import table

        head = ("held by", "bytes", "share", "counted as")
        html = table(head, self._rows(), caption=self._title(), footer=str(self.kind))
        return {"text/plain": str(self), "text/html": html}


def footprint(
    parameters: float,
    *,
    batch: int = 32,
    activation_bytes: float = 0,
    example_bytes: float = 0,
    convention: str = "float32 adam",
) -> Footprint:
    """What each replica holds when training is data parallel: all of the model, its own batch.

    `batch` counts the examples of one replica; `activation_bytes` and `example_bytes` are per
    example. A single device is the same thing with one replica.
    """
    count = whole("parameters", parameters)
    examples = whole("batch", batch, least=1)
    activation = whole("activation_bytes", activation_bytes)
    example = whole("example_bytes", example_bytes)
    if convention not in CONVENTIONS:
        raise LabError(
            f"There is no convention {convention!r} for the bytes of a parameter. "
            f"Choose one of: {', '.join(CONVENTIONS)}."
        )
    cost = CONVENTIONS[convention]
    parts = tuple(
        Part(name, each * count, f"{each} B × {count_text(count)} parameters")
        for name, each in (
            ("weights", cost.weights),
            ("gradients", cost.gradients),
            ("optimizer", cost.optimizer),
        )
    ) + tuple(
        Part(name, each * examples, f"{bytes_text(each)} × {count_text(examples)} examples")
        for name, each in (("activations", activation), ("data", example))
    )
    formula = (
        f"{cost.weights} + {cost.gradients} + {cost.optimizer} bytes per parameter, "
        "activations and inputs per example"
    )
    return Footprint("data parallel", convention, count, parts, modelled(formula))


def whole(name: str, value: float, least: int = 0) -> int:
    """The value as a whole number of at least `least`, or a `LabError` that names it."""
    given: object = value
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not math.isfinite(value) or value < least:
        raise LabError(
            f"{name} is {value!r}, but it must be a number of at least {least}. "
            f"Give a count such as {name}={max(least, 1000)}."
        )
    return round(value)
