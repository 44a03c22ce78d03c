"""The live panel: a strip for each device, beside the cell that trains.

>>> with labkit.panel(title="Three epochs") as panel:      # doctest: +SKIP
...     with panel.span("three epochs", images=180_000):
...         job.train(epochs=3)
>>> panel.table()                                          # doctest: +SKIP
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from labkit.arguments import one_of
from labkit.kinds import LabError, measured
from labkit.telemetry import spans
from labkit.telemetry.client import UP_TO_NOW, SamplerClient, interval
from labkit.telemetry.format import Span, line
from labkit.telemetry.metrics import METRICS
from labkit.telemetry.recording import Recorder, Recording
from labkit.telemetry.usage import SpanTable

if TYPE_CHECKING:
    from labkit.telemetry.page.bridge import Bridge

CAPACITY = 12_000_000  # numbers that are kept of each source, 96 MB: an hour of 64 cores
SHORT_CELL = 3  # samples: a cell that ends sooner has nothing to show

_newest: Panel | None = None


def panel(every: float = 0.1, *, title: str = "", metrics: Sequence[str] | None = None) -> Panel:
    """Sample the devices of this machine until `.stop()` or the end of the `with` block.

    `every` is the number of seconds between two samples. `title` stands above the panel and its
    picture; without one, the name of its only span does, or the names of the devices. `metrics`
    are those that it shows at first, such as ["utilisation", "clock"]; all are sampled.
    """
    return Panel(every, title, metrics)


class Panel:
    """Samples the devices. A cell that ends with it shows it, live.

    It stops when another panel is started.
    """

    def __init__(
        self, every: float = 0.1, title: str = "", metrics: Sequence[str] | None = None
    ) -> None:
        global _newest  # noqa: PLW0603
        every = interval(every)  # a mistake must not stop the panel that runs
        shown = [name for name, metric in METRICS.items() if metric.colours]
        self._metrics = metrics and [one_of("metrics", name, shown) for name in metrics]
        if _newest is not None:
            _newest._stop("another panel was started")
        self._client = SamplerClient(self._on_lines, every, spans.one_line(title) if title else "")
        self._header = self._client.header
        self._recorder = Recorder(self._header, CAPACITY)
        self._key = uuid.uuid4().hex
        self._lock = threading.RLock()
        self._ended: str | None = None  # why
        self._shown: list[str] = []
        self._bridge: Bridge | None = None  # to the page, once the panel is shown
        self._cells: spans.CellSpans | None = None
        self._ending = ExitStack()
        try:
            self._ending.callback(self._client.stop)
            self._client.start()
            self._ending.enter_context(spans.listening(self._on_span))
            if hasattr(_shell(), "events"):
                self._cells = spans.CellSpans(_shell(), self._on_cell)
                self._ending.callback(self._cells.unfollow)
        except BaseException:  # Ctrl-C too: this panel has no name yet by which to stop it
            self._ending.close()
            raise
        _newest = self

    def span(self, name: str, images: float | None = None) -> spans.OpenSpan:
        """Begin a span: `with panel.span("epoch 3", images=60_000): ...`"""
        self._must_live(f"the span {name!r}")
        return spans.OpenSpan(name, images, (self._on_span,))

    def table(self) -> SpanTable:
        """Returns seconds, utilisation, memory, joules and images per joule of every span."""
        return self.recording.table()

    def save(self, path: str | Path) -> Path:
        """Write all that was sampled to a file, which `labkit.replay` shows. Returns the path."""
        return self.recording.save(path)

    @property
    def recording(self) -> Recording:
        """All samples and spans so far, as plain data."""
        if self.live:
            self._client.flush(UP_TO_NOW)
        return self._so_far()

    @property
    def live(self) -> bool:
        """Whether the devices are still being sampled."""
        return self._ended is None

    def stop(self) -> None:
        """End the sampling. What was sampled stays: table and save go on working."""
        self._stop("stopped")

    def __enter__(self) -> Self:
        self._must_live("this block")
        from labkit.views.live import in_kernel

        if in_kernel():
            self._ipython_display_()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        title = self._so_far().title or "no devices"
        return f"Panel: {title}, {'live' if self.live else 'stopped'}"

    def _so_far(self) -> Recording:
        return self._recorder.recording(measured(self._header.where))

    def _must_live(self, what: str) -> None:
        if not self.live:
            raise LabError(
                f"The panel was stopped before {what}, so it has no samples of it. "
                "Start another: with labkit.panel() as panel:"
            )

    def _stop(self, reason: str) -> None:
        from labkit.views.live import publish

        with self._lock:
            if not self.live:
                return
            self._ended = reason
        now = time.monotonic() - self._header.clock
        for span in self._so_far().spans:
            if span.end is None:  # how many of its images it had seen is unknown
                self._add_span(replace(span, end=now, images=None))
        self._client.flush(UP_TO_NOW)  # the last samples still go to the page
        self._ending.close()
        if self._bridge is not None:  # kept: a page that is opened anew asks it for the history
            self._bridge.close(reason)
        for shown in self._shown:
            publish(self._still(), shown, update=True)

    # How it is shown ------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        from labkit.views.live import publish, shows_live

        shown = uuid.uuid4().hex
        if not self.live:
            publish(self._still(), shown)
            return
        self._shown.append(shown)
        data = {"text/plain": repr(self)}
        if shows_live():
            from labkit.telemetry.page.bridge import Bridge
            from labkit.telemetry.page.panel_page import packed, page

            if self._bridge is None:
                # Newer samples follow by themselves; to wait here could be to wait for ourselves.
                self._bridge = Bridge(self._key, lambda: packed(self._so_far(), users=True))
                self._client.show()
            alt = "A live panel of this machine's devices. It is drawn while the kernel runs."
            stamp, title = str(measured(self._header.where)), self._so_far().title
            data["text/html"] = page(
                None, key=self._key, alt=alt, stamp=stamp, title=title,
                shown=self._metrics, address=self._bridge.address,
            )  # fmt: skip
        publish((data, {}), shown)

    def _still(self) -> tuple[dict[str, str], dict[str, Any]]:
        return self._so_far()._repr_mimebundle_(self._key, self._ended, self._metrics)

    # What arrives ---------------------------------------------------------------------------

    def _on_lines(self, text: str) -> None:
        """Take lines of the sampler. This runs beside a training, so it does little."""
        self._recorder.take(text)
        if self._bridge is not None:
            self._bridge.send(text.replace("\n", ","))
            if self._cells is not None:
                self._cells.say_busy()

    def _on_span(self, span: Span) -> None:
        """Take a span that has begun or ended in this process, with times of time.monotonic."""
        if self.live:
            self._client.sample()  # counters are read right at the edge
            clock = self._header.clock
            end = None if span.end is None else span.end - clock
            self._add_span(replace(span, start=span.start - clock, end=end))

    def _on_cell(self, span: Span) -> None:
        """Take a cell. It is shown once it has ended: most end before there is much to see."""
        if span.end is not None and span.end - span.start >= SHORT_CELL * self._header.every:
            self._on_span(span)
        else:
            self._client.sample()

    def _add_span(self, span: Span) -> None:
        self._recorder.add_span(span)
        if self._bridge is not None:
            self._bridge.add(line(span))


# The notebook around a panel ---------------------------------------------------------------------


def _shell() -> Any:
    # IPython is not imported here: if it is not there already, this is not a notebook.
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
