"""The live panel: one strip per device, beside the cell that trains.

>>> with labkit.panel() as panel:                          # doctest: +SKIP
...     with panel.span("three epochs", images=180_000):
...         job.train(epochs=3)
>>> panel.table()                                          # doctest: +SKIP
"""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from labkit.arguments import number
from labkit.hardware import machine_text
from labkit.kinds import LabError, measured
from labkit.telemetry import spans
from labkit.telemetry.client import SamplerClient
from labkit.telemetry.format import Header, Span, span_line
from labkit.telemetry.recording import Recorder, Recording
from labkit.telemetry.usage import SpanTable

if TYPE_CHECKING:
    from labkit.views.figure import Picture

__all__ = ["Panel", "panel"]

FIRST_SAMPLES = 2.0  # seconds that a panel waits for its first samples, so that nothing is missed
APART = 0.06  # seconds between two samples that give a utilisation
UP_TO_NOW = 0.3  # seconds that a table waits for the samples of this moment
CAPACITY = 4_000_000  # numbers that are kept of each source, 32 MB; older rows are thinned
SHOWN_BATCH = 0.5  # seconds of samples in a message to a page: two messages a second
SHORT_CELL = 3  # samples: a cell that ends sooner has nothing to show

_panels: weakref.WeakSet[Panel] = weakref.WeakSet()


def panel(every: float = 0.1) -> Panel:
    """Sample the devices of this machine until `.stop()` or the end of the `with` block.

    `every` is the number of seconds between two samples.
    """
    return Panel(every)


class Panel:
    """Samples the devices. Name it in a cell and it is shown, live."""

    def __init__(self, every: float = 0.1) -> None:
        every = number("every", every, at_least=0.02, at_most=60)
        self._cell = _running_cell()
        for other in list(_panels):
            # Two panels of one cell live side by side; those of its last run have been forgotten.
            if self._cell and self._cell[:1] == other._cell[:1] and self._cell != other._cell:
                other._stop("its cell was run again")
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        self._header = Header(machine_text(), when, every, time.monotonic())
        self._recorder = Recorder(self._header, CAPACITY)
        self._key = uuid.uuid4().hex
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._ended: str | None = None  # why
        self._open: dict[tuple[str, float], Span] = {}
        self._long_cells: set[tuple[str, float]] = set()
        self._shown: list[str] = []
        self._bridges: list[Any] = []  # at most one, once the panel is shown
        # Only you hold a panel: one that is forgotten ends, as does one that a script leaves open.
        self._listener = _weakly(self._on_span)
        self._client = SamplerClient(
            every, _weakly(self._on_lines), self._header.where, self._header.clock
        )
        shell = _shell()
        self._cells = spans.Cells(shell, self._listener) if hasattr(shell, "events") else None
        self._ending = weakref.finalize(
            self, _end, self._client, self._listener, self._cells, self._bridges
        )
        _panels.add(self)
        try:
            self._client.start()
            spans.listen(self._listener)
            # Two samples: utilisation is known between two, and a span may begin at once.
            self._client.flush(FIRST_SAMPLES)
            time.sleep(APART)
            self._client.flush(UP_TO_NOW)
        except BaseException:  # Ctrl-C too: this panel has no name yet by which to stop it
            self.stop()
            raise

    def span(self, name: str, images: float | None = None) -> spans.Mark:
        """Mark what happens inside: `with panel.span("epoch 3", images=60_000): ...`"""
        if not isinstance(name, str) or not name.strip():
            raise LabError(f'A span needs a name, such as panel.span("epoch 3"), got {name!r}.')
        self._must_live(f"the span {name!r}")
        return spans.begin(name, images, "you", (self._listener,))

    def table(self) -> SpanTable:
        """Seconds, utilisation, memory, joules and images per joule of every span."""
        return self.recording.table()

    def figure(self) -> Picture:
        """All that was sampled until now, as a still picture."""
        return self.recording.figure()

    def save(self, path: str | Path) -> None:
        """Write all that was sampled until now to a file; `labkit.replay(path)` shows it again."""
        self.recording.save(path)

    @property
    def recording(self) -> Recording:
        """All that was sampled until now, as plain data."""
        if self.live:
            self._client.flush(UP_TO_NOW)
        return self._so_far()

    @property
    def live(self) -> bool:
        """Whether the devices are still being sampled; a fork has no part in its parent's panel."""
        return self._ended is None and self._owner == os.getpid()

    def stop(self) -> None:
        """End the sampling. What was sampled stays: table, figure and save go on working."""
        self._stop("stopped")

    def __enter__(self) -> Self:
        self._must_live("this block")
        if _in_kernel():
            try:
                self._ipython_display_()
            except BaseException:
                self.stop()
                raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        names = ", ".join(d.name for d in self._so_far().devices if d.part_of is None)
        return f"Panel of {names or 'no devices'}, {'live' if self.live else 'stopped'}"

    def _so_far(self) -> Recording:
        return self._recorder.recording(measured(self._header.where))

    def _must_live(self, what: str) -> None:
        if not self.live:
            raise LabError(
                f"The panel was stopped before {what}, so it has no samples of it. "
                "Start another: with labkit.panel() as panel:"
            )

    def _stop(self, reason: str) -> None:
        with self._lock:
            if not self.live:
                return
            self._ended = reason
        now = self._now()
        for span in list(self._open.values()):
            if span.by != "cell" or self._lasts(span, now):
                # How many of its images it had seen is unknown.
                self._add_span(replace(span, end=now, images=None))
        self._client.flush(UP_TO_NOW)  # the last samples still go to the page
        self._client.stop()
        for bridge in self._bridges:  # kept: a page that is opened anew asks it for the history
            bridge.close(reason)
        self._ending()
        try:
            for shown in self._shown:
                _publish(self._still(), shown, update=True)
        except Exception as fault:  # noqa: BLE001 (the samples are safe without their picture)
            warnings.warn(f"The panel's picture could not be drawn: {fault!r}", stacklevel=3)

    # How it is shown ------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        shown = uuid.uuid4().hex
        if not self.live:
            _publish(self._still(), shown)
            return
        self._shown.append(shown)
        data = {"text/plain": repr(self)}
        if _in_kernel() and os.environ.get("LABKIT_PICTURES") != "still":
            from labkit.views.panel_page import page

            self._connect()
            alt = "A live panel of this machine's devices. It is drawn while the kernel runs."
            stamp = str(measured(self._header.where))
            data["text/html"] = page(None, key=self._key, live=True, alt=alt, stamp=stamp)
        _publish((data, {}), shown)

    def _still(self) -> tuple[dict[str, str], dict[str, Any]]:
        return self._so_far()._repr_mimebundle_(key=self._key, ended=self._ended)

    def _connect(self) -> None:
        from labkit.views.live import Bridge

        with self._lock:
            if self._bridges:
                return
            self._client.batch(max(1, round(SHOWN_BATCH / self._header.every)))
            this = weakref.ref(self)

            def history() -> Recording | None:
                # Newer samples follow by themselves; to wait here could be to wait for ourselves.
                panel = this()
                return None if panel is None else panel._so_far()

            self._bridges.append(Bridge(self._key, history))

    # What arrives ---------------------------------------------------------------------------

    def _on_lines(self, text: str) -> None:
        """Lines of the sampler: twice a second beside a training, so in few steps."""
        self._recorder.take(text)
        self._add_long_cells()
        self._send(text.replace("\n", ","))
        if self._bridges and self._cells is not None:
            self._cells.say_busy()

    def _on_span(self, span: Span) -> None:
        """A span has begun or ended, somewhere in this process. Times are time.monotonic's."""
        if not self.live:
            return
        self._client.sample()  # counters are read right at the edge
        clock = self._header.clock
        end = None if span.end is None else span.end - clock
        span = replace(span, start=span.start - clock, end=end)
        key = (span.name, span.start)
        with self._lock:
            if end is None:
                self._open[key] = span
            else:
                self._open.pop(key, None)
                self._long_cells.discard(key)
            if span.by != "cell" or (end is not None and self._lasts(span, end)):
                self._add_span(span)

    def _add_long_cells(self) -> None:
        """A cell that runs is shown once it has lasted; most end before there is much to see."""
        with self._lock:
            for key, span in self._open.items():
                new = span.by == "cell" and key not in self._long_cells
                if new and self._lasts(span, self._now()):
                    self._long_cells.add(key)
                    self._add_span(span)

    def _add_span(self, span: Span) -> None:
        self._recorder.add_span(span)
        self._send(span_line(span), wait=True)

    def _send(self, lines: str, *, wait: bool = False) -> None:
        for bridge in self._bridges:
            bridge.send([lines], wait=wait)

    def _lasts(self, span: Span, until: float) -> bool:
        return until - span.start >= SHORT_CELL * self._header.every

    def _now(self) -> float:
        return time.monotonic() - self._header.clock


