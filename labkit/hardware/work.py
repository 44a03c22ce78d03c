"""Which of TensorFlow's devices are given work, and how much of it.

>>> print(labkit.hardware.work_by_device(lambda: step(images, labels)))   # doctest: +SKIP
device    operations  matrix products
/cpu:0            41                3
/cpu:1             0                0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.kinds import Kind, count_text, measured
from labkit.plain import stored

__all__ = ["DeviceUse", "DeviceWork", "work_by_device"]

_HEADS = ("device", "operations", "matrix products")
_ABOUT = "Each operation of the graphs that ran is counted once, however often it was repeated."


@stored
@dataclass(frozen=True)
class DeviceUse:
    """One logical device: the operations it was given, and how many of them multiply matrices."""

    device: str
    operations: int
    products: int


@stored
@dataclass(frozen=True)
class DeviceWork:
    """Every logical device, the idle ones too."""

    devices: tuple[DeviceUse, ...]
    kind: Kind

    @property
    def busy(self) -> tuple[str, ...]:
        """The devices that had anything to do."""
        return tuple(use.device for use in self.devices if use.operations)

    def __str__(self) -> str:
        rows = [_HEADS, *_rows(self)]
        width = max(len(row[0]) for row in rows)
        lines = [f"{row[0]:<{width}}  {row[1]:>10}  {row[2]:>15}" for row in rows]
        return "\n".join([*lines, _ABOUT, str(self.kind)])

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        footer = f"{_ABOUT} {self.kind}"
        html = table(_HEADS, _rows(self), caption="Work by device", footer=footer)
        return {"text/plain": str(self), "text/html": html}


def work_by_device(function: Callable[[], object]) -> DeviceWork:
    """Call the function once and see on which devices TensorFlow ran its operations.

    >>> work = work_by_device(lambda: model(images))      # doctest: +SKIP
    >>> work.busy                                         # doctest: +SKIP
    ('/cpu:0',)
    """
    from labkit.hardware.tensorflow import logical_names, placed_operations

    operations: Counter[str] = Counter()
    products: Counter[str] = Counter()
    for device, operation in placed_operations(function):
        operations[device] += 1
        products[device] += _is_product(operation)
    names = logical_names()
    uses = tuple(DeviceUse(name, operations[name], products[name]) for name in names)
    return DeviceWork(uses, measured(f"{len(names)} logical device{'s' if len(names) > 1 else ''}"))


def _is_product(operation: str) -> bool:
    return "MatMul" in operation or "Conv2D" in operation or operation == "Einsum"


def _rows(work: DeviceWork) -> list[tuple[str, str, str]]:
    return [(u.device, count_text(u.operations), count_text(u.products)) for u in work.devices]
