"""Bytes on one device during a training step, by what holds them.

>>> small = footprint(101_770, batch=64, activation_bytes=1000, example_bytes=784)
>>> small["weights"], small["activations"], small["data"], small.total
(407080, 64000, 50176, 1742496)

Stage 3 of ZeRO on 64 devices, 7.5 billion parameters (Rajbhandari et al. 2020, Table 1):

>>> footprint(7.5e9, convention="mixed adam 16", data=64, zero=3).total
1875000000
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from labkit.arguments import number, one_of, whole
from labkit.kinds import Kind, LabError, bytes_text, count_text, modelled, percent_text
from labkit.memory.shape import Transformer
from labkit.shown import ShownAsTable

if TYPE_CHECKING:
    from labkit.views.figure import Picture
    from labkit.views.sketch import Sketch
    from labkit.views.table import Table

# Bytes per parameter of weights, gradients and optimizer. Publications give 12, 16 or 18 in all for
# "Adam", because they keep different things. The weights are what the forward pass uses, so what is
# sent when weights are gathered; a float32 copy of them belongs to the optimizer.
CONVENTIONS = {
    "float32 sgd": (4, 4, 0),
    "float32 adam": (4, 4, 8),  # two moments
    "mixed adam 16": (2, 2, 12),  # ZeRO: 16-bit; a float32 copy and two moments
    "mixed adam 18": (2, 4, 12),  # the same with float32 gradients
    "bfloat16 adam 12": (2, 2, 8),  # two float32 moments, no float32 copy
}
STATE = ("weights", "gradients", "optimizer")
# A rule of thumb of this course: a tenth of a device's memory stays with the framework.
USABLE = 0.9


@dataclass(frozen=True)
class Part:
    """What holds bytes, how many on one device, and how they were counted."""

    name: str
    bytes: int
    formula: str


@dataclass(frozen=True, repr=False)
class Footprint(ShownAsTable):
    """What one device holds in a training step. `scheme` says how it shares with the others."""

    scheme: str
    convention: str
    parameters: int
    parts: tuple[Part, ...]
    kind: Kind
    model: Transformer | None = None
    """The transformer, where memory.transformer counted it."""

    def __getitem__(self, name: str) -> int:
        known = {part.name: part.bytes for part in self.parts}
        return known[one_of("part", name, known)]

    @property
    def total(self) -> int:
        """All bytes on one device."""
        return sum(part.bytes for part in self.parts)

    @property
    def state(self) -> int:
        """Weights, gradients and optimizer state: the bytes that do not depend on the batch."""
        return sum(self[name] for name in STATE)

    def sharded(self, devices: int, names: Sequence[str] = STATE) -> Footprint:
        """Returns the step with the named parts sharded: each of `devices` keeps an equal share."""
        whole("devices", devices, at_least=1)
        parts = tuple(
            replace(part, bytes=-(-part.bytes // devices), formula=f"({part.formula}) / {devices}")
            if part.name in names
            else part
            for part in self.parts
        )
        what = f"{', '.join(names)} sharded over {devices}"
        kind = modelled(f"{self.kind.source}; {what}")
        return replace(self, scheme=what, parts=parts, kind=kind)

    def table(self) -> Table:
        """Returns a row for each part, and the sum."""
        from labkit.views.table import Table

        rows = [
            (part.name, bytes_text(part.bytes), percent_text(part.bytes / (self.total or 1)),
             part.formula)
            for part in self.parts
        ]  # fmt: skip
        rows.append(("together", bytes_text(self.total), percent_text(1.0), ""))
        model = f"{count_text(self.parameters)} parameters, {self.scheme}, {self.convention}"
        head = ("held by", "bytes", "share", "counted as")
        return Table(head, rows, f"{model}: bytes on one device", str(self.kind))


def footprint(
    parameters: float, *, data: int = 1, zero: int = 0, layers: int | None = None, batch: int = 32,
    activation_bytes: float = 0, example_bytes: float = 0, convention: str = "float32 adam",
) -> Footprint:  # fmt: skip
    """Returns what each of `data` replicas holds in data parallelism: the model, its own batch.

    `zero` shards the optimizer's state (1), the gradients too (2), the weights too (3). With
    `layers` equal layers, stage 3 also holds the one that it has gathered, in the backward pass
    with its gradient before that is reduced; the paper leaves both out.
    `batch` counts the examples of one replica; `activation_bytes` and `example_bytes` are per
    example. A single device is the same thing with one replica.
    """
    count = round(number("parameters", parameters, at_least=0))
    data, batch = whole("data", data, at_least=1), whole("batch", batch, at_least=1)
    sharded = ("optimizer", "gradients", "weights")[: whole("zero", zero, at_most=3)]
    activation = round(number("activation_bytes", activation_bytes, at_least=0))
    example = round(number("example_bytes", example_bytes, at_least=0))
    state = CONVENTIONS[one_of("convention", convention, CONVENTIONS)]
    parts = [
        Part(name, each * count, f"{each} B × {count_text(count)} parameters")
        for name, each in zip(STATE, state, strict=True)
    ]
    parts += [
        Part(name, each * batch, f"{bytes_text(each)} × {count_text(batch)} examples")
        for name, each in (("activations", activation), ("data", example))
    ]
    if zero == 3 and data > 1 and layers is not None:
        layer = -(-sum(state[:2]) * count // whole("layers", layers, at_least=1))
        parts.append(Part("gathered layer", layer, f"weights and gradients / {layers} layers"))
    per_parameter = " + ".join(map(str, state))
    kind = modelled(f"{per_parameter} bytes per parameter, activations and inputs per example")
    step = Footprint("data parallel", convention, count, tuple(parts), kind)
    if data == 1 or not sharded:
        return step
    return replace(step.sharded(data, sharded), scheme=f"ZeRO-{zero} on {data:,} devices")


def bars(footprints: Mapping[str, Footprint], device_memory: float | None = None) -> Picture:
    """Returns a picture with a stacked bar of bytes for each footprint, against a device's memory.

    >>> bars({"MNIST": footprint(101_770)}, device_memory=16e9)     # doctest: +SKIP
    """
    if not (isinstance(footprints, Mapping) and footprints):
        text = 'bars needs footprints by their names, {"mine": footprint(…)}, got'
        raise LabError(f"{text} {footprints!r}.")
    if device_memory is not None:
        number("device_memory", device_memory, above=0)
    totals = "; ".join(f"{name} {bytes_text(one.total)}" for name, one in footprints.items())
    limit = "" if device_memory is None else f", against a device of {bytes_text(device_memory)}"
    alt = f"Bytes on one device in a training step{limit}: {totals}."
    return board(footprints, device_memory).picture(alt)


def board(footprints: Mapping[str, Footprint], device_memory: float | None) -> Sketch:
    """Returns the drawing of `bars`."""
    from labkit.views.bars import stacked

    every = dict.fromkeys(part.name for one in footprints.values() for part in one.parts)
    rows = {
        name: dict.fromkeys(every, 0) | {part.name: part.bytes for part in one.parts}
        for name, one in footprints.items()
    }
    return stacked(
        "Memory of one training step",
        "Bytes on one device, by what holds them.",
        rows,
        bytes_text,
        modelled("bytes per parameter and per example, counted, not timed"),
        limit=device_memory or 0,
        limit_name=f"memory of the device, {bytes_text(device_memory or 0)}",
    )
