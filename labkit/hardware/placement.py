"""On which device TensorFlow placed each operation: which devices have work, and how much.

>>> print(labkit.hardware.work_by_device(lambda: step(images, labels)))   # doctest: +SKIP
device  operations  matrix products
/cpu:0          41                3
/cpu:1           0                0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from labkit.hardware.devices import import_tensorflow, short_name
from labkit.kinds import count_text, measured

# Operations that only pass values along.
_PASSING = frozenset(
    {"_Arg", "_DeviceArg", "_Retval", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv"}
    | {"Const", "HostConst", "_EagerConst", "Identity", "IdentityN", "NoOp"}
    | {"Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond"}
)


@dataclass(frozen=True)
class DeviceWork:
    """For every logical device, also an idle one: its operations, and its matrix products."""

    operations: dict[str, int]
    products: dict[str, int]

    @property
    def busy(self) -> tuple[str, ...]:
        """The devices that have at least one operation."""
        return tuple(device for device, count in self.operations.items() if count)

    def _table(self) -> tuple[Any, ...]:
        head = ("device", "operations", "matrix products")
        rows = [
            (device, count_text(count), count_text(self.products[device]))
            for device, count in self.operations.items()
        ]
        about = "Each operation of the graphs that ran is counted once, however often it ran."
        devices = f"{len(rows)} logical device{'s' if len(rows) > 1 else ''}"
        return head, rows, f"{about}\n{measured(devices)}"

    def __str__(self) -> str:
        from labkit.views.table import text_table

        return text_table(*self._table())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from labkit.views.table import table

        head, rows, footer = self._table()
        html = table(head, rows, "Work by device", footer)
        return {"text/plain": str(self), "text/html": html}


def work_by_device(function: Callable[[], object]) -> DeviceWork:
    """Call the function once and count the operations that TensorFlow ran on each device."""
    placed = _placed_operations(function)
    operations = Counter(device for device, _ in placed)
    products = Counter(
        device
        for device, operation in placed
        if "MatMul" in operation or "Conv2D" in operation or operation == "Einsum"
    )
    devices = import_tensorflow().config.list_logical_devices()
    names = [short_name(device.name) for device in devices]
    return DeviceWork({n: operations[n] for n in names}, {n: products[n] for n in names})


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
