"""From the kernel to the panels in the browser, a few times a second, and never the other way.

A widget *model* without a view carries the lines: a saved notebook then holds no widget view, which
without a kernel would be "model not found" in place of every picture. The panel itself is the HTML
of `panel_page`; model and panel meet in the page by the panel's key.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from labkit.views.panel_data import packed
from labkit.views.panel_page import bundle, style

__all__ = ["Bridge"]

# Two sources a few milliseconds apart share one message; at 10 Hz none is put off to the next.
LEAST_SECONDS_BETWEEN = 0.06
# A span waits for the next looks, which come within this time if they come at all.
NO_LOOKS_SECONDS = 0.6
# Two requests for the state come one after the other when a page is opened anew.
HISTORY_SECONDS = 2.0


class Bridge:
    """Sends lines of a recording to every panel of this key.

    `history()` gives the recording so far, or None; it is asked when a page is opened anew while
    the kernel lives. Nothing here raises because of a browser: `fault` says what went wrong.
    """

    def __init__(
        self,
        key: str,
        meta: dict[str, Any] | None = None,
        history: Callable[[], Any] | None = None,
    ) -> None:
        self.key = key
        self.meta = dict(meta or {})
        self.fault: str | None = None
        self.messages = 0
        self._history = history
        self._packed = ("", float("-inf"))
        self._waiting: list[Any] = []
        self._greeted = False
        self._last = float("-inf")
        self._lock = threading.Lock()
        self._models: list[Any] = []
        self._open(_channel_class)

    @property
    def widget(self) -> Any:
        """The panel as an ordinary widget, for front ends that load no model without a view."""
        for model in self._models:
            if model._view_name is not None:
                return model
        self._open(_panel_class)
        return self._models[-1]

    def send(self, lines: Sequence[Any], *, wait: bool = False) -> None:
        """Lines as objects, or as the JSON texts that they came as. From any thread. `wait`: with
        the next ones. A message costs a third of a millisecond, in the middle of a training.
        """
        with self._lock:
            self._waiting.extend(lines)
            now = time.monotonic()
            if now - self._last >= (NO_LOOKS_SECONDS if wait else LEAST_SECONDS_BETWEEN):
                self._last = now
                self._flush()

    def close(self, reason: str = "") -> None:
        """What is left goes out, the panels say that it has ended, and why."""
        with self._lock:
            self._flush()
            models, self._models = self._models, []
        for model in models:
            self._try(model.send, {"ended": reason})
            self._try(model.close)

    def _open(self, kind: Callable[[], type[Any]]) -> None:
        def opened() -> None:
            from comm import DummyComm

            model = kind()(panel=self.key, meta=self.meta, history=_Lazy(self._recent))
            if isinstance(model.comm, DummyComm):
                model.close()
                self.fault = "There is no notebook to show it in: no Jupyter kernel runs this."
            else:
                self._models.append(model)

        self._try(opened)

    def _flush(self) -> None:
        if self._waiting and self._models:
            # One text: the kernel would walk through a list of numbers item by item.
            parts = [one if isinstance(one, str) else _json(one) for one in self._waiting]
            text = "[" + ",".join(parts) + "]"
            if not self._greeted:
                # What came while the models were being made, before anybody could send it.
                self._greeted = True
                self._try(self._greet)
            self.messages += 1
            for model in self._models:
                self._try(model.send, {"lines": text, "number": self.messages})
        self._waiting.clear()

    def _greet(self) -> None:
        self._packed = ("", float("-inf"))
        past = self._recent()
        for model in self._models if past else ():
            model.send({"history": past})

    def _recent(self) -> str:
        text, made = self._packed
        if self._history is not None and time.monotonic() - made > HISTORY_SECONDS:
            recording = self._history()
            text = "" if recording is None else packed(recording)
            self._packed = (text, time.monotonic())
        return text

    def _try(self, what: Callable[..., Any], *arguments: Any) -> None:
        try:
            what(*arguments)
        except Exception as error:  # noqa: BLE001  (a lost browser must not end a training)
            self.fault = f"The panel in the browser could not be reached: {error}"


class _Lazy:
    """A value that is made when the state is really asked for."""

    def __init__(self, make: Callable[[], str]) -> None:
        self.make = make


@cache
def _channel_class() -> type[Any]:
    return _widget_class(bundle(("panel_pace", "panel_hub")) + _CHANNEL, viewless=True)


@cache
def _panel_class() -> type[Any]:
    code = f"{bundle()}\nconst CSS = {json.dumps(style())};\n{_PANEL}"
    return _widget_class(code, viewless=False)


_CHANNEL = "\nexport default { initialize: ({ model }) => openChannel(model) };\n"
_PANEL = """
export default {
  initialize: ({ model }) => openChannel(model),
  render: ({ model, el }) =>
    mount(el, { live: true, key: model.get("panel"), ...model.get("meta") }, CSS),
};
"""


def _widget_class(code: str, *, viewless: bool) -> type[Any]:
    import anywidget
    import traitlets

    def made(lazy: _Lazy | None, _: object) -> str:
        return lazy.make() if lazy else ""

    class PanelModel(anywidget.AnyWidget):
        """What the front end knows of a panel."""

        _esm = code
        if viewless:
            _view_name = traitlets.Unicode(None, allow_none=True).tag(sync=True)  # type: ignore[assignment]
        panel = traitlets.Unicode().tag(sync=True)
        meta = traitlets.Dict().tag(sync=True)
        history = traitlets.Any().tag(sync=True, to_json=made)

        def __repr__(self) -> str:
            return f"labkit panel {self.panel}"

    return PanelModel


def _json(line: Any) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))
