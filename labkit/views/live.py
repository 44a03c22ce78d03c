"""From the kernel to the panels in the browser, a few times a second, and never the other way.

A widget *model* without a view carries the lines: a saved notebook then holds no widget view, which
without a kernel would be "model not found" in place of every picture. The panel itself is the HTML
of `panel_page`; model and panel meet in the page by the panel's key.
"""

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from labkit.views.embed import bundle

# The page loads the model's code while the first messages come, and loses them: until then each
# message holds all lines so far. The page takes no row twice.
LOADING_SECONDS = 3.0


class Bridge:
    """Sends lines of a recording to every panel of this key.

    `history()` gives the recording so far, gzipped; it is asked when a page is opened anew, also
    after the end. A browser that is lost must not end a training: nothing here raises for it.
    """

    def __init__(self, key: str, history: Callable[[], str]) -> None:
        self._history = history
        self._lines: list[str] = []
        self._opened = time.monotonic()
        self._lock = threading.Lock()
        self._closed = False
        this = weakref.ref(self)

        def recent() -> str:
            bridge = this()
            return "" if bridge is None else bridge._history()

        self._model = _channel_class()(panel=key, history=recent)
        weakref.finalize(self, self._model.close)

    @property
    def address(self) -> dict[str, str]:
        """Where a page that is loaded anew finds it: Jupyter's names of kernel and model."""
        from ipykernel import get_connection_file

        file = Path(get_connection_file())
        return {"kernel": file.stem.removeprefix("kernel-"), "comm": self._model.model_id}

    def add(self, lines: str) -> None:
        """Lines as JSON texts with commas between them, to go with the next ones."""
        with self._lock:
            self._lines.append(lines)

    def send(self, lines: str) -> None:
        """The same, at once. From any thread. A message costs a third of a millisecond."""
        self.add(lines)
        with self._lock:
            if not self._closed:
                self._flush()

    def close(self, reason: str) -> None:
        """What is left goes out, and the panels say that the recording has ended, and why.

        The model stays while the bridge does: a page that is opened anew asks it for the history.
        """
        with self._lock:
            self._flush()
            self._closed = True
        with suppress(Exception):
            self._model.send({"ended": reason})
            self._model.ended = reason

    def _flush(self) -> None:
        if self._lines:
            with suppress(Exception):
                # One text: the kernel would walk through a list of numbers item by item.
                self._model.send({"lines": "[" + ",".join(self._lines) + "]"})
        if time.monotonic() - self._opened > LOADING_SECONDS:
            self._lines.clear()


@cache
def _channel_class() -> type[Any]:
    import anywidget
    import traitlets

    start = "\nexport default { initialize: ({ model }) => openChannel(model) };\n"

    class PanelModel(anywidget.AnyWidget):
        """What the front end knows of a panel."""

        _esm = bundle(("page", "panel_data")) + start
        _view_name = traitlets.Unicode(None, allow_none=True).tag(sync=True)  # type: ignore[assignment]
        panel = traitlets.Unicode().tag(sync=True)
        ended = traitlets.Unicode().tag(sync=True)
        # Made when the state is really asked for.
        history = traitlets.Any().tag(sync=True, to_json=lambda make, _: make() if make else "")

    return PanelModel


def in_kernel() -> bool:
    """Whether this is a notebook; IPython is not imported here: without it there is none."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return getattr(shell, "kernel", None) is not None


def shows_live() -> bool:
    """Whether a live view can be seen: in a notebook whose pictures may move."""
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