def _end(
    client: SamplerClient,
    listener: Callable[[Span], object],
    cells: spans.Cells | None,
    bridges: list[Any],
) -> None:
    """End all that works for a panel, which may be gone."""
    if cells is not None:
        cells.unfollow()
    spans.forget(listener)
    client.stop()
    for bridge in bridges:
        bridge.close("no variable refers to it any more")


def _weakly(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """The method, callable without keeping its object alive."""
    kept = weakref.WeakMethod(method)

    def call(argument: Any) -> None:
        found = kept()
        if found is not None:
            found(argument)

    return call


# The notebook around a panel; where there is none, these do nothing ---------------------------


def _shell() -> Any:
    # IPython is not imported here: if it is not there already, this is not a notebook.
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def _in_kernel() -> bool:
    return getattr(_shell(), "kernel", None) is not None


def _running_cell() -> tuple[str, ...]:
    """The cell that runs, and which run of it this is."""
    parent = (_shell().get_parent() or {}) if _in_kernel() else {}
    cell = parent.get("metadata", {}).get("cellId")
    return (str(cell), str(parent["header"]["msg_id"])) if cell else ()


def _publish(
    bundle: tuple[dict[str, str], dict[str, Any]], shown: str, *, update: bool = False
) -> None:
    """Put a bundle of formats into the cell's output, or in place of an earlier one."""
    data, metadata = bundle
    if _in_kernel():
        from IPython.display import publish_display_data

        publish_display_data(  # type: ignore[no-untyped-call]
            data=data, metadata=metadata, transient={"display_id": shown}, update=update
        )
    elif not update:
        print(data["text/plain"])
