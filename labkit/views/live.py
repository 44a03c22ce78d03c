"""Outputs of a cell that are shown at once, or in place of earlier ones."""

import os
import sys
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

# What a page tells the kernel is an event of its window. While the kernel is busy it waits.
LISTEN = """export default { initialize({ model }) {
  const told = ({ detail }) => { if (detail.kernel === model.get("kernel")) model.send(detail); };
  for (const detail of globalThis.labkitTold ?? []) told({ detail });
  addEventListener("labkit", told);
  return () => removeEventListener("labkit", told);
} };"""


def in_kernel() -> bool:
    """Returns whether this is a notebook, without importing IPython."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


def shows_live() -> bool:
    """Returns whether a live view can be seen: in a notebook that is not saved with stills."""
    return in_kernel() and os.environ.get("LABKIT_PICTURES") != "still"


def publish(
    bundle: tuple[dict[str, str], dict[str, Any]], shown: str, *, update: bool = False
) -> None:
    """Put a bundle of formats into the cell's output, or in place of an earlier one."""
    data, metadata = bundle
    if in_kernel():
        from IPython.display import publish_display_data

        publish_display_data(  # type: ignore[no-untyped-call]
            data=data, metadata=metadata, transient={"display_id": shown}, update=update
        )
    elif not update:
        print(data["text/plain"])


@cache
def listen(hear: Callable[[dict[str, Any]], object]) -> str:
    """Be told by the pages of this kernel what carries the name that is returned."""
    import anywidget
    import traitlets

    class PageModel(anywidget.AnyWidget):
        """A widget's model without a view, as a live page has one."""

        _esm = LISTEN
        _view_name = traitlets.Unicode(None, allow_none=True).tag(sync=True)  # type: ignore[assignment]
        kernel = traitlets.Unicode().tag(sync=True)

    model = PageModel(kernel=uuid.uuid4().hex)
    model.on_msg(lambda _, content, __: hear(content))
    return str(model.kernel)
