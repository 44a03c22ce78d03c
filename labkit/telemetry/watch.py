"""The live panel: one strip per device, beside the cell that trains.

>>> with labkit.panel() as panel:                          # doctest: +SKIP
...     with panel.span("three epochs", images=180_000):
...         job.train(epochs=3)
>>> panel.table()                                          # doctest: +SKIP
"""

from __future__ import annotations

import json
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from labkit.hardware import machine_text
from labkit.kinds import LabError, measured
from labkit.telemetry import notebook, spans
from labkit.telemetry.arrivals import Arrivals
from labkit.telemetry.ends import end, of_this_process, weakly
from labkit.telemetry.feed import Feed
from labkit.telemetry.lines import Header, Span, span_line, state_line
from labkit.telemetry.metrics import Source, State
from labkit.telemetry.record_file import RecordFile
from labkit.telemetry.store import Store

if TYPE_CHECKING:
    from labkit.telemetry.recording import Recording
    from labkit.telemetry.use import SpanTable
    from labkit.views.figure import Picture

__all__ = ["Panel", "panel"]

FIRST_LOOK = 2.0  # seconds that a panel waits for its first numbers, so that nothing goes unseen
APART = 0.06  # seconds between two looks that tell the utilisation between them
CATCH_UP = 0.3  # seconds that a table waits for the numbers of this moment
SHORT_CELL = 3  # looks: a cell that ends sooner has nothing to show
FASTEST, SLOWEST = 0.02, 60.0


def panel(
    every: float = 0.1,
    *,
    record: str | Path | None = None,
    sources: Sequence[str | Source] = ("gpus", "host"),
) -> Panel:
    """Watch the devices of this machine, from now until `.stop()` or the end of the `with` block.

    `every` is the number of seconds between two looks; `record` names a file that all is written to
    as it happens, so that a kernel that dies costs the last moment only.
    """
    return Panel(every, record=record, sources=sources)


