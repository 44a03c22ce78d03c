"""From the kernel to the panels in the browser, a few times a second, and never the other way.

A widget *model* without a view carries the lines: a saved notebook then holds no widget view, which
without a kernel would be "model not found" in place of every picture. The panel itself is the HTML
of `panel_page`; model and panel meet in the page by the panel's key.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from labkit.views.embed import bundle
from labkit.views.panel_data import packed

__all__ = ["Bridge"]

# Two sources a few milliseconds apart share one message; at 10 Hz none is put off to the next.
SHORTEST_INTERVAL = 0.06
# A span goes with the next samples, which come within this time if they come at all.
LONGEST_WAIT = 0.6
# The page loads the model's code while the first messages come, and loses them: until then each
# message holds all lines so far. The page takes no row twice.
LOADING_SECONDS = 3.0


class Bridge:
    """Sends lines of a recording to every panel of this key.

    `history()` gives the recording so far, or None; it is asked when a page is opened anew, also
    after the end. Nothing here raises because of a browser: `fault` says what went wrong.
    """

    def __init__(self, key: str, history: Callable[[], Any] | None = None) -> None:
        self.key = key
        self.fault: str | None = None
        self.messages = 0
        self._history = history
        self._packed = (-1, "")  # the number of messages so far, the history then
        self._lines: list[str] = []
        self._opened = time.monotonic()
        self._sent = float("-inf")
        self._lock = threading.Lock()
        self._model: Any = None
        self._closed = False
        with self._lock:  # what arrives meanwhile is sent afterwards
            self._try(self._open)

    def send(self, lines: Sequence[Any], *, wait: bool = False) -> None:
        """Lines as objects, or as the JSON texts that they came as. From any thread. `wait`: with
        the next ones. A message costs a third of a millisecond, in the middle of a training.
        """
        with self._lock:
            if self._closed:
                return
            self._lines += [one if isinstance(one, str) else _json(one) for one in lines]
            if time.monotonic() - self._sent >= (LONGEST_WAIT if wait else SHORTEST_INTERVAL):
                self._flush()

    def close(self, reason: str = "") -> None:
        """What is left goes out, and the panels say that the recording has ended, and why.

        The model stays while the bridge does: a page that is opened anew asks it for the history.
        """
        with self._lock:
            if self._model is None or self._closed:
                return
            self._flush()
            self._closed = True
        self._try(self._model.send, {"ended": reason or "stopped"})
        self._try(setattr, self._model, "ended", reason or "stopped")

    def _open(self) -> None:
        from comm import DummyComm

        this = weakref.ref(self)

        def recent() -> str:
            bridge = this()
            return "" if bridge is None else bridge._recent()

        model = _channel_class()(panel=self.key, history=recent)
        if isinstance(model.comm, DummyComm):
            model.close()
            self.fault = "There is no notebook to show it in: no Jupyter kernel runs this."
        else:
            self._model = model
            weakref.finalize(self, model.close)

    def _flush(self) -> None:
        if self._lines and self._model is not None:
            # One text: the kernel would walk through a list of numbers item by item.
            text = "[" + ",".join(self._lines) + "]"
            self.messages += 1
            self._sent = time.monotonic()
            self._try(self._model.send, {"lines": text})
        if self._model is None or time.monotonic() - self._opened > LOADING_SECONDS:
            self._lines.clear()

    def _recent(self) -> str:
        if self._history is not None and self._packed[0] != self.messages:
            recording = self._history()
            self._packed = (self.messages, "" if recording is None else packed(recording))
        return self._packed[1]

    def _try(self, what: Callable[..., Any], *arguments: Any) -> None:
        try:
            what(*arguments)
        except Exception as error:  # noqa: BLE001  (a lost browser must not end a training)
            self.fault = f"The panel in the browser could not be reached: {error}"


@cache
def _channel_class() -> type[Any]:
    import anywidget
    import traitlets

    start = "\nexport default { initialize: ({ model }) => openChannel(model) };\n"

    class PanelModel(anywidget.AnyWidget):
        """What the front end knows of a panel."""

        _esm = bundle(("panel_data",)) + start
        _view_name = traitlets.Unicode(None, allow_none=True).tag(sync=True)  # type: ignore[assignment]
        panel = traitlets.Unicode().tag(sync=True)
        ended = traitlets.Unicode().tag(sync=True)
        # Made when the state is really asked for.
        history = traitlets.Any().tag(sync=True, to_json=lambda make, _: make() if make else "")

        def __repr__(self) -> str:
            return f"labkit panel {self.panel}"

    return PanelModel


def _json(line: Any) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))
