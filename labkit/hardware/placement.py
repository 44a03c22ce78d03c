"""On which device TensorFlow placed each operation: which devices have work, and how much.

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

from labkit.hardware.devices import import_tensorflow, logical_names, short_name
from labkit.kinds import Kind, count_text, measured
from labkit.plain import stored

__all__ = ["DeviceUse", "DeviceWork", "work_by_device"]

_HEADS = ("device", "operations", "matrix products")
_ABOUT = "Each operation of the graphs that ran is counted once, however often it was repeated."
# Operations that only pass values along.
_PASSING = frozenset(
    {"_Arg", "_DeviceArg", "_Retval", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv"}
    | {"Const", "HostConst", "_EagerConst", "Identity", "IdentityN", "NoOp"}
    | {"Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}
)


@stored
@dataclass(frozen=True)
class DeviceUse:
    """One logical device: the operations placed on it, and how many of them multiply matrices."""

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
        """The devices that have at least one operation."""
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
    """Call the function once and count the operations that TensorFlow ran on each device.

    >>> work = work_by_device(lambda: model(images))      # doctest: +SKIP
    >>> work.busy                                         # doctest: +SKIP
    ('/cpu:0',)
    """
    placed = _placed_operations(function)
    operations = Counter(device for device, _ in placed)
    products = Counter(device for device, operation in placed if _is_product(operation))
    names = logical_names()
    uses = tuple(DeviceUse(name, operations[name], products[name]) for name in names)
    return DeviceWork(uses, measured(f"{len(names)} logical device{'s' if len(names) > 1 else ''}"))


def _placed_operations(function: Callable[[], object]) -> list[tuple[str, str]]:
    """The device and the type of every operation in the graphs that a call of `function` runs."""
    import_tensorflow()
    # TensorFlow's profiler reads the graphs this way; there is no public one.
    from tensorflow.python.eager import context

    running = context.context()
    running.ensure_initialized()
    # A graph is collected when its kernel is made, so kernels made earlier would be missed.
    running.clear_kernel_cache()
    running.enable_graph_collection()
    try:
        function()
        collected = running.export_run_metadata()
    finally:
        running.disable_graph_collection()
    return [
        (short_name(node.device), node.op)
        for graph in collected.function_graphs
        for part in graph.partition_graphs
        for node in part.node
        if node.op not in _PASSING
    ]


def _is_product(operation: str) -> bool:
    return "MatMul" in operation or "Conv2D" in operation or operation == "Einsum"


def _rows(work: DeviceWork) -> list[tuple[str, str, str]]:
    return [(u.device, count_text(u.operations), count_text(u.products)) for u in work.devices]