class Panel:
    """A running watch over the devices. Name it in a cell and it is shown, live."""

    def __init__(
        self,
        every: float = 0.1,
        *,
        record: str | Path | None = None,
        sources: Sequence[str | Source] = ("gpus", "host"),
    ) -> None:
        where = machine_text()
        every = _pace(every)
        sources = (sources,) if isinstance(sources, str) else sources
        notebook.replaces(self)
        self._feed = Feed(every, sources, where=where)
        self._key = uuid.uuid4().hex
        self._bridge: Any = None
        self._shown: list[str] = []
        self._open: dict[tuple[str, float], Span] = {}
        self._told: set[tuple[str, float]] = set()
        self._stopped = False
        self._new_locks()
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        self._header = Header(where, when, every, self._feed.clock)
        self._arrivals = Arrivals(every)
        self._store = Store(self._header)
        # The file comes first: a name that cannot be written must not leave a sampler behind.
        self._file = None if record is None else RecordFile(Path(record), self._header)
        # Nobody but you holds a panel: one that is forgotten ends, and one that a script leaves
        # running is ended with the script, its file as well.
        self._hear = weakly(self._heard)
        self._ending = weakref.finalize(self, end, self._feed, self._file, self._hear)
        of_this_process(self)
        try:
            self._feed.listen(weakly(self._arrived), weakly(self._rows_arrived))
            self._feed.start()
            if self._file is not None:
                self._feed.each()
            spans.listen(self._hear)
            notebook.watch_cells(self)
            self._begin_to_see()
        except BaseException:  # Ctrl-C too: nobody holds this panel who could stop it
            self.stop()
            raise

    # What a lesson uses ---------------------------------------------------------------------

    def span(self, name: str, images: float | None = None) -> spans.Mark:
        """Mark what happens inside: `with panel.span("epoch 3", images=60_000): ...`"""
        if not isinstance(name, str) or not name.strip():
            raise LabError(f'A span needs a name, not {name!r}: panel.span("epoch 3").')
        self._must_live(f"the span {name!r}")
        return spans.begun(name, images, "you", (self._hear,))

    def table(self) -> SpanTable:
        """Seconds, utilisation, memory, joules and images per joule of every span."""
        return self.recording.table()

    def figure(self) -> Picture:
        """All that was seen until now, as a still picture."""
        return self.recording.figure()

    def save(self, path: str | Path) -> None:
        """Write all that was seen until now to a file; `labkit.replay(path)` shows it again."""
        if self._file is not None and self.live and self._file.is_at(Path(path)):
            raise LabError(
                f"{path} is the file that this panel records to, and already holds all of it. "
                "Give another name, or stop the panel first."
            )
        self.recording.save(path)

    @property
    def recording(self) -> Recording:
        """All that was seen until now, as plain data."""
        if self.live:
            self._catch_up(CATCH_UP)
        return self._so_far()

    def _so_far(self) -> Recording:
        return self._store.recording(measured(self._header.where))

    @property
    def live(self) -> bool:
        """Whether the devices are still being watched."""
        return not self._stopped

    def stop(self) -> None:
        """End the watch. What was seen stays: table, figure and save go on working."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        notebook.unwatch_cells(self)
        spans.forget(self._hear)
        now = self._now()
        for span in list(self._open.values()):
            if span.by != "cell" or self._lasts(span, now):
                # How many of its images it had seen is not known.
                self._tell(replace(span, end=now, images=None))
        self._ending()
        if self._bridge is not None:
            self._bridge.close("stopped")
        self._show_still()

    def _show_still(self) -> None:
        """Put the finished picture where the live one was. The numbers are safe without it."""
        try:
            for shown in self._shown:
                notebook.publish(self._still(), shown, update=True)
        except Exception as fault:  # noqa: BLE001 - a training must not end with a picture's fault
            warnings.warn(f"The panel's picture could not be drawn: {fault!r}", stacklevel=3)
        if self._file is not None and self._file.fault:
            warnings.warn(self._file.fault, stacklevel=3)

    def __enter__(self) -> Self:
        self._must_live("this block")
        try:
            notebook.show(self)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        names = ", ".join(d.name for d in self.recording.devices if d.part_of is None)
        return f"Panel of {names or 'no devices'}, {'live' if self.live else 'stopped'}"

    # How it is shown ------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        shown = uuid.uuid4().hex
        if not self.live:
            notebook.publish(self._still(), shown)
            return
        self._shown.append(shown)
        notebook.publish(self._view(), shown)

    def _view(self) -> dict[str, Any]:
        data: dict[str, Any] = {"text/plain": repr(self)}
        if notebook.still() or not notebook.in_kernel():
            return data
        from labkit.views.panel_page import page

        self._connect()
        alt = "A live panel of this machine's devices. It is drawn while the kernel runs."
        data["text/html"] = page(
            None, key=self._key, live=True, alt=alt, stamp=str(measured(self._header.where))
        )
        return data

    def _still(self) -> Any:
        return self.recording._repr_mimebundle_(key=self._key)

    def _connect(self) -> None:
        from labkit.views.live import Bridge

        with self._lock:
            if self._bridge is None:
                self._feed.live()
                this = weakref.ref(self)

                def history() -> Recording | None:
                    panel = this()
                    # What is newer comes by itself. To wait for it would be to wait for ourselves
                    # where the feed's own thread asks.
                    return None if panel is None else panel._so_far()

                self._bridge = Bridge(self._key, history)

    # What arrives ---------------------------------------------------------------------------

    def _arrived(self, lines: list[Any]) -> None:
        self._store.take(lines)
        self._arrivals.of_lines(lines)
        if self._file is not None:
            self._file.write(lines)
            if self._file.fault and not self._file.told:
                self._file.told = True
                note = State(self._now(), "", "", "note", self._file.fault)
                self._store.take([json.loads(state_line(note, 0.0))])
        self._tell_of_long_cells()
        self._forward(lines)

    def _rows_arrived(self, text: str) -> None:
        """The usual case, twice a second beside a training: rows go on as they came."""
        if self._file is not None:
            self._arrived(json.loads(f"[{text}]"))
            return
        self._store.take_rows(text)
        self._arrivals.of_text(text)
        self._tell_of_long_cells()
        self._forward([text])

    def _begin_to_see(self) -> None:
        """Wait for two looks: utilisation is known between looks, and a span may begin at once."""
        until = time.monotonic() + FIRST_LOOK
        self._arrivals.wait_for(0.0, FIRST_LOOK)
        time.sleep(APART)
        self._catch_up(max(0.0, until - time.monotonic()))

    def _catch_up(self, deadline: float) -> None:
        """Ask for all that is there to be seen now, and wait for it."""
        moment = self._now()  # before it is asked for: what answers may be quicker than this thread
        self._feed.tell()
        self._arrivals.wait_for(moment, deadline)

    def _forward(self, lines: Sequence[Any], *, wait: bool = False) -> None:
        if self._bridge is not None:
            self._bridge.send(lines, wait=wait)

    # Spans ------------------------------------------------------------------------------------

    def cell(self, name: str) -> spans.Mark:
        """A cell begins; the notebook ends the mark with the cell."""
        return spans.begun(name, None, "cell", (self._hear,))

    def cells_ended(self) -> None:
        """A notebook that is being printed keeps a picture of what was seen until now."""
        if notebook.still() and self._shown:
            self._show_still()

    def _heard(self, span: Span) -> None:
        """Something has begun or ended, somewhere in this process."""
        if self._stopped:
            return
        clock = self._header.clock
        end = None if span.end is None else span.end - clock
        placed = replace(span, start=span.start - clock, end=end)
        # Counters are read right at the edge, not up to a tenth of a second beside it.
        self._feed.mark()
        name = (placed.name, placed.start)
        with self._telling:
            if end is None:
                self._open[name] = placed
            else:
                self._open.pop(name, None)
                self._told.discard(name)
            if placed.by != "cell" or (end is not None and self._lasts(placed, end)):
                self._tell(placed)

    def _tell(self, span: Span) -> None:
        line = span_line(span)
        self._store.take([json.loads(line)])
        if self._file is not None:
            self._file.add(line)
        self._forward([line], wait=True)

    def _tell_of_long_cells(self) -> None:
        """A cell is shown once it has lasted: most end before there is anything to see."""
        if not self._open:
            return
        now = self._now()
        with self._telling:  # all of it, or a cell could end before it is told to have begun
            for name, span in self._open.items():
                if span.by == "cell" and name not in self._told and self._lasts(span, now):
                    self._told.add(name)
                    self._tell(span)

    def _lasts(self, span: Span, until: float) -> bool:
        return until - span.start >= SHORT_CELL * self._header.every

    def _now(self) -> float:
        return time.monotonic() - self._header.clock

    def _must_live(self, what: str) -> None:
        if not self.live:
            raise LabError(
                f"The panel was stopped before {what}, so it sees nothing of it. "
                "Start another: with labkit.panel() as panel:"
            )

    def _new_locks(self) -> None:
        self._lock = threading.RLock()
        self._telling = threading.RLock()

    def disown(self) -> None:
        """In a fork of this process: the panel, its file and its picture are the parent's."""
        notebook.unwatch_cells(self)
        spans.forget(self._hear)
        self._stopped = True
        self._ending.detach()
        self._new_locks()
        self._store.unlock()
        self._file, self._bridge, self._shown = None, None, []


def _pace(every: Any) -> float:
    if isinstance(every, Real) and FASTEST <= float(every) <= SLOWEST:
        return float(every)
    raise LabError(
        f"every={every!r}: a panel looks every {FASTEST:g} to {SLOWEST:g} seconds. "
        "Ten times a second, every=0.1, suits a lesson."
    )
