"""What a running panel remembers: rows in columns, spans, states; the same memory for ever.

>>> store = Store(Header("this laptop", "2026-11-21T10:00:00+01:00", 0.1, 0.0))
>>> store.take([{"source": "host", "metrics": ["utilisation"],
...              "devices": [{"key": "cpu", "name": "a CPU", "sort": "cpu"}]},
...             [0, 0.1, [50]], [0, 0.2, [100]]])
>>> store.recording().column("cpu", "utilisation")[1].tolist()
[50.0, 100.0]
"""

from __future__ import annotations

import json
import threading
from typing import Any

from labkit.kinds import Kind, measured
from labkit.telemetry.columns import Columns
from labkit.telemetry.lines import Header, Span
from labkit.telemetry.metrics import State
from labkit.telemetry.parsing import header_of, number_of, source_of, span_of, state_of
from labkit.telemetry.recording import Recording, Series

__all__ = ["Store"]

# Rows wait as they came until there are so many: numbers are turned into columns in blocks.
_BLOCK = 256
_MOST_SPANS, _MOST_STATES, _MOST_EDGES = 10_000, 2_000, 1_000


class Store:
    """Takes parsed lines from any thread, keeps a bounded history, gives recordings of it."""

    def __init__(self, header: Header, capacity: int = 20_000) -> None:
        self.header = header
        self._capacity = capacity
        self._lock = threading.Lock()
        self._columns: list[Columns] = []
        self._waiting: list[list[Any]] = []
        self._texts: list[str] = []
        self._spans: dict[tuple[str, float, str], Span] = {}
        self._states: list[State] = []
        self._cost: float | None = None
        self._seconds = 0.0
        self._let_go = {"spans": 0, "rows of unnamed sources": 0}

    def unlock(self) -> None:
        """In a fork: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def take(self, lines: list[Any]) -> None:
        """Remember these. Lines that a newer sampler may add are passed over."""
        with self._lock:
            self._read_texts()
            for line in lines:
                if type(line) is list:
                    self._row(line)
                elif "source" in line:
                    self._source(line)
                elif "span" in line:
                    self._span(span_of(line))
                elif "state" in line:
                    self._state(state_of(line))
                elif "cost" in line:
                    self._cost = number_of(line, "cost")
                    self._seconds = max(self._seconds, number_of(line, "time"))
                elif "end" in line:
                    self._seconds = max(self._seconds, number_of(line, "end"))
                elif "labkit" in line:
                    self.header = header_of(line)

    def take_rows(self, text: str) -> None:
        """Remember rows as they came, JSON texts with commas between; read when there are many."""
        with self._lock:
            self._texts.append(text)
            if len(self._texts) >= _BLOCK:
                self._read_texts()

    def _read_texts(self) -> None:
        texts, self._texts = self._texts, []
        for line in json.loads(f"[{','.join(texts)}]"):
            self._row(line)

    def recording(self, kind: Kind | None = None) -> Recording:
        """All of it as it is now; by default measured on what the header says."""
        with self._lock:
            self._read_texts()
            for source in range(len(self._columns)):
                self._settle(source)
            series = tuple(
                Series(
                    one.source,
                    one.metrics,
                    tuple(one.devices.values()),
                    *one.snapshot(),
                    thinned=one.thinned,
                )
                for one in self._columns
            )
            ends = [float(one.times[-1]) for one in series if len(one.times)]
            return Recording(
                kind=kind or measured(self.header.where),
                header=self.header,
                series=series,
                spans=tuple(sorted(self._spans.values(), key=lambda span: span.start)),
                states=(*self._states, *self._notes()),
                seconds=max([self._seconds, *ends]),
                cost=self._cost,
            )

    def _row(self, line: list[Any]) -> None:
        source = line[0] if line else None
        if type(source) is not int or not 0 <= source < len(self._waiting):
            self._let_go["rows of unnamed sources"] += 1
            return
        waiting = self._waiting[source]
        waiting.append(line)
        if len(waiting) >= _BLOCK:
            self._settle(source)

    def _source(self, line: dict[str, Any]) -> None:
        name, metrics, devices = source_of(line)
        names = [one.source for one in self._columns]
        if name not in names:
            self._columns.append(Columns(name, self.header.every, self._capacity))
            self._waiting.append([])
            names.append(name)
        source = names.index(name)
        self._settle(source)
        self._columns[source].name(metrics, devices)

    def _settle(self, source: int) -> None:
        """Turn the rows that wait into columns."""
        import numpy as np

        rows = self._waiting[source]
        if not rows:
            return
        self._waiting[source] = []
        columns = self._columns[source]
        if columns.rows + len(rows) >= columns.limit:
            last = list(self._spans.values())[-_MOST_EDGES:]
            edges = [at for span in last for at in (span.start, span.end) if at is not None]
            columns.edges = np.array(edges)
        columns.add(rows)

    def _span(self, span: Span) -> None:
        # A span comes twice: when it begins, and with its end.
        key = (span.name, round(span.start, 6), span.by)
        known = self._spans.get(key)
        if known is None or known.end is None:
            self._spans[key] = span
        if len(self._spans) > _MOST_SPANS:
            self._spans.pop(next(iter(self._spans)))
            self._let_go["spans"] += 1

    def _state(self, state: State) -> None:
        self._states.append(state)
        if len(self._states) > _MOST_STATES:
            # The older half goes, but for what was said last of each metric of each device.
            half = _MOST_STATES // 2
            newest = {(one.device, one.metric): at for at, one in enumerate(self._states)}
            stay = [self._states[at] for at in sorted(newest.values()) if at < half]
            self._states = stay[-half:] + self._states[half:]

    def _notes(self) -> list[State]:
        """What could not be kept, in words."""
        lost = {**self._let_go}
        lost.update({f"rows of {one.source}": one.bad for one in self._columns})
        return [
            State(self._seconds, "", "", "note", f"{count:,} {what} could not be kept.")
            for what, count in lost.items()
            if count
        ]
