"""What a panel asks of the notebook around it: to be shown, to be told of cells, to make room.

Everything here does nothing, and harms nothing, where there is no notebook.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from labkit.telemetry import spans

__all__ = ["in_kernel", "publish", "replaces", "show", "still", "unwatch_cells", "watch_cells"]

NAME_LENGTH = 40

# The panel that each cell has started, so that running the cell again does not leave it behind.
_by_cell: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_watchers: dict[int, tuple[Callable[[Any], None], Callable[[Any], None]]] = {}


def in_kernel() -> bool:
    """Whether a front end may be listening: this is a Jupyter kernel."""
    return getattr(_shell(), "kernel", None) is not None


def still() -> bool:
    """Whether only what a printed page can hold shall be shown, as in a published notebook."""
    return os.environ.get("LABKIT_PICTURES") == "still"


def show(thing: Any) -> None:
    """Display something in the cell that is running; elsewhere nothing."""
    if in_kernel():
        thing._ipython_display_()


def publish(bundle: Any, shown: str, *, update: bool = False) -> None:
    """Put a bundle of formats into the cell's output, or in place of what was put there before."""
    data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
    if not in_kernel():
        if not update:
            print(data["text/plain"])
        return
    from IPython.display import publish_display_data

    publish_display_data(  # type: ignore[no-untyped-call]
        data=data, metadata=metadata, transient={"display_id": shown}, update=update
    )


def replaces(panel: Any) -> None:
    """Stop the panel that this cell started the last time it ran."""
    cell = _cell()
    if cell is None:
        return
    earlier = _by_cell.get(cell)
    if earlier is not None:
        earlier.stop()
    _by_cell[cell] = panel


def watch_cells(panel: Any) -> None:
    """Tell a panel when a cell begins and ends."""
    shell = _shell()
    if shell is None or not hasattr(shell, "events"):
        return
    running: list[Any] = []
    this = weakref.ref(panel)

    def begins(info: Any) -> None:
        panel = this()
        if panel is None or not panel.live:
            return
        name = cell_name(getattr(info, "raw_cell", "") or "", _prompt(shell))
        running.append(panel.cell(name))

    def ends(_result: Any) -> None:
        while running:
            running.pop().end()
        spans.end_marks("keras")  # a `fit` that was interrupted leaves its epoch open
        panel = this()
        if panel is not None and panel.live:
            panel.cells_ended()

    shell.events.register("pre_run_cell", begins)
    shell.events.register("post_run_cell", ends)
    _watchers[id(panel)] = (begins, ends)


def unwatch_cells(panel: Any) -> None:
    """No longer."""
    shell = _shell()
    begins_and_ends = _watchers.pop(id(panel), None)
    if shell is None or begins_and_ends is None:
        return
    shell.events.unregister("pre_run_cell", begins_and_ends[0])
    shell.events.unregister("post_run_cell", begins_and_ends[1])


def cell_name(source: str, number: int) -> str:
    """The number of a cell and the line that says most: the first that is no import or comment.

    >>> cell_name("import labkit; job.train(epochs=3)", 7)
    '[7] import labkit; job.train(epochs=3)'
    """
    lines = [line.strip() for line in source.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("#", "import ", "from ", "%"))]
    line = (telling or lines or [""])[0]
    if len(line) > NAME_LENGTH:
        line = line[: NAME_LENGTH - 1].rstrip() + "…"
    return f"[{number}] {line}".rstrip()


def _prompt(shell: Any) -> int:
    """The number of the cell that runs: IPython has counted on, but In has not grown yet."""
    entered = shell.user_ns.get("In")
    return len(entered) if isinstance(entered, list) else int(shell.execution_count)


def _shell() -> Any:
    # IPython is not imported here: if it is not there already, this is no notebook.
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _cell() -> str | None:
    shell = _shell()
    parent = getattr(shell, "get_parent", None)
    if parent is None:
        return None
    found = (parent() or {}).get("metadata", {}).get("cellId")
    return found if isinstance(found, str) else None
