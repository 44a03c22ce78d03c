"""Reads the file of a recording, quickly, and up to the first line that is damaged."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit.kinds import LabError, recorded
from labkit.telemetry.columns import Columns, numbers
from labkit.telemetry.counters import SUMS
from labkit.telemetry.lines import FORMAT, Header, Span
from labkit.telemetry.metrics import METRICS, State
from labkit.telemetry.parsing import (
    WHYS,
    Damage,
    header_of,
    number_of,
    parse,
    source_of,
    span_of,
    state_of,
)
from labkit.telemetry.recording import Recording, Series

__all__ = ["read"]

_TOGETHER = 1000  # rows: enough for speed, few enough to stay in the processor's cache
_CUT = "Its last line is cut short, as after a crash or on a full disk; all before it is here."
_OPEN = "It has no end: it was cut off there, or is still being written."


_YEARS = 10 * 366 * 86400.0  # seconds; no recording is as long
_MOST_PERCENT = 1000.0
_IMPOSSIBLE = {
    "numbers": "more than 1,000 % or fewer than 0 bytes",
    "spans": "one that ends before it begins",
}
_GZIP = b"\x1f\x8b"

_Fault = tuple[int, str]  # index of the line, what is wrong with it


def read(path: str | Path) -> Recording:
    """The recording in a file. What is wrong with the file is said in its `damage`.

    A file that is no recording at all is a LabError.
    """
    pieces, whole = _pieces(Path(path))
    header = _header(pieces[0], path)
    with _no_collecting():
        said, fault = _said(pieces, len(pieces), header)
        if fault is not None:
            # Rows are looked at many at a time: some behind the damage may be among them.
            said, _ = _said(pieces, fault[0], header)
    damage = _damage(fault, pieces, said, whole=whole)
    series = said.series()
    ends = [float(one.times[-1]) for one in series if len(one.times)]
    ends += [span.end for span in said.spans if span.end is not None]
    return Recording(
        kind=recorded(header.where, header.when[:16].replace("T", " ")),
        header=header,
        series=series,
        spans=tuple(sorted(said.spans, key=lambda span: span.start)),
        states=tuple(said.states),
        seconds=max([said.seconds, *ends]),
        cost=said.cost,
        damage=damage,
        file=Path(path).resolve(),
    )


def _pieces(path: Path) -> tuple[list[bytes], bool]:
    """The lines, and whether the last one has its end."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LabError(
            f"There is no file {path}. A recording is made with panel.save(path) or with "
            "`labkit record -- python train.py`."
        ) from None
    except OSError as fault:
        raise LabError(
            f"{path} cannot be read: {fault.strerror or fault}. Give the path of a recording, "
            "a file whose name usually ends in .jsonl."
        ) from fault
    if data.startswith(_GZIP):
        raise LabError(
            f"{path} is packed with gzip. Unpack it first, with `gunzip -k {path}` if its name "
            "ends in .gz, and give the path of what comes out."
        )
    if not data.strip():
        raise LabError(
            f"{path} is empty. Its program was ended before anything was written; record again."
        )
    pieces = data.split(b"\n")
    whole = not pieces[-1].strip()
    while not pieces[-1].strip():
        pieces.pop()
    return pieces, whole


