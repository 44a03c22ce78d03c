"""The way from the kernel to the pages in the browser, a few times a second. There is no way back.

A widget *model* without a view carries the lines: a saved notebook then holds no widget view, which
without a kernel would be "model not found" in place of every picture. The page itself is HTML;
model and page meet in the browser by their key.
"""

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from labkit.views.embed import joined, modules

# The page loads the model's code while the first messages come, and loses them: until then each
# message holds all lines so far. The page takes no row twice.
LOADING_SECONDS = 3.0


class Bridge:
    """Sends lines of a recording to every panel of this key.

    `history()` returns the recording so far, gzipped. A page that is opened anew asks for it, also
    after the end. Nothing here raises if a browser is lost, because training must go on.
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
        """Add lines, as JSON texts with commas between them, to the next message."""
        with self._lock:
            self._lines.append(lines)

    def send(self, lines: str) -> None:
        """Send lines at once, from any thread. A message costs a third of a millisecond."""
        self.add(lines)
        with self._lock:
            if not self._closed:
                self._flush()

    def close(self, reason: str) -> None:
        """Send what is left, and let the panels say that the recording has ended, and why.

        The model lives as long as the bridge: a page that is opened anew asks it for the history.
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

        _esm = joined(modules("store")) + start
        _view_name = traitlets.Unicode(None, allow_none=True).tag(sync=True)  # type: ignore[assignment]
        panel = traitlets.Unicode().tag(sync=True)
        ended = traitlets.Unicode().tag(sync=True)
        # Made when the state is really asked for.
        history = traitlets.Any().tag(sync=True, to_json=lambda make, _: make() if make else "")

    return PanelModel