def _header(line: bytes, path: str | Path) -> Header:
    try:
        parsed = parse(line)
        if isinstance(parsed, dict) and parsed.get("labkit") == "recording":
            version = parsed.get("format")
            if type(version) is int and version > FORMAT:
                raise LabError(
                    f"{path} is a recording in format {version}; this labkit reads format "
                    f"{FORMAT}. Update labkit, and open it again."
                )
        return header_of(parsed)
    except Damage as fault:
        raise LabError(
            f"{path} is no recording that can be read: its first line {fault}. "
            "Give the path of a file that panel.save or `labkit record` has written."
        ) from fault


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Millions of lists are made and none is garbage: to look for some would take long."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Said:
    """What the lines said so far."""

    def __init__(self, pieces: list[bytes], header: Header) -> None:
        self._spans: dict[tuple[str, float, str], Span] = {}
        self.states: list[State] = []
        self.cost: float | None = None
        self.seconds = 0.0
        self.ended = False
        self.columns: list[Columns] = []
        self.impossible = {"numbers": 0, "spans": 0}  # left out
        self._pieces, self._header = pieces, header
        self._thin: set[str] = set()  # saved after thinning
        self._waiting: list[list[int]] = []  # of each source, lines that become numbers together
        self._by_start: dict[bytes, list[int]] = {}

    @property
    def spans(self) -> list[Span]:
        """Each span once."""
        return list(self._spans.values())

    def series(self) -> tuple[Series, ...]:
        """All sources as they are now."""
        return tuple(
            Series(
                one.source,
                one.metrics,
                tuple(one.devices.values()),
                *one.snapshot(),
                thinned=one.source in self._thin,
            )
            for one in self.columns
        )

    def row(self, at: int) -> None:
        """Line `at` is a row; it may wait."""
        line = self._pieces[at]
        waiting = self._by_start.get(line[: line.find(b",")])
        if waiting is None:
            parsed = parse(line)
            number = parsed[0] if parsed else None
            if type(number) is not int or not 0 <= number < len(self._waiting):
                raise Damage("belongs to a source that no line before it names")
            waiting = self._waiting[number]
        waiting.append(at)
        if len(waiting) >= _TOGETHER:
            self._settle(self._waiting.index(waiting))

    def note(self, line: dict[str, Any]) -> None:
        """Whatever is no row. Lines that a newer labkit may add are passed over."""
        if "source" in line:
            self._source(line)
        elif "span" in line:
            self._span(span_of(line))
        elif "state" in line:
            if line["state"] in WHYS:
                self.states.append(state_of(line))
                _moment(line, "time")
        elif "cost" in line:
            self.cost = number_of(line, "cost")
            self.seconds = max(self.seconds, _moment(line, "time"))
        elif "end" in line:
            self.seconds = max(self.seconds, _moment(line, "end"))
            self.ended = True

    def _span(self, span: Span) -> None:
        end = span.start if span.end is None else span.end
        if end < span.start or max(abs(end), abs(span.start)) > _YEARS:
            self.impossible["spans"] += 1
            return
        # A span may come twice: when it begins, and with its end.
        key = (span.name, round(span.start, 6), span.by)
        known = self._spans.get(key)
        if known is None or known.end is None:
            self._spans[key] = span

    def settle(self) -> None:
        """No row waits any more."""
        for source in range(len(self.columns)):
            self._settle(source)

    def _source(self, line: dict[str, Any]) -> None:
        name, metrics, devices = source_of(line)
        names = [one.source for one in self.columns]
        if name not in names:
            self._by_start[f"[{len(names)}".encode()] = waiting = list[int]()
            self._waiting.append(waiting)
            # Memory that no row comes to fill is never touched.
            self.columns.append(Columns(name, self._header.every, expected=len(self._pieces)))
            names.append(name)
        source = names.index(name)
        self._settle(source)
        self.columns[source].name(metrics, devices)
        if {sums[0] for sums in SUMS.values()} & set(metrics):
            self._thin.add(name)

    def _settle(self, source: int) -> None:
        columns, places = self.columns[source], self._waiting[source]
        lines = [self._pieces[at] for at in places]
        joined = b",".join(lines)
        try:
            parsed = json.loads(b"[" + joined + b"]")
            # Two halves that happen to fit together are still two damaged lines.
            if len(parsed) == len(lines) and not _odd(joined):
                self._append(columns, parsed)
                places.clear()
                return
        except (ValueError, RecursionError):
            pass
        for at, line in zip(places, lines, strict=True):
            try:
                parsed = parse(line)
                if _odd(line):
                    raise ValueError
                self._append(columns, [parsed])
            except Damage as fault:
                raise _At(at, str(fault)) from fault
            except ValueError as fault:
                raise _At(at, "is a row that does not fit its source") from fault
        places.clear()

    def _append(self, columns: Columns, parsed: list[Any]) -> None:
        """Rows as numbers; those that no gauge can show are left out."""
        import numpy as np

        times, values = numbers(parsed, *columns.shape)
        if len(times) and abs(times).max() > _YEARS:
            raise ValueError
        low, high = np.array([_limits(name) for name in columns.named]).reshape(-1, 2).T
        wrong = (values < low) | (values > high)
        if wrong.any():
            self.impossible["numbers"] += int(wrong.sum())
            values[wrong] = np.nan
        columns.append(times, values)


def _limits(metric: str) -> tuple[float, float]:
    """The least and the most that a metric can be; anything, for one that is not known here."""
    unit = METRICS[metric].unit if metric in METRICS else "°C"
    return (
        -float("inf") if unit == "°C" else 0.0,
        _MOST_PERCENT if unit == "%" else float("inf"),
    )


def _moment(line: dict[str, Any], name: str) -> float:
    at: float = number_of(line, name)
    if abs(at) > _YEARS:
        raise Damage(f"tells of a moment {at:g} s after the beginning, which cannot be")
    return at


def _odd(rows: bytes) -> bool:
    """Words, true or false, NaN: JSON for Python, and no number."""
    return any(sign in rows for sign in (b'"', b"t", b"f", b"N"))


class _At(Exception):
    """A damaged line that was looked at later than it came."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


def _said(pieces: list[bytes], upto: int, header: Header) -> tuple[_Said, _Fault | None]:
    """Go through the lines in order; the first fault that is found on the way."""
    said, fault = _Said(pieces, header), None
    at = 0
    try:
        for at in range(1, upto):
            if pieces[at][:1] == b"[":
                said.row(at)
            elif pieces[at].strip():
                line = parse(pieces[at])
                if not isinstance(line, dict):
                    raise Damage("is not a line of a recording")
                said.note(line)
    except Damage as broken:
        fault = (at, str(broken))
    except _At as broken:
        return said, (broken.at, str(broken))
    try:
        said.settle()
    except _At as broken:
        fault = (broken.at, str(broken))
    return said, fault


def _damage(fault: _Fault | None, pieces: list[bytes], said: _Said, *, whole: bool) -> str | None:
    sentences = []
    lost = sum(one.bad for one in said.columns)
    if fault is not None and fault[0] == len(pieces) - 1 and not whole:
        sentences.append(_CUT)
    elif fault is not None:
        sentences.append(f"Line {fault[0] + 1} {fault[1]}; this is what comes before it.")
    elif not said.ended:
        sentences.append(_OPEN)
    sentences += [
        f"{count:,} of its {what} cannot be, such as {such}, and are left out."
        for what, such in _IMPOSSIBLE.items()
        if (count := said.impossible[what])
    ]
    if lost:
        sentences.append(f"{lost:,} of its rows are out of order, and left out.")
    return " ".join(sentences) or None
